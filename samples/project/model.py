"""A model of one layer, whose fusions its own tests guard."""

import jax.numpy as jnp


def attend(scores, values):
    weights = jnp.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = weights / weights.sum(axis=-1, keepdims=True)
    return weights @ values


def normalize(inputs, gain):
    centred = inputs - inputs.mean(axis=-1, keepdims=True)
    spread = (centred * centred).mean(axis=-1, keepdims=True)
    return centred / jnp.sqrt(spread + 1e-5) * gain


def activate(inputs, bias):
    return jnp.tanh(inputs + bias) * 0.5
