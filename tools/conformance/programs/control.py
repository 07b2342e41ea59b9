"""Loops, branches and scans, nested and mapped."""

import jax
import jax.numpy as jnp
from jax import lax


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


state, sequence, square = ("f32", (8, 32)), ("f32", (50, 8, 32)), ("f32", (32, 32))
vector = ("f32", (256, 16))

programs = {
    "collatz": (jax.vmap(collatz), (("s32", (64,)),)),
    "nested": (nested, (square,)),
    "map": (lambda x: lax.map(lambda row: jnp.sort(row) / row.sum(), x), (vector,)),
}
