"""Gathers, scatters, slices, sorts, prefix sums and large concatenates."""

import jax
import jax.numpy as jnp
from jax import lax


def dynamic_update(buffer, row, index):
    return lax.dynamic_update_slice(buffer, jnp.tanh(row)[None], (index, 0)) * 2.0


def window(values, row, column):
    return lax.dynamic_slice(values * 3.0, (row, column), (16, 32)) + 1.0


def segment_mean(values, segments):
    total = jax.ops.segment_sum(values, segments, 32)
    count = jax.ops.segment_sum(jnp.ones_like(segments, jnp.float32), segments, 32)
    return total / jnp.maximum(count, 1.0)[:, None]


def pair_sort(keys, values):
    order = jnp.argsort(keys, axis=-1, descending=True)
    return jnp.take_along_axis(values, order, axis=-1), lax.sort((keys, values), num_keys=2)


def large_concatenate(pieces):
    joined = jnp.concatenate([piece * (i + 1.0) for i, piece in enumerate(pieces)], axis=1)
    return joined.max(axis=1), jnp.stack(pieces).mean(axis=0), jnp.pad(joined, ((1, 1), (0, 3)))


def histogram(values):
    return jnp.zeros(64, jnp.int32).at[jnp.clip(jnp.floor(values * 64), 0, 63).astype(int)].add(1)


def layouts(values):
    turned = jnp.transpose(values, (2, 0, 1)) * 2.0
    return (
        turned.reshape(16, -1)[:, ::-1],
        jnp.tile(turned[:, :4], (1, 2, 1)),
        values[1:, ::2, ::-3],
    )


matrix, rows, row = ("f32", (256, 64)), ("s32", (128,)), ("f32", (64,))
index = ("s32", ())

programs = {
    "gather": (lambda x, i: jnp.exp(x[i]) + 1.0, (matrix, rows)),
    "gather_gradient": (jax.grad(lambda x, i: jnp.tanh(x[i]).sum()), (matrix, rows)),
    "scatter_add": (lambda x, i, u: (x * 2.0).at[i].add(u), (matrix, rows, ("f32", (128, 64)))),
    "scatter_set": (lambda x, i: x.at[i, 3].set(7.0).at[::2].multiply(0.5), (matrix, rows)),
    "scatter_max": (lambda x, i, u: x.at[i].max(u), (matrix, rows, ("f32", (128, 64)))),
    "segment_mean": (segment_mean, (matrix, ("s32", (256,)))),
    "histogram": (histogram, (("f32", (4096,)),)),
    "dynamic_update": (dynamic_update, (matrix, row, index), {"donate": (0,)}),
    "window": (window, (matrix, index, index)),
    "pair_sort": (pair_sort, (matrix, matrix)),
    "top_k": (lambda x: lax.top_k(jnp.abs(x), 5), (matrix,)),
    "cumulative": (
        lambda x: (x.cumsum(axis=0), lax.cummax(x, axis=1), lax.cumlogsumexp(x, axis=1)),
        (matrix,),
    ),
    "searchsorted": (lambda a, v: jnp.searchsorted(a, v) * 2, (("f32", (1000,)), row)),
    "one_hot": (lambda i, x: jax.nn.one_hot(i, 256) @ x, (rows, matrix)),
    "large_concatenate": (large_concatenate, ([("f32", (64, 40))] * 24,)),
    "layouts": (layouts, (("f32", (32, 48, 16)),)),
}
