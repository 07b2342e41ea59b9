"""Changes of fusions as plain data and as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fusionscope.facts.facts import Facts
from fusionscope.facts.result import Operation
from fusionscope.facts.source_lines import operation_of
from fusionscope.history.changes import ChangeKind, FusionChange, group_identical
from fusionscope.history.kernels import kind_and_emitter


class FusionFacts(Facts, frozen=True, kw_only=True):
    """One change of fusions, and the number of changes that look alike.

    kind: ``formed``, ``grown``, ``shrunk``, ``merged``, ``split``, ``duplicated``, ``multi-output``
        (it has more outputs than before), ``dissolved``, ``library`` (became a library call),
        ``wrapped`` (one operation was put into a fusion to be emitted), ``emitter`` (another one
        makes its code), ``rewritten`` (operations in it appeared or vanished), ``renamed``,
        ``removed``
    before: ``before``: fusions and operations of the stage before; ``after``: fusions of this stage
        that they became; ``gained``: operations that joined the fusion; ``lost``: operations that
        left it
    after: ``before``: fusions and operations of the stage before; ``after``: fusions of this stage
        that they became; ``gained``: operations that joined the fusion; ``lost``: operations that
        left it
    gained: ``before``: fusions and operations of the stage before; ``after``: fusions of this stage
        that they became; ``gained``: operations that joined the fusion; ``lost``: operations that
        left it
    lost: ``before``: fusions and operations of the stage before; ``after``: fusions of this stage
        that they became; ``gained``: operations that joined the fusion; ``lost``: operations that
        left it
    emitters: who made the code before and after; null unless ``kind`` is ``emitter`` or ``library``
    count: how many changes look like this one, which is the first of them
    text: the change in words
    """

    computed = ("text",)

    kind: ChangeKind
    before: tuple[Operation, ...]
    after: tuple[Operation, ...]
    gained: tuple[Operation, ...]
    lost: tuple[Operation, ...]
    emitters: tuple[str, str] | None
    count: int

    @property
    def text(self) -> str:
        """Return the change in a few words."""
        return _describe(self)


def fusion_facts(changes: Iterable[FusionChange], backend: str | None) -> tuple[FusionFacts, ...]:
    """Return changes as plain data; changes that look alike are listed once."""
    return tuple(
        FusionFacts(
            kind=change.kind,
            before=tuple(map(operation_of, change.before)),
            after=tuple(map(operation_of, change.after)),
            gained=tuple(map(operation_of, change.gained)),
            lost=tuple(map(operation_of, change.lost)),
            emitters=_emitters(change, backend),
            count=count,
        )
        for change, count in group_identical(changes)
    )


def _emitters(change: FusionChange, backend: str | None) -> tuple[str, str] | None:
    if change.kind not in (ChangeKind.EMITTER, ChangeKind.LIBRARY):
        return None
    before, after = (
        kind_and_emitter(side[0], backend)[1] if side else ""
        for side in (change.before, change.after)
    )
    return before, after


def _names(operations: Sequence[Operation], most: int | None = 6) -> str:
    names_shown = [operation.name for operation in operations[:most]]
    more = len(operations) - len(names_shown)
    return ", ".join(names_shown) + (f" and {more} more" if more > 0 else "")


def _describe(change: FusionFacts) -> str:
    before, after, gained, lost = change.before, change.after, change.gained, change.lost
    # A fusion may have another name afterwards.
    names = [side[0].name for side in (before, after) if side]
    fusion = " → ".join(dict.fromkeys(names))
    match change.kind:
        case ChangeKind.FORMED:
            return f"{_names(after)} formed from {_names(before or gained, None)}"
        case ChangeKind.GROWN:
            return f"{fusion} took in {_names(before[1:] or gained, None)}"
        case ChangeKind.SHRUNK:
            return f"{fusion} lost {_names(lost)}"
        case ChangeKind.MERGED:
            return f"{_names(before)} merged into {_names(after)}"
        case ChangeKind.SPLIT:
            return f"{_names(before)} split into {_names(after)}"
        case ChangeKind.DUPLICATED:
            return f"{_names(before)} duplicated into {_names(after)}"
        case ChangeKind.MULTI_OUTPUT:
            return f"{fusion} has more outputs than before"
        case ChangeKind.DISSOLVED:
            return f"{_names(before)} dissolved into {_names(after)}"
        case ChangeKind.LIBRARY:
            emitter = f" ({change.emitters[1]})" if change.emitters else ""
            return (
                f"{_names(before) or _names(gained)} became library call {_names(after)}{emitter}"
            )
        case ChangeKind.WRAPPED:
            return f"{_names(before) or _names(gained)} wrapped as {_names(after)}"
        case ChangeKind.EMITTER:
            old, new = change.emitters or ("", "")
            return f"{fusion} is emitted as {new}, was {old}"
        case ChangeKind.REWRITTEN:
            parts = [f"gained {_names(gained)}"] if gained else []
            parts += [f"lost {_names(lost)}"] if lost else []
            return f"{fusion} was rewritten: {', '.join(parts)}"
        case ChangeKind.RENAMED:
            return f"{_names(before)} renamed {_names(after)}"
        case _:
            return f"{_names(before)} removed"
