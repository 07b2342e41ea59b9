"""How often loops run their bodies and conditions. Numbers of steps are counted by hand."""

import runpy
from pathlib import Path

import pytest

from fusionscope.dump import open_dump
from fusionscope.dump.length import Length
from fusionscope.history import find_kernels
from fusionscope.history.kernels import KernelKind, launches_of
from fusionscope.history.loops import (
    NOTHING_MORE,
    LoopFacts,
    Recording,
    describe_loop,
    hoisted_loops,
    read_loop_facts,
)
from fusionscope.history.values import Numbering
from fusionscope.hlo import Module, parse

ROOT = Path(__file__).parents[2]

LOOP = """HloModule m{header}

body {{
  p = (s32[], s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] get-tuple-element(p), index=1
  x = f32[8] get-tuple-element(p), index=2
  step = s32[] constant({step})
  next = s32[] {change}(i, step)
  y = f32[8] sine(x)
  ROOT out = (s32[], s32[], f32[8]) tuple(next, n, y)
}}

condition {{
  p = (s32[], s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] get-tuple-element(p), index=1
  x = f32[8] get-tuple-element(p), index=2
  end = s32[] constant({end})
  first = f32[1] slice(x), slice={{[0:1]}}
  head = f32[] reshape(first)
  zero = f32[] constant(0)
  five = s32[] constant(5)
  fives = s32[] multiply(i, five)
  positive = pred[] compare(head, zero), direction=GT
  less = pred[] compare({compared}), direction={direction}
  {test}
}}

ENTRY e {{
  x = f32[8] parameter(0)
  m = s32[] parameter(1)
  start = s32[] constant({start})
  limit = s32[] constant(12)
  state = (s32[], s32[], f32[8]) tuple(start, {limit}, x)
  ROOT loop = (s32[], s32[], f32[8]) while(state), condition=condition, body=body{attributes}
}}
"""
USUAL = {
    "header": "",
    "start": 0,
    "end": 7,
    "step": 1,
    "change": "add",
    "compared": "i, end",
    "direction": "LT",
    "test": "ROOT same = pred[] copy(less)",
    "limit": "limit",
    "attributes": "",
}
NOTED = ', backend_config={"known_trip_count":{"n":"7"}}'


def loop_of(**changed: object) -> Module:
    return parse(LOOP.format(**USUAL | changed))


@pytest.mark.parametrize(
    ("changed", "steps"),
    [
        ({}, 7),
        ({"start": 3}, 4),
        ({"start": 9}, 0),
        ({"step": 3}, 3),  # 0, 3, 6
        ({"direction": "LE"}, 8),
        ({"direction": "LE", "step": 7}, 2),  # 0, 7
        ({"start": 10, "step": -3, "direction": "GT"}, 1),  # 10
        ({"start": 10, "step": 4, "change": "subtract", "end": 0, "direction": "GE"}, 3),
        ({"step": 7, "direction": "NE"}, 1),
        ({"compared": "end, i", "direction": "GT"}, 7),
        ({"compared": "i, n"}, 12),  # the state passes it on
        ({"compared": "fives, end", "end": 25}, 5),
        ({"compared": "fives, end", "end": 26, "start": 2}, 4),  # 10, 15, 20, 25
        ({"compared": "end, fives", "end": 23, "direction": "GT"}, 5),
        ({"test": "ROOT other = pred[] not(less)", "direction": "GE"}, 7),
        ({"test": "ROOT both = pred[] and(less, less)"}, 7),
    ],
)
def test_the_condition_tells_the_steps(changed: dict[str, object], steps: int) -> None:
    """Before the compiler notes the number it will, and the condition never runs."""
    loop = describe_loop(loop_of(**changed).entry.root)
    assert (loop.steps, loop.length, loop.tests) == (steps, Length.KNOWN, 0)


@pytest.mark.parametrize(
    "changed",
    [
        {"step": -1},  # for ever, or until the number overflows
        {"step": 2, "direction": "NE"},  # steps over it
        {"change": "multiply"},
        {"compared": "i, n", "limit": "m"},  # an argument of the program
        {"direction": "EQ"},
        {"test": "ROOT either = pred[] or(less, positive)"},
        {"test": "ROOT data = pred[] copy(positive)"},
    ],
)
def test_other_loops_count_as_one_step(changed: dict[str, object]) -> None:
    loop = describe_loop(loop_of(**changed).entry.root)
    assert (loop.steps, loop.length, loop.tests) == (1, Length.UNKNOWN, 2)


def test_a_condition_that_looks_at_something_else_bounds_the_steps() -> None:
    module = loop_of(test="ROOT both = pred[] and(positive, less)")
    loop = describe_loop(module.entry.root)
    assert (loop.steps, loop.length, loop.tests) == (7, Length.BOUND, 8)
    kernels = {item.name: item for item in launches_of(module, "cpu")}
    assert (kernels["y"].launches, kernels["less"].launches) == (7, 8)
    assert not kernels["y"].runs_known


def test_the_runtime_only_trusts_what_the_compiler_has_noted() -> None:
    """Once the instructions have their order no pass notes the number any more."""
    final = loop_of(header=", is_scheduled=true")
    assert describe_loop(final.entry.root).tests == 8
    noted = loop_of(header=", is_scheduled=true", attributes=NOTED)
    assert describe_loop(noted.entry.root).tests == 0


def test_steps_that_the_user_gives() -> None:
    module = loop_of(test="ROOT both = pred[] and(positive, less)")
    loop = describe_loop(module.entry.root, LoopFacts({"loop": 4}, {}, frozenset()))
    assert (loop.steps, loop.length, loop.tests) == (4, Length.GIVEN, 5)
    assert loop.is_exact


@pytest.mark.parametrize(
    ("attributes", "recording", "tests"),
    [
        (NOTED, Recording.UNROLLED, 7),
        (NOTED, Recording.REPEATED, 8),
        ("", Recording.UNROLLED, 8),  # only known loops are unrolled
    ],
)
def test_loops_in_command_buffers(attributes: str, recording: Recording, tests: int) -> None:
    module = loop_of(header=", is_scheduled=true", attributes=attributes)
    facts = LoopFacts({}, {"loop": recording}, frozenset())
    assert describe_loop(module.entry.root, facts).tests == tests


@pytest.mark.parametrize(("name", "launches"), [("unrolled", 64 * 3 + 2), ("repeated", 64 * 3 + 3)])
def test_a_dump_tells_how_a_command_buffer_has_a_loop(name: str, launches: int) -> None:
    """A loop of 64 steps with two kernels in its body, one in its condition, and two copies before
    it. Compiled for an H100 with xla_gpu_enable_command_buffer=FUSION,WHILE.
    """
    (module,) = open_dump(Path(__file__).with_name("loops_in_graphs") / name).modules
    facts = read_loop_facts(module)
    kernels = launches_of(module.read(module.final), "gpu", facts)
    assert sum(kernel.launches for kernel in kernels) == launches


CALL = """HloModule m, is_scheduled=true

body {
  p = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[8] get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = f32[8] sine(x)
  ROOT out = (s32[], f32[8]) tuple(next, y)
}

condition {
  p = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  end = s32[] constant(5)
  ROOT less = pred[] compare(i, end), direction=LT
}

loop.3_computation {
  p = (s32[], f32[8]) parameter(0)
  ROOT loop.4 = (s32[], f32[8]) while(p), condition=condition, body=body, backend_config={"known_trip_count":{"n":"5"}}
}

ENTRY e {
  x = f32[8] parameter(0)
  start = s32[] constant(0)
  state = (s32[], f32[8]) tuple(start, x)
  ROOT call = (s32[], f32[8]) call(state), to_apply=loop.3_computation, frontend_attributes={xla_cpu_small_call="true"}
}
"""  # noqa: E501


def test_a_function_is_one_launch() -> None:
    """Its kernels run five times, and move their bytes (8 floats in, 8 out)."""
    module = parse(CALL)
    kernels = {item.name: item for item in launches_of(module, "cpu")}
    assert {name: item.launches for name, item in kernels.items()} == {
        "next": 0,
        "y": 0,
        "less": 0,
        "call": 1,
    }
    assert kernels["call"].kind is KernelKind.FUNCTION
    assert kernels["y"].bytes_moved == 5 * (32 + 32)
    assert kernels["call"].bytes_moved == 0


def test_earlier_stages_have_the_same_functions() -> None:
    """The compiler names the function after the loop."""
    assert hoisted_loops(parse(CALL)) == {"loop.3"}
    before = loop_of()
    facts = LoopFacts({}, {}, frozenset({"loop"}))
    kernels = find_kernels(Numbering().number(before), "cpu", facts)
    assert [kernel.name for kernel in kernels if kernel.launches] == ["loop"]
    plain = find_kernels(Numbering().number(before), "cpu", NOTHING_MORE)
    assert sum(item.launches for item in plain) == 7 * 2  # next and y


def test_the_page_has_each_kind_of_thunk() -> None:
    make = runpy.run_path(str(ROOT / "docs" / "make_launches.py"))
    page = (ROOT / "docs" / "launches.md").read_text(encoding="utf-8")
    assert make["with_tables"](page) == page
