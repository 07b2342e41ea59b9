"""Equinox models: the gradient of a perceptron, and a recurrent cell over a sequence."""

import equinox
import jax
import jax.numpy as jnp

KEY = jax.ShapeDtypeStruct((2,), "uint32")


def split(make):
    """The arrays of a model as shapes, and the rest of it."""
    model = equinox.filter_eval_shape(make, KEY)
    return equinox.partition(model, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))


perceptron, perceptron_rest = split(lambda key: equinox.nn.MLP(32, 1, 128, 3, key=key))
cell, cell_rest = split(lambda key: equinox.nn.GRUCell(16, 64, key=key))


def loss(arrays, inputs, targets):
    model = equinox.combine(arrays, perceptron_rest)
    return jnp.mean((jax.vmap(model)(inputs) - targets) ** 2)


def recurrent(arrays, sequence):
    model = equinox.combine(arrays, cell_rest)
    state, _ = jax.lax.scan(lambda s, item: (model(item, s), None), jnp.zeros(64), sequence)
    return state


programs = {
    "perceptron": (jax.value_and_grad(loss), (perceptron, ("f32", (128, 32)), ("f32", (128, 1)))),
    "recurrent": (recurrent, (cell, ("f32", (100, 16)))),
    "recurrent_gradient": (
        jax.grad(lambda arrays, sequence: recurrent(arrays, sequence).sum()),
        (cell, ("f32", (100, 16))),
    ),
}
