"""What follows library calls, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fusionscope.findings.conditions import condition_lines
from fusionscope.findings.epilogues.facts import Epilogue
from fusionscope.words.section import Entry, Line, Section, Tone, line, ranked, spans, strong
from fusionscope.words.text import plural

if TYPE_CHECKING:
    from fusionscope.facts.result import ModuleFacts

_TITLES = {"cuBLASLt": "After products of cuBLASLt", "cuDNN": "After convolutions of cuDNN"}


def sheet(module: ModuleFacts, top: int | None) -> Iterator[Section]:
    """Yield the calls of each library, those first that leave something out."""
    yield from _sections(module, top, shows_edits=True)


def _sections(module: ModuleFacts, top: int | None, *, shows_edits: bool) -> Iterator[Section]:
    for library, title in _TITLES.items():
        epilogues = [entry for entry in module.find_all(Epilogue) if entry.library == library]
        is_shown = epilogues if shows_edits else any(entry.rule for entry in epilogues)
        if not is_shown:
            continue
        epilogues.sort(key=lambda epilogue: epilogue.step is None)
        incomplete = sum(epilogue.step is not None for epilogue in epilogues)
        calls = plural(len(epilogues), "call")
        leaves = f"leave{'s' * (incomplete == 1)} out what one can compute"
        entries = [
            _entry(rank, epilogue, shows_edits=shows_edits)
            for rank, epilogue in enumerate(epilogues[:top], 1)
        ]
        yield Section(
            title=title,
            summary=spans(f"{incomplete:,} of {calls} {leaves}"),
            blocks=(ranked("call", entries, len(epilogues), ("source",)),),
        )


def brief(module: ModuleFacts) -> Iterator[Section]:
    """Yield the first call of each library that leaves something out."""
    yield from _sections(module, 1, shows_edits=False)


def _entry(rank: int, epilogue: Epilogue, *, shows_edits: bool) -> Entry:
    return Entry(
        label=f"{rank}.",
        name=strong(epilogue.name),
        figures=(epilogue.source or "",),
        lines=tuple(_lines(epilogue, epilogue.edit if shows_edits else ())),
    )


def _lines(epilogue: Epilogue, edit: tuple[str, ...]) -> Iterator[Line]:
    if epilogue.includes:
        yield line(f"includes {', '.join(epilogue.includes)}", Tone.GOOD)
    if epilogue.step is None:
        return
    yield line(f"leaves out {epilogue.step} ({epilogue.operation})", Tone.BAD)
    if epilogue.rule is None:
        yield line("which meets all conditions that are known")
        return
    yield from condition_lines(epilogue.rule, epilogue.why, epilogue.at, edit)
