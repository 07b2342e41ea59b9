"""Hand-written layers and their gradients, for the replay of the CPU fusion passes."""

import jax
import jax.numpy as jnp
from jax import lax


def masked_attention(inputs, lengths, weights):
    query, key, value = jnp.einsum("btd,pdhe->pbhte", inputs, weights)
    scores = jnp.einsum("bhte,bhse->bhts", query, key, preferred_element_type=jnp.float32) / 4.0
    present = jnp.arange(inputs.shape[1]) < lengths[:, None]
    scores = jnp.where(present[:, None, None], scores, -jnp.inf)
    shares = jax.nn.softmax(scores, axis=-1).astype(inputs.dtype)
    return jnp.einsum("bhts,bhse->bthe", shares, value).reshape(*inputs.shape[:2], -1)


def rotary(inputs):
    _, time, _, width = inputs.shape
    speeds = 10000.0 ** (-jnp.arange(0, width, 2) / width)
    angles = jnp.arange(time)[:, None, None] * speeds
    even, odd = inputs[..., ::2], inputs[..., 1::2]
    turned = (
        (even * jnp.cos(angles) - odd * jnp.sin(angles)),
        (even * jnp.sin(angles) + odd * jnp.cos(angles)),
    )
    return jnp.stack(turned, axis=-1).reshape(inputs.shape)


def group_norm(images, scale, bias):
    batch, channels, height, width = images.shape
    groups = images.reshape(batch, 4, channels // 4, height, width)
    mean = groups.mean(axis=(2, 3, 4), keepdims=True)
    square = jnp.square(groups).mean(axis=(2, 3, 4), keepdims=True)
    normal = (groups - mean) * lax.rsqrt(square - mean**2 + 1e-5)
    return normal.reshape(images.shape) * scale[:, None, None] + bias[:, None, None]


def root_norm(inputs, scale):
    wide = inputs.astype(jnp.float32)
    wide = wide * lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + 1e-6)
    return wide.astype(inputs.dtype) * (1 + scale)


def swiglu(inputs, scale, both, down):
    gate, up = jnp.split(root_norm(inputs, scale) @ both, 2, axis=-1)
    return inputs + (jax.nn.swish(gate) * up) @ down


def batch_norm(inputs, scale, bias, running):
    mean, variance = inputs.mean(axis=0), inputs.var(axis=0)
    normal = scale * (inputs - mean) / jnp.sqrt(variance + 1e-3) + bias
    kept = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, running, (mean, variance))
    return jax.nn.leaky_relu(normal).sum(), kept


def experts(inputs, router, up, down):
    logits = inputs @ router
    weights, chosen = lax.top_k(jax.nn.softmax(logits), 2)
    weights = weights / weights.sum(axis=-1, keepdims=True)
    sent = jnp.einsum("tk,tke->te", weights, jax.nn.one_hot(chosen, router.shape[1]))
    hidden = jax.nn.gelu(jnp.einsum("td,edf->etf", inputs, up), approximate=False)
    balance = (sent > 0).mean(axis=0) @ jax.nn.softmax(logits).mean(axis=0)
    return jnp.einsum("te,etf,efd->td", sent, hidden, down), balance


def gated_line(signal, kernel, mixer):
    wide = lax.conv_general_dilated(
        signal, kernel, (1,), [(6, 0)], rhs_dilation=(3,), feature_group_count=2
    )
    left, right = jnp.split(wide, 2, axis=1)
    return signal + jnp.einsum("nct,cd->ndt", jnp.tanh(left) * jax.nn.sigmoid(right), mixer)


def pooled_block(images, kernel, bias):
    features = lax.conv_general_dilated(images, kernel, (2, 1), [(1, 1), (2, 2)])
    features = jax.nn.elu(features + bias[:, None, None])
    largest = lax.reduce_window(features, -jnp.inf, lax.max, (1, 1, 2, 3), (1, 1, 2, 3), "VALID")
    return largest.mean(axis=(2, 3))


def upsampled(volume, kernel):
    numbers = ("NDHWC", "DHWIO", "NDHWC")
    grown = lax.conv_transpose(volume, kernel, (2, 1, 2), "VALID", dimension_numbers=numbers)
    return jax.nn.relu6(grown) - grown.mean(axis=(1, 2, 3), keepdims=True)


def lstm(weights, bias, sequence):
    def step(carry, item):
        hidden, cell = carry
        gates = jnp.concatenate([item, hidden], axis=-1) @ weights + bias
        enter, forget, change, leave = jnp.split(gates, 4, axis=-1)
        cell = jax.nn.sigmoid(forget + 1.0) * cell + jax.nn.sigmoid(enter) * jnp.tanh(change)
        hidden = jax.nn.sigmoid(leave) * jnp.tanh(cell)
        return (hidden, cell), hidden

    start = jnp.zeros((sequence.shape[1], bias.shape[0] // 4))
    return lax.scan(step, (start, start), sequence)[1]


def both_ways(inputs, weights, sequence):
    def step(state, item):
        reset, update, fresh = jnp.split(item @ inputs, 3)
        from_reset, from_update, from_state = jnp.split(state @ weights, 3)
        update = jax.nn.sigmoid(update + from_update)
        fresh = jnp.tanh(fresh + jax.nn.sigmoid(reset + from_reset) * from_state)
        state = update * state + (1.0 - update) * fresh
        return state, state

    start = jnp.zeros(weights.shape[0])
    _, ahead = lax.scan(step, start, sequence)
    _, behind = lax.scan(step, start, sequence, reverse=True)
    return jnp.concatenate([ahead, behind], axis=1)


def tied_language(table, tokens):
    hidden = table[tokens[:, :-1]] * 8.0
    hidden = hidden + jnp.cumsum(hidden, axis=1) / (1 + jnp.arange(hidden.shape[1]))[:, None]
    logits = jnp.tanh(hidden @ table.T / 30.0) * 30.0
    chosen = jnp.take_along_axis(logits, tokens[:, 1:, None], axis=-1)[..., 0]
    return (jax.nn.logsumexp(logits, axis=-1) - chosen).mean()


def smoothed_loss(logits, labels):
    logarithms = logits - jax.nn.logsumexp(logits, axis=-1, keepdims=True)
    wanted = jax.nn.one_hot(labels, logits.shape[-1]) * 0.9 + 0.1 / logits.shape[-1]
    counted = labels >= 0
    losses = -(wanted * logarithms).sum(axis=-1)
    return jnp.where(counted, losses, 0.0).sum() / jnp.maximum(counted.sum(), 1)


def dropped_residual(inputs, weight, key):
    first, second = jax.random.split(key)
    kept = jax.random.bernoulli(first, 0.8, inputs.shape)
    path = jnp.where(kept, jax.nn.gelu(inputs @ weight) / 0.8, 0.0)
    alive = jax.random.bernoulli(second, 0.9, (inputs.shape[0], 1, 1))
    return jnp.square(inputs + alive * path).mean()


def biased_scores(query, key):
    """The distances of ALiBi, one slope for each head."""
    slopes = 2.0 ** -jnp.arange(1.0, query.shape[0] + 1)
    places = jnp.arange(query.shape[1])
    distance = places[None] - places[:, None]
    scores = query @ jnp.swapaxes(key, 1, 2) + slopes[:, None, None] * distance
    return jax.nn.softmax(scores, axis=-1, where=distance <= 0)


def decoded(cache, token, weights, position):
    query, key, value = jnp.einsum("bd,pdhe->pbhe", token, weights)
    keys = lax.dynamic_update_slice(cache[0], key[:, None], (0, position, 0, 0))
    values = lax.dynamic_update_slice(cache[1], value[:, None], (0, position, 0, 0))
    scores = jnp.einsum("bhe,bthe->bht", query, keys).astype(jnp.float32)
    seen = jnp.arange(keys.shape[1]) <= position
    shares = jax.nn.softmax(jnp.where(seen, scores, -1e30)).astype(values.dtype)
    return (keys, values), jnp.einsum("bht,bthe->bhe", shares, values)


def beams(scores, logits, histories, position):
    batch, beams, words = logits.shape
    total = (scores[:, :, None] + jax.nn.log_softmax(logits)).reshape(batch, -1)
    scores, best = lax.top_k(total, beams)
    parents, chosen = best // words, best % words
    histories = jnp.take_along_axis(histories, parents[..., None], axis=1)
    return scores, lax.dynamic_update_slice(histories, chosen[..., None], (0, 0, position))


def contrastive(left, right, temperature):
    left = left / jnp.linalg.norm(left, axis=1, keepdims=True)
    right = right / jnp.linalg.norm(right, axis=1, keepdims=True)
    logits = left @ right.T * jnp.exp(temperature)
    there = jax.nn.logsumexp(logits, axis=1) - jnp.diagonal(logits)
    back = jax.nn.logsumexp(logits, axis=0) - jnp.diagonal(logits)
    return (there + back).mean() / 2.0


def state_space(inputs, decay, mixer):
    def combine(left, right):
        return left[0] * right[0], left[1] * right[0] + right[1]

    rates = jax.nn.sigmoid(decay + inputs @ mixer)
    _, states = lax.associative_scan(combine, (rates, (1.0 - rates) * inputs), axis=1)
    return jax.nn.silu(states) * inputs


def scaled_step(weights, inputs, scale):
    """A step in half precision that is taken back where a gradient is not finite."""
    gradient = jax.grad(lambda w: (inputs @ w.astype(jnp.float16)).mean() * scale)(weights)
    finite = jnp.isfinite(gradient).all()
    stepped = jnp.where(finite, weights - 1e-3 * gradient / scale, weights)
    return stepped, jnp.where(finite, scale * 1.001, scale * 0.5)


def summed(function):
    return lambda *arguments: function(*arguments).astype(jnp.float32).sum()


bias = ("f32", (16,))
narrow, projections = ("bf16", (2, 33, 48)), ("bf16", (3, 48, 3, 16))
cache = ("bf16", (5, 40, 3, 16))

programs = {
    "masked_attention": (masked_attention, (narrow, ("s32", (2,)), projections)),
    "masked_attention_gradient": (
        jax.grad(summed(masked_attention), argnums=(0, 2)),
        (narrow, ("s32", (2,)), projections),
    ),
    "rotary": (rotary, (("f32", (2, 65, 4, 32)),)),
    "group_norm_gradient": (
        jax.grad(summed(group_norm), argnums=(0, 1, 2)),
        (("f32", (3, 16, 9, 11)), bias, bias),
    ),
    "swiglu_gradient": (
        jax.grad(summed(swiglu), argnums=(0, 1, 2, 3)),
        (("bf16", (70, 64)), ("bf16", (64,)), ("bf16", (64, 340)), ("bf16", (170, 64))),
    ),
    "batch_norm_gradient": (
        jax.value_and_grad(batch_norm, argnums=(0, 1, 2), has_aux=True),
        (("f32", (4200, 16)), bias, bias, (bias, bias)),
    ),
    "experts": (
        experts,
        (("f32", (150, 24)), ("f32", (24, 6)), ("f32", (6, 24, 40)), ("f32", (6, 40, 24))),
    ),
    "gated_line": (gated_line, (("f32", (3, 10, 201)), ("f32", (20, 5, 3)), ("f32", (10, 10)))),
    "pooled_block_gradient": (
        jax.grad(summed(pooled_block), argnums=(1, 2)),
        (("f32", (5, 3, 22, 31)), ("f32", (12, 3, 3, 5)), ("f32", (12,))),
    ),
    "upsampled": (upsampled, (("f32", (1, 5, 6, 7, 4)), ("f32", (2, 3, 2, 4, 3)))),
    "lstm": (lstm, (("f32", (29, 80)), ("f32", (80,)), ("f32", (21, 6, 9)))),
    "lstm_gradient": (
        jax.grad(summed(lstm), argnums=(0, 1)),
        (("f32", (29, 80)), ("f32", (80,)), ("f32", (21, 6, 9))),
    ),
    "both_ways": (both_ways, (("f32", (7, 39)), ("f32", (13, 39)), ("f32", (90, 7)))),
    "tied_language_gradient": (
        jax.value_and_grad(tied_language),
        (("f32", (611, 40)), ("s32", (3, 18))),
    ),
    "smoothed_loss_gradient": (
        jax.grad(smoothed_loss),
        (("f32", (37, 5001)), ("s32", (37,))),
    ),
    "dropped_residual_gradient": (
        jax.grad(dropped_residual, argnums=(0, 1)),
        (("f32", (4, 25, 36)), ("f32", (36, 36)), ("u32", (2,))),
    ),
    "biased_scores": (biased_scores, (("f32", (6, 51, 12)), ("f32", (6, 51, 12)))),
    "decoded": (
        decoded,
        ((cache, cache), ("bf16", (5, 48)), projections, ("s32", ())),
        {"donate": (0,)},
    ),
    "beams": (
        beams,
        (("f32", (3, 4)), ("f32", (3, 4, 1200)), ("s32", (3, 4, 25)), ("s32", ())),
    ),
    "contrastive_gradient": (
        jax.grad(contrastive, argnums=(0, 1, 2)),
        (("f32", (68, 30)), ("f32", (68, 30)), ("f32", ())),
    ),
    "state_space": (state_space, (("f32", (2, 45, 14)), ("f32", (14,)), ("f32", (14, 14)))),
    "scaled_step": (scaled_step, (("f32", (90, 33)), ("f16", (20, 90)), ("f32", ()))),
}
