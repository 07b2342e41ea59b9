"""Pairs and kernels as a data frame."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import asdict
from importlib import import_module
from typing import Any

from fusionscope.errors import UnusableInput
from fusionscope.facts.result import KernelFacts, PairFacts
from fusionscope.survey.rows import kernel_row, pair_row

_LIBRARIES = ("pandas", "polars")


def to_frame(facts: Iterable[PairFacts | KernelFacts]) -> Any:
    """Return a data frame with a row for each pair or kernel, and the columns of a survey's tables
    of these: bytes of all launches in a run, times in microseconds.

    It is one of pandas or polars: the one that is imported already, or else the one that is
    installed. Raises ``UnusableInput`` if none is.
    """
    rows = [
        asdict(pair_row("", row) if isinstance(row, PairFacts) else kernel_row("", row))
        for row in facts
    ]
    for row in rows:
        del row["content"]  # which module of a survey it belongs to
    return _library().DataFrame(rows)


def _library() -> Any:
    for name in sorted(_LIBRARIES, key=lambda name: name not in sys.modules):
        try:
            return import_module(name)
        except ModuleNotFoundError:
            continue
    raise UnusableInput(
        f"a data frame needs {' or '.join(_LIBRARIES)}", hint=f"pip install {_LIBRARIES[0]}"
    )
