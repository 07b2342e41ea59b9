"""Text generation with rotary positions and a cache of keys and values, in a loop.

Every layer slices the same rotary tables, or computes the same angles: values that are equal, and
that several fusions compute each for itself.
"""

import jax
import jax.numpy as jnp
from jax import lax

LENGTH = 48  # of the cache
WIDTH, HEADS, GROUPS, HEAD, HIDDEN, WORDS = 128, 4, 2, 32, 256, 512
LAYERS = 4


def scaled_norm(inputs, scale):
    wide = inputs.astype(jnp.float32)
    square = jnp.mean(wide * wide, axis=-1, keepdims=True)
    return (wide * lax.rsqrt(square + 1e-6) * (1 + scale)).astype(inputs.dtype)


def rotary_angles(positions):
    frequencies = 10000.0 ** (-jnp.arange(0, HEAD, 2, dtype=jnp.float32) / HEAD)
    return positions[..., None].astype(jnp.float32) * frequencies


def rotary_tables():
    angles = rotary_angles(jnp.arange(LENGTH))
    angles = jnp.concatenate([angles, angles], axis=-1)
    return jnp.cos(angles), jnp.sin(angles)


def turned_by(heads, cosine, sine):
    """Heads of [batch, heads, HEAD], turned by tables of [1, HEAD]."""
    left, right = jnp.split(heads, 2, axis=-1)
    across = jnp.concatenate([-right, left], axis=-1)
    return heads * cosine.astype(heads.dtype) + across * sine.astype(heads.dtype)


def turned_pairs(heads, position):
    """The same by angles, computed where they are needed, for pairs of neighbours."""
    angles = rotary_angles(position[None])
    cosine, sine = jnp.cos(angles), jnp.sin(angles)
    pairs = heads.astype(jnp.float32).reshape(*heads.shape[:-1], HEAD // 2, 2)
    left, right = pairs[..., 0], pairs[..., 1]
    both = left * cosine - right * sine, right * cosine + left * sine
    return jnp.stack(both, axis=-1).reshape(heads.shape).astype(heads.dtype)


def attended(query, keys, values, position):
    """One query position against the cache, several query heads for one key head."""
    batch = query.shape[0]
    query = query.reshape(batch, GROUPS, HEADS // GROUPS, HEAD)
    scores = jnp.einsum("bghd,btgd->bght", query, keys, preferred_element_type=jnp.float32)
    seen = jnp.arange(LENGTH) <= position
    scores = jnp.where(seen, 50.0 * jnp.tanh(scores * HEAD**-0.5 / 50.0), -1e30)
    shares = jax.nn.softmax(scores, axis=-1).astype(values.dtype)
    return jnp.einsum("bght,btgd->bghd", shares, values).reshape(batch, HEADS * HEAD)


def layer(weights, hidden, keys, values, position, turn):
    """One layer for one new token; the cache of one layer is [batch, LENGTH, GROUPS, HEAD]."""
    batch = hidden.shape[0]
    normal = scaled_norm(hidden, weights["first"])
    query = turn((normal @ weights["query"]).reshape(batch, HEADS, HEAD))
    key = turn((normal @ weights["key"]).reshape(batch, GROUPS, HEAD))
    value = (normal @ weights["value"]).reshape(batch, GROUPS, HEAD)
    keys = lax.dynamic_update_slice(keys, key[:, None], (0, position, 0, 0))
    values = lax.dynamic_update_slice(values, value[:, None], (0, position, 0, 0))
    hidden = hidden + attended(query, keys, values, position) @ weights["out"]
    normal = scaled_norm(hidden, weights["second"])
    gate = jax.nn.gelu(normal @ weights["gate"], approximate=True)
    return hidden + (gate * (normal @ weights["up"])) @ weights["down"], keys, values


def next_token(model, hidden):
    logits = scaled_norm(hidden, model["last"]) @ model["embedding"].T
    return jnp.argmax(logits.astype(jnp.float32), axis=-1).astype(jnp.int32)


def embedded(model, tokens):
    return model["embedding"][tokens] * jnp.asarray(WIDTH**0.5, model["embedding"].dtype)


def generate(model, cache, tokens, *, sliced):
    """Until every row has ended: layers one after the other, tables ``sliced`` at the position or
    angles computed there."""
    tables = rotary_tables()

    def step(state):
        position, tokens, ended, cache = state
        token = lax.dynamic_slice_in_dim(tokens, position, 1, axis=1)[:, 0]
        hidden = embedded(model, token)
        updated = []
        for number in range(LAYERS):
            weights = jax.tree.map(lambda stacked, n=number: stacked[n], model["layers"])

            def turn(heads):
                if not sliced:
                    return turned_pairs(heads, position)
                rows = [lax.dynamic_slice_in_dim(t, position, 1, axis=0) for t in tables]
                return turned_by(heads, *rows)

            hidden, *pair = layer(weights, hidden, *cache[number], position, turn)
            updated.append(tuple(pair))
        chosen = jnp.where(ended, 0, next_token(model, hidden))
        tokens = lax.dynamic_update_slice_in_dim(tokens, chosen[:, None], position + 1, axis=1)
        return position + 1, tokens, ended | (chosen == 1), tuple(updated)

    def unfinished(state):
        position, _, ended, _ = state
        return (position < LENGTH - 1) & ~jnp.all(ended)

    ended = jnp.zeros(tokens.shape[0], dtype=bool)
    return lax.while_loop(unfinished, step, (jnp.int32(0), tokens, ended, cache))[1]


def generate_by_layer(model, cache, tokens):
    """A known number of tokens, and a scan over layers whose weights and caches are stacked."""
    cosine, sine = rotary_tables()

    def step(state, position):
        token, cache = state
        rows = cosine[position][None], sine[position][None]

        def one(hidden, parts):
            weights, keys, values = parts
            turn = lambda heads: turned_by(heads, *rows)  # noqa: E731
            hidden, keys, values = layer(weights, hidden, keys, values, position, turn)
            return hidden, (keys, values)

        hidden, cache = lax.scan(one, embedded(model, token), (model["layers"], *cache))
        token = next_token(model, hidden)
        return (token, cache), token

    return lax.scan(step, (tokens, cache), jnp.arange(LENGTH))[1]


def described(dtype):
    def stacked(*dimensions):
        return dtype, (LAYERS, *dimensions)

    return {
        "embedding": (dtype, (WORDS, WIDTH)),
        "last": (dtype, (WIDTH,)),
        "layers": {
            "first": stacked(WIDTH),
            "second": stacked(WIDTH),
            "query": stacked(WIDTH, HEADS * HEAD),
            "key": stacked(WIDTH, GROUPS * HEAD),
            "value": stacked(WIDTH, GROUPS * HEAD),
            "out": stacked(HEADS * HEAD, WIDTH),
            "gate": stacked(WIDTH, HIDDEN),
            "up": stacked(WIDTH, HIDDEN),
            "down": stacked(HIDDEN, WIDTH),
        },
    }


def caches(dtype, batch):
    one = (dtype, (batch, LENGTH, GROUPS, HEAD))
    return tuple((one, one) for _ in range(LAYERS))


def with_tables(model, cache, tokens):
    return generate(model, cache, tokens, sliced=True)


def with_angles(model, cache, tokens):
    return generate(model, cache, tokens, sliced=False)


stacked = ("bf16", (LAYERS, 2, LENGTH, GROUPS, HEAD))

programs = {
    "tables": (with_tables, (described("bf16"), caches("bf16", 2), ("s32", (2, LENGTH)))),
    "tables_in_single": (with_tables, (described("f32"), caches("f32", 1), ("s32", (1, LENGTH)))),
    "angles": (with_angles, (described("bf16"), caches("bf16", 16), ("s32", (16, LENGTH)))),
    "by_layer": (generate_by_layer, (described("bf16"), (stacked, stacked), ("s32", (2,)))),
}
