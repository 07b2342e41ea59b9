"""Transformer blocks, their losses and their decoding, to test the GPU rules."""

import jax
import jax.numpy as jnp
from jax import lax


def routed_experts(weights, inputs):
    """Two experts for each token, each expert with room for so many tokens, in a scatter."""
    tokens, width = inputs.shape
    count, room = weights["up"].shape[0], 48
    logits = (inputs @ weights["router"]).astype(jnp.float32)
    shares, chosen = lax.top_k(jax.nn.softmax(logits, axis=-1), 2)
    shares = shares / shares.sum(axis=-1, keepdims=True)
    sent = jax.nn.one_hot(chosen.T.reshape(-1), count, dtype=jnp.int32)
    place = ((jnp.cumsum(sent, axis=0) - 1) * sent).sum(axis=-1)
    slot = jnp.where(place < room, chosen.T.reshape(-1) * room + place, count * room)
    buffer = jnp.zeros((count * room + 1, width), inputs.dtype)
    buffer = buffer.at[slot].set(jnp.concatenate([inputs, inputs]))
    batched = buffer[:-1].reshape(count, room, width)
    hidden = jax.nn.gelu(jnp.einsum("ecd,edf->ecf", batched, weights["up"]))
    leaving = jnp.einsum("ecf,efd->ecd", hidden, weights["down"]).reshape(count * room, width)
    leaving = jnp.concatenate([leaving, jnp.zeros((1, width), leaving.dtype)])
    taken = leaving[slot].reshape(2, tokens, width) * shares.T[..., None].astype(inputs.dtype)
    balance = (sent.sum(axis=0) / tokens) @ jax.nn.softmax(logits, axis=-1).mean(axis=0)
    return jnp.square(taken.sum(axis=0)).mean().astype(jnp.float32) + 0.01 * count * balance


experts = {
    "router": ("bf16", (128, 16)),
    "up": ("bf16", (16, 128, 256)),
    "down": ("bf16", (16, 256, 128)),
}

programs = {
    "routed_experts_gradient": (
        jax.grad(routed_experts),
        (experts, ("bf16", (300, 128))),
    ),
}
