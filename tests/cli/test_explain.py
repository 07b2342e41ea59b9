"""The `explain` command: what it prints, what it refuses, and that nothing makes it fall over."""

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs, to_builtins
from sample_dumps import (
    CONTROL,
    CPU,
    DUMPS,
    GPU,
    HOSTILE,
    ROOT,
    TPU,
    hostile_files,
    keys,
    unlike_documented,
    unpacked,
    write,
)
from sample_kinds import all_samples

from fusionscope.advise.suggest import suggest
from fusionscope.facts.result import Operation
from fusionscope.facts.suggestions import Exclusion, HowTried, Step, Together
from fusionscope.findings.collectives.facts import Collective, CollectiveCause, Sharding
from fusionscope.findings.resources.facts import SpillCost, SpillTrial, over_fused
from fusionscope.findings.run.facts import Run

pytestmark = pytest.mark.slow

LIBRARIES = DUMPS / "h100-without-triton-gemm" / "projections"
SPILLS = Path(__file__).parents[1] / "explain/data/spills"
PROFILE = SPILLS.parent / "profile"
OVERRULED = DUMPS / "h100" / "reductions"


def is_one_option(line):
    """Return whether a line of a command cannot be shorter: it breaks before an option only."""
    return re.fullmatch(r"\s*(\d+\. )?(fusionscope|--)((?! --).)*", line) is not None


@pytest.mark.parametrize(
    "dump",
    [GPU, CPU, TPU, DUMPS / "h100/cartpole", LIBRARIES],
    ids=lambda d: f"{d.parent.name}-{d.name}",
)
def test_text_fits_its_width(run, dump):
    for width in (60, 100, 137):  # the analysis is kept for the next one
        lines = run(dump, "--all", COLUMNS=str(width)).out.splitlines()
        assert max(len(line) for line in lines if not is_one_option(line)) <= width
        assert [line for line in lines if line.endswith(" ")] == []


def test_text_in_a_pipe_is_a_hundred_wide(run):
    assert run(GPU).out == run(GPU, COLUMNS="100").out


def test_top_limits_every_list(run):
    first, many = (run(DUMPS / "cpu/attention", "--top", n).out for n in (1, 50))
    assert len(first.splitlines()) < len(many.splitlines())
    assert "\n  2. " not in first and "\n  2. " in many


@pytest.mark.main
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--pair", "tanh* -> concatenate*"], {("tanh.1.0", "concatenate.1.0")}),
        (["--pair", "tanh -> *"], {("tanh.1.0", "concatenate.1.0")}),
        (["--op", "slice"], {("concatenate.1.0", "slice.1.0"), ("slice.1.0", "add.1")}),
        (
            ["--reason", "pf-negative"],
            {("tanh.1.0", "concatenate.1.0"), ("mul.3.0", "concatenate.1.0")},
        ),
        (["--computation", "region*"], set()),
        (
            ["--source", "concatenate.py:10", "--op", "exponential"],
            {("concatenate.1.0", "exp.1.0")},
        ),
        (["--source", "another.py"], set()),
    ],
)
def test_what_is_asked_for(run, options, expected):
    document = json.loads(run(GPU, "--format", "json", *options).out)
    pairs = document["modules"][0]["pairs"]
    assert {(pair["producer"]["name"], pair["consumer"]["name"]) for pair in pairs} == expected
    text = run(GPU, *options).out
    actual = {tuple(p) for p in re.findall(r"^ +\d+\. (\S+) -> (\S+)  ", text, re.MULTILINE)}
    assert actual == expected


def test_all_lists_every_pair(run):
    count = len(json.loads(run(GPU, "--format", "json").out)["modules"][0]["pairs"])
    listed = run(GPU, "--all", "--no-try").out
    assert len(re.findall(r"^ +\d+\. .* -> ", listed, re.MULTILINE)) == count > 5


@pytest.mark.main
def test_module(run):
    assert run(GPU, "--module", "jit_p*").out == run(GPU, "--module", "1").out == run(GPU).out
    refused = run(GPU, "--module", "other")
    assert refused.code == 2 and "jit_program" in refused.errors


def tried_changes(compilation, saved, device, tries, module, facts, resources, progress):
    """What compiling found for the program of ``SPILLS`` with larger arrays."""
    before = SpillCost(
        launches=1, bytes_moved=172 * 10**6, time_us=1610.0,
        spilling=1, spill_bytes=5_310_000_000, spill_us=1585.0,
    )  # fmt: skip
    after = structs.replace(before, launches=43, spill_bytes=66_100_000, spill_us=19.7)
    attempts = (
        SpillTrial("--set pf-code-dup.limit=840", after),
        SpillTrial("--flag a=b", None, "no"),
    )
    return replace(resources, over_fused=over_fused(("loop_add_fusion",), before, attempts))


def taken_together(module, facts, **options):
    """What to try, with changes together as compiling finds them."""
    suggestions = suggest(module, facts, **options)
    if not suggestions.helpful:
        return suggestions
    change = suggestions.helpful[0]
    together = Together(
        before=change.before,
        steps=(Step(change=change.change, after=change.after),),
        excluded=(Exclusion(change=change.change, why="adds nothing to them"),),
        evidence=HowTried.REGION,
    )
    return replace(suggestions, together=together).numbered()


def test_json_is_as_documented(run, tmp_path, monkeypatch):
    monkeypatch.setenv("PTXAS", str(SPILLS / "ptxas"))
    monkeypatch.setattr("fusionscope.advise.spills.compile_resources", tried_changes)
    monkeypatch.setattr("fusionscope.advise.suggest.suggest", taken_together)
    files = unpacked(CPU)
    write(tmp_path, files)
    large = {
        n.replace("module_0000", "module_0001"): c for n, c in unpacked(DUMPS / "cpu/dense").items()
    }
    write(tmp_path, large)
    tiny = b"HloModule m\n\nENTRY %e (x: f32[]) -> f32[] {\n  ROOT %x = f32[] parameter(0)\n}\n"
    write(tmp_path, {"module_0002.m.cpu_after_optimizations.txt": tiny})
    write(tmp_path, {"module_0003.n.cpu_after_optimizations.txt": b"HloModule n\n"})
    tuned = tmp_path.with_name("tuned")
    log = 'logs { results { run_time { nanos: 9 } gemm { } } fusion_name: "gemm_fusion_dot" }'
    write(tuned, {**unpacked(DUMPS / "h100/dense"), "autotune_logs.txt": log.encode()})
    floats = tmp_path.with_name("floats")
    product = (
        b"HloModule m\n\nENTRY e {\n  x = f8e4m3fn[16,16]{1,0} parameter(0)\n"
        b"  wide = f32[16,16]{1,0} convert(x)\n  negated = f32[16,16]{1,0} negate(wide)\n"
        b"  ROOT dot = f32[16,16]{1,0} dot(wide, negated), lhs_contracting_dims={1}, "
        b"rhs_contracting_dims={0}\n}\n"
    )
    stages = (
        "0021.hlo_normalization.after_pipeline-start.before_algsimp",
        "sm_9.0_gpu_after_optimizations",
    )
    write(floats, {f"module_0001.m.{stage}.txt": product for stage in stages})
    faults = Path(__file__).parents[1] / "explain/advisories"
    faulty = tmp_path.with_name("faulty")
    texts = [faults / f"factor-before-bias{part}.hlo" for part in ("-program", "")]
    write(
        faulty,
        {
            f"module_0001.jit_res.{stage}.txt": text.read_bytes()
            for stage, text in zip(stages, texts, strict=True)
        },
    )
    attempts = ("--disable", "cpu-concat", "--allow", "no -> such")
    request = (
        (tmp_path,), (tuned,), (floats,), (faulty,), (GPU,), (TPU,), (CPU, *attempts), (LIBRARIES,),
        (OVERRULED,),
        (DUMPS / "h100/convolution", "--movements"), (DUMPS / "h100/loop",), (CPU, "--kernel", "*"),
        (SPILLS, "--resources"), (SPILLS, "--resources", "--compile"), (SPILLS.parent / "graphs",),
        (SPILLS.parent / "residual",), (SPILLS.parent / "kernel_sum",),
        (PROFILE / "dump", "--profile", PROFILE / "trace"),
    )  # fmt: skip
    documents = [json.loads(run(*arguments, "--format", "json").out) for arguments in request]
    assert {document["schema"] for document in documents} == {"fusionscope.explain/1"}
    # What only a run tells, for which jax is needed.
    run_facts = Run(time_us=2.0, runs=9, at_best_us=1.0, at_best_bytes=8.0, bandwidth=8.0)
    # What only a program for several devices has.
    operation = Operation(name="p", opcode="parameter", shape="f32[2]", op_name=None, source=None)
    sharding = Sharding(operation=operation, text="{devices=[2]<=[2]}", set_by="x")
    collective = Collective(
        name="all-reduce", kind="all-reduce", kernels=("all-reduce",), runs=1, bytes=4,
        groups="{{0,1}}", cause=CollectiveCause.PROGRAM, source=None,
        before=sharding, after=sharding, beside=("fusion",), beside_ns=0.0,
    )  # fmt: skip
    module = {"run": to_builtins(run_facts), "collectives": [to_builtins(collective)]}
    empty = (
        *("near[]", "opportunities[].parameters[]", "suggestions[].keeps[]", "rejected[].keeps[]"),
        *("suggestions[].removes[]", "unmeasured[].removes[]", "rejected[].removes[]"),
        *("rejected[].sources[]", "unmeasured[].sources[]"),
    )
    nowhere = tuple(f"modules[].{name}" for name in empty)
    assert not unlike_documented("explain", *documents, {"modules": [module]}, besides=nowhere)
    actual = keys("explain", *documents)
    # What users were promised by these names.
    for name in (
        "producer.name", "consumer.name", "computation", "outcome", "kernel", "stage", "reason",
        "message", "evidence", "bytes_saved", "source.producer", "source.consumer",
    ):  # fmt: skip
        assert f"modules[].pairs[].{name}" in actual
    assert {f"modules[].{n}" for n in ("name", "backend", "device", "summary")} <= actual


@pytest.mark.main
def test_json_says_what_the_text_says(run):
    module = json.loads(run(GPU, "--format", "json").out)["modules"][0]
    text = run(GPU, "--top", "5").out
    summary = module["summary"]
    assert f" {summary['launches']} launches " in text
    assert f" {summary['launches_before']} launches " in text
    outcomes = [f"{n} {name}" for name, n in summary["outcomes"].items() if n]
    assert f"pairs: {', '.join(outcomes)}" in text
    assert sum(summary["outcomes"].values()) == len(module["pairs"])


@pytest.mark.parametrize(
    "dump",
    [pytest.param(GPU, marks=pytest.mark.main), LIBRARIES],
    ids=lambda dump: dump.name,
)
def test_rows_of_a_table_have_as_many_cells(run, dump):
    tables = re.split(r"\n\n+", run(dump, "--format", "markdown").out)
    rows = [table.splitlines() for table in tables if table.startswith("|")]
    assert len(rows) > 5
    for table in rows:
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in table}) == 1


def test_sections_stand_where_there_is_something_to_say(run):
    assert "Library boundaries" not in run(GPU, "--top", "5").out
    assert "Compile time" not in run(DUMPS / "h100/attention").out  # 444 ms are no reason to ask
    assert "Compile time" not in run(CPU, "--all").out  # XLA records no times for CPUs


def test_a_kernel_that_is_not_there(run):
    assert run(GPU, "--kernel", "nobody").code == 1


def test_a_module_that_cannot_be_read_is_told_beside_the_others(run, tmp_path):
    write(tmp_path, unpacked(CPU))
    write(tmp_path, {"module_0007.bad.cpu_after_optimizations.txt": b"\x00\x01"})
    result = run(tmp_path)
    assert result.code == 0
    (line,) = result.errors.splitlines()
    assert "module_0007.bad.cpu_after_optimizations.txt" in line
    assert "jit_program on CPU" in result.out


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    return write(tmp_path / "dump", hostile_files(GPU))


@pytest.mark.main
@pytest.mark.parametrize("format_name", ["text", "json", "markdown"])
def test_hostile_names_never_reach_the_output_raw(run, hostile, format_name):
    result = run(hostile, "--all", "--format", format_name)
    assert result.code == 0, result.errors
    assert CONTROL.search(result.out) is None
    assert CONTROL.search(result.errors) is None
    if format_name == "json":
        pairs = json.loads(result.out)["modules"][0]["pairs"]
        assert any("\x1b[31m" in (pair["producer"]["op_name"] or "") for pair in pairs)
    if format_name == "markdown":
        assert "<script" not in result.out and "<b>" not in result.out


@pytest.mark.parametrize("format_name", ["text", "json", "markdown"])
def test_hostile_calls_never_reach_the_output_raw(run, tmp_path, format_name):
    files = {
        name: content.replace(b"__cublas$lt$matmul", HOSTILE.encode())
        for name, content in hostile_files(LIBRARIES).items()
    }
    result = run(write(tmp_path / "dump", files), "--all", "--format", format_name)
    assert result.code == 0, result.errors
    assert CONTROL.search(result.out) is None
    if format_name == "json":
        calls = json.loads(result.out)["modules"][0]["boundaries"]
        assert {call["computes"] for call in calls} == {HOSTILE}
    if format_name == "markdown":
        assert "<script" not in result.out


def test_hostile_names_never_reach_an_error_raw(run, tmp_path):
    result = run(tmp_path / "no\x1b[31m\nsuch\u202edump")
    assert result.code == 2
    assert len(result.errors.splitlines()) == 1
    assert CONTROL.search(result.errors) is None


@pytest.mark.parametrize("format_name", ["text", "markdown"])
def test_names_that_are_no_text_can_be_written_to_a_file(run, tmp_path, format_name):
    dump = tmp_path / "dump"
    dump.mkdir()
    for name, content in unpacked(CPU).items():
        odd = os.fsencode(name).replace(b"jit_program", b"jit_\xff\xfe")
        Path(os.fsdecode(os.fsencode(dump) + b"/" + odd)).write_bytes(content)
    assert run(dump).code == 0
    result = run(dump, "--format", format_name, "--output", tmp_path / "out")
    assert result.code == 0
    assert "jit_" in (tmp_path / "out").read_text(encoding="utf-8")


def test_a_reader_that_leaves_early_is_no_error():
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "fusionscope",
            "explain",
            DUMPS / "h100/cartpole",
            "--all",
            "--no-try",
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout and process.stderr
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() in (0, -signal.SIGPIPE)


def test_no_colour_in_a_pipe(run):
    assert "\x1b" not in run(GPU, TERM="xterm", CLICOLOR="1").out


def tried(run, dump, *options):
    """What changed rules would do, as JSON."""
    (module,) = json.loads(run(dump, *options, "--format", "json").out)["modules"]
    return module["what_if"]


def test_nothing_is_tried_unless_asked_for(run):
    assert tried(run, CPU) is None


@pytest.mark.main
def test_a_rule_left_out_fuses_what_it_kept_apart(run):
    actual = tried(run, CPU, "--disable", "cpu-concat")
    assert actual["changes"] == "without cpu-concat" and not actual["notes"]
    # The rule is about concatenates, and each pair that it kept apart is one with it.
    joined = [pair for pair in actual["pairs"] if pair["before"] == "not-fused"]
    assert joined and {pair["rule"] for pair in joined} <= {"cpu-concat", "cpu-small-matvec"}
    assert all("concatenate" in pair["producer"] + pair["consumer"] for pair in joined)
    assert actual["launches"]["after"] < actual["launches"]["before"]
    assert actual["bytes_moved"]["after"] < actual["bytes_moved"]["before"]


def test_a_threshold_does_what_leaving_out_the_rule_does(run):
    without = tried(run, CPU, "--disable", "cpu-concat")
    above = tried(run, CPU, "--set", "cpu-concat.min_bytes=1000000000")
    assert above["pairs"] == without["pairs"] != []
    assert tried(run, CPU, "--set", "cpu-concat.min_bytes=2048")["pairs"] == []  # as it is


def test_a_forbidden_pair_is_parted_and_an_allowed_one_joined(run):
    pairs = json.loads(run(CPU, "--format", "json").out)["modules"][0]["pairs"]
    fused = next(pair for pair in pairs if pair["outcome"] == "fused")
    first, second = (fused[end]["name"] for end in ("producer", "consumer"))
    parted = tried(run, CPU, "--forbid", f"{first} -> {second}")
    assert {
        "producer": first, "consumer": second, "before": "fused", "after": "not-fused",
        "rule": "user-forbid",
    }.items() <= next(p for p in parted["pairs"] if p["producer"] == first).items()  # fmt: skip
    assert parted["launches"]["after"] > parted["launches"]["before"]
    joined = tried(run, CPU, "--allow", "concatenate -> *", "--allow", "* -> concatenate")
    assert any(
        pair["after"] != "not-fused" and pair["rule"] == "cpu-concat" for pair in joined["pairs"]
    )


def test_what_is_not_legal_is_not_allowed(run):
    """Nothing goes into a library's fusion, whatever a user asks for."""
    dump = DUMPS / "cpu/attention"
    actual = tried(run, dump, "--allow", "* -> *")
    pairs = json.loads(run(dump, "--format", "json").out)["modules"][0]["pairs"]
    reasons = {(p["producer"]["name"], p["consumer"]["name"]): p["reason"] for p in pairs}
    kept_out = ("lib-", "never-", "ynn-")
    assert any(reason and reason.startswith(kept_out) for reason in reasons.values())
    for pair in actual["pairs"]:
        if pair["after"] != "not-fused":
            assert not reasons[pair["producer"], pair["consumer"]].startswith(kept_out)


@pytest.mark.parametrize(
    ("options", "note"),
    [
        (["--allow", "nobody -> *"], "no pair before the fusion pass matches nobody -> *"),
        (["--forbid", "add* -> nobody"], "matches add* -> nobody"),
        (["--disable", "cpu-mof-profit"], "none of the replayed passes uses cpu-mof-profit"),
        (["--set", "cpu-mof-operands.limit=3"], "uses cpu-mof-operands"),
        (["--rules", "cpu-0.10", "--disable", "cpu-softmax-coupling"], "uses cpu-softmax-coupling"),
        (["--disable", "cpu-no-case"], "without cpu-no-case the module may not compile"),
    ],
)
def test_a_change_without_effect_or_use_is_told(run, options, note):
    assert any(note in item for item in tried(run, CPU, *options)["notes"])
    for format_name in ("text", "markdown"):
        assert note in " ".join(
            run(CPU, *options, "--format", format_name, COLUMNS="500").out.split()
        )


def test_a_plan_file_is_the_same_as_options(run, tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text(
        'disable = ["cpu-code-dup"]\nforbid = ["add -> *"]\nallow = ["* -> concatenate"]\n'
        '[set]\n"cpu-max-reductions.limit" = 12\n[set.cpu-concat]\nmax_operands = 9\n'
    )
    options = "--disable", "cpu-code-dup", "--forbid", "add -> *", "--allow", "* -> concatenate"
    values = "--set", "cpu-max-reductions.limit=12", "--set", "cpu-concat.max_operands=9"
    assert tried(run, CPU, "--plan", plan) == tried(run, CPU, *options, *values)
    both = tried(run, CPU, "--plan", plan, "--disable", "cpu-concat")
    assert "without cpu-code-dup" in both["changes"] and "without cpu-concat" in both["changes"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "cpu-concat"], "RULE.NAME=N"),
        (["--set", "cpu-concat=9"], "RULE.NAME=N"),
        (["--set", "cpu-concat.max_operands=-1"], "whole number"),
        (["--set", "cpu-concat.max_operands=1.5"], "whole number"),
        (["--set", "cpu-concat.max_operands=nine"], "whole number"),
        (["--set", f"cpu-concat.max_operands={'9' * 5000}"], "18 digits"),
        (["--set", "cpu-concat.operands=9"], "max_operands"),
        (["--set", "cpu-root.limit=9"], "no rule is called 'cpu-root'"),
        (["--disable", "cpu-concatenate"], "cpu-concat"),
        (["--disable", ""], "fusionscope rules"),
        (["--allow", "add"], "PRODUCER -> CONSUMER"),
        (["--forbid", "add -> exp -> dot"], "PRODUCER -> CONSUMER"),
        (["--rules", "gpu-1"], "cpu-0.12"),
        (["--plan", "/no/such/plan"], "/no/such/plan"),
        (["--plan", str(CPU)], "a directory, expected a regular file"),
    ],
)
def test_a_change_that_is_none_is_said_in_a_line(run, options, message):
    result = run(CPU, *options)
    assert (result.code, result.out) == (2, "")
    *_, line = result.errors.splitlines()  # a note on the old spelling comes first
    assert message in line and len(line) < 400


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"disable = [", "not TOML"),
        (b"disable = cpu-concat", ":1:11: not TOML"),
        (b"disable = 'cpu-concat'", ":1: disable = 'cpu-concat', expected a list"),
        (b"disable = [3]", ":1: disable[0] = 3, expected a text"),
        (b"disable = ['nobody']", "nobody"),
        (b"enable = ['cpu-concat']", "'enable'"),
        (b"allow = ['add']", "PRODUCER -> CONSUMER"),
        (b"set = 3", ":1: set = 3, expected a table"),
        (b"[set]\ncpu-concat = 3", "RULE.NAME=N"),
        (b"[set]\ncpu-concat.max_operands = true", "whole number"),
        (b"[set]\ncpu-concat.max_operands = 1.5", "whole number"),
        (b"[set]\ncpu-concat.max_operands.more = 1", "whole number"),
        (b"[set]\ncpu-concat.max_operands = " + b"9" * 5000, "not TOML"),
        (b"allow = " + b"[" * 20000, "not TOML"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"HloModule m\n", "not TOML"),
    ],
)
def test_a_plan_file_that_is_none_is_said_in_a_line(run, tmp_path, content, message):
    plan = tmp_path / "plan.toml"
    plan.write_bytes(content)
    result = run(CPU, "--plan", plan)
    assert (result.code, result.out) == (2, "")
    *_, line = result.errors.splitlines()
    assert str(plan) in line and message in line


def test_thresholds_are_those_of_the_version(run):
    dump = DUMPS / "cpu-jaxlib-0.10/concatenate"
    assert tried(run, dump, "--set", "cpu-concat.min_extent=1000000")["pairs"]
    refused = run(dump, "--set", "cpu-concat.min_bytes=1000000")
    assert refused.code == 2 and "min_extent" in refused.errors


def test_rules_of_a_backend_that_is_not_replayed_cannot_be_changed(run):
    result = run(TPU, "--disable", "cpu-concat")
    assert result.code == 2 and "no fusion pass can be replayed" in result.errors


def test_rules_of_another_backend_change_nothing(run):
    result = run(GPU, "--disable", "cpu-concat")
    assert result.code == 0 and "none of the replayed passes uses cpu-concat" in result.out


def without_device(dump: Path, directory: Path) -> Path:
    """What is left where no file tells the GPU or the compiler's decisions."""
    reported = re.compile(r"target_config|priority_fusion_dump|_fusion\.")
    files = {n: c for n, c in unpacked(dump).items() if not reported.search(n)}
    return write(directory, files)


def module_of(run, dump, *options):
    (module,) = json.loads(run(dump, *options, "--format", "json").out)["modules"]
    return module


def reasons_of(module):
    return {
        (pair["producer"]["name"], pair["consumer"]["name"]): pair["reason"]
        for pair in module["pairs"]
    }


def test_a_dump_that_does_not_tell_its_gpu_has_reasons_once_it_is_named(run, tmp_path):
    dump = without_device(GPU, tmp_path / "dump")
    (note, _) = module_of(run, dump)["notes"]
    assert "--device h100" in note and note in " ".join(run(dump, COLUMNS="999").out.split())
    description = next(GPU.glob("*target_config*"))
    local = module_of(run, GPU)
    for name in "h100", "H100", description:
        reported = module_of(run, dump, "--device", name)
        assert reasons_of(reported) == reasons_of(local)
        assert reported["device"] == local["device"] and reported["what_if"] is None
        assert any("does not describe its GPU" in note for note in reported["notes"])


def test_the_gpu_of_the_dump_is_no_other_one(run):
    assert run(GPU, "--device", "h100").out == run(GPU).out


@pytest.mark.parametrize("name", ["rtx6000pro", "mi300x", "h200"])
def test_what_would_be_fused_for_another_gpu_is_what_its_own_dump_shows(run, name):
    """Of one program there are dumps for several, which differ in what was fused."""
    here, there = (module_of(run, DUMPS / card / GPU.name) for card in ("h100", name))
    attempts = module_of(run, GPU, "--device", name)
    assert [note for note in attempts["notes"] if "H100 SXM" in note and there["device"] in note]
    assert attempts["pairs"] == here["pairs"] and attempts["device"] == here["device"]

    def together(module):
        return {
            (pair["producer"]["name"], pair["consumer"]["name"])
            for pair in module["pairs"]
            if pair["outcome"] in ("fused", "duplicated")
        }

    changed = {(pair["producer"], pair["consumer"]) for pair in attempts["what_if"]["pairs"]}
    assert changed == together(here) ^ together(there)
    assert there["device"] in attempts["what_if"]["changes"]
    assert there["device"] in " ".join(run(GPU, "--device", name).out.split())
    # Changed rules are tried for the other GPU, too.
    both = module_of(run, GPU, "--device", name, "--disable", "pf-negative")["what_if"]["changes"]
    assert both == f"without pf-negative, for {there['device']}"


def test_a_gpu_is_nothing_to_a_cpu(run):
    module = module_of(run, CPU, "--device", "h100")
    assert any("changes nothing" in note for note in module["notes"])
    assert module["device"] is None and module["what_if"] is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("h300", "did you mean h200 or h100"),
        ("no/such/file", "a file that describes one"),
        (str(CPU), "a file that describes one"),
        (__file__, "expected name: value"),
        ("x" * 5000, "a file that describes one"),
        ("\x1b[31mred\n", "no device is called"),
    ],
)
def test_a_gpu_that_is_none_is_said_in_a_line(run, name, message):
    result = run(GPU, "--device", name)
    assert (result.code, result.out) == (2, "")
    (line,) = result.errors.splitlines()
    assert message in line


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no gpu_device_info in it"),
        (b"\xff\xfe\x00\x01" * 500, "byte 0 is not text"),
        (b"gpu_device_info {" * 10_000, "nest deeper"),
        (b'gpu_device_info { core_count: "many" }', 'core_count is "many"'),
        (b"gpu_device_info { core_count: 1.5 }", "core_count is 1.5"),
        (b"gpu_device_info { core_count { a: 1 } }", "core_count is a message"),
        (b"gpu_device_info { core_count: " + b"9" * 5000 + b" }", "core_count is 999"),
        (b'gpu_device_info { name: "x }', "expected name: value"),
    ],
)
def test_a_description_that_is_none_is_said_in_a_line(run, tmp_path, content, message):
    file = tmp_path / "device.pbtxt"
    file.write_bytes(content)
    result = run(GPU, "--device", file)
    assert (result.code, result.out) == (2, "")
    (line,) = result.errors.splitlines()
    assert message in line and str(file) in line and len(line) < 500


def test_a_description_cut_short_or_unreadable_is_said_in_a_line(run, tmp_path):
    whole = next(GPU.glob("*target_config*")).read_bytes()
    file = tmp_path / "device.pbtxt"
    for end in range(1, len(whole) - 300, len(whole) // 12):
        file.write_bytes(whole[:end])
        result = run(GPU, "--device", file)
        assert (result.code, result.out) == (2, ""), end
        (line,) = result.errors.splitlines()
        assert str(file) in line, end
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    result = run(GPU, "--device", loop)
    assert result.code == 2 and "cannot be read" in result.errors


def test_a_description_puts_no_escapes_into_the_output(run, tmp_path):
    description = next(GPU.glob("*target_config*")).read_text()
    file = tmp_path / "device.pbtxt"
    hostile = r'"\\033[31mred\\n<b>x|y\\355\\240\\200"'
    by_name = re.sub(r'"NVIDIA[^"]*"', hostile, description)
    file.write_text(by_name.replace("core_count: 132", "core_count: 131"))
    for format_name in "text", "json", "markdown":
        result = run(GPU, "--device", file, "--format", format_name)
        assert result.code == 0, result.errors
        assert "131 cores" in result.out and "red" in result.out
        assert CONTROL.search(result.out) is None
        assert format_name != "markdown" or "<b>" not in result.out


@pytest.mark.parametrize("value", ["0", "-1", str(2**62), "9" * 200])
@pytest.mark.parametrize("figure", ["threads_per_warp", "memory_bandwidth", "clock_rate_ghz"])
def test_a_gpu_that_cannot_be_is_noted(run, tmp_path, figure, value):
    description = next(GPU.glob("*target_config*")).read_text()
    file = tmp_path / "device.pbtxt"
    file.write_text(re.sub(rf"\b{figure}: \S+", f"{figure}: {value}", description))
    result = run(without_device(GPU, tmp_path / "dump"), "--device", file)
    assert (result.code, result.errors) == (0, "")
    assert f"{figure} of the GPU" in " ".join(result.out.split())


def test_help_shows_how_to_name_a_gpu(run):
    assert "--device b200" in run("--help").out


def test_a_filter_that_selects_nothing_prints_only_that(run):
    result = run(GPU, "--pair", "foo -> concatenate")
    assert (result.code, result.errors) == (1, "")
    assert len(result.out.splitlines()) == 1
    assert "'foo -> concatenate'" in result.out
    assert run(GPU, "--pair", "tanh -> concatenate").code == 0


@pytest.mark.parametrize("dump", all_samples())
def test_the_first_screen_fits_a_screen(run, dump):
    assert len(run(dump, COLUMNS="100").out.splitlines()) <= 40


@pytest.mark.parametrize("dump", [GPU, CPU, TPU, DUMPS / "h100/cartpole", LIBRARIES])
def test_the_first_screen_is_as_wide_as_the_terminal(run, dump):
    for width, height in ((80, 48), (100, 40)):  # the analysis is kept for the next one
        lines = run(dump, COLUMNS=str(width)).out.splitlines()
        assert len(lines) <= height
        assert max(map(len, lines)) <= width


def test_a_bounded_loop_says_so_and_steps_overrule_it(run):
    """``(step < 100) & (change > 1e-3)``: three kernels before the loop, four in its body, and one
    in its condition, which runs once more.
    """
    dump = DUMPS / "cpu" / "loop"
    module = json.loads(run(dump, "--no-try", "--format", "json").out)["modules"][0]
    assert module["summary"]["launches"] == 3 + 4 * 100 + 101
    (loop,) = module["loops"]
    assert (loop["name"], loop["steps"], loop["length"]) == ("while.6", 100, "at most")
    assert (loop["tests"], loop["runs"], loop["is_function"]) == (101, 1, False)
    module = json.loads(run(dump, "--no-try", "--format", "json", "--steps", "while.6=7").out)[
        "modules"
    ][0]
    assert module["summary"]["launches"] == 3 + 4 * 7 + 8
    assert module["summary"]["exact"]
    assert module["loops"][0]["length"] == "given"
    assert "at most" not in run(dump, "--no-try", "--steps", "while.6=7").out


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ("while.7=3", "no loop is called 'while.7'; loops: while.6"),
        ("while.6", "--steps has 'while.6', expected LOOP=N"),
        ("while.6=-1", "--steps has 'while.6=-1', expected LOOP=N"),
    ],
)
def test_steps_that_make_no_sense_are_refused(run, steps, words):
    result = run(DUMPS / "cpu" / "loop", "--no-try", "--steps", steps)
    assert (result.code, result.out) == (2, "") and words in result.errors
