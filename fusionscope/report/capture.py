"""What was compiled, as JSON and on a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from fusionscope.capture.capture import SCHEMA
from fusionscope.report.text import plural, safe

if TYPE_CHECKING:
    from rich.console import Console

    from fusionscope.capture.capture import Captured


def to_json(found: Iterable[Captured]) -> dict[str, Any]:
    """The fields are documented in docs/json.md."""
    return {"schema": SCHEMA, "captures": [capture_json(each) for each in found]}


def capture_json(captured: Captured) -> dict[str, Any]:
    return {"directory": str(captured.directory), **captured.facts}


def print_captured(captured: Captured, console: Console) -> None:
    from rich.text import Text

    version = captured.versions.get("jaxlib", "an unknown jaxlib")
    title = Text(safe(captured.program), style="bold")
    title.append(f" for {safe(captured.target)}", style="bold")
    console.print(title)
    arguments = plural(len(captured.arguments), "argument")
    shapes = f": {', '.join(map(safe, captured.arguments))}" if captured.arguments else ""
    console.print(Text(f"  jaxlib {version}, {arguments}{shapes}"))
    console.print(Text(f"  in {safe(str(captured.directory))}"))
    if captured.problem:
        console.print(Text(f"  not to the end: {safe(captured.problem)}", style="yellow"))
