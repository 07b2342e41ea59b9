"""The `history` command: what it tells against what the dumps' own text says, and bad input."""

import json
import re
import shutil
import sqlite3
import zipfile
from pathlib import Path
from typing import Any

import pytest
from sample_dumps import (
    CONTROL,
    CPU,
    DUMPS,
    GPU,
    HOSTILE,
    TPU,
    hostile_files,
    unlike_documented,
    unpacked,
    write,
)

pytestmark = pytest.mark.slow


SAMPLES = [
    GPU,
    CPU,
    TPU,
    *(
        DUMPS / name
        for name in (
            "a100/dense",
            "b200/dense",
            "h100-without-multi-output-fusion/reductions",
            "h100-without-triton-softmax/softmax",
            "h100/cartpole",
            "cpu/loop",
        )
    ),
]
samples = pytest.mark.parametrize("dump", SAMPLES, ids=lambda dump: "-".join(dump.parts[-2:]))


class Told:
    """A dump read with nothing but regular expressions."""

    def __init__(self, dump: Path) -> None:
        files = unpacked(dump)
        numbered, ends = {}, {}
        for name, content in files.items():
            if match := re.fullmatch(r"module_\d+\.(?:\w+)(?:\.cl_\d+)?\.(\d{4})\.(.*)\.txt", name):
                numbered[int(match[1])] = match[2], content.decode()
            elif match := re.search(
                r"\.((?:before|[\w.]*after)_optimizations|after_codegen)\.txt$", name
            ):
                ends[re.sub(r"^.*cl_\d+\.", "", match[1])] = content.decode()
        codegen = [label for label in ends if label == "after_codegen"]  # of TPUs
        plain = [label for label in ends if label.endswith("after_optimizations")]
        (last,) = codegen or plain
        # Label and text of each stage: the first, those with a number, the last.
        self.stages = [
            ("before_optimizations", ends["before_optimizations"]),
            *(numbered[number] for number in sorted(numbered)),
            (last.split("jit_program.")[-1], ends[last]),
        ]
        self.labels = [label for label, _ in self.stages]

    def text(self, label: str) -> str:
        return dict(self.stages)[label]

    def before(self, label: str) -> str:
        return self.stages[self.labels.index(label) - 1][1]

    def first_with(self, name: str) -> str:
        """Label of the first stage that states this instruction."""
        return next(label for label, text in self.stages if f" %{name} = " in text)


def computations(text: str) -> dict[str, str]:
    """The computations that the entry leads to, by name ("ENTRY" for the entry)."""
    actual = {}
    for block in re.findall(r"^(?:ENTRY )?%\S+ \(.*?^}", text, re.MULTILINE | re.DOTALL):
        head, _, body = block.partition("\n")
        name = head.split()[0]
        actual["ENTRY" if name == "ENTRY" else name.lstrip("%")] = body
    alive, pending = {}, ["ENTRY"]
    while pending:
        name = pending.pop()
        if name not in alive:
            alive[name] = actual[name]
            mentioned = set(re.findall(r"%([\w.\-]+)", actual[name]))
            pending += [second for second in actual if second in mentioned]
    return alive


def fusions(text: str) -> list[str]:
    """Names of the fusions that a run comes to."""
    return [
        name
        for body in computations(text).values()
        for name in re.findall(r"%(\S+) = [^\n]*? fusion\(", body)
    ]


def kernels_with(text: str, opcode: str) -> set[str]:
    """Names of the entry's fusions whose computation has this opcode."""
    inside = {name for name, body in computations(text).items() if f" {opcode}(" in body}
    calls = re.findall(r"%(\S+) = .* fusion\(.*?calls=%([^\s,]+)", computations(text)["ENTRY"])
    return {name for name, callees in calls if callees in inside}


def story_of(run: Any, *arguments: object) -> dict[str, Any]:
    result = run(*arguments, "--format", "json")
    assert (result.code, result.errors) == (0, "")
    (module,) = json.loads(result.out)["modules"]
    return module


def trace_of(run: Any, dump: Path, name: str) -> dict[str, Any]:
    return story_of(run, dump, name)["trace"]


@samples
def test_passes_are_those_of_the_files(run, dump):
    reported, story = Told(dump), story_of(run, dump)
    assert story["stages"]["first"] == reported.labels[0]
    assert story["stages"]["last"] == reported.labels[-1]
    stages = [item["stage"] for item in story["passes"]]
    assert stages == [label for label in reported.labels if label in stages]
    assert story["stages"]["quiet"] == len(reported.labels) - 1 - len(stages)
    assert story["fusions"] == len(fusions(reported.stages[-1][1]))
    for item in story["passes"]:
        assert f".after_{item['pass']}." in f".{item['stage']}."
        now, before = reported.text(item["stage"]), reported.before(item["stage"])
        assert item["fusions"] == len(fusions(now))
        assert sum(item["kinds"].values()) == sum(c["count"] for c in item["changes"]) > 0
        for change in item["changes"]:
            for text, roles in ((before, ("before", "lost")), (now, ("after", "gained"))):
                for operation in (o for role in roles for o in change[role]):
                    line = re.search(
                        rf"%{re.escape(operation['name'])} = (.+?) {operation['opcode']}\(", text
                    )
                    assert line, (item["stage"], operation)
                    assert re.sub(r"/\*.*?\*/", "", line[1]) == operation["shape"]
    # A pass after which other names are fusions is told.
    for (_, first), (label, second) in zip(reported.stages, reported.stages[1:], strict=False):
        if set(fusions(first)) != set(fusions(second)):
            assert label in stages


@samples
def test_text_markdown_and_json_tell_the_same_passes(run, dump):
    story = story_of(run, dump)
    passes = [item["pass"] for item in story["passes"]]
    text, markdown = run(dump).out, run(dump, "--format", "markdown").out
    assert re.findall(r"^  ([\w-]+)  in \S+  \d", text, re.MULTILINE) == passes
    assert re.findall(r"^\*\*([\w-]+)\*\*: in \S+  \d", markdown, re.MULTILINE) == passes
    for summary in (text, markdown):
        assert f"{story['stages']['quiet']} stage" in summary
    assert are_tables_even(markdown)


def are_tables_even(markdown: str) -> bool:
    """Return whether all rows of each table have as many cells."""
    tables = re.findall(r"(?:^\|.*\n)+", markdown, re.MULTILINE)
    bars = ({len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()} for table in tables)
    return all(len(counts) == 1 for counts in bars)


def recorded(dump: Path) -> tuple[list[tuple[str, str, str]], list[tuple[str, str] | None]]:
    """Fusions of the priority-fusion record in its order, with the figures that stand before."""
    (text,) = (
        content.decode(errors="replace")
        for name, content in unpacked(dump).items()
        if name.endswith("priority_fusion_dump.txt")
    )
    steps, figures, last = [], [], {}
    for block in re.findall(r"^fusion_steps \{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL):
        fields = dict(re.findall(r'(\w+): "?([^"\n]*)', block))
        if "us_fused" in fields:
            last[fields["producer_name"]] = fields["us_fused"], fields["us_unfused"]
        elif "fusion_name" in fields:
            first = fields["producer_name"], fields["consumer_name"], fields["fusion_name"]
            steps.append(first)
            figures.append(last.get(first[0]))
    return steps, figures


@pytest.mark.main
@pytest.mark.parametrize("name", ["h100/concatenate", "h100-without-triton-softmax/softmax"])
def test_steps_are_those_of_the_record(run, name):
    steps, _ = recorded(DUMPS / name)
    (item,) = (p for p in story_of(run, DUMPS / name)["passes"] if p["pass"] == "priority-fusion")
    actual = [(step["producer"], step["consumer"], step["fusion"]) for step in item["steps"]]
    assert actual == steps != []
    producer, consumer, fusion = steps[0]
    assert f"1. {producer} -> {consumer} = {fusion}" in run(DUMPS / name).out


def test_the_first_figures_are_those_of_the_record(run):
    """Those of a producer that has not waited yet: the compiler then states both in full."""
    steps, figures = recorded(GPU)
    reported = story_of(run, GPU)["passes"][0]["steps"][0]
    assert figures[0] == (f"{reported['fused_us']:g}", f"{reported['unfused_us']:g}")
    text = run(GPU).out
    assert f"= {steps[0][2]}  {figures[0][0]} us fused, {figures[0][1]} us apart" in text


def test_no_step_takes_less_than_no_time(run):
    story = story_of(run, DUMPS / "h100-without-multi-output-fusion/reductions")
    times = [
        step[name]
        for item in story["passes"]
        for step in item["steps"]
        for name in ("fused_us", "unfused_us")
    ]
    assert min(times) > 0


@pytest.mark.parametrize("dump", [CPU, TPU], ids=["cpu", "tpu"])
def test_steps_are_those_of_the_explorer(run, dump, tmp_path):
    (archive,) = dump.glob("*_fusion.pyz")
    with zipfile.ZipFile(archive) as content:
        content.extract("fusions.db", tmp_path)
    with sqlite3.connect(tmp_path / "fusions.db") as database:
        labels = [label for (label,) in database.execute("SELECT label FROM frames ORDER BY id")]
    fused = [m for label in labels if (m := re.match(r"Fused \|(.+?)\| into \|(.+?)\|", label))]
    steps = [step for item in story_of(run, dump)["passes"] for step in item["steps"]]
    assert [(s["producer"], s["fusion"]) for s in steps] == [(m[1], m[2]) for m in fused] != []
    assert {step["fused_us"] for step in steps} == {None}


@pytest.mark.main
# Each name: in the first stage, in a middle one, in the last.
@pytest.mark.parametrize(
    ("dump", "names", "opcode"),
    [
        (GPU, ("tanh.1", "tanh.1.0", "tanh.1.1"), "tanh"),
        (GPU, ("exp.1", "exp.1.0", "exp.1.1"), "exponential"),
        (GPU, ("reduce_sum.7", "reduce_sum.7.0", "reduce_sum.7.1"), "reduce"),
        (CPU, ("tanh.1", "tanh.1", "tanh.0"), "tanh"),
    ],
)
def test_one_life_by_each_of_its_names(run, dump, names, opcode):
    reported = Told(dump)
    final = reported.stages[-1][1]
    traces = [trace_of(run, dump, name) for name in names]
    for name, trace in zip(names, traces, strict=True):
        assert trace["asked"] == name
        assert trace["found_in"] == reported.first_with(name)
        assert trace["origin"]["name"] == names[0]
        assert trace["origin"]["opcode"] == opcode
        (ending,) = trace["endings"]
        assert ending["name"] == names[2]
        assert {ending["kernel"]} == kernels_with(final, opcode)
        assert opcode in ending["members"]
        assert [event["stage"] for event in trace["events"]] == [
            label
            for label in reported.labels
            if label in {event["stage"] for event in trace["events"]}
        ]
        # Where a name appears first, something happened.
        renamed = {reported.first_with(item) for item in names[1:]} - {"before_optimizations"}
        assert renamed <= {event["stage"] for event in trace["events"]}
    assert traces[0]["events"] == traces[1]["events"] == traces[2]["events"]


def test_the_source_line_is_that_of_the_stack_frame(run):
    text = Told(GPU).stages[0][1]
    (frame,) = re.findall(r"%tanh\.1 = .*stack_frame_id=(\d+)", text)
    (place,) = re.findall(rf"^{frame} {{file_location_id=(\d+)", text, re.MULTILINE)
    (file, line) = re.findall(rf"^{place} {{file_name_id=(\d+) .*? line=(\d+)", text, re.MULTILINE)[
        0
    ]
    (file_name,) = re.findall(rf'^{file} "(\S+\.py)"$', text, re.MULTILINE)
    trace = trace_of(run, GPU, "tanh.1")
    assert trace["origin"]["source"] == trace["stack"][0] == f"{file_name}:{line}"
    for format_name in ("text", "markdown"):
        assert f"{file_name}:{line}" in run(GPU, "tanh.1", "--format", format_name).out


@pytest.mark.parametrize(
    ("dump", "final_name", "pass_name"),
    [
        (GPU, "loop_add_fusion", "priority-fusion"),
        (GPU, "wrapped_tanh", "fusion-wrapper"),
        (DUMPS / "h100/softmax", "triton_softmax.2", "triton-softmax-rewriter"),
        (DUMPS / "b200/dense", "gemm_fusion_dot", "triton-gemm-rewriter"),
        (CPU, "ynn_fusion", "dot-library-rewriter"),
        (CPU, "wrapped_tanh", "fusion-wrapper"),
        (TPU, "broadcast_multiply_fusion", "tpu_fusion"),
    ],
)
def test_the_life_of_a_fusion_begins_with_the_pass_that_made_it(run, dump, final_name, pass_name):
    trace, reported = trace_of(run, dump, f"{final_name}@final"), Told(dump)
    assert trace["found_in"] == reported.labels[-1]
    assert trace["origin"]["opcode"] == "fusion"
    output = trace["events"][0]
    assert output["pass"] == pass_name
    assert output["stage"] == reported.first_with(trace["origin"]["name"])
    assert trace["endings"][0]["kernel"] == final_name
    assert pass_name in run(dump, f"{final_name}@final").out


def test_a_name_that_only_middle_stages_have(run):
    reported = Told(GPU)
    having = [label for label, text in reported.stages if " %fusion.3 = " in text]
    assert reported.labels[0] not in having and reported.labels[-1] not in having
    trace = trace_of(run, GPU, "fusion.3")
    assert trace["found_in"] == having[0]
    renamed = reported.labels[reported.labels.index(having[-1]) + 1]
    assert trace["events"][-1]["stage"] == renamed
    assert trace["events"][-1]["names"] == ["loop_add_fusion"]
    recorded_, _ = recorded(GPU)
    told_steps = [(s["producer"], s["consumer"], s["fusion"]) for s in trace["events"][0]["steps"]]
    assert told_steps == [step for step in recorded_ if "fusion.3" in step]


def test_what_is_computed_in_several_kernels_ends_in_each(run):
    trace = trace_of(run, GPU, "concatenate.1")
    final = Told(GPU).stages[-1][1]
    assert {e["kernel"] for e in trace["endings"]} == kernels_with(final, "concatenate")
    assert len(trace["endings"]) == 3
    (event,) = (item for item in trace["events"] if item["pass"] == "priority-fusion")
    now = Told(GPU).text(event["stage"])
    alive = "".join(computations(now).values())
    assert set(event["names"]) == set(re.findall(r"%(\S+) = \S+ concatenate\(", alive))


def test_what_a_pass_removed(run):
    reported = Told(GPU)
    having = [label for label, text in reported.stages if " %sub.3 = " in text]
    gone = reported.labels[reported.labels.index(having[-1]) + 1]
    trace = trace_of(run, GPU, "sub.3")
    # The simplifier writes x - 3 as x + -3.
    assert "subtract(" in reported.before(gone) and "subtract(" not in reported.text(gone)
    assert trace["events"][-1]["stage"] == gone
    for result in (run(GPU, "sub.3"), run(GPU, "sub.3", "--format", "markdown")):
        assert "algsimp" in result.out


def test_what_is_launched_by_nothing(run):
    (ending,) = trace_of(run, GPU, "left.1")["endings"]
    assert (ending["kernel"], ending["kind"], ending["members"]) == (None, None, [])
    assert "is not launched" in run(GPU, "left.1").out


def test_dce_merges_nothing(run):
    reported = Told(GPU)
    dce = next(label for label in reported.labels if ".after_dce." in label)
    entry = computations(reported.before(dce))["ENTRY"]
    assert entry.count("%constant.7.0") == 1  # stated, and read by nothing
    assert "%constant.7.0" not in reported.text(dce)
    events = trace_of(run, GPU, "constant.7")["events"]
    assert not [e for e in events if e["stage"] == dce and "merged" in e["text"]]


HEAD = "HloModule m\n\nENTRY %e (x: f32[8]) -> f32[8] {\n  %x = f32[8]{0} parameter(0)\n"
STAGES = {
    "module_0000.m.0000.p.after_one.before_two.txt": (
        f"{HEAD}  %a = f32[8]{{0}} exponential(%x)\n  ROOT %b = f32[8]{{0}} tanh(%a)\n}}\n"
    ).encode(),
    "module_0000.m.0001.p.after_two.before_three.txt": (
        f"{HEAD}  %b = f32[8]{{0}} exponential(%x)\n  ROOT %a = f32[8]{{0}} tanh(%b)\n}}\n"
    ).encode(),
}


@pytest.mark.parametrize(
    ("options", "opcode"),
    [
        ("a", "exponential"),
        ("%a", "exponential"),
        ("a@0", "exponential"),
        ("a@1", "tanh"),
        ("a@after_two", "tanh"),
        ("%b@p.after_two.before_three", "exponential"),
    ],
)
def test_names_that_stages_use_for_different_things(run, tmp_path, options, opcode):
    trace = trace_of(run, write(tmp_path, STAGES), options)
    assert trace["origin"]["opcode"] == opcode
    assert trace["asked"] == options


def test_every_stage_can_be_named(run):
    (file,) = GPU.glob("*.after_spmd_partitioner.txt")
    assert "%tanh.1 = " in file.read_text()
    assert run(GPU, "tanh.1@after_spmd_partitioner").code == 0


def test_a_number_names_the_stage_of_that_number(run):
    assert trace_of(run, GPU, "tanh.1@2")["found_in"] == Told(GPU).labels[3]


def test_a_number_as_file_names_write_it(run):
    assert trace_of(run, GPU, "tanh.1.0@0028")["found_in"] == Told(GPU).labels[29]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("tahn.1", "tanh.1"),
        ("loop_add_fusoin", "loop_add_fusion"),
        ("no-such-thing-at-all", "no-such-thing-at-all"),
        ("tanh.1@no-such-stage", "no-such-stage"),
        ("tanh.1@simplification", "several"),
        ("", "''"),
        ("@final", "''"),
        ("a@b@c", "b@c"),
        ("\x1b[31m", "31m"),
    ],
)
@pytest.mark.parametrize("format_name", ["text", "json"])
def test_what_is_not_there_is_told_in_a_line(run, options, message, format_name):
    result = run(GPU, options, "--format", format_name)
    assert (result.code, result.out) == (2, "")
    (line,) = result.errors.splitlines()
    assert message in line
    assert CONTROL.search(line) is None


def test_a_name_that_only_another_stage_has(run):
    assert "%tanh.1.1 = " not in Told(GPU).stages[29][1]
    result = run(GPU, "tanh.1.1@28")
    assert result.code == 2
    assert "no stage" not in result.errors  # there is one, not the one that was asked for
    assert "variadic-op-splitter" in result.errors


@pytest.mark.main
def test_top_and_all(run):
    steps = len(recorded(GPU)[0])
    first, usual, full = run(GPU, "--top", "1").out, run(GPU).out, run(GPU, "--all").out
    for text, visible in ((first, 1), (usual, 5), (full, steps)):
        assert len(re.findall(r"^ +\d+\. ", text, re.MULTILINE)) == visible
        assert (f"{steps - visible} more steps" in text) == (visible < steps)
    assert "--top" in first and "--top" not in full
    # JSON is never cut.
    assert run(GPU, "--top", "1", "--format", "json").out == run(GPU, "--format", "json").out


def test_markdown_tells_what_it_leaves_out(run):
    (output, _) = trace_of(run, GPU, "fusion.3")["events"]
    assert len(output["steps"]) > 1
    assert "more" in run(GPU, "fusion.3", "--top", "1").out
    assert "more" in run(GPU, "fusion.3", "--top", "1", "--format", "markdown").out


@pytest.fixture
def two_modules(tmp_path: Path) -> Path:
    """Two samples in one tree: 1024x320 numbers in and out, and a loop over 4096."""
    shutil.copytree(GPU, tmp_path / "tree" / "one")
    loop = {
        name.replace("module_0000.jit_program", "module_0003.jit_loop"): content
        for name, content in unpacked(DUMPS / "cpu/loop").items()
    }
    write(tmp_path / "tree" / "two", loop)
    return tmp_path / "tree"


def test_several_modules(run, two_modules):
    document = json.loads(run(two_modules, "--format", "json").out)
    assert [module["name"] for module in document["modules"]] == ["jit_program"]
    assert document["folded"] == ["jit_loop"]
    assert "jit_loop" in run(two_modules).out.splitlines()[-1]
    assert "jit_loop" in run(two_modules, "--format", "markdown").out.splitlines()[-1]
    document = json.loads(run(two_modules, "--all", "--format", "json").out)
    assert [m["name"] for m in document["modules"]] == ["jit_program", "jit_loop"]
    assert document["folded"] == []


@pytest.mark.parametrize("expected", ["jit_loop", "jit_l*", "3"])
def test_module(run, two_modules, expected):
    story = story_of(run, two_modules, "--module", expected)
    assert (story["name"], story["number"], story["backend"]) == ("jit_loop", 3, "cpu")
    alone = story_of(run, DUMPS / "cpu/loop")
    assert story["passes"] == alone["passes"]


def test_module_that_is_not_there(run, two_modules):
    result = run(two_modules, "--module", "other")
    assert (result.code, result.out) == (2, "")
    (line,) = result.errors.splitlines()
    assert "jit_loop" in line and "jit_program" in line


def test_a_name_is_looked_for_in_every_module(run, two_modules):
    loop = re.findall(r"%(while[\w.]*) = ", Told(DUMPS / "cpu/loop").stages[0][1])[0]
    assert f"%{loop} = " not in "".join(text for _, text in Told(GPU).stages)
    assert story_of(run, two_modules, loop)["name"] == "jit_loop"
    assert story_of(run, two_modules, "tanh.1")["name"] == "jit_program"


def test_modules_of_two_processes_are_both_told(run, tmp_path):
    shutil.copytree(GPU, tmp_path / "tree" / "one")
    loop = unpacked(DUMPS / "cpu/loop").items()
    second = {name.replace("module_0000", "module_0001"): content for name, content in loop}
    write(tmp_path / "tree" / "two", second)
    document = json.loads(run(tmp_path / "tree", "--format", "json").out)
    assert len(document["modules"]) + len(document["folded"]) == 2


def test_close_names_of_every_module(run, two_modules):
    loop = re.findall(r"%(while[\w.]*) = ", Told(DUMPS / "cpu/loop").stages[0][1])[0]
    result = run(two_modules, loop.replace("while", "whlie"))
    assert result.code == 2
    assert loop in result.errors


@pytest.mark.parametrize("width", [80, 100, 200])
@pytest.mark.parametrize(
    "arguments",
    [(GPU,), (TPU, "--all"), (DUMPS / "h100/cartpole",), (GPU, "concatenate.1"), (GPU, "fusion.3")],
)
def test_text_fits_its_width(run, arguments, width):
    lines = run(*arguments, COLUMNS=str(width)).out.splitlines()
    assert max(map(len, lines)) <= width
    assert [line for line in lines if line.endswith(" ")] == []
    if width == 100:
        assert run(*arguments).out.splitlines() == lines  # also in a pipe


def test_lines_that_go_on_are_indented(run):
    """In the list of passes, everything but the module's name is indented."""
    out = run(TPU, "--all", COLUMNS="100").out
    assert [line for line in out.splitlines()[1:] if line and not line.startswith("  ")] == []


def test_json_is_as_documented(run, tmp_path, two_modules):
    write(two_modules, {"module_0009.n.cpu_after_optimizations.txt": b"HloModule n\n"})
    options: list[tuple[object, ...]] = [
        (two_modules,),
        (GPU,),
        (CPU,),
        (DUMPS / "b200/dense",),
        (TPU,),
        (GPU, "fusion.3"),
        (next(GPU.glob("*.before_optimizations.txt")),),
    ]
    documents = [json.loads(run(*arguments, "--format", "json").out) for arguments in options]
    assert {document["schema"] for document in documents} == {"fusionscope.history/1"}
    assert not unlike_documented("history", *documents)


# Bad input.


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"\x00\x01\x02" * 99, bytes(range(256)) * 20, b"HloModule m", b"hello\n"],
    ids=["empty", "blank", "binary", "all bytes", "header", "prose"],
)
def test_a_file_that_is_no_hlo(run, tmp_path, content):
    (tmp_path / "junk.txt").write_bytes(content)
    result = run(tmp_path / "junk.txt")
    assert (result.code, result.out) == (2, "")
    (line,) = result.errors.splitlines()
    assert "junk.txt" in line and "bug in fusionscope" not in line


def test_one_file_has_no_history_and_says_so(run):
    (file,) = GPU.glob("*.before_optimizations.txt")
    result = run(file)
    assert result.code == 0
    assert "--xla_dump_hlo_pass_re" in result.out.replace("\n  ", " ")
    assert story_of(run, file)["passes"] == []
    trace = trace_of(run, file, "tanh.1")
    assert trace["events"] == []
    assert [ending["name"] for ending in trace["endings"]] == ["tanh.1"]


@pytest.mark.parametrize("name", [None, "tanh.1"])
@pytest.mark.parametrize("wrong", ["truncated", "binary", "empty"])
def test_a_stage_that_cannot_be_read_is_noted(run, tmp_path, name, wrong):
    files = unpacked(CPU)
    bad = next(file for file in files if ".0012." in file)
    files[bad] = {"truncated": files[bad][:2500], "binary": b"\0\1" * 99, "empty": b""}[wrong]
    dump = write(tmp_path / "dump", files)
    arguments = [dump, *([name] if name else [])]
    story, whole = story_of(run, *arguments), story_of(run, CPU, *arguments[1:])
    (note,) = story["notes"]
    assert bad in note
    # The rest is as it was: this pass changed no fusion.
    assert (story["passes"], story["fusions"]) == (whole["passes"], whole["fusions"])
    if name:
        assert story["trace"] == whole["trace"]
    for format_name in ("text", "markdown"):
        result = run(*arguments, "--format", format_name)
        assert (result.code, result.errors) == (0, "")
        assert bad in re.sub(r"\s+", "", result.out)


def test_a_fusing_stage_that_cannot_be_read(run, tmp_path):
    """What the next stage shows is then told of that one."""
    files = unpacked(CPU)
    bad = next(file for file in files if "after_fusion.before" in file)
    files[bad] = files[bad][:4000]
    story = story_of(run, write(tmp_path, files))
    assert bad in story["notes"][0]
    assert [item["pass"] for item in story["passes"]] == ["dot-library-rewriter", "fusion-wrapper"]
    assert {"formed", "wrapped"} == set(story["passes"][1]["kinds"])
    assert story["fusions"] == story_of(run, CPU)["fusions"]


def test_a_kernel_that_contradicts_itself_is_noted_with_its_place(run, tmp_path):
    files = unpacked(CPU)
    bad = next(file for file in files if "after_fusion.before" in file)
    lines = files[bad].decode().split("\n")
    inside = next(n for n, line in enumerate(lines) if line.startswith("%fused"))
    place = next(n for n in range(inside, len(lines)) if " broadcast(%constant" in lines[n])
    lines[place] = lines[place].replace("broadcast(%constant", "broadcast(%missing", 1)
    files[bad] = "\n".join(lines).encode()
    (note,) = story_of(run, write(tmp_path, files))["notes"]
    assert f"{bad}:{place + 1}:" in note


def test_a_last_stage_that_cannot_be_read_is_noted(run, tmp_path):
    files = unpacked(GPU)
    bad = next(file for file in files if "gpu_after_optimizations.txt" in file)
    files[bad] = files[bad][:3000]
    story = story_of(run, write(tmp_path, files))
    assert bad in story["notes"][0]
    assert story["stages"]["last"] == Told(GPU).labels[-2]
    assert [item["pass"] for item in story["passes"]] == [
        item["pass"] for item in story_of(run, GPU)["passes"]
    ]


@pytest.mark.parametrize("name", [None, "tanh.1"])
def test_a_dump_that_ends_early_is_noted(run, tmp_path, name):
    """The compiler died: what stands in the last stage is not what runs."""
    files = {n: c for n, c in unpacked(GPU).items() if "after_optimizations" not in n}
    story = story_of(run, write(tmp_path, files), *([name] if name else []))
    assert story["notes"]


@pytest.mark.parametrize("figure", [b"inf", b"nan", b"1e400"])
def test_figures_that_are_no_numbers(run, tmp_path, figure):
    files = unpacked(GPU)
    record = next(name for name in files if name.endswith("priority_fusion_dump.txt"))
    assert files[record].count(b"us_fused: 8.42075") == 1
    files[record] = files[record].replace(b"us_fused: 8.42075", b"us_fused: " + figure)
    result = run(write(tmp_path, files), "--format", "json")
    assert result.code == 0
    assert not re.search(r"NaN|Infinity", result.out)


def test_nothing_that_can_be_read(run, tmp_path):
    files = {name: b"HloModule" for name in unpacked(CPU) if name.endswith(".txt")}
    for arguments in ([], ["tanh.1"]):
        result = run(write(tmp_path / "dump", files), *arguments)
        assert (result.code, result.out) == (2, "")
        assert len(result.errors.splitlines()) == 1


@pytest.mark.parametrize(
    ("dump", "part"), [(GPU, "priority_fusion_dump.txt"), (CPU, "_fusion.pyz")]
)
@pytest.mark.parametrize("content", [None, b"\xff\x00{{{{", b"fusion_steps {\n  fusion {\n"])
@pytest.mark.parametrize("name", [None, "tanh.1"])
def test_a_damaged_record_is_noted(run, tmp_path, dump, part, content, name):
    files = unpacked(dump)
    bad = next(file for file in files if file.endswith(part))
    files[bad] = content or files[bad][: len(files[bad]) // 2]
    arguments = [write(tmp_path / "dump", files), *([name] if name else [])]
    story, whole = story_of(run, *arguments), story_of(run, dump, *arguments[1:])
    if name is None:
        assert [item["changes"] for item in story["passes"]] == [
            item["changes"] for item in whole["passes"]
        ]
        assert not any(item["steps"] for item in story["passes"])
    (note,) = story["notes"]
    assert bad in note
    assert run(*arguments).code == 0


def test_a_module_that_cannot_be_read_is_told_beside_the_others(run, two_modules):
    bad = "module_0007.bad.cpu_after_optimizations.txt"
    write(two_modules, {bad: b"\x00\x01"})
    result = run(two_modules)
    assert result.code == 0
    (line,) = result.errors.splitlines()
    assert bad in line
    assert result.out.startswith("jit_program\n")


def test_a_module_that_cannot_be_read_is_told_with_a_name_too(run, two_modules):
    bad = "module_0007.bad.cpu_after_optimizations.txt"
    write(two_modules, {bad: b"\x00\x01"})
    assert bad in run(two_modules, "tanh.1").errors


def test_what_was_printed_is_as_good_as_a_directory(run, tmp_path):
    """--xla_dump_to=- writes all files one after the other."""
    printed = b"".join(
        b"*** Begin %s ***\n%s\n*** End %s ***\n" % (name.encode(), content, name.encode())
        for name, content in unpacked(CPU).items()
        if name.endswith(".txt")
    )
    (tmp_path / "log").write_bytes(printed)
    actual, whole = story_of(run, tmp_path / "log"), story_of(run, CPU)
    for first, second in zip(actual["passes"], whole["passes"], strict=True):
        assert {**first, "steps": []} == {**second, "steps": []}
    assert trace_of(run, tmp_path / "log", "exp.1") == trace_of(run, CPU, "exp.1")


def test_a_directory_with_an_at_in_its_name(run, tmp_path):
    shutil.copytree(CPU, tmp_path / "run@3")
    story = story_of(run, tmp_path / "run@3", "tanh.0@final")
    assert story["trace"]["found_in"] == "cpu_after_optimizations"


@pytest.mark.parametrize("name", [None, "tanh.1", "fusion.3"])
@pytest.mark.parametrize("format_name", ["text", "json", "markdown"])
def test_hostile_names_never_reach_the_output_raw(run, tmp_path, format_name, name):
    dump = write(tmp_path / "dump", hostile_files(GPU))
    result = run(dump, *([name] if name else []), "--all", "--format", format_name)
    assert (result.code, result.errors) == (0, "")
    assert CONTROL.search(result.out) is None
    if format_name == "json" and name:
        trace = json.loads(result.out)["modules"][0]["trace"]
        assert HOSTILE.rstrip() in trace["stack"][0]
    if format_name == "markdown":
        assert "<script" not in result.out and "<b>" not in result.out
        assert are_tables_even(result.out)


def test_hostile_names_of_passes_and_instructions(run, tmp_path):
    """As far as they can be read at all: a line, or an output that does no harm."""
    for odd in ("x|y", "`x`", "<b>", "\x1b[31m", "\u202e", "*x*"):
        files = {
            name.replace("after_fusion.", f"after_fu{odd}sion."): content.replace(
                b"broadcast_add_fusion", b"broadcast_" + odd.encode() + b"_fusion"
            )
            for name, content in unpacked(CPU).items()
        }
        dump = write(tmp_path / "dump", files)
        for format_name in ("text", "markdown", "json"):
            result = run(dump, "--format", format_name)
            assert result.code in (0, 2)
            assert "bug in fusionscope" not in result.errors
            assert CONTROL.search(result.out + result.errors) is None
            if format_name == "markdown":
                assert "<b>" not in result.out
                assert are_tables_even(result.out)
        shutil.rmtree(dump)
