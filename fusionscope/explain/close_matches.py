"""Suggestions for a selection that matches no pairs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from difflib import get_close_matches

from fusionscope.explain.selection import EVERYTHING, Selection, select_pairs
from fusionscope.facts.module_analysis import Analysis

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


def near_matches(analysis: Analysis, selection: Selection) -> tuple[str, ...]:
    """Return the names nearest to the first part of ``selection`` that selects nothing by itself.
    If each part selects something, return pairs of the requested producer or consumer.
    """
    for name in _FILTERS:
        value = getattr(selection, name)
        alone = replace(EVERYTHING, **{name: value})
        if value is not None and not select_pairs(analysis, alone):
            return _closest(value.strip("*%"), _names(analysis, name))
    for name in ("producer", "consumer"):
        value = getattr(selection, name)
        if value is not None:
            alone = replace(EVERYTHING, **{name: value})
            selected = (analysis.facts.pairs[number] for number in select_pairs(analysis, alone))
            return tuple(
                dict.fromkeys(f"{pair.producer.name} -> {pair.consumer.name}" for pair in selected)
            )[:_MOST]
    return ()


def _closest(value: str, names: Iterable[str]) -> tuple[str, ...]:
    unique_names = list(dict.fromkeys(name for name in names if name))
    close = get_close_matches(value, unique_names, _MOST, _LIKE)
    return tuple(
        close or [name for name in unique_names if value in name][:_MOST] or unique_names[:_MOST]
    )


def _names(analysis: Analysis, name: str) -> Iterable[str]:
    for facts, origins in zip(analysis.facts.pairs, analysis.pairs, strict=True):
        ends = (facts.producer, facts.consumer)
        match name:
            case "producer" | "consumer":
                end = getattr(facts, name)
                yield from (end.name, end.opcode)
            case "opcode":
                yield from (end.opcode for end in ends)
            case "source":
                for stack in (origins.producer, origins.consumer):
                    for place in analysis.stack(stack):
                        yield from (str(place), place.file)
            case "computation":
                yield facts.computation
            case "reason":
                yield facts.reason or ""
            case "outcome":
                yield facts.outcome
            case "op_name":
                yield from (end.op_name or "" for end in ends)
