"""Where two compilations part, and the first decision that differs: against the dumps' own text."""

import gzip
import re
import shutil
from pathlib import Path

import pytest

from fusionscope.compare import first_divergence
from fusionscope.compare.first_divergence import (
    FirstDivergence,
    certain_matches,
    find_first_divergence,
    find_makers,
    first_decision,
)
from fusionscope.dump import Dump, open_dump
from fusionscope.history.lineage import Lineage, read_lineage
from fusionscope.history.matching import match
from fusionscope.history.pairing import MatchKind
from fusionscope.hlo import parse

DUMPS = Path(__file__).resolve().parents[2] / "samples" / "dumps"
DATA = Path(__file__).parent / "data"
H100, H200, RTX, MI300X = (
    DUMPS / f"{card}/concatenate" for card in ("h100", "h200", "rtx6000pro", "mi300x")
)


def decided(dump: Path) -> dict[str, int | None]:
    """By the text of the record: how many fusions stood before the first one of each producer, or
    None where it was refused. A fusion goes by the name of the consumer that it grew from."""
    (file,) = dump.glob("*priority_fusion_dump.txt*")
    record = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    origins: dict[str, str] = {}
    actual: dict[str, int | None] = {}
    output = 0
    for block in re.findall(r"^fusion_steps \{\n(.*?)^\}", record.decode(), re.M | re.S):
        fields = dict(re.findall(r'(\w+_name): "([^"]*)"', block))
        producer = origins.get(fields["producer_name"], fields["producer_name"])
        actual.setdefault(producer, None)
        if "fusion_name" in fields:
            if actual[producer] is None:
                actual[producer] = output
            output += 1
            consumer = fields["consumer_name"]
            origins[fields["fusion_name"]] = origins.get(consumer, consumer)
    return actual


def read_by_priority_fusion(dump: Path) -> set[tuple[str, str, str]]:
    """Name, shape and opcode of what stands in the stage before priority fusion."""
    module = open_dump(dump).modules[0]
    stage = next(s for s in module.stages if s.label.startswith("fusion.after_pipeline-start"))
    return {(i.name, i.opcode, i.statement.shape) for i in module.read(stage).entry.instructions}


@pytest.mark.parametrize(
    ("one", "second"), [(H100, RTX), (RTX, H100), (H100, MI300X), (MI300X, RTX), (H100, H200)]
)
def test_the_first_decision_is_that_of_the_records(one, second):
    """Both passes worked on the same instructions by the same names."""
    assert read_by_priority_fusion(one) == read_by_priority_fusion(second)
    before, after = decided(one), decided(second)
    assert before.keys() == after.keys() and len(before) > 10
    turns = {
        name: before[name] if after[name] is None else after[name]
        for name in before
        if (before[name] is None) != (after[name] is None)
    }
    notes: list[str] = []
    actual = first_decision(open_dump(one).modules[0], open_dump(second).modules[0], notes)
    assert notes == []
    if not turns:
        assert (one, second) == (H100, H200)
        assert actual is None
        return
    first = min(turns, key=lambda name: turns[name])
    assert actual is not None and actual.is_first
    assert actual.subject_before == actual.subject_after == (first,)
    assert actual.before.is_fused is (before[first] is not None)
    assert actual.after.is_fused is (after[first] is not None)


def test_a_decision_is_not_the_first_where_an_earlier_one_may_differ(tmp_path):
    """`slice.1.0` is fused before `mul.3.0`. With other bounds it is another operation."""
    dump = shutil.copytree(RTX, tmp_path / "dump")
    (stage,) = dump.glob("*.fusion.after_pipeline-start.*.txt")
    text = stage.read_text()
    assert "slice={[0:1024:1], [0:320:2]}" in text
    stage.write_text(text.replace("[0:320:2]", "[1:320:2]"))
    turns = decided(dump)
    assert turns["slice.1.0"] < turns["mul.3.0"]
    actual = first_decision(open_dump(H100).modules[0], open_dump(dump).modules[0], [])
    assert actual is not None and not actual.is_first
    assert actual.subject_before == ("mul.3.0",)


def test_decisions_of_other_passes_are_not_compared():
    notes: list[str] = []
    cpu = open_dump(DUMPS / "cpu/concatenate").modules[0]
    assert first_decision(open_dump(H100).modules[0], cpu, notes) is None
    assert notes == []


def test_nothing_is_certain_of_what_reads_a_guess():
    """`scaled` is matched by its name, so `reader` computes the same from the same: as far as the
    name can be trusted."""
    text = """HloModule m

ENTRY %main (x: f32[8], y: f32[8]) -> (f32[8], f32[8]) {{
  %x = f32[8] parameter(0)
  %y = f32[8] parameter(1)
  %kept = f32[8] cosine(%x)
  %scaled = f32[8] multiply(%{scale}, %y)
  %{reader} = f32[8] tanh(%scaled)
  %last = f32[8] {opcode}(%{reader})
  ROOT %results = (f32[8], f32[8]) tuple(%kept, %last)
}}
"""
    first = parse(text.format(scale="x", reader="reader", opcode="sine"))
    second = parse(text.format(scale="y", reader="other", opcode="exponential"))
    matching = match(first, second)
    steps = {before.name: matching.steps[before] for before in matching.after}
    assert (steps["scaled"], steps["reader"]) == (MatchKind.NAME, MatchKind.VALUE)
    certain = {instruction.name for instruction in certain_matches(matching)}
    assert certain == {"x", "y", "kept"}


def test_nothing_is_certain_of_what_is_computed_twice():
    """The texts differ, and nothing tells which of two equal values is which."""
    text = """HloModule m

ENTRY %main (x: f32[8]) -> (f32[8], f32[8], f32[8]) {{
  %x = f32[8] parameter(0)
  %a = f32[8] cosine(%x)
  %b = f32[8] cosine(%x)
  %c = f32[8] tanh(%a)
  %d = f32[8] {opcode}(%b)
  ROOT %results = (f32[8], f32[8], f32[8]) tuple(%c, %d, %x)
}}
"""
    first, second = parse(text.format(opcode="sine")), parse(text.format(opcode="exponential"))
    certain = {instruction.name for instruction in certain_matches(match(first, second))}
    assert certain == {"x", "c"}
    same = {instruction.name for instruction in certain_matches(match(first, first))}
    assert same == {"x", "a", "b", "c", "d"}


def divergence_of(first: Dump, second: Dump) -> FirstDivergence:
    lineages = read_lineage(first.modules[0]), read_lineage(second.modules[0])
    return find_first_divergence(lineages, iter)


def test_a_scheduler_that_was_disabled_is_named(tmp_path):
    """It changed nothing but the order of the text. Later passes take another way because of it."""
    scheduled, unscheduled = (open_dump(DATA / name) for name in ("scheduler", "no_scheduler"))
    actual = divergence_of(scheduled, unscheduled)
    scheduler = "latency-hiding-scheduler.after_latency-hiding-scheduler."
    assert actual.stage_before.startswith(scheduler)
    assert actual.stage_after is None
    assert actual.last_same.startswith("latency-hiding-scheduler.after_pipeline-start.")
    assert actual.is_exact
    swapped = divergence_of(unscheduled, scheduled)
    assert (swapped.stage_before, swapped.stage_after) == (None, actual.stage_before)
    # Without the flags nothing tells which of two passes is the one, and both are named.
    shutil.copytree(DATA / "no_scheduler", tmp_path / "dump")
    (flags,) = (tmp_path / "dump").glob("*debug_options")
    flags.unlink()
    actual = divergence_of(scheduled, open_dump(tmp_path / "dump"))
    assert actual.stage_before.startswith(scheduler)
    assert "async" in actual.stage_after


def test_passes_that_left_no_stage_may_be_the_ones(tmp_path):
    shutil.copytree(RTX, tmp_path / "dump")
    (flags,) = (tmp_path / "dump").glob("*debug_options")
    text = flags.read_text()
    assert 'xla_dump_hlo_pass_re: ".*"' in text
    assert divergence_of(open_dump(H100), open_dump(tmp_path / "dump")).is_exact
    flags.write_text(text.replace('pass_re: ".*"', 'pass_re: ".*fusion.*"'))
    assert not divergence_of(open_dump(H100), open_dump(tmp_path / "dump")).is_exact


@pytest.mark.parametrize(
    "name", ["cpu/cartpole", "cpu/softmax", "cpu-elementwise-library/attention", "h100/attention"]
)
def test_the_makers_of_new_fusions_are_those_that_matched_stages_show(name, monkeypatch):
    def makers():
        (module,) = open_dump(DUMPS / name).modules
        lineage = read_lineage(module)
        last = lineage.modules[-1]
        names = {(i.computation.name, i.name) for i in last.walk()}
        return find_makers((lineage, lineage), (names, names), iter)[0]

    reported = []
    is_new = Lineage.is_new

    def watched(*arguments):
        reported.append(is_new(*arguments))
        return reported[-1]

    monkeypatch.setattr(Lineage, "is_new", watched)
    actual = makers()
    assert any(actual.values())
    monkeypatch.setattr(Lineage, "is_new", lambda *_: False)
    assert actual == makers()
    assert any(reported)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("cpu/attention", "cpu-elementwise-library/attention"),
        ("h100/reductions", "h100-without-multi-output-fusion/reductions"),
        ("h100/softmax", "h100-without-triton-softmax/softmax"),
    ],
)
def test_stages_with_other_numbers_of_fusions_need_no_matching(first, second, monkeypatch):
    matched = []

    def watched(*modules):
        matched.append(modules)
        return match(*modules)

    monkeypatch.setattr(first_divergence, "match", watched)
    dumps = open_dump(DUMPS / first), open_dump(DUMPS / second)
    actual, count = divergence_of(*dumps), len(matched)
    monkeypatch.setattr(first_divergence, "_count_read_fusions", lambda _: 0)
    assert actual == divergence_of(*dumps)
    assert count < len(matched) - count


def test_fusions_count_if_a_result_depends_on_them():
    text = """HloModule m
%f (p: f32[2]) -> f32[2] {
  %p = f32[2] parameter(0)
  ROOT %n = f32[2] negate(%p)
}
%g (p.1: f32[2]) -> f32[2] {
  %p.1 = f32[2] parameter(0)
  ROOT %n.1 = f32[2] negate(%p.1)
}
ENTRY %e (x: f32[2]) -> f32[2] {
  %x = f32[2] parameter(0)
  %one = f32[2] fusion(%x), kind=kLoop, calls=%f
  %other = f32[2] fusion(%x), kind=kLoop, calls=%g
  %t = (f32[2], f32[2]) tuple(%one, %other)
  ROOT %r = f32[2] get-tuple-element(%t), index=0
}
"""
    count = first_divergence._count_read_fusions
    assert count(parse(text)) == 0  # at least: elements of a tuple are not told apart
    both = text.replace("get-tuple-element(%t), index=0", "add(%one, %other)")
    assert count(parse(both)) == 2
    dead = text.replace("get-tuple-element(%t), index=0", "negate(%one)")
    assert count(parse(dead)) == 1
    shared = both.replace("calls=%g", "calls=%f")
    assert count(parse(shared)) == 1
