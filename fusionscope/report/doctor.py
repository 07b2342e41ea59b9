"""The check of an installation, on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusionscope.words.text import safe

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from fusionscope.doctor.doctor import Diagnosis

_STYLES = {"works": "green", "limited": "yellow", "absent": "dim", "broken": "red"}


def print_diagnosis(diagnosis: Diagnosis, console: Console) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    installation = diagnosis.installation
    head = f"fusionscope {diagnosis.fusionscope}, Python {diagnosis.python}"
    console.print(Text(head, style="bold"))
    for line in (
        f"rules: {', '.join(diagnosis.rules)}",
        f"compiles with {installation.path}, Python {installation.python}",
    ):
        console.print(Padding(Text(safe(line)), (0, 0, 0, 2)))
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(2):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in diagnosis.findings:
        words = Text(safe(finding.found))
        if finding.advice:
            words.append("; ").append(safe(finding.advice), style="bold")
        table.add_row(f"  {finding.name}", Text(finding.state, style=_STYLES[finding.state]), words)
    console.print(table)
    console.print(_verdict(diagnosis))


def _verdict(diagnosis: Diagnosis) -> Text:
    from rich.text import Text

    broken, limited = (
        ", ".join(finding.name for finding in diagnosis.findings if finding.state == state)
        for state in ("broken", "limited")
    )
    if broken:
        return Text(f"broken: {broken}", style=_STYLES["broken"])
    works = "everything installed works"
    if limited:
        return Text(f"{works}, with limits: {limited}", style=_STYLES["limited"])
    return Text(works, style=_STYLES["works"])
