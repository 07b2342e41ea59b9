"""A loop whose body can be fused: each step smooths a vector until it settles."""

import jax.numpy as jnp
from jax import lax

arguments = (("f32", (4096,)),)


def program(signal):
    def unsettled(carry):
        step, _, change = carry
        return (step < 100) & (change > 1e-3)

    def smooth(carry):
        step, values, _ = carry
        smoothed = 0.5 * values + 0.25 * (jnp.roll(values, 1) + jnp.roll(values, -1))
        return step + 1, smoothed, jnp.abs(smoothed - values).max()

    steps, values, _ = lax.while_loop(unsettled, smooth, (0, signal, jnp.float32(1.0)))
    return values, steps
