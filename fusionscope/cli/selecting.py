"""Options that say what of a dump is meant, and what is to be shown of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from fusionscope.errors import UnusableInput, expected_one_of, quoted

GROUPINGS = ("scope", "stack", "file", "kind")
SORTS = ("time", "bytes", "launches", "headroom")
OUTCOMES = ("fused", "duplicated", "not-fused", "gone")
CONDITIONS = ("op", "computation", "outcome", "op-name")
PARTS = ("movements", "resources", "profile")
DEPTH = 4


class Breakdown(NamedTuple):
    """How ``--by`` groups and sorts kernels, and how deep it shows the groups."""

    grouping: str | None = None
    sort: str | None = None
    depth: int = DEPTH


def read_steps(text: str) -> tuple[str, int]:
    """Return the name of a loop and its number of steps. Raises ``UnusableInput``."""
    name, _, count = text.rpartition("=")
    if not name or not count.isdecimal():
        raise UnusableInput(f"--steps has {quoted(text)}, expected LOOP=N, such as while.12=20")
    return name.lstrip("%"), int(count)


def by_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--by``, as a ``Breakdown``."""
    return click.option(
        "--by",
        metavar="|".join(GROUPINGS),
        callback=lambda _context, _option, text: _read_breakdown(text),
        help="Show where launches, bytes and time go: by scope, call stack, source file, or kind. "
        "scope,bytes sorts by bytes (or launches, time, headroom), scope,3 shows three levels; "
        "headroom is scope,headroom.",
    )(command)


def _read_breakdown(text: str | None) -> Breakdown:
    if text is None:
        return Breakdown()
    grouping, *more = (word.strip() for word in text.split(","))
    if grouping == "headroom":
        grouping, more = "scope", ["headroom", *more]
    if grouping not in GROUPINGS:
        raise UnusableInput(f"--by {quoted(text)}, {expected_one_of(grouping, GROUPINGS)}")
    breakdown = Breakdown(grouping)
    for word in more:
        if word.isdecimal() and 0 < int(word) <= 1000:
            breakdown = breakdown._replace(depth=int(word))
        elif word in SORTS:
            breakdown = breakdown._replace(sort=word)
        else:
            what = f"--by {quoted(text)}: {quoted(word)} is no number of levels"
            raise UnusableInput(f"{what}, {expected_one_of(word, SORTS)}")
    return breakdown


def where_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--where``, as values by their conditions."""
    return click.option(
        "--where",
        multiple=True,
        metavar="KEY=VALUE",
        callback=lambda _context, _option, texts: _read_conditions(texts),
        help="Only pairs with this op, computation (a GLOB) or outcome (fused, duplicated, "
        "not-fused, gone), or what has such an op-name (a GLOB) in the program; repeatable.",
    )(command)


def _read_conditions(texts: Sequence[str]) -> dict[str, str]:
    conditions: dict[str, str] = {}
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        if key not in CONDITIONS or not (equals and value):
            if key in CONDITIONS or not equals:
                expected = "expected KEY=VALUE, such as op=dot"
            else:
                expected = expected_one_of(key, CONDITIONS)
            raise UnusableInput(f"--where {quoted(text)}, {expected}")
        if key == "outcome" and value not in OUTCOMES:
            raise UnusableInput(f"--where {quoted(text)}, {expected_one_of(value, OUTCOMES)}")
        conditions[key] = value
    return conditions


def show_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--show``, as values by parts of the report."""
    return click.option(
        "--show",
        multiple=True,
        metavar="|".join((*PARTS[:-1], "profile=DIR")),
        callback=lambda _context, _option, texts: _read_parts(texts),
        help="Also show why copies, transposes and converts are there; registers, spills and "
        "occupancy of kernels, by ptxas; or the times that jax.profiler.trace(DIR) recorded; "
        "repeatable.",
    )(command)


def _read_parts(texts: Sequence[str]) -> Mapping[str, str]:
    parts: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if name not in PARTS:
            raise UnusableInput(f"--show {quoted(text)}, {expected_one_of(name, PARTS)}")
        if (name == "profile") is not bool(equals and value):
            expected = "profile=DIR" if name == "profile" else name
            raise UnusableInput(f"--show {quoted(text)}, expected {expected}")
        parts[name] = value
    return parts


def profile_directory(parts: Mapping[str, str]) -> Path | None:
    return Path(parts["profile"]) if "profile" in parts else None
