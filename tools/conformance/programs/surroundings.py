"""What meets a program at its edges: the host, donated buffers, barriers, constants, names."""

import jax
import jax.numpy as jnp
import numpy
from jax import lax

TABLE = numpy.linspace(0.0, 1.0, 4096, dtype=numpy.float32).reshape(64, 64) ** 2


def pure_callback(values):
    shape = jax.ShapeDtypeStruct(values.shape, values.dtype)
    return jax.pure_callback(numpy.sin, shape, values * 2.0) + 1.0


def printed(values):
    jax.debug.print("total {total}", total=values.sum())
    return jnp.exp(values)


def ordered(values):
    jax.debug.print("first {total}", total=values.sum(), ordered=True)
    jax.debug.print("second {total}", total=values.max(), ordered=True)
    return jnp.exp(values)


def rare(values):
    coarse = lax.reduce_precision(jnp.tan(values), 5, 10) + lax.round(values)
    return jnp.expm1(coarse), lax.nextafter(values, coarse), jax.nn.sigmoid(values), values**coarse


def donated(parameters, gradients):
    return jax.tree.map(lambda p, g: p - 0.1 * g, parameters, gradients)


def barrier(values):
    held, doubled = lax.optimization_barrier((jnp.sin(values), values * 2.0))
    return held + doubled


def named(values):
    with jax.named_scope('a "quoted" {name} = with, braces} and \\ slashes'):
        hidden = jnp.tanh(values)
    with jax.named_scope("sublayer.0/ä→"):
        return hidden * 2.0


@jax.custom_vjp
def clipped(values):
    return jnp.exp(values)


clipped.defvjp(lambda v: (jnp.exp(v), v), lambda v, g: (jnp.clip(g, -1, 1) * jnp.exp(v),))


def tuples(tree):
    return {"sum": sum(jnp.sum(leaf) for leaf in jax.tree.leaves(tree)), "same": tree, "none": ()}


vector, matrix = ("f32", (1024,)), ("f32", (64, 64))
tree = {"a": matrix, "b": [vector, {"c": ("bf16", (8,))}]}

programs = {
    "pure_callback": (pure_callback, (vector,)),
    "printed": (printed, (vector,)),
    "donated": (donated, (tree, tree), {"donate": (0,)}),
    "barrier": (barrier, (vector,)),
    "named": (named, (vector,)),
    "custom_gradient": (jax.grad(lambda v: clipped(v).sum()), (vector,)),
    "constants": (lambda m: m @ TABLE + jnp.arange(64.0) + jnp.eye(64), (matrix,)),
    "tuples": (tuples, (tree,)),
    "scalars": (
        lambda a, b: (a + b, a * 3, lax.cond(a > b, jnp.sin, jnp.cos, b)),
        (("f32", ()), ("f32", ())),
    ),
    "identity": (lambda x: x, (vector,)),
    "ignored": (lambda x: jnp.zeros((4, 4)), (vector,)),
    "empty": (lambda x: (x * 2.0, x.sum()), (("f32", (0, 4)),)),
    "ordered": (ordered, (vector,)),
    "rare": (rare, (vector,)),
}
