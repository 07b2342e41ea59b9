"""``fusionscope recipes [ID]``."""

from __future__ import annotations

from pathlib import Path

import click

from fusionscope.cli.completion import complete_recipe
from fusionscope.cli.output import format_options, write_report


@click.command(name="recipes")
@click.argument("recipe", metavar="[ID]", required=False, shell_complete=complete_recipe)
@format_options("text", "json", "markdown")
def command(recipe: str | None, format_name: str, output: Path | None) -> None:
    """List edits of a program that save launches or bytes, or print the page of one of them.

    A page explains which operations the edit replaces, with what, and when it makes a program
    slower. It shows a program before and after the edit, and what both cost: times are
    measured on a CPU, and are the compiler's own estimates for a GPU.

    \b
    Examples:
      fusionscope recipes
      fusionscope recipes reduce-parts
    """
    from fusionscope.advise.recipes.catalogue import all_pages, find_page
    from fusionscope.report.recipes import (
        list_sections,
        list_to_markdown,
        page_sections,
        page_to_markdown,
    )

    pages = all_pages() if recipe is None else (find_page(recipe),)
    write_report(
        "recipes",
        pages,
        format_name,
        output,
        (),
        page_sections(pages[0]) if recipe else list_sections(pages),
        markdown=lambda: page_to_markdown(pages[0]) if recipe else list_to_markdown(pages),
    )
