"""Writes the tables of docs/launches.md from fusionscope/history/thunks.py."""

from collections.abc import Sequence
from pathlib import Path

from fusionscope.history.thunks import CPU_THUNKS, GPU_THUNKS, ThunkKind

PAGE = Path(__file__).with_name("launches.md")
_BACKENDS = {"cpu": CPU_THUNKS, "gpu": GPU_THUNKS}


def table(kinds: Sequence[ThunkKind]) -> str:
    rows = ["| thunk | made of | launches |", "|---|---|---|"]
    for kind in kinds:
        source = kind.source
        if source and "," not in source:
            source = ", ".join(f"`{part.removeprefix(':')}`" for part in source.split())
        rows.append(f"| `{kind.name}` | {source} | {kind.launches} |")
    return "\n".join(rows)


def with_tables(text: str) -> str:
    """Return the page with each table between its two marks."""
    for backend, kinds in _BACKENDS.items():
        begin, end = f"<!-- {backend} -->\n", f"\n<!-- end of {backend} -->"
        before, _, rest = text.partition(begin)
        text = before + begin + table(kinds) + end + rest.partition(end)[2]
    return text


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
