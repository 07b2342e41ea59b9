"""``fusionscope check DUMP...``."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fusionscope.cli.output import (
    cache_option,
    device_option,
    jobs_option,
    open_console,
    top_option,
    write_data,
    write_json,
    write_text,
)
from fusionscope.cli.progress import show_progress
from fusionscope.cli.streams import show_problem
from fusionscope.errors import UnusableInput
from fusionscope.system.files import append_file, is_there, read_text

if TYPE_CHECKING:
    from fusionscope.dump.device import Device
    from fusionscope.explain import Explanation, Selection
    from fusionscope.progress import Progress

_FILES = ("fusionscope.toml", "pyproject.toml")


@click.command(name="check")
@click.argument("dumps", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option(
    "--expect",
    "file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Expectations in TOML; by default fusionscope.toml or pyproject.toml in this directory.",
)
@click.option(
    "--baseline",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The state to compare with: what was fused must still be fused.",
)
@click.option("--update", is_flag=True, help="Write the baseline instead of checking it.")
@click.option("--allow-better", is_flag=True, help="Accept more fusion than in the baseline.")
@click.option(
    "--tolerance",
    metavar="PERCENT",
    default=0.0,
    show_default=True,
    type=click.FloatRange(min=0),
    help="How much bytes and launches may exceed the baseline if the pairs are the same.",
)
@device_option
@cache_option
@jobs_option
@click.option(
    "--format",
    "format_name",
    type=click.Choice(["text", "json", "markdown", "junit", "sarif", "github"]),
    default="text",
    show_default=True,
    help="Output format.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write to this file instead of standard output.",
)
@top_option
def command(
    dumps: tuple[Path, ...],
    file: Path | None,
    baseline: Path | None,
    update: bool,
    allow_better: bool,
    tolerance: float,
    device: Device | None,
    no_cache: bool,
    jobs: int,
    format_name: str,
    output: Path | None,
    top: int,
) -> int:
    """Check dumps against expectations or a baseline, for CI.

    Expectations live in a TOML file, in [[expect]] tables: a pair is fused, or is never fused;
    operations share a kernel; at most so many kernels or bytes; no other library calls than these;
    no pair refused for a given reason. An expectation that selects nothing is not met. The exit
    code is 1 if any expectation is not met. --format github writes annotations, and a summary if
    GITHUB_STEP_SUMMARY names a file.

    A baseline, written by --update, records what is fused in each module of the dumps. A module is
    identified by its name, the shapes and shardings of its arguments, and its device; one without
    a baseline is reported. No module may get worse: a pair that was fused and is now unfused or
    duplicated, a library call that took over, more launches or bytes for the same pairs. New code
    and other names do not matter.

    \b
    Examples:
      fusionscope check dump_dir/
      fusionscope check dump_cpu/ dump_h100/ --expect fusions.toml
      fusionscope check dump_dir/ --baseline fusions.json --update
      fusionscope check dump_dir/ --baseline fusions.json --allow-better --tolerance 5
      fusionscope check dump_dir/ --format junit --output fusions.xml
      fusionscope check dump_dir/ --format sarif --output fusions.sarif
    """
    from fusionscope.check.baseline import Tolerance, read_baseline, write_baseline
    from fusionscope.check.checking import check
    from fusionscope.check.expectation_files import read_expectations
    from fusionscope.explain import Selection
    from fusionscope.report.check import print_check, to_markdown
    from fusionscope.report.github import to_github
    from fusionscope.report.junit import to_junit
    from fusionscope.report.places import find_repository
    from fusionscope.report.sarif import to_sarif
    from fusionscope.system.workers import in_order

    if update and baseline is None:
        raise UnusableInput("--update writes a baseline, name its file with --baseline")
    path = file or _default_file()
    expectations = list(read_expectations(path)) if path is not None else []
    before = None
    if baseline is not None and not update:
        before = read_baseline(baseline, Tolerance(tolerance / 100, allow_better))
    if not expectations and before is None and not update:
        raise UnusableInput(
            f"nothing is expected: no {_FILES[0]} here, and no table tool.fusionscope in "
            f"{_FILES[1]}",
            hint="name a file with --expect or --baseline",
        )
    selection = Selection(all_modules=True, device=device)
    explanations: list[Explanation] = []
    work = partial(_explain, selection, no_cache)
    with show_progress() as progress:
        for found in in_order(work, dumps, str, jobs=jobs, progress=progress):
            if isinstance(found, UnusableInput):
                raise found
            explanations.append(found)
    if update and baseline is not None:
        write_text(write_baseline(explanations), baseline)
        write_text(f"written: {baseline}\n", None)
        return 0
    result = check(explanations, expectations, before)
    place, repository = str(path or baseline), find_repository()
    for problem in result.problems:
        show_problem(problem)
    if format_name == "text":
        with open_console(output) as console:
            print_check(result, console, top)
    elif format_name == "json":
        write_json("check", result, output)
    elif format_name == "sarif":
        write_data(to_sarif(result, place, repository), output)
    elif format_name == "junit":
        write_text(to_junit(result), output)
    elif format_name == "markdown":
        write_text(to_markdown(result), output)
    else:
        write_text(to_github(result, place, repository), output)
        _write_summary(to_markdown(result))
    return 0 if result.is_met else 1


def _explain(selection: Selection, no_cache: bool, dump: Path, progress: Progress) -> Explanation:
    from fusionscope.dump import open_dump
    from fusionscope.dump.cache import DumpCache, user_cache
    from fusionscope.explain import explain

    opened = open_dump(dump)
    cache = DumpCache(opened, None if no_cache else user_cache())
    return explain(opened, selection, progress=progress, cache=cache)


def _default_file() -> Path | None:
    for name in _FILES:
        path = Path(name)
        if is_there(path) and (name != _FILES[1] or "[tool.fusionscope" in read_text(path)):
            return path
    return None


def _write_summary(text: str) -> None:
    """Write the summary to the file that GitHub names."""
    place = os.environ.get("GITHUB_STEP_SUMMARY")
    if place:
        try:
            append_file(Path(place), text)
        except UnusableInput as problem:  # the annotations report it too
            show_problem(f"no step summary: {problem}")
