"""Two callers that share a computation, or call equal ones, say the same."""

import pytest

from fusionscope.history.changes import find_changes, is_incidental
from fusionscope.hlo import parse

SUM = """{name} {{
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] {opcode}(x, y)
}}

"""
REDUCED = """HloModule m

{computations}ENTRY e {{
  p = f32[64,48]{{1,0}} parameter(0)
  c = f32[] constant(0)
  a = f32[64]{{0}} reduce(p, c), dimensions={{1}}, to_apply=sum
  b = f32[48]{{0}} reduce(p, c), dimensions={{0}}, to_apply={other}
  ROOT t = (f32[64]{{0}}, f32[48]{{0}}) tuple(a, b)
}}
"""
# A function that only calls another one has no operation of its own.
CALLED = """HloModule m

inner {{
  q = f32[8] parameter(0)
  ROOT n = f32[8] negate(q)
}}

{computations}ENTRY e {{
  p = f32[8] parameter(0)
  a = f32[8] call(p), to_apply=outer
  b = f32[8] call(a), to_apply={other}
  ROOT r = f32[8] add(a, b)
}}
"""
OUTER = """{name} {{
  o = f32[8] parameter(0)
  ROOT c = f32[8] call(o), to_apply=inner{more}
}}

"""
NOTE = ', frontend_attributes={a="1"}'


def reduced(*opcodes):
    names = ("sum", "sum.1")[: len(opcodes)]
    item = zip(names, opcodes, strict=True)
    computations = "".join(SUM.format(name=name, opcode=opcode) for name, opcode in item)
    return REDUCED.format(computations=computations, other=names[-1])


def called(*notes):
    names = ("outer", "outer.1")[: len(notes)]
    item = zip(names, notes, strict=True)
    computations = "".join(OUTER.format(name=name, more=note) for name, note in item)
    return CALLED.format(computations=computations, other=names[-1])


def shown(first, second):
    actual = find_changes(parse(first), parse(second), None)
    assert not actual.fusions
    return [
        (str(edit.kind), edit.instruction.name, *edit.fields)
        for edit in actual.edits
        if not is_incidental(edit)
    ]


@pytest.mark.parametrize(
    ("shared", "apart"), [(reduced("add"), reduced("add", "add")), (called(""), called("", ""))]
)
def test_shared_or_apart(shared, apart):
    assert shown(shared, apart) == shown(apart, shared) == []


def test_an_attribute_of_a_call():
    """It is named, wherever the computation of the call is shared, or shared no longer."""
    edit = ("c", ("frontend_attributes", "", '{a="1"}'))
    assert shown(called(""), called(NOTE)) == [("updated", *edit)]
    assert shown(called("", ""), called("", NOTE)) == [("updated", *edit)]
    assert shown(called(""), called("", NOTE)) == [("copied", *edit)]
    (merged,) = shown(called("", NOTE), called(""))
    assert merged == ("merged", "c", ("frontend_attributes", '{a="1"}', ""))


def test_another_reducer_of_one_caller():
    names = {name for _, name, *_ in shown(reduced("add"), reduced("add", "maximum"))}
    assert "b" in names
