"""The standard streams, where they cannot be written as usual."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

import click

from fusionscope.report.text import safe


def show_problem(problem: str) -> None:
    """One line on the error stream, whatever the names in it hold."""
    with suppress(OSError, ValueError):  # there is nowhere else to say that it cannot be said
        click.echo(f"fusionscope: {safe(problem)}".encode(errors="replace"), err=True)


def discard_output() -> None:
    """Sends what is left of the standard output to nowhere: Python would try to write it at exit,
    and fail again."""
    if sys.stdout is not None:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
