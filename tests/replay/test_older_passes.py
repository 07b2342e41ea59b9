"""The passes that fused for GPUs before priority fusion, on real dumps of them."""

from __future__ import annotations

import re
import shutil
from functools import cache
from pathlib import Path

import pytest

from fusionscope.compare.module_history import module_history
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.dump.device import find_device
from fusionscope.errors import UnusableInput
from fusionscope.explain import Selection, explain
from fusionscope.explain.explain import explain_module
from fusionscope.findings.libraries.facts import Boundary
from fusionscope.graph.mutable import MutableModule
from fusionscope.history.kernels import total_kernels
from fusionscope.history.outcomes import TOGETHER
from fusionscope.passes.gpu_legacy.horizontal_fusion.rules import UnrolledBatch
from fusionscope.passes.overrides import PairPattern
from fusionscope.rules.changes import Changes
from fusionscope.verify.verification import Verification, verify
from fusionscope.versions.choice import choose_compiler
from fusionscope.versions.context import read_context
from fusionscope.versions.runs import find_runs
from fusionscope.what_if.what_if import what_if

pytestmark = pytest.mark.slow

SAMPLES = Path(__file__).parents[2] / "samples"
DUMPS = sorted((SAMPLES / "dumps").glob("*jaxlib-0.4*/*"))
PASSES = (
    "fusion",
    "fusion-duplicating",
    "fusion_merger",
    "multi_output_fusion",
    "horizontal_loop_fusion",
    "horizontal_input_fusion",
)


def name(dump: Path) -> str:
    return f"{dump.parent.name}/{dump.name}"


def opened(dump: Path) -> DumpedModule:
    (module,) = open_dump(dump).modules
    return module


@cache
def verified(path: Path) -> Verification:
    dump = open_dump(path)
    return verify(dump, dump.modules)


@pytest.mark.parametrize("dump", DUMPS, ids=name)
def test_every_plan_and_every_recorded_decision_is_the_compilers(dump: Path) -> None:
    actual = verified(dump)
    assert not actual.problems
    assert [fusion_pass.pass_name for fusion_pass in actual.passes] == [
        "variadic-op-splitter",
        *PASSES,
    ]
    for run in actual.passes:
        assert run.is_identical, run.divergence
        assert run.decisions.is_full, run.disagreement


def test_each_pass_acts_in_one_of_them() -> None:
    acting = {
        run.pass_name for dump in DUMPS for run in verified(dump).passes if run.after is not None
    }
    assert acting == set(PASSES)


def test_decisions_of_each_recorded_pass_are_compared() -> None:
    compared = {
        run.pass_name for dump in DUMPS for run in verified(dump).passes if run.decisions.compared
    }
    assert compared == set(PASSES[:4])


@pytest.mark.parametrize("dump", DUMPS, ids=name)
def test_the_rules_are_those_of_the_version(dump: Path) -> None:
    """Only 0.4.35 limits a horizontal fusion by what its loop is when unrolled."""
    (version,) = re.findall(r"jaxlib-([\d.]+)", dump.parent.name)
    book = choose_compiler(opened(dump)).compiler.find("horizontal_loop_fusion").book
    limits_loops = any(isinstance(rule, UnrolledBatch) for rule in book)
    assert limits_loops == (version == "0.4.35")


@pytest.mark.parametrize("dump", DUMPS, ids=name)
def test_kernels_are_launched_as_the_model_takes_them_to_be(dump: Path) -> None:
    """Of the sequence that the compiler wrote when it had code for all kernels."""
    (sequence,) = dump.glob("*.thunk_sequence.txt")
    pattern = r"kernel = (\w+), .*?blocks: \{(\d+), (\d+), (\d+)\}, threads/block: \{(\d+),"
    launched = {
        kernel: (int(x) * int(y) * int(z), int(threads))
        for kernel, x, y, z, threads in re.findall(pattern, sequence.read_text())
    }
    assert launched
    module = opened(dump)
    assert module.final is not None
    model = read_context(module).gpu_state().model
    for instruction in MutableModule(module.read(module.final)).entry.instructions:
        expected = launched.pop(re.sub(r"\W", "_", instruction.name), None)
        assert expected is None or model.launch(model.emission(instruction)) == expected
    assert not launched


def test_the_story_of_horizontal_fusion() -> None:
    """Ten fusions become two: four by writing their siblings' results too, and two of these by
    lying side by side in a kernel with the others."""
    dump = SAMPLES / "dumps" / "a100-jaxlib-0.4.35" / "updates"
    reported = {
        fusion_pass.pass_name: fusion_pass for fusion_pass in module_history(opened(dump)).passes
    }
    assert [reported[p].fusions for p in ("multi_output_fusion", *PASSES[4:])] == [4, 3, 2]


def test_the_story_of_fusion_merger() -> None:
    dump = SAMPLES / "dumps" / "a100-jaxlib-0.4.35" / "cartpole"
    reported = {
        fusion_pass.pass_name: fusion_pass for fusion_pass in module_history(opened(dump)).passes
    }
    assert [reported[p].fusions for p in ("fusion", "fusion_merger")] == [5, 3]


def test_a_refusal_is_explained_by_the_record_and_the_rules() -> None:
    """The fusion that the comparison grew into cannot go into the result, a tuple, so it goes into
    no user."""
    dump = SAMPLES / "dumps" / "a100-jaxlib-0.4.35" / "cartpole"
    module = opened(dump)
    assert len(list(find_runs(module))) == 7
    (pair,) = [pair for pair in explain_module(module).pairs if pair.reason]
    assert (pair.reason, pair.evidence) == ("leg-fm-all-users", "agree")


@pytest.mark.parametrize("program", ["cartpole", "reductions"])
def test_without_multi_output_fusion_its_module_stays_as_the_compiler_had_it(program: str) -> None:
    dump = SAMPLES / "dumps/a100-jaxlib-0.4.35" / program
    module = opened(dump)
    actual = what_if(module, Changes(disabled=("multi_output_fusion",)))
    before, after = (
        total_kernels(module.read(stage), "gpu").launches
        for stage in module.stages
        if "multi_output_fusion" in (stage.name.before, stage.name.after)
    )
    assert (actual.before.launches, actual.after.launches) == (after, before)
    assert actual.after.launches > actual.before.launches
    assert all(pair.before in TOGETHER for pair in actual.pairs)


def test_wishes_and_thresholds_reach_instruction_fusion() -> None:
    dump = SAMPLES / "dumps/a100-jaxlib-0.4.35/cartpole"
    module = opened(dump)
    changes = Changes(thresholds=(("leg-code-dup", "limit", 1),))
    actual = what_if(module, changes)
    assert actual.after.launches > actual.before.launches
    assert "leg-code-dup" in {pair.rule for pair in actual.pairs}
    assert not any("asks leg-code-dup" in note for note in actual.notes)
    actual = what_if(module, Changes(allowed=(PairPattern("or*", "*"),)))
    assert {pair.producer for pair in actual.pairs} == {"or.66"}
    assert any("may decide differently" in note for note in actual.notes)


def test_a_dump_that_lacks_its_gpu_takes_the_one_that_is_named(tmp_path: Path) -> None:
    """As these compilers leave it."""
    dump = tmp_path / "dump"
    shutil.copytree(SAMPLES / "dumps/a100-jaxlib-0.4.35/library_random", dump)
    for record in dump.glob("*._fusion.html"):
        record.unlink()
    (described,) = dump.glob("*.gpu_target_config.pbtxt")
    described.unlink()
    lacking = open_dump(dump)
    with pytest.raises(UnusableInput, match=r"name it, as in --device"):
        verify(lacking, lacking.modules)
    module = opened(dump)
    reasons = {pair.reason for pair in explain_module(module).pairs}
    assert reasons == {None, "unknown"}
    (explained,) = explain(lacking, Selection(device=find_device("a100"))).modules
    assert "unknown" not in {pair.reason for pair in explained.pairs}
    assert any("the dump does not describe its GPU" in note for note in explained.notes)


def test_the_baseline_of_the_paper_names_what_the_paper_found() -> None:
    """The library call, the concatenates with several users, and the limits that keep them out: by
    the compiler's own words."""
    module = opened(SAMPLES / "dumps/a100-jaxlib-0.4.35/library_random")
    facts = explain_module(module)
    assert {item.library for item in facts.find_all(Boundary)} == {"JAX"}
    refused = {
        (pair.producer.opcode, pair.consumer.opcode): pair for pair in facts.pairs if pair.reason
    }
    call = refused["broadcast", "custom-call"]
    assert (call.reason, call.evidence) == ("never-library", "agree")
    assert refused["custom-call", "concatenate"].reason == "never-library"
    key = refused["concatenate", "slice"]
    assert (key.reason, key.evidence) == ("leg-code-dup", "agree")
    assert key.message is not None and "overly large code duplication" in key.message
    assert dict(key.numbers) == {"emitted": 1, "users": 2, "limit": 1}


@pytest.mark.parametrize("version", ["a100-jaxlib-0.4.35", "a100-xla-2023"])
def test_the_concatenate_of_the_state_is_refused_and_merged_into_both_users(version: str) -> None:
    facts = explain_module(opened(SAMPLES / "dumps" / version / "library_random"))
    state = [
        pair
        for pair in facts.pairs
        if pair.producer.opcode == "concatenate" and pair.producer.shape.startswith("f32[4,2048]")
    ]
    assert {item.consumer.opcode for item in state} == {"abs", "select"}
    for pair in state:
        assert pair.outcome == "duplicated"
        refusal = pair.fused_by_later_pass
        assert refusal is not None and refusal.evidence == "agree"
        assert (refusal.reason, refusal.by) == ("base-globally-unfusible", "fusion_merger")
        assert "operand can not be duplicated" in str(refusal.message)
