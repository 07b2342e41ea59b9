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

_QUIET_S = 1.0
_BETWEEN_S = 0.1  # two drawings


@contextmanager
def show_progress() -> Iterator[Progress]:
    """Return a function that takes the current step, which is shown in one line with the elapsed
    time. The line is gone at the end. Nothing is shown unless standard error is a terminal.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield silent
        return
    line = _Line()
    thread = threading.Thread(target=line.draw, daemon=True)
    thread.start()
    try:
        yield line.set
    finally:
        line.end()
        thread.join()


class _Line:
    """The line, which a thread of its own draws."""

    def __init__(self) -> None:
        self._words = ""
        self._start = time.monotonic()
        self._ended = threading.Event()

    def set(self, words: str) -> None:
        self._words = words

    def end(self) -> None:
        self._ended.set()

    def draw(self) -> None:
        if self._ended.wait(_QUIET_S):
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
                words = f"{seconds // 60}:{seconds % 60:02} {safe(self._words)}"
                live.update(Text(words, no_wrap=True, overflow="ellipsis"), refresh=True)
                if self._ended.wait(_BETWEEN_S):
                    break
