"""Reductions of many forms: along rows and columns, short and long, alone and side by side."""

import jax
import jax.numpy as jnp
from jax import lax


def moments(values):
    """The first four moments of each row, as statistics packages give them."""
    mean = values.mean(axis=-1, keepdims=True)
    centred = values - mean
    variance = jnp.square(centred).mean(axis=-1)
    skew = (centred**3).mean(axis=-1) / variance**1.5
    tails = (centred**4).mean(axis=-1) / variance**2 - 3.0
    return mean[..., 0], variance, skew, tails


def standardised(table):
    """Columns brought to mean zero and length one; the correlations; the farthest rows."""
    mean, spread = table.mean(axis=0), table.std(axis=0)
    normal = (table - mean) / jnp.where(spread > 0, spread, 1.0)
    correlations = normal.T @ normal / table.shape[0]
    distance = jnp.abs(normal).max(axis=1)
    return correlations, jnp.argmax(distance), (distance > 4.0).sum(), normal.min(axis=0)


def all_sides(cube):
    """Totals of a cube by each of its axes and each pair of them."""
    wide = jnp.sqrt(jnp.abs(cube) + 1.0)
    ones = [wide.sum(axis=axis) for axis in range(3)]
    pairs = [wide.sum(axis=axes) for axes in ((0, 1), (0, 2), (1, 2))]
    return ones, pairs, wide.sum()


def summary(measured, present):
    """What a table of measurements says where it is filled in."""
    values = jnp.where(present, measured, 0.0)
    count = jnp.maximum(present.sum(axis=0), 1)
    mean = values.sum(axis=0) / count
    spread = jnp.where(present, jnp.square(measured - mean), 0.0).sum(axis=0) / count
    return {
        "count": count,
        "mean": mean,
        "spread": jnp.sqrt(spread),
        "lowest": jnp.where(present, measured, jnp.inf).min(axis=0),
        "highest": jnp.where(present, measured, -jnp.inf).max(axis=0),
        "any": present.any(axis=1),
        "all": present.all(axis=1),
        "shares": present.mean(axis=1),
    }


def ten_sums(values):
    """More sums over the rows of one input than one kernel takes."""
    return [jnp.sum(jnp.cos(values * scale), axis=1) for scale in range(1, 11)]


def column_sums(values, weights):
    """Sums along columns, each of other work on the same input."""
    return (
        (values * weights).sum(axis=0),
        jnp.exp(-values).sum(axis=0),
        jnp.abs(values).max(axis=0),
        jnp.square(values).sum(axis=0),
        (values > 0).sum(axis=0),
    )


def temperatures(logits, values):
    """Softmax in its forms: hot, cold, masked, without its normaliser, along another axis."""
    hot = jax.nn.softmax(logits / 4.0, axis=-1)
    cold = jax.nn.log_softmax(logits * 4.0, axis=-1)
    masked = jax.nn.softmax(logits, axis=-1, where=logits > 0)
    entropy = -(hot * jnp.log(hot + 1e-9)).sum(axis=-1)
    across = jax.nn.softmax(logits, axis=1)
    mixed = (across * values[..., None]).sum(axis=1)
    return hot, cold.max(axis=-1), masked, entropy, mixed


def sharper(inputs):
    """A sparse softmax: projection on the simplex by sorting and prefix sums."""
    ordered = -jnp.sort(-inputs, axis=-1)
    total = jnp.cumsum(ordered, axis=-1) - 1.0
    places = jnp.arange(1, inputs.shape[-1] + 1)
    support = (ordered * places > total).sum(axis=-1, keepdims=True)
    threshold = jnp.take_along_axis(total, support - 1, axis=-1) / support
    return jnp.maximum(inputs - threshold, 0.0)


def long_rows(rows, halves, numbers):
    """Sums over tens of thousands of elements in three number types, and the extremes."""
    return (
        rows.sum(axis=1),
        jnp.linalg.norm(rows, axis=1),
        halves.mean(axis=1),
        jnp.square(halves.astype(jnp.float32)).sum(),
        numbers.sum(axis=1),
        jnp.argmin(rows, axis=1),
        numbers.max(),
    )


def two_stage(values):
    """A normal form by row, then by column, then the total: reductions of reductions."""
    by_row = values / values.sum(axis=1, keepdims=True)
    by_column = by_row / by_row.sum(axis=0)
    again = by_column / jnp.sqrt(jnp.square(by_column).sum(axis=1, keepdims=True))
    return again, again.sum(), again.max(axis=0)


def running(values, gain):
    """Prefix sums and maxima, running means by windows, and a decayed sum."""
    total = jnp.cumsum(values, axis=-1)
    window = (total[..., 20:] - total[..., :-20]) / 20.0
    highest = lax.cummax(values, axis=values.ndim - 1)
    fall = ((highest - values) / (jnp.abs(highest) + 1e-6)).max(axis=-1)
    smallest = lax.reduce_window(values, jnp.inf, lax.min, (1, 9), (1, 4), "VALID")
    decayed = lax.associative_scan(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (gain, values))
    return window, fall, smallest, decayed[1]


def logarithm_masses(joint):
    """Marginals, entropies and the shared information of logarithms of probabilities."""
    joint = joint - jax.nn.logsumexp(joint)
    left, right = jax.nn.logsumexp(joint, axis=1), jax.nn.logsumexp(joint, axis=0)
    shared = (jnp.exp(joint) * (joint - left[:, None] - right)).sum()
    return left, right, -(jnp.exp(left) * left).sum(), -(jnp.exp(right) * right).sum(), shared


def robust_loss(inputs, weights, targets, key):
    """A regression loss that forgives outliers, with a sample of rows and a penalty."""
    rows = jax.random.choice(key, inputs.shape[0], (400,), replace=False)
    error = inputs[rows] @ weights - targets[rows]
    spread = 1.4826 * jnp.median(jnp.abs(error - jnp.median(error, axis=0)), axis=0)
    scaled = error / (lax.stop_gradient(spread) + 1e-6)
    loss = jnp.where(jnp.abs(scaled) < 1.345, 0.5 * scaled**2, 1.345 * jnp.abs(scaled) - 0.9)
    penalty = 1e-3 * jnp.abs(weights).sum() + 1e-2 * jnp.linalg.norm(weights, axis=1).sum()
    return loss.mean() + penalty


matrix, tall = ("f32", (300, 1000)), ("f32", (20011, 37))

programs = {
    "moments": (moments, (("f32", (128, 3000)),)),
    "moments_half": (moments, (("bf16", (9, 33, 260)),)),
    "standardised": (standardised, (tall,)),
    "all_sides": (all_sides, (("f32", (40, 96, 130)),)),
    "all_sides_small": (all_sides, (("f32", (6, 5, 4)),)),
    "summary": (summary, (("f32", (5000, 51)), ("pred", (5000, 51)))),
    "ten_sums": (ten_sums, (matrix,)),
    "column_sums": (column_sums, (("f32", (3000, 500)), ("f32", (500,)))),
    "temperatures": (temperatures, (("f32", (5, 120, 777)), ("f32", (5, 120)))),
    "sharper_gradient": (
        jax.grad(lambda inputs: jnp.square(sharper(inputs)).sum()),
        (("f32", (80, 129)),),
    ),
    "long_rows": (
        long_rows,
        (("f32", (3, 70001)), ("bf16", (2, 65536)), ("s32", (4, 40000))),
    ),
    "two_stage": (two_stage, (("f32", (512, 513)),)),
    "running": (running, (("f32", (12, 2500)), ("f32", (12, 2500)))),
    "logarithm_masses": (logarithm_masses, (("f32", (200, 321)),)),
    "robust_loss_gradient": (
        jax.grad(robust_loss, argnums=1),
        (("f32", (3001, 14)), ("f32", (14, 3)), ("f32", (3001, 3)), ("u32", (2,))),
    ),
}
