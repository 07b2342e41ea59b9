"""One step of gradient descent with momentum on weights of several sizes, each a few small kernels,
and how long the rows of two gradients are."""

import jax.numpy as jnp

SHAPES = ((256, 128), (256, 128), (128, 64), (64,))

_tree = tuple(("f32", shape) for shape in SHAPES)
arguments = (_tree, _tree, _tree)


def program(weights, momenta, gradients):
    momenta = [0.9 * old + new for old, new in zip(momenta, gradients, strict=True)]
    weights = [old - 0.01 * step for old, step in zip(weights, momenta, strict=True)]
    lengths = [jnp.sum(jnp.square(each), axis=1) for each in gradients[:2]]
    return tuple(weights), tuple(momenta), tuple(lengths)
