"""Changes that follow the unchanged rules lead to what a replay of their own leads to."""

from __future__ import annotations

import math
from itertools import chain
from pathlib import Path

import pytest

from fusionscope.advise.candidates import Candidate, rule_candidates
from fusionscope.advise.copies import TOO_LONG, Copies
from fusionscope.advise.replays import ReplayedChange, Replays
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.explain.explain import explain
from fusionscope.facts.summary import group_alike
from fusionscope.passes.context import OutOfTime
from fusionscope.system.forks import Forks, can_fork

DUMPS = Path(__file__).parents[2] / "samples" / "dumps"
GPUS = [
    str(path.relative_to(DUMPS))
    for gpu in ("a100", "b200", "h100", "h200")
    for path in sorted((DUMPS / gpu).iterdir())
    if path.is_dir()
]
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


@pytest.fixture(autouse=True)
def forks() -> None:
    if not can_fork():  # asked here: a test before this one may have imported jax
        pytest.skip("this process cannot be copied")


def candidates_of(name: str, replays: Replays) -> list[Candidate]:
    (facts,) = explain(open_dump(DUMPS / name)).modules
    refused = [pair for pair in facts.pairs if pair.outcome == "not-fused"]
    groups = group_alike(refused, lambda pair: pair.reason)
    names = replays.names()
    rules = chain(*(rule_candidates(replays.compiler, alike, names) for alike in groups))
    return list({candidate.change: candidate for candidate in rules}.values())


def replays_of(module: DumpedModule) -> Replays:
    return Replays(module, module.read(module.last))


def results(replays: Replays, candidates: list[Candidate]) -> dict[str, ReplayedChange | None]:
    return {candidate.change: replays.try_out(candidate) for candidate in candidates}


def text_of(change: ReplayedChange) -> list[tuple[str, str, object]]:
    return [(body.name, body.signature, body.written) for body in change.module.bodies]


def compare(name: str, jobs: int) -> tuple[int, int]:
    """Return how many changes were compared, and how many of them led to something else than the
    unchanged rules.
    """
    (module,) = open_dump(DUMPS / name).modules
    alone, together = replays_of(module), replays_of(module)
    candidates = list(filter(alone.can_try, candidates_of(name, alone)))
    together.expect(filter(together.follows, candidates), jobs)
    after, expected = results(together, candidates), results(alone, candidates)
    for candidate in candidates:
        first, second = after[candidate.change], expected[candidate.change]
        assert (first is None) == (second is None), candidate.change
        if first is not None and second is not None:
            assert text_of(first) == text_of(second), candidate.change
            assert first.figures == second.figures, candidate.change
    return len(candidates), len(list(filter(None, after.values())))


@pytest.mark.parametrize("jobs", [1, 2])
def test_changes_go_on_from_the_unchanged_rules(monkeypatch, jobs):
    copies: list[object] = []
    split = Forks.split

    def counted(self: Forks[object], key: object) -> bool:
        copies.append(key)
        return split(self, key)

    monkeypatch.setattr(Forks, "split", counted)
    _, count = compare("h100/reductions", jobs)
    assert copies and count


@pytest.mark.slow
@pytest.mark.parametrize("name", GPUS)
def test_all_changes_do(name):
    compare(name, 1)


def test_a_change_whose_copy_fails_is_replayed_alone(monkeypatch):
    monkeypatch.setattr(Forks, "end", lambda self, result: self.fail())
    compare("h100/reductions", 1)


def take(copies: Copies, number: int, work: int) -> None:
    """Let a copy do ``work``."""
    if copies.split(number):
        try:
            copies.work.add(work)
        except OutOfTime:
            copies.end(TOO_LONG)
        copies.end(None)


def test_copies_take_no_more_than_what_they_have_in_common():
    copies = Copies(1, most=10)
    copies.work.add(5)
    take(copies, 0, 11)
    take(copies, 1, 1)
    copies.work.add(20)
    take(copies, 2, 12)
    take(copies, 3, 25)
    take(copies, 4, 1)
    expected = {0: TOO_LONG, 1: TOO_LONG, 2: None, 3: None, 4: TOO_LONG}
    assert copies.results() == {number: {"": result} for number, result in expected.items()}


def test_changes_that_are_left_out_take_too_long(monkeypatch):
    monkeypatch.setattr(Copies, "taken", math.inf)
    (module,) = open_dump(DUMPS / "h100/reductions").modules
    alone, together = replays_of(module), replays_of(module)
    candidates = list(filter(alone.follows, candidates_of("h100/reductions", alone)))
    together.expect(candidates, most_work=1)
    for candidate in candidates:
        expected = alone.try_out(candidate)
        if expected is None:
            assert together.try_out(candidate) is None
        else:
            with pytest.raises(OutOfTime):
                together.try_out(candidate)
