"""``fusionscope study FOLDER``."""

from __future__ import annotations

from pathlib import Path

import click

from fusionscope.cli.completion import complete_device
from fusionscope.cli.output import (
    format_option,
    limit_option,
    python_option,
    write_json,
    write_sections,
    write_text,
)
from fusionscope.cli.progress import show_progress


@click.command(name="study")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--device",
    "devices",
    metavar="NAME|FILE",
    shell_complete=complete_device,
    multiple=True,
    default=("a100", "h100", "cpu"),
    show_default=True,
    help="The target; on cpu and gpu the program also runs. Repeatable.",
)
@click.option(
    "--size",
    "sizes",
    metavar="N",
    multiple=True,
    type=click.IntRange(1),
    help="Use this size instead of the study's own; repeatable.",
)
@click.option(
    "--seconds",
    metavar="SECONDS",
    default=1.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="How long to run each step.",
)
@limit_option
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("fusionscope-study"),
    show_default=True,
    help="Where to write the dumps, each in a subdirectory.",
)
@python_option
@format_option("text", "markdown", "json", "html")
def command(
    folder: Path,
    devices: tuple[str, ...],
    sizes: tuple[int, ...],
    seconds: float,
    limit_s: float,
    output: Path,
    python: str,
    format_name: str,
) -> int:
    """Compile versions of one program, run those that can run, and compare them.

    FOLDER holds study.toml: the versions, step by step, and what others measured. Each step is a
    function, or an earlier step with changed fusion rules. For every device and size, study prints
    a table: kernels, launches, bytes, time, and the speed-up over the first step. On devices that
    are absent, time is an estimate by the compiler's cost model. Every step has a dump, and study
    names what separates its kernels. The exit code is 1 if a step could not be compiled.

    \b
    Examples:
      fusionscope study samples/cartpole
      fusionscope study samples/cartpole --device cpu --size 64 --size 2048
      fusionscope study samples/cartpole --device h100 --format markdown
      fusionscope study samples/cartpole --format html > study.html
    """
    from fusionscope.capture.targets import read_target
    from fusionscope.report.study import sections_of
    from fusionscope.study.study import run_study
    from fusionscope.study.study_files import read_study

    study = read_study(folder)
    with show_progress() as progress:
        result = run_study(
            study,
            [read_target(device) for device in devices],
            sizes or study.sizes,
            output,
            python=python,
            limit_s=limit_s,
            seconds=seconds,
            progress=progress,
        )
    if format_name == "json":
        write_json("study", result, None)
    elif format_name == "html":
        from fusionscope.report.html.page import study_page

        write_text(study_page(result), None)
    else:
        write_sections(sections_of(result), format_name, None)
    return int(any(row.problem for table in result.tables for row in table.rows))
