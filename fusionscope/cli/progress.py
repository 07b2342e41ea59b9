"""Shows on a terminal what a command is doing, if it takes more than a second."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from fusionscope.cli.output import terminal_size
from fusionscope.progress import Progress, silent
from fusionscope.words.text import safe

_DELAY_S = 1.0  # before a command counts as slow
_REDRAW_S = 0.1


@contextmanager
def show_progress() -> Iterator[Progress]:
    """Yield a function to call with the current step: one line shows it with the elapsed time, and
    disappears in the end. Nothing is shown unless standard error is a terminal.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield silent
        return
    line = _Line()
    thread = threading.Thread(target=line.draw, daemon=True)
    thread.start()
    try:
        yield line.set_step
    finally:
        line.end()
        thread.join()


class _Line:
    """The line that shows the current step. ``draw`` runs in a thread of its own."""

    def __init__(self) -> None:
        self._step = ""
        self._start = time.monotonic()
        self._ended = threading.Event()

    def set_step(self, step: str) -> None:
        self._step = step

    def end(self) -> None:
        self._ended.set()

    def draw(self) -> None:
        """Redraw the line until it ends, or do nothing if that is soon."""
        if self._ended.wait(_DELAY_S):
            return
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        width, height = terminal_size()
        console = Console(stderr=True, width=width, height=height)
        with Live(
            console=console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        ) as live:
            while True:
                seconds = int(time.monotonic() - self._start)
                line = f"{seconds // 60}:{seconds % 60:02} {safe(self._step)}"
                live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=True)
                if self._ended.wait(_REDRAW_S):
                    break
