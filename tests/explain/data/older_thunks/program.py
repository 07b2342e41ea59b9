"""The program of this dump; captured for an H100 by jaxlib 0.7.2."""

import jax
import jax.numpy as jnp


def rows(x):
    return jax.nn.softmax(x), jnp.tanh(x).sum(0)


example_args = (jnp.zeros((256, 512)),)
