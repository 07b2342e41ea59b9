"""The `verify` command: what it finds, what it refuses, and that nothing makes it fall over."""

import json
import re
from collections.abc import Callable

import pytest
from sample_dumps import (
    CONTROL,
    CPU,
    DUMPS,
    GPU,
    TPU,
    hostile_files,
    unlike_documented,
    unpacked,
    write,
)

from fusionscope.dump import open_dump
from fusionscope.explain.analyze_module import analyze_module

pytestmark = pytest.mark.slow

OLD = DUMPS / "cpu-jaxlib-0.10/concatenate"  # its record is text
REDUCTIONS = DUMPS / "cpu-multi-output/reductions"
SEVERAL = DUMPS / "cpu-multi-output/cartpole"


NEEDED = re.compile(
    r"dot-library|fusion|layout_assignment|after_optimizations|debug_options|_fusion\."
)


def needed(dump) -> dict[str, bytes]:
    """The files that a verification looks at."""
    return {name: content for name, content in unpacked(dump).items() if NEEDED.search(name)}


def record(files: dict[str, bytes]) -> str:
    (name,) = [name for name in files if "_fusion." in name and name.endswith((".html", ".pyz"))]
    return name


def figures(run, *arguments):
    result = run(*arguments, "--format", "json")
    document = json.loads(result.out)
    (module,) = document["modules"]
    return document, {item["pass"]: item for item in module["passes"]}


@pytest.mark.main
def test_text(run):
    result = run(CPU)
    assert (result.code, result.errors) == (0, "")
    for part in (
        "jit_program",
        "dot-library-rewriter",
        "fusion-wrapper",  # passes
        "cpu-fusion",  # rules
        "16 of 16",  # decisions, as many as the record tells
        "100% agreement: 3 of 3 plans identical",
    ):
        assert part in result.out, part


@pytest.mark.parametrize("width", [40, 60, 100])
def test_text_fits_its_width_and_leaves_nothing_out(run, width):
    printed = run(SEVERAL, COLUMNS=str(width)).out
    assert max(map(len, printed.splitlines())) <= width
    assert "…" not in printed
    passes = figures(run, SEVERAL)[1].values()
    table = re.sub(r"\s", "", printed)
    for number in {str(fusion_pass["pairs"]["compared"]) for fusion_pass in passes}:
        assert number in table


def test_json_is_as_documented(run, tmp_path):
    files = needed(OLD)
    for name in files:
        if "after_fusion." in name:
            files[name] = files[name].replace(b"kind=kLoop", b"kind=kOutput", 1)
        elif "after_fusion-wrapper" in name:
            files[name] = b"HloModule cut"
        elif name == record(files):
            files[name] = files[name].replace(b"Concatenate fusion", b"Another fusion", 1)
    dumps = (OLD, GPU, TPU, write(tmp_path, files))
    documents = [json.loads(run(dump, "--format", "json").out) for dump in dumps]
    assert not unlike_documented("verify", *documents)


@pytest.mark.main
def test_json_says_what_the_text_says(run):
    document, passes = figures(run, CPU)
    text = run(CPU).out
    assert document["schema"] == "fusionscope.verify/1"
    assert document["agreement"] == 100 and document["identical"]
    for fusion_pass in passes.values():
        compared, agreeing = fusion_pass["pairs"]["compared"], fusion_pass["pairs"]["agreeing"]
        assert re.search(
            rf"{fusion_pass['pass']} +{fusion_pass['rules']} .* {agreeing} of {compared}\b", text
        )


@pytest.mark.main
def test_markdown(run):
    result = run(CPU, "--format", "markdown")
    rows = [line for line in result.out.splitlines() if line.startswith("|")]
    assert len({row.count("|") for row in rows}) == 1
    assert len(rows) == 2 + 3  # a heading, its rule, one for each pass


def edit(old: str, new: str) -> Callable[[str], str]:
    def apply(text: str) -> str:
        assert old in text, old
        return text.replace(old, new, 1)

    return apply


def swap_operands(text: str) -> str:
    """The first fusion of several operands reads two of them the other way round."""
    return re.sub(r"fusion\((%[\w.\-]+), (%[\w.\-]+)", r"fusion(\2, \1", text, count=1)


def drop_a_fusion(text: str) -> str:
    """In the place of the last fusion stands another operation."""
    fusion = re.findall(r"%([\w.\-]+) = (\S+) fusion\(([^()]*)\), kind=kLoop", text)[-1]
    name, shape, operands = fusion
    first = operands.split(", ")[0].split("*/")[-1]
    whole = rf"(%{re.escape(name)} = {re.escape(shape)}) fusion\(.*"
    return re.sub(
        whole, rf"\1 custom-call({first}), custom_call_target='x'".replace("'", '"'), text
    )


@pytest.mark.parametrize(
    ("change", "what"),
    [
        pytest.param(edit("kind=kLoop", "kind=kOutput"), "kind of fusion", marks=pytest.mark.main),
        (edit(" multiply(", " subtract("), "opcode"),
        (edit("dimensions={0}", "dimensions={1}"), "dimensions="),
        (swap_operands, None),
        (drop_a_fusion, None),
    ],
    ids=["kind", "opcode", "attribute", "operands", "dropped"],
)
def test_a_stage_that_another_compiler_made_is_told_apart(run, tmp_path, change, what):
    files = needed(DUMPS / "cpu/cartpole")
    (name,) = [name for name in files if "after_fusion." in name]
    changed = change(files[name].decode())
    assert changed != files[name].decode()
    dump = write(tmp_path, {**files, name: changed.encode()})
    document, passes = figures(run, dump)
    actual = passes["fusion"]["divergence"]
    assert not document["identical"] and document["agreement"] < 100
    assert what is None or actual["what"] == what
    assert actual["replay"] and actual["compiler"] and actual["replay"] != actual["compiler"]
    text = run(dump, COLUMNS="1000")
    assert text.code == 0 and actual["replay"] in text.out and actual["compiler"] in text.out
    assert run(dump, "--at-least", "100").code == 1
    assert run(dump, "--at-least", "1").code == 0


def test_pairs_that_were_not_fused_are_counted(run, tmp_path):
    files = needed(CPU)
    (late,) = [name for name in files if "after_fusion." in name]
    (early,) = [name for name in files if ".after_layout_assignment.after_pipeline" in name]
    dump = write(tmp_path, {**files, late: files[early]})
    passes = figures(run, dump)[1]
    assert passes["fusion"]["pairs"]["agreeing"] < passes["fusion"]["pairs"]["compared"]
    assert passes["fusion"]["divergence"]["replay"]


@pytest.mark.parametrize(
    ("change", "agreeing"),
    [
        (edit("Concatenate fusion is inefficient.", "Another reason."), 15),
        (edit("Not fusing |", "Not fusing |x"), 15),
    ],
    ids=["reason", "name"],
)
def test_a_record_that_says_another_thing_is_told_apart(run, tmp_path, change, agreeing):
    files = needed(OLD)
    name = record(files)
    files[name] = change(files[name].decode()).encode()
    document, passes = figures(run, write(tmp_path, files))
    actual = passes["fusion"]
    assert actual["identical"] and document["agreement"] < 100
    assert actual["decisions"] == {"compared": 16, "agreeing": agreeing}
    assert actual["disagreement"]["replay"] != actual["disagreement"]["compiler"]
    assert run(tmp_path, "--at-least", "99.5").code == 1


def test_the_order_of_a_record_counts(run, tmp_path):
    files = needed(OLD)
    name = record(files)
    labels = re.findall(r'"(Not fusing [^"]*)"', files[name].decode())
    first, second = labels[0], next(label for label in labels if label != labels[0])
    text = (
        files[name].decode().replace(first, "@").replace(second, first, 1).replace("@", second, 1)
    )
    files[name] = text.encode()
    actual = figures(run, write(tmp_path, files))[1]["fusion"]
    assert actual["decisions"]["agreeing"] < actual["decisions"]["compared"]
    assert actual["disagreement"] is not None
    assert run(tmp_path, "--at-least", "100").code == 1


def test_a_record_that_is_no_record_leaves_the_plans(run, tmp_path):
    files = needed(CPU)
    files[record(files)] = b"\x00\x01 no zip"
    result = run(write(tmp_path, files))
    (line,) = result.errors.splitlines()
    assert result.code == 0 and record(files) in line
    assert "3 of 3 plans identical" in result.out


def test_a_stage_that_cannot_be_read_leaves_the_other_passes(run, tmp_path):
    files = needed(CPU)
    (name,) = [name for name in files if "after_fusion-wrapper" in name]
    files[name] = b"HloModule m\n\nENTRY e {\n  ROOT x = f32[8] frob(\n"
    result = run(write(tmp_path, files))
    (line,) = result.errors.splitlines()
    assert result.code == 0 and f"{name}:5:" in line
    assert "2 of 2 plans identical" in result.out
    assert run(tmp_path, "--at-least", "1").code == 2  # nothing is known of the third


def test_other_rules_than_those_of_the_compiler_do_not_agree(run):
    result = run(OLD, "--rules", "cpu-0.12", "--at-least", "99.5")
    assert run(OLD, "--rules", "cpu-0.10", "--at-least", "100").code == 0
    assert "cpu-fusion " in result.out


def test_inferred_rules_are_counted_beside_a_replay(run, tmp_path):
    write(tmp_path, needed(CPU))
    for name, content in needed(TPU).items():
        write(tmp_path, {name.replace("module_0000", "module_0009"): content})
    result = run(tmp_path)
    assert (result.code, result.errors) == (0, "")
    assert "3 of 3 plans identical" in result.out and "inferred rules" in result.out


def test_inferred_rules_are_counted_apart(run):
    document = json.loads(run(TPU, "--format", "json").out)
    assert (document["agreement"], document["identical"]) == (None, False)
    (counts,) = document["inferred"]
    pairs = analyze_module(open_dump(TPU).modules[0]).facts.pairs
    refused = [pair for pair in pairs if pair.outcome == "not-fused"]
    inferred = sum(pair.evidence == "inferred" for pair in refused)
    assert (counts["refused"], counts["wrong"]) == (len(refused), None)
    assert counts["pairs"]["compared"] == counts["pairs"]["agreeing"] >= inferred > 0
    assert f"{counts['pairs']['agreeing']} of {len(refused)} refused pairs" in run(TPU).out
    assert run(TPU, "--at-least", "1").code == 2


def test_a_tpu_dump_without_the_stage_before_fusion_is_refused(run, tmp_path):
    saved = {
        name: content
        for name, content in unpacked(TPU).items()
        if name.endswith(("before_optimizations.txt", "after_optimizations.txt"))
    }
    run(write(tmp_path, saved)).check_refused("--xla_dump_hlo_pass_re")


@pytest.mark.parametrize("format_name", ["text", "json", "markdown"])
def test_hostile_names_never_reach_the_output_raw(run, tmp_path, format_name):
    files = hostile_files(CPU)
    for name in files:
        if "after_fusion." in name:
            files[name] = files[name].replace(b"kind=kLoop", b"kind=kOutput", 1)
    result = run(write(tmp_path / "dump", files), "--format", format_name)
    assert result.code == 0, result.errors
    assert CONTROL.search(result.out) is None and CONTROL.search(result.errors) is None
    if format_name == "markdown":
        assert "<b>" not in result.out


@pytest.mark.parametrize("dump", [CPU, GPU])
def test_a_stage_long_before_the_pass_that_cannot_be_read_is_told(run, tmp_path, dump):
    """The order of users is found from all stages before a pass."""
    files = unpacked(dump)
    bad = next(name for name in sorted(files) if ".0005." in name and name.endswith(".txt"))
    files[bad] = b"junk\n"
    result = run(write(tmp_path / "dump", files))
    assert result.code == 0
    (line,) = result.errors.splitlines()
    assert bad in line and "expected HLO text" in line


@pytest.mark.parametrize("card", ["rtx6000pro", "mi300x"])
def test_other_gpus_than_the_rules_were_found_on(run, card):
    """Every figure of the cost model, reason, fusion and pair."""
    document = figures(run, DUMPS / card / "concatenate")[0]
    assert document["identical"] and document["agreement"] == 100


def test_a_gpu_can_be_named(run, tmp_path):
    whole = unpacked(DUMPS / "rtx6000pro/concatenate")
    files = {name: c for name, c in whole.items() if "target_config" not in name}
    records = [name for name in files if "priority_fusion_dump" in name]
    files |= {name: files[name].replace(b"gpu_device_info", b"nothing") for name in records}
    dump = write(tmp_path, files)
    refused = run(dump)
    assert refused.code == 2 and "--device h100" in refused.errors
    assert run(dump, "--device", "rtx6000pro", "--at-least", "100").code == 0
    assert run(dump, "--device", "h100", "--at-least", "100").code == 1
    # In the place of the one that the dump describes.
    assert run(DUMPS / "rtx6000pro/concatenate", "--device", "h100", "--at-least", "100").code == 1


# What an instruction can be without, as seen by a parser, and cannot, as seen by a rule.
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r", dimensions=\{[\d,]*\}", ""),
        (r", to_apply=%[\w.\-]+", ""),
        (r", calls=%[\w.\-]+", ""),
        (r", slice=\{[^}]*\}", ""),
        (r", kind=\w+", ""),
        (r", lhs_contracting_dims=\{\d+\}", ", lhs_contracting_dims={7}"),
        (r" exponential\(", " frobnicate("),
        (r"f32\[\d+,", "f32[<=8,"),
        (r"f32\[\d+,", "f32[?,"),
        (r"f32\[[\d,]*\](\{[\d,]*\})?", "token[]"),
        (r"\{1,0\}", "{1,0:T(8,128)}"),
        (r"\{1,0\}", ""),
        (r"dimensions=\{\d", "dimensions={9"),
        (r"metadata=", "control-predecessors={%nobody}, metadata="),
    ],
)
@pytest.mark.parametrize("times", [1, 0])
def test_a_stage_in_which_something_lacks_is_answered_or_refused(run, tmp_path, old, new, times):
    for dump in (CPU, DUMPS / "cpu/dense", DUMPS / "cpu/loop", REDUCTIONS):
        files = needed(dump)
        for name in files:
            if name.endswith(".txt"):
                files[name] = re.sub(old, new, files[name].decode(), count=times).encode()
        result = run(write(tmp_path / dump.name, files))
        assert result.code in (0, 2)
        assert "bug in fusionscope" not in result.errors, (dump, result.errors)
        if result.code == 2:
            assert "module_0000" in result.errors and len(result.errors.splitlines()) == 1


def chain(length: int, width: int) -> bytes:
    """Negations one after the other, and a concatenate of many operands."""
    lines = ["HloModule jit_program\n", f"ENTRY main (x: f32[8]) -> f32[{8 * width}] {{"]
    lines += ["  x = f32[8]{0} parameter(0)", "  n0 = f32[8]{0} negate(x)"]
    lines += [f"  n{i} = f32[8]{{0}} negate(n{i - 1})" for i in range(1, length)]
    operands = ", ".join([f"n{length - 1}"] * width)
    lines += [f"  ROOT c = f32[{8 * width}]{{0}} concatenate({operands}), dimensions={{0}}", "}"]
    return "\n".join(lines).encode()


def test_long_chains_and_many_operands_are_no_trouble(run, tmp_path):
    text = chain(3000, 2000)
    stages = (
        "0001.after_layout_assignment.after_pipeline-start.before_pipeline-end",
        "0002.HLO_passes_after_layout_assignment.after_fusion.before_fusion-wrapper",
        "cpu_after_optimizations",
    )
    dump = write(tmp_path, {f"module_0000.jit_program.{name}.txt": text for name in stages})
    result = run(dump, "--at-least", "99.5")
    assert result.code == 1  # nothing was fused there, which the rules would have done
    assert "differs" in result.out
