"""The names of pairs as users give them."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from fusionscope.errors import UnusableInput, did_you_mean, quoted

if TYPE_CHECKING:
    from fusionscope.facts.result import Operation, PairFacts
    from fusionscope.history.outcomes import Pair
    from fusionscope.hlo import Instruction


def read_pair(pair: str | None, option: str = "") -> tuple[str | None, str | None]:
    """Return the patterns of producer and consumer. Raises ``UnusableInput``."""
    if pair is None:
        return None, None
    producer, arrow, consumer = (part.strip() for part in pair.partition("->"))
    if not (producer and arrow and consumer):
        what = f"{option} {quoted(pair)}".strip()
        raise UnusableInput(f"{what}: expected 'PRODUCER -> CONSUMER'")
    return producer, consumer


def hint_at_pair(
    producer: str, consumer: str, pairs: Sequence[Pair] | Sequence[PairFacts]
) -> str | None:
    """Return a hint at names that are like the first end that no pair has, or else at pairs of this
    producer; None if there are none.
    """
    ends = ([pair.producer for pair in pairs], [pair.consumer for pair in pairs])
    for pattern, operations in zip((producer, consumer), ends, strict=True):
        if not any(names_end(pattern, operation) for operation in operations):
            names = (
                name for operation in operations for name in (operation.name, operation.opcode)
            )
            if hint := did_you_mean(pattern.strip("%*"), names):
                return hint
    near = (
        quoted(f"{pair.producer.name} -> {pair.consumer.name}")
        for pair in pairs
        if names_end(producer, pair.producer)
    )
    close = list(dict.fromkeys(near))[:3]
    return f"did you mean {' or '.join(close)}?" if close else None


def names_end(pattern: str, operation: Operation | Instruction) -> bool:
    """Return whether a name or an opcode with ``*`` and ``?`` is that of ``operation``."""
    return fnmatchcase(operation.name, pattern) or fnmatchcase(operation.opcode, pattern)
