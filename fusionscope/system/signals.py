"""Signals that end a process: it cleans up first."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_ENDING = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]


def end_in_order() -> None:
    """From now on SIGTERM and SIGHUP end this process as Ctrl-C does: children are killed and
    temporary folders removed on the way out."""
    for number in _ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup's choice is respected
            signal.signal(number, _leave)


def _leave(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # cleaning up is not interrupted by another one
    raise SystemExit(128 + number)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Signals that would leave a child behind, for it is just started or killed, come later."""
    later: list[int] = []
    kept = {}
    if threading.current_thread() is threading.main_thread():  # others get none
        for number in _ENDING:
            handler = signal.getsignal(number)
            if callable(handler):
                kept[number] = handler
                signal.signal(number, lambda number, _frame: later.append(number))
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
        for number in later:
            signal.raise_signal(number)
