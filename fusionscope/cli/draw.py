"""``fusionscope draw DUMP KERNEL``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fusionscope.cli.output import cache_option, format_options, write_text
from fusionscope.cli.progress import show_progress
from fusionscope.errors import UnusableInput, quoted
from fusionscope.system.files import write_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from fusionscope.page.kernel_neighbourhood import Neighbourhood

FIGURES = ("svg", "png", "dot", "graphml", "json-graph")


@click.command(name="draw")
@click.argument("dump", type=click.Path(path_type=Path))
@click.argument("kernel")
@click.option("--module", metavar="GLOB", help="The module, by name or number.")
@click.option(
    "--radius",
    default=1,
    show_default=True,
    type=click.IntRange(0, 20),
    metavar="N",
    help="How many kernels to show before and after those of KERNEL.",
)
@cache_option
@format_options(*FIGURES)
def command(
    dump: Path,
    kernel: str,
    module: str | None,
    radius: int,
    no_cache: bool,
    format_name: str,
    output: Path | None,
) -> int:
    """Draw kernels of the final module, with their neighbours.

    KERNEL is a name, with * and ?. Drawn are those of the first module that has any.

    \b
    Examples:
      fusionscope draw dump_dir/ loop_add_fusion --output figure.svg
      fusionscope draw dump_dir/ 'input_*' --radius 2 --format dot
    """
    from fusionscope.dump import open_dump
    from fusionscope.dump.cache import DumpCache, user_cache
    from fusionscope.explain import Selection, explain, sheets
    from fusionscope.page.fusion_graph import fusion_graph
    from fusionscope.page.kernel_neighbourhood import find_neighbourhood
    from fusionscope.page.report_facts import dumped
    from fusionscope.report import figures

    if format_name == "png" and output is None:
        raise UnusableInput("--format png requires --output FILE")
    formats: dict[str, Callable[[Neighbourhood], str | bytes]] = {
        "svg": figures.to_svg,
        "png": figures.to_png,
        "dot": figures.to_dot,
        "graphml": figures.to_graphml,
        "json-graph": figures.to_json_graph,
    }
    opened = open_dump(dump)
    cache = DumpCache(opened, None if no_cache else user_cache())
    with show_progress() as progress:
        selection = Selection(module=module, kernel=kernel)
        explanation = explain(opened, selection, progress=progress, cache=cache)
        facts = next((module for module in explanation.modules if module.kernel_pages), None)
        if facts is None:
            raise UnusableInput(sheets.unmatched(explanation, f"the kernel {quoted(kernel)}"))
        names = {page.kernel.name for page in facts.kernel_pages}
        graph = fusion_graph(dumped(opened, facts), progress=progress)
    figure = formats[format_name](find_neighbourhood(graph, facts, names, radius))
    if isinstance(figure, str):
        write_text(figure, output)
    elif output is not None:
        write_file(output, figure)
    return 0
