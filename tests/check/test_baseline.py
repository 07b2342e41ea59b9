"""Baselines: what became worse is told, and nothing else."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from sample_kinds import all_samples

from fusionscope import Selection, UnusableInput
from fusionscope.check.as_before import Tolerance
from fusionscope.check.baseline import read_baseline, record_all, write_baseline
from fusionscope.check.checking import check
from fusionscope.check.expectation import Violation
from fusionscope.check.record import ModuleKey
from fusionscope.check.subject import Cell
from fusionscope.dump import open_dump
from fusionscope.explain import explain as explain_dump
from fusionscope.facts.result import Explanation
from fusionscope.findings.memory.facts import MemoryFacts

DUMPS = Path(__file__).parents[2] / "samples" / "dumps"
ALL = sorted(
    str(path.relative_to(DUMPS)) for path in DUMPS.glob("*/*") if not path.match("mi300x/*")
)


EXACT = Tolerance()


def cells(*explanations: Explanation) -> list[Cell]:
    return [Cell(explanation) for explanation in explanations]


def held(
    now: Explanation, before: Explanation, directory: Path, tolerance: Tolerance = EXACT
) -> tuple[Violation, ...]:
    file = directory / "baseline.json"
    file.write_text(write_baseline(record_all(cells(before))))
    return check(cells(now), [], read_baseline(file, tolerance)).violations


@pytest.mark.parametrize(
    "dump", all_samples(lambda dump: not dump.parent.name.startswith("mi300x"))
)
def test_a_dump_is_as_it_is(dump: Path, tmp_path: Path, samples) -> None:
    assert held(samples.explanation(dump), samples.explanation(dump), tmp_path) == ()


def renamed(dump: str, directory: Path) -> Explanation:
    """The same dump with other names for all operations, and without what says where they are
    from."""
    import gzip

    for file in (DUMPS / dump).iterdir():
        content = file.read_bytes()
        name = file.name.removesuffix(".gz")
        if file.suffix == ".gz":
            content = gzip.decompress(content)
        if name.endswith(".txt"):
            text = re.sub(r", metadata=\{[^{}]*\}", "", content.decode())
            content = re.sub(r"%([a-z][\w.-]*)", r"%other_\1", text).encode()
        if "textproto" not in name and not name.endswith(".pb"):
            (directory / name).write_bytes(content)
    return explain_dump(open_dump(directory), Selection(all_modules=True))


@pytest.mark.parametrize("dump", ["cpu/attention", "cpu/loop", "cpu/cartpole", "h100/reductions"])
def test_names_do_not_matter(dump: str, tmp_path: Path, samples) -> None:
    (tmp_path / "dump").mkdir()
    assert held(renamed(dump, tmp_path / "dump"), samples.explanation(dump), tmp_path) == ()


def test_a_pass_that_is_off(tmp_path: Path, samples) -> None:
    now = samples.explanation("h100-without-triton-softmax/softmax")
    actual = held(now, samples.explanation("h100/softmax"), tmp_path)
    lost = [item for item in actual if "was fused by" in item.what]
    assert [item.reason for item in lost] == ["pf-two-reduces"]
    assert "was fused by triton-softmax-rewriter, and is not: reduce f32[256]" in lost[0].what
    assert lost[0].source == "samples/programs/softmax.py:9"


def test_what_is_better_is_told_unless_it_is_allowed(tmp_path: Path, samples) -> None:
    now = samples.explanation("h100/softmax")
    before = samples.explanation("h100-without-triton-softmax/softmax")
    (actual,) = held(now, before, tmp_path)
    assert "is fused, and was not: reduce f32[256] -> broadcast f32[256,512]" in actual.what
    assert held(now, before, tmp_path, Tolerance(allow_better=True)) == ()


def test_a_library_that_took_over(tmp_path: Path, samples) -> None:
    now = samples.explanation("h100-without-triton-gemm/projections")
    (facts,) = now.modules
    (library,) = {k.emitter for k in facts.kernels if k.kind == "library"}
    # As if its products had been fused before: the pair of a product is there no more.
    pair = facts.pairs[0]
    dot = replace(pair.producer, opcode="dot")
    fused = replace(pair, producer=dot, outcome="fused", kernel="f", stage=None)
    kernels = tuple(kernel for kernel in facts.kernels if kernel.kind != "library")
    module = replace(facts, pairs=(*facts.pairs, fused), kernels=kernels)
    actual = held(now, replace(now, modules=(module,)), tmp_path)
    assert any(f"is a new call to {library}" in item.what for item in actual)


def test_more_launches_and_bytes_of_the_same_pairs(tmp_path: Path, samples) -> None:
    now = samples.explanation("h100/softmax")
    (facts,) = now.modules
    summary = structs.replace(facts.summary, bytes_moved=facts.summary.bytes_moved * 95 // 100)
    before = replace(now, modules=(replace(facts, summary=summary),))
    (actual,) = held(now, before, tmp_path)
    assert "bytes moved of the same pairs" in actual.what
    assert held(now, before, tmp_path, Tolerance(0.04))
    assert not held(now, before, tmp_path, Tolerance(0.06))


def test_more_memory_of_the_same_pairs(tmp_path: Path, samples) -> None:
    now = samples.explanation("h100/softmax")
    (facts,) = now.modules
    memory = facts.find(MemoryFacts)
    assert memory is not None and memory.peak_bytes is not None
    memory = structs.replace(memory, peak_bytes=memory.peak_bytes * 95 // 100)
    before = replace(now, modules=(facts.with_finding(MemoryFacts, memory),))
    (actual,) = held(now, before, tmp_path)
    assert "bytes of memory at the peak of the same pairs" in actual.what
    assert not held(now, before, tmp_path, Tolerance(0.06))
    # A baseline without it, such as an older one, states nothing.
    assert not held(now, replace(now, modules=(replace(facts, findings={}),)), tmp_path)


def test_what_merely_changed_is_told_and_does_not_count(tmp_path: Path, samples) -> None:
    now = samples.explanation("h100/attention")
    (facts,) = now.modules
    before = replace(now, modules=(replace(facts, pairs=facts.pairs[1:]),))
    file = tmp_path / "baseline.json"
    file.write_text(write_baseline(record_all(cells(before))))
    actual = check(cells(now), [], read_baseline(file, EXACT))
    assert actual.is_met
    (note,) = actual.outcomes[0].notes
    assert note.startswith("1 kinds of pairs are new, 0 are gone, such as dot f32[4,")
    assert not check(cells(now), [], read_baseline(file, EXACT)).violations


def test_another_program_of_that_name_and_arguments(tmp_path: Path, samples) -> None:
    now = samples.explanation("h100/elementwise")
    arguments = samples.explanation("h100/softmax").modules[0].arguments
    now = replace(now, modules=(replace(now.modules[0], arguments=arguments),))
    actual = held(now, samples.explanation("h100/softmax"), tmp_path)
    assert any("no longer exist: another program?" in item.what for item in actual)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"name": "jit_other"}, ""),
        ({"arguments": ("f32[8]",)}, "arguments"),
        ({"device": "another one (sm_99)"}, "device"),
        ({"arguments": ("f32[8]",), "device": "another one"}, "arguments and device"),
    ],
)
def test_a_module_is_known_by_its_name_arguments_and_device(
    part: dict[str, Any], words: str, tmp_path: Path, samples
) -> None:
    """Another one has no baseline, and the old one is missed."""
    before = samples.explanation("h100/softmax")
    now = replace(before, modules=(replace(before.modules[0], **part),))
    missed, new = held(now, before, tmp_path)
    assert missed.what.startswith("no dump has this module")
    assert new.what.startswith("no baseline for this module")
    for item in (missed, new):
        assert (f"which differs in {words}" in item.what) == bool(words)


SEVERAL = Path(__file__).parent / "several"


def test_one_function_at_several_shapes_and_shardings_in_one_process(tmp_path: Path) -> None:
    """Two of its modules have the same key: they differ in an argument that jax takes as fixed."""
    now = explain_dump(open_dump(SEVERAL), Selection(all_modules=True))
    arguments = sorted(facts.arguments for facts in now.modules)
    halved = "f32[16,16] sharding={mesh['half'=2], [{'half'}, {}]}"
    assert arguments == [(halved,), ("f32[64,64]",), ("f32[8,16]",), ("f32[8,16]",)]
    assert held(now, now, tmp_path) == ()
    for number, left_out in enumerate(now.modules):
        some = replace(now, modules=now.modules[:number] + now.modules[number + 1 :])
        (missed,), (new,) = held(some, now, tmp_path), held(now, some, tmp_path)
        assert missed.what.startswith("no dump has this module")
        assert new.what.startswith("no baseline for this module")
        assert (
            missed.expectation.module
            == new.expectation.module
            == ModuleKey(left_out.name, left_out.arguments, "cpu")
        )


@given(st.lists(st.sampled_from([*ALL, str(SEVERAL)]), min_size=1, max_size=4), st.randoms())
@settings(max_examples=60, deadline=None)
def test_dumps_hold_what_was_written_of_them(samples, dumps: list[str], random: Random) -> None:
    """In any order, and where one dump is given twice."""
    before = [samples.explanation(dump) for dump in dumps]
    now = list(before)
    random.shuffle(now)
    with TemporaryDirectory() as directory:
        file = Path(directory) / "baseline.json"
        file.write_text(write_baseline(record_all(cells(*before))))
        actual = check(cells(*now), [], read_baseline(file, EXACT))
    assert actual.violations == ()
    assert not any(outcome.notes for outcome in actual.outcomes)
    assert len(actual.outcomes) == sum(len(item.modules) for item in now)


def test_of_modules_with_one_key_the_one_that_changed_is_told(tmp_path: Path, samples) -> None:
    """What is the same stays out of it, whatever the order."""
    worse = samples.explanation("h100-without-triton-softmax/softmax").modules
    good = samples.explanation("h100/softmax")
    before = replace(good, modules=good.modules + good.modules)
    numbered = [replace(module, number=n) for n, module in enumerate((*worse, *good.modules))]
    actual = held(replace(good, modules=tuple(numbered)), before, tmp_path)
    assert {item.reason for item in actual if "was fused by" in item.what} == {"pf-two-reduces"}
    assert not any("no baseline" in item.what for item in actual)


OTHER_SCHEMA = '{"schema": "fusionscope.baseline/1", "modules": 3}'
HEAD = '{\n"schema": "fusionscope.baseline/2",\n"modules": '


def test_a_line_for_each_pair_in_order(samples) -> None:
    text = write_baseline(record_all(cells(samples.explanation("h100/attention"))))
    content = json.loads(text)
    pairs = content["modules"][0]["pairs"]
    assert list(pairs) == sorted(pairs)
    for key, outcomes in pairs.items():
        (line,) = [item for item in text.splitlines() if item.strip().startswith(f'"{key}": {{')]
        assert json.dumps(outcomes) in line
    assert "dot_general" not in text  # a name


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", ":1:1: not JSON"),
        ("{", ":1:2: not JSON"),
        ("[]", r": found a list, expected a table of keys and values; --update rewrites it"),
        ("{}", "'schema' is missing"),
        (OTHER_SCHEMA, ":1: schema = 'fusionscope.baseline/1', expected 'fusionscope.baseline/2'"),
        ('{"schema": "fusionscope.baseline/2"}', "'modules' is missing"),
        (f'{HEAD}{{"m": 3}}}}', r":3: modules = \{'m': 3\}, expected a list"),
        (f'{HEAD}[{{"name": "m"}}]}}', r":3: 'launches' is missing in modules\[0\]"),
        (f'{HEAD}[\n{{"device": "cpu",\n"name": 7}}]}}', ":5: name = 7, expected a text"),
        (
            f'{HEAD}[\n{{"pairs":\n{{"a -> b": 3}}}}]}}',
            ":4: pairs holds a whole number, expected a table",
        ),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_files_that_are_no_baseline(text: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "baseline.json"
    file.write_text(text)
    with pytest.raises(UnusableInput, match=problem) as reported:
        read_baseline(file, Tolerance())
    assert "\n" not in str(reported.value)


@pytest.mark.parametrize("key", ["", " ", "->", " -> ", "add f32[2]"])
def test_a_pair_in_no_form_is_one_that_is_gone(key: str, tmp_path: Path, samples) -> None:
    now = samples.explanation("cpu/softmax")
    content = json.loads(write_baseline(record_all(cells(now))))
    content["modules"][0]["pairs"] = {key: {"fused": 100}}
    file = tmp_path / "baseline.json"
    file.write_text(json.dumps(content))
    actual = check(cells(now), [], read_baseline(file, EXACT))
    assert "100 of 100 pairs that were fused no longer exist" in actual.violations[0].what
