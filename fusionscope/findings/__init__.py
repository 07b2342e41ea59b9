"""What is worth saying about a module: one folder for each finding.

``sheet.py`` puts a finding into words: ``sheet(module, top)`` yields its sections, with at most
``top`` entries of each list (None: all), and ``brief(module)``, where there is one, what the first
screen shows of it. ``find.py`` and ``facts.py`` are where the facts come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fusionscope.facts.result import ModuleFacts
    from fusionscope.words.section import Section

# The folders, in the order in which a report shows the findings.
NAMES = (
    "breakdown",
    "measured",
    "kernels",
    "refusals",
    "libraries",
    "movements",
    "resources",
    "recomputed",
    "memory",
    "autotuned",
    "compile_time",
    "suggestions",
)
BRIEF = 3  # entries of a list on the first screen


def sheets_of(names: Iterable[str], module: ModuleFacts, top: int | None) -> Iterator[Section]:
    """Yield the sections of the findings with these names."""
    for name in names:
        yield from _words(name).sheet(module, top)


def briefs(module: ModuleFacts) -> Iterator[Section]:
    """Yield what the first screen shows."""
    for name in NAMES:
        words = _words(name)
        if hasattr(words, "brief"):
            yield from words.brief(module)


def _words(name: str) -> Any:
    return import_module(f"{__name__}.{name}.sheet")
