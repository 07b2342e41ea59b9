"""Which instruction is which: small modules by hand, and every stage of the sample dumps."""

from collections import Counter
from pathlib import Path

import pytest
from conformance.matching import check_stages, faults
from sample_kinds import all_samples

from fusionscope.dump import open_dump
from fusionscope.history.changes import Edit, EditKind, find_edits, find_fusion_changes
from fusionscope.history.matching import Matching, match
from fusionscope.history.pairing import CERTAIN, MatchKind
from fusionscope.hlo import Module, parse

DUMPS = Path(__file__).resolve().parents[2] / "samples" / "dumps"
SUM = """%sum (a: f32[], b: f32[]) -> f32[] {
 %a = f32[] parameter(0)
 %b = f32[] parameter(1)
 ROOT %c = f32[] add(%a, %b)
}
"""


def module(entry: str, *computations: str) -> Module:
    """A module of an entry with these lines, and of other computations."""
    return parse("HloModule m\n\n" + "\n".join(computations) + f"\nENTRY %main {{\n{entry}\n}}\n")


def matched(before: Module, after: Module) -> Matching:
    """What was found of two modules, which must be without contradictions."""
    matching = match(before, after)
    changes = find_fusion_changes(matching, "gpu")
    assert list(faults(matching, find_edits(matching), changes)) == []
    return matching


def names(matching: Matching) -> dict[str, str]:
    return {first.name: second.name for first, second in matching.after.items()}


def steps(matching: Matching) -> dict[str, MatchKind]:
    return {first.name: step for first, step in matching.steps.items()}


def edited(matching: Matching) -> dict[str, tuple[EditKind, tuple[str, ...]]]:
    """What became of each instruction that is not what it was."""
    return {edit.instruction.name: (edit.kind, fields(edit)) for edit in find_edits(matching)}


def fields(edit: Edit) -> tuple[str, ...]:
    return tuple(field for field, _, _ in edit.fields)


def test_value():
    """The same from the same, whatever it is called and wherever it stands."""
    before = """
 %p = f32[8] parameter(0)
 %x = f32[8] sine(%p)
 %y = f32[8] cosine(%p)
 ROOT %r = f32[8] subtract(%x, %y)"""
    after = """
 %q = f32[8] parameter(0)
 %x = f32[8] cosine(%q)
 %y = f32[8] sine(%q)
 ROOT %s = f32[8] subtract(%y, %x)"""
    matching = matched(module(before), module(after))
    assert names(matching) == {"p": "q", "x": "y", "y": "x", "r": "s"}
    assert set(steps(matching).values()) == {MatchKind.VALUE}
    assert edited(matching) == {}


def test_use():
    """Of both negations the same is made, but they read something else."""
    before = """
 %p = f32[8] parameter(0)
 %q = f32[8] parameter(1)
 %x = f32[8] negate(%p)
 ROOT %r = f32[8] tanh(%x)"""
    after = """
 %p = f32[8] parameter(0)
 %q = f32[8] parameter(1)
 %y = f32[8] negate(%q)
 ROOT %s = f32[8] tanh(%y)"""
    matching = matched(module(before), module(after))
    assert names(matching) == {"p": "p", "q": "q", "x": "y", "r": "s"}
    assert steps(matching) == {
        "p": MatchKind.VALUE,
        "q": MatchKind.VALUE,
        "x": MatchKind.USE,
        "r": MatchKind.USE,
    }
    assert edited(matching) == {"y": (EditKind.UPDATED, ("operands",))}


# The addition reads something else, and something else is made of it.
ADDED = """
 %p = f32[8] parameter(0)
 %q = f32[8] parameter(1)
 %x = f32[8] add(%p, %p){origin}
 ROOT %r = f32[8] negate(%x)"""
ADDED_OTHER = """
 %p = f32[8] parameter(0)
 %q = f32[8] parameter(1)
 %{name} = f32[8] add({operands}){origin}
 %s = f32[8] sine(%{name})
 ROOT %t = f32[8] multiply(%s, %q)"""
ORIGIN = ', metadata={op_name="jit(f)/add" source_file="f.py" source_line=3}'


def test_name():
    before = module(ADDED.format(origin=""))
    matching = matched(before, module(ADDED_OTHER.format(name="x", operands="%p, %q", origin="")))
    assert names(matching)["x"] == "x"
    assert steps(matching)["x"] is MatchKind.NAME
    assert edited(matching)["x"] == (EditKind.UPDATED, ("operands",))


def test_metadata():
    before = module(ADDED.format(origin=ORIGIN))
    after = module(ADDED_OTHER.format(name="y", operands="%q, %q", origin=ORIGIN))
    matching = matched(before, after)
    assert names(matching)["x"] == "y"
    assert steps(matching)["x"] is MatchKind.METADATA
    assert edited(matching)["y"] == (EditKind.UPDATED, ("operands",))


def test_metadata_of_two_tells_nothing():
    """Two additions of one line of the program: which of them it was cannot be told by that."""
    before = module(ADDED.format(origin=ORIGIN))
    after = module(
        ADDED_OTHER.format(name="y", operands="%q, %q", origin=ORIGIN).replace(
            " %s =", f" %z = f32[8] add(%y, %q){ORIGIN}\n %s ="
        )
    )
    assert steps(matched(before, after)).get("x") is not MatchKind.METADATA


def test_neighbours():
    """Another operation from the same to the same."""
    before = """
 %p = f32[8] parameter(0)
 %q = f32[8] parameter(1)
 %x = f32[8] add(%p, %q)
 ROOT %r = f32[8] negate(%x)"""
    after = """
 %p = f32[8] parameter(0)
 %q = f32[8] parameter(1)
 %y = f32[8] maximum(%p, %q)
 ROOT %s = f32[8] negate(%y)"""
    matching = matched(module(before), module(after))
    assert names(matching) == {"p": "p", "q": "q", "x": "y", "r": "s"}
    assert steps(matching)["x"] is MatchKind.NEIGHBOURS
    assert edited(matching) == {"y": (EditKind.UPDATED, ("opcode",))}


FUSED = """%inside (a: f32[8], b: f32[8]) -> f32[8] {
 %a = f32[8] parameter(0)
 %b = f32[8] parameter(1)
 %c = f32[8] add(%a, %b)
 ROOT %d = f32[8] negate(%c)
}
"""
FUSION = """
 %p = f32[8] parameter(0)
 %q = f32[8] parameter(1)
 ROOT %f = f32[8] fusion(%p, %q), kind=kLoop, calls=%inside"""


def test_place():
    """A fusion, its parameters and a tuple compute nothing."""
    second = FUSED.replace("inside", "other").replace("%a", "%g").replace("%b", "%h")
    matching = matched(
        module(FUSION, FUSED),
        module(FUSION.replace("inside", "other").replace("%f", "%fusion.7"), second),
    )
    assert names(matching) == {
        **{name: name for name in "pqcd"},
        **{"f": "fusion.7", "a": "g", "b": "h"},
    }
    actual = steps(matching)
    assert {name for name, step in actual.items() if step is MatchKind.PLACE} == {"f", "a", "b"}
    assert {actual[name] for name in "pqcd"} == {MatchKind.VALUE}
    assert edited(matching) == {}


def test_every_step_has_a_test():
    assert {f"test_{step.value}" for step in MatchKind} <= globals().keys()


def test_fusions_make_no_difference_to_what_is_in_them():
    unfused = """
 %p = f32[8] parameter(0)
 %q = f32[8] parameter(1)
 %x = f32[8] add(%p, %q)
 ROOT %y = f32[8] negate(%x)"""
    for before, after in (
        (module(unfused), module(FUSION, FUSED)),
        (module(FUSION, FUSED), module(unfused)),
    ):
        matching = matched(before, after)
        actual = {tuple(sorted(pair)) for pair in names(matching).items()}
        assert actual == {("p", "p"), ("q", "q"), ("c", "x"), ("d", "y")}
        assert set(steps(matching).values()) == {MatchKind.VALUE}
        kinds = Counter(edit.kind for edit in find_edits(matching))
        assert kinds.pop(EditKind.MOVED) == 2  # both operations
        assert sum(kinds.values()) == 3  # the fusion and its two parameters


CONSTANT_SHARED = """
 %p = f32[] parameter(0)
 %one = f32[] constant(1)
 %x = f32[] add(%p, %one)
 ROOT %y = f32[] multiply(%x, %one)"""
CONSTANT_SPLIT = """
 %p = f32[] parameter(0)
 %one = f32[] constant(1)
 %x = f32[] add(%p, %one)
 %one.1 = f32[] constant(1)
 ROOT %y = f32[] multiply(%x, %one.1)"""


def test_shared_constant():
    shared, split = module(CONSTANT_SHARED), module(CONSTANT_SPLIT)
    matching = matched(shared, split)
    assert set(steps(matching).values()) == {MatchKind.VALUE}
    (edit,) = find_edits(matching)
    assert edit.kind is EditKind.COPIED
    assert edit.before.name == "one"
    assert {edit.after.name, names(matching)["one"]} == {"one", "one.1"}

    matching = matched(split, shared)
    (edit,) = find_edits(matching)
    assert edit.kind is EditKind.MERGED
    assert edit.before.name in ("one", "one.1")
    assert edit.after.name == "one"


LOOP = """
%body (v: (s32[], f32[8])) -> (s32[], f32[8]) {
 %v = (s32[], f32[8]) parameter(0)
 %i = s32[] get-tuple-element(%v), index=0
 %x = f32[8] get-tuple-element(%v), index=1
 %one = s32[] constant(1)
 %i2 = s32[] add(%i, %one)
 %x2 = f32[8] sine(%x)
 ROOT %next = (s32[], f32[8]) tuple(%i2, %x2)
}
%condition (w: (s32[], f32[8])) -> pred[] {
 %w = (s32[], f32[8]) parameter(0)
 %j = s32[] get-tuple-element(%w), index=0
 %n = s32[] constant(10)
 ROOT %less = pred[] compare(%j, %n), direction=LT
}
"""
LOOP_ENTRY = """
 %zero = s32[] constant(0)
 %p = f32[8] parameter(0)
 %start = (s32[], f32[8]) tuple(%zero, %p)
 %loop = (s32[], f32[8]) while(%start), condition=%condition, body=%body
 ROOT %r = f32[8] get-tuple-element(%loop), index=1"""
# The same with a variable in the middle that counts nothing that matters.
WIDER = """
%body (v: (s32[], s32[4], f32[8])) -> (s32[], s32[4], f32[8]) {
 %v = (s32[], s32[4], f32[8]) parameter(0)
 %i = s32[] get-tuple-element(%v), index=0
 %u = s32[4] get-tuple-element(%v), index=1
 %x = f32[8] get-tuple-element(%v), index=2
 %one = s32[] constant(1)
 %i2 = s32[] add(%i, %one)
 %x2 = f32[8] sine(%x)
 ROOT %next = (s32[], s32[4], f32[8]) tuple(%i2, %u, %x2)
}
%condition (w: (s32[], s32[4], f32[8])) -> pred[] {
 %w = (s32[], s32[4], f32[8]) parameter(0)
 %j = s32[] get-tuple-element(%w), index=0
 %n = s32[] constant(10)
 ROOT %less = pred[] compare(%j, %n), direction=LT
}
"""
WIDER_ENTRY = """
 %zero = s32[] constant(0)
 %none = s32[4] constant({0, 0, 0, 0})
 %p = f32[8] parameter(0)
 %start = (s32[], s32[4], f32[8]) tuple(%zero, %none, %p)
 %loop = (s32[], s32[4], f32[8]) while(%start), condition=%condition, body=%body
 ROOT %r = f32[8] get-tuple-element(%loop), index=2"""


@pytest.mark.parametrize("wider_first", [False, True])
def test_loop_variable_more(wider_first):
    """Elements behind the new variable are counted differently, and are what they were."""
    modules = [module(LOOP_ENTRY, LOOP), module(WIDER_ENTRY, WIDER)]
    before, after = modules[::-1] if wider_first else modules
    matching = matched(before, after)
    same = ("i", "x", "one", "i2", "x2", "j", "n", "less", "zero", "p", "loop", "r")
    assert [names(matching).get(name) for name in same] == [*same]
    kind = EditKind.REMOVED if wider_first else EditKind.INSERTED
    actual = edited(matching)
    assert {name for name, (edit, _) in actual.items() if edit is kind} == {"u", "none"}
    # What the loop carries has another shape, with one thing more in it.
    reported = {n for n, (edit, what) in actual.items() if edit is not kind and what != ("shape",)}
    assert reported <= {"loop", "next", "start"}


def test_entry_parameter_in_front():
    before = """
 %p = f32[8] parameter(0)
 %q = f32[8] parameter(1)
 ROOT %r = f32[8] subtract(%p, %q)"""
    after = """
 %key = u32[2] parameter(0)
 %p.1 = f32[8] parameter(1)
 %q.1 = f32[8] parameter(2)
 ROOT %r.1 = f32[8] subtract(%p.1, %q.1)"""
    matching = matched(module(before), module(after))
    assert names(matching) == {"p": "p.1", "q": "q.1", "r": "r.1"}
    assert edited(matching) == {"key": (EditKind.INSERTED, ())}


REDUCED = """
 %p = f32[8,8] parameter(0)
 %zero = f32[] constant(0)
 %x = f32[8] reduce(%p, %zero), dimensions={{0}}, to_apply=%sum
 %y = f32[8] reduce(%p, %zero), dimensions={{1}}, to_apply=%{other}
 ROOT %r = f32[8] add(%x, %y)"""


def test_shared_reducer():
    """A sum is a sum: of a computation that is shared no longer, one more copy is told."""
    again = SUM.replace("sum", "sum.1").replace("%a", "%d").replace("%b", "%e")
    again = again.replace("%c ", "%f ")
    shared = module(REDUCED.format(other="sum"), SUM)
    local = module(REDUCED.format(other="sum.1"), SUM, again)
    matching = matched(shared, local)
    assert set(names(matching).items()) >= {(n, n) for n in ("p", "zero", "x", "y", "r")}
    assert set(steps(matching).values()) <= CERTAIN
    edits = find_edits(matching)
    assert {edit.kind for edit in edits} == {EditKind.COPIED}
    assert sorted(edit.instruction.opcode for edit in edits) == ["add", "parameter", "parameter"]

    edits = find_edits(matched(local, shared))
    assert {edit.kind for edit in edits} == {EditKind.MERGED}
    assert len(edits) == 3


CALLED = """%function (a: f32[8], b: f32[8]) -> f32[8] {
 %a = f32[8] parameter(0)
 %b = f32[8] parameter(1)
 %c = f32[8] subtract(%a, %b)
 ROOT %d = f32[8] sine(%c)
}
"""
CALL = """
 %p = f32[8] parameter(0)
 %q = f32[8] parameter(1)
 %call = f32[8] call(%p, %q), to_apply=%function
 ROOT %r = f32[8] negate(%call)"""
INLINED = """
 %p = f32[8] parameter(0)
 %q = f32[8] parameter(1)
 %c.1 = f32[8] subtract(%p, %q)
 %d.1 = f32[8] sine(%c.1)
 ROOT %r = f32[8] negate(%d.1)"""


def test_inlined_call():
    matching = matched(module(CALL, CALLED), module(INLINED))
    assert names(matching) == {"p": "p", "q": "q", "c": "c.1", "d": "d.1", "r": "r"}
    assert set(steps(matching).values()) == {MatchKind.VALUE}
    moved, gone = (EditKind.MOVED, ()), (EditKind.REMOVED, ())
    assert edited(matching) == {"c.1": moved, "d.1": moved, "a": gone, "b": gone, "call": gone}


def test_call_that_two_shared():
    """Every caller gets a computation of its own, as flatten-call-graph does."""
    shared = """
 %p = f32[8] parameter(0)
 %q = f32[8] parameter(1)
 %x = f32[8] call(%p, %q), to_apply=%function
 %y = f32[8] call(%q, %p), to_apply=%function
 ROOT %r = f32[8] multiply(%x, %y)"""
    local = shared.replace("(%q, %p), to_apply=%function", "(%q, %p), to_apply=%function.clone")
    clone = CALLED.replace("%function", "%function.clone")
    for name in "abcd":
        clone = clone.replace(f"%{name} ", f"%{name}.1 ").replace(f"%{name})", f"%{name}.1)")
        clone = clone.replace(f"%{name},", f"%{name}.1,")
    matching = matched(module(shared, CALLED), module(local, CALLED, clone))
    assert {names(matching)[name] for name in "pqr"} == set("pqr")
    kinds = Counter((e.kind, e.instruction.opcode) for e in find_edits(matching))
    assert kinds[EditKind.COPIED, "subtract"] == kinds[EditKind.COPIED, "sine"] == 1
    assert {opcode for _, opcode in kinds} <= {"call", "parameter", "sine", "subtract"}
    assert not {EditKind.INSERTED, EditKind.REMOVED} & {
        kind for kind, opcode in kinds if opcode in ("sine", "subtract")
    }


def test_computation_that_is_left_behind():
    """Nothing calls it any more: priority-fusion leaves those that it fused into others."""
    last = "%last {\n %g = f32[8] parameter(0)\n %h = f32[8] sine(%g)\n"
    last += " ROOT %k = f32[8] tanh(%h)\n}\n"
    whole = FUSED.replace("inside", "last").replace("%a", "%g").replace("%b", "%e")
    whole = (
        whole.replace("%c", "%c.1")
        .replace("ROOT %d", "%d.1")
        .replace("\n}", "\n %h = f32[8] sine(%d.1)\n ROOT %k = f32[8] tanh(%h)\n}")
    )
    before = FUSION.replace("ROOT ", "") + "\n ROOT %r = f32[8] fusion(%f), kind=kLoop, calls=%last"
    after = FUSION.replace("%f", "%r").replace("inside", "last")
    matching = matched(module(before, FUSED, last), module(after, whole, FUSED))
    actual = names(matching)
    same = {"p": "p", "q": "q", "c": "c.1", "d": "d.1", "h": "h", "k": "k", "r": "r"}
    assert {name: actual.get(name) for name in same} == same


REDUCE_ALL = """
 %p = f32[8] parameter(0)
 %x = f32[8] all-reduce(%p), channel_id=1, replica_groups={{0,1}}, to_apply=%sum
 ROOT %r = f32[8] negate(%x)"""
REDUCE_ALL_START = """
 %p = f32[8] parameter(0)
 %start = f32[8] all-reduce-start(%p), channel_id=1, replica_groups={{0,1}}, to_apply=%sum
 %done = f32[8] all-reduce-done(%start)
 ROOT %r = f32[8] negate(%done)"""
SCATTER = """
 %p = f32[8] parameter(0)
 %x = f32[4] reduce-scatter(%p), replica_groups={{0,1}}, dimensions={0}, to_apply=%sum
 ROOT %r = f32[4] negate(%x)"""
SCATTER_START = """
 %p = f32[8] parameter(0)
 %start = ((f32[8]), f32[4]) async-start(%p), calls=%wrapped
 %done = f32[4] async-done(%start)
 ROOT %r = f32[4] negate(%done)"""
SCATTER_WRAPPED = """%wrapped (s: f32[8]) -> f32[4] {
 %s = f32[8] parameter(0)
 ROOT %x.1 = f32[4] reduce-scatter(%s), replica_groups={{0,1}}, dimensions={0}, to_apply=%sum
}
"""


def test_collective_with_start_and_done():
    matching = matched(module(REDUCE_ALL, SUM), module(REDUCE_ALL_START, SUM))
    assert names(matching)["x"] == "start"
    assert {name: names(matching)[name] for name in "pr"} == {"p": "p", "r": "r"}
    assert set(steps(matching).values()) <= CERTAIN
    actual = edited(matching)
    assert actual.pop("done") == (EditKind.INSERTED, ())
    assert actual == {"start": (EditKind.UPDATED, ("opcode",))}


def test_collective_inside_an_async_pair():
    matching = matched(module(SCATTER, SUM), module(SCATTER_START, SUM, SCATTER_WRAPPED))
    assert names(matching)["x"] == "x.1"
    assert {name: names(matching)[name] for name in "pr"} == {"p": "p", "r": "r"}
    assert set(steps(matching).values()) <= CERTAIN
    actual = edited(matching)
    assert actual.pop("x.1") == (EditKind.MOVED, ())
    assert actual == dict.fromkeys(("start", "done", "s"), (EditKind.INSERTED, ()))


def test_layouts():
    """As layout-assignment leaves it: with copies around, and names as they were."""
    before = """
 %p = f32[8,4]{1,0} parameter(0)
 %x = f32[8,4]{1,0} sine(%p)
 ROOT %y = f32[8,4]{1,0} negate(%x)"""
    after = """
 %p = f32[8,4]{1,0} parameter(0)
 %copy = f32[8,4]{0,1} copy(%p)
 %x = f32[8,4]{0,1} sine(%copy)
 %y = f32[8,4]{0,1} negate(%x)
 ROOT %back = f32[8,4]{1,0} copy(%y)"""
    matching = matched(module(before), module(after))
    assert names(matching) == {"p": "p", "x": "x", "y": "y"}
    actual = edited(matching)
    assert actual["copy"] == actual["back"] == (EditKind.INSERTED, ())
    assert "layout" in actual["x"][1]
    assert actual["y"] == (EditKind.UPDATED, ("layout",))


def test_precision():
    """The middle is computed in another precision, with conversions around it."""
    before = """
 %p = f32[8] parameter(0)
 %x = bf16[8] convert(%p)
 %y = bf16[8] sine(%x), metadata={op_name="jit(f)/sin"}
 %z = bf16[8] multiply(%y, %y), metadata={op_name="jit(f)/mul"}
 ROOT %r = f32[8] convert(%z)"""
    after = """
 %p = f32[8] parameter(0)
 %x = bf16[8] convert(%p)
 %up = f32[8] convert(%x)
 %w = f32[8] sine(%up), metadata={op_name="jit(f)/sin"}
 %down = bf16[8] convert(%w)
 %up.1 = f32[8] convert(%down)
 %z = f32[8] multiply(%up.1, %up.1), metadata={op_name="jit(f)/mul"}
 %z.down = bf16[8] convert(%z)
 ROOT %r = f32[8] convert(%z.down)"""
    matching = matched(module(before), module(after))
    assert {name: names(matching)[name] for name in "xyz"} == {"x": "x", "y": "w", "z": "z"}
    actual = edited(matching)
    assert "shape" in actual["w"][1]
    assert "shape" in actual["z"][1]
    inserted = {name for name, (kind, _) in actual.items() if kind is EditKind.INSERTED}
    assert len(inserted) == 4
    assert not any(kind is EditKind.REMOVED for kind, _ in actual.values())


PRODUCT = """
 %p = f32[64,64] parameter(0)
 %q = f32[64,64] parameter(1)
 {product}, metadata={{op_name="jit(f)/dot_general"}}
 %s = f32[64,64] sine({result})
 ROOT %r = f32[64,64] add(%s, {result})"""
DOT = PRODUCT.format(
    product="%dot = f32[64,64] dot(%p, %q), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    result="%dot",
)
GEMM = PRODUCT.format(
    product="%custom-call = (f32[64,64], s8[33554432]) custom-call(%p, %q), "
    'custom_call_target="__cublas$lt$matmul"',
    result="%element",
).replace(" %s =", " %element = f32[64,64] get-tuple-element(%custom-call), index=0\n %s =")


def test_library_call_that_returns_its_workspace():
    """What reads the product reads the same as before."""
    matching = matched(module(DOT), module(GEMM))
    assert names(matching) == {"p": "p", "q": "q", "dot": "custom-call", "s": "s", "r": "r"}
    actual = edited(matching)
    assert actual.pop("custom-call") == (EditKind.UPDATED, ("opcode", "shape"))
    assert actual.keys() == {"element"}


def test_element_of_a_library_call_is_no_copy():
    assert edited(matched(module(DOT), module(GEMM)))["element"] == (EditKind.INSERTED, ())


def test_convolution_that_becomes_a_library_call():
    """Real text: cuDNN's convolution, then with bias and activation in it."""
    (dumped,) = open_dump(DUMPS / "h100" / "convolution").modules
    stages = {stage.name.after: dumped.read(stage) for stage in dumped.stages}
    call, whole = stages["conv-rewriter"], stages["cudnn-fused-convolution-rewriter"]
    (index,) = (i for i, s in enumerate(dumped.stages) if s.name.after == "conv-rewriter")
    first = dumped.read(dumped.stages[index - 1])
    matching = matched(first, call)
    ((convolution, custom_call),) = (
        pair for pair in matching.after.items() if pair[0].opcode != pair[1].opcode
    )
    assert (convolution.opcode, custom_call.name) == ("convolution", "cudnn-conv")
    assert {edit.before for edit in find_edits(matching)} == {convolution, None}
    assert not list(matching.removed)
    assert all(i.opcode == "get-tuple-element" for i in matching.inserted)

    matching = matched(call, whole)
    assert names(matching)["cudnn-conv"] == "cudnn-conv-bias-activation.2"
    removed = Counter(i.opcode for i in matching.removed)
    assert removed == Counter(["add", "broadcast", "broadcast", "constant", "maximum"])
    assert all(i.opcode == "get-tuple-element" for i in matching.inserted)


STILL_THERE = """
 %p = f32[8] parameter(0)
 %q = f32[8] parameter(1)
 %x = f32[8] add(%p, %p)
 %y = f32[8] add(%p, %p)
 %z = f32[8] add(%q, %q)
 %n = f32[8] negate(%y)
 ROOT %r = (f32[8], f32[8], f32[8]) tuple(%x, %n, %z)"""


def test_what_is_still_there_is_matched_with_nothing_else():
    """One ``p + p`` less, one ``q + q`` more that has its name, and neither stands for the other:
    they are read in different places."""
    after = """
 %p = f32[8] parameter(0)
 %q = f32[8] parameter(1)
 %x = f32[8] add(%p, %p)
 %y = f32[8] add(%q, %q)
 %z = f32[8] add(%q, %q)
 %n = f32[8] negate(%x)
 %s = f32[8] sine(%y)
 ROOT %r = (f32[8], f32[8], f32[8], f32[8]) tuple(%x, %n, %z, %s)"""
    matching = matched(module(STILL_THERE), module(after))
    pairs = [pair for pair in matching.after.items() if pair[0].opcode == "add"]
    assert len(pairs) == 2
    for first, second in pairs:
        assert [i.name for i in first.operands] == [i.name for i in second.operands]
    kinds = Counter(edit.kind for edit in find_edits(matching) if edit.instruction.opcode == "add")
    assert kinds == {EditKind.COPIED: 1, EditKind.MERGED: 1}


def test_what_is_still_there_is_read_in_the_place_of_another():
    """Nothing else tells that ``y`` is another value now."""
    after = STILL_THERE.replace("%y = f32[8] add(%p, %p)", "%y.1 = f32[8] add(%q, %q)")
    after = after.replace("negate(%y)", "negate(%y.1)")
    matching = matched(module(STILL_THERE), module(after))
    (edit,) = find_edits(matching)
    assert (edit.kind, fields(edit)) == (EditKind.UPDATED, ("operands",))
    # Nothing tells x and y of the first module apart but what they are used for.
    assert (edit.before.name, edit.after.name) == ("y", "y.1")


@pytest.mark.slow
@pytest.mark.parametrize("dump", all_samples())
def test_every_stage_of_the_samples(dump, samples):
    """The checks of tools/conformance/matching.py, each true of any two modules."""
    dumped = samples.module(dump)
    counts: Counter[str] = Counter()
    assert list(check_stages(dumped, counts)) == []
    assert counts["stage pairs"] == len(dumped.stages) - 1 > 20
    # Passes change little at a time.
    assert counts["certain"] > 0.9 * counts["instructions"]


def test_the_checks_find_faults():
    """They are not true of everything: contradictions put into a matching are found."""
    before, after = module(CONSTANT_SHARED), module(CONSTANT_SPLIT)
    first, x = (before.entry.instruction(name) for name in ("one", "x"))

    def found(change) -> str:
        matching = match(before, after)
        edits = find_edits(matching)
        change(matching)
        return "\n".join(faults(matching, edits, ()))

    assert found(lambda matching: None) == ""
    assert "2 fates" in found(
        lambda matching: matching.merged.update({first: matching.after[first]})
    )
    assert "not inverse" in found(lambda matching: matching.after.pop(first))
    assert "is not of before" in found(lambda m: m.merged.update({m.after[x]: m.after[x]}))
    assert "told as copied" in found(lambda matching: matching.copies.clear())
    assert "carries no value" in found(lambda matching: matching.values.pop(first))
    assert "change of opcode is reported incorrectly" in found(
        lambda m: m.after.update({first: m.after[x], x: m.after[first]})
    )
