"""A long chain of small element-wise operations, cheap and expensive, with shared values."""

import jax.numpy as jnp

arguments = (("f32", (128, 1024)), ("f32", (128, 1024)), ("f32", (1024,)))


def program(first, second, scale):
    product = first * second
    squashed = jnp.tanh(product) * scale
    gate = 1.0 / (1.0 + jnp.exp(-squashed))
    mixed = gate * first + (1.0 - gate) * second
    wave = jnp.sin(mixed) + jnp.cos(mixed * 2.0)
    clipped = jnp.clip(wave, -1.0, 1.0)
    logarithm = jnp.log1p(jnp.abs(clipped))
    chosen = jnp.where(clipped > 0, logarithm, jnp.sqrt(jnp.abs(mixed)))
    return chosen - product, gate
