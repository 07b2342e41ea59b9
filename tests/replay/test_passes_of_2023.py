"""The passes of early 2023, on real dumps by the compiler of that time."""

from __future__ import annotations

import gzip
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from fusionscope.compare.module_history import module_history
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.dump.device import CudaCapability
from fusionscope.explain.explain import explain_module
from fusionscope.findings.libraries.facts import Boundary
from fusionscope.user_order.user_history import arrange, find_user_order
from fusionscope.verify.verification import PassVerification, verify
from fusionscope.versions.choice import choose_compiler, find_rewriters
from fusionscope.versions.known import load_compiler
from fusionscope.versions.xla_2023.layout_normalization import normalize_layouts

pytestmark = pytest.mark.slow

DUMPS = Path(__file__).parents[2] / "samples" / "dumps" / "a100-xla-2023"
# Outputs in another order, from an order of users that is not found.
IN_ANOTHER_ORDER = {("updates", "gpu_horizontal_input_fusion")}
ACTING = {
    "library_random": {"fusion", "fusion-duplicating", "fusion_merger", "multi_output_fusion"},
    "updates": {
        "fusion",
        "fusion-duplicating",
        "multi_output_fusion",
        "gpu_horizontal_loop_fusion",
        "gpu_horizontal_input_fusion",
    },
}


def opened(program: str) -> DumpedModule:
    (module,) = open_dump(DUMPS / program).modules
    return module


@cache
def verified(program: str) -> tuple[PassVerification, ...]:
    dump = open_dump(DUMPS / program)
    actual = verify(dump, dump.modules)
    assert not actual.problems
    return actual.passes


@pytest.mark.parametrize("program", sorted(ACTING))
def test_plans_are_the_compilers(program: str) -> None:
    runs = verified(program)
    assert {run.pass_name for run in runs if run.after is not None} == ACTING[program]
    for run in runs:
        assert run.has_same_kernels, run.divergence
        is_listed = (program, run.pass_name) in IN_ANOTHER_ORDER and run.after is not None
        assert run.is_identical != is_listed, run.divergence
        assert run.pairs.is_full


@pytest.mark.parametrize("program", sorted(ACTING))
def test_the_pipeline_runs_until_nothing_changes(program: str) -> None:
    fusing = [run for run in verified(program) if run.pass_name == "fusion"]
    assert [run.after is not None for run in fusing] == [True, False]


@pytest.mark.parametrize("program", sorted(ACTING))
def test_layout_normalization_makes_what_the_compilers_makes(program: str) -> None:
    """Bitcasts and all: what is not replayed to the last one leaves users in another order."""
    module = opened(program)
    stages = [stage for stage in module.stages if stage.name.counter is not None]
    place = [stage.name.after for stage in stages].index("layout_normalization")
    graph = arrange(
        module.read(stages[place - 1]),
        find_user_order(module, stages[place - 1], find_rewriters(module)),
    )
    normalize_layouts(graph)
    output, expected = (
        Counter(
            (instruction.opcode, str(instruction.shape))
            for part in parts
            for instruction in part.instructions
        )
        for parts in (graph.post_order(), module.read(stages[place]).reachable())
    )
    assert output == expected
    assert output.total() > 100


def test_recorded_decisions_are_the_rules() -> None:
    """Those of each round, where each left some."""
    compared = {
        run.pass_name: (run.decisions.agreeing, run.decisions.compared)
        for run in verified("updates")
        if run.decisions.compared and run.after is not None
    }
    assert set(compared) == {"fusion", "fusion-duplicating"}
    merger = [run for run in verified("updates") if run.pass_name == "fusion_merger"]
    for agreeing, decisions in (
        *compared.values(),
        *((run.decisions.agreeing, run.decisions.compared) for run in merger),
    ):
        assert agreeing == decisions > 0


@pytest.mark.parametrize("program", sorted(ACTING))
def test_the_dump_tells_its_version_and_gpu(program: str) -> None:
    module = opened(program)
    assert choose_compiler(module).compiler == load_compiler("gpu-2023")
    assert module.device is not None
    assert module.device.capability == CudaCapability(8, 0, "")


def test_the_story_is_that_of_the_stages() -> None:
    reported = {
        fusion_pass.stage: fusion_pass.fusions
        for fusion_pass in module_history(opened("updates")).passes
    }
    counts = 0
    for file in sorted((DUMPS / "updates").glob("*.txt.gz")):
        for stage, fusions in reported.items():
            if f".{stage}.txt" in file.name:
                text = gzip.decompress(file.read_bytes()).decode()
                assert text.count(" fusion(") == fusions
                counts += 1
    assert counts == len(reported) == 4  # a run of instruction fusion leaves as many as it found


def test_the_baseline_of_the_paper_names_what_the_paper_found() -> None:
    facts = explain_module(opened("library_random"))
    assert facts.summary.exact and facts.summary.launches > 20  # of 20 rounds of a loop
    assert {item.library for item in facts.find_all(Boundary)} == {"JAX"}
    refused = {
        (pair.producer.opcode, pair.consumer.opcode): pair for pair in facts.pairs if pair.reason
    }
    assert refused["slice", "custom-call"].reason == "never-library"
    assert refused["custom-call", "concatenate"].reason == "never-library"
