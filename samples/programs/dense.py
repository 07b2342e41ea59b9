"""A dense layer: the dot is a library call, and the bias and the relu meet its boundary."""

import jax
import jax.numpy as jnp

arguments = (("f32", (256, 512)), ("f32", (512, 1024)), ("f32", (1024,)))


def program(inputs, weights, bias):
    return jax.nn.relu(jnp.dot(inputs, weights) + bias)
