"""Convolutional networks of many shapes, and the gradients that train them."""

import jax
import jax.numpy as jnp
from jax import lax

NUMBERS = ("NHWC", "HWIO", "NHWC")


def convolution(images, kernel, stride=1, padding="SAME", **options):
    return lax.conv_general_dilated(
        images, kernel, (stride, stride), padding, dimension_numbers=NUMBERS, **options
    )


def batch_norm(features, scale, shift):
    wide = features.astype(jnp.float32)
    mean = wide.mean(axis=(0, 1, 2))
    variance = jnp.square(wide).mean(axis=(0, 1, 2)) - jnp.square(mean)
    normal = (wide - mean) * lax.rsqrt(variance + 1e-5) * scale + shift
    return normal.astype(features.dtype), (mean, variance)


def bottleneck(weights, running, images):
    """A bottleneck in half precision whose norms keep running statistics."""
    hidden, statistics = images, []
    for index, stride in enumerate((1, 2, 1)):
        hidden = convolution(hidden, weights["kernels"][index], stride)
        hidden, seen = batch_norm(hidden, *weights["norms"][index])
        statistics.append(seen)
        hidden = jax.nn.relu(hidden) if index < 2 else hidden
    hidden = jax.nn.relu(hidden + convolution(images, weights["skip"], 2))
    pooled = hidden.astype(jnp.float32).mean(axis=(1, 2))
    kept = jax.tree.map(lambda old, new: 0.99 * old + 0.01 * new, running, statistics)
    return jnp.square(pooled).mean(), kept


def inverted(weights, images):
    """A widened depthwise block with squeeze and excitation."""
    wide = jax.nn.hard_swish(convolution(images, weights["wide"]) * weights["scales"][0])
    wide = convolution(wide, weights["depth"], feature_group_count=wide.shape[-1])
    wide = jax.nn.hard_swish(wide * weights["scales"][1])
    squeezed = jax.nn.relu(wide.mean(axis=(1, 2)) @ weights["squeeze"])
    wide = wide * jax.nn.hard_sigmoid(squeezed @ weights["excite"])[:, None, None]
    return images + convolution(wide, weights["narrow"]) * weights["scales"][2]


def large_kernels(weights, images):
    """A depthwise convolution of 7 by 7, a norm over channels, a response norm over places."""
    hidden = convolution(images, weights["depth"], feature_group_count=images.shape[-1])
    centred = hidden - hidden.mean(axis=-1, keepdims=True)
    hidden = centred * lax.rsqrt(jnp.square(centred).mean(axis=-1, keepdims=True) + 1e-6)
    hidden = jax.nn.gelu(hidden @ weights["wide"] + weights["bias"])
    length = jnp.sqrt(jnp.square(hidden).sum(axis=(1, 2), keepdims=True) + 1e-12)
    response = hidden * (length / (length.mean(axis=-1, keepdims=True) + 1e-6))
    hidden = weights["gamma"] * response + weights["beta"] + hidden
    return images + hidden @ weights["narrow"]


def segmented(weights, images, labels):
    """A U-Net of two levels in channels-first order, and the overlap of what it marks."""

    def twice(images, kernels):
        for kernel in kernels:
            images = jax.nn.leaky_relu(lax.conv_general_dilated(images, kernel, (1, 1), "SAME"))
        return images

    outer = twice(images, weights["outer"])
    inner = lax.reduce_window(outer, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    inner = twice(inner, weights["inner"])
    grown = lax.conv_transpose(
        inner, weights["grow"], (2, 2), "VALID", dimension_numbers=("NCHW", "HWIO", "NCHW")
    )
    logits = twice(jnp.concatenate([outer, grown], axis=1), weights["join"])
    shares = jax.nn.softmax(logits, axis=1)
    wanted = jax.nn.one_hot(labels, logits.shape[1], axis=1)
    both = (shares * wanted).sum(axis=(0, 2, 3))
    either = (shares + wanted).sum(axis=(0, 2, 3))
    entropy = -(wanted * jax.nn.log_softmax(logits, axis=1)).sum(axis=1).mean()
    return entropy + 1.0 - (2.0 * both / (either + 1.0)).mean()


def dilated_stack(layers, signal):
    """Causal convolutions of growing dilation with gates, skips, and a loss over 256 levels."""
    levels = jnp.sign(signal) * jnp.log1p(255.0 * jnp.abs(signal)) / jnp.log(256.0)
    levels = ((levels + 1.0) * 127.5).astype(jnp.int32)
    hidden, skipped = layers["table"][levels[:, :-1]], 0.0
    for index, (kernel, skip, along) in enumerate(layers["blocks"]):
        wide = lax.conv_general_dilated(
            hidden,
            kernel,
            (1,),
            [(2**index, 0)],
            rhs_dilation=(2**index,),
            dimension_numbers=("NWC", "WIO", "NWC"),
        )
        left, right = jnp.split(wide, 2, axis=-1)
        gated = jnp.tanh(left) * jax.nn.sigmoid(right)
        skipped = skipped + gated @ skip
        hidden = hidden + gated @ along
    logits = jax.nn.relu(skipped) @ layers["out"]
    logarithms = jax.nn.log_softmax(logits)
    return -jnp.take_along_axis(logarithms, levels[:, 1:, None], axis=-1).mean()


def enlarged(weights, images):
    """Super-resolution: residual convolutions, then channels shuffled into places."""
    hidden = features = convolution(images, weights["enter"])
    for first, second in weights["blocks"]:
        hidden = hidden + 0.1 * convolution(jax.nn.relu(convolution(hidden, first)), second)
    wide = convolution(features + hidden, weights["grow"])
    batch, height, width, channels = wide.shape
    wide = wide.reshape(batch, height, width, 3, 3, channels // 9).transpose(0, 1, 3, 2, 4, 5)
    wide = wide.reshape(batch, 3 * height, 3 * width, channels // 9)
    return jnp.clip(convolution(wide, weights["leave"]) + 0.5, 0.0, 1.0)


def moved(weights, images):
    """A spatial transformer: places that a small network chooses, read between pixels."""
    batch, height, width, _ = images.shape
    pooled = jax.image.resize(images, (batch, 8, 8, images.shape[-1]), "linear")
    turn = (jnp.tanh(pooled.reshape(batch, -1) @ weights[0]) @ weights[1]).reshape(batch, 2, 3)
    turn = turn + jnp.eye(2, 3)
    rows, columns = jnp.meshgrid(
        jnp.linspace(-1, 1, height), jnp.linspace(-1, 1, width), indexing="ij"
    )
    grid = jnp.stack([rows, columns, jnp.ones_like(rows)])
    places = jnp.einsum("bij,jhw->bihw", turn, grid)
    places = (places + 1.0) * 0.5 * jnp.array([height - 1.0, width - 1.0])[:, None, None]

    def read(image, places):
        channels = jnp.moveaxis(image, -1, 0)
        read = [
            jax.scipy.ndimage.map_coordinates(channel, list(places), 1, "constant")
            for channel in channels
        ]
        return jnp.stack(read, axis=-1)

    return jnp.square(jax.vmap(read)(images, places) - images).mean()


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


def critic_penalty(weights, real, made, share):
    """The gradient penalty of a critic: a derivative of a derivative of convolutions."""

    def critic(images):
        hidden = images
        for kernel in weights["kernels"]:
            hidden = jax.nn.leaky_relu(convolution(hidden, kernel, 2), 0.2)
        return hidden.reshape(hidden.shape[0], -1) @ weights["head"]

    mixed = share[:, None, None, None] * real + (1.0 - share[:, None, None, None]) * made
    slopes = jax.grad(lambda images: critic(images).sum())(mixed)
    length = jnp.sqrt(jnp.square(slopes).sum(axis=(1, 2, 3)) + 1e-12)
    return critic(made).mean() - critic(real).mean() + 10.0 * jnp.square(length - 1.0).mean()


def summed(function):
    return lambda *arguments: function(*arguments).sum()


wide = ("f32", (64,))
residual = {
    "kernels": [("bf16", (1, 1, 128, 64)), ("bf16", (3, 3, 64, 64)), ("bf16", (1, 1, 64, 256))],
    "norms": [(wide, wide), (wide, wide), (("f32", (256,)), ("f32", (256,)))],
    "skip": ("bf16", (1, 1, 128, 256)),
}
mobile = {
    "wide": ("f32", (1, 1, 24, 144)),
    "depth": ("f32", (5, 5, 1, 144)),
    "scales": (("f32", (144,)), ("f32", (144,)), ("f32", (24,))),
    "squeeze": ("f32", (144, 36)),
    "excite": ("f32", (36, 144)),
    "narrow": ("f32", (1, 1, 144, 24)),
}
modern = {
    "depth": ("f32", (7, 7, 1, 40)),
    "wide": ("f32", (40, 160)),
    "bias": ("f32", (160,)),
    "gamma": ("f32", (160,)),
    "beta": ("f32", (160,)),
    "narrow": ("f32", (160, 40)),
}
levels = {
    "outer": [("f32", (16, 1, 3, 3)), ("f32", (16, 16, 3, 3))],
    "inner": [("f32", (32, 16, 3, 3)), ("f32", (32, 32, 3, 3))],
    "grow": ("f32", (2, 2, 32, 16)),
    "join": [("f32", (16, 32, 3, 3)), ("f32", (5, 16, 1, 1))],
}
stack = {
    "table": ("f32", (256, 32)),
    "blocks": [(("f32", (2, 32, 64)), ("f32", (32, 48)), ("f32", (32, 32)))] * 7,
    "out": ("f32", (48, 256)),
}
upward = {
    "enter": ("f16", (3, 3, 3, 32)),
    "blocks": [(("f16", (3, 3, 32, 32)), ("f16", (3, 3, 32, 32)))] * 4,
    "grow": ("f16", (3, 3, 32, 288)),
    "leave": ("f16", (3, 3, 32, 3)),
}
judge = {
    "kernels": [("f32", (4, 4, 3, 16)), ("f32", (4, 4, 16, 32))],
    "head": ("f32", (2048,)),
}
photographs = ("f32", (4, 32, 32, 3))

programs = {
    "bottleneck_gradient": (
        jax.value_and_grad(bottleneck, has_aux=True),
        (residual, residual["norms"], ("bf16", (8, 28, 28, 128))),
    ),
    "inverted": (inverted, (mobile, ("f32", (5, 28, 28, 24)))),
    "inverted_gradient": (jax.grad(summed(inverted)), (mobile, ("f32", (5, 28, 28, 24)))),
    "large_kernels_gradient": (
        jax.grad(summed(large_kernels), argnums=(0, 1)),
        (modern, ("f32", (3, 21, 19, 40))),
    ),
    "segmented_gradient": (
        jax.value_and_grad(segmented),
        (levels, ("f32", (2, 1, 48, 56)), ("s32", (2, 48, 56))),
    ),
    "dilated_stack_gradient": (jax.grad(dilated_stack), (stack, ("f32", (3, 1601)))),
    "enlarged": (enlarged, (upward, ("f16", (2, 40, 37, 3)))),
    "moved_gradient": (
        jax.grad(moved),
        ((("f32", (192, 32)), ("f32", (32, 6))), ("f32", (4, 29, 31, 3))),
    ),
    "video_block_gradient": (
        jax.grad(video_block),
        (
            (("bf16", (1, 3, 3, 3, 16)), ("bf16", (3, 1, 1, 16, 24))),
            ("bf16", (2, 8, 20, 20, 3)),
        ),
    ),
    "critic_penalty_gradient": (
        jax.grad(critic_penalty),
        (judge, photographs, photographs, ("f32", (4,))),
    ),
}
