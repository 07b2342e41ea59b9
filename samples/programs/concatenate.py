"""A concatenate with several users: the producer that fusion passes treat with most care."""

import jax.numpy as jnp

arguments = (("f32", (1024, 128)), ("f32", (1024, 128)), ("f32", (1024, 64)))


def program(left, middle, right):
    joined = jnp.concatenate([jnp.tanh(left), middle * 2.0, right + 1.0], axis=1)
    return joined.sum(axis=0), jnp.exp(joined), joined[:, ::2] - 3.0
