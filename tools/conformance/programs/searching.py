"""Sorting, ranking, matching and counting, as searches and evaluations use them."""

import jax
import jax.numpy as jnp
from jax import lax


def suppressed_boxes(boxes, scores):
    """The best boxes that do not overlap a better one."""
    scores, order = lax.top_k(scores, 200)
    boxes = boxes[order]
    size = (boxes[:, 2:] - boxes[:, :2]).prod(axis=-1)
    low = jnp.maximum(boxes[:, None, :2], boxes[:, :2])
    high = jnp.minimum(boxes[:, None, 2:], boxes[:, 2:])
    common = jnp.maximum(high - low, 0.0).prod(axis=-1)
    overlap = common / (size[:, None] + size - common)

    def step(index, kept):
        worse = (overlap[index] > 0.5) & (jnp.arange(200) > index)
        return jnp.where(kept[index], kept & ~worse, kept)

    kept = lax.fori_loop(0, 200, step, jnp.ones(200, dtype=bool))
    return boxes, jnp.where(kept, scores, 0.0), order


def nearest_rows(queries, rows, labels):
    """The labels of the nearest rows, by votes that fade with distance."""
    square = (queries**2).sum(axis=1)[:, None] + (rows**2).sum(axis=1) - 2.0 * queries @ rows.T
    distance, places = lax.top_k(-square, 15)
    weights = jax.nn.softmax(distance / distance.std(axis=-1, keepdims=True), axis=-1)
    votes = (jax.nn.one_hot(labels[places], 20) * weights[..., None]).sum(axis=1)
    return jnp.argmax(votes, axis=-1), jnp.sqrt(jnp.maximum(-distance, 0.0)), votes.max(axis=-1)


def grouped_counts(keys, values):
    """Distinct keys with the count, sum and largest of their values, by a sort of pairs."""
    keys, values = lax.sort((keys, values), num_keys=2)
    first = jnp.concatenate([jnp.ones(1, dtype=bool), keys[1:] != keys[:-1]])
    group = jnp.cumsum(first) - 1
    size = keys.shape[0]
    count = jnp.zeros(size, jnp.int32).at[group].add(1)
    total = jnp.zeros(size).at[group].add(values)
    highest = jnp.full(size, -jnp.inf).at[group].max(values)
    names = jnp.zeros(size, keys.dtype).at[group].set(keys)
    return names, count, total / jnp.maximum(count, 1), highest, first.sum()


def ranking_scores(scores, relevance):
    """Discounted gain, area under the curve, and average precision of rankings."""
    order = jnp.argsort(-scores, axis=-1)
    ranked = jnp.take_along_axis(relevance, order, axis=-1).astype(jnp.float32)
    discount = 1.0 / jnp.log2(jnp.arange(scores.shape[-1]) + 2.0)
    best = -jnp.sort(-relevance.astype(jnp.float32), axis=-1)
    gain = (ranked * discount).sum(axis=-1) / jnp.maximum((best * discount).sum(axis=-1), 1e-9)
    hit = (ranked > 0).astype(jnp.float32)
    found = jnp.cumsum(hit, axis=-1)
    precision = found / jnp.arange(1.0, scores.shape[-1] + 1)
    average = (precision * hit).sum(axis=-1) / jnp.maximum(found[:, -1], 1.0)
    missed = found[:, -1] * (scores.shape[-1] - found[:, -1])
    area = (found * (1.0 - hit)).sum(axis=-1) / jnp.maximum(missed, 1.0)
    return gain.mean(), average, area


def quantiles(values, halves):
    """Quantiles, a trimmed mean, ranks with ties, and the largest of half numbers."""
    levels = jnp.quantile(values, jnp.array([0.01, 0.25, 0.5, 0.75, 0.99]), axis=0)
    ordered = jnp.sort(values, axis=0)
    trimmed = ordered[50:-50].mean(axis=0)
    places = jax.vmap(jnp.searchsorted, (1, 1))(ordered, values)
    largest, where = lax.top_k(halves, 8)
    return levels, trimmed, places.astype(jnp.float32).mean(axis=1), largest.sum(axis=-1), where


def assigned(costs):
    """An auction that gives each row its own column."""
    size = costs.shape[0]

    def step(carry):
        prices, owners, rounds = carry
        free = ~(owners[:, None] == jnp.arange(size)).any(axis=0)
        worth, places = lax.top_k(-costs - prices, 2)
        bid = jnp.where(free, worth[:, 0] - worth[:, 1] + 0.01, -jnp.inf)
        bids = jnp.full((size, size), -jnp.inf).at[jnp.arange(size), places[:, 0]].set(bid)
        winner, raised = jnp.argmax(bids, axis=0), bids.max(axis=0)
        sold = raised > 0
        prices = prices + jnp.where(sold, raised, 0.0)
        return prices, jnp.where(sold, winner, owners), rounds + 1

    def going(carry):
        return (carry[1] < 0).any() & (carry[2] < 1000)

    start = jnp.zeros(size), jnp.full(size, -1), 0
    prices, owners, rounds = lax.while_loop(going, step, start)
    return owners, prices.sum(), rounds


programs = {
    "suppressed_boxes": (suppressed_boxes, (("f32", (3000, 4)), ("f32", (3000,)))),
    "nearest_rows": (
        nearest_rows,
        (("f32", (130, 60)), ("f32", (2500, 60)), ("s32", (2500,))),
    ),
    "grouped_counts": (grouped_counts, (("s32", (6001,)), ("f32", (6001,)))),
    "ranking_scores": (ranking_scores, (("f32", (40, 350)), ("s32", (40, 350)))),
    "quantiles": (quantiles, (("f32", (1500, 12)), ("bf16", (30, 700)))),
    "assigned": (assigned, (("f32", (48, 48)),)),
}
