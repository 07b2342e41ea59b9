"""A change that may help, with the result of trying it: plain data, which every report renders."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import count

_FOR_OTHERS = "it fuses none of these pairs"


class SuggestionKind(StrEnum):
    FLAG = "flag"
    RULE = "rule"
    RECIPE = "recipe"


class HowTried(StrEnum):
    REPLAYED = "replayed"  # the fusion passes, by the compiler's rules
    REGION = "region"  # by the compiler itself: what the change concerns, cut out of the program
    COMPILED = "compiled"  # by the compiler itself
    MEASURED = "measured"  # compiled, and timed beside the unchanged program
    UNTRIED = "untried"  # a recipe that matches, no more


@dataclass(frozen=True, slots=True)
class Figures:
    """The cost of one run of the final module.

    launches: kernels that a run launches for it
    bytes_moved: bytes that they read and write
    time_us: their estimated time, microseconds; null if unknown
    """

    launches: int
    bytes_moved: int
    time_us: float | None = None

    def plus_difference(self, before: Figures, after: Figures, times: int = 1) -> Figures:
        """Return the figures if a part that is there ``times`` changes as these do."""
        time = None
        if self.time_us is not None and before.time_us is not None and after.time_us is not None:
            time = self.time_us + times * (after.time_us - before.time_us)
        return Figures(
            self.launches + times * (after.launches - before.launches),
            self.bytes_moved + times * (after.bytes_moved - before.bytes_moved),
            time,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """A change and its effect.

    ``change`` is a flag in the notation of XLA_FLAGS, options of ``rerun``, or the id of a recipe.
    ``pairs`` are the refused producers and consumers that it fuses, by name. ``number`` is its
    place among the suggestions for its module, from 1 on. ``title`` are a few words on a recipe,
    ``recipe`` is it with its limits, ``sources`` are the user's lines that it changes. ``removes``
    are the kernels of the final module that only move data and that it removes, by name; a rejected
    change has none. ``keeps`` are
    the values that several kernels compute and that it keeps instead, by name. With the evidence
    ``UNTRIED`` both figures are those of the module. With that and with ``REGION``, ``pairs`` are
    those of operations that it changes. ``why_not`` says why it is not
    worth it; it is empty for a change that helps. ``command`` are the words of the command line
    that tries it, empty if there is none.
    """

    number: int
    kind: SuggestionKind
    change: str
    evidence: HowTried
    pairs: tuple[tuple[str, str], ...]
    before: Figures
    after: Figures
    title: str = ""
    recipe: str = ""
    sources: tuple[str, ...] = ()
    removes: tuple[str, ...] = ()
    keeps: tuple[str, ...] = ()
    why_not: str = ""
    command: tuple[str, ...] = ()

    @property
    def options(self) -> tuple[str, ...]:
        """Return the change as options of ``rerun``."""
        if self.kind is SuggestionKind.RECIPE:
            return ("--recipe", self.recipe)
        words = shlex.split(self.change)
        if self.kind is SuggestionKind.FLAG:
            return tuple(word for flag in words for word in ("--flag", flag.removeprefix("--")))
        return tuple(words)

    @property
    def saved_us(self) -> float:
        """Return the time saved in microseconds; 0 if no time is known."""
        if self.before.time_us is None or self.after.time_us is None:
            return 0.0
        return self.before.time_us - self.after.time_us

    @property
    def saved_bytes(self) -> int:
        return self.before.bytes_moved - self.after.bytes_moved

    @property
    def saved_launches(self) -> int:
        return self.before.launches - self.after.launches


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is known to help against one of the costliest kinds of refusals, besides the changes
    that fuse some of them.

    ``pairs`` are the refused producers and consumers, by name, the costliest first. ``in_vain`` are
    changes that were tried and fuse none of them: those for these pairs, then flags. ``untried``
    counts those for these pairs for which there was no time. ``why`` is the reason for which no
    change of a rule is known, in one sentence; it is empty if there is one.
    """

    pairs: tuple[tuple[str, str], ...]
    in_vain: tuple[str, ...] = ()
    untried: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A suggestion beside those before it: ``after`` are the figures with all of them. ``change``
    tells which one it is, and so does ``number``.
    """

    change: str
    after: Figures
    number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """A suggestion that is not among those to take together, and ``why``."""

    change: str
    why: str
    number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """The best suggestions to take together: two or more, the one that saves most first, then what
    each adds to those before. With the evidence ``REGION``, some of their differences are added
    up. ``command`` are the words of the command line that tries all of them, empty if there is
    none.
    """

    before: Figures
    steps: tuple[Step, ...]
    excluded: tuple[Exclusion, ...]
    evidence: HowTried
    command: tuple[str, ...] = ()

    @property
    def after(self) -> Figures:
        return self.steps[-1].after

    def numbered(self, suggestions: Iterable[Suggestion]) -> Together:
        """Return it with the numbers of ``suggestions``."""
        numbers = {suggestion.change: suggestion.number for suggestion in suggestions}
        return replace(
            self,
            steps=tuple(replace(step, number=numbers[step.change]) for step in self.steps),
            excluded=tuple(
                replace(exclusion, number=numbers[exclusion.change]) for exclusion in self.excluded
            ),
        )


@dataclass(frozen=True, slots=True)
class Suggestions:
    """What was tried on one module: ``helpful`` changes, which save something, the most first, and
    ``rejected`` ones.

    ``unmeasured`` changes reduce launches or bytes on a CPU, but were not timed: whether they save
    time is unknown. ``untried`` counts the candidates for which there was no
    time. ``notes`` say why others could not be tried. ``answers`` are about the costliest kinds of
    refusals, the costliest first. ``cannot_rerun`` says why ``rerun`` cannot compile the module
    again; it is empty if it can. ``draw`` are the words with which a command line begins that
    writes a pair as one kernel by hand, for which ``sketched`` are the pairs, None if that
    was not examined. ``together`` are the best helpful ones together, None if there are no two that
    go together.
    """

    helpful: tuple[Suggestion, ...] = ()
    unmeasured: tuple[Suggestion, ...] = ()
    rejected: tuple[Suggestion, ...] = ()
    untried: int = 0
    notes: tuple[str, ...] = ()
    answers: tuple[Answer, ...] = ()
    cannot_rerun: str = ""
    draw: tuple[str, ...] = ()
    sketched: frozenset[tuple[str, str]] | None = None
    together: Together | None = None

    @property
    def is_tried(self) -> bool:
        """Whether any change to this module was tried."""
        suggestions = (*self.helpful, *self.unmeasured, *self.rejected)
        return any(suggestion.evidence != HowTried.UNTRIED for suggestion in suggestions) or any(
            answer.in_vain for answer in self.answers
        )

    def answer(self, producer: str, consumer: str) -> Answer | None:
        """Return the answer for a pair, or None if it is not among the costliest."""
        pair = producer, consumer
        return next((answer for answer in self.answers if pair in answer.pairs), None)

    def not_worth_it(self, producer: str, consumer: str) -> tuple[Suggestion, ...]:
        """Return the rejected changes that fuse a pair."""
        return tuple(
            suggestion for suggestion in self.rejected if (producer, consumer) in suggestion.pairs
        )

    def not_timed(self, producer: str, consumer: str) -> tuple[Suggestion, ...]:
        """Return the unmeasured changes that fuse a pair."""
        return tuple(
            suggestion for suggestion in self.unmeasured if (producer, consumer) in suggestion.pairs
        )

    def about(self, pairs: frozenset[tuple[str, str]]) -> Suggestions:
        """Return what was tried for these pairs: a change that fuses only others is rejected."""
        helpful: list[Suggestion] = []
        unmeasured: list[Suggestion] = []
        rejected = list(self.rejected)
        for group, kept_group in ((self.helpful, helpful), (self.unmeasured, unmeasured)):
            for suggestion in group:
                own_pairs = tuple(pair for pair in suggestion.pairs if pair in pairs)
                if own_pairs or suggestion.kind is SuggestionKind.RECIPE:
                    kept_group.append(replace(suggestion, pairs=own_pairs))
                else:
                    rejected.append(replace(suggestion, pairs=(), why_not=_FOR_OTHERS))
        return replace(
            self,
            helpful=tuple(merged(helpful)),
            unmeasured=tuple(merged(unmeasured)),
            rejected=tuple(sorted(rejected, key=by_gain)),
            answers=tuple(answer for answer in self.answers if not pairs.isdisjoint(answer.pairs)),
            together=None,
        ).numbered()

    def numbered(self) -> Suggestions:
        """Return the suggestions with numbers from 1 on, which continue from group to group."""
        numbers = count(1)
        return self._each(lambda suggestion: replace(suggestion, number=next(numbers)))

    def with_commands(self, rerun: Sequence[str], draw: Sequence[str] = ()) -> Suggestions:
        """Return the suggestions with command lines that begin with the words ``rerun``, and with
        ``draw``.
        """

        def command(suggestion: Suggestion) -> Sequence[str]:
            if suggestion.kind is SuggestionKind.RECIPE:
                return ("fusionscope", "recipes", suggestion.change)
            return (*rerun, *suggestion.options) if not self.cannot_rerun else ()

        numbered = self._each(
            lambda suggestion: replace(suggestion, command=tuple(command(suggestion)))
        )
        return replace(numbered, draw=tuple(draw), together=self._with_command(rerun))

    def _with_command(self, rerun: Sequence[str]) -> Together | None:
        if self.together is None or self.cannot_rerun:
            return self.together
        numbers = [step.number for step in self.together.steps]
        changes = [suggestion for suggestion in self.helpful if suggestion.number in numbers]
        options = [option for suggestion in changes for option in suggestion.options]
        return replace(self.together, command=(*rerun, *options))

    def _each(self, change: Callable[[Suggestion], Suggestion]) -> Suggestions:
        helpful, unmeasured, rejected = (
            tuple(map(change, group)) for group in (self.helpful, self.unmeasured, self.rejected)
        )
        together = self.together.numbered(helpful) if self.together is not None else None
        return replace(
            self, helpful=helpful, unmeasured=unmeasured, rejected=rejected, together=together
        )

    def find(self, producer: str, consumer: str) -> tuple[int, ...]:
        """Return the numbers of the helpful suggestions that fuse a pair."""
        return tuple(
            suggestion.number
            for suggestion in self.helpful
            if (producer, consumer) in suggestion.pairs
            and suggestion.evidence is not HowTried.UNTRIED
        )

    def matching(self, producer: str, consumer: str) -> tuple[int, ...]:
        """Return the numbers of the recipes that concern a pair and were not tried here."""
        return tuple(
            suggestion.number
            for suggestion in self.helpful
            if (producer, consumer) in suggestion.pairs and suggestion.evidence is HowTried.UNTRIED
        )

    def keeping(self, value: str) -> tuple[int, ...]:
        """Return the numbers of the helpful suggestions that keep a value."""
        return tuple(suggestion.number for suggestion in self.helpful if value in suggestion.keeps)

    def removing(self, kernel: str) -> tuple[int, ...]:
        """Return the numbers of the suggestions that remove a kernel that only moves data."""
        return tuple(
            suggestion.number for suggestion in self.helpful if kernel in suggestion.removes
        )

    def is_open(self, producer: str, consumer: str) -> bool:
        """Return whether something that may help a pair was not tried to the end."""
        return bool(self.not_timed(producer, consumer) or self.untried or self.notes)


def merged(suggestions: Iterable[Suggestion]) -> list[Suggestion]:
    """Return the first of changes with the same result, which name more or fewer pairs."""
    first: dict[tuple[object, ...], Suggestion] = {}
    for suggestion in suggestions:
        first.setdefault((suggestion.kind, suggestion.after, suggestion.pairs), suggestion)
    return list(first.values())


def by_gain(suggestion: Suggestion) -> tuple[float, ...]:
    """Return a sort key: the most saved time first, then bytes, then launches."""
    return -suggestion.saved_us, -suggestion.saved_bytes, -suggestion.saved_launches
