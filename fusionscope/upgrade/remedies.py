"""Flags and edits that may get back what an upgrade lost, each compiled with the second release."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from msgspec.structs import replace

from fusionscope.advise.candidates import flag_candidates
from fusionscope.advise.recipes.rewriting import rewrite
from fusionscope.advise.recipes.trying import Offer, find_offers
from fusionscope.capture.targets import Program, ProgramKind
from fusionscope.compare.difference import Difference
from fusionscope.errors import UnusableInput
from fusionscope.facts.facts import Facts
from fusionscope.hlo import Module, to_text
from fusionscope.progress import Progress, each_of
from fusionscope.rerun.programs import find_program
from fusionscope.system.files import write_file
from fusionscope.upgrade.figures import (
    Change,
    Figure,
    Side,
    Verdict,
    compare_figures,
    judge,
    module_of,
    overall,
)
from fusionscope.upgrade.measured import measure
from fusionscope.upgrade.trial import Trial

_OF_RUNS = frozenset(Figure) - {Figure.COMPILE_TIME}


class Remedy(Facts, frozen=True, kw_only=True):
    """A flag or an edit with which the second release is better than without.

    flag: in the notation of XLA_FLAGS; empty for an edit
    recipe: the edit, in the notation of ``rerun --recipe``; empty for a flag
    title: what the edit does; empty for a flag
    sources: the user's lines that it changes
    is_whole: whether no figure but the time to compile is worse than with the first release
    changes: the figures of the first release, and of the second with the flag or the edit
    """

    flag: str = ""
    recipe: str = ""
    title: str = ""
    sources: tuple[str, ...] = ()
    is_whole: bool
    changes: tuple[Change, ...]


def try_changes(
    trial: Trial,
    sides: tuple[Side, Side],
    difference: Difference,
    most: int,
    progress: Progress,
) -> tuple[tuple[Remedy, ...], int, int]:
    """Return the flags and edits that help, the best first, and how many of both were compiled: at
    most ``most`` of each.
    """
    flags = list(dict.fromkeys(_flags(difference, sides[1])))[:most]
    with_flags = list(_try_flags(trial, sides, flags, progress))
    edits = list(_edits(trial, sides[1], progress))[:most]
    with_edits = list(_try_edits(trial, sides, edits, progress))
    remedies = [*with_flags, *with_edits]
    remedies.sort(key=lambda attempt: (not attempt[1].is_whole, attempt[0].time_us or 0.0))
    return tuple(remedy for _, remedy in remedies), len(flags), len(edits)


def _try_flags(
    trial: Trial, sides: tuple[Side, Side], flags: Sequence[str], progress: Progress
) -> Iterator[tuple[Side, Remedy]]:
    is_slower = judge(Figure.MEASURED_TIME, *sides) is Verdict.WORSE
    for number, (flag, _) in enumerate(each_of(flags, lambda flag: f"trying {flag}", progress), 1):
        try:
            side = trial.compile(sides[1].python, f"flag-{number}", [flag])
        except UnusableInput:  # a flag of another release
            continue
        if is_slower:
            (side,) = measure(trial, (side,), [flag])
        if _is_better(sides[1], side):
            changes, is_whole = _compared(sides[0], side)
            yield side, Remedy(flag=flag, is_whole=is_whole, changes=changes)


def _edits(trial: Trial, after: Side, progress: Progress) -> Iterator[tuple[Offer, Module]]:
    """Yield the recipes that match the program, each with the edited program. There are none if
    the dump lacks the program, or that does not compile to the same figures as what jax hands over.
    """
    module = module_of(after.dump)
    try:
        offers = find_offers(module)
        if not offers:
            return
        progress("compiling the program of the dump")
        again = _compile(trial, after.python, "edit-none", find_program(module))
    except UnusableInput:
        return
    if any(
        change.verdict is not Verdict.SAME
        for change in compare_figures(after, again)
        if change.figure in _OF_RUNS
    ):
        return
    for offer in offers:
        with suppress(UnusableInput):  # its usual limits fit nowhere
            yield offer, rewrite(module, [offer.recipe])


def _try_edits(
    trial: Trial,
    sides: tuple[Side, Side],
    edits: Sequence[tuple[Offer, Module]],
    progress: Progress,
) -> Iterator[tuple[Side, Remedy]]:
    words = "trying {0[0].recipe.id}".format
    for (offer, program), _ in each_of(edits, words, progress):
        try:
            side = _compile(trial, sides[1].python, f"edit-{offer.recipe.id}", program)
        except UnusableInput:
            continue
        if _is_better(sides[1], side):
            changes, is_whole = _compared(sides[0], side)
            yield (
                side,
                Remedy(
                    recipe=offer.recipe.spelling,
                    title=offer.recipe.words,
                    sources=offer.sources,
                    is_whole=is_whole,
                    changes=changes,
                ),
            )


def _compile(trial: Trial, python: str, name: str, program: Module) -> Side:
    file = trial.folder / f"{name}.hlo"
    write_file(file, to_text(program))
    return replace(trial, program=Program(kind=ProgramKind.HLO, file=file)).compile(python, name)


def _compared(before: Side, side: Side) -> tuple[tuple[Change, ...], bool]:
    """Return the figures beside the first release, and whether none is worse."""
    changes = compare_figures(before, side)
    return changes, all(
        change.verdict is not Verdict.WORSE for change in changes if change.figure in _OF_RUNS
    )


def _flags(difference: Difference, after: Side) -> Iterator[str]:
    """Yield flags that have another value with the second release, then those that concern the
    passes that made the difference, then all others that affect fusion.
    """
    flags = [module.flags for module in difference.modules]
    flags += (module.flags for module in difference.same)
    for flags_of_module in flags:
        for name, old, new in flags_of_module:
            is_path = "/" in old + new
            if not is_path and (old or new == "true"):  # a flag that is new is off before
                yield f"--{name}={old or 'false'}"
            elif not is_path and new != "false" and not new.isdecimal():  # and a list is empty
                yield f"--{name}="
    passes = {
        name
        for module in difference.modules
        for change in module.fusions
        for name in (*change.passes.before, *change.passes.after)
    }
    candidates = list(flag_candidates(module_of(after.dump)))
    yield from (item.change for item in candidates if item.passes & passes)
    yield from (item.change for item in candidates)


def _is_better(after: Side, side: Side) -> bool:
    """Return whether the first figure that differs is better, but for the time to compile."""
    return (
        overall(tuple(c for c in compare_figures(after, side) if c.figure in _OF_RUNS))
        is Verdict.BETTER
    )
