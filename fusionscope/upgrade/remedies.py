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
    differing,
    judge,
    module_of,
    overall,
)
from fusionscope.upgrade.measured import measure
from fusionscope.upgrade.trial import Trial, with_less_time

_OF_RUNS = frozenset(Figure) - {Figure.COMPILE_TIME}
# What turns HLO into code and runs it on a CPU: xla/debug_options_flags.cc. The runtime without
# thunks left with 0.7.0.
_BELOW = ("--xla_cpu_use_thunk_runtime=false", "--xla_cpu_use_fusion_emitters=false")


class Remedy(Facts, frozen=True, kw_only=True):
    """A flag or an edit with which the second release is better than without.

    flag: in the notation of XLA_FLAGS; empty for an edit
    recipe: the edit, in the notation of ``rerun --recipe``; empty for a flag
    title: what the edit does; empty for a flag
    sources: the user's lines that it changes
    is_whole: whether the figure that decides the verdict is known with it, and neither that nor
        another but the time to compile is worse than with the first release
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
    is_below: bool,
    most: int,
    progress: Progress,
) -> tuple[tuple[Remedy, ...], int, int]:
    """Return the flags and edits that help, the best first, and how many of both were compiled: at
    most ``most`` of each. ``is_below`` says that the difference is below HLO.
    """
    decisive = _decisive(*sides)
    makes_code = is_below or decisive is Figure.COMPILE_TIME
    flags = [*_BELOW] if makes_code and trial.target.platform == "cpu" else []
    flags = list(dict.fromkeys((*flags, *_flags(difference, sides[1]))))[:most]
    with_flags = list(_try_flags(trial, sides, flags, progress))
    edits = list(_edits(trial, sides[1], progress))[:most]
    with_edits = list(_try_edits(trial, sides, edits, progress))
    remedies = [*with_flags, *with_edits]

    def order(attempt: tuple[Side, Remedy]) -> tuple[bool, bool, float]:
        value = attempt[0].figure(decisive)
        return not attempt[1].is_whole, value is None, value or 0.0

    remedies.sort(key=order)
    return tuple(remedy for _, remedy in remedies), len(flags), len(edits)


def _try_flags(
    trial: Trial, sides: tuple[Side, Side], flags: Sequence[str], progress: Progress
) -> Iterator[tuple[Side, Remedy]]:
    is_slower = judge(Figure.MEASURED_TIME, *sides) is Verdict.WORSE
    trial = with_less_time(trial, sides)
    for number, (flag, _) in enumerate(each_of(flags, lambda flag: f"trying {flag}", progress), 1):
        try:
            side = trial.compile(sides[1].python, f"flag-{number}", [flag])
        except UnusableInput:  # a flag of another release
            continue
        if is_slower:
            (side,) = measure(trial, (side,), [flag])
        if _is_better(sides, side):
            changes, is_whole = _compared(sides, side)
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
        if _is_better(sides, side):
            changes, is_whole = _compared(sides, side)
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


def _compared(sides: tuple[Side, Side], side: Side) -> tuple[tuple[Change, ...], bool]:
    """Return the figures beside the first release, and whether none is worse. An edit is not run:
    where the measured time decides, it is not known to be whole.
    """
    changes, decisive = compare_figures(sides[0], side), _decisive(*sides)
    is_whole = all(
        change.verdict is not Verdict.WORSE
        for change in changes
        if change.figure in {*_OF_RUNS, decisive}
    )
    return changes, is_whole and side.figure(decisive) is not None


def _decisive(before: Side, after: Side) -> Figure:
    """Return the figure that decides the verdict on two sides, which differ."""
    return next(differing(compare_figures(before, after))).figure


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


def _is_better(sides: tuple[Side, Side], side: Side) -> bool:
    """Return whether it compiles, and the first figure that differs from the second release is
    better. The time to compile counts where it decides the verdict.
    """
    if side.problem:  # it did not end within a limit that may be shorter
        return False
    figures = {*_OF_RUNS, _decisive(*sides)}
    changes = (change for change in compare_figures(sides[1], side) if change.figure in figures)
    return overall(tuple(changes)) is Verdict.BETTER
