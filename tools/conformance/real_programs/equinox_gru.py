"""A training step of a GRU that reads 64 steps (Equinox)."""

import equinox as eqx
import jax
import jax.numpy as jnp

T, B, INPUTS, Hd = 64, 128, 32, 128
cell = eqx.filter_eval_shape(lambda: eqx.nn.GRUCell(INPUTS, Hd, key=jax.random.key(0)))
_p, _s = eqx.partition(cell, lambda x: isinstance(x, jax.ShapeDtypeStruct))


def loss(p, xs, y):
    c = eqx.combine(p, _s)

    def run(x):
        h, _ = jax.lax.scan(lambda h, a: (c(a, h), None), jnp.zeros(Hd), x)
        return h

    return ((jax.vmap(run)(xs) - y) ** 2).mean()


def step(p, xs, y):
    value, g = jax.value_and_grad(loss)(p, xs, y)
    return jax.tree.map(lambda a, b: a - 1e-2 * b, p, g), value


S = jax.ShapeDtypeStruct
example_args = (_p, S((B, T, INPUTS), jnp.float32), S((B, Hd), jnp.float32))
