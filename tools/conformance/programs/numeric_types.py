"""Narrow numbers as people use them: scaled eight-bit floats, bytes, nibbles, half precision."""

import jax
import jax.numpy as jnp
from jax import lax

LARGEST = {jnp.float8_e4m3fn: 448.0, jnp.float8_e5m2: 57344.0}


def narrowed(values, scale, dtype):
    limit = LARGEST[dtype]
    return jnp.clip(values.astype(jnp.float32) / scale, -limit, limit).astype(dtype)


def renewed(history, values, dtype):
    """A scale from the largest values of the last steps, and the history with one more."""
    largest = jnp.abs(values).max().astype(jnp.float32)
    scale = jnp.maximum(history.max(), 1e-6) / LARGEST[dtype]
    return scale, jnp.roll(history, 1).at[0].set(largest)


@jax.custom_vjp
def scaled_dot(inputs, weights, scales):
    left = narrowed(inputs, scales[0], jnp.float8_e4m3fn)
    right = narrowed(weights, scales[1], jnp.float8_e4m3fn)
    product = jnp.dot(left, right, preferred_element_type=jnp.float32)
    return (product * scales[0] * scales[1]).astype(jnp.bfloat16)


def scaled_dot_forward(inputs, weights, scales):
    return scaled_dot(inputs, weights, scales), (inputs, weights, scales)


def scaled_dot_backward(kept, change):
    inputs, weights, scales = kept
    change = narrowed(change, scales[2], jnp.float8_e5m2)
    right = narrowed(weights, scales[1], jnp.float8_e4m3fn)
    left = narrowed(inputs, scales[0], jnp.float8_e4m3fn)
    to_inputs = jnp.dot(change, right.T, preferred_element_type=jnp.float32)
    to_weights = jnp.dot(left.T, change, preferred_element_type=jnp.float32)
    return (
        (to_inputs * scales[2] * scales[1]).astype(jnp.bfloat16),
        (to_weights * scales[2] * scales[0]).astype(jnp.bfloat16),
        jnp.zeros_like(scales),
    )


scaled_dot.defvjp(scaled_dot_forward, scaled_dot_backward)


def eight_bit_step(weights, histories, inputs, wanted):
    """A training step of two layers in eight-bit floats with delayed scales."""

    def loss(weights):
        hidden, kept = inputs, []
        for index, weight in enumerate(weights):
            left, left_history = renewed(histories[index][0], hidden, jnp.float8_e4m3fn)
            right, right_history = renewed(histories[index][1], weight, jnp.float8_e4m3fn)
            scales = jnp.stack([left, right, jnp.float32(2.0**-10)])
            hidden = jax.nn.gelu(scaled_dot(hidden, weight, scales))
            kept.append(jnp.stack([left_history, right_history]))
        return jnp.square((hidden - wanted).astype(jnp.float32)).mean(), kept

    (value, kept), change = jax.value_and_grad(loss, has_aux=True)(weights)
    weights = jax.tree.map(lambda w, g: (w - 0.01 * g).astype(w.dtype), weights, change)
    return weights, kept, value


def byte_layers(inputs, layers):
    """Layers of bytes: a scale for each row of the inputs and each column of the weights."""
    for weights, scales, bias in layers:
        largest = jnp.abs(inputs).max(axis=-1, keepdims=True)
        row = largest.astype(jnp.float32) / 127.0
        small = jnp.clip(jnp.round(inputs / row), -128, 127).astype(jnp.int8)
        product = lax.dot_general(
            small, weights, (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32
        )
        inputs = jax.nn.relu(product.astype(jnp.float32) * row * scales + bias)
    return inputs.astype(jnp.bfloat16)


def nibble_layer(inputs, packed, scales, zeros):
    """Weights of four bits, two in a byte, with a scale and a zero for each group of rows."""
    low, high = packed & 0xF, packed >> 4
    weights = jnp.stack([low, high], axis=1).reshape(-1, packed.shape[-1])
    grouped = weights.reshape(-1, 64, packed.shape[-1]).astype(jnp.bfloat16)
    wide = ((grouped - zeros[:, None]) * scales[:, None]).reshape(weights.shape)
    return jax.nn.silu(inputs @ wide)


def four_bit_products(left, right, scale):
    return (left.astype(jnp.bfloat16) @ right.astype(jnp.bfloat16)) * scale + 1.0


def block_scaled(values):
    """Blocks of 32 values with one power of two each, narrow floats beside it, and back."""
    blocks = values.reshape(*values.shape[:-1], -1, 32)
    largest = jnp.abs(blocks).max(axis=-1, keepdims=True).astype(jnp.float32)
    exponent = jnp.floor(jnp.log2(jnp.maximum(largest, 1e-30))) - 8.0
    narrow = (blocks / jnp.exp2(exponent)).astype(jnp.float8_e4m3fn)
    stored = (exponent[..., 0] + 127.0).astype(jnp.uint8)
    back = (narrow.astype(jnp.float32) * jnp.exp2(exponent)).reshape(values.shape)
    return narrow, stored, jnp.square(back - values.astype(jnp.float32)).mean()


def narrow_cache(query, keys, values, scales, lengths):
    """Attention over keys and values kept in eight-bit floats, and the new largest of each."""
    wide_keys = keys.astype(jnp.bfloat16) * scales[0].astype(jnp.bfloat16)
    wide_values = values.astype(jnp.bfloat16) * scales[1].astype(jnp.bfloat16)
    scores = jnp.einsum("bhd,bthd->bht", query, wide_keys).astype(jnp.float32) / 11.3
    present = jnp.arange(keys.shape[1]) < lengths[:, None, None]
    shares = jax.nn.softmax(jnp.where(present, scores, -1e30), axis=-1)
    mixed = jnp.einsum("bht,bthd->bhd", shares.astype(jnp.bfloat16), wide_values)
    largest = jnp.abs(wide_keys).max(axis=(1, 2, 3)), jnp.abs(values).max(axis=-1)
    return mixed.astype(jnp.float8_e5m2), largest


def rounded_by_chance(weights, change, key):
    """An update in bfloat16 that rounds up or down by chance, on the bits of a float32."""
    wide = weights.astype(jnp.float32) - 1e-3 * change.astype(jnp.float32)
    bits = lax.bitcast_convert_type(wide, jnp.uint32)
    noise = jax.random.bits(key, wide.shape, jnp.uint16).astype(jnp.uint32)
    bits = (bits + noise) & jnp.uint32(0xFFFF0000)
    rounded = lax.bitcast_convert_type(bits, jnp.float32)
    return jnp.where(jnp.isfinite(wide), rounded, wide).astype(jnp.bfloat16)


def narrow_moments(weights, first, second, scales, change):
    """An optimizer whose moments are bytes, with a scale for each block of 256."""
    old, old_square = first * scales[0][:, None], jnp.exp2(second * scales[1][:, None])
    mean = 0.9 * old + 0.1 * change
    square = 0.99 * old_square + 0.01 * change**2
    weights = weights - 1e-3 * mean / (jnp.sqrt(square) + 1e-8)
    logarithm = jnp.log2(square + 1e-20)
    mean_scale = jnp.abs(mean).max(axis=1) / 127.0
    square_scale = jnp.abs(logarithm).max(axis=1) / 127.0
    return (
        weights,
        jnp.round(mean / mean_scale[:, None]).astype(jnp.int8),
        jnp.round(logarithm / square_scale[:, None]).astype(jnp.int8),
        (mean_scale, square_scale),
    )


def pixels(images, mean, spread, labels):
    """Bytes to half floats, channels first, then per-image and per-channel statistics."""
    values = (images.astype(jnp.float16) / 255 - mean) / spread
    planes = values.transpose(0, 3, 1, 2)
    bright = images.astype(jnp.int32).sum(axis=(1, 2, 3))
    histogram = jnp.zeros((images.shape[0], 16), jnp.int32)
    rows = jnp.arange(images.shape[0])[:, None]
    histogram = histogram.at[rows, images.reshape(images.shape[0], -1) >> 4].add(1)
    return planes, bright, histogram, jax.nn.one_hot(labels, 100, dtype=jnp.bfloat16)


def scaled_half_loss(weights, inputs, labels, scale):
    """A loss in half precision times its scale; the gradients, whether finite, and clipped."""

    def loss(weights):
        hidden = inputs
        for weight in weights[:-1]:
            hidden = jax.nn.relu(hidden @ weight)
        logits = (hidden @ weights[-1]).astype(jnp.float32)
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=-1)
        return -chosen.mean() * scale

    change = jax.grad(loss)(weights)
    wide = [part.astype(jnp.float32) / scale for part in change]
    finite = jnp.stack([jnp.isfinite(part).all() for part in wide]).all()
    length = jnp.sqrt(sum(jnp.square(part).sum() for part in wide))
    shrink = jnp.where(finite, jnp.minimum(1.0, 1.0 / length), 0.0)
    return [part * shrink for part in wide], jnp.where(finite, scale, scale / 2)


half, wide = ("f16", (256, 256)), ("f32", (128, 256))
layers = [
    (("s8", (300, 512)), ("f32", (512,)), ("f32", (512,))),
    (("s8", (512, 300)), ("f32", (300,)), ("f32", (300,))),
]
moments = ("s8", (128, 256))

programs = {
    "eight_bit_step": (
        eight_bit_step,
        (
            [("bf16", (256, 512)), ("bf16", (512, 256))],
            [("f32", (2, 16)), ("f32", (2, 16))],
            ("bf16", (512, 256)),
            ("bf16", (512, 256)),
        ),
        {"donate": (0, 1)},
    ),
    "byte_layers": (byte_layers, (("f32", (96, 300)), layers)),
    "nibble_layer": (
        nibble_layer,
        (("bf16", (8, 512)), ("u8", (256, 768)), ("bf16", (8, 768)), ("bf16", (8, 768))),
    ),
    "four_bit_products": (
        four_bit_products,
        (("s4", (64, 256)), ("s4", (256, 128)), ("bf16", ())),
    ),
    "block_scaled": (block_scaled, (("bf16", (50, 9, 256)),)),
    "narrow_cache": (
        narrow_cache,
        (
            ("bf16", (6, 8, 128)),
            ("f8e4m3fn", (6, 400, 8, 128)),
            ("f8e5m2", (6, 400, 8, 128)),
            ("f32", (2,)),
            ("s32", (6,)),
        ),
    ),
    "rounded_by_chance": (
        rounded_by_chance,
        (("bf16", (999, 77)), ("bf16", (999, 77)), ("u32", (2,))),
    ),
    "narrow_moments": (
        narrow_moments,
        (wide, moments, moments, (("f32", (128,)), ("f32", (128,))), wide),
        {"donate": (0, 1, 2)},
    ),
    "pixels": (
        pixels,
        (("u8", (10, 64, 48, 3)), ("f16", (3,)), ("f16", (3,)), ("s32", (10,))),
    ),
    "scaled_half_loss": (
        scaled_half_loss,
        ([half, half, ("f16", (256, 64))], ("f16", (128, 256)), ("s32", (128,)), ("f32", ())),
    ),
}
