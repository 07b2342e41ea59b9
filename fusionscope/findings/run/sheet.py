"""What a run took on this machine, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fusionscope.findings.run.facts import Run
from fusionscope.words.section import Section, lines
from fusionscope.words.text import duration, size

if TYPE_CHECKING:
    from fusionscope.facts.result import ModuleFacts


def sheet(module: ModuleFacts, top: int | None) -> Iterator[Section]:
    """Yield the time of a run beside its bound."""
    run = module.find(Run)
    if run is not None:
        rate = f"{run.bandwidth / 1_000:.3g} GB/s"
        moved = size(round(run.at_best_bytes))
        texts = [
            f"a run took {duration(run.time_us)} here: {run.time_us / run.at_best_us:.3g} times",
            f"at best {duration(run.at_best_us)}, to move {moved} at {rate} (measured)",
        ]
        yield Section(blocks=(lines(texts),))


def brief(module: ModuleFacts) -> Iterator[Section]:
    """Yield the same."""
    return sheet(module, None)
