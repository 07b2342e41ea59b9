"""Reductions of many forms: along rows and columns, short and long, alone and side by side."""

import jax
import jax.numpy as jnp


def moments(values):
    """The first four moments of each row, as statistics packages give them."""
    mean = values.mean(axis=-1, keepdims=True)
    centred = values - mean
    variance = jnp.square(centred).mean(axis=-1)
    skew = (centred**3).mean(axis=-1) / variance**1.5
    tails = (centred**4).mean(axis=-1) / variance**2 - 3.0
    return mean[..., 0], variance, skew, tails


def temperatures(logits, values):
    """Softmax in its forms: hot, cold, masked, without its normaliser, along another axis."""
    hot = jax.nn.softmax(logits / 4.0, axis=-1)
    cold = jax.nn.log_softmax(logits * 4.0, axis=-1)
    masked = jax.nn.softmax(logits, axis=-1, where=logits > 0)
    entropy = -(hot * jnp.log(hot + 1e-9)).sum(axis=-1)
    across = jax.nn.softmax(logits, axis=1)
    mixed = (across * values[..., None]).sum(axis=1)
    return hot, cold.max(axis=-1), masked, entropy, mixed


programs = {
    "moments": (moments, (("f32", (128, 3000)),)),
    "moments_half": (moments, (("bf16", (9, 33, 260)),)),
    "temperatures": (temperatures, (("f32", (5, 120, 777)), ("f32", (5, 120)))),
}
