"""Matrix products: after the first all goes into a library call, around the others something does
not."""

import jax
import jax.numpy as jnp

arguments = (
    ("f32", (256, 128)), ("f32", (128, 512)), ("f32", (512,)), ("f32", (512, 1024)),
    ("f32", (1024,)), ("f32", (1024, 256)), ("f32", (256,)), ("f32", (256, 512)),
    ("bf16", (101, 303)), ("bf16", (303, 205)),
)  # fmt: skip


def program(inputs, first, first_bias, up, up_bias, down, down_bias, out, odd, weights):
    inputs = jax.nn.relu(inputs @ first + first_bias)
    hidden = jax.nn.gelu(inputs @ up + up_bias, approximate=False)  # GELU by erf
    features = hidden @ down + down_bias
    active = jax.nn.relu(features)  # a second reader of what the bias was added to
    return features, jnp.exp(active) @ out, odd @ weights  # sizes that have to be padded
