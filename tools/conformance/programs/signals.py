"""Transforms, sorts, quantisation and bit tricks, for the replay of the CPU fusion passes."""

import jax
import jax.numpy as jnp
from jax import lax


def phases(waves):
    angles = jnp.unwrap(jnp.angle(waves))
    speed = jnp.diff(angles, axis=-1) / (2.0 * jnp.pi)
    shifted = waves * jnp.exp(-1j * angles.mean(axis=-1, keepdims=True))
    return speed, shifted, (shifted * jnp.conj(waves)).imag


def hashed(words):
    def turned(value, places):
        return (value << places) | (value >> (32 - places))

    state = turned(words * jnp.uint32(0xCC9E2D51), 15) * jnp.uint32(0x1B873593)
    state = turned(state ^ jnp.uint32(42), 13) * 5 + jnp.uint32(0xE6546B64)
    state = (state ^ (state >> 16)) * jnp.uint32(0x85EBCA6B)
    state = state ^ (state >> 13)
    letters = lax.bitcast_convert_type(state, jnp.uint8)
    return letters.sum(axis=-1, dtype=jnp.uint32), lax.reduce_xor(state, axes=(1,)), letters[..., 0]


def quantised(values, weights):
    scales = jnp.abs(values).max(axis=1, keepdims=True) / 127.0
    small = jnp.clip(jnp.round(values / scales), -127, 127).astype(jnp.int8)
    total = jnp.dot(small, weights, preferred_element_type=jnp.int32)
    error = small.astype(jnp.float32) * scales - values
    return total.astype(jnp.float32) * scales, jnp.sqrt(jnp.mean(error**2)), small.min(axis=0)


def companded(samples):
    """The mu law of telephones, there and back."""
    squeezed = jnp.sign(samples) * jnp.log1p(255.0 * jnp.abs(samples)) / jnp.log(256.0)
    code = ((squeezed + 1.0) * 127.5).astype(jnp.uint8)
    back = code.astype(jnp.float32) / 127.5 - 1.0
    sign = jnp.where(back < 0, -1, 1).astype(jnp.int16)
    return code, (sign * jnp.expm1(jnp.abs(back) * jnp.log(256.0)) / 255.0).astype(jnp.float16)


def packed(left, right):
    both = jnp.packbits(left & ~right, axis=1)
    either = jnp.packbits(left | right, axis=1)
    shared = lax.population_count(both).sum(axis=1, dtype=jnp.int32)
    back = jnp.unpackbits(either, axis=1)
    return shared, back.astype(bool).any(axis=0), jnp.logical_xor(left, right).all()


def permuted(key, values):
    first, second, third = jax.random.split(key, 3)
    mixed = jax.random.permutation(first, values, independent=True)
    picked = jax.random.categorical(second, values, axis=1)
    return mixed, picked, jax.random.laplace(third, (5, 3, 1)) + jax.random.gumbel(third, (3, 2))


def long_integers(values):
    with jax.enable_x64(True):
        wide = values.astype(jnp.int64) * 6364136223846793005 + 1442695040888963407
        high = (wide >> 33).astype(jnp.int32)
        return high % 100, wide.max() // 3, wide.astype(jnp.float64).mean()


key = ("u32", (2,))

programs = {
    "phases": (phases, (("c64", (7, 333)),)),
    "hashed": (hashed, (("u32", (3, 1365)),)),
    "quantised": (quantised, (("f32", (64, 300)), ("s8", (300, 24)))),
    "companded": (companded, (("f32", (2, 8000)),)),
    "packed": (packed, (("pred", (9, 1003)), ("pred", (9, 1003)))),
    "permuted": (permuted, (key, ("f32", (6, 41)))),
    "long_integers": (long_integers, (("s32", (777,)),)),
}
