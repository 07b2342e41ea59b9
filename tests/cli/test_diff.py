"""The `diff` command: what it tells against what the dumps' own text says, and bad input."""

import json
import os
import re
import shutil
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
    text_of,
    unlike_documented,
    unpacked,
    write,
)

pytestmark = pytest.mark.slow


A100, B200 = DUMPS / "a100/dense", DUMPS / "b200/dense"
WHOLE, NO_MERGE = (DUMPS / f"{n}/reductions" for n in ("h100", "h100-without-multi-output-fusion"))
TRITON, NO_TRITON = (DUMPS / f"{n}/softmax" for n in ("h100", "h100-without-triton-softmax"))
PAIRS = [(A100, B200), (WHOLE, NO_MERGE), (TRITON, NO_TRITON)]
pairs = pytest.mark.parametrize(
    ("first", "second"), PAIRS, ids=["devices", "multi-output", "triton-softmax"]
)
FORMATS = ("text", "json", "markdown")


def launches(dump: Path) -> int:
    """What the compiler itself says that a run launches."""
    (file,) = dump.glob("*.thunk_sequence.txt")
    return len(file.read_text().strip().splitlines())


def labels(dump: Path) -> dict[int, str]:
    """Labels of the numbered stages, from the names of the files."""
    actual = (re.fullmatch(r"module_\d+\.\w+\.(\d{4})\.(.*)\.txt", name) for name in unpacked(dump))
    return {int(match[1]): match[2] for match in actual if match}


def stage(dump: Path, number: int) -> Path:
    (file,) = dump.glob(f"*.{number:04}.*.txt*")
    return file


def final(dump: Path) -> str:
    (text,) = (
        c.decode() for n, c in unpacked(dump).items() if n.endswith("after_optimizations.txt")
    )
    return text


def fusions(text: str) -> list[str]:
    return re.findall(r"%(\S+) = [^\n]*? fusion\(", text)


def plain(text: str) -> str:
    """The computations without metadata."""
    body = re.sub(
        r", metadata=\{[^}]*\}", "", text[re.search(r"^(ENTRY )?%", text, re.M).start() :]
    )
    return body.strip()


def document_of(run: Any, *arguments: object) -> dict[str, Any]:
    result = run(*arguments, "--format", "json")
    assert result.errors == ""
    assert result.code == 0
    return json.loads(result.out)


def module_of(run: Any, *arguments: object) -> dict[str, Any]:
    (module,) = document_of(run, *arguments)["modules"]
    return module


@pytest.mark.main
@pairs
def test_sides(run, first, second):
    module = module_of(run, first, second)
    for side, dump in (("before", first), ("after", second)):
        actual = module[side]
        assert actual["path"] == str(dump)
        assert actual["module"] == "jit_program"
        assert actual["stage"].endswith("gpu_after_optimizations")
        assert list(dump.glob(f"*.{actual['stage']}.txt*"))
        assert actual["launches"] == launches(dump)
        elements = set(re.findall(r"%[\w.\-]+#\d+", final(dump)))  # of tuples, without lines
        lines = re.findall(r"^  .* = ", final(dump), re.MULTILINE)
        assert actual["instructions"] == len(lines) + len(elements)
        assert sum(actual["kinds"].values()) == actual["launches"]
    names = [set(fusions(final(dump))) for dump in (first, second)]
    assert set(module["lost"]) <= names[0] and set(module["gained"]) <= names[1]
    # What is neither lost nor gained is on both sides.
    assert len(names[0]) - len(module["lost"]) == len(names[1]) - len(module["gained"])
    text = run(first, second).out
    assert f"launches {launches(first)} → {launches(second)}" in text


def test_devices_and_flags(run):
    module = module_of(run, A100, B200)
    assert [module[side]["device"].split()[0] for side in ("before", "after")] == ["A100", "B200"]
    module = module_of(run, WHOLE, NO_MERGE)
    flags = [set(module[side]["flags"]) for side in ("before", "after")]
    assert flags[1] - flags[0] == {"xla_disable_hlo_passes=multi_output_fusion"}
    (options,) = NO_MERGE.glob("*debug_options")
    assert 'xla_disable_hlo_passes: "multi_output_fusion"' in options.read_text()


@pytest.mark.parametrize(
    ("first", "second", "side", "pass_name"),
    [
        pytest.param(A100, B200, "after", "splitk-rewriter", marks=pytest.mark.main),
        (WHOLE, NO_MERGE, "before", "multi_output_fusion"),
        (TRITON, NO_TRITON, "before", "triton-softmax-rewriter"),
    ],
    ids=["devices", "multi-output", "triton-softmax"],
)
def test_where_they_part(run, first, second, side, pass_name):
    """By the names of the files only one side has this pass, and up to it both say the same."""
    having, lacking = (first, second) if side == "before" else (second, first)
    assert not any(f"after_{pass_name}." in label for label in labels(lacking).values())
    (number,) = (n for n, label in labels(having).items() if f"after_{pass_name}." in label)
    for dump in (having, lacking):
        assert labels(dump)[number - 1] == labels(having)[number - 1]
    texts = [plain(text_of(stage(dump, number - 1)).decode()) for dump in (having, lacking)]
    assert texts[0] == texts[1]
    for arguments, its_side in (((first, second), side), ((second, first), OPPOSITE[side])):
        actual = module_of(run, *arguments)["first_divergence"]
        assert actual[its_side] == labels(having)[number]
        assert actual[OPPOSITE[its_side]] is None
        for format_name in ("text", "markdown"):
            assert pass_name in run(*arguments, "--format", format_name).out
    # Between the last stage that is told to be the same and that one nothing changed.
    last = next(n for n, label in labels(having).items() if label == actual["last_same"])
    assert len({plain(text_of(stage(having, n)).decode()) for n in range(last, number)}) == 1


OPPOSITE = {"before": "after", "after": "before"}


@pairs
def test_swapped_sides_tell_the_opposite(run, first, second):
    there, back = module_of(run, first, second), module_of(run, second, first)
    assert there["before"] == back["after"] and there["after"] == back["before"]
    assert set(there["lost"]) == set(back["gained"])
    assert set(there["gained"]) == set(back["lost"])
    assert there["matched"]["certain"] == back["matched"]["certain"]

    def ended(module: dict[str, Any], sides: tuple[str, str]) -> set[tuple[object, ...]]:
        return {
            tuple(
                value
                for side in sides
                for value in (
                    change[side]["producer"]["name"],
                    change[side]["consumer"]["name"],
                    change[side]["outcome"],
                )
            )
            for change in module["outcomes"]
        }

    assert ended(there, ("before", "after")) == ended(back, ("after", "before"))


def test_pairs_that_ended_differently(run):
    """Without multi-output fusion its kernel falls apart: what it held is no longer in one."""
    module = module_of(run, WHOLE, NO_MERGE)
    outcomes = module["outcomes"]
    assert outcomes
    assert not any("after_multi_output" in label for label in labels(NO_MERGE).values())
    for change in outcomes:
        assert change["before"]["outcome"] != change["after"]["outcome"]
        assert ".after_multi_output_fusion." in f".{change['before']['stage']}"
        assert change["before"]["kernel"] in fusions(final(WHOLE))
        assert (change["after"]["kernel"], change["after"]["stage"]) == (None, None)
        assert change["after"]["reason"]
    # The last figures in the record of what the producer has become.
    (record,) = (
        c.decode(errors="replace")
        for n, c in unpacked(NO_MERGE).items()
        if n.endswith("priority_fusion_dump.txt")
    )
    producer = outcomes[0]["after"]["producer"]["name"]
    # By then other producers were fused into it.
    grown = re.findall(
        rf'fusion_name: "(.+)"\s+producer_name: .*\s+consumer_name: "{producer}"', record
    )
    about = f'producer_name: "{(grown or [producer])[0]}"\n    consumer_names'
    block = record.rpartition(about)[2].partition("}")[0]
    fused, apart = re.findall(r"us_\w+: (\S+)", block)
    assert float(fused) > float(apart)
    numbers = re.findall(r"\d+\.\d+", outcomes[0]["after"]["message"])
    benefit = f"{float(fused) - float(apart):.6g}"
    assert numbers == [benefit, *(f"{float(figure):g}" for figure in (fused, apart))]
    text = re.sub(r"\s+", " ", run(WHOLE, NO_MERGE).out)
    assert outcomes[0]["after"]["message"] in text
    total = sum(change["count"] for change in outcomes)
    assert f"{total} pairs ended differently" in text


@pytest.mark.main
def test_two_stages(run):
    """Nothing is fused before; every operation of the entry is launched alone."""
    module = module_of(run, f"{GPU}@pre-fusion", f"{GPU}@final")
    number = next(n for n, item in labels(GPU).items() if ".after_priority-fusion." in item) - 1
    assert module["before"]["stage"] == labels(GPU)[number]
    assert module["after"]["stage"] == "sm_9.0a_gpu_after_optimizations"
    text = stage(GPU, number).read_text()
    entry = text[text.index("\nENTRY ") :]
    alone = re.findall(r"^  .* = \S+ (?!parameter|constant|tuple)[a-z-]+\(", entry, re.MULTILINE)
    assert module["before"]["launches"] == len(alone)
    assert module["after"]["launches"] == launches(GPU)
    assert set(module["gained"]) == set(fusions(final(GPU)))
    assert (module["lost"], module["changed"]) == ([], 0)
    assert (module["first_divergence"], module["decision"], module["outcomes"]) == (None, None, [])
    # Two files say the same as the two stages.
    (last,) = GPU.glob("*gpu_after_optimizations.txt*")
    files = module_of(run, stage(GPU, number), last)
    for name in ("fusions", "lost", "gained", "edits", "incidental", "matched"):
        assert files[name] == module[name]


@pytest.mark.parametrize("number", [27, 28, 29, 30, 40, 63])
def test_a_stage_by_its_number_is_the_file_of_that_number(run, number):
    document = document_of(run, f"{GPU}@{number}", stage(GPU, number))
    assert document["is_same"] and document["same"] == ["jit_program"]
    # Each has its own label: see the one where it differs.
    if number == 29:
        module = module_of(run, f"{GPU}@28", f"{GPU}@{number}")
        assert [module[s]["stage"] for s in ("before", "after")] == [
            labels(GPU)[28],
            labels(GPU)[29],
        ]


def test_any_number_names_a_stage(run):
    assert document_of(run, f"{GPU}@2", stage(GPU, 2))["is_same"]


def test_a_number_as_file_names_write_it(run):
    assert document_of(run, f"{GPU}@0028", stage(GPU, 28))["is_same"]


def test_what_a_stage_is_called(run):
    for name in ("after_priority-fusion", "after_priority-fusion.before_cse", labels(GPU)[29]):
        assert document_of(run, f"{GPU}@{name}", f"{GPU}@29")["is_same"]


SAME = [
    pytest.param(GPU, GPU, marks=pytest.mark.main),
    (CPU, CPU),
    (TPU, f"{TPU}/"),
    (B200, B200),
    (DUMPS / "h100/cartpole", DUMPS / "h100/cartpole"),
    (f"{GPU}@final", GPU),
    (f"{CPU}@pre-fusion", f"{CPU}@pre-fusion"),
    (DUMPS / "tpu-v5e", DUMPS / "tpu-v5e"),
]


@pytest.mark.parametrize(("first", "second"), SAME)
def test_nothing_changed(run, first, second):
    for format_name in ("text", "markdown"):
        result = run(first, second, "--format", format_name, "--exit-code")
        assert (result.code, result.errors) == (0, "")
        (line,) = result.out.strip("\n").splitlines()
        assert line.removeprefix("- ").startswith("nothing changed") and "jit_program" in line
    result = run(first, second, "--exit-code", "--format", "json")
    document = json.loads(result.out)
    assert result.code == 0
    assert document["is_same"] is True
    assert document["modules"] == document["only_before"] == document["only_after"] == []


def changed(text: str, how: str) -> str:
    match how:
        case "metadata":
            return re.sub(r", metadata=\{[^}]*\}", "", text)
        case "tables":
            return re.sub(r"line=\d+", "line=7", text)
        case "names":
            return re.sub(r"%([\w.\-]+)", r"%other.\1", text)
        case "comments":
            return text.replace("(%", "(/*index=0*/%")
        case "order":
            # What is called stands above what calls it: as late as that allows, not as early.
            head, *left = re.split(r"\n\n(?=%|ENTRY)", text.rstrip("\n"))
            blocks: list[str] = []
            while left:
                inside = [set(re.findall(r"(?:calls|to_apply)=%([\w.\-]+)", b)) for b in left]
                names = {block.split()[0].lstrip("%") for block in left}
                ready = [b for b, callees in zip(left, inside, strict=True) if not callees & names]
                blocks.append(ready[-1])
                left.remove(ready[-1])
            return "\n\n".join([head, *blocks]) + "\n"
    raise AssertionError(how)


@pytest.mark.main
@pytest.mark.parametrize("how", ["metadata", "tables", "names", "comments", "order"])
@pytest.mark.parametrize("dump", [GPU, CPU, TPU, B200], ids=["gpu", "cpu", "tpu", "b200"])
def test_what_does_not_count(run, tmp_path, dump, how):
    text = final(dump)
    (tmp_path / "one.hlo").write_text(text)
    (tmp_path / "other.hlo").write_text(changed(text, how))
    assert changed(text, how) != text or how in ("tables", "comments")
    result = run(tmp_path / "one.hlo", tmp_path / "other.hlo", "--exit-code")
    assert result.code == 0, result.out
    assert result.out.startswith("nothing changed")


@pytest.mark.main
@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("constant(2)", "constant(3)", ("literal", ["2", "3"])),
        (" tanh(", " cosine(", ("opcode", ["tanh", "cosine"])),
    ],
)
@pytest.mark.parametrize("format_name", FORMATS)
def test_one_edit_is_told(run, tmp_path, old, new, field, format_name):
    text = stage(GPU, 28).read_text()
    assert text.count(old) == 1
    (tmp_path / "one.hlo").write_text(text)
    (tmp_path / "other.hlo").write_text(text.replace(old, new))
    arguments = (tmp_path / "one.hlo", tmp_path / "other.hlo")
    (edit,) = module_of(run, *arguments)["edits"]
    assert edit["kind"] == "updated"
    assert edit["fields"] == {field[0]: field[1]}
    result = run(*arguments, "--format", format_name)
    assert result.code == 0
    if format_name != "json":
        assert f"{field[0]} {' → '.join(field[1])}" in result.out
    assert run(*arguments, "--exit-code", "--format", format_name).code == 1


HEAD = "is_scheduled=true, num_partitions=2, input_output_alias={ {0}: (0, {}, may-alias) }"
BY_HAND = (
    f"HloModule m, {HEAD}"
    + """

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

%fused (p: f32[8], q: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %q = f32[8]{0} parameter(1)
  %t = f32[8]{0} tanh(%p)
  ROOT %u = f32[8]{0} subtract(%t, %q)
}

ENTRY %main (x: f32[8], y: f32[8], z: f32[4,8]) -> (f32[8], f32[4], f32[8]) {
  %x = f32[8]{0} parameter(0)
  %y = f32[8]{0} parameter(1)
  %z = f32[4,8]{1,0} parameter(2)
  %zero = f32[] constant(0)
  %f = f32[8]{0} fusion(%x, %y), kind=kLoop, calls=%fused
  %r = f32[4]{0} reduce(%z, %zero), dimensions={1}, to_apply=%sum
  %c = pred[8]{0} compare(%x, %y), direction=LT
  %d = f32[8]{0} select(%c, %x, %y)
  %e = f32[8]{0} custom-call(%d), custom_call_target="one", backend_config="two"
  %g = f32[4]{0} slice(%e), slice={[0:4]}
  %h = f32[4]{0} subtract(%r, %g)
  ROOT %out = (f32[8]{0}, f32[4]{0}, f32[8]{0}) tuple(%f, %h, %d)
}
"""
)


def compared(run: Any, directory: Path, *exchanges: tuple[str, str]) -> Any:
    """The text above against itself with parts exchanged."""
    text = BY_HAND
    for old, new in exchanges:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (directory / "one.hlo").write_text(BY_HAND)
    (directory / "other.hlo").write_text(text)
    arguments = (directory / "one.hlo", directory / "other.hlo", "--exit-code")
    result = run(*arguments, "--format", "json")
    assert run(*arguments).code == result.code
    return result.code, json.loads(result.out)


@pytest.mark.main
@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("subtract(%r, %g)", "subtract(%g, %r)", "h"),
        ("subtract(%t, %q)", "subtract(%q, %t)", "u"),
        ("s = f32[] add(", "s = f32[] multiply(", "s"),
        ("direction=LT", "direction=GT", "c"),
        ("tuple(%f, %h, %d)", "tuple(%d, %h, %f)", "out"),
        ("[0:4]", "[4:8]", "g"),
        ('"one"', '"three"', "e"),
        ('"two"', '"three"', "e"),
        ("%z = f32[4,8]{1,0}", "%z = f32[4,8]{0,1}", "z"),
        ("slice={[0:4]}", "slice={[0:4]}, sharding={replicated}", "g"),
        ("constant(0)", "constant(-inf)", "zero"),
    ],
)
def test_what_counts(run, tmp_path, old, new, name):
    code, document = compared(run, tmp_path, (old, new))
    assert code == 1
    (edit,) = document["modules"][0]["edits"]
    assert edit["before"]["name"] == edit["after"]["name"] == name


def test_another_kind_of_fusion_counts(run, tmp_path):
    code, document = compared(run, tmp_path, ("kind=kLoop", "kind=kInput"))
    assert code == 1
    (change,) = document["modules"][0]["fusions"]
    assert (change["kind"], change["emitters"]) == ("emitter", ["kLoop", "kInput"])


def test_what_is_read_in_another_order_counts(run, tmp_path):
    assert compared(run, tmp_path, ("fusion(%x, %y)", "fusion(%y, %x)"))[0] == 1
    parameters = (
        ("p = f32[8]{0} parameter(0)", "p = f32[8]{0} parameter(1)"),
        (
            "q = f32[8]{0} parameter(1)",
            "q = f32[8]{0} parameter(0)",
        ),
    )
    assert compared(run, tmp_path, *parameters)[0] == 1


def test_an_edit_shows_two_different_things(run, tmp_path):
    _, document = compared(run, tmp_path, ("fusion(%x, %y)", "fusion(%y, %x)"))
    visible = [
        pair for m in document["modules"] for e in m["edits"] for pair in e["fields"].values()
    ]
    assert [pair for pair in visible if pair[0] == pair[1]] == []


@pytest.mark.parametrize(
    ("old", "new", "name", "texts"),
    [
        ("num_partitions=2", "num_partitions=4", "num_partitions", ["2", "4"]),
        (", num_partitions=2", "", "num_partitions", ["2", "1"]),
        ("(0, {}, may-alias)", "(1, {}, may-alias)", "input_output_alias", None),
        (", input_output_alias={ {0}: (0, {}, may-alias) }", "", "input_output_alias", None),
    ],
)
def test_how_a_module_is_run_counts(run, tmp_path, old, new, name, texts):
    code, document = compared(run, tmp_path, (old, new))
    assert code == 1
    (module,) = document["modules"]
    assert list(module["header"]) == [name]
    assert texts in (None, module["header"][name])
    for format_name in ("text", "markdown"):
        result = run(tmp_path / "one.hlo", tmp_path / "other.hlo", "--format", format_name)
        assert f"{name} " in result.out


def test_what_was_printed_is_as_good_as_a_directory(run, tmp_path):
    """--xla_dump_to=- writes all files one after the other."""
    printed = b"".join(
        b"*** Begin %s ***\n%s\n*** End %s ***\n" % (name.encode(), content, name.encode())
        for name, content in unpacked(CPU).items()
        if name.endswith(".txt")
    )
    (tmp_path / "log").write_bytes(printed)
    assert run(tmp_path / "log", CPU, "--exit-code").code == 0
    assert run(f"{tmp_path / 'log'}@pre-fusion", f"{CPU}@pre-fusion", "--exit-code").code == 0
    assert run(tmp_path / "log", f"{CPU}@pre-fusion", "--exit-code").code == 1


@pytest.mark.main
@pairs
def test_exit_code(run, first, second):
    plain_run, options = run(first, second), run(first, second, "--exit-code")
    assert (plain_run.code, options.code) == (0, 1)
    assert plain_run.out == options.out


@pairs
def test_text_markdown_and_json_tell_the_same(run, first, second):
    module = module_of(run, first, second)
    # A width that wraps nothing.
    text = run(first, second, "--all", COLUMNS="4000").out
    markdown = run(first, second, "--all", "--format", "markdown").out
    assert text.startswith("jit_program\n") and markdown.startswith("## jit_program\n")
    for item in module["fusions"]:
        assert f"{item['kind']}  {item['text']}" in text
        assert f"| {item['kind']} | {item['text']}" in markdown
    for change in module["outcomes"]:
        pair = [change["before"][end]["name"] for end in ("producer", "consumer")]
        outcome = f"{change['before']['outcome']} → {change['after']['outcome']}"
        assert re.search(rf"{re.escape(' -> '.join(pair))}  .*\n +{outcome}", text)
        row = re.search(rf"`{re.escape(pair[0])}` -> `{re.escape(pair[1])}` .*", markdown)
        assert row is not None and outcome in row[0]
    for edit in module["edits"]:
        assert f"{edit['kind']}  " in text and f"| {edit['kind']} |" in markdown
    share = f"{100 * module['matched']['certain']:.0f}% of instructions"
    assert share in text and share in markdown
    for table in re.split(r"\n\n+", markdown):
        if table.startswith("|"):
            assert len({len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}) == 1


def test_top_and_all(run):
    module = module_of(run, A100, B200)
    for name, visible in (("1", 1), ("2", 2), ("50", 50)):
        out = run(A100, B200, "--top", name, COLUMNS="4000").out
        kinds = "|".join({item["kind"] for part in ("fusions", "edits") for item in module[part]})
        assert len(re.findall(rf"^ +({kinds})  ", out, re.MULTILINE)) == min(
            visible, len(module["fusions"])
        ) + min(visible, len(module["edits"]))
        assert ("--top" in out) == (visible < 50)
    assert "--top" not in run(A100, B200, "--all").out
    assert len(module["edits"]) > 5
    assert f"… and {len(module['edits']) - 5} more" in run(A100, B200).out
    assert f"… and {len(module['edits']) - 5} more" in run(A100, B200, "--format", "markdown").out
    json_ = [run(A100, B200, "--format", "json", *more).out for more in ([], ["--top", "1"])]
    assert json_[0] == json_[1]


@pairs
@pytest.mark.parametrize("width", [80, 100, 200])
def test_text_fits_its_width(run, first, second, width):
    lines = run(first, second, "--all", COLUMNS=str(width)).out.splitlines()
    assert max(map(len, lines)) <= width
    assert [line for line in lines if line.endswith(" ")] == []
    if width == 100:
        assert run(first, second, "--all").out.splitlines() == lines  # also in a pipe


def test_lines_that_go_on_are_indented(run):
    """Everything but the module's name is indented."""
    out = run(WHOLE, NO_MERGE, COLUMNS="100").out
    assert [line for line in out.splitlines()[1:] if line and not line.startswith("  ")] == []


def tree(directory: Path, **samples: str) -> Path:
    """A dump of several modules: samples under other names of modules."""
    for number, (name, sample) in enumerate(samples.items()):
        files = {
            re.sub(r"module_\d+\.jit_program", f"module_{number:04}.{name}", file): content
            for file, content in unpacked(DUMPS / sample).items()
        }
        write(directory / name, files)
    return directory


def test_several_modules(run, tmp_path):
    first = tree(tmp_path / "one", jit_a="cpu/concatenate", jit_b="cpu/softmax", jit_c="cpu/loop")
    # As if compiled in another order, with another program in the place of one.
    second = tree(
        tmp_path / "two", jit_x="cpu/attention", jit_b="cpu/softmax", jit_a="h100/concatenate"
    )
    document = document_of(run, first, second)
    (module,) = document["modules"]
    assert (module["before"]["launches"], module["after"]["launches"]) == (7, launches(GPU))
    assert "sm_9" in module["after"]["stage"] and "cpu" in module["before"]["stage"]
    assert document["same"] == ["jit_program"] or document["same"] == ["jit_b"]
    assert (document["only_before"], document["only_after"]) == (["jit_c"], ["jit_x"])
    assert not document["is_same"]
    for format_name in ("text", "markdown"):
        out = run(first, second, "--format", format_name).out
        assert "only before: jit_c" in out and "only after: jit_x" in out
        assert "nothing changed in 1 module" in out
    assert run(first, second, "--exit-code").code == 1


def test_module(run, tmp_path):
    first = tree(tmp_path / "one", jit_a="cpu/concatenate", jit_b="cpu/softmax")
    second = tree(tmp_path / "two", jit_a="h100/concatenate", jit_b="cpu/softmax")
    assert run(first, second, "--module", "jit_b", "--exit-code").code == 0
    assert run(first, second, "--module", "jit_a", "--exit-code").code == 1
    assert run(first, second, "--module", "jit_*").out == run(first, second).out
    refused = run(first, second, "--module", "no*")
    assert (refused.code, refused.out) == (2, "")
    (line,) = refused.errors.splitlines()
    assert "jit_a" in line and "jit_b" in line


def test_the_name_that_is_shown_selects_the_module(run):
    (visible,) = document_of(run, TPU, TPU)["same"]
    assert run(TPU, TPU, "--module", visible).code == 0


def test_no_module_in_common(run, tmp_path):
    first = tree(tmp_path / "one", jit_a="cpu/concatenate", jit_b="cpu/softmax")
    second = tree(tmp_path / "two", jit_c="cpu/loop", jit_d="cpu/convolution")
    result = run(first, second)
    assert (result.code, result.out) == (2, "")
    (line,) = result.errors.splitlines()
    assert all(name in line for name in ("jit_a", "jit_b", "jit_c", "jit_d"))


def test_json_is_as_documented(run, tmp_path):
    first = tree(tmp_path / "one", jit_a="cpu/concatenate", jit_b="cpu/softmax", jit_c="cpu/loop")
    second = tree(
        tmp_path / "two", jit_a="h100/concatenate", jit_b="cpu/softmax", jit_x="cpu/attention"
    )
    for directory in (first, second):
        write(directory, {"module_0009.n.cpu_after_optimizations.txt": b"HloModule n\n"})
    compared(run, tmp_path, ("num_partitions=2", "num_partitions=4"))
    documents = [
        json.loads(run(*arguments, "--format", "json").out)
        for arguments in (
            (first, second),
            *PAIRS,
            (DUMPS / "cpu/dense", DUMPS / "h100/dense"),
            (DUMPS / "rtx6000pro/concatenate", GPU),  # a decision differs
            (GPU, CPU),
            (tmp_path / "one.hlo", tmp_path / "other.hlo"),
        )
    ]
    assert {document["schema"] for document in documents} == {"fusionscope.diff/1"}
    empty = (
        *("modules[].after.rules.guessed[]", "modules[].before.rules.guessed[]"),
        *("modules[].decision.after.consumers[]", "modules[].swapped[]"),
        *("unchanged[].flags.*", "unchanged[].swapped[]"),
    )
    assert not unlike_documented("diff", *documents, besides=empty)


# Bad input.


def test_a_stage_of_nothing(run, monkeypatch):
    monkeypatch.chdir(CPU)
    assert run("@final", GPU).code == 2


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"\x00\x01\x02" * 99, bytes(range(256)) * 20, b"HloModule m", b"hello\n"],
    ids=["empty", "blank", "binary", "all bytes", "header", "prose"],
)
def test_a_file_that_is_no_hlo(run, tmp_path, content):
    (tmp_path / "junk.txt").write_bytes(content)
    for arguments in ((tmp_path / "junk.txt", GPU), (GPU, tmp_path / "junk.txt")):
        result = run(*arguments)
        assert (result.code, result.out) == (2, "")
        (line,) = result.errors.splitlines()
        assert "junk.txt" in line and "bug in fusionscope" not in line


def test_names_with_an_at(run, tmp_path):
    shutil.copytree(CPU, tmp_path / "run@3")
    shutil.copy(stage(GPU, 28), tmp_path / "before@28.hlo")
    shutil.copy(stage(GPU, 28), tmp_path / "two@final")
    assert run(tmp_path / "run@3", CPU, "--exit-code").code == 0
    assert run(f"{tmp_path / 'run@3'}@pre-fusion", f"{CPU}@pre-fusion", "--exit-code").code == 0
    assert run(tmp_path / "before@28.hlo", f"{GPU}@28", "--exit-code").code == 0
    assert run(tmp_path / "two@final", f"{GPU}@28", "--exit-code").code == 0


def test_a_directory_or_file_without_permission(run, tmp_path):
    """Read as root there is nothing that cannot be read."""
    if os.geteuid() == 0:
        (tmp_path / "dump").symlink_to(tmp_path / "dump")  # a link that leads to itself
    else:
        (tmp_path / "dump").mkdir(mode=0)
    result = run(tmp_path / "dump", GPU)
    assert (result.code, result.out) == (2, "")
    (line,) = result.errors.splitlines()
    assert "bug in fusionscope" not in line


@pytest.mark.parametrize("wrong", ["truncated", "binary", "empty"])
@pytest.mark.parametrize("side", [0, 1])
def test_a_last_stage_that_cannot_be_read(run, tmp_path, wrong, side):
    files = unpacked(GPU)
    bad = next(name for name in files if "gpu_after_optimizations.txt" in name)
    files[bad] = {"truncated": files[bad][:3000], "binary": b"\0\1" * 99, "empty": b""}[wrong]
    dumps = [GPU, GPU]
    dumps[side] = write(tmp_path / "dump", files)
    result = run(*dumps)
    assert (result.code, result.out) == (2, "")
    (line,) = result.errors.splitlines()
    assert bad in line
    # Another stage can still be compared.
    assert run(*(f"{dump}@pre-fusion" for dump in dumps), "--exit-code").code == 0


def test_a_module_that_cannot_be_read_is_told_beside_the_others(run, tmp_path):
    first = tree(tmp_path / "one", jit_a="cpu/concatenate", jit_b="cpu/softmax")
    second = tree(tmp_path / "two", jit_a="cpu/concatenate", jit_b="cpu/softmax")
    (bad,) = (second / "jit_b").glob("*cpu_after_optimizations.txt")
    bad.write_bytes(bad.read_bytes()[:2000])
    result = run(first, second)
    assert result.code == 0
    (line,) = result.errors.splitlines()
    assert bad.name in line
    assert result.out.startswith("nothing changed in 1 module")
    assert run(first, second, "--exit-code").code == 1
    document = json.loads(run(first, second, "--format", "json").out)
    assert bad.name in document["problems"][0] and not document["is_same"]
    assert bad.name in run(first, second, "--format", "markdown").out


def stage_damaged(directory: Path, dump: Path, number: int) -> tuple[Path, str]:
    files = unpacked(dump)
    bad = next(name for name in files if f".{number:04}." in name and name.endswith(".txt"))
    files[bad] = files[bad][: len(files[bad]) * 2 // 3]
    # Without the proto, which would do in its place.
    return write(directory, {n: c for n, c in files.items() if not n.endswith(".hlo.pb")}), bad


def test_a_stage_that_cannot_be_read_does_no_harm(run, tmp_path):
    """What the last stages say does not depend on one between."""
    dump, _ = stage_damaged(tmp_path / "dump", NO_MERGE, 20)
    whole, actual = module_of(run, WHOLE, NO_MERGE), module_of(run, WHOLE, dump)
    for name in ("outcomes", "lost", "gained", "edits", "first_divergence"):
        assert actual[name] == whole[name]
    assert run(NO_MERGE, dump, "--exit-code").code == 0


def test_a_stage_that_cannot_be_read_is_noted(run, tmp_path):
    dump, bad = stage_damaged(tmp_path / "dump", NO_MERGE, 20)
    assert any(bad in note for note in module_of(run, WHOLE, dump)["notes"])


@pytest.mark.parametrize(
    ("dump", "part"), [(NO_MERGE, "priority_fusion_dump.txt"), (GPU, "_fusion.pyz")]
)
@pytest.mark.parametrize("content", [None, b"\xff\x00{{{{", b"fusion_steps {\n  fusion {\n"])
def test_a_damaged_record_is_noted(run, tmp_path, dump, part, content):
    files = unpacked(dump)
    bad = next(file for file in files if file.endswith(part))
    files[bad] = content or files[bad][: len(files[bad]) // 2]
    damaged_dump = write(tmp_path / "dump", files)
    second = WHOLE if dump is NO_MERGE else DUMPS / "cpu/concatenate"
    module, whole = module_of(run, second, damaged_dump), module_of(run, second, dump)
    assert [note for note in module["notes"] if bad in note]
    for name in ("lost", "gained", "edits", "first_divergence"):
        assert module[name] == whole[name]
    for format_name in ("text", "markdown"):
        result = run(second, damaged_dump, "--format", format_name)
        assert (result.code, result.errors) == (0, "")
        assert bad in re.sub(r"\s+", "", result.out)


@pytest.mark.parametrize("figure", [b"inf", b"nan"])
def test_figures_that_are_no_numbers(run, tmp_path, figure):
    files = unpacked(GPU)
    record = next(name for name in files if name.endswith("priority_fusion_dump.txt"))
    files[record] = files[record].replace(b"us_fused: 8.42075", b"us_fused: " + figure)
    result = run(CPU, write(tmp_path, files), "--format", "json")
    assert result.code == 0
    assert not re.search(r"NaN|Infinity", result.out)


def test_a_dump_that_ends_early_is_not_the_same(run, tmp_path):
    """The compiler died in one of them."""
    files = {n: c for n, c in unpacked(GPU).items() if "after_optimizations" not in n}
    result = run(GPU, write(tmp_path, files))
    assert "after_optimizations" in result.out + result.errors


@pytest.mark.parametrize("part", ["gpu_target_config.pbtxt", "debug_options"])
def test_a_damaged_side_file_does_not_stop_it(run, tmp_path, part):
    files = unpacked(NO_MERGE)
    bad = next(file for file in files if file.endswith(part))
    files[bad] = b"\xff\x00{{{{"
    dump = write(tmp_path / "dump", files)
    module, whole = module_of(run, WHOLE, dump), module_of(run, WHOLE, NO_MERGE)
    assert any(bad in note for note in module["notes"])
    assert (module["lost"], module["gained"]) == (whole["lost"], whole["gained"])


@pytest.mark.parametrize("format_name", FORMATS)
def test_hostile_names_never_reach_the_output_raw(run, tmp_path, format_name):
    dump = write(tmp_path / "dump", hostile_files(GPU))
    for arguments in (
        (dump, CPU),
        (CPU, dump),
        (f"{dump}@pre-fusion", f"{dump}@final"),
        (dump, dump),
    ):
        result = run(*arguments, "--all", "--format", format_name)
        assert (result.code, result.errors) == (0, ""), result.errors
        assert CONTROL.search(result.out) is None
        if format_name == "markdown":
            assert "<script" not in result.out and "<b>" not in result.out
            for table in re.split(r"\n\n+", result.out):
                rows = [r for r in table.splitlines() if r.startswith("|")]
                assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) <= 1
    if format_name == "json":
        module = module_of(run, dump, CPU)
        assert any(HOSTILE.rstrip() in flag for flag in module["before"]["flags"])


@pytest.mark.parametrize("odd", ["x|y", "`x`", "<b>", "\x1b[31m", "\u202e"])
def test_hostile_literals_attributes_and_targets(run, tmp_path, odd):
    text = stage(GPU, 28).read_text()
    target = 'custom-call(%left.1), custom_call_target="'
    (tmp_path / "one.hlo").write_text(text)
    (tmp_path / "two.hlo").write_text(text.replace("tanh(%left.1", f'{target}{odd}"'))
    for format_name in FORMATS:
        result = run(tmp_path / "one.hlo", tmp_path / "two.hlo", "--all", "--format", format_name)
        assert result.code in (0, 2)
        assert "bug in fusionscope" not in result.errors
        assert CONTROL.search(result.out + result.errors) is None
        if format_name == "markdown":
            assert "<b>" not in result.out


@pytest.mark.parametrize("format_name", FORMATS)
def test_where_the_time_went_comes_first(run, format_name):
    """Before pairs and fusions: the line whose cost changed most."""
    out = run(TRITON, NO_TRITON, "--format", format_name).out
    if format_name == "json":
        (module,) = json.loads(out)["modules"]
        assert module["costs"]["by"] == "line"
        assert module["costs"]["places"][0]["place"].startswith("softmax.py:10")
    else:
        heading = out.index("Where the time went, by line")
        assert heading < out.index("softmax.py:10") < out.index("reduce_max.7")


def test_unrelated_programs_are_said_to_be_unrelated(run):
    result = run(CPU, GPU.parent / "softmax", "--format", "json")
    (module,) = json.loads(result.out)["modules"]
    assert [item["kind"] for item in module["unrelated"]] == ["programs", "backends"]
    first, second, *_ = run(CPU, GPU.parent / "softmax").out.splitlines()[1:]
    assert first.strip().startswith("these are different programs: ")
    assert second.strip().startswith("compiled for different backends (CPU and H100")
