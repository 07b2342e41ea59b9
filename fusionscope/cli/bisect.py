"""``fusionscope bisect DUMP``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fusionscope.cli.output import (
    as_flags,
    format_option,
    limit_option,
    python_option,
    running_options,
    top_option,
    write_report,
)
from fusionscope.cli.progress import show_progress
from fusionscope.errors import UnusableInput
from fusionscope.system.files import why_unreadable

if TYPE_CHECKING:
    from fusionscope.bisect.reference import Reference


@click.command(name="bisect")
@click.argument("dump", type=click.Path(path_type=Path))
@click.option("--module", metavar="GLOB", help="The module, by name or number.")
@click.option(
    "--by",
    type=click.Choice(["numbers", "time", "compile-time"]),
    default="numbers",
    show_default=True,
    help="What the fusion changes: results, the time of a run, or that of the compilation.",
)
@click.option(
    "--reference",
    "reference_name",
    metavar="none|float64|DUMP|FILE",
    help="What is right: the program without fusion (the default), in 64 bits, with the plan of "
    "another dump, or the arrays of an .npz.",
)
@click.option(
    "--flag",
    "flags",
    metavar="NAME=VALUE",
    multiple=True,
    help="What is right: the program compiled with this XLA flag; repeatable.",
)
@click.option(
    "--predicate",
    metavar="FILE:FUNCTION",
    help="A Python function of the list of results, as numpy arrays, that returns whether they are "
    "wrong.",
)
@click.option(
    "--tolerance",
    metavar="SHARE",
    type=click.FloatRange(min=0),
    help="Differences up to this share of the largest magnitude are not wrong. If omitted, "
    "rounding is not wrong.",
)
@running_options
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the kernel, its inputs and a script that runs it into this directory.",
)
@limit_option
@python_option
@format_option("text", "json")
@top_option
def command(
    dump: Path,
    module: str | None,
    by: str,
    reference_name: str | None,
    flags: tuple[str, ...],
    predicate: str | None,
    tolerance: float | None,
    inputs: Path | None,
    seed: int,
    output: Path | None,
    limit_s: float,
    python: str,
    top: int,
    format_name: str,
) -> int:
    """Find which fusion changes the results of a dumped program, or makes it slow.

    bisect runs the program with parts of the compiler's own plan: some kernels, then some of the
    pairs in them, then some of their operations. It ends with the smallest part whose results are
    still wrong, and shows the source lines. With --output, it writes that kernel alone, the values
    that it reads in the program, and a script that runs it fused and unfused. By time, it finds the
    smallest part without which the program is faster, or compiles faster. The exit code is 1 if
    there is nothing to find.

    \b
    Examples:
      fusionscope bisect dump_dir/ --inputs batch.npz
      fusionscope bisect dump_dir/ --output wrong
      fusionscope bisect dump_dir/ --reference float64 --tolerance 1e-4
      fusionscope bisect dump_dir/ --reference results_of_last_week.npz --inputs batch.npz
      fusionscope bisect dump_dir/ --flag xla_allow_excess_precision=false --tolerance 0
      fusionscope bisect dump_dir/ --predicate check.py:has_nan
      fusionscope bisect dump_dir/ --by time
    """
    from fusionscope.bisect.bisect import bisect
    from fusionscope.bisect.result import By
    from fusionscope.dump import open_dump
    from fusionscope.explain.modules import pick_module
    from fusionscope.report.bisection import sections_of

    reference = _reference(reference_name, flags, predicate, tolerance)
    if By(by) is not By.NUMBERS and (reference_name or flags or predicate or tolerance is not None):
        raise UnusableInput(
            f"--by {by} compares times with those of the whole plan, expected no --reference, "
            "--flag, --predicate or --tolerance"
        )
    opened = open_dump(dump)
    picked_module = pick_module(opened, module)
    with show_progress() as progress:
        bisection = bisect(
            picked_module,
            reference,
            by=By(by),
            inputs=inputs,
            seed=seed,
            directory=output,
            python=python,
            limit_s=limit_s,
            progress=progress,
        )
    write_report(
        "bisect",
        bisection,
        format_name,
        None,
        opened.unreported_problems(),
        sections_of(bisection, top),
    )
    return 0 if bisection.found else 1


def _reference(
    name: str | None, flags: tuple[str, ...], predicate: str | None, tolerance: float | None
) -> Reference:
    """Return the reference that the options describe. Raises ``UnusableInput`` if they contradict
    each other.
    """
    from fusionscope.bisect.reference import Against, Reference

    if (name is not None) + bool(flags) + (predicate is not None) > 1:
        raise UnusableInput("expected one of --reference, --flag and --predicate")
    if predicate is not None:
        file, colon, function = predicate.rpartition(":")
        if not (colon and file and function.isidentifier()):
            raise UnusableInput(f"--predicate {predicate}: expected FILE:FUNCTION")
        if tolerance is not None:
            raise UnusableInput("--predicate decides by itself, expected no --tolerance")
        if problem := why_unreadable(Path(file)):
            raise UnusableInput(problem, file=file)
        return Reference(against=Against.PREDICATE, predicate=predicate)
    if flags:
        return Reference(against=Against.FLAGS, flags=tuple(as_flags(flags)), tolerance=tolerance)
    if name in (None, "none"):
        return Reference(tolerance=tolerance)
    if name == "float64":
        return Reference(against=Against.FLOAT64, tolerance=tolerance)
    place = Path(str(name))
    if not place.exists():
        raise UnusableInput(f"--reference {name}: expected none, float64, a dump or an .npz file")
    against = Against.ARRAYS if place.suffix == ".npz" else Against.DUMP
    return Reference(against=against, place=place, tolerance=tolerance)
