"""Programs to capture."""

import jax
import jax.numpy as jnp

computed = jnp.ones((3, 5)).sum()  # compiled, too


def step(weights, inputs):
    hidden = jnp.tanh(inputs @ weights["first"])
    return jax.nn.softmax(hidden, axis=-1).sum(0)


def twice(x):
    return x + x


@jax.jit
def jitted(x):
    return jnp.exp(x)


def factor(x):
    return jnp.linalg.cholesky(x)


example_args = ({"first": jnp.ones((16, 8))}, jnp.ones((4, 16)))


class Nested:
    @staticmethod
    def inside(x):
        return jnp.cos(x)


Nested.inside.example_args = (jnp.ones(8),)
