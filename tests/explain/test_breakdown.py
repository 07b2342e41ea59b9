"""Where launches go: names as people know them, and sums that hold."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from fusionscope import parse
from fusionscope.dump import open_dump
from fusionscope.explain import ModuleFacts, Selection, explain
from fusionscope.facts.result import Branch, Grouping, SortedBy
from fusionscope.facts.scopes import origin_of, outermost_first, scope_of

DUMPS = Path(__file__).parents[2] / "samples" / "dumps"


@pytest.mark.parametrize(
    ("op_name", "scope"),
    [
        ("jit(step)/jvp(Model)/layer_0/dot_general", "Model layer_0 dot_general"),
        ("jit(step)/jit(main)/transpose(jvp(Model))/mul", "gradient of Model|mul"),
        ("jit(step)/transpose(jvp())/reduce_sum", "gradient reduce_sum"),
        ("jit(step)/jvp(jit(take_along_axis))/gather", "take_along_axis gather"),
        ("jit(step)/transpose(jvp(a/b))/mul", "gradient of a|b|mul"),
        ("jit(step)/while/body/closed_call/cell/tanh", "while cell tanh"),
        ("jit(step)/jit(_where)/select_n", "_where select_n"),
        ("jit(program)/hqd,hkd->hqk/dot_general", "hqd,hkd->hqk dot_general"),
        ("jit(step)/add", "add"),
        ("add", "add"),
        ("pjit(step)/vmap(jit(f))/sin", "f sin"),
    ],
)
def test_scopes_have_the_names_of_the_program(op_name: str, scope: str) -> None:
    assert scope_of(op_name) == tuple(scope.split("|" if "|" in scope else " "))


@cache
def facts(dump: str, **selection: object) -> ModuleFacts:
    return explain(open_dump(DUMPS / dump), Selection(**selection)).modules[0]  # type: ignore[arg-type]


def walk(branch: Branch) -> list[Branch]:
    actual = [branch]
    for item in actual:
        actual += item.children
    return actual


@pytest.mark.parametrize("by", Grouping)
@pytest.mark.parametrize("dump", ["cpu/cartpole", "h100/attention", "tpu-v5e/softmax"])
def test_a_tree_holds_every_launch_once(dump: str, by: Grouping) -> None:
    module = facts(dump, by=by)
    assert module.breakdown is not None
    tree = module.breakdown.tree
    assert tree.launches == module.summary.launches
    assert tree.bytes_moved == module.summary.bytes_moved
    if module.summary.time is not None:
        assert tree.time_us == pytest.approx(module.summary.time.microseconds)
    lines = module.breakdown.lines
    assert sum(line.launches for line in lines) == tree.launches
    assert sum(line.bytes_moved for line in lines) == tree.bytes_moved
    assert sum(line.refused_bytes for line in lines) == tree.refused_bytes
    assert sum(line.time_us for line in lines) == pytest.approx(tree.time_us)
    if by is not Grouping.KIND:
        assert tree.refused_bytes == sum(
            reason.bytes_saved for reason in module.summary.reasons.values()
        )
    for branch in walk(tree):
        assert sum(child.launches for child in branch.children) <= branch.launches
    assert sum(line.launches for line in module.breakdown.lines) == tree.launches


@pytest.mark.parametrize("sorted_by", SortedBy)
def test_branches_stand_in_the_order_asked_for(sorted_by: SortedBy) -> None:
    module = facts("cpu/cartpole", by=Grouping.FILE, sorted_by=sorted_by)
    assert module.breakdown is not None
    for branch in walk(module.breakdown.tree):
        figures = [child.figure(sorted_by) for child in branch.children]
        assert figures == sorted(figures, reverse=True)


def layers(count: int) -> str:
    lines = ["HloModule jit_f", "", "ENTRY main {", "  y0 = f32[64]{0} parameter(0)"]
    for n in range(1, count + 1):
        root = "ROOT " if n == count else ""
        name = f'metadata={{op_name="jit(f)/layer_{n}/cell/tanh"}}'
        lines.append(f"  {root}y{n} = f32[64]{{0}} tanh(y{n - 1}), {name}")
    return "\n".join([*lines, "}", ""])


def test_layers_are_one_branch(tmp_path: Path) -> None:
    (tmp_path / "m.txt").write_text(layers(12))
    (module,) = explain(open_dump(tmp_path / "m.txt")).modules
    assert module.breakdown is not None
    (branch,) = module.breakdown.tree.children
    assert (branch.name, branch.count, branch.launches) == ("layer_*/cell/tanh", 12, 12)


def test_a_copy_in_a_loop_is_from_where_the_loop_is() -> None:
    """The compiler inserts it between a parameter and a result, which have no names."""
    module = parse(
        """HloModule m

body {
  p = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[8] get-tuple-element(p), index=1
  c = f32[8] copy(x)
  ROOT t = (s32[], f32[8]) tuple(i, c)
}

condition {
  p = (s32[], f32[8]) parameter(0)
  ROOT go = pred[] constant(false)
}

ENTRY e {
  a = (s32[], f32[8]) parameter(0)
  ROOT w = (s32[], f32[8]) while(a), condition=condition, body=body, metadata={op_name="jit(f)/while"}
}
"""  # noqa: E501
    )
    copy = module.by_name["body"].instruction("c")
    assert origin_of(copy) is module.entry.root


def test_a_fusion_that_only_the_scheduler_named_is_from_what_is_inside() -> None:
    module = parse(
        """HloModule m

inside {
  p = f32[8] parameter(0)
  a = f32[8] abs(p), metadata={op_name="jit(f)/abs"}
  ROOT t = (f32[8]) tuple(a)
}

ENTRY e {
  x = f32[8] parameter(0)
  ROOT f = (f32[8]) fusion(x), kind=kLoop, calls=inside, metadata={scheduling_name="f"}
}
"""
    )
    assert origin_of(module.entry.root).op_name == "jit(f)/abs"


def test_no_kernel_of_a_softmax_is_said_to_be_from_the_compiler() -> None:
    """Its only kernel, ``triton_softmax``, has no name of the framework on its own."""
    for by in (Grouping.SCOPE, Grouping.FILE):
        breakdown = facts("h100/softmax", by=by).breakdown
        assert breakdown is not None
        assert [branch.name for branch in walk(breakdown.tree) if "compiler" in branch.name] == []


def test_frames_that_inlining_repeated_are_told_once() -> None:
    text = """HloModule m

FileNames
1 "model.py"

FunctionNames
1 "cell"
2 "step"

FileLocations
1 {file_name_id=1 function_name_id=1 line=3 end_line=3 column=1 end_column=2}
2 {file_name_id=1 function_name_id=2 line=9 end_line=9 column=1 end_column=2}

StackFrames
1 {file_location_id=2 parent_frame_id=1}
2 {file_location_id=1 parent_frame_id=2}
3 {file_location_id=2 parent_frame_id=3}
4 {file_location_id=1 parent_frame_id=4}


ENTRY main {
  x = f32[8]{0} parameter(0)
  ROOT y = f32[8]{0} tanh(x), metadata={op_name="jit(step)/tanh" stack_frame_id=4}
}
"""
    root = parse(text).entry.root
    assert len(root.stack) == 4
    assert [str(frame) for frame in outermost_first(root.stack)] == ["model.py:9", "model.py:3"]


def test_a_filter_restricts_the_tree() -> None:
    whole, part = (
        facts("cpu/cartpole", by=Grouping.SCOPE, op_name=name) for name in (None, "*_where*")
    )
    assert whole.breakdown is not None and part.breakdown is not None
    assert 0 < part.breakdown.tree.launches < whole.breakdown.tree.launches
    assert all("_where" in child.name for child in part.breakdown.tree.children)


@pytest.mark.parametrize(
    ("selection", "near"),
    [
        ({"producer": "tahn"}, "tanh"),
        ({"producer": "tanh", "consumer": "mul*"}, "tanh.1.0 -> concatenate.1.0"),
        ({"opcode": "concat"}, "concatenate"),
        ({"source": "concatenat.py"}, "samples/programs/concatenate.py"),
        ({"outcome": "gone"}, "fused"),
    ],
)
def test_what_selects_nothing_has_something_near(selection: dict[str, str], near: str) -> None:
    module = facts("h100/concatenate", **selection)
    assert not module.pairs
    assert near in module.near
