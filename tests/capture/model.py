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


def count_down(start, x):
    return jax.lax.while_loop(lambda s: s[0] > 0, lambda s: (s[0] - 1, jnp.sin(s[1])), (start, x))


count_down.example_args = (7, jax.ShapeDtypeStruct((64, 64), "float32"))
consumed = jax.jit(jnp.cosh, donate_argnums=0)


def failing(x):
    def fail(_):
        raise ValueError("no such file")

    return jax.pure_callback(fail, x, x)


failing.example_args = (jnp.ones(8),)
