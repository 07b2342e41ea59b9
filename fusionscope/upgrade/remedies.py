"""Flags that may get back what an upgrade lost, each compiled with the second release."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from fusionscope.advise.candidates import flag_candidates
from fusionscope.compare.difference import Difference
from fusionscope.errors import UnusableInput
from fusionscope.facts.facts import Facts
from fusionscope.progress import Progress, each_of
from fusionscope.upgrade.figures import (
    Change,
    Figure,
    Side,
    Verdict,
    compare_figures,
    module_of,
    overall,
)

_ESTIMATED = frozenset(Figure) - {Figure.COMPILE_TIME}


class Remedy(Facts, frozen=True, kw_only=True):
    """A flag with which the second release is better than without.

    flag: in the notation of XLA_FLAGS
    is_whole: whether no figure but the time to compile is worse than with the first release
    changes: the figures of the first release, and of the second with the flag
    """

    flag: str
    is_whole: bool
    changes: tuple[Change, ...]


def try_flags(
    sides: tuple[Side, Side],
    difference: Difference,
    most: int,
    compile_with: Callable[[str, str, Sequence[str]], Side],
    progress: Progress,
) -> tuple[tuple[Remedy, ...], int]:
    """Return the flags that help, the best first, and how many were compiled: at most ``most``."""
    before, after = sides
    flags = list(dict.fromkeys(_flags(difference, after)))[:most]
    remedies = []
    for number, (flag, _) in enumerate(each_of(flags, lambda flag: f"trying {flag}", progress), 1):
        try:
            side = compile_with(after.python, f"flag-{number}", [flag])
        except UnusableInput:  # a flag of another release
            continue
        if _is_better(after, side):
            changes = compare_figures(before, side)
            is_whole = all(
                change.verdict is not Verdict.WORSE
                for change in changes
                if change.figure in _ESTIMATED
            )
            remedies.append((side, Remedy(flag=flag, is_whole=is_whole, changes=changes)))
    remedies.sort(key=lambda attempt: (not attempt[1].is_whole, attempt[0].time_us or 0.0))
    return tuple(remedy for _, remedy in remedies), len(flags)


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
        overall(tuple(c for c in compare_figures(after, side) if c.figure in _ESTIMATED))
        is Verdict.BETTER
    )
