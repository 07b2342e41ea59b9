"""Selects the pairs of a dump that a command is about."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import TYPE_CHECKING

from fusionscope.facts.result import Grouping, Operation, PairFacts, SortedBy

if TYPE_CHECKING:
    from fusionscope.dump.device import Device
    from fusionscope.dump.profile import Profile
    from fusionscope.facts.module_analysis import Analysis
    from fusionscope.hlo import SourceLocation
    from fusionscope.rules.changes import Changes


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The part of a dump to explain; None selects everything. Globs are shell globs.

    ``changes`` are changes of the compiler's rules to try, ``rules`` the name of the rules to use,
    None for those of the version that made the dump. ``most_modules`` limits how many are
    explained, unless ``all_modules`` is set. ``kernel`` selects kernels to show by themselves.
    ``by`` and ``sorted_by`` are how launches are broken down, None for a choice that fits.
    ``device`` is the GPU to assume if the dump does not describe its own, and the GPU to try if it
    does. ``movements`` requests data movement too: all stages are read for it. ``resources``
    requests what kernels take of an NVIDIA GPU. ``profile`` are measured runs: modules that it has
    come first. ``in_full`` requests what is otherwise limited, however long it takes. ``compiler``
    tells installations of the compiler apart that try changes.
    """

    module: str | None = None
    computation: str | None = None
    producer: str | None = None
    consumer: str | None = None
    opcode: str | None = None
    source: str | None = None
    reason: str | None = None
    outcome: str | None = None
    op_name: str | None = None
    all_modules: bool = False
    in_full: bool = False
    movements: bool = False
    resources: bool = False
    profile: Profile | None = None
    most_modules: int = 5
    kernel: str | None = None
    by: Grouping | None = None
    sorted_by: SortedBy | None = None
    changes: Changes | None = None
    rules: str | None = None
    device: Device | None = None
    compiler: str = ""

    @property
    def picks_pairs(self) -> bool:
        criteria = (
            self.computation, self.producer, self.consumer, self.opcode, self.source, self.reason,
            self.outcome, self.op_name,
        )  # fmt: skip
        return any(value is not None for value in criteria)


EVERYTHING = Selection()


def select_pairs(analysis: Analysis, selection: Selection) -> list[int]:
    """Return the numbers of the pairs that ``selection`` selects."""
    stacks = None
    if selection.source is not None:
        frames = {n for n, frame in enumerate(analysis.frames) if _is_line(frame, selection.source)}
        stacks = {n for n, stack in enumerate(analysis.stacks) if not frames.isdisjoint(stack)}
    return [
        number
        for number, (fact, origins) in enumerate(
            zip(analysis.facts.pairs, analysis.pairs, strict=True)
        )
        if (stacks is None or origins.producer in stacks or origins.consumer in stacks)
        and _is_selected(fact, selection)
    ]


def _is_selected(fact: PairFacts, selection: Selection) -> bool:
    """Return whether ``selection`` selects the pair by anything but its source."""
    ends = (fact.producer, fact.consumer)
    return (
        (selection.computation is None or fnmatchcase(fact.computation, selection.computation))
        and (selection.producer is None or matches(fact.producer, selection.producer))
        and (selection.consumer is None or matches(fact.consumer, selection.consumer))
        and (selection.outcome is None or selection.outcome == fact.outcome)
        and (
            selection.op_name is None
            or any(has_op_name(end.op_name, selection.op_name) for end in ends)
        )
        and (selection.opcode is None or selection.opcode in (end.opcode for end in ends))
        and (
            selection.reason is None
            or selection.reason == fact.reason
            or (
                fact.fused_by_later_pass is not None
                and selection.reason == fact.fused_by_later_pass.reason
            )
        )
    )


def matches(operation: Operation, pattern: str) -> bool:
    """Return whether ``pattern`` is a glob of its name or its opcode."""
    pattern = pattern.lstrip("%")
    return fnmatchcase(operation.name, pattern) or fnmatchcase(operation.opcode, pattern)


def has_op_name(op_name: str | None, pattern: str) -> bool:
    return fnmatchcase(op_name or "", pattern)


def _is_line(place: SourceLocation, source: str) -> bool:
    """``source`` is ``FILE`` or ``FILE:LINE``; the file may be the end of the path."""
    file, _, line = source.rpartition(":")
    if not line.isdecimal():
        file, line = source, ""
    parts = PurePath(file).parts
    return PurePath(place.file).parts[-len(parts) :] == parts and (
        not line or int(line) == place.line
    )
