"""Text generation with a cache of keys and values, each token chosen another way: the likeliest,
from several beams whose caches are reordered, or at random among the likeliest.
"""

import jax
import jax.numpy as jnp
from jax import lax

WORDS, WIDTH, HEADS, HEAD, LAYERS, LENGTH = 400, 128, 4, 32, 2, 40
END = 3


def layer_norm(values, scale, shift):
    centred = values - values.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + shift


def attention(weights, hidden, cache, position):
    rows = hidden.shape[0]
    parts = (hidden @ weights["inner"]).reshape(rows, 3, HEADS, HEAD)
    query, *fresh = (parts[:, number] for number in range(3))
    keys, values = (
        lax.dynamic_update_slice(old, new[:, :, None], (0, 0, position, 0))
        for old, new in zip(cache, fresh, strict=True)
    )
    scores = jnp.einsum("bhd,bhtd->bht", query, keys) * HEAD**-0.5
    scores = jnp.where(jnp.arange(LENGTH) <= position, scores, -1e9)
    mixed = jnp.einsum("bht,bhtd->bhd", jax.nn.softmax(scores), values)
    return mixed.reshape(rows, WIDTH) @ weights["outer"], (keys, values)


def logits_of(model, tokens, position, caches):
    hidden = model["words"][tokens] + model["places"][position]
    fresh = []
    for weights, cache in zip(model["layers"], caches, strict=True):
        change, cache = attention(weights, layer_norm(hidden, *weights["first"]), cache, position)
        hidden = hidden + change
        wide = jax.nn.gelu(layer_norm(hidden, *weights["second"]) @ weights["up"])
        hidden = hidden + wide @ weights["down"]
        fresh.append(cache)
    return layer_norm(hidden, *model["last"]) @ model["words"].T, tuple(fresh)


def greedy(model, caches, tokens):
    def step(state):
        position, text, done, caches = state
        logits, caches = logits_of(model, text[:, position], position, caches)
        token = jnp.where(done, END, logits.argmax(-1).astype(jnp.int32))
        text = lax.dynamic_update_slice(text, token[:, None], (0, position + 1))
        return position + 1, text, done | (token == END), caches

    done = jnp.zeros(tokens.shape[0], bool)
    return lax.while_loop(
        lambda s: (s[0] < LENGTH - 1) & ~s[2].all(), step, (0, tokens, done, caches)
    )[1]


def sampled(model, caches, tokens, key):
    def step(state, number):
        text, caches, key = state
        logits, caches = logits_of(model, text, number, caches)
        likeliest, words = lax.top_k(logits / 0.8, 40)
        shares = jax.nn.softmax(likeliest)
        likeliest = jnp.where(jnp.cumsum(shares, -1) - shares < 0.9, likeliest, -1e9)
        key, now = jax.random.split(key)
        choice = jax.random.categorical(now, likeliest)
        text = jnp.take_along_axis(words, choice[:, None], 1)[:, 0]
        return (text, caches, key), text

    return lax.scan(step, (tokens, caches, key), jnp.arange(LENGTH))[1]


def beams(model, caches, tokens):
    """Four beams of one text; a finished beam only goes on with END."""
    count = tokens.shape[0]

    def step(number, state):
        text, scores, caches = state
        logits, caches = logits_of(model, text[:, number], number, caches)
        chances = jax.nn.log_softmax(logits)
        only_end = jnp.where(jnp.arange(WORDS) == END, 0.0, -1e9)
        chances = jnp.where((text[:, number] == END)[:, None], only_end, chances)
        scores, best = lax.top_k((scores[:, None] + chances).reshape(-1), count)
        parents, words = best // WORDS, best % WORDS
        text = text[parents].at[:, number + 1].set(words)
        return text, scores, jax.tree.map(lambda cache: cache[parents], caches)

    scores = jnp.zeros(count).at[1:].set(-1e9)
    return lax.fori_loop(0, LENGTH - 1, step, (tokens, scores, caches))[:2]


norm = (("f32", (WIDTH,)), ("f32", (WIDTH,)))
layer = {
    "inner": ("f32", (WIDTH, 3 * WIDTH)),
    "outer": ("f32", (WIDTH, WIDTH)),
    "up": ("f32", (WIDTH, 4 * WIDTH)),
    "down": ("f32", (4 * WIDTH, WIDTH)),
    "first": norm,
    "second": norm,
}
model = {
    "words": ("f32", (WORDS, WIDTH)),
    "places": ("f32", (LENGTH, WIDTH)),
    "layers": (layer,) * LAYERS,
    "last": norm,
}
caches = ((("f32", (4, HEADS, LENGTH, HEAD)),) * 2,) * LAYERS
programs = {
    "greedy": (greedy, (model, caches, ("s32", (4, LENGTH)))),
    "sampled": (sampled, (model, caches, ("s32", (4,)), ("u32", (2,)))),
    "beams": (beams, (model, caches, ("s32", (4, LENGTH)))),
}
