"""The replay makes what the compiler made, on every CPU dump that is kept here."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from fusionscope.dump import open_dump
from fusionscope.errors import UnusableInput
from fusionscope.graph.comparison import compare, find_divergence
from fusionscope.hlo import parse, to_text
from fusionscope.passes.context import PassContext
from fusionscope.rules.changes import Changes
from fusionscope.verify.verification import _Told, _with_record, order_notes, verify
from fusionscope.versions.choice import choose_compiler
from fusionscope.versions.context import read_context
from fusionscope.versions.known import load_compiler
from fusionscope.versions.runs import find_runs, replay

DUMPS = Path(__file__).parent.parent.parent / "samples" / "dumps"
CPU = sorted(path for folder in DUMPS.glob("cpu*") for path in folder.iterdir())


def name(dump: Path) -> str:
    return f"{dump.parent.name}/{dump.name}"


@pytest.mark.slow
@pytest.mark.parametrize("path", CPU, ids=name)
def test_the_replay_makes_the_module_that_the_compiler_made(path):
    dump = open_dump(path)
    actual = verify(dump, dump.modules)
    assert not actual.problems
    assert actual.agreement == 100
    for fusion_pass in actual.passes:
        assert fusion_pass.is_identical, fusion_pass.divergence
        assert fusion_pass.disagreement is None


def test_the_passes_that_act_on_a_cpu_are_all_among_them():
    acted = set()
    for path in CPU:
        for module in open_dump(path).modules:
            acted |= {run.pass_name for run in find_runs(module) if run.after is not None}
    assert acted == {fusion_pass.name for fusion_pass in load_compiler("cpu-0.12").passes}


@pytest.mark.slow
def test_records_are_compared_in_full():
    decisions = 0
    for path in CPU:
        dump = open_dump(path)
        recorded = sum(
            decision.kind.value in ("fused", "refused")
            for module in dump.modules
            for record in module.fusion_explorer
            for decision in record.decisions
        )
        compared = sum(run.decisions.compared for run in verify(dump, dump.modules).passes)
        assert compared == recorded
        decisions += compared
    assert decisions > 50


@pytest.mark.parametrize("path", [p for p in CPU if p.name == "concatenate"], ids=name)
def test_the_rules_are_those_of_the_version_that_made_the_dump(path):
    (module,) = open_dump(path).modules
    expected = "cpu-0.10" if "0.10" in path.parent.name else "cpu-0.12"
    assert choose_compiler(module).compiler == load_compiler(expected)


def test_other_rules_do_not_agree():
    dump = open_dump(DUMPS / "cpu" / "concatenate")
    compiler = Changes(disabled=("cpu-concat",)).apply(load_compiler("cpu-0.12"))
    actual = verify(dump, dump.modules, compiler)
    (fusion,) = [fusion_pass for fusion_pass in actual.passes if fusion_pass.pass_name == "fusion"]
    assert fusion.divergence is not None
    assert fusion.disagreement is not None
    assert actual.agreement < 100


BASE = """HloModule m

fused (p: f32[8], q: f32[8]) -> f32[8] {
  p = f32[8]{0} parameter(0)
  q = f32[8]{0} parameter(1)
  ROOT difference = f32[8]{0} subtract(p, q)
}

ENTRY main (a: f32[8], b: f32[8]) -> f32[8] {
  a = f32[8]{0} parameter(0)
  b = f32[8]{0} parameter(1)
  two = f32[] constant(2)
  twice = f32[8]{0} broadcast(two), dimensions={}
  ROOT kernel = f32[8]{0} fusion(a, twice), kind=kLoop, calls=fused
}
"""


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("subtract(p, q)", "subtract(q, p)", "parameter number"),
        ("subtract(p, q)", "add(p, q)", "opcode"),
        ("fusion(a, twice)", "fusion(b, twice)", "parameter number"),
        ("kind=kLoop", "kind=kOutput", "kind of fusion"),
        ("constant(2)", "constant(3)", "literal"),
        ("fusion(a, twice)", "fusion(a, a)", "opcode"),
    ],
)
def test_a_difference_in_structure_is_found(old, new, what):
    assert BASE.count(old) == 1
    divergence = find_divergence(parse(BASE), parse(BASE.replace(old, new)))
    assert divergence is not None
    assert divergence.what == what


def test_names_and_notes_make_no_difference():
    renamed = BASE.replace("kernel", "other").replace("difference", "d").replace("fused", "f")
    noted = renamed.replace("calls=f", 'calls=f, metadata={op_name="a"}')
    assert find_divergence(parse(BASE), parse(noted)) is None


def test_names_are_told_up_to_the_first_difference():
    by_name = re.sub(r"\b(kernel|twice|difference|[abpq])\b", r"\1.7", BASE)
    names = dict.fromkeys(("a", "b", "two", "twice", "kernel", "p", "q", "difference"))
    expected = {item if item == "two" else f"{item}.7": item for item in names}
    assert compare(parse(BASE), parse(by_name)).find_names() == expected
    second = parse(by_name.replace("subtract", "add"))
    assert compare(parse(BASE), second).find_names() == {
        item: ours for item, ours in expected.items() if ours != "difference"
    }


def test_names_are_told_of_what_nothing_reads():
    def with_unread(*lines: str) -> str:
        return BASE.replace(
            "  ROOT kernel", "".join(f"  {line}\n" for line in lines) + "  ROOT kernel"
        )

    ours = with_unread("x = f32[8]{0} negate(a)", "y = f32[8]{0} negate(b)")
    theirs = with_unread(
        "u = f32[8]{0} negate(a)", "v = f32[8]{0} tanh(a)", "w = f32[8]{0} negate(b)"
    )
    names = compare(parse(ours), parse(theirs)).find_names()
    assert (names["u"], names["w"]) == ("x", "y")
    assert "v" not in names


def test_a_replayed_module_can_be_printed_and_read():
    for path in CPU[:4]:
        for module in open_dump(path).modules:
            for run in find_runs(module):
                plan = replay(
                    run.pass_name,
                    module.read(run.before),
                    read_context(module),
                    choose_compiler(module).compiler,
                )
                again = parse(to_text(replace(plan.module, frames=None)))
                assert find_divergence(plan.module, again) is None


# Forty levels of two calls each: followed one by one they would take years.
LEVELS = "\n".join(
    f"c{n} {{\n  x = f32[8] parameter(0)\n  a = f32[8] call(x), to_apply=c{n - 1}\n"
    f"  ROOT b = f32[8] call(a), to_apply=c{n - 1}\n}}\n"
    for n in range(1, 41)
)


def test_shared_computations_are_looked_into_once():
    text = (
        "HloModule m\n\nc0 {\n  x = f32[8] parameter(0)\n  ROOT y = f32[8] negate(x)\n}\n\n"
        + LEVELS
        + "\nENTRY e {\n  x = f32[8] parameter(0)\n"
        '  y = f32[8] custom-call(x), custom_call_target="f", called_computations={c40}\n'
        "  ROOT z = f32[8] negate(y)\n}\n"
    )
    for pass_name in ("fusion", "dot-library-rewriter", "fusion-wrapper"):
        replay(pass_name, parse(text), PassContext(), load_compiler("cpu-0.12"))


@pytest.mark.parametrize(
    ("line", "reported"),
    [
        ("y = f32[8] slice(x)", "no slice="),
        ("y = f32[8] slice(x), slice={}", "0 cuts, expected 1"),
        ("y = f32[8] dynamic-update-slice(x)", "has 1 operands"),
        ("y = f32[16] concatenate(x, x), dimensions={7}", "dimensions={7}"),
        (
            "y = f32[] dot(x, x), lhs_contracting_dims={0}, rhs_contracting_dims={9}",
            "rhs_contracting_dims={9}, which an array of rank 1 has not",
        ),
    ],
)
def test_what_contradicts_itself_is_told(line, reported):
    text = f"HloModule m\n\nENTRY e {{\n  x = f32[8] parameter(0)\n  {line}\n"
    text += "  ROOT z = f32[8] negate(x)\n}\n"
    with pytest.raises(UnusableInput, match=re.escape(reported)):
        replay("fusion", parse(text), PassContext(), load_compiler("cpu-0.12"))


def test_fusions_nested_too_deep_are_told():
    text = "HloModule m\n\nf0 {\n  x = f32[8] parameter(0)\n  ROOT y = f32[8] negate(x)\n}\n\n"
    for n in range(1, 20):
        text += (
            f"f{n} {{\n  x = f32[8] parameter(0)\n"
            f"  ROOT y = f32[8] fusion(x), kind=kLoop, calls=f{n - 1}\n}}\n\n"
        )
    text += "ENTRY e {\n  x = f32[8] parameter(0)\n"
    text += "  ROOT y = f32[8] fusion(x), kind=kLoop, calls=f19\n}\n"
    with pytest.raises(UnusableInput, match="nested more than 8 deep"):
        replay("fusion", parse(text), PassContext(), load_compiler("cpu-0.12"))


@pytest.mark.slow
def test_a_dump_without_protos_says_that_the_order_of_equal_priorities_is_inferred(tmp_path):
    sample = DUMPS / "h100" / "softmax"
    for file in sample.iterdir():
        if ".hlo.pb" not in file.name:
            (tmp_path / file.name).write_bytes(file.read_bytes())
    (module,), (with_protos,) = open_dump(tmp_path).modules, open_dump(sample).modules
    dump = open_dump(tmp_path)
    (verified,) = verify(dump, dump.modules).modules
    differing = [
        structs.replace(verification, is_identical=False) for verification in verified.passes
    ]
    assert not order_notes(module, verified.passes)
    assert not order_notes(with_protos, differing)
    (note,) = order_notes(module, differing)
    assert "--xla_dump_hlo_as_proto" in note


def test_computations_that_were_removed_have_no_record():
    decisions = [_Told(name, "sum", "fused") for name in ("a", "b", "c")]
    statements = {"main": decisions[:1], "gone": decisions[1:2], "renamed": decisions[2:]}
    recorded = _with_record(statements, [decisions[2:]], parse(BASE))
    assert recorded == [decisions[:1], decisions[2:]]
