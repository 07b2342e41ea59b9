"""``fusionscope rules [ID]``."""

from __future__ import annotations

from pathlib import Path

import click

from fusionscope.cli.output import format_options, write_report


@click.command(name="rules")
@click.argument("rule", metavar="[ID]", required=False)
@format_options("text", "json", "markdown")
def command(rule: str | None, format_name: str, output: Path | None) -> None:
    """The compiler's fusion rules, or the page of one of them.

    A page says what the rule refuses or allows and why, where in XLA it stands, its thresholds,
    what to try where it stands in the way, and shows a module that it decides and one that it
    leaves to others.

    \b
    Examples:
      fusionscope rules
      fusionscope rules cpu-concat
      fusionscope rules --format json
    """
    from fusionscope.report.rules import (
        list_to_markdown,
        page_to_markdown,
        print_list,
        print_page,
    )
    from fusionscope.rules.catalogue import all_rules, find_rule

    pages = all_rules() if rule is None else (find_rule(rule),)
    write_report(
        "rules",
        pages,
        format_name,
        output,
        (),
        markdown=lambda: page_to_markdown(pages[0]) if rule else list_to_markdown(pages),
        text=lambda console: print_page(pages[0], console) if rule else print_list(pages, console),
    )
