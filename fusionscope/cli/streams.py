"""Writes to the standard streams when they cannot be used as usual."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TextIO

import click

from fusionscope.words.text import safe


def show_problem(problem: str) -> None:
    """Write one line to the error stream, whatever characters the names in it contain."""
    try:
        click.echo(f"fusionscope: {safe(problem)}".encode(errors="replace"), err=True)
    except (OSError, ValueError):  # this failure cannot be reported anywhere
        _discard(sys.stderr)


def discard_output() -> None:
    """Discard the rest of the standard output."""
    _discard(sys.stdout)


def _discard(stream: TextIO | None) -> None:
    """Discard the rest of a stream: Python would try to write it at exit, and fail again."""
    if stream is not None:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
