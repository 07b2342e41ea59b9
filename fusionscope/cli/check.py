"""``fusionscope check [DUMP...]``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from fusionscope.cli.output import (
    cache_option,
    device_option,
    format_options,
    jobs_option,
    limit_option,
    top_option,
    write_data,
    write_json,
    write_sections,
    write_text,
)
from fusionscope.cli.progress import show_progress
from fusionscope.cli.streams import show_problem
from fusionscope.errors import UnusableInput, quoted
from fusionscope.system.files import append_file, is_there, read_text

if TYPE_CHECKING:
    from fusionscope.check.checking import Checked
    from fusionscope.check.matrix import Compiler, Matrix, NotCompiled
    from fusionscope.check.subject import Cell
    from fusionscope.dump.device import Device
    from fusionscope.progress import Progress

_FILES = ("fusionscope.toml", "pyproject.toml")
_FORMATS = ("text", "json", "markdown", "junit", "sarif", "github")


def _pythons(_context: object, _option: object, values: Sequence[str]) -> dict[str | None, str]:
    """Return interpreters by the names of targets, that for the others under None."""
    pythons: dict[str | None, str] = {}
    for words in values:
        name, equals, path = words.partition("=")
        python = path if equals else words
        pythons[name if equals else None] = (
            str(Path(python).absolute()) if "/" in python else python
        )
    return pythons


def _also(_context: object, _option: object, values: Sequence[str]) -> list[tuple[str, Path]]:
    files = []
    for words in values:
        name, _, file = words.partition("=")
        if name not in _FORMATS or not file:
            raise UnusableInput(
                f"--also {quoted(words)}: expected FORMAT=FILE, with one of {', '.join(_FORMATS)}"
            )
        files.append((name, Path(file)))
    return files


@click.command(name="check")
@click.argument("dumps", type=click.Path(path_type=Path), nargs=-1)
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
@click.option(
    "--against",
    metavar="REF|DUMP",
    help="Compare with the programs of this git revision, compiled too, or with this dump.",
)
@click.option("--update", is_flag=True, help="Write the baseline, and print what that accepts.")
@click.option("--module", metavar="GLOB", help="Only these modules, or programs of a matrix.")
@click.option("--strict", is_flag=True, help="Nothing may be new or grow, in any program.")
@click.option("--allow-better", is_flag=True, help="Accept more fusion than in the baseline.")
@click.option(
    "--tolerance",
    metavar="PERCENT",
    default=0.0,
    show_default=True,
    type=click.FloatRange(min=0),
    help="How much bytes and launches may exceed the baseline if the pairs are the same.",
)
@click.option(
    "--dumps",
    "kept",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep the dumps of a matrix here. One that is here already is not compiled again.",
)
@click.option(
    "--python",
    "pythons",
    metavar="[TARGET=]PATH",
    multiple=True,
    callback=_pythons,
    help="A Python with jax to compile with, for one target or all; repeatable.",
)
@limit_option
@device_option
@cache_option
@jobs_option
@format_options(*_FORMATS)
@click.option(
    "--also",
    metavar="FORMAT=FILE",
    multiple=True,
    callback=_also,
    help="Write the result in this format to this file, too; repeatable.",
)
@top_option
def command(
    dumps: tuple[Path, ...],
    file: Path | None,
    baseline: Path | None,
    against: str | None,
    update: bool,
    module: str | None,
    strict: bool,
    allow_better: bool,
    tolerance: float,
    kept: Path | None,
    pythons: dict[str | None, str],
    limit_s: float,
    device: Device | None,
    no_cache: bool,
    jobs: int,
    format_name: str,
    output: Path | None,
    also: list[tuple[str, Path]],
    top: int,
) -> int:
    """Check dumps against expectations, a baseline or another revision, for CI.

    Expectations live in a TOML file, in [[expect]] tables: a pair is fused, or is never fused;
    operations share a kernel; at most so many kernels or bytes; no other library calls than these;
    no pair refused for a given reason; figures that grow by at most so much. An expectation that
    selects nothing is not met. The exit code is 1 if any expectation is not met.

    Without DUMPS, each [[program]] of that file is compiled for each [[target]], and checked.

    A baseline, written by --update, records what is fused in each module. No module may get worse:
    a pair that was fused and is now unfused or duplicated, a library call that took over, more
    launches or bytes for the same pairs. New code and other names do not matter, unless --strict is
    given. --against compares in the same way with a git revision, without a file.

    --format github writes annotations, and a summary if GITHUB_STEP_SUMMARY names a file.

    \b
    Examples:
      fusionscope check dump_dir/
      fusionscope check dump_cpu/ dump_h100/ --expect fusions.toml
      fusionscope check dump_dir/ --baseline fusions.json --update
      fusionscope check dump_dir/ --baseline fusions.json --allow-better --tolerance 5
      fusionscope check --against origin/main --strict
      fusionscope check --against main --format github --also markdown=comment.md
      fusionscope check dump_dir/ --format sarif --output fusions.sarif
    """
    from fusionscope.check.against import read_base
    from fusionscope.check.as_before import Tolerance
    from fusionscope.check.baseline import read_baseline
    from fusionscope.check.checking import check
    from fusionscope.check.expectation_files import Expected, read_expected
    from fusionscope.check.matrix import Compiler
    from fusionscope.dump.cache import user_cache
    from fusionscope.explain import Selection

    if update and baseline is None:
        raise UnusableInput("--update writes a baseline, name its file with --baseline")
    if against is not None and baseline is not None:
        raise UnusableInput("--baseline and --against both say what to compare with, expected one")
    path = file or _default_file()
    expected = read_expected(path) if path is not None else Expected()
    matrix = None if dumps else expected.matrix
    if not dumps and matrix is None:
        raise UnusableInput(
            "nothing to check: no dump is named, and no [[program]] is listed",
            hint="name a dump, or list programs and targets in fusionscope.toml",
        )
    if not (expected.expectations or baseline or against or matrix):
        raise UnusableInput(
            f"nothing is expected: no {_FILES[0]} here, and no table tool.fusionscope in "
            f"{_FILES[1]}",
            hint="name a file with --expect, --baseline or --against",
        )
    tolerances = Tolerance(tolerance / 100, allow_better or against is not None, strict)
    before = None
    if baseline is not None and not update:
        before = read_baseline(baseline, tolerances)
    compiler = Compiler(
        selection=Selection(
            all_modules=True,
            device=device,
            resources=any(expectation.needs_resources for expectation in expected.expectations),
        ),
        cache=None if no_cache else user_cache(),
        limit_s=limit_s,
        jobs=jobs,
    )
    if matrix is not None:
        matrix = matrix.with_pythons(pythons)
        matrix = matrix.only(module) if module is not None else matrix
    if before is not None and module is not None:
        before = before.only(module)
    problems: list[str] = []
    with _folder(kept) as folder:
        with show_progress() as progress:
            if matrix is not None:
                cells, failures = _compile(compiler, matrix, folder, progress)
            else:
                cells, failures = _explain(compiler, dumps, module, progress), []
            if against is not None:
                before, problems = read_base(compiler, against, matrix, cells, tolerances, progress)
        if update and baseline is not None:
            _update(baseline, cells, failures, module, top)
            return 1 if failures else 0
        result = check(
            cells,
            expected.expectations,
            before,
            allowances=expected.allowances,
            failures=failures,
            is_partial=module is not None,
        )
    for problem in (*problems, *result.problems):
        show_problem(problem)
    for name, place in [(format_name, output), *also]:
        _write(name, result, place, str(path or baseline or ""), top)
    if format_name == "github":
        _write_summary(result)
    return 0 if result.is_met else 1


@contextmanager
def _folder(directory: Path | None) -> Iterator[Path]:
    """Yield the folder for the dumps of a matrix."""
    if directory is not None:
        yield directory
        return
    with TemporaryDirectory() as folder:
        yield Path(folder)


def _compile(
    compiler: Compiler, matrix: Matrix, folder: Path, progress: Progress
) -> tuple[list[Cell], list[NotCompiled]]:
    """Return the cells of a matrix, and those that do not compile. Raises ``UnusableInput`` if none
    does.
    """
    from fusionscope.check.matrix import NotCompiled
    from fusionscope.check.subject import Cell

    results = compiler.compile(matrix, folder, progress=progress)
    cells = [result for result in results if isinstance(result, Cell)]
    failures = [result for result in results if isinstance(result, NotCompiled)]
    if not cells:
        raise failures[0].problem
    return cells, failures


def _explain(
    compiler: Compiler, dumps: Sequence[Path], module: str | None, progress: Progress
) -> list[Cell]:
    """Raises ``UnusableInput`` if a dump cannot be used, or none has a selected module."""
    from fusionscope.check.subject import Cell
    from fusionscope.system.workers import in_order

    cells = []
    for explained in in_order(compiler.explain, dumps, str, jobs=compiler.jobs, progress=progress):
        if isinstance(explained, UnusableInput):
            raise explained
        cells.append(Cell(explained))
    if module is None:
        return cells
    selected = [cell.only(module) for cell in cells]
    if not any(cell.explanation.modules for cell in selected):
        names = {facts.name for cell in cells for facts in cell.explanation.modules}
        raise UnusableInput(
            f"no module is called {quoted(module)}, there are {', '.join(sorted(names)[:8])}"
        )
    return selected


def _update(
    file: Path,
    cells: Sequence[Cell],
    failures: Sequence[NotCompiled],
    module: str | None,
    top: int,
) -> None:
    """Write the baseline, and print what that accepts."""
    from fusionscope.check.updating import update
    from fusionscope.report.check import update_sections

    updated = update(file, cells, failures, module)
    write_text(updated.text, file)
    write_sections(update_sections(updated, top), "text", None)
    write_text(f"written: {file}\n", None)


def _write(name: str, result: Checked, output: Path | None, file: str, top: int) -> None:
    """Write the result in a format. ``file`` is that of the expectations."""
    from fusionscope.report.check import sections_of
    from fusionscope.report.check_comment import to_markdown
    from fusionscope.report.github import to_github
    from fusionscope.report.junit import to_junit
    from fusionscope.report.places import find_repository
    from fusionscope.report.sarif import to_sarif

    repository = find_repository()
    match name:
        case "text":
            write_sections(sections_of(result, top, repository), name, output)
        case "json":
            write_json("check", result, output)
        case "sarif":
            write_data(to_sarif(result, file, repository), output)
        case "junit":
            write_text(to_junit(result, file, repository), output)
        case "markdown":
            write_text(to_markdown(result, repository), output)
        case _:
            write_text(to_github(result, file, repository), output)


def _default_file() -> Path | None:
    for name in _FILES:
        path = Path(name)
        if is_there(path) and (name != _FILES[1] or "[tool.fusionscope" in read_text(path)):
            return path
    return None


def _write_summary(result: Checked) -> None:
    """Write the summary to the file that GitHub names."""
    from fusionscope.report.check_comment import to_markdown
    from fusionscope.report.places import find_repository

    place = os.environ.get("GITHUB_STEP_SUMMARY")
    if place:
        try:
            append_file(Path(place), to_markdown(result, find_repository()))
        except UnusableInput as problem:  # the annotations report it too
            show_problem(f"no step summary: {problem}")
