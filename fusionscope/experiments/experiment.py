"""Asks the compiler what would have to change for a pair to be fused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from fusionscope.errors import UnusableInput
from fusionscope.experiments.cut import Cut, cuts
from fusionscope.experiments.factors import (
    COMBINED,
    FACTORS,
    Change,
    Factor,
    Flags,
    Setting,
    Sizes,
    changes_of,
)
from fusionscope.experiments.program import Answer
from fusionscope.experiments.resize import round_between
from fusionscope.facts.facts import Facts
from fusionscope.hlo import Module

_MOST_HALVINGS = 8


class Oracle(Protocol):
    """What answers. ``settings`` are the flags that it can change."""

    @property
    def settings(self) -> Sequence[Setting]: ...

    def write(self, cut: Cut) -> str:
        """Return ``cut`` as HLO text."""

    def ask(self, cut: Cut) -> Answer:
        """Return the compiler's answer for the pair of ``cut``."""


class Asked(Facts, frozen=True):
    """One question:

    factor: kind of the change: the factors, or two with ``and``
    what: what was changed
    before: what it was
    after: what it became
    answer: ``fused``, ``not-fused``, ``gone`` if one of the two is not in the final module, or
        ``failed``
    program: the changed cut as HLO text
    """

    factor: str
    what: str
    before: str
    after: str
    answer: Answer
    program: str


class Threshold(Facts, frozen=True):
    """A dimension has ``size`` elements.

    size: elements of the dimension in the cut
    fused: with so many the compiler fuses the pair
    refused: with so many it refuses it; of the sizes asked about, the next one
    """

    size: int
    fused: int
    refused: int


class Experiment(Facts, frozen=True):
    """What the compiler answered about a refused pair.

    producer: name before fusion
    consumer: name before fusion
    around: what that cut has around the pair; empty if there is none
    program: that cut as HLO text; empty if there is none
    cuts: cuts that were tried
    questions: changes of the cut, in the order in which they were made
    problem: why the pair cannot be cut out; empty if it can
    reproduced: whether a cut was found in which the pair is refused, too
    cause: the factor of the first of ``flips``; null if there is none
    threshold: between which sizes of a dimension the answer changes; null if it changes with no
        size
    flips: those of ``questions`` that were answered with ``fused``, of each factor the last, with
        the same fields
    """

    computed = ("reproduced", "cause", "threshold", "flips")

    producer: str
    consumer: str
    around: str = ""
    program: str = ""
    cuts: int = 0
    questions: tuple[Asked, ...] = ()
    problem: str = ""

    @property
    def reproduced(self) -> bool:
        return bool(self.around)

    @property
    def flips(self) -> tuple[Asked, ...]:
        """The changes that alone make the compiler fuse the pair, the most specific first: of each
        factor the last, which is the smallest.
        """
        fused = [question for question in self.questions if question.answer is Answer.FUSED]
        return tuple({answer.factor: answer for answer in fused}.values())

    @property
    def cause(self) -> str | None:
        """The factor of the most specific of ``flips``, or None."""
        return self.flips[0].factor if self.flips else None

    @property
    def threshold(self) -> Threshold | None:
        """Between which sizes the answer changes; None if it changes with no size."""
        return _threshold(self.questions)


def experiment(
    module: Module, final: Module, producer: str, consumer: str, oracle: Oracle
) -> Experiment:
    """Cut a refused pair out of ``module``, which became ``final``, and change one thing after
    another. Of one factor, no more is changed once the compiler fuses the pair.
    """
    count = 0
    try:
        for cut in cuts(module, final, producer, consumer):
            count += 1
            if oracle.ask(cut) is Answer.NOT_FUSED:
                questions = tuple(_questions(cut, oracle))
                text = oracle.write(cut)
                return Experiment(producer, consumer, cut.around, text, count, questions)
    except UnusableInput as error:
        return Experiment(producer, consumer, cuts=count, problem=error.problem)
    return Experiment(producer, consumer, cuts=count)


def _questions(cut: Cut, oracle: Oracle) -> Iterator[Asked]:
    attempts: list[tuple[Factor, Change]] = []
    is_flipped = False
    for factor in (*FACTORS, Flags(oracle.settings)):
        answers: list[Asked] = []
        for change in changes_of(factor, cut):
            answer = _ask(factor.name, change, oracle)
            if answer.answer is Answer.FAILED and answer.factor == Flags.name:
                continue  # this compiler has no such flag
            answers.append(answer)
            yield answer
            if answer.answer is Answer.FUSED:
                is_flipped = True
                if factor.name == Sizes.name:
                    yield from _halvings(cut, answers, oracle)
                break
            if answer.answer is not Answer.FAILED and factor in COMBINED:
                attempts.append((factor, change))
    if not is_flipped:
        yield from _combinations(attempts, oracle)


def _halvings(cut: Cut, answers: list[Asked], oracle: Oracle) -> Iterator[Asked]:
    """Ask about sizes between those of ``answers`` with which the answer changes."""
    answers = list(answers)
    for _ in range(_MOST_HALVINGS):
        threshold = _threshold(answers)
        middle = round_between(threshold.fused, threshold.refused) if threshold else None
        change = Sizes.change(cut, threshold.size, middle) if threshold and middle else None
        if change is None:
            return
        answer = _ask(Sizes.name, change, oracle)
        answers.append(answer)
        yield answer
        if answer.answer not in (Answer.FUSED, Answer.NOT_FUSED):
            return


def _threshold(answers: Iterable[Asked]) -> Threshold | None:
    """Return the bounds of the size that flips the outcome, from the questions ``answers``."""
    sizes = [answer for answer in answers if answer.factor == Sizes.name]
    flip = next((size for size in reversed(sizes) if size.answer is Answer.FUSED), None)
    if flip is None:
        return None
    size, fused = int(flip.before), int(flip.after)
    refused = [
        int(size.after)
        for size in sizes
        if size.before == flip.before and size.answer is Answer.NOT_FUSED
    ]
    behind = [answer for answer in (size, *refused) if (answer > fused) == (size > fused)]
    return Threshold(size, fused, min(behind, key=lambda answer: abs(answer - fused)))


def _combinations(attempts: list[tuple[Factor, Change]], oracle: Oracle) -> Iterator[Asked]:
    """Ask about two changes of different factors at once, until the compiler fuses the pair."""
    for factor, first in attempts:
        for second_factor in COMBINED[COMBINED.index(factor) + 1 :]:
            for second in changes_of(second_factor, first.cut):
                both = Change(
                    f"{first.what} and {second.what}",
                    f"{first.before} and {second.before}",
                    f"{first.after} and {second.after}",
                    second.cut,
                )
                answer = _ask(f"{factor.name} and {second_factor.name}", both, oracle)
                yield answer
                if answer.answer is Answer.FUSED:
                    return


def _ask(factor: str, change: Change, oracle: Oracle) -> Asked:
    text = oracle.write(change.cut)
    return Asked(factor, change.what, change.before, change.after, oracle.ask(change.cut), text)
