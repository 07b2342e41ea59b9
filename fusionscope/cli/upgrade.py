"""``fusionscope upgrade TARGET --from RELEASE --to RELEASE``."""

from __future__ import annotations

from pathlib import Path

import click

from fusionscope.cli.completion import complete_device
from fusionscope.cli.output import (
    arguments_option,
    directory_option,
    flag_option,
    format_option,
    limit_option,
    top_option,
    write_report,
)
from fusionscope.cli.progress import show_progress
from fusionscope.facts.pair_names import read_pair

_FIGURES = (
    "failures",
    "measured-time",
    "swaps",
    "strided-writes",
    "time",
    "bytes",
    "launches",
    "peak",
    "compile-time",
)


@click.command(name="upgrade")
@click.argument("program", metavar="TARGET")
@click.option(
    "--from",
    "first",
    metavar="RELEASE|PYTHON",
    required=True,
    help="The release of jaxlib before, such as 0.10.1, or a Python that has it.",
)
@click.option(
    "--to",
    "last",
    metavar="RELEASE|PYTHON",
    required=True,
    help="The release after, or a Python that has it.",
)
@arguments_option
@click.option(
    "--device",
    metavar="NAME|FILE",
    shell_complete=complete_device,
    default="cpu",
    show_default=True,
    help="The target: cpu, gpu, h100, b200, tpu:v5e, … or a device description file.",
)
@click.option("--bisect", "bisects", is_flag=True, help="Find the first release that differs.")
@click.option(
    "--by",
    metavar="|".join((*_FIGURES, "'P -> C'")),
    help="What --bisect follows: a figure, or whether a pair is fused. If omitted, the figure that "
    "decides the verdict.",
)
@click.option(
    "--try",
    "most",
    metavar="N",
    default=5,
    show_default=True,
    type=click.IntRange(0),
    help="If it is worse, compile it with up to N flags, and N edits, that may get it back.",
)
@click.option(
    "--run/--no-run", "runs", default=True, help="Run a function for the CPU with both releases."
)
@flag_option
@directory_option(
    "fusionscope-upgrade",
    "Where to write the dumps, each in a subdirectory. If the default is in use, it gets a number.",
    picks_free=True,
)
@limit_option
@format_option("text", "json", "markdown")
@top_option
def command(
    program: str,
    first: str,
    last: str,
    arguments: tuple[str, ...],
    device: str,
    bisects: bool,
    by: str | None,
    most: int,
    runs: bool,
    flags: list[str],
    output: Path,
    limit_s: float,
    format_name: str,
    top: int,
) -> int:
    """Say what an upgrade of jaxlib changed for a program: same, better or worse.

    TARGET is as for capture. It is compiled with both releases, even for a device that is absent.
    A release gets an environment of its own, made once with uv or venv. The figures come first:
    time, which is measured on a CPU, bytes, launches, memory and the time to compile. Then each
    fusion that was lost
    or gained, with the pass and the rule. Where HLO is the same, the code of its kernels is
    compared. If it is worse, flags and edits that may get it back are compiled. The exit code is
    then 1.

    \b
    Examples:
      fusionscope upgrade model.py:step --from 0.10.1 --to 0.12.0 --device h100
      fusionscope upgrade model.py:step --from 0.9.2 --to 0.12.0 --bisect --try 20
      fusionscope upgrade model.py:step --from old/bin/python --to new/bin/python
      fusionscope upgrade model.py:step --from 0.9.2 --to 0.12.0 --bisect --by 'reduce -> subtract'
    """
    from fusionscope.capture.targets import ProgramKind, read_program, read_target
    from fusionscope.passes.overrides import PairPattern
    from fusionscope.report.upgrade import sections_of
    from fusionscope.upgrade.figures import Figure, Verdict
    from fusionscope.upgrade.trial import Trial
    from fusionscope.upgrade.upgrade import upgrade

    followed: Figure | PairPattern | None = None
    if by in _FIGURES:
        followed = Figure(by)
    elif by is not None:
        producer, consumer = read_pair(by, "--by")
        followed = PairPattern(producer or "", consumer or "")
    compiled, target = read_program(program, arguments), read_target(device)
    trial = Trial(
        program=compiled,
        target=target,
        folder=output,
        flags=tuple(flags),
        limit_s=limit_s,
        runs=runs and target.name == "cpu" and compiled.kind is ProgramKind.FUNCTION,
    )
    with show_progress() as progress:
        result = upgrade(
            trial,
            (first, last),
            by=followed,
            bisects=bisects,
            most=most,
            progress=progress,
        )
    difference = result.difference
    problems = (*difference.problems, *difference.notes)
    write_report("upgrade", result, format_name, None, problems, sections_of(result, top))
    return int(result.verdict is Verdict.WORSE)
