"""Dots of all kinds, with what surrounds them, dense, ragged and sparse."""

import jax


def gated(inputs, gate, up, down):
    return (jax.nn.silu(inputs @ gate) * (inputs @ up)) @ down


half = ("bf16", (256, 256))

programs = {
    "gated": (gated, (half, ("bf16", (256, 512)), ("bf16", (256, 512)), ("bf16", (512, 256)))),
    "attention_gradient": (
        jax.grad(
            lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True).sum(),
            argnums=(0, 1, 2),
        ),
        (("bf16", (2, 64, 4, 32)),) * 3,
    ),
}
