"""``fusionscope survey PATHS``, ``survey report DIR`` and ``survey query SQL``."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fusionscope.cli.output import (
    format_option,
    format_options,
    jobs_option,
    write_report,
    write_text,
)
from fusionscope.cli.progress import show_progress
from fusionscope.errors import UnusableInput

if TYPE_CHECKING:
    from fusionscope.survey.engines import Engine


class _Survey(click.Command):
    """A command that is another one if its first argument is the name of that."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        subcommand = {"report": _report, "query": _query}.get(args[0]) if args else None
        if subcommand is None:
            return super().make_context(info_name, args, parent, **extra)
        return subcommand.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)


@click.command(name="survey", cls=_Survey)
@click.argument("paths", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    "directory",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Where to write the tables.",
)
@click.option("--resume", "resumes", is_flag=True, help="Go on with the survey in DIR.")
@click.option(
    "--try/--no-try", "tries", default=False, help="Test candidate changes, however long it takes."
)
@click.option(
    "--sample",
    metavar="SHARE",
    type=click.FloatRange(0, 1, min_open=True),
    help="Take this share of the dumps, such as 0.1: the same ones each time.",
)
@click.option("--limit", metavar="N", type=click.IntRange(1), help="Take at most this many dumps.")
@jobs_option
@click.option(
    "--scheduler", metavar="ADDRESS", help="Use the workers of this Dask scheduler instead."
)
@click.option(
    "--memory",
    "megabytes",
    metavar="MB",
    default=4096,
    show_default=True,
    type=click.IntRange(256),
    help="The most that a process may take for one dump. Workers of Dask have limits of their own.",
)
@format_option("text", "json")
def command(
    paths: tuple[str, ...],
    directory: Path,
    resumes: bool,
    tries: bool,
    sample: float | None,
    limit: int | None,
    jobs: int,
    scheduler: str | None,
    megabytes: int,
    format_name: str,
) -> int:
    """Turn many dumps into tables, and ask them.

    PATHS are folders, globs, archives (.zip, .tar.zst, .tar.gz) or URLs that fsspec knows (s3://,
    gs://, https://). Each folder with dump files is a dump. Modules with the same content are
    analysed once. What cannot be read becomes a row with its reason. DIR gets Parquet files, one
    folder for each table (docs/survey.md). --resume goes on after a kill, or with new dumps.

    \b
    Examples:
      fusionscope survey runs/ -o tables
      fusionscope survey 'runs/2026-11-*/host-*' more.tar.zst -o tables --jobs 8
      fusionscope survey s3://dumps/nightly -o tables --scheduler tcp://10.0.0.5:8786
      fusionscope survey runs/ -o tables --resume
      fusionscope survey runs/ -o tables --sample 0.1 --try
      fusionscope survey report tables
      fusionscope survey report tables --before 2026-11-24 --after 2026-11-25
      fusionscope survey report tables --format html --output fleet.html
      fusionscope survey query tables "SELECT reason, sum(bytes_saved) FROM refusals GROUP BY 1"
    """
    from fusionscope.report.survey import surveyed_sections
    from fusionscope.survey.engines import Processes, cluster
    from fusionscope.survey.survey import Options, survey

    if any(path.startswith("memory:") for path in paths) and (jobs > 1 or scheduler):
        raise UnusableInput("only this process has what memory:// holds, expected --jobs 1")
    options = Options(
        memory=None if scheduler else megabytes << 20, tries=tries, sample=sample, limit=limit
    )
    engine: AbstractContextManager[Engine] = (
        cluster(scheduler) if scheduler else nullcontext(Processes(jobs))
    )
    with engine as running, show_progress() as progress:
        surveyed = survey(paths, directory, running, options, resumes=resumes, progress=progress)
    write_report(
        "survey",
        surveyed,
        format_name,
        None,
        (),
        surveyed_sections(surveyed),
    )
    return 0


@click.command(name="report")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--before", metavar="DAY", help="The earlier day.  [default: the last but one]")
@click.option("--after", metavar="DAY", help="The day to compare with it.  [default: the last]")
@click.option(
    "--top", default=10, show_default=True, type=click.IntRange(1), help="Rows of each table."
)
@format_options("text", "json", "markdown", "html")
def _report(
    directory: Path,
    before: str | None,
    after: str | None,
    top: int,
    format_name: str,
    output: Path | None,
) -> int:
    """Show what the tables in DIR say: refusals by rule, scope, file, version and device, what
    suggestions would bring, how far the replay agrees, and what got worse from one day to another.

    \b
    Examples:
      fusionscope survey report tables
      fusionscope survey report tables --before 2026-11-24 --after 2026-11-25
      fusionscope survey report tables --format html --output fleet.html
    """
    from fusionscope.report.survey import fleet_sections
    from fusionscope.survey.fleet import read_fleet
    from fusionscope.survey.store import open_store

    with show_progress() as progress:
        fleet = read_fleet(open_store(directory), before, after, top, progress=progress)
    if format_name == "html":
        from fusionscope.report.html.page import fleet_page

        write_text(fleet_page(fleet), output)
        return 0
    write_report(
        "survey_report",
        fleet,
        format_name,
        output,
        (),
        fleet_sections(fleet),
    )
    return 0


@click.command(name="query")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.argument("question", metavar="SQL")
@format_options("text", "json", "markdown")
def _query(directory: Path, question: str, format_name: str, output: Path | None) -> int:
    """Ask the tables in DIR by one SELECT of DuckDB's SQL. It reads these tables and nothing else:
    dumps, modules, kernels, pairs, refusals, suggestions, memory, advisories, verify and
    unreadable. docs/survey.md describes their columns and has ten questions.

    \b
    Examples:
      fusionscope survey query tables "FROM dumps LIMIT 5"
      fusionscope survey query tables "SELECT reason, sum(bytes_saved) FROM refusals GROUP BY 1"
    """
    from fusionscope.report.survey import answer_section
    from fusionscope.survey.questions import ask
    from fusionscope.survey.store import open_store

    with show_progress() as progress:
        progress("asking")
        answer = ask(open_store(directory), question)
    write_report(
        "survey_query",
        answer,
        format_name,
        output,
        (),
        [answer_section(answer)],
    )
    return 0
