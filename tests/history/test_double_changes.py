"""Two changes at once: neither hides the other. See tools/conformance/double_changes.py."""

from collections import Counter
from pathlib import Path

import pytest
from conformance import double_changes
from conformance.matching import INJECTIONS, check_changed_near, check_doubled

from fusionscope.dump import open_dump
from fusionscope.history.changes import find_changes, is_incidental
from fusionscope.hlo import parse

DUMPS = Path(__file__).resolve().parents[2] / "samples" / "dumps"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["h100/dense", "h100/elementwise", "cpu/reductions", "cpu/loop"])
def test_both_are_reported(name):
    (module,) = open_dump(DUMPS / name).modules
    counts: Counter[str] = Counter()
    assert list(check_doubled(module, range(3), counts)) == []
    assert list(check_changed_near(module, range(3), counts)) == []
    assert all(counts[f"mutants: two changes, {place}"] for place in double_changes.PLACES)
    assert any(counts[f"mutants: {kind} and another"] for kind in INJECTIONS)


FUSION = """HloModule m

%body {{
  %q = f32[8,8]{{{inner}}} parameter(0)
  ROOT %n = f32[8,8]{{1,0}} {opcode}(%q)
}}

ENTRY %e {{
  %p = f32[8,8]{{{outer}}} parameter(0)
  ROOT %f = f32[8,8]{{1,0}} fusion(%p), kind=kLoop, calls=%body{more}
}}
"""
USUAL = {"inner": "1,0", "outer": "1,0", "opcode": "negate", "more": ""}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        # The parameter of a fusion has the layout of what is passed: one change, not two.
        ({"inner": "0,1", "outer": "0,1"}, {("p", "layout")}),
        # It has another one: both are reported, whatever else changes.
        ({"inner": "0,1", "outer": "1,0:S(1)"}, {("p", "layout"), ("q", "layout")}),
        ({"inner": "0,1", "opcode": "abs"}, {("q", "layout"), ("n", "opcode")}),
        (
            {"inner": "0,1", "more": ', frontend_attributes={a="1"}'},
            {("q", "layout"), ("f", "frontend_attributes")},
        ),
        # An operation that became another one is also placed elsewhere.
        (
            {"opcode": "abs", "more": ", sharding={manual}"},
            {("n", "opcode"), ("f", "sharding")},
        ),
    ],
)
def test_a_parameter_of_a_fusion(changed, expected):
    texts = FUSION.format(**USUAL), FUSION.format(**(USUAL | changed))
    edits = find_changes(*map(parse, texts), None).edits
    visible = [edit for edit in edits if edit.before and not is_incidental(edit)]
    assert {(edit.before.name, name) for edit in visible for name, _, _ in edit.fields} == expected
