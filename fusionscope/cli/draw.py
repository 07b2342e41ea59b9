"""``fusionscope draw DUMP KERNEL``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fusionscope.cli.output import cache_option, format_options, python_option, write_text
from fusionscope.cli.progress import show_progress
from fusionscope.errors import UnusableInput, quoted
from fusionscope.system.files import write_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from fusionscope.page.kernel_neighbourhood import Neighbourhood

_LIMIT_S = 120.0  # of the comparison of numbers
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
@click.option(
    "--kernel-sketch",
    "is_sketch",
    is_flag=True,
    help="Write, instead of a figure, a program in JAX that computes the same, and a kernel in "
    "Pallas to start from. KERNEL may be a pair, 'P -> C'.",
)
@python_option
@cache_option
@format_options(*FIGURES)
def command(
    dump: Path,
    kernel: str,
    module: str | None,
    radius: int,
    is_sketch: bool,
    python: str,
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
      fusionscope draw dump_dir/ 'exp.1 -> dot.2' --kernel-sketch --output kernel.py
    """
    if is_sketch:
        _write_sketch(dump, kernel, module, python, no_cache=no_cache, output=output)
        return 0
    _draw(dump, kernel, module, radius, format_name, no_cache=no_cache, output=output)
    return 0


def _draw(
    dump: Path,
    kernel: str,
    module: str | None,
    radius: int,
    format_name: str,
    *,
    no_cache: bool,
    output: Path | None,
) -> None:
    from fusionscope.dump import open_dump
    from fusionscope.dump.cache import DumpCache, user_cache
    from fusionscope.page.kernel_pictures import kernel_picture
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
        picture = kernel_picture(
            opened, kernel, module=module, radius=radius, progress=progress, cache=cache
        )
    figure = formats[format_name](picture.neighbourhood)
    if isinstance(figure, str):
        write_text(figure, output)
    elif output is not None:
        write_file(output, figure)


def _write_sketch(
    dump: Path,
    kernel: str,
    module: str | None,
    python: str,
    *,
    no_cache: bool,
    output: Path | None,
) -> None:
    """Write the sketch of the kernels with this name, or of those of a pair."""
    from fusionscope.dump import open_dump
    from fusionscope.dump.cache import DumpCache, user_cache
    from fusionscope.explain import Selection, explain
    from fusionscope.sketch.checking import compare
    from fusionscope.sketch.file import describe_comparison, file_text
    from fusionscope.sketch.kernels import kernels_of_pair, named_kernels
    from fusionscope.sketch.sketch import sketch

    opened = open_dump(dump)
    cache = DumpCache(opened, None if no_cache else user_cache())
    with show_progress() as progress:
        explanation = explain(opened, Selection(module=module), progress=progress, cache=cache)
        for facts in explanation.modules:
            dumped = next(m for m in opened.modules if m.name == facts.name)
            if dumped.final is None:
                continue
            if "->" in kernel:
                names = kernels_of_pair(dumped, kernel)
            else:
                names = named_kernels(dumped, kernel)
            if names:
                break
        else:
            raise UnusableInput(f"no kernel and no pair before fusion matches {quoted(kernel)}")
        drawn = sketch(dumped.read(dumped.final), names)
        try:
            checked = describe_comparison(
                compare(drawn, file_text(drawn, facts, ""), python=python, limit_s=_LIMIT_S)
            )
        except UnusableInput as problem:
            checked = f"Not checked: {problem}"
    write_text(file_text(drawn, facts, checked), output)
