"""What held in a self-test, on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusionscope.words.text import safe

if TYPE_CHECKING:
    from rich.console import Console

    from fusionscope.study.self_test import SelfTest

_WORDS = {True: ("holds", "green"), False: ("fails", "red"), None: ("not tried", "yellow")}


def print_self_test(result: SelfTest, console: Console) -> None:
    from rich.text import Text

    console.print(Text(f"reruns on {safe(result.device)}", style="bold"))
    for check in result.checks:
        words, style = _WORDS[check.holds]
        line = Text(f"  {check.name:<14}").append(f"{words:<10}", style=style)
        console.print(line.append(safe(check.details[0])), soft_wrap=False)
        for detail in check.details[1:]:
            console.print(Text(f"    {safe(detail)}"))
