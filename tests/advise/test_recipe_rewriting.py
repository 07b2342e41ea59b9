"""Recipes: each finds its pattern in the example before the edit, as JAX made it into HLO, and not
in the one after it; what it makes of the first computes the same."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fusionscope.advise.recipes.catalogue import RECIPES, all_pages
from fusionscope.advise.recipes.recipe import Recipe, apply_recipe
from fusionscope.advise.recipes.small_factors import SmallFactors
from fusionscope.advise.recipes.unroll_loop import UnrollLoop
from fusionscope.errors import UnusableInput
from fusionscope.hlo import Module, parse, to_text
from fusionscope.rerun.running import choose_inputs

PROGRAMS = Path(__file__).parent / "recipes"
with_jax = pytest.mark.skipif(importlib.util.find_spec("jaxlib") is None, reason="needs jax")
each_recipe = pytest.mark.parametrize(
    ("recipe", "backend"),
    [(recipe, backend) for recipe in RECIPES for backend in sorted(recipe.backends)],
    ids=lambda value: value if isinstance(value, str) else value.id,
)


@cache
def program(recipe: Recipe, side: str) -> Module:
    return parse((PROGRAMS / f"{recipe.id}-{side}.hlo").read_text())


@each_recipe
def test_it_fits_the_example_before_the_edit_alone(recipe: Recipe, backend: str) -> None:
    before = program(recipe, "before")
    rewritten = apply_recipe(recipe, before, backend)
    assert rewritten is not None
    assert set(rewritten.places) <= {instruction.name for instruction in before.walk()}
    assert apply_recipe(recipe, program(recipe, "after"), backend) is None


@each_recipe
def test_what_it_makes_is_a_module_that_it_no_longer_fits(recipe: Recipe, backend: str) -> None:
    before = program(recipe, "before")
    rewritten = apply_recipe(recipe, before, backend)
    assert rewritten is not None
    module = parse(to_text(rewritten.module))
    module.check()
    assert apply_recipe(recipe, module, backend) is None
    assert module.entry.root.shape.compatible(before.entry.root.shape)


@each_recipe
def test_a_text_without_percent_signs_becomes_the_same(recipe: Recipe, backend: str) -> None:
    text = (PROGRAMS / f"{recipe.id}-before.hlo").read_text()
    results = [apply_recipe(recipe, parse(form), backend) for form in (text, text.replace("%", ""))]
    full, short = (to_text(rewritten.module) for rewritten in results if rewritten is not None)
    assert short.replace("%", "") == full.replace("%", "")
    parse(short).check()


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.id)
def test_its_example_was_proven_where_it_is_offered(recipe: Recipe) -> None:
    (page,) = [page for page in all_pages() if page.recipe.id == recipe.id]
    newest = [proof for proof in page.proofs if proof.jaxlib == page.proofs[-1].jaxlib]
    assert {proof.backend for proof in newest if proof.helps} >= recipe.backends


@pytest.fixture
def own_settings() -> Iterator[None]:
    """The runner, which is a process of its own, changes settings of JAX for good."""
    import jax

    is_double = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", is_double)


def check_equal(recipe: Recipe, before: Module, after: Module) -> None:
    runner: Any = importlib.import_module("fusionscope.rerun.runner")
    here = {"name": "cpu", "platform": "cpu", "is_here": True, "description": None}
    device = runner._prepare(here, [])
    texts = to_text(before), to_text(after)
    inputs = runner._find_inputs(texts[0], choose_inputs(before, None), 0)
    types = [array.dtype for array in runner._find_inputs(texts[1], choose_inputs(after, None), 0)]
    edited = [array.astype(dtype) for array, dtype in zip(inputs, types, strict=True)]
    expected, actual = (
        runner.Executable(text, device, arrays).run()
        for text, arrays in zip(texts, (inputs, edited), strict=True)
    )
    for result in runner._compare(expected, actual, None):
        assert result["is_equal"] or result["difference"] <= recipe.tolerance


@with_jax
@each_recipe
@pytest.mark.usefixtures("own_settings")
def test_what_it_makes_computes_the_same(recipe: Recipe, backend: str) -> None:
    before = program(recipe, "before")
    rewritten = apply_recipe(recipe, before, backend)
    assert rewritten is not None
    check_equal(recipe, before, rewritten.module)


@with_jax
@pytest.mark.usefixtures("own_settings")
def test_all_steps_of_a_short_loop_become_one():
    before = program(UnrollLoop(), "before")
    rewritten = apply_recipe(UnrollLoop(times=0), before, "gpu")
    assert rewritten is not None
    sines = [
        sum(instruction.opcode == "sine" for instruction in module.walk())
        for module in (before, rewritten.module)
    ]
    assert sines == [1, 8]
    check_equal(UnrollLoop(), before, rewritten.module)
    assert apply_recipe(UnrollLoop(times=0, most=7), before, "gpu") is None


def variance(values):
    import jax
    import jax.numpy as jnp

    def loss(values):
        return jnp.sin((values - values.mean(0)) / jnp.sqrt(values.var(0) + 1e-5)).sum()

    return jax.grad(loss)(values)


def strided_pixels(images, kernel):
    import jax

    def loss(images, kernel):
        layout = ("NHWC", "HWIO", "NHWC")
        convolve = jax.lax.conv_general_dilated
        return (convolve(images, kernel, (2, 3), "VALID", dimension_numbers=layout) ** 2).sum()

    return jax.grad(loss, (0, 1))(images, kernel)


def rotations(vectors, matrices):
    import jax
    import jax.numpy as jnp

    item = jax.vmap(jnp.dot, in_axes=(0, None))  # for each matrix: its rows
    return jax.vmap(jax.vmap(item, in_axes=(0, 0)), in_axes=(None, 0))(matrices, vectors)


def sums_and_largest(images):
    return images.sum((1, 2)), images.max((0, 2))


def checked_labels(scores, labels):
    import jax
    import jax.numpy as jnp

    def loss(scores):
        return jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], axis=1).mean()

    return jax.value_and_grad(loss)(scores)


def elements_of_matrices(matrices, *_):
    import jax
    import jax.numpy as jnp

    rows, columns = jnp.array([[0, 1, 1], [2, 0, 1]]), jnp.array([[1, 1, 0], [2, 0, -1]])
    return jax.grad(lambda matrices: jnp.sin(matrices[:, rows, columns]).sum())(matrices)


def one_of_each(values, indices):
    import jax
    import jax.numpy as jnp

    def loss(values):
        of_rows = jax.vmap(lambda row, index: row[index])
        return jnp.sin(jax.vmap(of_rows)(values, indices[:, None] + jnp.arange(5))).sum()

    return jax.value_and_grad(loss)(values)


def several_of_each(values, indices):
    import jax
    import jax.numpy as jnp

    places = indices.reshape(1, 5, 3) % 7

    def loss(values):
        return jnp.sin(jnp.take_along_axis(values, places, axis=1, mode="clip")).sum()

    return jax.value_and_grad(loss)(values)


def rows_of_a_layer(caches, rows, places):
    import jax.numpy as jnp

    layer = caches[1].at[jnp.arange(len(rows)), places].set(rows)
    return caches.at[1].set(layer), layer.sum(1)


def springs(points):
    import jax.numpy as jnp

    apart = points[:, None] - points
    return (jnp.exp(-(apart**2).sum(-1))[..., None] * apart).sum(1)


def clipped_sentences(weights, words, targets):
    import jax
    import jax.numpy as jnp

    def loss(weights, words, target):
        return ((jnp.tanh(words @ weights) - target) ** 2).sum()

    gradients = jax.vmap(jax.grad(loss), (None, 0, 0))(weights, words, targets)
    squares = gradients.reshape(len(words), -1) ** 2
    factors = 1 / jnp.maximum(jnp.sqrt(squares.sum(1)), 1)
    return (jnp.moveaxis(gradients, 0, -1) * factors).sum(-1)


def errors_of_each(scores, labels):
    import jax

    return jax.vmap(jax.grad(lambda scores, label: jax.nn.log_softmax(scores)[label]))(
        scores, labels
    )


SCALARS_AND_NOTHING = """HloModule m
add { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT s = f32[] add(x, y) }
ENTRY e {
  a = f32[4]{0} parameter(0)
  b = f32[4]{0} parameter(1)
  n = f32[0,4]{1,0} parameter(2)
  i = s32[0,1]{1,0} parameter(3)
  m = f32[1,4]{1,0} parameter(4)
  zero = f32[] constant(0)
  length = f32[] dot(a, b), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  shorter = f32[] subtract(length, zero)
  square = f32[] dot(shorter, shorter), lhs_contracting_dims={}, rhs_contracting_dims={}
  lengths = f32[0]{0} dot(n, n), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1},
      rhs_contracting_dims={1}
  sum = f32[] reduce(lengths, zero), dimensions={0}, to_apply=add
  rows = f32[0,4]{1,0} gather(m, i), offset_dims={1}, collapsed_slice_dims={0},
      start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}
  put = f32[1,4]{1,0} scatter(m, i, rows), update_window_dims={1}, inserted_window_dims={0},
      scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add
  both = f32[1,4]{1,0} concatenate(put, n), dimensions={0}
  ROOT r = (f32[], f32[], f32[1,4]{1,0}) tuple(square, sum, both)
}
"""


@each_recipe
def test_scalars_and_empty_arrays_are_left_alone(recipe: Recipe, backend: str) -> None:
    text = re.sub(r",\n +", ", ", SCALARS_AND_NOTHING)
    assert apply_recipe(recipe, parse(text), backend) is None


@with_jax
@pytest.mark.usefixtures("own_settings")
@pytest.mark.parametrize(
    ("id", "function", "shapes", "gone"),
    [
        # The sum of all distances from a mean is zero.
        ("one-pass-variance", variance, [(256, 128)], "negate(%mul"),
        # The gradient of the kernel is a product, too, and the largest column is not read.
        ("multiply-pixels", strided_pixels, [(2, 8, 9, 16), (1, 1, 16, 4)], "convolution("),
        ("multiply-pixels", strided_pixels, [(2, 7, 7, 16), (1, 1, 16, 4)], "convolution("),
        # What `vmap` transposes is summed in the right order.
        ("multiply-thin-dots", rotations, [(300, 2, 3), (2, 3, 3)], "transpose("),
        # The first of two dimensions in parts, and all of one with parts of another.
        ("sum-in-parts", sums_and_largest, [(8, 30, 75, 4)], "reduce(%images"),
        # Labels in range need no NaN.
        ("select-for-scatter", checked_labels, [(64, 10), (64,)], "nan"),
        # Constant indices of two dimensions, some of which are the same, and one from the end.
        ("select-for-scatter", elements_of_matrices, [(50, 3, 4)], "scatter("),
        # Windows of one element, and several elements of each row.
        ("select-for-scatter", one_of_each, [(6, 5, 10), (6,)], "scatter("),
        ("select-for-scatter", several_of_each, [(4, 7, 3), (15,)], "scatter("),
        # An element that is set, not added.
        ("select-for-scatter", errors_of_each, [(64, 10), (64,)], "scatter("),
        # Three words an example, gradients as rows, and with the examples last.
        (
            "factor-gradients",
            clipped_sentences,
            [(64, 32), (5, 3, 64), (5, 3, 32)],
            "f32[5,64,32]",
        ),
        # A layer that is read, too, and places that may be outside.
        ("update-rows", rows_of_a_layer, [(3, 5, 7, 2), (5, 2), (5,)], "scatter("),
        # Nothing is gathered.
        ("take-apart", springs, [(40, 3)], "f32[40,40,3]"),
    ],
)
def test_gradients_and_batches_are_rewritten_too(id, function, shapes, gone) -> None:
    import jax

    types = ["f32" if len(shape) > 1 else "s32" for shape in shapes]
    arguments = [
        jax.ShapeDtypeStruct(shape, {"f32": "float32", "s32": "int32"}[kind])
        for shape, kind in zip(shapes, types, strict=True)
    ]
    lowered = jax.jit(function).lower(*arguments)
    before = parse(lowered.compiler_ir("hlo").as_hlo_text())
    recipe = next(item for item in RECIPES if item.id == id)
    rewritten = apply_recipe(recipe, before, "gpu" if "gpu" in recipe.backends else "tpu")
    assert rewritten is not None
    assert gone in to_text(before)
    assert gone not in to_text(rewritten.module)
    check_equal(recipe, before, rewritten.module)


@pytest.mark.parametrize(
    ("id", "backend", "old", "new"),
    [
        # The mean of another number of elements is none of these.
        (
            "one-pass-variance",
            "gpu",
            "constant.8 = f32[] constant(2048)",
            "constant.8 = f32[] constant(2047)",
        ),
        # Two parts would start from one each.
        ("reduce-parts", "cpu", "constant.1 = f32[] constant(0)", "constant.1 = f32[] constant(1)"),
        # A scatter that adds to what is there already.
        (
            "select-for-scatter",
            "gpu",
            "constant.22 = f32[] constant(0)",
            "constant.22 = f32[] constant(1)",
        ),
        # Neither end of the sort.
        ("top-of-sort", "cpu", "[4088:4096]", "[2040:2048]"),
        # Steps would be left over, or none run together.
        ("unroll-loop", "gpu", "constant(8)", "constant(6)"),
        ("unroll-loop", "gpu", "constant(8)", "constant(4)"),
        ("unroll-loop", "gpu", "constant.3 = s32[] constant(1)", "constant.3 = s32[] constant(2)"),
        # A product does not keep the order, nor does a quotient by what may be negative.
        ("argmax-of-logits", "cpu", "divide(%exp.1, %div.6)", "multiply(%exp.1, %div.6)"),
        ("argmax-of-logits", "cpu", "reduce(%exp.1,", "reduce(%sub.7,"),
        # The largest element is not the sum of sums.
        (
            "total-of-rows",
            "cpu",
            "ROOT %reduce_sum.5 = f32[] add(",
            "ROOT %reduce_sum.5 = f32[] maximum(",
        ),
        # A comparator that looks at more than the keys.
        (
            "gather-payload",
            "cpu",
            "compare(%select_n.5, %select_n.7)",
            "compare(%select_n.5, %select_n.5)",
        ),
        # The old values are the caller's.
        ("update-in-place", "cpu", "input_output_alias={ {}: (0, {}, may-alias) }, ", ""),
        # The smallest element of each window.
        ("select-in-windows", "gpu", "direction=GE", "direction=LE"),
        # Windows that overlap.
        ("select-in-windows", "gpu", "stride=1x2x2x1", "stride=1x1x1x1"),
        # A sum of narrow numbers is wider than they are.
        ("multiply-thin-dots", "gpu", "f32[", "bf16["),
        # A window of several pixels.
        ("multiply-pixels", "gpu", "size=1x1", "size=3x3"),
        # Larger matrices are for the library.
        ("multiply-small-dots", "gpu", "4,4]", "8,8]"),
        # Weights that are also read as they are, that a result replaces, or that nothing converts.
        (
            "store-narrow",
            "gpu",
            "%tanh.1 = bf16[8,1024]{1,0} tanh(%dot_general.1)",
            "%tanh.1 = bf16[8,1024]{1,0} dot(%dot_general.1, %jit_dynamic_index_in_dim_.1), "
            "lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        ),
        (
            "store-narrow",
            "gpu",
            "entry_computation_layout",
            "input_output_alias={ {}: (0, {}, may-alias) }, entry_computation_layout",
        ),
        ("store-narrow", "gpu", "convert(", "negate("),
        # Few rows, or a number of them that nothing divides.
        ("sum-in-parts", "gpu", "4096,128]", "256,1024]"),
        ("sum-in-parts", "gpu", "4096,128]", "4093,128]"),
        # Rows that occupy the device, or that the compiler splits.
        ("sum-in-parts", "gpu", "128]", "4096]"),
        ("sum-in-parts", "gpu", "4096,", "8192,"),
        # Each part would start from one.
        ("sum-in-parts", "gpu", "f32[] constant(0)", "f32[] constant(1)"),
        # Sums within a row.
        ("sum-in-parts", "gpu", "dimensions={0}", "dimensions={1}"),
        # More components than a few, and few elements.
        ("take-apart", "cpu", "3]", "5]"),
        ("take-apart", "cpu", "2048", "8"),
        # Few elements, and a divisor that may be infinite.
        ("divide-for-remainder", "cpu", "4096,64]", "4,64]"),
        (
            "divide-for-remainder",
            "cpu",
            "%constant.6 = f32[] constant(3)",
            "%constant.6 = f32[] exponential(%constant.7)",
        ),
        # The keys are as they came.
        ("join-halves", "tpu", "reshape(%stack.11)", "reshape(%keys.1)"),
        # Short vectors, a sum that does not begin at zero, and one that is no square.
        ("multiply-distances", "tpu", ",64]", ",8]"),
        ("multiply-distances", "tpu", "f32[] constant(0)", "f32[] constant(1)"),
        ("multiply-distances", "tpu", "multiply(%sub.13, %sub.13)", "multiply(%sub.13, %sub.9)"),
        # Lengths that do not begin at zero, and gradients that are small.
        (
            "factor-gradients",
            "tpu",
            "constant.7 = f32[] constant(0)",
            "constant.7 = f32[] constant(1)",
        ),
        ("factor-gradients", "tpu", "1024", "1"),
        # A scatter that keeps what was there.
        (
            "update-rows",
            "tpu",
            "  %scatter.2 = f32[] parameter(0)\n  ROOT %scatter.3",
            "  ROOT %scatter.2 = f32[] parameter(0)\n  %scatter.3",
        ),
        # What `jax.checkpoint` put there.
        (
            "remove-barrier",
            "cpu",
            "opt-barrier(%mul.3)",
            'opt-barrier(%mul.3), metadata={op_name="checkpoint"}',
        ),
    ],
)
def test_it_does_not_fit_what_only_looks_alike(id: str, backend: str, old: str, new: str) -> None:
    text = (PROGRAMS / f"{id}-before.hlo").read_text()
    assert old in text
    recipe = next(item for item in RECIPES if item.id == id)
    assert apply_recipe(recipe, parse(text), backend) is not None
    assert apply_recipe(recipe, parse(text.replace(old, new)), backend) is None


@each_recipe
def test_a_program_that_lacks_an_attribute_is_no_fault(recipe: Recipe, backend: str) -> None:
    text = (PROGRAMS / f"{recipe.id}-before.hlo").read_text()
    # Each attribute left out.
    left_out = re.finditer(r", \w+=(?:\{(?:[^{}]|\{[^{}]*\})*\}|[^,{}\s]+)", text)
    for item in left_out:
        with contextlib.suppress(UnusableInput):
            apply_recipe(recipe, parse(text[: item.start()] + text[item.end() :]), backend)


CUSOLVER = """
HloModule filter

ENTRY main {
  covariance = f32[6,3,3] parameter(0)
  values = f32[6,3,2] parameter(1)
  both = (f32[6,3,3], s32[6]) custom-call(covariance), custom_call_target="cusolver_potrf_ffi", backend_config={lower = true}
  factor = f32[6,3,3] get-tuple-element(both), index=0
  status = s32[6] get-tuple-element(both), index=1
  solution = f32[6,3,2] triangular-solve(factor, values), left_side=true, lower=true, transpose_a=TRANSPOSE
  ROOT all = (f32[6,3,2], s32[6]) tuple(solution, status)
}
"""  # noqa: E501


@pytest.mark.parametrize(
    ("old", "new", "remaining"),
    [
        ("", "", set()),
        ("lower = true", "lower = false", {"custom-call"}),
        ("left_side=true", "left_side=false", {"triangular-solve"}),
        ("lower=true", "lower=true, unit_diagonal=true", {"triangular-solve"}),
        ("TRANSPOSE", "ADJOINT", {"triangular-solve"}),
    ],
)
def test_what_cusolver_and_cublas_compute_of_few_rows_becomes_arithmetic(
    old: str, new: str, remaining: set[str]
) -> None:
    rewritten = apply_recipe(SmallFactors(), parse(CUSOLVER.replace(old, new)), "gpu")
    assert rewritten is not None
    opcodes = {instruction.opcode for instruction in rewritten.module.walk()}
    assert opcodes & {"custom-call", "triangular-solve"} == remaining
