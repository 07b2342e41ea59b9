"""``fusionscope report DUMP``."""

from __future__ import annotations

from pathlib import Path

import click

from fusionscope.cli.output import python_option, resources_option, write_text
from fusionscope.cli.progress import show_progress
from fusionscope.cli.streams import show_problem
from fusionscope.cli.trying import tries
from fusionscope.errors import UnusableInput
from fusionscope.system.files import make_directory, write_file
from fusionscope.words.text import plural, size

LARGE_BYTES = 20_000_000  # of a page, from which on browsers are slow


@click.command(name="report")
@click.argument("dump", type=click.Path(path_type=Path))
@click.argument("new", required=False, type=click.Path(path_type=Path))
@click.option("--module", metavar="GLOB", help="Only these modules, by name or number.")
@resources_option
@python_option
@click.option(
    "--sources",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    help="Show the program's lines from files below this directory.  [default: the current one]",
)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("report.html"),
    show_default=True,
    help="Where to write the page.",
)
@click.option(
    "--bundle",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a zip for a bug report instead: the page, HLO before and after, the compiler's "
    "record, flags, device and a reproducer, without names, paths and constants of the program.",
)
@click.option("--open", "opens", is_flag=True, help="Open the page in a browser.")
def command(
    dump: Path,
    new: Path | None,
    module: str | None,
    resources: bool,
    python: str,
    sources: Path,
    output: Path,
    bundle: Path | None,
    opens: bool,
) -> None:
    """Write a page about a dump: one file that opens in any browser, without a network. If it would
    have more than 20 MB, it becomes a folder, with a page for each module.

    DUMP is as for explain. The page shows where time, launches and bytes go, the pairs that were
    not fused and why, what to try, how each kernel formed pass by pass, and memory over time. With
    a second dump, NEW, it also shows how that differs from DUMP: the fusions that were lost and
    gained, the passes that made them, and both dumps side by side.

    \b
    Examples:
      fusionscope report dump_dir/
      fusionscope report dump_dir/ --output step.html --open
      fusionscope report dump_dir/ --sources ~/project
      fusionscope report dump_dir/ --resources
      fusionscope report dump_main/ dump_branch/
      fusionscope report dump_dir/ --bundle report.zip
    """
    from fusionscope.dump import open_dump
    from fusionscope.explain.selection import Selection
    from fusionscope.page.report_facts import difference_facts, report_facts
    from fusionscope.report.html.page import difference_page, pages_by_module, report_page

    if bundle is not None:
        if new is not None:
            raise UnusableInput("--bundle is about one dump")
        _write_bundle(dump, module, bundle)
        return
    pages: dict[str, str] = {}
    selection = Selection(module=module, resources=resources)
    suggest = tries(selection, python)
    with show_progress() as progress:
        if new is None:
            facts = report_facts(
                open_dump(dump), selection, sources, suggest=suggest, progress=progress
            )
            problems = facts.problems
            progress("writing the page")
            page = report_page(facts)
            if len(page) > LARGE_BYTES and len(facts.explanation.modules) > 1:
                pages = pages_by_module(facts)
        else:
            both = difference_facts(
                open_dump(dump),
                open_dump(new),
                selection,
                sources,
                suggest=suggest,
                progress=progress,
            )
            problems = tuple(dict.fromkeys((*both.before.problems, *both.after.problems)))
            progress("writing the page")
            page = difference_page(both)
    for problem in problems:
        show_problem(problem)
    if pages:
        output = output.with_suffix("")
        make_directory(output)
        for name, content in pages.items():
            write_text(content, output / name)
        output /= "index.html"
        click.echo(f"{output}  {plural(len(pages) - 1, 'page')}, {_megabytes(*pages.values())}")
    else:
        write_text(page, output)
        click.echo(f"{output}  {_megabytes(page)}")
    if opens:
        click.launch(output.resolve().as_uri())


def _write_bundle(dump: Path, module: str | None, file: Path) -> None:
    from fusionscope.bundle.bundle import make_bundle
    from fusionscope.dump import open_dump

    with show_progress() as progress:
        bundle = make_bundle(open_dump(dump), module, progress)
    write_file(file, bundle.data)
    click.echo(f"{file}  {size(len(bundle.data))}")
    for line in bundle.contents:
        click.echo(f"  {line}")
    click.echo("Look through it before you send it.")


def _megabytes(*pages: str) -> str:
    return f"{sum(len(page.encode()) for page in pages) / 1e6:.1f} MB"
