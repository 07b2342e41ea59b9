"""A transformer's gradient step of 9 to 96 equal layers: modules whose size doubles."""

import jax
import jax.numpy as jnp

LAYERS = (12, 24, 48, 96)
SIZES_OF_DIFF = (9, 17, 34)
WIDTH = 256


def block(hidden, weights):
    normal = (hidden - hidden.mean(-1, keepdims=True)) * jax.lax.rsqrt(hidden.var(-1) + 1e-5)[
        ..., None
    ]
    query, key, value = (normal @ weights[name] for name in ("query", "key", "value"))
    scores = jax.nn.softmax(query @ key.swapaxes(-1, -2) / WIDTH**0.5)
    hidden = hidden + scores @ value @ weights["out"]
    normal = hidden * weights["scale"] + weights["shift"]
    return hidden + jax.nn.gelu(normal @ weights["up"]) @ weights["down"]


def loss(layers, tokens, labels):
    hidden = tokens
    for weights in layers:
        hidden = block(hidden, weights)
    return jnp.mean((hidden - labels) ** 2)


def step(layers, tokens, labels):
    value, gradient = jax.value_and_grad(loss)(layers, tokens, labels)
    updated = jax.tree.map(lambda weight, change: weight - 0.01 * change, layers, gradient)
    return value, updated


square = ("f32", (WIDTH, WIDTH))
weights = {
    **dict.fromkeys(("query", "key", "value", "out"), square),
    **dict.fromkeys(("scale", "shift"), ("f32", (WIDTH,))),
    "up": ("f32", (WIDTH, 4 * WIDTH)),
    "down": ("f32", (4 * WIDTH, WIDTH)),
}
batch = ("f32", (8, 128, WIDTH))
programs = {
    str(count): (step, ([weights] * count, batch, batch)) for count in (3, *LAYERS, *SIZES_OF_DIFF)
}
