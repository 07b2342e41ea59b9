"""What meets a program at its edges: the host, donated buffers, barriers, constants, names."""

import jax
import jax.numpy as jnp
import numpy
from jax import lax

TABLE = numpy.linspace(0.0, 1.0, 4096, dtype=numpy.float32).reshape(64, 64) ** 2


def rare(values):
    coarse = lax.reduce_precision(jnp.tan(values), 5, 10) + lax.round(values)
    return jnp.expm1(coarse), lax.nextafter(values, coarse), jax.nn.sigmoid(values), values**coarse


def donated(parameters, gradients):
    return jax.tree.map(lambda p, g: p - 0.1 * g, parameters, gradients)


vector, matrix = ("f32", (1024,)), ("f32", (64, 64))
tree = {"a": matrix, "b": [vector, {"c": ("bf16", (8,))}]}

programs = {
    "donated": (donated, (tree, tree), {"donate": (0,)}),
    "constants": (lambda m: m @ TABLE + jnp.arange(64.0) + jnp.eye(64), (matrix,)),
    "rare": (rare, (vector,)),
}
