"""Number types, special functions, random bits, transforms and factorisations."""

import jax
import jax.numpy as jnp
from jax import lax


def bits(left, right):
    mixed = (left ^ (right << 3)) + (left >> 5) * jnp.uint32(2654435761)
    counted = lax.population_count(mixed) + lax.clz(right)
    return counted, ~mixed & right, lax.bitcast_convert_type(mixed, jnp.float32)


def complex_field(real, imaginary):
    field = lax.complex(real, imaginary)
    rotated = field * jnp.exp(1j * real) / (1.0 + jnp.abs(field))
    return rotated.real, jnp.angle(rotated), jnp.conj(rotated) @ rotated.T


def spectrum(signal):
    return jnp.abs(jnp.fft.rfft(signal * jnp.hanning(signal.shape[-1]))) ** 2


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


vector, square, key = ("f32", (4096,)), ("f32", (64, 64)), ("u32", (2,))
words, counts = ("u32", (4096,)), ("s32", (4096,))

programs = {
    "bits": (bits, (words, words)),
    "int4": (lambda x, y: (x.astype(jnp.int8) * 2 + y).sum(), (("s4", (512,)), ("s8", (512,)))),
    "half": (lambda x: jax.nn.softmax(x * jnp.float16(2)), (("f16", (128, 512)),)),
    "float8": (float8, (vector, ("f32", ()))),
    "complex_field": (complex_field, (square, square)),
    "spectrum": (spectrum, (("f32", (16, 1024)),)),
    "special": (special, (vector,)),
    "factored": (
        lambda m: (jnp.linalg.qr(m), jnp.linalg.eigh(m + m.T), jnp.linalg.det(m)),
        (square,),
    ),
    "statistics": (
        lambda x: (x.std(), jnp.median(x), jnp.argmax(x), jnp.isnan(x).any()),
        (vector,),
    ),
}
