"""The dumps in samples/dumps, for tests of what holds for any dump."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DUMPS = Path(__file__).resolve().parents[1] / "samples" / "dumps"
SAMPLES = sorted(DUMPS.glob("*/*"))


def _size(dump: Path) -> int:
    return sum(file.stat().st_size for file in dump.iterdir())


def _find_kinds() -> frozenset[Path]:
    """Return the smallest dump of each compiler and device, and the smallest of each program."""
    kinds: dict[str, Path] = {}
    for dump in sorted(SAMPLES, key=_size):
        for part in (dump.parent.name, dump.name):
            kinds.setdefault(part, dump)
    return frozenset(kinds.values())


KINDS = _find_kinds()


def all_samples(condition: Callable[[Path], bool] = Path.is_dir) -> list[Any]:
    """Return all that meet ``condition``, as parameters: those that are not of KINDS are marked."""
    return [
        pytest.param(dump, id=f"{dump.parent.name}-{dump.name}", marks=_marks(dump))
        for dump in SAMPLES
        if condition(dump)
    ]


def _marks(dump: Path) -> list[pytest.MarkDecorator]:
    return [] if dump in KINDS else [pytest.mark.repeats]
