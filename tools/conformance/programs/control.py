"""Loops, branches and scans, nested and mapped."""

import jax
import jax.numpy as jnp
from jax import lax


def scan(initial, sequence, weight):
    def step(carry, item):
        carry = jnp.tanh(carry @ weight + item)
        return carry, carry.sum(axis=-1)

    return lax.scan(step, initial, sequence)


def collatz(start):
    def step(carry):
        number, steps = carry
        return jnp.where(number % 2 == 0, number // 2, 3 * number + 1), steps + 1

    return lax.while_loop(lambda carry: carry[0] > 1, step, (start, 0))[1]


def nested(values):
    def inner(index, matrix):
        return lax.cond(index % 3 == 0, jnp.sin, lambda m: m * 0.5 + 1.0, matrix)

    def outer(carry):
        step, matrix = carry
        return step + 1, lax.fori_loop(0, step, inner, matrix)

    return lax.while_loop(lambda carry: (carry[0] < 9) & (carry[1].sum() < 1e6), outer, (1, values))


def switch(index, values):
    branches = [jnp.sin, jnp.cos, lambda x: x * x + 1.0, lambda x: jnp.exp(-x).cumsum(axis=0)]
    return lax.switch(index, branches, values)


def mapped_condition(flags, values):
    return jax.vmap(lambda flag, value: lax.cond(flag, jnp.sin, jnp.exp, value))(flags, values)


def associative(decay, values):
    def combine(left, right):
        return left[0] * right[0], left[1] * right[0] + right[1]

    return lax.associative_scan(combine, (decay, values))


def recurrence_gradient(initial, sequence, weight):
    return jax.grad(lambda w: scan(initial, sequence, w)[1].sum())(weight)


def unrolled(values):
    return lax.fori_loop(
        0, 24, lambda i, x: jnp.sin(x) * (i + 1) + jnp.roll(x, i), values, unroll=8
    )


def growing_buffer(values):
    def step(index, buffer):
        row = lax.dynamic_index_in_dim(buffer, index, keepdims=False)
        return lax.dynamic_update_index_in_dim(buffer, row * 2.0 + 1.0, index + 1, 0)

    return lax.fori_loop(0, values.shape[0] - 1, step, values)


state, sequence, square = ("f32", (8, 32)), ("f32", (50, 8, 32)), ("f32", (32, 32))
vector = ("f32", (256, 16))

programs = {
    "scan": (scan, (state, sequence, square)),
    "scan_reversed": (
        lambda i, s: lax.scan(lambda c, x: (c + x, c * x), i, s, reverse=True),
        (state, sequence),
    ),
    "recurrence_gradient": (recurrence_gradient, (state, sequence, square)),
    "collatz": (jax.vmap(collatz), (("s32", (64,)),)),
    "nested": (nested, (square,)),
    "switch": (switch, (("s32", ()), vector)),
    "mapped_condition": (mapped_condition, (("pred", (256,)), vector)),
    "associative": (associative, (vector, vector)),
    "unrolled": (unrolled, (("f32", (128,)),)),
    "growing_buffer": (growing_buffer, (vector,)),
    "map": (lambda x: lax.map(lambda row: jnp.sort(row) / row.sum(), x), (vector,)),
}
