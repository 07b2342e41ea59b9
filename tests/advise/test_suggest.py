"""What is suggested, held against what the compiler does with it, as other samples show it."""

import re
from pathlib import Path

import pytest

from fusionscope.advise.candidates import EXTRA_OPTIONS, Candidate, flag_candidates
from fusionscope.advise.replays import Replays
from fusionscope.advise.suggest import suggest, suggester
from fusionscope.dump import open_dump
from fusionscope.dump.debug_options import FUSION_FLAGS
from fusionscope.explain import Selection, explain
from fusionscope.explain.suggestion import SuggestionKind
from fusionscope.history.kernels import total_kernels

DUMPS = Path(__file__).resolve().parents[2] / "samples" / "dumps"
PACKAGE = Path(__file__).resolve().parents[2] / "fusionscope"


def totals(name: str) -> tuple[int, int]:
    (module,) = open_dump(DUMPS / name).modules
    assert module.final is not None
    return tuple(total_kernels(module.read(module.final), module.backend))


KINDS = "DOT,INDIVIDUAL_CONVOLUTION,REDUCE,ELTWISE".split(",")
ELEMENTWISE = ",".join(f"LIBRARY_FUSION_TYPE_{kind}" for kind in KINDS)


MULTI_OUTPUT = "--xla_backend_extra_options=xla_cpu_use_multi_output_fusion"


@pytest.mark.parametrize(
    ("flag", "without", "compiled", "stage"),
    [
        (
            MULTI_OUTPUT,
            "cpu/cartpole",
            "cpu-multi-output/cartpole",
            "after_cpu_multi_output_fusion.before_tuple-simplifier",
        ),
        (
            f"--xla_cpu_experimental_ynn_fusion_type={ELEMENTWISE}",
            "cpu/attention",
            "cpu-elementwise-library/attention",
            "final",
        ),
        (
            "--xla_disable_hlo_passes=multi_output_fusion",
            "h100/reductions",
            "h100-without-multi-output-fusion/reductions",
            "final",
        ),
    ],
)
def test_a_flag_does_what_the_replay_says(flag, without, compiled, stage):
    """``compiled`` is the dump of the same program with this flag."""
    replays, candidate = flag_tried(without, flag)
    found = replays.try_out(candidate)
    assert found is not None and replays.agrees(candidate)
    (module,) = open_dump(DUMPS / compiled).modules
    expected = total_kernels(module.read(module.stage(stage)), module.backend)
    assert total_kernels(found.module, module.backend) == expected
    if stage == "final":
        assert (found.figures.launches, found.figures.bytes_moved) == expected


def test_a_flag_that_changes_nothing_is_no_suggestion():
    """The program was compiled with it: the kernels are the same."""
    replays, candidate = flag_tried("cpu/reductions", MULTI_OUTPUT)
    assert replays.try_out(candidate) is None
    assert totals("cpu-multi-output/reductions") == totals("cpu/reductions")


def flag_tried(name: str, flag: str) -> tuple[Replays, Candidate]:
    (module,) = open_dump(DUMPS / name).modules
    assert module.final is not None
    (candidate,) = (each for each in flag_candidates(module) if each.change == flag)
    return Replays(module, module.read(module.final)), candidate


def test_what_helps_comes_with_figures_and_pairs():
    """The reductions of this program are one kernel each where YNN takes them, and one for all
    where the fusion pass does."""
    (module,) = explain(open_dump(DUMPS / "cpu/reductions"), suggest=suggester(Selection())).modules
    found = module.suggestions
    assert found is not None
    first = found.helpful[0]
    assert first.change == "--xla_cpu_experimental_ynn_fusion_type="
    assert (first.number, first.kind, first.evidence) == (1, "flag", "replayed")
    assert (first.before.launches, first.after.launches) == (7, 5)
    assert first.before.time_us and first.after.time_us
    assert first.after.time_us < first.before.time_us
    for producer, consumer in first.pairs:
        assert 1 in found.find(producer, consumer)


@pytest.mark.parametrize("name", ["cpu/concatenate", "cpu/cartpole", "h100/cartpole"])
def test_nothing_is_suggested_that_fuses_no_refused_pair_or_costs_time(name):
    dump = open_dump(DUMPS / name)
    (module,) = explain(dump, suggest=suggester(Selection(), is_limited=False)).modules
    refused = {
        (pair.producer.name, pair.consumer.name)
        for pair in module.pairs
        if pair.outcome == "not-fused"
    }
    assert module.suggestions is not None
    assert module.suggestions.helpful and module.suggestions.rejected
    for each in module.suggestions.helpful:
        assert each.pairs and refused.issuperset(each.pairs)
        assert each.before.time_us and each.after.time_us
        assert each.after.time_us < each.before.time_us
    numbers = [each.number for each in module.suggestions.helpful]
    assert numbers == list(range(1, len(numbers) + 1))
    saved = [each.saved_us for each in module.suggestions.helpful]
    assert saved == sorted(saved, reverse=True)


def test_a_suggestion_for_some_pairs_is_for_these():
    dump = open_dump(DUMPS / "cpu/concatenate")
    selection = Selection(producer="tanh", consumer="concatenate")
    (module,) = explain(dump, selection, suggest=suggester(selection)).modules
    assert module.suggestions is not None
    (found,) = module.suggestions.helpful
    assert found.kind is SuggestionKind.RULE
    assert set(found.pairs) == {(p.producer.name, p.consumer.name) for p in module.pairs}


def test_a_flag_that_is_set_is_no_candidate():
    for path in sorted(DUMPS.glob("*/*")):
        for module in open_dump(path).modules:
            values = module.flags.values if module.flags is not None else {}
            for candidate in flag_candidates(module):
                for name, wanted in candidate.flags.items():
                    assert values.get(name) != wanted, (path, candidate.change)


def test_every_flag_that_a_pass_reads_is_a_candidate():
    """Names of flags in what reads them, but those that only tell what a dump shows."""
    read = {
        name
        for folder in ("versions", "passes", "gpu")
        for path in (PACKAGE / folder).rglob("*.py")
        for name in re.findall(r'"(xla_(?:cpu|gpu)_\w+)"', path.read_text())
    }
    known = {flag.name for flag in FUSION_FLAGS} | {
        name for options in EXTRA_OPTIONS.values() for name in options
    }
    assert read - known == {"xla_cpu_disable_new_fusion_emitters"}  # jaxlib 0.12 has none else


def test_no_time_is_no_reason_to_try_nothing():
    dump = open_dump(DUMPS / "cpu/cartpole")
    (module,) = dump.modules
    (facts,) = explain(dump).modules
    assert facts.suggestions is None
    assert suggest(module, facts, seconds=0.0).helpful
