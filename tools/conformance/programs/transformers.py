"""Transformer blocks, their losses and their decoding, to test the GPU rules."""

import jax
import jax.numpy as jnp
from jax import lax


def scaled_norm(inputs, scale):
    wide = inputs.astype(jnp.float32)
    square = jnp.mean(jnp.square(wide), axis=-1, keepdims=True)
    return (wide * lax.rsqrt(square + 1e-6) * scale).astype(inputs.dtype)


def layer_norm(inputs, scale, shift):
    mean = inputs.mean(axis=-1, keepdims=True)
    variance = inputs.var(axis=-1, keepdims=True)
    return (inputs - mean) * lax.rsqrt(variance + 1e-5) * scale + shift


def turned(heads, positions):
    """Rotary positions, in the form that turns the two halves of a head against each other."""
    width = heads.shape[-1]
    frequencies = 10000.0 ** (-jnp.arange(0, width, 2) / width)
    angles = positions[:, None, None] * frequencies
    left, right = jnp.split(heads.astype(jnp.float32), 2, axis=-1)
    turned = (
        left * jnp.cos(angles) - right * jnp.sin(angles),
        right * jnp.cos(angles) + left * jnp.sin(angles),
    )
    return jnp.concatenate(turned, axis=-1).astype(heads.dtype)


def grouped_attention(query, key, value):
    """Causal attention in which several query heads read one key head."""
    batch, time, heads, width = query.shape
    groups = key.shape[2]
    query = query.reshape(batch, time, groups, heads // groups, width)
    scores = jnp.einsum("btghd,bsgd->bghts", query, key, preferred_element_type=jnp.float32)
    causal = jnp.tril(jnp.ones((time, time), dtype=bool))
    shares = jax.nn.softmax(jnp.where(causal, scores * width**-0.5, -jnp.inf), axis=-1)
    mixed = jnp.einsum("bghts,bsgd->btghd", shares.astype(value.dtype), value)
    return mixed.reshape(batch, time, heads * width)


def decoder_block(weights, inputs):
    positions = jnp.arange(inputs.shape[1])
    normal = scaled_norm(inputs, weights["first"])
    query = turned(jnp.einsum("btd,dhe->bthe", normal, weights["query"]), positions)
    key = turned(jnp.einsum("btd,dhe->bthe", normal, weights["key"]), positions)
    value = jnp.einsum("btd,dhe->bthe", normal, weights["value"])
    inputs = inputs + grouped_attention(query, key, value) @ weights["out"]
    normal = scaled_norm(inputs, weights["second"])
    gate = jax.nn.silu(normal @ weights["gate"])
    return inputs + (gate * (normal @ weights["up"])) @ weights["down"]


def dropout(key, share, values):
    return jnp.where(jax.random.bernoulli(key, share, values.shape), values / share, 0.0)


def vision_block(weights, patches, key):
    """An encoder block with three dropouts and a dropped path, as vision models have it."""
    keys = jax.random.split(key, 4)
    batch, time, _ = patches.shape
    normal = layer_norm(patches, *weights["first"])
    joined = normal @ weights["joined"] + weights["offset"]
    query, key, value = jnp.moveaxis(joined.reshape(batch, time, 3, 3, 64), (2, 3), (0, 2))
    scores = jnp.einsum("bhtd,bhsd->bhts", query, key) / 8.0
    shares = dropout(keys[0], 0.9, jax.nn.softmax(scores, axis=-1))
    mixed = jnp.einsum("bhts,bhsd->bthd", shares, value).reshape(patches.shape)
    path = dropout(keys[1], 0.9, mixed @ weights["out"])
    alive = jax.random.bernoulli(keys[2], 0.8, (batch, 1, 1)) / 0.8
    patches = patches + weights["gamma"] * path * alive
    hidden = jax.nn.gelu(layer_norm(patches, *weights["second"]) @ weights["wide"])
    return patches + dropout(keys[3], 0.9, hidden @ weights["narrow"])


def quantised_cache_step(layers, cache, token, position):
    """One token through layers that are scanned over, with keys and values kept as bytes."""

    def stored(values):
        scale = jnp.abs(values).max(axis=-1, keepdims=True).astype(jnp.float32) / 127.0 + 1e-8
        return jnp.round(values / scale).astype(jnp.int8), scale

    def write(old, new):
        return lax.dynamic_update_slice(old, new[:, :, None], (0, 0, position, 0))

    def layer(hidden, slices):
        weights, (keys, key_scales, values, value_scales) = slices
        normal = scaled_norm(hidden, weights["norm"])
        query, key, value = jnp.einsum("bd,pdhe->pbhe", normal, weights["joined"])
        new = (*stored(key), *stored(value))
        kept = tuple(map(write, (keys, key_scales, values, value_scales), new))
        wide = (kept[0] * kept[1]).astype(jnp.bfloat16), (kept[2] * kept[3]).astype(jnp.bfloat16)
        scores = jnp.einsum("bhe,bhte->bht", query, wide[0]).astype(jnp.float32) / 8.0
        seen = jnp.arange(keys.shape[2]) <= position
        shares = jax.nn.softmax(jnp.where(seen, scores, -1e30)).astype(jnp.bfloat16)
        mixed = jnp.einsum("bht,bhte->bhe", shares, wide[1])
        return hidden + jnp.einsum("bhe,hed->bd", mixed, weights["out"]), kept

    return lax.scan(layer, token, (layers, cache))


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


def vocabulary_loss(hidden, table, labels):
    """Cross-entropy with the squared normaliser added, on logits in bfloat16."""
    logits = jnp.einsum("btd,vd->btv", hidden, table).astype(jnp.float32)
    normaliser = jax.nn.logsumexp(logits, axis=-1)
    chosen = jnp.take_along_axis(logits, jnp.maximum(labels, 0)[..., None], axis=-1)[..., 0]
    counted = (labels >= 0).astype(jnp.float32)
    losses = (normaliser - chosen + 1e-4 * normaliser**2) * counted
    right = (jnp.argmax(logits, axis=-1) == labels) * counted
    return losses.sum() / counted.sum(), right.sum()


def blockwise_attention(query, keys, values):
    """Attention over blocks of keys, with the running maximum and sum of the softmax."""

    def block(carry, block):
        highest, total, mixed = carry
        key, value = block
        scores = jnp.einsum("hqd,hkd->hqk", query, key, preferred_element_type=jnp.float32)
        following = jnp.maximum(highest, scores.max(axis=-1))
        shrink = jnp.exp(highest - following)
        weights = jnp.exp(scores - following[..., None])
        total = total * shrink + weights.sum(axis=-1)
        mixed = mixed * shrink[..., None] + jnp.einsum(
            "hqk,hkd->hqd", weights.astype(value.dtype), value, preferred_element_type=jnp.float32
        )
        return (following, total, mixed), None

    rows = query.shape[:2]
    start = (jnp.full(rows, -jnp.inf), jnp.zeros(rows), jnp.zeros(query.shape))
    (highest, total, mixed), _ = lax.scan(block, start, (keys, values))
    return (mixed / total[..., None]).astype(query.dtype), highest + jnp.log(total)


def local_attention(inputs, weights, bias):
    """Attention inside windows that are shifted, with a bias for each relative place."""
    batch, height, width, channels = inputs.shape
    shifted = jnp.roll(inputs, (-3, -3), axis=(1, 2))
    windows = shifted.reshape(batch, height // 7, 7, width // 7, 7, channels)
    windows = windows.transpose(0, 1, 3, 2, 4, 5).reshape(-1, 49, channels)
    query, key, value = jnp.einsum("wtc,pchd->pwhtd", windows, weights)
    rows, columns = jnp.divmod(jnp.arange(49), 7)
    place = (rows[:, None] - rows + 6) * 13 + columns[:, None] - columns + 6
    scores = jnp.einsum("whtd,whsd->whts", query, key) * 0.25 + bias[:, place]
    mixed = jnp.einsum("whts,whsd->wthd", jax.nn.softmax(scores, axis=-1), value)
    mixed = mixed.reshape(batch, height // 7, width // 7, 7, 7, channels)
    whole = mixed.transpose(0, 1, 3, 2, 4, 5).reshape(inputs.shape)
    return inputs + jnp.roll(whole, (3, 3), axis=(1, 2))


def sampled_token(logits, history, key):
    """The next token after a penalty for repetition, from the most likely ones only."""
    rows = jnp.arange(logits.shape[0])[:, None]
    seen = jnp.take_along_axis(logits, history, axis=-1)
    logits = logits.at[rows, history].set(jnp.where(seen > 0, seen / 1.3, seen * 1.3))
    best, places = lax.top_k(logits / 0.7, 50)
    shares = jax.nn.softmax(best, axis=-1)
    beyond = jnp.cumsum(shares, axis=-1) - shares > 0.9
    noise = jax.random.gumbel(key, best.shape)
    pick = jnp.argmax(jnp.where(beyond, -jnp.inf, best) + noise, axis=-1)[:, None]
    return jnp.take_along_axis(places, pick, axis=-1), jnp.take_along_axis(shares, pick, axis=-1)


def pooled_encoder(weights, tokens, lengths):
    """Sentence vectors: embedding, one block in half precision, a masked mean, a cosine loss."""
    table, positions, joined, out = weights
    hidden = (table[tokens] + positions[: tokens.shape[1]]).astype(jnp.float16)
    present = jnp.arange(tokens.shape[1]) < lengths[:, None]
    query, key, value = jnp.split(hidden @ joined, 3, axis=-1)
    scores = jnp.einsum("btd,bsd->bts", query, key).astype(jnp.float32) / 9.0
    scores = jnp.where(present[:, None], scores, -1e9)
    shares = jax.nn.softmax(scores, axis=-1).astype(jnp.float16)
    hidden = hidden + (shares @ value) @ out
    total = (hidden * present[..., None]).sum(axis=1, dtype=jnp.float32)
    vectors = total / lengths[:, None]
    vectors = vectors * lax.rsqrt((vectors**2).sum(axis=-1, keepdims=True) + 1e-12)
    similar = vectors[::2] @ vectors[1::2].T * 20.0
    return (jax.nn.logsumexp(similar, axis=-1) - jnp.diagonal(similar)).mean()


def block_loss(weights, inputs):
    return jnp.square(decoder_block(weights, inputs).astype(jnp.float32)).mean()


def patches_loss(weights, patches, key):
    return jnp.abs(vision_block(weights, patches, key)).mean()


def windows_loss(inputs, weights, bias):
    return local_attention(inputs, weights, bias).var()


block = {
    "first": ("f32", (512,)),
    "query": ("bf16", (512, 8, 64)),
    "key": ("bf16", (512, 2, 64)),
    "value": ("bf16", (512, 2, 64)),
    "out": ("bf16", (512, 512)),
    "second": ("f32", (512,)),
    "gate": ("bf16", (512, 1376)),
    "up": ("bf16", (512, 1376)),
    "down": ("bf16", (1376, 512)),
}
narrow = ("f32", (192,))
vision = {
    "first": (narrow, narrow),
    "joined": ("f32", (192, 576)),
    "offset": ("f32", (576,)),
    "out": ("f32", (192, 192)),
    "gamma": narrow,
    "second": (narrow, narrow),
    "wide": ("f32", (192, 768)),
    "narrow": ("f32", (768, 192)),
}
layers = {
    "norm": ("f32", (6, 384)),
    "joined": ("bf16", (6, 3, 384, 6, 64)),
    "out": ("bf16", (6, 6, 64, 384)),
}
kept_bytes, kept_scales = ("s8", (6, 4, 6, 512, 64)), ("f32", (6, 4, 6, 512, 1))
experts = {
    "router": ("bf16", (128, 16)),
    "up": ("bf16", (16, 128, 256)),
    "down": ("bf16", (16, 256, 128)),
}
sequence, patches = ("bf16", (2, 256, 512)), ("f32", (3, 197, 192))
key, blocks = ("u32", (2,)), ("bf16", (9, 8, 128, 64))
image, heads = ("f32", (2, 28, 35, 48)), ("f32", (3, 48, 3, 16))
encoder = (
    ("f32", (5000, 81)),
    ("f32", (64, 81)),
    ("f16", (81, 243)),
    ("f16", (81, 81)),
)

programs = {
    "decoder_block": (decoder_block, (block, sequence)),
    "decoder_block_gradient": (jax.grad(block_loss, argnums=(0, 1)), (block, sequence)),
    "vision_block": (vision_block, (vision, patches, key)),
    "vision_block_gradient": (jax.value_and_grad(patches_loss), (vision, patches, key)),
    "quantised_cache_step": (
        quantised_cache_step,
        (
            layers,
            (kept_bytes, kept_scales, kept_bytes, kept_scales),
            ("bf16", (4, 384)),
            ("s32", ()),
        ),
        {"donate": (1,)},
    ),
    "routed_experts_gradient": (
        jax.grad(routed_experts),
        (experts, ("bf16", (300, 128))),
    ),
    "vocabulary_loss_gradient": (
        jax.value_and_grad(vocabulary_loss, argnums=(0, 1), has_aux=True),
        (("bf16", (2, 128, 256)), ("bf16", (32003, 256)), ("s32", (2, 128))),
    ),
    "blockwise_attention": (blockwise_attention, (("bf16", (8, 200, 64)), blocks, blocks)),
    "local_attention_gradient": (
        jax.grad(windows_loss, argnums=(0, 1, 2)),
        (image, heads, ("f32", (3, 169))),
    ),
    "sampled_token": (sampled_token, (("f32", (6, 50257)), ("s32", (6, 77)), key)),
    "pooled_encoder_gradient": (
        jax.grad(pooled_encoder),
        (encoder, ("s32", (16, 41)), ("s32", (16,))),
    ),
}
