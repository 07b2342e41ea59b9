"""Calls in the places of kernels: what they hide comes back as it was."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fusionscope import parse
from fusionscope.dump import open_dump
from fusionscope.graph.buffers import find_steps, walk_control_flow
from fusionscope.graph.comparison import compare, find_divergence
from fusionscope.graph.mutable import MutableModule
from fusionscope.hlo import Module
from fusionscope.rerun.placeholders import TARGET, fill, hide
from fusionscope.rerun.plans import own_plan

DUMPS = sorted((Path(__file__).parents[2] / "samples" / "dumps" / "cpu").iterdir())

ENTRY = """ENTRY main {
  zero = s32[] constant(0)
  x = f32[64] parameter(0)
  y = f32[64] parameter(1)
  start = (s32[], f32[64], f32[64]) tuple(zero, x, y)
  ROOT end = (s32[], f32[64], f32[64]) while(start), condition=condition, body=body
}
"""
LOOP = (
    """
HloModule loop

body {
  state = (s32[], f32[64], f32[64]) parameter(0)
  count = s32[] get-tuple-element(state), index=0
  old = f32[64] get-tuple-element(state), index=1
  kept = f32[64] get-tuple-element(state), index=2
  one = s32[] constant(1)
  next_count = s32[] add(count, one)
  turned = f32[64] reverse(kept), dimensions={0}
  new = f32[64] multiply(old, old)
  sum = f32[64] add(turned, OPERAND)
  ROOT next = (s32[], f32[64], f32[64]) tuple(next_count, new, sum)
}

condition {
  state = (s32[], f32[64], f32[64]) parameter(0)
  count = s32[] get-tuple-element(state), index=0
  limit = s32[] constant(9)
  ROOT less = pred[] compare(count, limit), direction=LT
}

"""
    + ENTRY
)


def planned(dump: Path) -> Module:
    (module,) = open_dump(dump).modules
    return own_plan(module).after


@pytest.mark.parametrize("dump", DUMPS, ids=lambda dump: dump.name)
def test_nothing_but_placeholders_computes(dump: Path) -> None:
    graph = MutableModule(hide(planned(dump)))
    for computation in walk_control_flow(graph):
        for instruction in computation.instructions:
            if instruction.opcode == "custom-call":
                assert TARGET in instruction.attributes["custom_call_target"]
            else:
                assert instruction.opcode in {
                    "conditional",
                    "constant",
                    "get-tuple-element",
                    "opt-barrier",
                    "parameter",
                    "reshape",
                    "tuple",
                    "while",
                }
                assert "metadata" not in instruction.attributes_text


@pytest.mark.parametrize("dump", DUMPS, ids=lambda dump: dump.name)
def test_what_was_hidden_comes_back(dump: Path) -> None:
    plan = planned(dump)
    # The compiler takes the name of what has no origin for one, and makes a bitcast of a reshape.
    by_name = re.sub(
        r"(?m)^(  (?:ROOT )?%(\S+) = .*)$",
        r'\1, metadata={op_name="\2"}',
        "\n".join(_lines(hide(plan))),
    ).replace(" reshape(", " bitcast(")
    filled = fill(parse(by_name), plan)
    assert find_divergence(plan, filled) is None
    assert compare(plan, filled).has_same_kernels()
    assert filled.frames == plan.frames
    kernels = {
        instruction.name: instruction.attributes
        for instruction in plan.walk()
        if instruction.opcode == "fusion"
    }
    actual = {
        instruction.name: instruction.attributes
        for instruction in filled.walk()
        if instruction.opcode == "fusion"
    }
    assert set(actual) == set(kernels)
    for name, attributes in kernels.items():
        assert actual[name].get("metadata") == attributes.get("metadata")
        assert actual[name].get("backend_config") == attributes.get("backend_config")
    loops = [
        instruction.attributes.get("backend_config")
        for instruction in plan.walk()
        if _is_loop(instruction)
    ]
    assert [e.attributes.get("backend_config") for e in filled.walk() if _is_loop(e)] == loops


def _is_loop(instruction: object) -> bool:
    return getattr(instruction, "opcode", "") == "while"


def _lines(module: Module) -> list[str]:
    from fusionscope.hlo import to_text

    return to_text(module).splitlines()


def steps_of(operand: str) -> set[str]:
    graph = MutableModule(parse(LOOP.replace("OPERAND", operand)))
    return {step.name for step in find_steps(graph)}


def test_the_next_value_is_written_over_the_old_one_where_it_is_made_element_by_element() -> None:
    # What is turned round reads other elements than the one that it writes.
    assert steps_of("turned") == {"next_count", "new"}


def test_a_value_that_something_else_may_still_read_is_not_written_over() -> None:
    assert steps_of("old") == {"next_count"}


def test_what_reads_it_before_does_not_matter() -> None:
    text = LOOP.replace("multiply(old, old)", "multiply(old, sum)")
    graph = MutableModule(parse(_moved(text.replace("OPERAND", "old"))))
    assert {step.name for step in find_steps(graph)} == {"next_count", "new"}


def _moved(text: str) -> str:
    """With ``new`` behind ``sum``."""
    line = next(line for line in text.splitlines() if line.startswith("  new ="))
    remaining = text.replace(line + "\n", "")
    return remaining.replace("  ROOT next =", f"{line}\n  ROOT next =")


BRANCHES = (
    """
HloModule branches

kept {
  given = (f32[64], f32[64]) parameter(0)
  first = f32[64] get-tuple-element(given), index=0
  second = f32[64] get-tuple-element(given), index=1
  ROOT result = (f32[64], f32[64]) tuple(first, second)
}

computed {
  given = (f32[64]) parameter(0)
  value = f32[64] get-tuple-element(given), index=0
  first = f32[64] sine(value)
  second = f32[64] cosine(value)
  ROOT result = (f32[64], f32[64]) tuple(first, second)
}

body {
  state = (s32[], f32[64], f32[64]) parameter(0)
  count = s32[] get-tuple-element(state), index=0
  x = f32[64] get-tuple-element(state), index=1
  y = f32[64] get-tuple-element(state), index=2
  negative = f32[64] negate(x)
  before = (f32[64], f32[64]) tuple(negative, y)
  other = (f32[64]) tuple(OTHER)
  after = (f32[64], f32[64]) conditional(count, before, other), branch_computations={kept, computed}
  first = f32[64] get-tuple-element(after), index=0
  second = f32[64] get-tuple-element(after), index=1
  doubled = f32[64] add(second, second)
  ROOT next = (s32[], f32[64], f32[64]) tuple(count, first, doubled)
}

condition {
  state = (s32[], f32[64], f32[64]) parameter(0)
  ROOT more = pred[] custom-call(state), custom_call_target="more"
}

"""
    + ENTRY
)


@pytest.mark.parametrize(
    ("second", "steps"),
    [
        ("again", {"negative", "doubled"}),
        ("negative", {"doubled"}),  # which a branch computes with
        ("y", {"negative"}),
    ],
)
def test_the_next_value_is_written_over_one_that_a_branch_passes_on(
    second: str, steps: set[str]
) -> None:
    text = BRANCHES.replace("OTHER", second)
    if second == "again":
        text = text.replace(
            "  other =", "  again = f32[64] broadcast(count), dimensions={}\n  other ="
        )
    graph = MutableModule(parse(text))
    assert {step.name for step in find_steps(graph)} == steps


CONDITIONAL = """
HloModule conditional

kept {
  given = (f32[8], f32[8]) parameter(0)
  first = f32[8] get-tuple-element(given), index=0
  second = f32[8] get-tuple-element(given), index=1
  ROOT result = (f32[8], f32[8]) tuple(first, second)
}

computed {
  given = (f32[8], f32[8]) parameter(0)
  first = f32[8] get-tuple-element(given), index=0
  second = f32[8] get-tuple-element(given), index=1
  new = f32[8] negate(first)
  turned = f32[8] reverse(new), dimensions={0}
  ROOT result = (f32[8], f32[8]) tuple(RESULTS)
}

ENTRY main {
  which = s32[] parameter(0)
  x = f32[8] parameter(1)
  a = f32[8] sine(x)
  b = f32[8] cosine(x)
  given = (f32[8], f32[8]) tuple(a, b)
  ROOT end = (f32[8], f32[8]) conditional(which, given, given), branch_computations={kept, computed}
}
"""


@pytest.mark.parametrize(
    ("results", "steps"),
    [
        ("new, second", {"new"}),
        ("new, turned", {"new"}),
        ("turned, second", set()),  # it reads other elements than the one that it writes
        ("second, new", set()),  # which the other branch returns elsewhere
    ],
)
def test_a_branch_writes_over_what_another_one_passes_on(results: str, steps: set[str]) -> None:
    graph = MutableModule(parse(CONDITIONAL.replace("RESULTS", results)))
    assert {step.name for step in find_steps(graph)} == steps


def test_nothing_is_written_over_if_one_of_the_branches_needs_a_copy() -> None:
    text = CONDITIONAL.replace("RESULTS", "new, second").replace(
        "computed {",
        "again {\n  given = (f32[8], f32[8]) parameter(0)\n"
        "  first = f32[8] get-tuple-element(given), index=0\n  one = f32[8] sine(first)\n"
        "  ROOT result = (f32[8], f32[8]) tuple(first, first)\n}\n\ncomputed {",
    )
    both = text.replace("{kept, computed}", "{kept, computed, again}").replace(
        "given, given)", "given, given, given)"
    )
    graph = MutableModule(parse(both))
    assert {step.name for step in find_steps(graph)} == {"new"}
    graph = MutableModule(parse(both.replace("tuple(first, first)", "tuple(one, first)")))
    assert not find_steps(graph)


def test_a_branch_returns_what_it_wrote_after_all_that_reads_it() -> None:
    """A copy of it, which the compiler makes before it removes it, would come too early."""
    module = parse(CONDITIONAL.replace("RESULTS", "new, second"))
    hidden = hide(module)
    computed = next(c for c in hidden.computations if c.name == "computed")
    returned = computed.root.operands[0]
    (barrier,) = returned.operands
    assert barrier.opcode == "opt-barrier"
    names = [part.attributes["custom_call_target"] for part in barrier.operands[0].operands]
    assert names == [f'"{TARGET}new"', f'"{TARGET}turned"']
    assert computed.root.operands[1].operands[0].opcode == "opt-barrier"  # of what it was given


def test_the_next_value_is_written_over_one_that_a_loop_inside_started_with() -> None:
    outer = """
outer {
  state = (s32[], f32[64], f32[64]) parameter(0)
  count = s32[] get-tuple-element(state), index=0
  x = f32[64] get-tuple-element(state), index=1
  y = f32[64] get-tuple-element(state), index=2
  start = (s32[], f32[64], f32[64]) tuple(count, x, y)
  inner = (s32[], f32[64], f32[64]) while(start), condition=condition, body=body
  last = f32[64] get-tuple-element(inner), index=1
  negative = f32[64] negate(last)
  ROOT next = (s32[], f32[64], f32[64]) tuple(count, negative, y)
}

ENTRY main {"""
    text = LOOP.replace("OPERAND", "turned").replace("body=body", "body=outer")
    graph = MutableModule(parse(text.replace("ENTRY main {", outer)))
    assert {step.name for step in find_steps(graph)} == {"next_count", "new", "negative"}


def test_a_program_may_write_over_what_it_was_given_for_that() -> None:
    text = """
HloModule given, input_output_alias={ {}: (0, {}, may-alias) }

ENTRY main {
  x = f32[8] parameter(0)
  ROOT y = f32[8] negate(x)
}
"""
    graph = MutableModule(parse(text))
    ((kernel, (pair,)),) = find_steps(graph).items()
    assert (kernel.name, pair.slot, pair.output) == ("y", 0, ())
    assert "output_to_operand_aliasing={{}: (0, {})}" in "".join(_lines(hide(parse(text))))


def test_an_update_in_place_says_so() -> None:
    module = parse("""
HloModule update

ENTRY main {
  x = f32[8] parameter(0)
  u = f32[2] parameter(1)
  i = s32[] parameter(2)
  ROOT y = f32[8] dynamic-update-slice(x, u, i)
}
""")
    (call,) = [
        instruction for instruction in hide(module).walk() if instruction.opcode == "custom-call"
    ]
    assert call.attributes["output_to_operand_aliasing"] == "{{}: (0, {})}"


def test_bitcasts_are_looked_through_and_come_back() -> None:
    module = parse("""
HloModule viewed

ENTRY main {
  x = f32[4,2]{1,0} parameter(0)
  flat = f32[8]{0} bitcast(x)
  ROOT y = f32[8]{0} negate(flat)
}
""")
    hidden = hide(module)
    assert [instruction.opcode for instruction in hidden.walk()] == ["parameter", "custom-call"]
    assert find_divergence(fill(hidden, module), module) is None


def test_a_bitcast_that_a_reshape_can_express_is_left_to_the_compiler() -> None:
    module = parse("""
HloModule viewed

ENTRY main {
  x = f32[4,2]{1,0} parameter(0)
  ROOT flat = f32[8]{0} bitcast(x)
}
""")
    assert [instruction.opcode for instruction in hide(module).walk()] == ["parameter", "reshape"]


def test_a_bitcast_that_is_a_result_has_a_buffer_of_its_own() -> None:
    module = parse("""
HloModule viewed

ENTRY main {
  x = f32[4,2]{0,1} parameter(0)
  ROOT turned = f32[2,4]{1,0} bitcast(x)
}
""")
    hidden = hide(module)
    assert [instruction.opcode for instruction in hidden.walk()] == ["parameter", "custom-call"]
    filled = [instruction.opcode for instruction in fill(hidden, module).walk()]
    assert filled == ["parameter", "copy", "bitcast"]


def test_a_bitcast_that_alone_holds_a_result_needs_no_other_buffer() -> None:
    module = parse("""
HloModule viewed

ENTRY main {
  x = f32[4,2]{0,1} parameter(0)
  y = f32[4,2]{0,1} negate(x)
  turned = f32[2,4]{1,0} bitcast(y)
  ROOT results = (f32[2,4]{1,0}) tuple(turned)
}
""")
    assert find_divergence(fill(hide(module), module), module) is None


@pytest.mark.parametrize(
    ("saved", "alias", "has_copy"),
    [
        ("view", "", False),
        ("negate(view)", "", True),  # the loop writes over it
        ("view", ", input_output_alias={ {}: (0, {}, may-alias) }", True),
    ],
)
def test_a_bitcast_of_an_argument_that_a_loop_only_reads_needs_no_other_buffer(
    saved: str, alias: str, has_copy: bool
) -> None:
    computed = "" if saved == "view" else f"  kept = f32[8,8]{{0,1}} {saved}\n"
    text = f"""
HloModule loop{alias}

body {{
  state = (f32[64], f32[8,8]{{0,1}}) parameter(0)
  old = f32[64] get-tuple-element(state), index=0
  view = f32[8,8]{{0,1}} get-tuple-element(state), index=1
{computed}  flat = f32[64] bitcast(view)
  new = f32[64] add(old, flat)
  ROOT next = (f32[64], f32[8,8]{{0,1}}) tuple(new, {"kept" if computed else "view"})
}}

condition {{
  state = (f32[64], f32[8,8]{{0,1}}) parameter(0)
  old = f32[64] get-tuple-element(state), index=0
  ROOT more = pred[] custom-call(old), custom_call_target="more"
}}

ENTRY main {{
  x = f32[64] parameter(0)
  squares = f32[64] multiply(x, x)
  matrix = f32[8,8]{{0,1}} bitcast(x)
  start = (f32[64], f32[8,8]{{0,1}}) tuple(squares, matrix)
  end = (f32[64], f32[8,8]{{0,1}}) while(start), condition=condition, body=body
  ROOT first = f32[64] get-tuple-element(end), index=0
}}
"""
    module = parse(text)
    filled = fill(hide(module), module)
    assert any(instruction.opcode == "copy" for instruction in filled.walk()) is has_copy
