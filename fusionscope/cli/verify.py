"""``fusionscope verify DUMP``."""

from __future__ import annotations

from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fusionscope.cli.output import (
    device_option,
    format_options,
    jobs_option,
    python_option,
    rules_option,
    write_report,
)
from fusionscope.cli.progress import show_progress
from fusionscope.errors import UnusableInput

if TYPE_CHECKING:
    from fusionscope.dump import Dump
    from fusionscope.dump.device import Device
    from fusionscope.versions.compiler import Compiler


@click.command(name="verify")
@click.argument("dump", type=click.Path(path_type=Path))
@click.option("--module", metavar="GLOB", help="Only these modules, by name or number.")
@rules_option
@device_option
@jobs_option
@click.option(
    "--at-least",
    metavar="PERCENT",
    type=click.FloatRange(0, 100),
    help="Exit with 1 if less than this agrees, with 2 if something could not be compared.",
)
@click.option(
    "--drift",
    "is_drift",
    is_flag=True,
    help="Where the rules differ from DUMP, ask the compiler which threshold has moved.",
)
@python_option
@click.option(
    "--top",
    metavar="N",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="With --drift, how many pairs of each pass to ask about.",
)
@format_options("text", "json", "markdown")
def command(
    dump: Path,
    module: str | None,
    rules: str | None,
    device: Device | None,
    jobs: int,
    at_least: float | None,
    is_drift: bool,
    python: str,
    top: int,
    format_name: str,
    output: Path | None,
) -> int:
    """Measure how well the replay of the compiler's fusion rules matches a dump.

    verify replays every fusion pass whose rules are known from the stage before it. A plan is
    identical if it results in the compiler's own module: the same fusions, of the same kinds, with
    the same contents and the same order of operands. If DUMP holds a record of the compiler's
    decisions (--xla_dump_fusion_visualization), verify compares each of them with the replay's, in
    order. On TPUs, whose passes cannot be replayed, verify counts the pairs that inferred rules are
    right about. --device names the GPU if DUMP does not describe it, or overrides the one that it
    describes.

    --drift is for compilers whose rules are not known. It cuts out pairs on which rules and DUMP
    differ, changes their sizes, compiles them for the target of DUMP, and searches for a threshold
    with which the rules agree with all of them.

    \b
    Examples:
      fusionscope verify dump_dir/
      fusionscope verify dump_dir/ --at-least 99.5
      fusionscope verify dump_dir/ --rules cpu-0.10 --format json
      fusionscope verify dump_dir/ --device h100
      fusionscope verify dump_dir/ --drift --python newer/bin/python
    """
    if at_least is not None and isnan(at_least):
        raise UnusableInput("--at-least nan: expected a number from 0 to 100")
    from fusionscope.dump import open_dump
    from fusionscope.explain.modules import pick_modules
    from fusionscope.report.verification import sections_of
    from fusionscope.verify.verification import verify
    from fusionscope.versions.known import compiler_named

    opened = open_dump(dump)
    if is_drift:
        return _drift(opened, module, compiler_named(rules), python, top, format_name, output)
    with show_progress() as progress:
        verification = verify(
            opened,
            pick_modules(opened, module),
            compiler_named(rules),
            device,
            jobs=jobs,
            progress=progress,
        )
    write_report(
        "verify",
        verification,
        format_name,
        output,
        verification.problems,
        sections_of(verification),
    )
    if at_least is None:
        return 0
    if verification.agreement is not None and verification.agreement < at_least:
        return 1
    # Nothing is known about what was not compared.
    return 2 if verification.failures or verification.agreement is None else 0


def _drift(
    dump: Dump,
    module: str | None,
    rules: Compiler | None,
    python: str,
    top: int,
    format_name: str,
    output: Path | None,
) -> int:
    """Ask the compiler about the pairs of one module on which the rules differ from the dump."""
    from fusionscope.experiments.drift import find_drift
    from fusionscope.explain.modules import pick_module
    from fusionscope.report.drift import sections_of

    if format_name not in ("text", "json"):
        raise UnusableInput(f"--drift has no {format_name}, expected --format text or json")
    with show_progress() as progress:
        drift = find_drift(
            pick_module(dump, module), rules, top=top, python=python, progress=progress
        )
    write_report(
        "drift",
        drift,
        format_name,
        output,
        dump.unreported_problems(),
        sections_of(drift),
    )
    return 0
