"""Applies each recipe to random programs, runs them on a CPU, and compares the numbers.

The programs are those of DRAWS: what the recipe is about, with random sizes, types, operations
around it, and further users. A difference above the recipe's tolerance is a problem, and so is a
recipe that fits less than a quarter of its programs. ``--seed`` repeats a run.
"""

from __future__ import annotations

import random
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.findings import Finding, counted, problem
from fusionscope.advise.recipes.catalogue import RECIPES
from fusionscope.advise.recipes.recipe import Recipe, apply_recipe
from fusionscope.capture.answering import AnsweringChild
from fusionscope.capture.capture import environment_without_dump
from fusionscope.capture.targets import read_target
from fusionscope.errors import UnusableInput
from fusionscope.hlo import parse, to_text

_CHILD = Path(__file__).with_name("recipe_child.py")
_ATTEMPTS = 4  # for each program in which a recipe has to match
_LIMIT_S = 120.0
# What large numbers pass through without that a difference in rounding grows.
_STEADY = ("jnp.tanh({})", "({} * 0.5 + 1)", "jnp.abs({})", "{}")
_UNARY = ("jnp.sin({})", "jnp.tanh({})", "({} * 0.5 + 1)", "jnp.abs({})", "({} - 0.25)", "{}")


@dataclass(slots=True)
class Draw:
    """Makes random choices, and collects the arguments of a program: their types, and the bounds of
    integers."""

    random: random.Random
    arguments: list[str] = field(default_factory=list)
    bounds: list[int | None] = field(default_factory=list)

    def size(self, least: int, most: int, step: int = 1) -> int:
        return self.random.randrange(least, most + 1, step)

    def one(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def argument(self, kind: str, *sizes: int, bound: int | None = None) -> None:
        self.arguments.append(f"{kind}[{','.join(map(str, sizes))}]")
        self.bounds.append(bound)

    def around(self, value: str) -> str:
        """Something elementwise of ``value``."""
        return str(self.one(*_UNARY)).format(value)

    def result(self, value: str) -> str:
        """What a program returns: something of ``value``, and maybe ``value`` as well."""
        result = str(self.one(*_STEADY)).format(value)
        return f"return {result}{self.one('', f', {value}')}"


def select_for_scatter(draw: Draw) -> str:
    rows, inner, classes = draw.size(2, 40), draw.size(2, 40), draw.size(2, 90)
    draw.argument("f32", rows, inner)
    draw.argument("f32", inner, classes)
    draw.argument("s32", rows, bound=classes)
    scores = draw.one("jax.nn.log_softmax({})", "jnp.tanh({})", "{}").format("inputs @ weights")
    total = draw.one("-picked.mean()", "picked.sum() * 3", "(picked ** 2).sum()")
    several = draw.size(2, 6)
    places = f"(labels[:, None] + jnp.arange({several}))"
    heights, columns = (
        [draw.random.randrange(least, size) for _ in range(several)]
        for least, size in ((0, rows), (-classes, classes))
    )
    elements = draw.one(
        "jnp.take_along_axis(scores, labels[:, None], axis=1)",
        f"jnp.take_along_axis(scores, {places} % {classes}, axis=1)",
        "jax.vmap(lambda row, label: row[label])(scores, labels)",
        f"scores[jnp.array({heights}), jnp.array({columns})]",
        f"jnp.stack([scores, jnp.sin(scores)])[:, jnp.array({heights})]",
    )
    return f"""
def program(inputs, weights, labels):
    def loss(weights):
        scores = {scores}
        picked = {elements}
        return {total}
    return jax.{draw.one("grad", "value_and_grad")}(loss)(weights)
"""


def select_in_windows(draw: Draw) -> str:
    window = draw.one((1, 2, 2, 1), (1, 3, 3, 1), (1, 2, 1, 1), (1, 2, 3, 1), (1, 4, 4, 1))
    sizes = [
        draw.size(1, 4),
        *(draw.size(1, 6) * extent for extent in window[1:3]),
        draw.size(1, 5),
    ]
    pooled = [size // extent for size, extent in zip(sizes, window, strict=True)]
    draw.argument("f32", *sizes)
    draw.argument("f32", *pooled)
    return f"""
def program(values, weights):
    def loss(values):
        largest = lax.reduce_window(values, -jnp.inf, lax.max, {window}, {window}, "valid")
        return ({draw.around("largest")} * weights).sum()
    return jax.{draw.one("grad", "value_and_grad")}(loss)({draw.around("values")})
"""


def reduce_parts(draw: Draw) -> str:
    axis, parts = draw.one(0, 1), draw.size(2, 4)
    shared = draw.size(1, 40)
    for _ in range(parts):
        length = draw.size(1, 40)
        draw.argument("f32", *((length, shared) if axis == 0 else (shared, length)))
    names = [f"x{number}" for number in range(parts)]
    joined = ", ".join(f"jnp.tanh({name})" if draw.one(0, 1) else name for name in names)
    kinds = [draw.one("sum", "max", "min", "prod") for _ in range(draw.size(2, 3))]
    sums = ", ".join(f"({draw.around('joined')}).{kind}(axis={axis})" for kind in kinds)
    return f"""
def program({", ".join(names)}):
    joined = jnp.concatenate([{joined}], axis={axis})
    return {sums}
"""


def sum_in_parts(draw: Draw) -> str:
    draw.argument("f32", draw.one(512, 1024, 1536, 2048, 4096), draw.size(64, 256, 8))
    kind = draw.one("sum", "max", "min", "mean")
    return f"""
def program(values):
    return ({draw.around("values")}).{kind}(axis=0)
"""


def one_pass_variance(draw: Draw) -> str:
    draw.argument("f32", draw.size(2, 300), draw.size(2, 60))
    spread = draw.one("values.var(axis=0)", "values.std(axis=0)", "values.var(axis=0, ddof=1)")
    result = draw.one("(values - values.mean(axis=0)) / jnp.sqrt(spread + 1e-2)", "spread")
    return f"""
def program(values):
    values = {draw.around("values")}
    spread = {spread}
    return {result}
"""


def multiply_small_dots(draw: Draw) -> str:
    batch, rows, inner, columns = draw.size(1, 200), *(draw.size(1, 6) for _ in range(3))
    draw.argument("f32", batch, rows, inner)
    draw.argument("f32", *draw.one(((batch, inner, columns)), (batch, columns, inner)))
    is_turned = draw.arguments[1] != f"f32[{batch},{inner},{columns}]"
    return f"""
def program(a, b):
    product = jnp.einsum("bij,{"bkj" if is_turned else "bjk"}->bik", {draw.around("a")}, b)
    {draw.result("product")}
"""


def multiply_thin_dots(draw: Draw) -> str:
    rows, inner, columns = draw.size(100, 600), draw.size(1, 12), draw.size(2, 12)
    is_turned = draw.one(True, False)
    draw.argument("f32", *((inner, rows) if is_turned else (rows, inner)))
    draw.argument("f32", inner, columns)
    return f"""
def program(points, directions):
    product = {draw.around("points")}{".T" if is_turned else ""} @ directions
    {draw.result("product")}
"""


def multiply_vector(draw: Draw) -> str:
    rows, columns = draw.size(2, 60), draw.size(256, 700)
    draw.argument("f32", rows, columns)
    draw.argument("f32", columns)
    return f"""
def program(angles, weights):
    product = jnp.{draw.one("sin", "tanh", "exp")}(angles) @ {draw.around("weights")}
    {draw.result("product")}
"""


def narrow_dot(draw: Draw) -> str:
    rows, inner, columns = draw.size(1, 80), draw.size(1, 80), draw.size(1, 80)
    kind = draw.one("bf16", "f16")
    draw.argument(kind, rows, inner)
    draw.argument(kind, inner, columns)
    return f"""
def program(inputs, weights):
    product = inputs.astype(jnp.float32) @ weights.astype(jnp.float32)
    {draw.result("product")}
"""


def multiply_pixels(draw: Draw) -> str:
    batch, height, width, inner, outer = (draw.size(1, 9) for _ in range(5))
    stride = draw.one((1, 1), (1, 1), (2, 2), (1, 2))
    draw.argument("f32", batch, height, width, inner)
    draw.argument("f32", 1, 1, inner, outer)
    call = f'lax.conv_general_dilated(images, kernel, {stride}, "VALID", dimension_numbers=layout)'
    forward = f"    product = {call}\n    {draw.result('product')}"
    backward = f"    return jax.grad(lambda kernel: (jnp.sin({call})).sum())(kernel)"
    return f"""
def program(images, kernel):
    layout = ("NHWC", "HWIO", "NHWC")
{draw.one(forward, backward)}
"""


def shift_depthwise(draw: Draw) -> str:
    batch, length, channels, window = *(draw.size(2, 12) for _ in range(3)), draw.size(2, 6)
    left, right = draw.size(0, window), draw.size(0, window)
    draw.argument("f32", batch, length + window, channels)
    draw.argument("f32", window, 1, channels)
    return f"""
def program(values, kernel):
    moved = lax.conv_general_dilated(
        {draw.around("values")}, kernel, (1,), [({left}, {right})],
        dimension_numbers=("NHC", "HIO", "NHC"), feature_group_count={channels},
    )
    {draw.result("moved")}
"""


def batch_calls(draw: Draw) -> str:
    count, size = draw.size(2, 5), draw.size(2, 24)
    names = [f"x{number}" for number in range(count)]
    for _ in names:
        draw.argument("f32", size, size)
    call = draw.one(
        "jnp.fft.rfft2({})",
        "jnp.fft.fft({})",
        "jnp.linalg.cholesky({0} @ {0}.T + 9 * jnp.eye(len({0})))",
        f"jax.scipy.linalg.solve_triangular({{0}} + 9 * jnp.eye({size}), {{0}}, lower=True)",
    )
    calls = ", ".join(call.format(name) for name in names)
    return f"""
def program({", ".join(names)}):
    {", ".join(names)} = {calls}
    return {draw.one(" + ".join(names), " * ".join(names), ", ".join(names))}
"""


def total_of_rows(draw: Draw) -> str:
    draw.argument("f32", *(draw.size(2, 40) for _ in range(draw.size(2, 3))))
    kind, axis = draw.one("sum", "max", "min"), draw.one(0, 1)
    return f"""
def program(values):
    grown = jnp.{draw.one("exp", "sin", "tanh")}(values)
    return grown.{kind}(axis={axis}), grown.{kind}()
"""


def argmax_of_logits(draw: Draw) -> str:
    rows, columns = draw.size(1, 40), draw.size(3, 200)
    draw.argument("f32", rows, columns)
    scores = draw.one("jax.nn.softmax(logits)", "jax.nn.log_softmax(logits)", "jnp.exp(logits)")
    best = draw.one("jnp.argmax(scores, axis=-1)", "lax.top_k(scores, 2)[1]")
    return f"""
def program(logits):
    scores = {scores}
    return {best}
"""


def top_of_sort(draw: Draw) -> str:
    rows, columns = draw.size(1, 30), draw.size(64, 300)
    count = draw.size(1, columns // 8)
    draw.argument("f32", rows, columns)
    part = draw.one(f"[:, -{count}:]", f"[:, :{count}]")
    return f"""
def program(values):
    return jnp.{draw.one("argsort", "sort")}({draw.around("values")}, axis=1){part}
"""


def search_by_sort(draw: Draw) -> str:
    draw.argument("f32", draw.size(8, 400))
    draw.argument("f32", draw.size(8, 400))
    side = draw.one("left", "right")
    return f"""
def program(weights, positions):
    edges = jnp.cumsum(jnp.abs(weights))
    return jnp.searchsorted(edges, {draw.around("positions")} * 9, side="{side}")
"""


def gather_payload(draw: Draw) -> str:
    length, count = draw.size(64, 4000), draw.size(2, 5)
    names = [f"x{number}" for number in range(count)]
    for _ in ["keys", *names]:
        draw.argument(draw.one("f32", "s32"), length)
        if draw.arguments[-1].startswith("s"):
            draw.bounds[-1] = draw.one(7, 100000)
    return f"""
def program(keys, {", ".join(names)}):
    return lax.sort((keys, {", ".join(names)}), num_keys=1, is_stable=True)
"""


def _update(draw: Draw) -> None:
    heads, length, width = draw.size(1, 6), draw.size(8, 200), draw.size(1, 40)
    kind = draw.one("f32", "bf16")
    draw.argument(kind, heads, length, width)
    draw.argument(kind, heads, 1, width)
    draw.argument("s32", 1, bound=length)


def donate_update(draw: Draw) -> str:
    _update(draw)
    return f"""
def program(cache, keys, position):
    return lax.dynamic_update_slice(cache, {draw.around("keys")}.astype(cache.dtype),
                                    (0, position[0], 0))
"""


def update_in_place(draw: Draw) -> str:
    _update(draw)
    return f"""
def write(cache, keys, position):
    is_here = jnp.arange(cache.shape[1]) == position[0]
    return jnp.where(is_here[None, :, None], {draw.around("keys")}.astype(cache.dtype), cache)

program = jax.jit(write, donate_argnums=0)
"""


def update_rows(draw: Draw) -> str:
    layers, rows, length, width = (
        draw.size(1, 3),
        draw.size(2, 9),
        draw.size(2, 40),
        draw.size(1, 9),
    )
    kind = draw.one("f32", "bf16")
    draw.argument(kind, layers, rows, length, width)
    draw.argument(kind, rows, width)
    draw.argument("s32", rows, bound=length + draw.one(0, 5))
    template = draw.one(
        "jax.vmap(write)({}, rows, places)", "{}.at[jnp.arange({rows}), places].set(rows)"
    )
    number = draw.size(0, layers - 1)
    of_layer = template.format("caches[0]", rows=rows)
    layer = template.format(f"caches[{number}]", rows=rows)
    of_all = f"caches.at[{number}].set({layer})"
    return f"""
def program(caches, rows, places):
    rows = {draw.around("rows")}.astype(caches.dtype)
    def write(cache, row, place):
        return lax.dynamic_update_slice(cache, row[None], (place, 0))
    updated = {draw.one(of_layer, of_all)}
    {draw.result("updated")}
"""


def multiply_distances(draw: Draw) -> str:
    vectors, words, width = draw.size(1, 90), draw.size(2, 90), draw.size(16, 80)
    draw.argument("f32", *draw.one((vectors, width), (width, vectors)))
    draw.argument("f32", words, width)
    is_turned = draw.arguments[0] != f"f32[{vectors},{width}]"
    x = "vectors.T" if is_turned else "vectors"
    difference = draw.one(f"{x}[:, None] - book", f"book[:, None] - {x}", f"{x} - book[:, None]")
    square = draw.one("({}) ** 2", "jnp.square({})").format(difference)
    return f"""
def program(vectors, book):
    vectors, book = {draw.one("vectors", "vectors * 0.5 + 1")}, jnp.tanh(book)
    distances = ({square}).sum(axis=-1)
    {draw.result("distances")}
"""


def join_halves(draw: Draw) -> str:
    heads, rows, pairs, parts = draw.size(1, 4), draw.size(2, 20), draw.size(1, 20), draw.size(2, 3)
    kind = draw.one("f32", "bf16")
    draw.argument(kind, heads, rows, parts * pairs)
    draw.argument(kind, heads, rows, parts * pairs)
    draw.argument("f32", rows, pairs)
    order = draw.one("hqd,hkd->hqk", "hqd,hkd->qkh", "hqd,kd->hqk")
    key = "rotated(keys)" if "hkd" in order else "rotated(keys)[0]"
    scale = draw.one("", " * 0.25", " / 3")
    return f"""
def program(queries, keys, angles):
    def rotated(x):
        parts = [x[..., number::{parts}] for number in range({parts})]
        first = parts[0] * jnp.cos(angles) - parts[1] * jnp.sin(angles)
        parts = [first, *(part * angles + {draw.around("parts[0]")} for part in parts[1:])]
        return jnp.stack(parts, -1).reshape(x.shape).astype(x.dtype)
    scores = jnp.einsum("{order}", rotated(queries){scale}, {key})
    {draw.result("scores")}
"""


def store_narrow(draw: Draw) -> str:
    layers, width, rows = draw.size(2, 5), draw.size(2, 60), draw.size(1, 9)
    kind, name = draw.one(("bf16", "bfloat16"), ("f16", "float16"))
    is_stacked = draw.one(True, False)
    draw.argument("f32", *((layers,) if is_stacked else ()), width, width)
    draw.argument(kind, rows, width)
    stacked = """
    def layer(x, weight):
        return jnp.tanh(x @ weight.astype(jnp.{name})), None
    return lax.scan(layer, x, weights)[0]
"""
    plain = "    return jnp.tanh(x @ weights.astype(jnp.{name})) @ weights.astype(jnp.{name})\n"
    return "\ndef program(weights, x):\n" + (stacked if is_stacked else plain).format(name=name)


def associative_scan(draw: Draw) -> str:
    steps, width = draw.one(64, 100, 128, 256), draw.size(1024, 2048, 16)
    draw.argument("f32", steps, width)
    draw.argument("f32", *draw.one((width,), (steps, width)))
    draw.argument("f32", width)
    is_row = draw.arguments[1] == draw.arguments[0]
    factor = "jnp.tanh(row[1])" if is_row else "jnp.tanh(factors)"
    rows = "(inputs, factors)" if is_row else "(inputs,)"
    step = draw.one(f"{factor} * state + row[0]", f"state * {factor} + {draw.around('row[0]')}")
    stacked = draw.one("state", "state", draw.around("state"))
    return f"""
def program(inputs, factors, start):
    def step(state, row):
        state = {step}
        return state, {stacked}
    {draw.one("return lax.scan(step, start, %s)[1]", "return lax.scan(step, start, %s)") % rows}
"""


def hoist_from_loop(draw: Draw) -> str:
    steps, rows, width = draw.size(4, 32), draw.size(1, 12), draw.size(4, 40)
    draw.argument("f32", steps, rows, width)
    draw.argument("f32", width, width)
    draw.argument("f32", rows, width)
    product = draw.one("row @ weights", "jnp.sin(row) @ weights", "row @ jnp.tanh(weights)")
    drawn = draw.one("jax.random.normal(key, {})", "jax.random.uniform(key, {})").format(
        "row.shape"
    )
    change = draw.one(product, drawn, f"{product} * {drawn}")
    return f"""
def program(inputs, weights, state):
    def step(state, row_and_key):
        row, key = row_and_key
        state = jnp.tanh({draw.around("state")} + {change})
        return state, {draw.around("state")}
    rows = inputs, jax.random.split(jax.random.key({draw.size(0, 99)}), {steps})
    {draw.one("return lax.scan(step, state, rows)[1]", "return lax.scan(step, state, rows)")}
"""


def divide_for_remainder(draw: Draw) -> str:
    draw.argument("f32", draw.size(1, 40), draw.size(32, 90))
    if draw.one(0, 1):
        draw.arguments[-1] = draw.arguments[-1].replace("[", "[64,")
    constant = draw.one("1.0", "0.75", "3.0", "10.0", "-2.5")
    remainder = draw.one("jnp.mod({}, {})", "lax.rem({}, jnp.float32({}))", "({} % {})")
    shifted = f"{draw.one('1', '7', '-3')} * {draw.around('x')}"
    return f"""
def program(x):
    {draw.result(remainder.format(shifted, constant))}
"""


def recompute_residuals(draw: Draw) -> str:
    steps, rows, width = draw.size(2, 24), draw.size(1, 12), draw.size(4, 40)
    draw.argument("f32", steps, rows, width)
    draw.argument("f32", width, width)
    draw.argument("f32", rows, width)
    activation = draw.one("jax.nn.gelu", "jax.nn.silu", "jnp.tanh", "jax.nn.softplus")
    product = draw.one("state @ weights", "state * weights[0]", "jnp.sin(state) @ weights")
    return f"""
def program(inputs, weights, start):
    def loss(weights):
        def step(state, row):
            state = 0.5 * state + {activation}({product} + {draw.around("row")})
            return state, {draw.one("None", "state.sum()", "(row * state).sum()")}
        last, sums = lax.scan(step, start, inputs{draw.one("", ", reverse=True")})
        return (last ** 2).mean() + sum(leaf.mean() for leaf in jax.tree.leaves(sums))
    return jax.{draw.one("grad", "value_and_grad")}(loss)(weights / {width})
"""


def unroll_loop(draw: Draw) -> str:
    steps, size = draw.one(4, 8, 12, 16, 20, 24, 64), draw.size(1, 300)
    draw.argument("f32", size)
    draw.argument("f32", *draw.one((size,), (steps, size)))
    is_row = draw.arguments[1].count(",")
    if is_row:
        return f"""
def program(start, force):
    def step(state, row):
        state = state - 0.01 * ({draw.around("state")} + row)
        return state, {draw.around("state")}
    return lax.scan(step, start, force)
"""
    return f"""
def program(start, force):
    def step(number, state):
        return state - 0.01 * ({draw.around("state")} + force * {draw.one("number", "0.5")})
    return lax.fori_loop({draw.one(0, 2)}, {steps} + {draw.one(0, 2)}, step, start)
"""


def unroll_whole(draw: Draw) -> str:
    steps, rows, width = draw.size(2, 32), draw.size(1, 12), draw.size(4, 40)
    draw.argument("f32", width, width)
    draw.argument("f32", rows, width)
    product = draw.one("state @ weights", "jnp.sin(state) @ weights", "(state * state) @ weights")
    change = draw.one("{}", "{} * number", "{} + jnp.flip(state, 0)").format(product)
    return f"""
def program(weights, start):
    def step(number, state):
        return jnp.tanh({draw.around("state")} + 0.01 * ({change}))
    return lax.fori_loop({draw.one(0, 2)}, {steps} + {draw.one(0, 2)}, step, start)
"""


def take_apart(draw: Draw) -> str:
    count, components = draw.size(200, 900), draw.size(2, 4)
    draw.argument("f32", count, components)
    draw.argument("s32", count, draw.size(24, 40), bound=count)
    apart = draw.one(
        "points[:, None] - points[neighbours]",
        "points[neighbours] * 0.5",
        "points[neighbours] - points[neighbours[:, :1]]",
        "points[neighbours] * jnp.arange(1.0, {} + 1)",
    ).format(components)
    total = draw.one(
        "(apart ** 2).sum(-1)", "apart.prod(-1)", "apart[..., 0] * apart[..., -1]", "apart.max(-1)"
    )
    near = draw.one("jnp.tanh({}).sum()", "jnp.exp(-jnp.abs({})).sum()").format(total)
    further = draw.one("", " + apart.sum() * 0.1", " + (apart @ jnp.ones(({}, 2))).sum()")
    result = draw.one("grad(energy)", "value_and_grad(energy)")
    return f"""
def program(points, neighbours):
    def energy(points):
        apart = {apart}
        return {near}{further.format(components)}
    return jax.{result}({draw.around("points")})
"""


def small_factors(draw: Draw) -> str:
    rows, columns = draw.size(2, 8), draw.size(1, 9)
    batch = draw.one((), (draw.size(1, 5),), (2, draw.size(1, 3)))
    draw.argument("f32", *batch, rows, rows)
    draw.argument("f32", *batch, rows, columns)
    solution = draw.one(
        "jax.scipy.linalg.solve_triangular(factor, values, lower=True)",
        "lax.linalg.triangular_solve(factor, values, left_side=True, lower=True, transpose_a=True)",
        "lax.linalg.triangular_solve("
        "jnp.swapaxes(factor, -1, -2), values, left_side=True, lower=False)",
        "jax.scipy.linalg.cho_solve((factor, True), values)",
    )
    return f"""
def program(matrices, values):
    square = matrices @ jnp.swapaxes(matrices, -1, -2)
    factor = jnp.linalg.cholesky(square {draw.one("+", "+", "+", "-")} {rows} * jnp.eye({rows}))
    return factor, {solution}
"""


def remove_barrier(draw: Draw) -> str:
    draw.argument("f32", draw.size(1, 60), draw.size(1, 60))
    return f"""
def program(values):
    squeezed = lax.optimization_barrier(jnp.tanh({draw.around("values")}) * 2)
    return jnp.{draw.one("exp", "sin", "abs")}(squeezed) + 1
"""


DRAWS: dict[str, Callable[[Draw], str]] = {
    name.replace("_", "-"): make
    for name, make in list(globals().items())
    if callable(make) and name.replace("_", "-") in {recipe.id for recipe in RECIPES}
}


class Runner:
    """The child process, which starts again when a program ends it."""

    def __init__(self, python: str) -> None:
        self._python = python
        self._child: AnsweringChild | None = None

    def ask(self, **request: Any) -> dict[str, Any]:
        """Return its answer. Raises ``UnusableInput`` with the problem if it has none."""
        if self._child is None:
            environment = environment_without_dump(read_target("cpu"), ())
            self._child = AnsweringChild([self._python, str(_CHILD)], environment)
            self._child.exchange({}, _LIMIT_S)
        reply = self._child.exchange(request, _LIMIT_S)
        if reply.get("died"):
            self.close()
        if reply.get("problem"):
            raise UnusableInput(reply["problem"])
        return reply

    def close(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("ids", nargs="*", help="of recipes")
    parser.add_argument("--count", type=int, default=50, help="programs that each recipe matches")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--python", default=sys.executable, help="one that has jax")


def findings(options: Namespace) -> Iterator[Finding]:
    runner = Runner(options.python)
    try:
        for recipe in RECIPES:
            if recipe.id in (options.ids or [recipe.id]):
                yield from _findings_of(recipe, options, runner)
    finally:
        runner.close()


def _findings_of(recipe: Recipe, options: Namespace, runner: Runner) -> Iterator[Finding]:
    if recipe.id not in DRAWS:
        yield problem("recipes without programs", recipe.id)
        return
    matches = 0
    largest = 0.0
    for number in range(_ATTEMPTS * options.count):
        if matches == options.count:
            break
        seed = f"{options.seed} {recipe.id} {number}"
        draw = Draw(random.Random(seed))
        source = DRAWS[recipe.id](draw)
        try:
            text = runner.ask(do="lower", source=source, arguments=draw.arguments)["text"]
            difference = _difference(recipe, text, draw, number, runner)
        except UnusableInput as error:
            yield problem("programs that fail", f"{seed}: {error}\n{source}{draw.arguments}")
            continue
        if difference is None:
            continue
        matches += 1
        largest = max(largest, difference)
        if difference > recipe.tolerance:
            line = f"{seed}: {difference:.2g}, over {recipe.tolerance:g}\n{source}{draw.arguments}"
            yield problem("other numbers", line)
    yield counted("recipes", f"{recipe.id}: {matches} programs, at most {largest:.2g}")
    if matches < options.count:
        yield problem("recipes that seldom match", f"{recipe.id}: {matches} of {options.count}")


def _difference(recipe: Recipe, text: str, draw: Draw, seed: int, runner: Runner) -> float | None:
    """Return the largest difference of any variant of ``recipe``; None where none matches."""
    program = parse(text)
    differences: list[float] = []
    for backend in sorted(recipe.backends):
        for variant in recipe.variants:
            rewritten = apply_recipe(variant, program, backend)
            if rewritten is None:
                continue
            programs = [text, to_text(rewritten.module)]
            reply = runner.ask(do="compare", programs=programs, bounds=draw.bounds, seed=seed)
            values = [float("inf") if value is None else value for value in reply["differences"]]
            differences.append(max(values, default=0.0))
    return max(differences, default=None)
