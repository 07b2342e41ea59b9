"""Number types, special functions, random bits, transforms and factorisations."""

import jax
import jax.numpy as jnp
from jax import lax


def bits(left, right):
    mixed = (left ^ (right << 3)) + (left >> 5) * jnp.uint32(2654435761)
    counted = lax.population_count(mixed) + lax.clz(right)
    return counted, ~mixed & right, lax.bitcast_convert_type(mixed, jnp.float32)


def integers(left, right):
    bytes_ = (left // 3 + right % 7).astype(jnp.int8)
    return bytes_, left * right, jnp.abs(left) // jnp.maximum(right, 1), (left > right) & (left < 9)


def mixed_precision(half, wide):
    product = (half * half.astype(jnp.float32) + wide).astype(jnp.bfloat16)
    return product.sum(axis=0), (product.astype(jnp.float16) * 2).max()


def complex_field(real, imaginary):
    field = lax.complex(real, imaginary)
    rotated = field * jnp.exp(1j * real) / (1.0 + jnp.abs(field))
    return rotated.real, jnp.angle(rotated), jnp.conj(rotated) @ rotated.T


def spectrum(signal):
    return jnp.abs(jnp.fft.rfft(signal * jnp.hanning(signal.shape[-1]))) ** 2


def filtered(image):
    return jnp.fft.ifft2(jnp.fft.fft2(image) * 0.5).real


def special(values):
    gamma = lax.lgamma(jnp.abs(values) + 1.0) + lax.digamma(jnp.abs(values) + 2.0)
    return (
        lax.erf(values),
        lax.erf_inv(jnp.tanh(values)),
        gamma,
        jnp.cbrt(values),
        lax.atan2(values, gamma),
    )


def float8(values, scale):
    small = (values / scale).astype(jnp.float8_e4m3fn)
    return small.astype(jnp.float32) * scale, (values * scale).astype(jnp.float8_e5m2)


def random(key):
    first, second = jax.random.split(key)
    return jax.random.normal(first, (64, 128)), jax.random.permutation(second, 256)


def dropout(values, key):
    return jnp.where(jax.random.bernoulli(key, 0.9, values.shape), values / 0.9, 0.0).sum(axis=1)


def solved(matrix, right):
    positive = matrix @ matrix.T + 1e-3 * jnp.eye(matrix.shape[0])
    lower = jnp.linalg.cholesky(positive)
    half = lax.linalg.triangular_solve(lower, right, left_side=True, lower=True)
    return half, 2.0 * jnp.log(jnp.diagonal(lower)).sum()


vector, square, key = ("f32", (4096,)), ("f32", (64, 64)), ("u32", (2,))
words, counts = ("u32", (4096,)), ("s32", (4096,))

programs = {
    "bits": (bits, (words, words)),
    "integers": (integers, (counts, counts)),
    "int4": (lambda x, y: (x.astype(jnp.int8) * 2 + y).sum(), (("s4", (512,)), ("s8", (512,)))),
    "mixed_precision": (mixed_precision, (("bf16", (128, 256)), ("f32", (128, 256)))),
    "half": (lambda x: jax.nn.softmax(x * jnp.float16(2)), (("f16", (128, 512)),)),
    "float8": (float8, (vector, ("f32", ()))),
    "complex_field": (complex_field, (square, square)),
    "spectrum": (spectrum, (("f32", (16, 1024)),)),
    "filtered": (filtered, (square,)),
    "special": (special, (vector,)),
    "random": (random, (key,)),
    "dropout": (dropout, (("f32", (128, 512)), key)),
    "generator": (lambda state: lax.rng_bit_generator(state, (1024,)), (("u32", (4,)),)),
    "solved": (solved, (square, ("f32", (64, 8)))),
    "factored": (
        lambda m: (jnp.linalg.qr(m), jnp.linalg.eigh(m + m.T), jnp.linalg.det(m)),
        (square,),
    ),
    "inverse": (lambda m: jnp.linalg.inv(m) * 2.0, (square,)),
    "statistics": (
        lambda x: (x.std(), jnp.median(x), jnp.argmax(x), jnp.isnan(x).any()),
        (vector,),
    ),
}
