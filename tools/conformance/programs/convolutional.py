"""Convolutional networks of many shapes, and the gradients that train them."""

import jax
from jax import lax


def video_block(weights, clips):
    """A convolution of space, one of time, and a pool of both."""
    numbers = ("NDHWC", "DHWIO", "NDHWC")
    hidden = lax.conv_general_dilated(
        clips, weights[0], (1, 2, 2), "SAME", dimension_numbers=numbers
    )
    hidden = lax.conv_general_dilated(
        jax.nn.relu(hidden), weights[1], (2, 1, 1), "SAME", dimension_numbers=numbers
    )
    window = (1, 2, 2, 2, 1)
    total = lax.reduce_window(hidden, 0.0, lax.add, window, (1, 1, 2, 2, 1), "SAME")
    return (jax.nn.relu(total / 8.0) ** 2).mean()


programs = {
    "video_block_gradient": (
        jax.grad(video_block),
        (
            (("bf16", (1, 3, 3, 3, 16)), ("bf16", (3, 1, 1, 16, 24))),
            ("bf16", (2, 8, 20, 20, 3)),
        ),
    ),
}
