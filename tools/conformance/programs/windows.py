"""Convolutions of all kinds, pooling, and their derivatives."""

import jax
import jax.numpy as jnp
from jax import lax

LAYOUT = ("NHWC", "HWIO", "NHWC")


def convolution(images, kernel, **options):
    options = {"window_strides": (1, 1), "padding": "SAME", "dimension_numbers": LAYOUT} | options
    return lax.conv_general_dilated(images, kernel, **options)


def block(images, kernel, scale, bias):
    features = convolution(images, kernel)
    mean, variance = features.mean(axis=(0, 1, 2)), features.var(axis=(0, 1, 2))
    return jax.nn.relu((features - mean) * lax.rsqrt(variance + 1e-5) * scale + bias + images)


def depthwise(images, kernel):
    return jax.nn.silu(convolution(images, kernel, feature_group_count=images.shape[-1]))


def maximum_pool(images):
    return lax.reduce_window(images * 2.0, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


def average_pool(images):
    return lax.reduce_window(images, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4.0


def volume(images, kernel):
    return lax.conv_general_dilated(
        images, kernel, (1, 1, 1), "SAME", dimension_numbers=("NDHWC", "DHWIO", "NDHWC")
    )


def line(signal, kernel):
    return jnp.tanh(
        lax.conv_general_dilated(
            signal, kernel, (1,), [(2, 0)], dimension_numbers=("NWC", "WIO", "NWC")
        )
    )


images, kernel, channels = ("f32", (4, 16, 16, 8)), ("f32", (3, 3, 8, 8)), ("f32", (8,))

programs = {
    "block": (block, (images, kernel, channels, channels)),
    "block_gradient": (
        jax.grad(lambda *arguments: block(*arguments).sum(), argnums=(0, 1, 2)),
        (images, kernel, channels, channels),
    ),
    "strided": (lambda x, k: convolution(x, k, window_strides=(2, 2)) + 1.0, (images, kernel)),
    "dilated": (lambda x, k: convolution(x, k, rhs_dilation=(2, 2)), (images, kernel)),
    "transposed": (lambda x, k: lax.conv_transpose(x, k, (2, 2), "SAME"), (images, kernel)),
    "depthwise": (depthwise, (images, ("f32", (3, 3, 1, 8)))),
    "half": (
        lambda x, k: jax.nn.relu(convolution(x, k)),
        (("bf16", (4, 16, 16, 8)), ("bf16", (3, 3, 8, 8))),
    ),
    "line": (line, (("f32", (4, 128, 16)), ("f32", (3, 16, 32)))),
    "volume": (volume, (("f32", (2, 8, 8, 8, 4)), ("f32", (3, 3, 3, 4, 8)))),
    "maximum_pool": (maximum_pool, (images,)),
    "maximum_pool_gradient": (jax.grad(lambda x: maximum_pool(x).sum()), (images,)),
    "average_pool_gradient": (jax.grad(lambda x: (average_pool(x) ** 2).sum()), (images,)),
    "resize": (lambda x: jax.image.resize(x, (4, 32, 32, 8), "bilinear") * 2.0, (images,)),
}
