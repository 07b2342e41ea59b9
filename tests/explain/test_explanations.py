"""What an explanation says, held against the files that it was made from."""

import gzip
import importlib
import io
import re
import shutil
import sqlite3
import zipfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from sample_kinds import all_samples

from fusionscope.dump import open_dump
from fusionscope.errors import UnusableInput
from fusionscope.explain import ModuleFacts, Selection, explain
from fusionscope.rules.messages import rule_ids

DUMPS = Path(__file__).resolve().parents[2] / "samples" / "dumps"


def facts(dump: Path, **expected: object) -> ModuleFacts:
    (module,) = explain(open_dump(dump), Selection(**expected)).modules  # type: ignore[arg-type]
    return module


def text_of(file: Path) -> str:
    content = file.read_bytes()
    return (gzip.decompress(content) if file.suffix == ".gz" else content).decode()


def recorded_labels(dump: Path) -> list[str]:
    """Labels of Fusion Explorer frames, read without fusionscope."""
    labels = []
    for file in sorted(dump.glob("*._fusion.pyz")):
        with zipfile.ZipFile(io.BytesIO(file.read_bytes())) as archive:
            connection = sqlite3.connect(":memory:")
            connection.deserialize(archive.read("fusions.db"))
            labels += [row[0] for row in connection.execute("SELECT label FROM frames ORDER BY id")]
            connection.close()
    return labels


@pytest.mark.parametrize("dump", all_samples())
def test_figures_add_up(dump, samples):
    module = samples.facts(dump)
    outcomes = Counter(pair.outcome for pair in module.pairs)
    assert module.summary.outcomes == {
        name: outcomes[name] for name in ("fused", "duplicated", "not-fused", "gone")
    }
    refused = outcomes["not-fused"]
    assert sum(reason.pairs for reason in module.summary.reasons.values()) == refused
    assert sum(refusals.count for refusals in module.alike.refusals) == refused
    for figures in (module.summary.reasons.values(), module.alike.refusals):
        saved = sum(pair.bytes_saved for pair in module.pairs if pair.outcome == "not-fused")
        assert sum(figure.bytes_saved for figure in figures) == saved
    totals = module.summary
    assert totals.launches == sum(kernel.launches for kernel in module.kernels)
    assert totals.launches == sum(kind.launches for kind in module.summary.kinds.values())
    for figures in (module.kernels, module.summary.kinds.values(), module.alike.kernels):
        assert sum(figure.bytes_moved for figure in figures) == totals.bytes_moved
    assert sum(kind.kernels for kind in module.summary.kinds.values()) == len(module.kernels)
    assert totals.launches <= totals.launches_before
    assert totals.exact == all(kernel.runs_known for kernel in module.kernels)


@pytest.mark.parametrize("dump", all_samples())
def test_a_reason_goes_with_a_refusal(dump, samples):
    for pair in samples.facts(dump).pairs:
        assert (pair.reason is not None) == (pair.outcome == "not-fused")
        assert pair.reason is None or pair.reason in rule_ids()
        assert (pair.kernel is not None) == (pair.outcome in ("fused", "duplicated"))
        assert (pair.stage is not None) == (pair.kernel is not None)
        assert pair.evidence is None or pair.outcome == "not-fused"
        assert pair.message or pair.evidence in (None, "re-evaluated", "inferred")
        assert (pair.evidence == "inferred") <= ("refused" in dict(pair.numbers))


@pytest.mark.parametrize("dump", all_samples())
def test_lists_begin_with_what_costs_most(dump, samples):
    module = samples.facts(dump)
    for listed in (module.pairs, module.summary.reasons.values(), module.alike.refusals):
        saved = [entry.bytes_saved for entry in listed]
        assert saved == sorted(saved, reverse=True)
    for listed in (module.kernels, module.summary.kinds.values(), module.alike.kernels):
        moved = [entry.bytes_moved for entry in listed]
        assert moved == sorted(moved, reverse=True)


@pytest.mark.parametrize("dump", all_samples())
def test_recorded_messages_stand_in_the_records(dump, samples):
    """Verbatim, but for the two times of a benefit that only PriorityFusion's own record gives."""
    reported = "\n".join(recorded_labels(dump))
    for file in dump.glob("*.priority_fusion_dump.txt*"):
        reported += text_of(file)
    for file in dump.glob("*._fusion.html"):
        reported += text_of(file)
    printed = re.findall(r"us_(?:un)?fused: (\S+)", reported)
    recorded_times = {f"{float(time):g}" for time in ["0", *printed]}
    for pair in samples.facts(dump).pairs:
        if pair.evidence == "recorded":
            times = re.findall(r"([\d.e+-]+|inf) us (?:un)?fused", pair.message)
            assert set(times) <= recorded_times if times else pair.message in reported


OVERRULED = [
    pytest.param("a100-jaxlib-0.4.35/cartpole", marks=pytest.mark.slow),
    "a100-jaxlib-0.4.35/library_random",
    "h100/reductions",
]


@pytest.mark.parametrize("name", OVERRULED)
def test_what_a_later_pass_overruled_was_apart_before_it(name, tmp_path, samples):
    module = samples.facts(name)
    refused_before = {
        (pair.producer.name, pair.consumer.name): pair.fused_by_later_pass
        for pair in module.pairs
        if pair.fused_by_later_pass
    }
    assert refused_before
    assert sum(refusals.count for refusals in module.alike.fused_by_later_pass) == len(
        refused_before
    )
    for by in {item.by for item in refused_before.values()}:
        # The dump of a compiler that died before that pass.
        cut = tmp_path / by
        cut.mkdir()
        for file in sorted((DUMPS / name).iterdir()):
            if f".after_{by}." in file.name:
                break
            shutil.copy(file, cut)
        for file in (DUMPS / name).glob("*.*.gpu_target_config.pbtxt"):
            shutil.copy(file, cut)
        earlier = {(pair.producer.name, pair.consumer.name): pair for pair in facts(cut).pairs}
        for pair, refusal in refused_before.items():
            if refusal.by == by:
                assert earlier[pair].outcome == "not-fused"
                assert earlier[pair].reason == refusal.reason


def test_refusals_on_the_cpu_are_those_of_the_record(samples):
    """`Not fusing |p| into |c| as REASON`: the last word on each pair of names."""
    dump = DUMPS / "cpu" / "concatenate"
    refused = {}
    for label in recorded_labels(dump):
        if match := re.fullmatch(r"Not fusing \|(.*?)\| into \|(.*?)\| as (.*)", label):
            refused[match[1], match[2]] = match[3]
    checked = 0
    for pair in samples.facts(dump).pairs:
        message = refused.get((pair.producer.name, pair.consumer.name))
        if message is not None and pair.outcome == "not-fused":
            assert pair.message == message
            checked += 1
    assert checked > 2


def test_refusals_on_a_gpu_are_those_of_the_record(samples):
    """`Rejected |p|: Negative benefit (…)` concerns every consumer of p."""
    dump = DUMPS / "h100" / "concatenate"
    rejected, stands_for, consumer = {}, {}, ""
    for label in recorded_labels(dump):
        if match := re.match(r"About to fuse \|.*?\| into \|(.*?)\| inside PriorityFusion", label):
            consumer = match[1]
        elif match := re.match(r"Fused \|.*?\| into \|(.*?)\| inside PriorityFusion", label):
            stands_for[match[1]] = stands_for.get(consumer, consumer)  # grown from the consumer
        elif match := re.fullmatch(r"Rejected \|(.*?)\|: (.*)", label):
            rejected[stands_for.get(match[1], match[1])] = match[2]
    pairs = [pair for pair in samples.facts(dump).pairs if pair.outcome == "not-fused"]
    assert {pair.producer.name for pair in pairs} == set(rejected)
    for pair in pairs:
        assert (pair.reason, pair.message) == ("pf-negative", rejected[pair.producer.name])
        assert pair.evidence == "agree"


def test_bytes_that_a_refused_pair_could_have_saved():
    """tanh gives f32[1024,128], 524,288 bytes, and only the concatenation reads it: they would be
    neither written nor read."""
    (pair,) = facts(DUMPS / "h100/concatenate", producer="tanh*", consumer="concatenate*").pairs
    assert pair.bytes_saved == 2 * 524_288
    assert pair.producer.shape.startswith("f32[1024,128]")


def test_pairs_in_a_loop_count_as_often_as_it_runs(samples):
    """Cartpole's rounds run five times; their keys are u32[4,2048], 32,768 bytes, written once and
    read by two: four operations read what one adds."""
    pairs = samples.facts("cpu/cartpole").pairs
    inside = [pair for pair in pairs if pair.computation.startswith("region_0.2")]
    assert inside
    assert all(pair.bytes_saved % 5 == 0 for pair in inside)
    large = {pair.bytes_saved for pair in inside if "u32[4,2048]" in pair.producer.shape}
    assert large <= {5 * 32_768, 2 * 5 * 32_768, 0}


@pytest.mark.parametrize("name", ["h100/concatenate", "cpu/concatenate", "cpu/attention"])
def test_selections_pick_pairs(name, samples):
    everything = samples.facts(name).pairs
    opcode = everything[0].producer.opcode
    reason = next(pair.reason for pair in everything if pair.reason)
    source = next(pair.producer.source for pair in everything if pair.producer.source)
    file, _, line = source.rpartition(":")
    for expected, picks in [
        ({"opcode": opcode}, lambda p: opcode in (p.producer.opcode, p.consumer.opcode)),
        ({"producer": opcode}, lambda p: p.producer.opcode == opcode),
        ({"consumer": "reduc?*"}, lambda p: p.consumer.opcode.startswith("reduc")),
        (
            {"producer": everything[0].producer.name},
            lambda p: p.producer == everything[0].producer,
        ),
        ({"reason": reason}, lambda p: p.reason == reason),
        ({"computation": "main*"}, lambda p: p.computation.startswith("main")),
        ({"computation": "nothing"}, lambda p: False),
    ]:
        assert set(facts(DUMPS / name, **expected).pairs) == set(filter(picks, everything)), (
            expected
        )
    for place in (source, f"{Path(file).name}:{line}"):
        actual = facts(DUMPS / name, source=place).pairs
        assert {p for p in everything if source in (p.producer.source, p.consumer.source)} <= set(
            actual
        )
    assert len(facts(DUMPS / name, source=Path(file).name).pairs) >= len(actual)
    assert not facts(DUMPS / name, source=f"another_{Path(file).name}").pairs


def test_what_is_said_of_a_module_does_not_depend_on_the_pairs_asked_for(samples):
    dump = DUMPS / "h100/concatenate"
    everything, some = samples.facts(dump), facts(dump, opcode="tanh")
    assert len(some.pairs) < len(everything.pairs)
    assert (some.summary, some.alike) == (everything.summary, everything.alike)


def test_a_reason_that_is_none():
    with pytest.raises(UnusableInput, match="pf-negative"):
        facts(DUMPS / "h100/concatenate", reason="pf-negatve")


def test_a_module_that_is_not_there():
    with pytest.raises(UnusableInput, match="jit_program"):
        facts(DUMPS / "h100/concatenate", module="jit_other*")


def test_modules_by_name_and_number():
    dump = DUMPS / "h100/concatenate"
    for expected in ("jit_*", "jit_program", "1"):
        assert facts(dump, module=expected).name == "jit_program"


@pytest.fixture
def several(tmp_path: Path) -> Path:
    """Three modules, of which the first moves most and the last next to nothing."""
    for number, name in enumerate(("convolution", "softmax")):
        for file in (DUMPS / "cpu" / name).iterdir():
            shutil.copy(
                file,
                tmp_path
                / file.name.replace("module_0000.jit_program", f"module_{number:04d}.{name}"),
            )
    tiny = (
        "HloModule tiny\n\nENTRY %main (x: f32[]) -> f32[] {\n  %x = f32[] parameter(0)\n"
        "  %s = f32[] sine(%x)\n  ROOT %c = f32[] cosine(%s)\n}\n"
    )
    for stage in ("before_optimizations", "cpu_after_optimizations"):
        (tmp_path / f"module_0002.tiny.{stage}.txt").write_text(tiny)
    return tmp_path


def test_modules_that_cost_little_are_folded(several):
    short = explain(open_dump(several))
    whole = explain(open_dump(several), Selection(all_modules=True))
    assert {module.name for module in whole.modules} == {"convolution", "softmax", "tiny"}
    assert not whole.folded
    assert {row.is_helper for row in whole.table} == {False}
    costs = [row.time_us for row in whole.table]
    assert costs == sorted(costs, reverse=True)
    assert short.modules[0].name == whole.modules[0].name
    (tiny,) = [row for row in short.folded if row.name == "tiny"]
    assert (tiny.launches, tiny.bytes_moved) == (2, 2 * (4 + 4))  # each reads and writes one f32
    assert len(short.modules) + len(short.folded) == 3


def test_a_bad_module_does_not_spoil_the_others(several):
    (final,) = several.glob("*softmax.cpu_after_optimizations.txt*")
    final.write_bytes(b"HloModule softmax\n\nENTRY %main (")
    explanation = explain(open_dump(several), Selection(all_modules=True))
    assert {module.name for module in explanation.modules} == {"convolution", "tiny"}
    (problem,) = explanation.problems
    assert final.name in problem and "\n" not in problem


def test_a_bad_stage_between_costs_only_itself(tmp_path, samples):
    dump = shutil.copytree(DUMPS / "cpu" / "softmax", tmp_path / "dump")
    stage = next(file for file in dump.iterdir() if "after_fusion." in file.name)
    stage.unlink()
    (dump / stage.name.removesuffix(".gz")).write_text("HloModule")
    module = facts(dump)
    assert any(stage.name.removesuffix(".gz") in note for note in module.notes)
    assert module.summary.outcomes == samples.facts("cpu/softmax").summary.outcomes


@pytest.mark.parametrize(
    "kind", ["priority_fusion_dump.txt", "gpu_target_config.pbtxt", "debug_options", "_fusion.pyz"]
)
def test_a_bad_file_beside_the_stages_is_a_note(tmp_path, kind, samples):
    dump = shutil.copytree(DUMPS / "h100" / "concatenate", tmp_path / "dump")
    for file in dump.iterdir():
        if kind in file.name:
            file.unlink()
            (dump / file.name.removesuffix(".gz")).write_bytes(b"\x00 { not this {{{")
    module = facts(dump)
    (note,) = [note for note in module.notes if kind in note]
    assert "\n" not in note
    whole = samples.facts("h100/concatenate")
    assert module.summary.outcomes == whole.summary.outcomes
    if kind in ("gpu_target_config.pbtxt", "debug_options"):  # without the two, no time is known
        assert all(kernel.time_ns is None for kernel in module.kernels)
        untimed = {"time_ns": None, "time_source": None, "at_best_us": None, "limited_by": None}
        kernels = [replace(kernel, **untimed) for kernel in whole.kernels]
    else:
        kernels = list(whole.kernels)
    assert list(module.kernels) == kernels


def test_no_final_stage_is_told(tmp_path):
    dump = shutil.copytree(DUMPS / "cpu" / "softmax", tmp_path / "dump")
    for file in dump.iterdir():
        if "cpu_after_optimizations" in file.name:
            file.unlink()
    module = facts(dump)
    assert any("after_optimizations" in note for note in module.notes)
    assert module.pairs


def test_no_stage_before_fusion_is_told(tmp_path):
    dump = shutil.copytree(DUMPS / "cpu" / "softmax", tmp_path / "dump")
    for file in dump.iterdir():
        if "_optimizations.txt" not in file.name:
            file.unlink()
    module = facts(dump)
    assert any("--xla_dump_hlo_pass_re" in note for note in module.notes)
    assert module.stages.pre_fusion == "before_optimizations"


def test_inferred_reasons_are_told(samples):
    module = samples.facts("tpu-v5e/softmax")
    assert any("inferred" in note for note in module.notes)
    assert any(pair.evidence == "inferred" for pair in module.pairs)
    assert not samples.facts("h100/concatenate").notes


def test_a_cpu_dump_needs_no_record(samples):
    module = samples.facts("cpu/softmax")
    assert not module.notes
    refused = [pair for pair in module.pairs if pair.reason]
    assert refused
    assert all(pair.evidence == "re-evaluated" and pair.reason != "unknown" for pair in refused)


@pytest.mark.parametrize(
    "name", ["cpu/concatenate", "cpu/reductions", "cpu-multi-output/reductions"]
)
def test_record_and_replay_agree(name, samples):
    refused = [pair for pair in samples.facts(name).pairs if pair.reason]
    assert refused
    # The pass for libraries leaves no record.
    by_library = {pair.evidence for pair in refused if pair.decided_by}
    assert {pair.evidence for pair in refused if not pair.decided_by} <= {"agree"}
    assert by_library == {"re-evaluated"}


def test_what_a_library_left_outside_has_the_librarys_rule(samples):
    module = samples.facts("cpu/reductions")
    library = {
        (pair.producer.name, pair.consumer.name): pair
        for pair in module.pairs
        if pair.decided_by == "dot-library-rewriter"
    }
    # 2,048 elements are too few for the library; five operations read the sum.
    assert library["reduce_sum.23", "multiply"].reason == "ynn-preferred"
    shared = library["add.3", "reduce_max.7"]
    assert shared.reason == "lib-one-user"
    assert dict(shared.numbers)["fusion"] == "cpu-skip-custom"
    assert dict(shared.numbers)["users"] == 5


def test_a_pass_that_a_flag_turns_off_is_the_reason(samples):
    module = samples.facts("cpu-without-fusion/elementwise")
    assert {pair.reason for pair in module.pairs if pair.outcome == "not-fused"} == {"pass-off"}


def test_rules_of_a_version_are_of_no_use_where_nothing_is_replayed():
    dump = open_dump(DUMPS / "h100" / "concatenate")
    (module,) = explain(dump, Selection(rules="cpu-0.10")).modules
    assert any("are those of cpu" in n for n in module.notes)
    assert any("change nothing" in note for note in module.notes)


def test_what_a_fusion_of_a_dot_left_out_has_the_reason_of_the_pass_that_formed_it(samples):
    # The scores are scaled, masked with a mask that is computed, and normalized for the second dot.
    pairs = samples.facts("h100/attention").pairs
    reported = {(p.producer.opcode, p.consumer.opcode): p for p in pairs if p.reason}
    masked, weighted = reported["multiply", "select"], reported["divide", "dot"]
    assert (masked.reason, weighted.reason) == ("gf-other-inputs", "gf-input-worth")
    assert dict(masked.numbers)["priority-fusion"] == "pf-is-fusible"
    assert {masked.evidence, weighted.evidence} == {"re-evaluated"}


def test_a_record_that_says_something_else_is_shown_beside_the_replay(monkeypatch):
    reasons = importlib.import_module("fusionscope.reasons.reasons")
    monkeypatch.setattr(reasons, "rule_of", lambda message: "unknown")
    monkeypatch.setattr(
        importlib.import_module("fusionscope.reasons.evidence"),
        "rule_of",
        lambda message, pass_name: "cpu-max-reductions",
    )
    refused = [pair for pair in facts(DUMPS / "cpu" / "concatenate").pairs if pair.reason]
    assert {pair.evidence for pair in refused} == {"disagree"}
    assert all(pair.reason == "cpu-max-reductions" and pair.otherwise for pair in refused)


def test_one_stage_has_kernels_and_no_pairs():
    (final,) = (DUMPS / "h100" / "softmax").glob("*gpu_after_optimizations.txt*")
    module = facts(final)
    assert not module.pairs and module.notes
    assert [kernel.name for kernel in module.kernels] == ["triton_softmax.2"]
