"""What of a loop can be computed for all steps at once: random programs compute the same after it,
and what only looks alike stays.
"""

from __future__ import annotations

import importlib.util
import random
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from advise.test_recipe_rewriting import check_equal, own_settings  # noqa: F401 (a fixture)

from fusionscope.advise.recipes.associative_scan import AssociativeScan
from fusionscope.advise.recipes.hoist_from_loop import HoistFromLoop
from fusionscope.advise.recipes.loops import find_loops
from fusionscope.advise.recipes.recipe import Recipe, apply_recipe, prepare
from fusionscope.advise.recipes.recompute_residuals import RecomputeResiduals
from fusionscope.advise.recipes.rewriting import rewrite
from fusionscope.advise.recipes.unroll_loop import UnrollLoop
from fusionscope.dump import open_dump
from fusionscope.errors import UnusableInput
from fusionscope.graph.mutable import to_module
from fusionscope.hlo import Module, parse, to_text

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("jaxlib") is None, reason="needs jax"),
    pytest.mark.usefixtures("own_settings"),
]
FAST, ALL = range(3), range(3, 55)


def lower(function: Callable[..., Any], *arguments: Any, platform: str = "tpu") -> Module:
    """By default as for a device: a CPU computes random numbers in loops."""
    import jax

    jax.config.update("jax_enable_x64", False)
    types = [jax.ShapeDtypeStruct(shape, kind) for shape, kind in arguments]
    lowered = jax.jit(function).trace(*types).lower(lowering_platforms=(platform,))
    return parse(lowered.compiler_ir("hlo").as_hlo_text())


def check(recipe: Recipe, before: Module, loops_left: int | None = None) -> None:
    rewritten = apply_recipe(recipe, before, "gpu")
    assert rewritten is not None
    module = parse(to_text(rewritten.module))
    assert apply_recipe(recipe, module, "gpu") is None
    if loops_left is not None:
        assert sum(item.opcode == "while" for item in module.walk()) == loops_left
    check_equal(recipe, before, module)


class Recurrences:
    """A random scan: sums, running extremes, decays with factors that may differ in each step, and
    what reads them, forwards or backwards, of some number of steps and sizes.
    """

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.steps = self.choose.randint(2, 20)
        self.sizes = tuple(self.choose.choice([(), (3,), (2, 5), (4, 1, 3)]))
        self.count = self.choose.randint(1, 3)
        self.kinds = [self.choose.choice(self.KINDS) for _ in range(self.count)]
        self.is_reversed = self.choose.random() < 0.5

    @staticmethod
    def decay(state, row, factor):
        return factor * state + row

    @staticmethod
    def fixed_decay(state, row, factor):
        return row - 0.9 * state

    @staticmethod
    def sum(state, row, factor):
        return state + row * factor

    @staticmethod
    def product(state, row, factor):
        return state * factor

    @staticmethod
    def average(state, row, factor):
        return state + (row - state) / 7

    @staticmethod
    def largest(state, row, factor):
        import jax.numpy as jnp

        return jnp.maximum(row, state)

    @staticmethod
    def smallest(state, row, factor):
        import jax.numpy as jnp

        return jnp.minimum(state, factor - row)

    @staticmethod
    def selection(state, row, factor):
        import jax.numpy as jnp

        return jnp.where(row > 0, factor - state / 2, -state)

    KINDS = (
        *("decay", "fixed_decay", "sum", "product", "average"),
        *("largest", "smallest", "selection"),
    )

    def program(self, rows, factors, starts):
        import jax
        import jax.numpy as jnp

        def step(states, inputs):
            row, factor = inputs
            after, factor = [], jnp.tanh(factor)
            for kind, state in zip(self.kinds, states, strict=True):
                after.append(getattr(self, kind)(state, row, factor))
                row = jnp.sin(row + state)  # the next one reads what this one was
            return tuple(after), (row, after[-1])

        states = tuple(starts[place] for place in range(self.count))
        return jax.lax.scan(step, states, (rows, factors), reverse=self.is_reversed)

    def lower(self) -> Module:
        rows = ((self.steps, *self.sizes), "float32")
        return lower(self.program, rows, rows, ((self.count, *self.sizes), "float32"))


class Steps:
    """A random scan whose steps draw numbers, look up rows of a table and multiply, and carry what
    is not linear; or carry nothing at all.
    """

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.steps, self.size = self.choose.randint(2, 6), self.choose.randint(1, 6)
        names = ("drawn", "of_number", "looked_up", "multiplied", "from_left", "summed")
        self.names = self.choose.sample(names, self.choose.randint(1, 3))
        self.is_map = self.choose.random() < 0.25
        self.is_reversed = self.choose.random() < 0.5

    @staticmethod
    def key(number, index):
        import jax.numpy as jnp

        return jnp.stack([number, index]).astype("uint32")

    def terms(self, key, number, row, table, index):
        """What each of the names adds, and the next key."""
        import jax

        key, drawn = jax.random.split(key)
        terms = {
            "drawn": lambda: jax.random.normal(drawn, (self.size,)),
            "of_number": lambda: jax.random.uniform(self.key(number, index), (self.size,)),
            "looked_up": lambda: table[index % 5] + 0.5 * table[number // 2].sum(),
            "multiplied": lambda: row @ table[: self.size],
            "from_left": lambda: table[: self.size].T @ row,
            "summed": lambda: (row[:, None] * table[: self.size]).sum(0),
        }
        return sum(terms[name]() for name in self.names), key

    def program(self, key, rows, table, indices, start):
        import jax
        import jax.numpy as jnp

        def step(carried, inputs):
            state, key = carried
            number, row, index = inputs
            term, next_key = self.terms(key, number, row, table, index)
            if self.is_map:
                return (state, key), term
            state = jnp.sin(state) + term
            return (state, next_key), state * term

        inputs = (jnp.arange(self.steps), rows, indices)
        return jax.lax.scan(step, (start, key), inputs, reverse=self.is_reversed)

    def lower(self, platform: str) -> Module:
        return lower(
            self.program,
            ((2,), "uint32"),
            ((self.steps, self.size), "float32"),
            ((self.size + 5, self.size), "float32"),
            ((self.steps,), "int32"),
            ((self.size,), "float32"),
            platform=platform,
        )


class Gradients:
    """The gradient of a random scan, which stores values of each step: of the state, of rows and
    weights, of the number of the step, and of a product, forwards or backwards.
    """

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.steps, self.size = self.choose.randint(2, 9), self.choose.randint(2, 7)
        names = ("sine", "gelu", "gate", "product", "number")
        self.names = self.choose.sample(names, self.choose.randint(2, 4))
        self.is_reversed = self.choose.random() < 0.5

    def step(self, weights, state, inputs):
        import jax
        import jax.numpy as jnp

        number, row = inputs
        terms = {
            "sine": lambda value: jnp.sin(value) * jnp.cos(row),
            "gelu": lambda value: jax.nn.gelu(value + row),
            "gate": lambda value: jax.nn.sigmoid(value) * jnp.tanh(state * row),
            "product": lambda value: jnp.tanh(value @ weights),
            "number": lambda value: value * jnp.exp(-number * value**2),
        }
        value = state
        for name in self.names:
            value = terms[name](value)
        return value, value.sum()

    def program(self, weights, rows, start):
        import jax
        import jax.numpy as jnp

        def loss(weights, start):
            inputs = (jnp.arange(self.steps), rows)
            step = partial(self.step, weights)
            last, sums = jax.lax.scan(step, start, inputs, reverse=self.is_reversed)
            return (last**2).sum() + (sums**3).sum()

        return jax.grad(loss, (0, 1))(0.3 * weights, start)

    def lower(self) -> Module:
        size = self.size
        shapes = (size, size), (self.steps, 3, size), (3, size)
        return lower(self.program, *((shape, "float32") for shape in shapes))


@pytest.mark.parametrize(
    "seed", [*FAST, *(pytest.param(seed, marks=pytest.mark.slow) for seed in ALL)]
)
def test_recurrences_of_random_programs_compute_the_same_without_a_loop(seed: int) -> None:
    check(AssociativeScan(), Recurrences(seed).lower(), loops_left=0)


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
@pytest.mark.parametrize(
    "seed", [*FAST, *(pytest.param(seed, marks=pytest.mark.slow) for seed in ALL)]
)
def test_random_steps_compute_the_same_with_work_before_the_loop(seed: int, platform: str) -> None:
    check(HoistFromLoop(), Steps(seed).lower(platform))


def test_the_rounds_of_random_numbers_run_once_for_all_steps() -> None:
    import jax

    def program(state):
        def step(state, key):
            return jax.numpy.tanh(state + jax.random.normal(key, (4,))), None

        return jax.lax.scan(step, state, jax.random.split(jax.random.key(7), 6))[0]

    before = lower(program, ((4,), "float32"), platform="cpu")
    after = apply_recipe(HoistFromLoop(), before, "cpu")
    assert after is not None
    loops_inside = [
        sum("while" in inner.opcodes for inner in loop.called)
        for module in (before, after.module)
        for loop in prepare(module).walk()
        if loop.opcode == "while"
    ]
    assert loops_inside.count(1) == 1  # of the program before
    (rounds, *_) = [loop for loop in prepare(after.module).walk() if loop.opcode == "while"]
    assert any(part.dimensions[:1] == (6,) for part in rounds.shape.elements)


@pytest.mark.parametrize("with_products", [True, False])
@pytest.mark.parametrize(
    "seed", [*FAST, *(pytest.param(seed, marks=pytest.mark.slow) for seed in ALL)]
)
def test_gradients_of_random_scans_compute_the_same_from_the_state(
    seed: int, with_products: bool
) -> None:
    before = Gradients(seed).lower()
    recipe = RecomputeResiduals(with_products=with_products, most_share=1000)
    if apply_recipe(recipe, before, "cpu") is not None:
        check(recipe, before)


def test_the_state_alone_is_stored_for_the_gradient() -> None:
    import jax
    import jax.numpy as jnp

    def program(weights, start):
        def loss(weights):
            def step(state, _):
                return jax.nn.gelu(state @ weights), None

            return jax.lax.scan(step, start, None, 5)[0].sum()

        return jax.grad(loss)(jnp.tanh(weights))

    before = lower(program, ((4, 4), "float32"), ((3, 4), "float32"))
    stored = []
    for recipe in (RecomputeResiduals(), RecomputeResiduals(with_products=False)):
        after = apply_recipe(recipe, before, "cpu")
        assert after is not None
        (loop, _) = find_loops(prepare(after.module))
        changing = set(range(len(loop.results))) - loop.settled
        stored.append(sum(loop.starts[index].shape.dimensions == (5, 3, 4) for index in changing))
    assert stored == [1, 2]  # the state; and the product, of which gelu and its slope are computed


def test_what_is_read_elsewhere_is_stored_all_the_same() -> None:
    import jax
    import jax.numpy as jnp

    def program(start):
        def step(state, _):
            row = jnp.sin(state)
            return row * 2, row

        last, rows = jax.lax.scan(step, start, None, 5)
        again = jax.lax.scan(lambda total, row: (jnp.cos(total) + row, None), last, rows)[0]
        return again, rows

    before = lower(program, ((4,), "float32"))
    assert apply_recipe(RecomputeResiduals(most_share=1000), before, "cpu") is None


def test_steps_with_work_before_the_loop_can_be_unrolled() -> None:
    import jax

    def program(key, start):
        def step(carried, _):
            state, key = carried
            key, drawn = jax.random.split(key)
            return (jax.numpy.sin(state) + jax.random.normal(drawn, (4,)), key), None

        return jax.lax.scan(step, (start, key), None, 6)[0]

    before = lower(program, ((2,), "uint32"), ((4,), "float32"))
    graph = prepare(before)
    for recipe in (HoistFromLoop(), UnrollLoop(2)):
        (site, *_) = recipe.find(graph, "gpu")  # the loop of keys is already unrolled
        site.rewrite()
    check_equal(UnrollLoop(2), before, to_module(graph))


def test_numbers_that_fit_are_named_where_one_does_not(tmp_path: Path) -> None:
    import jax

    def program(start):
        return jax.lax.fori_loop(0, 6, lambda _, state: jax.numpy.sin(state), start)

    text = to_text(lower(program, ((4,), "float32")))
    for stage in ("before_optimizations", "sm_9.0_gpu_after_optimizations"):
        (tmp_path / f"module_0001.jit_program.{stage}.txt").write_text(text)
    (module,) = open_dump(tmp_path).modules
    with pytest.raises(UnusableInput, match="unroll-loop fits nowhere") as raised:
        rewrite(module, [UnrollLoop(4)])
    numbers = re.findall(r"times=(\d+)", raised.value.hint or "")
    assert "2" in numbers
    for times in numbers:
        rewrite(module, [UnrollLoop(int(times))])


def test_a_recurrence_leaves_a_loop_that_remains() -> None:
    import jax
    import jax.numpy as jnp

    def program(rows, weights):
        def step(states, row):
            activations, decaying = states
            decaying = 0.5 * decaying + row
            activations = jnp.tanh(activations @ weights + decaying)
            return (activations, decaying), activations

        zeros = jnp.zeros((8, 128))
        return jax.lax.scan(step, (zeros, zeros), rows)

    before = lower(program, ((9, 8, 128), "float32"), ((128, 128), "float32"))
    rewritten = apply_recipe(AssociativeScan(), before, "gpu")
    assert rewritten is not None
    (loop,) = find_loops(prepare(rewritten.module))
    # What decays comes in, and is not carried on.
    assert len(loop.results) - len(loop.settled) == 2


@pytest.mark.parametrize(
    "step",
    [
        lambda state, row: state * state + row,
        lambda state, row: row / state,
        lambda state, row: row * state.sum(),
        lambda state, row: state[::-1] + row,
        lambda state, row: (state.astype("bfloat16") + 1).astype("float32"),
    ],
)
def test_what_is_no_linear_recurrence_stays(step: Callable[..., Any]) -> None:
    import jax

    def program(rows, start):
        return jax.lax.scan(lambda state, row: (step(state, row),) * 2, start, rows)

    before = lower(program, ((6, 4), "float32"), ((4,), "float32"))
    assert apply_recipe(AssociativeScan(), before, "gpu") is None


class Filters:
    """A random scan of probabilities, which each step multiplies by a matrix and by a row, and
    divides by their sum.
    """

    def __init__(self, seed: int) -> None:
        choose = random.Random(seed)
        self.steps, self.count = choose.randint(2, 20), choose.randint(2, 9)
        self.floor = choose.choice(["none", "maximum", "sum", "select"])
        self.has_matrices, self.is_reversed, self.is_late, self.is_read = (
            choose.random() < 0.5 for _ in range(4)
        )

    def normalised(self, numbers):
        import jax.numpy as jnp

        if self.floor == "select":
            numbers = jnp.where(
                numbers == 0, 0, jnp.where(numbers < 1e-15, jnp.float32(1e-15), numbers)
            )
        if self.floor == "maximum":
            numbers = jnp.maximum(numbers, 1e-12)
        total = numbers.sum() + (1e-12 if self.floor == "sum" else 0)
        if self.floor == "select":
            total = jnp.where(total == 0, 1, total)
        return numbers / total, jnp.log(total)

    def program(self, start, matrices, rows):
        import jax

        def step(carry, inputs):
            numbers, logarithms = carry
            matrix, row = inputs if self.has_matrices else (probabilities[0], inputs)
            if self.is_late:
                numbers, added = self.normalised(row * (matrix @ numbers))
            else:
                numbers, added = self.normalised(numbers * row)
                numbers = numbers @ matrix
            outputs = (numbers, carry[0]) if self.is_read else numbers
            return (numbers, logarithms + added), outputs

        probabilities = jax.nn.softmax(matrices)
        weights = jax.nn.softmax(3 * rows)
        inputs = (probabilities, weights) if self.has_matrices else weights
        return jax.lax.scan(step, (jax.nn.softmax(start), 0.0), inputs, reverse=self.is_reversed)

    def lower(self) -> Module:
        shapes = ((self.count,), (self.steps, self.count, self.count), (self.steps, self.count))
        return lower(self.program, *((shape, "float32") for shape in shapes))


@pytest.mark.parametrize(
    "seed", [*FAST, *(pytest.param(seed, marks=pytest.mark.slow) for seed in ALL)]
)
def test_filters_of_random_programs_compute_the_same_without_a_loop(seed: int) -> None:
    check(AssociativeScan(), Filters(seed).lower(), loops_left=0)


@pytest.mark.parametrize(
    "step",
    [
        lambda state, matrix: matrix @ state / (state * state).sum(),
        lambda state, matrix: matrix @ (state / state.sum()) / state.sum(),
        lambda state, matrix: matrix @ (state + 0.1) / state.sum(),
        lambda state, matrix: matrix @ state / state.max() / state.sum(),
        lambda state, matrix: (matrix @ state).clip(1e-3) / state.sum(),
        lambda state, matrix: matrix @ state + state / state.sum(),
    ],
)
def test_what_does_not_depend_on_the_direction_alone_stays(step: Callable[..., Any]) -> None:
    import jax

    def program(start, matrices):
        return jax.lax.scan(lambda state, row: (step(state, row),) * 2, start, matrices)

    before = lower(program, ((4,), "float32"), ((6, 4, 4), "float32"))
    assert apply_recipe(AssociativeScan(), before, "gpu") is None


def test_too_many_bytes_stay_in_the_loop() -> None:
    before = Recurrences(0).lower()
    assert apply_recipe(AssociativeScan(most_bytes=8), before, "gpu") is None
    assert apply_recipe(HoistFromLoop(most_bytes=8), Steps(0).lower("tpu"), "gpu") is None
