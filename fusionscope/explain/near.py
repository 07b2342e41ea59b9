"""Suggestions for a selection that matches no pairs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches

from fusionscope.explain.result import PairFacts
from fusionscope.explain.selection import EVERYTHING, Selection, is_selected
from fusionscope.history.outcomes import Pair

_MOST = 4
_LIKE = 0.4  # the least similarity of two names, from 0 to 1
_FILTERS = (
    "producer",
    "consumer",
    "opcode",
    "source",
    "computation",
    "reason",
    "outcome",
    "op_name",
)


def near_matches(pairs: Sequence[tuple[Pair, PairFacts]], selection: Selection) -> tuple[str, ...]:
    """Return the names nearest to the first part of ``selection`` that selects nothing by itself.
    If each part selects something, return pairs of the requested producer or consumer.
    """
    for name in _FILTERS:
        asked = getattr(selection, name)
        alone = replace(EVERYTHING, **{name: asked})
        if asked is not None and not any(is_selected(*pair, alone) for pair in pairs):
            return _closest(asked.strip("*%"), _names(pairs, name))
    for name in ("producer", "consumer"):
        asked = getattr(selection, name)
        if asked is not None:
            alone = replace(EVERYTHING, **{name: asked})
            found = [facts for pair, facts in pairs if is_selected(pair, facts, alone)]
            return tuple(
                dict.fromkeys(f"{each.producer.name} -> {each.consumer.name}" for each in found)
            )[:_MOST]
    return ()


def _closest(asked: str, names: Iterable[str]) -> tuple[str, ...]:
    known = list(dict.fromkeys(name for name in names if name))
    close = get_close_matches(asked, known, _MOST, _LIKE)
    return tuple(close or [name for name in known if asked in name][:_MOST] or known[:_MOST])


def _names(pairs: Sequence[tuple[Pair, PairFacts]], name: str) -> Iterable[str]:
    for pair, facts in pairs:
        ends = (facts.producer, facts.consumer)
        match name:
            case "producer" | "consumer":
                end = getattr(facts, name)
                yield from (end.name, end.opcode)
            case "opcode":
                yield from (end.opcode for end in ends)
            case "source":
                for instruction in (pair.producer, pair.consumer):
                    for place in instruction.stack:
                        yield from (str(place), place.file)
            case "computation":
                yield facts.computation
            case "reason":
                yield facts.reason or ""
            case "outcome":
                yield facts.outcome
            case "op_name":
                yield from (end.op_name or "" for end in ends)
