"""Suggestions, compared with what the compiler did in samples that were compiled that way."""

import importlib.util
import re
import sys
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

from fusionscope.advise.candidates import (
    EXTRA_OPTIONS,
    Candidate,
    flag_candidates,
    read_candidate,
    rule_candidates,
)
from fusionscope.advise.compilations import compile_each, compile_unchanged
from fusionscope.advise.recipes.trying import Compilation
from fusionscope.advise.removed import removed_movements
from fusionscope.advise.replays import Replays
from fusionscope.advise.settled import settled_pairs
from fusionscope.advise.suggest import suggest, suggester
from fusionscope.capture.capture import capture
from fusionscope.capture.targets import read_program, read_target
from fusionscope.dump import open_dump
from fusionscope.dump.debug_options import FUSION_FLAGS
from fusionscope.explain import ModuleFacts, Selection, explain
from fusionscope.explain.selection import EVERYTHING
from fusionscope.facts.suggestions import (
    Figures,
    HowTried,
    Suggestion,
    SuggestionKind,
    Suggestions,
)
from fusionscope.facts.summary import group_alike
from fusionscope.findings.movements.sheet import sheet
from fusionscope.findings.recomputed.facts import Recomputation
from fusionscope.findings.suggestions.sheet import for_pair
from fusionscope.history.kernels import total_kernels
from fusionscope.history.outcomes import Outcome
from fusionscope.hlo import to_text
from fusionscope.rules.changes import Changes, read_changes
from fusionscope.versions.known import VERSIONS
from fusionscope.versions.runs import find_runs
from fusionscope.what_if.first_names import FirstNames
from fusionscope.words.markdown import to_markdown

PROGRAMS = Path(__file__).resolve().parents[2] / "samples" / "programs"
DUMPS = Path(__file__).resolve().parents[2] / "samples" / "dumps"
PACKAGE = Path(__file__).resolve().parents[2] / "fusionscope"
with_jax = pytest.mark.skipif(importlib.util.find_spec("jaxlib") is None, reason="needs jax")


RESIDUAL = Path(__file__).resolve().parents[1] / "explain" / "data" / "residual"
INTEGERS = """
import jax.numpy as jnp


def program(x, w):
    top = jnp.abs(x).max(axis=1, keepdims=True)
    q = jnp.round(x / top * 127).astype(jnp.int8)
    y = jnp.dot(q, w, preferred_element_type=jnp.int32).astype(jnp.float32) * top
    z = x - x.mean(axis=1, keepdims=True)
    return y, (z * z).sum(axis=1), jnp.log(jnp.abs(x) + 1).sum(axis=1)
"""


def totals(name: str) -> tuple[int, int]:
    (module,) = open_dump(DUMPS / name).modules
    assert module.final is not None
    return tuple(total_kernels(module.read(module.final), module.backend))


KINDS = "DOT,INDIVIDUAL_CONVOLUTION,REDUCE,ELTWISE".split(",")
ELEMENTWISE = ",".join(f"LIBRARY_FUSION_TYPE_{kind}" for kind in KINDS)


MULTI_OUTPUT = "--xla_backend_extra_options=xla_cpu_use_multi_output_fusion"


# A sample, and the dump of the same program with a flag.
with_a_flag = pytest.mark.parametrize(
    ("flag", "without", "compiled"),
    [
        (MULTI_OUTPUT, "cpu/cartpole", "cpu-multi-output/cartpole"),
        (
            f"--xla_cpu_experimental_ynn_fusion_type={ELEMENTWISE}",
            "cpu/attention",
            "cpu-elementwise-library/attention",
        ),
        (
            "--xla_disable_hlo_passes=multi_output_fusion",
            "h100/reductions",
            "h100-without-multi-output-fusion/reductions",
        ),
    ],
)


@with_a_flag
def test_a_flag_does_what_the_replay_says(flag, without, compiled):
    replays, candidate = flag_tried(without, flag)
    actual = replays.try_out(candidate)
    assert actual is not None and replays.agrees(candidate) and actual.is_certain
    assert (actual.figures.launches, actual.figures.bytes_moved) == totals(compiled)


def test_a_flag_that_changes_nothing_is_no_suggestion():
    """The program was compiled with it: the kernels are the same."""
    replays, candidate = flag_tried("cpu/reductions", MULTI_OUTPUT)
    assert replays.try_out(candidate) is None
    assert totals("cpu-multi-output/reductions") == totals("cpu/reductions")


def flag_tried(name: str, flag: str) -> tuple[Replays, Candidate]:
    (module,) = open_dump(DUMPS / name).modules
    assert module.final is not None
    (candidate,) = (candidate for candidate in flag_candidates(module) if candidate.change == flag)
    return Replays(module, module.read(module.final)), candidate


@cache
def explained(name: str, selection: Selection = EVERYTHING) -> tuple[ModuleFacts, Suggestions]:
    suggest_all = suggester(selection, is_limited=False)
    (module,) = explain(open_dump(DUMPS / name), selection, suggest=suggest_all).modules
    assert module.suggestions is not None
    return module, module.suggestions


def test_on_a_cpu_nothing_is_suggested_that_was_not_timed():
    _, actual = explained("cpu/concatenate")
    assert not [item for item in actual.helpful if item.kind is not SuggestionKind.RECIPE]
    first = actual.unmeasured[0]
    assert first.change == "--allow 'tanh.1 -> concatenate.1'"
    assert (first.kind, first.evidence) == ("rule", "replayed")
    assert first.after.launches < first.before.launches
    for producer, consumer in first.pairs:
        assert actual.is_open(producer, consumer)


def test_a_value_that_starts_another_pass_is_not_replayed():
    """Without reductions in YNN the compiler runs a tree_reduction_rewriter, as a module that was
    compiled so shows (jaxlib 0.12)."""
    replays, candidate = flag_tried("cpu/reductions", "--xla_cpu_experimental_ynn_fusion_type=")
    assert "tree_reduction_rewriter" in candidate.passes
    assert not replays.can_try(candidate)


@pytest.mark.parametrize(
    "name",
    [
        "cpu/concatenate",
        *(pytest.param(f"{target}/cartpole", marks=pytest.mark.slow) for target in ("cpu", "h100")),
    ],
)
def test_nothing_is_suggested_that_fuses_no_refused_pair_or_costs_time(name):
    module, actual = explained(name)
    refused = {
        (pair.producer.name, pair.consumer.name)
        for pair in module.pairs
        if pair.outcome == "not-fused"
    }
    replayed = [item for item in actual.helpful if item.kind is not SuggestionKind.RECIPE]
    visible = [*replayed, *actual.unmeasured]
    assert visible and actual.rejected
    for item in visible:
        assert refused.issuperset(item.pairs)
        assert item.before.time_us and item.after.time_us
        assert item.after.time_us < item.before.time_us
    for item in actual.helpful:
        for producer, consumer in item.pairs:
            assert item.number in actual.find(producer, consumer)
    assert all(item.why_not for item in actual.rejected)
    assert not any(item.why_not for item in (*actual.helpful, *actual.unmeasured))
    numbers = [item.number for item in (*actual.helpful, *actual.unmeasured, *actual.rejected)]
    assert numbers == list(range(1, len(numbers) + 1))
    saved = [item.saved_us for item in visible]
    assert saved == sorted(saved, reverse=True)


def test_a_suggestion_for_some_pairs_is_for_these():
    selection = Selection(producer="multiply", consumer="concatenate")
    module, suggestions = explained("h100/concatenate", selection)
    expected = {(pair.producer.name, pair.consumer.name) for pair in module.pairs}
    assert len(expected) == 1
    replayed = [item for item in suggestions.helpful if item.kind is not SuggestionKind.RECIPE]
    assert replayed
    assert all(set(item.pairs) == expected for item in replayed)


def test_a_flag_that_is_set_is_no_candidate():
    for path in sorted(DUMPS.glob("*/*")):
        for module in open_dump(path).modules:
            values = module.flags.values if module.flags is not None else {}
            for candidate in flag_candidates(module):
                for name, expected in candidate.flags.items():
                    assert values.get(name) != expected, (path, candidate.change)


def test_every_flag_that_a_pass_reads_is_a_candidate():
    """Names of flags in what reads them, but those that only tell what a dump shows."""
    read = {
        name
        for folder in ("versions", "passes", "gpu")
        for path in (PACKAGE / folder).rglob("*.py")
        for name in re.findall(r'"(xla_(?:cpu|gpu)_\w+)"', path.read_text())
    }
    names = {flag.name for flag in FUSION_FLAGS} | {
        name for options in EXTRA_OPTIONS.values() for name in options
    }
    marks = {version.flag for version in VERSIONS}
    # jaxlib 0.12 has none else
    assert read - names - marks == {"xla_cpu_disable_new_fusion_emitters"}


@pytest.mark.parametrize("name", ["cpu/attention", "h100/attention", "h100/cartpole"])
def test_each_of_the_costliest_refusals_has_an_answer(name):
    module, actual = explained(name)
    refused = [pair for pair in module.pairs if pair.outcome == "not-fused"]
    costliest = group_alike(refused, lambda pair: pair.reason)[:10]
    assert len(actual.answers) == len(costliest)
    for alike, answer in zip(costliest, actual.answers, strict=True):
        names = {(pair.producer.name, pair.consumer.name) for pair in alike}
        assert set(answer.pairs) == names
        for producer, consumer in answer.pairs:
            attempts = (
                actual.find(producer, consumer),
                actual.not_timed(producer, consumer),
                actual.not_worth_it(producer, consumer),
                answer.in_vain,
                answer.why,
            )
            assert any(attempts) and actual.answer(producer, consumer) is not None
        assert not answer.untried


@pytest.mark.parametrize("name", ["h100/attention", "h100/dense", "h100/softmax"])
def test_later_names_are_those_of_the_same_operations(name):
    """On a GPU a pass renames all instructions after the fusions around dots are formed. The
    framework's names stay."""
    (module,) = open_dump(DUMPS / name).modules
    (before,) = (run.before for run in find_runs(module) if run.pass_name == "priority-fusion")
    old, new = (
        {instruction.name: instruction for instruction in module.read(stage).entry.instructions}
        for stage in (module.pre_fusion, before)
    )
    later = FirstNames(module, before).later
    names = {
        first: second
        for first, second in later.items()
        if first in old and second in new and old[first].opcode != "parameter"
    }
    assert names and all(first != second for first, second in names.items())
    for first, second in names.items():
        assert (old[first].opcode, old[first].op_name) == (new[second].opcode, new[second].op_name)


@pytest.mark.parametrize("name", ["cpu/concatenate", "h100/cartpole"])
def test_a_suggestion_can_be_tried_again(name):
    facts, actual = explained(name)
    (module,) = open_dump(DUMPS / name).modules
    groups = group_alike(facts.pairs, lambda pair: pair.reason)
    replays = Replays(module, module.read(module.final))
    rules = (rule_candidates(replays.compiler, alike, replays.names()) for alike in groups)
    names = {
        candidate.change: candidate for candidate in (*flag_candidates(module), *chain(*rules))
    }
    attempts = (*actual.helpful, *actual.unmeasured, *actual.rejected)
    again = [read_candidate(item) for item in attempts if item.change in names]
    assert {item.kind for item in again} == {SuggestionKind.FLAG, SuggestionKind.RULE}
    for item in again:
        assert (item.flags, item.changes) == (names[item.change].flags, names[item.change].changes)


def test_operations_that_the_passes_go_over_are_counted():
    """Those of each stage before a pass, from the first one on that the change concerns; those that
    priority fusion scores again and again count eight times."""
    (module,) = open_dump(DUMPS / "h100/cartpole").modules
    replays = Replays(module, module.read(module.final))
    candidate = next(
        candidate
        for candidate in flag_candidates(module)
        if candidate.passes == {"priority-fusion"} and replays.can_try(candidate)
    )
    chain = ["priority-fusion", "multi_output_fusion"]
    runs = [run for run in find_runs(module) if run.pass_name in chain]
    scored, merged = (module.read(run.before).instruction_count for run in runs)
    assert replays.count_operations(candidate) == 8 * scored + merged


@with_a_flag
def test_the_pairs_that_a_compiled_change_fuses_are_those_of_the_replay(flag, without, compiled):
    replays, candidate = flag_tried(without, flag)
    (module,) = open_dump(DUMPS / without).modules
    (output,) = open_dump(DUMPS / compiled).modules
    actual = replays.try_out(candidate)
    assert settled_pairs(module, output) == replays.fused_pairs(actual)


def test_a_change_removes_the_copies_that_the_compiler_then_does_not_make():
    """The compiler makes fewer copies for the same program with this flag."""
    (without,) = open_dump(DUMPS / "cpu/cartpole").modules
    (compiled,) = open_dump(DUMPS / "cpu-multi-output/cartpole").modules
    before, after = without.read(without.final), compiled.read(compiled.final)
    copies, left = (
        Counter(
            str(instruction.shape) for instruction in module.walk() if instruction.opcode == "copy"
        )
        for module in (before, after)
    )
    assert left < copies
    removed = removed_movements(before, before, after, "cpu")
    by_name = {instruction.name: instruction for instruction in before.walk()}
    assert Counter(str(by_name[name].shape) for name in removed) == copies - left
    assert not removed_movements(before, before, before, "cpu")

    facts = explain(open_dump(DUMPS / "cpu/cartpole"), Selection(movements=True)).modules[0]
    figures = Figures(2, 2)
    suggestion = Suggestion(
        number=1,
        kind=SuggestionKind.FLAG,
        change=MULTI_OUTPUT,
        evidence=HowTried.MEASURED,
        pairs=(),
        before=figures,
        after=Figures(1, 1),
        removes=removed,
    )
    with_removal = replace(facts, suggestions=Suggestions((suggestion,)))
    assert any("gone with try 1" in text for text in to_markdown(sheet(with_removal, None)))
    assert not any("gone" in text for text in to_markdown(sheet(facts, None)))


def replayed(suggestions):
    attempts = (*suggestions.helpful, *suggestions.unmeasured, *suggestions.rejected)
    return [suggestion for suggestion in attempts if suggestion.evidence is HowTried.REPLAYED]


def test_nothing_is_replayed_beyond_the_limit_of_operations():
    dump = open_dump(DUMPS / "h100/concatenate")
    (module,) = dump.modules
    (facts,) = explain(dump).modules
    all_tried = suggest(module, facts, most_operations=None)
    none_tried = suggest(module, facts, most_operations=1)
    assert replayed(all_tried)
    assert all_tried.untried == 0
    assert not replayed(none_tried)
    assert none_tried.untried >= len(replayed(all_tried))
    assert any(answer.untried for answer in none_tried.answers)
    assert all_tried.is_tried and not none_tried.is_tried
    texts = [for_pair(none_tried, *answer.pairs[0]) for answer in none_tried.answers]
    assert texts and all(text.startswith("nothing tried so far") for text in texts)


def test_the_limit_of_operations_is_that_of_all_replays_together():
    dump = open_dump(DUMPS / "h100/concatenate")
    (module,) = dump.modules
    (facts,) = explain(dump).modules
    chain = ["priority-fusion", "multi_output_fusion"]
    runs = [run for run in find_runs(module) if run.pass_name in chain]
    scored, merged = (module.read(run.before).instruction_count for run in runs)
    once = 8 * scored + merged
    # Changes of rules share a replay; a flag needs one of its own.
    limits = (merged, once, 100 * once)
    untried = [suggest(module, facts, most_operations=most).untried for most in limits]
    assert untried[0] > untried[1] > untried[2] == 0


def test_keeping_values_is_a_replay():
    dump = open_dump(RESIDUAL)
    (facts,) = explain(dump, suggest=suggester(EVERYTHING, is_limited=False)).modules
    assert facts.find(Recomputation) is not None and facts.suggestions is not None
    values = [item.value.name for item in facts.find(Recomputation).values]
    attempts = [item for item in facts.suggestions.unmeasured if item.keeps]
    assert [item.keeps for item in attempts] == [tuple(values[:8]), (values[0],), (values[1],)]
    for item in attempts:
        forbidden = [f"{value} -> *" for value in item.keeps]
        selection = Selection(changes=read_changes(forbid=forbidden))
        (changed,) = explain(open_dump(RESIDUAL), selection).modules
        assert changed.what_if is not None and changed.what_if.final is not None
        assert changed.what_if.final == (item.before, item.after)


@pytest.mark.parametrize(
    ("change", "moves"),
    [
        ("--xla_disable_hlo_passes=dot-library-rewriter", True),
        (f"--xla_cpu_experimental_ynn_fusion_type={ELEMENTWISE}", False),
    ],
)
@pytest.mark.parametrize("name", ["cpu/attention", "cpu/reductions"])
def test_what_leaves_the_library_is_other_code(name, change, moves):
    """Dots and reductions: in YNN kernels of their own, or with what is around them, or outside."""
    replays, candidate = flag_tried(name, change)
    actual = replays.try_out(candidate)
    assert actual is not None and replays.changes_code(actual) is moves


@with_jax
def test_products_of_integers_are_not_taken_out_of_the_library_unmeasured(tmp_path):
    """The reductions move fewer bytes outside of the library. The product of integers takes several
    times as long there."""
    file = tmp_path / "products.py"
    file.write_text(INTEGERS)
    program = read_program(f"{file}:program", ("f32[256,2048]", "s8[2048,64]"))
    captured = capture(program, read_target("cpu"), tmp_path / "dump")
    dump = open_dump(captured.directory)
    (module,) = dump.modules
    assert "__ynn_fusion" in to_text(module.read(module.final))
    (facts,) = explain(dump, suggest=suggester(EVERYTHING, is_limited=False)).modules
    actual = facts.suggestions
    changes = [item.change for item in (*actual.helpful, *actual.unmeasured)]
    assert not any("dot-library-rewriter" in change for change in changes)
    assert any("other code compute what the library" in note for note in actual.notes)


@with_jax
def test_the_compiler_makes_what_a_replay_predicts(tmp_path):
    """A change of rules for a program that is compiled here; what the compiler makes of it counts
    as a suggestion only if it is faster."""
    shapes = ("f32[1024,128]", "f32[1024,128]", "f32[1024,64]")
    program = read_program(f"{PROGRAMS / 'concatenate.py'}:program", shapes)
    captured = capture(program, read_target("cpu"), tmp_path / "dump")
    (module,) = open_dump(captured.directory).modules
    assert module.final is not None
    replays = Replays(module, module.read(module.final))
    (facts,) = explain(open_dump(captured.directory)).modules
    alike = [pair for pair in facts.pairs if pair.reason == "cpu-concat"]
    candidates = [
        candidate
        for candidate in rule_candidates(replays.compiler, alike[:1], replays.names())
        if replays.try_out(candidate)
    ]
    assert candidates
    compilation = Compilation(sys.executable, seconds=0.1)
    unchanged = compile_unchanged(module, compilation)
    assert unchanged.figures == replays.final
    refused = [pair for pair in facts.pairs if pair.outcome == Outcome.NOT_FUSED]
    assert unchanged.pairs.isdisjoint((p.producer.name, p.consumer.name) for p in refused)
    for candidate, compiled in zip(
        candidates, compile_each(module, candidates, compilation), strict=True
    ):
        predicted = replays.try_out(candidate)
        assert predicted is not None and compiled.figures is not None and not compiled.problem
        assert compiled.figures.launches == predicted.figures.launches
        assert compiled.figures.bytes_moved == predicted.figures.bytes_moved
        assert compiled.pairs == replays.fused_pairs(predicted)
        assert compiled.timing is not None


@with_jax
def test_a_change_without_which_there_is_no_code_has_no_result(tmp_path):
    """The compiler finishes its stages, and then cannot translate a comparison for YNN."""
    file = tmp_path / "positive.py"
    file.write_text("def program(x):\n    return (x * (x > 0)).sum(0)\n")
    program = read_program(f"{file}:program", ("f32[1024,128]",))
    captured = capture(program, read_target("cpu"), tmp_path / "dump")
    (module,) = open_dump(captured.directory).modules
    rule = "ynn-elementwise"
    (compiled,) = compile_each(
        module,
        [
            Candidate(
                kind=SuggestionKind.RULE,
                change=f"--disable {rule}",
                passes=frozenset({"dot-library-rewriter"}),
                flags={},
                changes=Changes(disabled=(rule,)),
            )
        ],
        Compilation(sys.executable, seconds=0.1),
    )
    assert "YNN" in compiled.problem
    assert compiled.figures is None or compiled.timing is None
    # So it is no candidate.
    compiler = Replays(module, module.read(module.final)).compiler
    assert compiler.find_rule(rule).is_legality


@with_jax
def test_a_flag_that_lets_a_library_take_narrow_dots_is_not_replayed(tmp_path):
    """Without the library, an earlier pass computes these dots in f32."""
    flag = f"--xla_cpu_experimental_ynn_fusion_type={ELEMENTWISE}"
    file = tmp_path / "product.py"
    file.write_text("def program(x, y):\n    return x @ y\n")
    names = {}
    for dtype in ("bf16", "f32"):
        program = read_program(f"{file}:program", (f"{dtype}[64,64]", f"{dtype}[64,64]"))
        captured = capture(program, read_target("cpu"), tmp_path / dtype)
        (module,) = open_dump(captured.directory).modules
        replays = Replays(module, module.read(module.final))
        (candidate,) = (
            candidate for candidate in flag_candidates(module) if candidate.change == flag
        )
        names[dtype] = replays.can_try(candidate)
    assert names == {"bf16": False, "f32": True}
