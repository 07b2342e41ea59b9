"""``fusionscope rules [ID]``."""

from __future__ import annotations

from pathlib import Path

import click

from fusionscope.cli.completion import complete_rule
from fusionscope.cli.output import format_options, write_report


@click.command(name="rules")
@click.argument("rule", metavar="[ID]", required=False, shell_complete=complete_rule)
@format_options("text", "json", "markdown")
def command(rule: str | None, format_name: str, output: Path | None) -> None:
    """List the compiler's fusion rules, or print the page of one rule.

    A page explains what the rule refuses or allows and why, where it lives in XLA, its thresholds,
    and what to try if it gets in the way. It shows a module that the rule decides and one that it
    leaves to other rules.

    \b
    Examples:
      fusionscope rules
      fusionscope rules cpu-concat
      fusionscope rules --format json
    """
    from fusionscope.report.rules import (
        list_sections,
        list_to_markdown,
        page_sections,
        page_to_markdown,
    )
    from fusionscope.rules.facts import all_facts, find_facts

    rules = all_facts() if rule is None else (find_facts(rule),)
    write_report(
        "rules",
        rules,
        format_name,
        output,
        (),
        page_sections(rules[0]) if rule else list_sections(rules),
        markdown=lambda: page_to_markdown(rules[0]) if rule else list_to_markdown(rules),
    )
