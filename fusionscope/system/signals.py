"""Lets a process clean up before a signal ends it."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

_ENDING = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]
# What a batch system sends to a program before it ends it.
_NOTIFYING = [getattr(signal, name) for name in ("SIGUSR1", "SIGUSR2") if hasattr(signal, name)]


def end_in_order() -> None:
    """Make SIGTERM and SIGHUP end this process as Ctrl-C does: it kills its children and removes
    its temporary folders first.
    """
    for number in _ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup's choice is respected
            signal.signal(number, _leave)


def _leave(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # a second signal does not interrupt the cleanup
    raise SystemExit(128 + number)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Delay signals that would leave a child behind while it is started or killed."""
    later: list[int] = []
    handlers = {}
    if threading.current_thread() is threading.main_thread():  # other threads receive none
        for number in _ENDING:
            handler = signal.getsignal(number)
            if callable(handler):
                handlers[number] = handler
                signal.signal(number, lambda number, _frame: later.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in later:
            signal.raise_signal(number)


@contextlib.contextmanager
def forwarded(send: Callable[[int], None]) -> Iterator[list[int]]:
    """Give the signals that this process receives to ``send`` instead. Yield their numbers, as
    they come.
    """
    received: list[int] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        send(number)

    handlers = {
        number: handler
        for number in (*_ENDING, *_NOTIFYING)
        if (handler := signal.getsignal(number)) is not signal.SIG_IGN  # nohup's choice
    }
    for number in handlers:
        signal.signal(number, forward)
    try:
        yield received
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
