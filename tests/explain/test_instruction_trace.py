"""The trace of an instruction across passes that rewrite all around it, against the dumps' text."""

import gzip
import re
from pathlib import Path

import pytest

from fusionscope.compare.instruction_trace import InstructionTrace, follow
from fusionscope.compare.module_history import module_history
from fusionscope.dump import Dump, open_dump
from fusionscope.history.lineage import Lineage, read_lineage
from fusionscope.history.matching import match
from fusionscope.history.successors import find_successors
from fusionscope.hlo import parse

DATA = Path(__file__).parent / "data"
NOT_FOLLOWED = {"constant", "get-tuple-element", "parameter", "tuple"}


def text_of(name: str, part: str) -> str:
    (file,) = (DATA / name).glob(f"*{part}*.txt.gz")
    return gzip.decompress(file.read_bytes()).decode()


def stated(text: str, opcode: str) -> dict[str, str]:
    """Shapes of the instructions with this opcode, by name."""
    matches = re.findall(rf"%(\S+) = (.+?) {opcode}\(", text)
    return {name: re.sub(r"\{[\d,]*\}|/\*.*?\*/|\s", "", shape) for name, shape in matches}


@pytest.fixture(scope="module")
def lineages() -> dict[str, Lineage]:
    return {
        name: read_lineage(open_dump(DATA / name).modules[0])
        for name in ("gathered", "partitioned", "reshaped")
    }


def ends_of(trace: InstructionTrace) -> set[str]:
    return {ending.name for ending in trace.endings}


def test_each_of_the_collectives_that_are_combined_ends_in_the_one_that_sends_them(lineages):
    first, last = (stated(text_of("gathered", part), "all-gather")
                   for part in ("before_optimizations", "gpu_after_optimizations"))  # fmt: skip
    assert len(first) == 3
    (combined,) = (name for name, shape in last.items() if shape.startswith("("))
    assert last[combined].strip("()") == ",".join(first.values())
    before_combiner: set[str] = set()
    traces = [follow(lineages["gathered"], name, {}) for name in first]
    for trace in traces:
        assert ends_of(trace) == {combined}
        (event,) = (e for e in trace.events if e.pass_name == "gpu-all-gather-combiner")
        names = [e.names for e in trace.events[: trace.events.index(event)]][-1]
        before_combiner.update(names)
    assert len(before_combiner) == 3
    for trace in traces:
        (event,) = (e for e in trace.events if e.pass_name == "gpu-all-gather-combiner")
        (local,) = [e.names for e in trace.events[: trace.events.index(event)]][-1]
        reported = re.search(r"sent together with ([^;]*)", event.text)
        assert reported is not None
        assert set(reported[1].split(", ")) == before_combiner - {local}
    # And back: the combined one began as one of them.
    assert follow(lineages["gathered"], f"{combined}@final", {}).origin.name in first


@pytest.mark.parametrize("opcode", ["exponential", "subtract", "reduce"])
def test_what_is_partitioned_is_the_same_on_each_device(lineages, opcode):
    """One of eight parts of the rows, by the text of the last stage."""
    first, last = (stated(text_of("partitioned", part), opcode)
                   for part in ("before_optimizations", "gpu_after_optimizations"))  # fmt: skip
    (name,), (end,) = first, last
    rows = re.compile(r"\[(\d+)")
    whole, part = (int(rows.search(shape)[1]) for shape in (first[name], last[end]))
    assert (whole, part) == (64, 8)
    trace = follow(lineages["partitioned"], name, {})
    assert ends_of(trace) == {end}
    assert any(f"shape {first[name]}" in re.sub(r"\{[\d,]*\}", "", e.text) for e in trace.events)
    assert follow(lineages["partitioned"], f"{end}@final", {}).origin.name == name


def test_a_parameter_keeps_its_number(lineages):
    trace = follow(lineages["partitioned"], "inputs.1", {})
    assert trace.origin.opcode == "parameter"
    assert trace.origin.shape.startswith("f32[64,256]")
    (end,) = ends_of(trace)
    assert f"%{end} = f32[8,256]{{1,0}} parameter(0)" in text_of("partitioned", "gpu_after_opt")


def test_what_reads_a_reshape_that_moved(lineages):
    """`reshape-mover` computes the exponential before the reshape, not after it."""
    before = stated(text_of("reshaped", "before_optimizations"), "exponential")
    after = stated(text_of("reshaped", ".after_reshape-mover"), "exponential")
    (name,), (moved,) = before, after
    assert (before[name], after[moved]) == ("f32[64,4,64]", "f32[64,256]")
    trace = follow(lineages["reshaped"], name, {})
    assert any(moved in e.names for e in trace.events if e.pass_name == "reshape-mover")
    assert ends_of(trace) == set(stated(text_of("reshaped", "gpu_after_opt"), "exponential"))


def test_what_a_reduction_applies_ends_in_its_kernel(lineages):
    first = text_of("partitioned", "before_optimizations")
    (applied,) = re.findall(r"ROOT %(\S+) = f32\[\] add\(", first)
    last = text_of("partitioned", "gpu_after_optimizations")
    (body,) = re.findall(r"^%(\S+) \([^\n]*\{\n(?:  .*\n)*?  .* reduce\(", last, re.MULTILINE)
    (kernel,) = re.findall(rf"%(\S+) = .* fusion\(.*calls=%{re.escape(body)}\b", last)
    (ending,) = follow(lineages["partitioned"], applied, {}).endings
    assert ending.kernel == kernel
    assert "reduce" in ending.members


@pytest.mark.parametrize("name", ["gathered", "partitioned", "reshaped"])
def test_nothing_is_gone_without_a_cause(lineages, name):
    """What was there instead, who merged it, or that nothing read it."""
    lineage = lineages[name]
    gone = 0
    for instruction in lineage.modules[0].entry.instructions:
        if instruction.opcode in NOT_FOLLOWED:
            continue
        trace = follow(lineage, instruction.name, {})
        if not trace.endings:
            gone += 1
            cause = r"removed( together with \S+)?: .*(instead|any more)( and \d+ more)?$"
            assert re.match(cause, trace.events[-1].text), (instruction.name, trace.events[-1].text)
    assert gone > 0


def group(rows: int, count: int, between: str) -> str:
    """So many operations of one line of the program, with others in between."""
    lines, last = [], "x"
    for number in range(count):
        name, last = last, f"a{rows}.{number}"
        lines += [
            f"  %b{rows}.{number} = f32[{rows},8] {between}(%{name})",
            f"  %{last} = f32[{rows},8] tanh(%b{rows}.{number}), "
            'metadata={op_name="jit(f)/tanh" source_file="f.py" source_line=3}',
        ]
    return f"""HloModule m

ENTRY %main (x: f32[{rows},8]) -> f32[{rows},8] {{
  %x = f32[{rows},8] parameter(0)
{"".join(f"{line}{chr(10)}" for line in lines)}
  ROOT %result = f32[{rows},8] {between}(%{last})
}}
"""


@pytest.mark.parametrize(
    ("count", "later", "expected"),
    [
        (2, 2, {"a8.0": ["a4.0"], "a8.1": ["a4.1"]}),
        (1, 3, {"a8.0": ["a4.0", "a4.1", "a4.2"]}),
        (2, 3, {}),  # nothing tells which
    ],
)
def test_as_many_of_the_same_metadata(count, later, expected):
    first, second = parse(group(8, count, "sine")), parse(group(4, later, "cosine"))
    successors = find_successors(match(first, second))
    assert {
        before.name: [h.name for h in local] for before, local in successors.items()
    } == expected


CALLED = """%{name} (p.{name}: s32[]) -> s32[] {{
  %p.{name} = s32[] parameter(0)
  %c.{name} = s32[] constant(3)
  ROOT %r.{name} = s32[] remainder(%p.{name}, %c.{name})
}}

"""
CALLS = """ENTRY %main (x: s32[], y: s32[]) -> (s32[], s32[]) {{
  %x = s32[] parameter(0)
  %y = s32[] parameter(1)
  %one = s32[] call(%x), to_apply=%{one}
  %negated = s32[] negate(%one)
  %other = s32[] call(%y), to_apply=%{other}
  %absolute = s32[] abs(%other)
  ROOT %results = (s32[], s32[]) tuple(%negated, %absolute)
}}
"""


def test_calls_of_a_shared_computation_that_get_one_each():
    texts = [
        "HloModule m\n\n" + "".join(CALLED.format(name=name) for name in names)
        + CALLS.format(one=names[0], other=names[-1])
        for names in (["shared"], ["shared", "clone"])
    ]  # fmt: skip
    matching = match(*map(parse, texts))
    later = matching.after | {first: local[0] for first, local in find_successors(matching).items()}
    names = {before.name: after.name for before, after in later.items() if before.opcode == "call"}
    assert names == {"one": "one", "other": "other"}


HEAD = "HloModule m\n\n"
FUSED = """%fused{n} (p{n}: f32[8]) -> f32[8] {{
  %p{n} = f32[8]{{0}} parameter(0)
  %n{n} = f32[8]{{0}} negate(%p{n})
  ROOT %t{n} = f32[8]{{0}} tanh(%n{n})
}}

"""
ENTRY = """ENTRY %e (x: f32[8]) -> f32[8] {{
  %x = f32[8]{{0}} parameter(0)
{lines}
}}
"""
BEFORE = "  %n0 = f32[8]{0} negate(%x)\n  ROOT %t0 = f32[8]{0} tanh(%n0)"
AFTER = """  %left = f32[8]{0} fusion(%x), kind=kLoop, calls=%fused1
  %over = f32[8]{0} exponential(%left)
  ROOT %kept = f32[8]{0} fusion(%x), kind=kLoop, calls=%fused0"""


def test_fusions_that_nothing_reads_are_not_counted(tmp_path):
    """`left` is read by `over` alone, and nothing reads that."""
    texts = {
        "module_0000.m.0000.p.after_one.before_two.txt": HEAD + ENTRY.format(lines=BEFORE),
        "module_0000.m.0001.p.after_two.before_three.txt": HEAD
        + FUSED.format(n=0)
        + FUSED.format(n=1)
        + ENTRY.format(lines=AFTER),
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    dump: Dump = open_dump(tmp_path)
    story = module_history(dump.modules[0])
    assert story.fusions == 1
    assert [fusion_pass.fusions for fusion_pass in story.passes] == [1]
    (formed,) = story.passes[0].changes
    assert formed.text == "kept formed from n0, t0"
