"""``fusionscope doctor``."""

from __future__ import annotations

from pathlib import Path

import click

from fusionscope.cli.output import format_options, python_option, write_report
from fusionscope.cli.progress import show_progress


@click.command(name="doctor")
@python_option
@click.option(
    "--limit",
    "limit_s",
    metavar="SECONDS",
    default=120.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="Time limit of each process that is asked.",
)
@format_options("text", "json")
def command(python: str, limit_s: float, format_name: str, output: Path | None) -> int:
    """Check this installation: what works, what does not, and what to do about it.

    doctor tries what other commands need: the cache, the packages of the extras, ptxas, jax, and
    the compiler for each kind of device. It compiles a small program for each, runs it where the
    device is present, replays the compiler's rules on its dump, and has the compiler take a plan.
    Each runs in a process of its own, all in some seconds. The exit code is 1 if something that is
    installed is broken. What is not installed does not count.

    \b
    Examples:
      fusionscope doctor
      fusionscope doctor --python ~/venv/bin/python
      fusionscope doctor --format json
    """
    from fusionscope.doctor.doctor import diagnose
    from fusionscope.report.doctor import sections_of

    with show_progress() as progress:
        diagnosis = diagnose(python=python, limit_s=limit_s, progress=progress)
    write_report(
        "doctor",
        diagnosis,
        format_name,
        output,
        (),
        sections_of(diagnosis),
    )
    return 0 if diagnosis.works else 1
