"""``fusionscope check DUMP...``."""

from __future__ import annotations

import os
from pathlib import Path

import click

from fusionscope.cli.output import (
    device_option,
    open_console,
    show_problem,
    show_progress,
    top_option,
    write_json,
    write_text,
)
from fusionscope.errors import UnusableInput

_FILES = ("fusionscope.toml", "pyproject.toml")


@click.command(name="check")
@click.argument("dumps", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option(
    "--expect",
    "file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="What is expected: a TOML file; fusionscope.toml or pyproject.toml here by default.",
)
@device_option
@click.option(
    "--format",
    "format_name",
    type=click.Choice(["text", "json", "markdown", "junit", "sarif", "github"]),
    default="text",
    show_default=True,
    help="How the result is written.",
)
@click.option(
    "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file."
)
@top_option
def command(
    dumps: tuple[Path, ...],
    file: Path | None,
    device: str | None,
    format_name: str,
    output: Path | None,
    top: int,
) -> int:
    """Hold dumps against what is expected of their fusions, for CI.

    What is expected stands in a TOML file, in tables [[expect]]: that a pair is fused, or never;
    that operations share a kernel; at most so many kernels or bytes; no library calls but these; no
    pair refused for a reason. An expectation that selects nothing is not met. Exit code 1 where one
    is not met. --format github writes annotations, and a summary where GITHUB_STEP_SUMMARY names a
    file.

    \b
    Examples:
      fusionscope check dump_dir/
      fusionscope check dump_cpu/ dump_h100/ --expect fusions.toml
      fusionscope check dump_dir/ --format junit --output fusions.xml
      fusionscope check dump_dir/ --format sarif --output fusions.sarif
    """
    from fusionscope.check.checking import check
    from fusionscope.check.expectation_files import read_expectations
    from fusionscope.dump import open_dump
    from fusionscope.dump.device import find_device
    from fusionscope.explain import Selection, explain
    from fusionscope.report.check import print_check, to_json, to_markdown
    from fusionscope.report.github import to_github
    from fusionscope.report.junit import to_junit
    from fusionscope.report.sarif import to_sarif

    path = file or _default_file()
    expectations = read_expectations(path)
    selection = Selection(
        all_modules=True, device=find_device(device) if device is not None else None
    )
    explanations = [
        explain(
            open_dump(dump),
            selection,
            progress=lambda modules: show_progress(modules, "Explaining"),
        )
        for dump in dumps
    ]
    found = check(explanations, expectations)
    for problem in found.problems:
        show_problem(problem)
    if format_name == "text":
        with open_console(output) as console:
            print_check(found, console, top)
    elif format_name in ("json", "sarif"):
        content = to_json(found) if format_name == "json" else to_sarif(found, str(path))
        write_json(content, output)
    elif format_name == "junit":
        write_text(to_junit(found), output)
    elif format_name == "markdown":
        write_text(to_markdown(found), output)
    else:
        write_text(to_github(found, str(path)), output)
        _write_summary(to_markdown(found))
    return 0 if found.is_met else 1


def _default_file() -> Path:
    for name in _FILES:
        path = Path(name)
        if path.exists() and (name != "pyproject.toml" or "tool.fusionscope" in path.read_text()):
            return path
    raise UnusableInput(
        f"nothing is expected: no {_FILES[0]} here, and no table tool.fusionscope in {_FILES[1]}",
        hint="name a file with --expect",
    )


def _write_summary(text: str) -> None:
    """Where GitHub asks for it."""
    place = os.environ.get("GITHUB_STEP_SUMMARY")
    if place:
        with Path(place).open("a", encoding="utf-8") as file:
            file.write(text)
