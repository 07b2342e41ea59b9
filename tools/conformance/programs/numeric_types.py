"""Narrow numbers as people use them: scaled eight-bit floats, bytes, nibbles, half precision."""

import jax
import jax.numpy as jnp


def nibble_layer(inputs, packed, scales, zeros):
    """Weights of four bits, two in a byte, with a scale and a zero for each group of rows."""
    low, high = packed & 0xF, packed >> 4
    weights = jnp.stack([low, high], axis=1).reshape(-1, packed.shape[-1])
    grouped = weights.reshape(-1, 64, packed.shape[-1]).astype(jnp.bfloat16)
    wide = ((grouped - zeros[:, None]) * scales[:, None]).reshape(weights.shape)
    return jax.nn.silu(inputs @ wide)


def block_scaled(values):
    """Blocks of 32 values with one power of two each, narrow floats beside it, and back."""
    blocks = values.reshape(*values.shape[:-1], -1, 32)
    largest = jnp.abs(blocks).max(axis=-1, keepdims=True).astype(jnp.float32)
    exponent = jnp.floor(jnp.log2(jnp.maximum(largest, 1e-30))) - 8.0
    narrow = (blocks / jnp.exp2(exponent)).astype(jnp.float8_e4m3fn)
    stored = (exponent[..., 0] + 127.0).astype(jnp.uint8)
    back = (narrow.astype(jnp.float32) * jnp.exp2(exponent)).reshape(values.shape)
    return narrow, stored, jnp.square(back - values.astype(jnp.float32)).mean()


half, wide = ("f16", (256, 256)), ("f32", (128, 256))

programs = {
    "nibble_layer": (
        nibble_layer,
        (("bf16", (8, 512)), ("u8", (256, 768)), ("bf16", (8, 768)), ("bf16", (8, 768))),
    ),
    "block_scaled": (block_scaled, (("bf16", (50, 9, 256)),)),
}
