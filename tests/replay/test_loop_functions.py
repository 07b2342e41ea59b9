"""Loops that become functions, against what jaxlib 0.12.0.1 made of such loops on a CPU."""

import pytest

from fusionscope.graph.loop_functions import loops_for_functions
from fusionscope.graph.mutable import MutableModule
from fusionscope.history.loops import LoopFacts
from fusionscope.hlo import parse
from fusionscope.what_if.final_figures import FinalFigures

LOOP = """HloModule example

double {{
  x = f32[8]{{0}} parameter(0)
  ROOT y = f32[8]{{0}} add(x, x)
}}

body {{
  state = (s32[], f32[8]{{0}}, {left}, {right}, {result}) parameter(0)
  count = s32[] get-tuple-element(state), index=0
  value = f32[8]{{0}} get-tuple-element(state), index=1
  a = {left} get-tuple-element(state), index=2
  b = {right} get-tuple-element(state), index=3
  one = s32[] constant(1)
  next = s32[] add(count, one)
  doubled = f32[8]{{0}} fusion(value), kind={kind}, calls=double
  c = {result} {operation}
  ROOT r = (s32[], f32[8]{{0}}, {left}, {right}, {result}) tuple(next, doubled, a, b, c)
}}

condition {{
  state = (s32[], f32[8]{{0}}, {left}, {right}, {result}) parameter(0)
  count = s32[] get-tuple-element(state), index=0
  end = s32[] constant(9)
  ROOT less = pred[] compare(count, end), direction=LT
}}

ENTRY main {{
  start = (s32[], f32[8]{{0}}, {left}, {right}, {result}) parameter(0)
  ROOT loop = (s32[], f32[8]{{0}}, {left}, {right}, {result}) while(start), condition=condition,
    body=body, backend_config={{"known_trip_count":{{"n":"9"}}}}
}}
"""
ROWS = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
BATCHES = (
    "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}"
)


def loop(left: str, right: str, result: str, operation: str, kind: str = "kLoop") -> str:
    return LOOP.format(left=left, right=right, result=result, operation=operation, kind=kind)


def simple(kind: str) -> str:
    return loop("f32[]", "f32[]", "f32[]", "multiply(a, b)", kind)


@pytest.mark.parametrize(
    ("left", "right", "result", "is_function"),
    [
        ("f32[2,2]", "f32[2,2]", "f32[2,2]", True),
        ("f32[3,3]", "f32[3,3]", "f32[3,3]", True),
        ("f32[4,4]", "f32[4,4]", "f32[4,4]", False),
        ("f32[1,64]", "f32[64,64]", "f32[1,64]", True),
        ("f64[64,64]", "f64[64,1]", "f64[64,1]", True),
        ("bf16[8,8]", "bf16[8,8]", "bf16[8,8]", False),
        ("s32[8,8]", "s32[8,8]", "s32[8,8]", False),
        ("s8[8,8]", "s8[8,8]", "s8[8,8]", True),
        ("c64[1,8]", "c64[8,8]", "c64[1,8]", False),
        ("c64[2,2]", "c64[2,2]", "c64[2,2]", False),
    ],
)
def test_a_loop_stays_if_eigen_computes_its_product(
    left: str, right: str, result: str, is_function: bool
) -> None:
    graph = MutableModule(parse(loop(left, right, result, f"dot(a, b), {ROWS}")))
    assert bool(loops_for_functions(graph)) == is_function


@pytest.mark.parametrize(("size", "is_function"), [(2, True), (8, False)])
def test_batches_count_as_their_products(size: int, is_function: bool) -> None:
    shape = f"s32[3,{size},{size}]"
    graph = MutableModule(parse(loop(shape, shape, shape, f"dot(a, b), {BATCHES}")))
    assert bool(loops_for_functions(graph)) == is_function


def test_a_loop_with_a_convolution_of_its_own_stays() -> None:
    operation = "convolution(a, b), dim_labels=bf_io->bf"
    graph = MutableModule(parse(loop("f32[8,8]", "f32[8,8]", "f32[8,8]", operation)))
    assert not loops_for_functions(graph)


@pytest.mark.parametrize("of_any_size", [True, False])
def test_a_change_that_gives_a_loop_to_the_library_has_the_launches_of_its_steps(
    of_any_size: bool,
) -> None:
    """A loop with a fusion of the library is no function: nine steps of three kernels each."""
    after, changed = parse(simple("kLoop")), parse(simple("kCustom"))
    facts = LoopFacts({}, {}, frozenset({"loop"}))
    figures = FinalFigures(after, after, "cpu", None, loops=facts, makes_functions=of_any_size)
    assert figures.before.launches == 1
    assert figures.predict(changed).figures.launches == 9 * 3


def test_a_change_that_takes_a_loop_from_the_library_makes_one_function_of_it() -> None:
    after, changed = parse(simple("kCustom")), parse(simple("kLoop"))
    assert FinalFigures(after, after, "cpu", None).predict(changed).figures.launches == 9 * 3
    figures = FinalFigures(after, after, "cpu", None, makes_functions=True)
    assert (figures.before.launches, figures.predict(changed).figures.launches) == (9 * 3, 1)
