"""The list of rules and the page of one, as JSON, as Markdown, and on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fusionscope.words.text import cell

if TYPE_CHECKING:
    from rich.console import Console

    from fusionscope.rules.examples import Example
    from fusionscope.rules.facts import RuleFacts


def _thresholds(values: dict[str, int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def list_to_markdown(rules: Sequence[RuleFacts], folder: str = "") -> str:
    """Return a table, each rule with a link to its page in ``folder``, such as ``pages/``."""
    return "\n".join(_markdown_list(rules, folder)) + "\n"


def _markdown_list(rules: Sequence[RuleFacts], folder: str) -> Iterator[str]:
    for heading, group in _by_pass(rules):
        yield f"## {heading}\n"
        yield "| rule | summary | thresholds | jaxlib |\n|---|---|---|---|"
        for rule in group:
            yield (
                f"| [{rule.id}]({folder}{rule.id}.md) | {cell(rule.page.title)} "
                f"| {_thresholds(rule.thresholds)} | {', '.join(rule.versions)} |"
            )
        yield ""


def _by_pass(rules: Sequence[RuleFacts]) -> Iterator[tuple[str, list[RuleFacts]]]:
    """Yield the rules of each pass, with its name and backend: two passes may share a name."""
    for key in dict.fromkeys((rule.pass_name, rule.backend) for rule in rules):
        group = [rule for rule in rules if (rule.pass_name, rule.backend) == key]
        yield f"{key[0]} ({key[1]})", group


def page_to_markdown(rule: RuleFacts) -> str:
    """Return the page of a rule, with the facts about it before its examples."""
    introduction = rule.page.introduction
    facts = "\n".join(f"**{heading}** {text}\n" for heading, text in _facts(rule))
    body = rule.page.markdown.removeprefix(introduction)
    return "\n".join([introduction.rstrip("\n"), "", facts, body]).rstrip("\n") + "\n"


def _facts(rule: RuleFacts) -> Iterator[tuple[str, str]]:
    """Yield what the class of the rule and the books of all versions say."""
    if rule.message:
        yield "Message", f"`{rule.message}`"
    if rule.thresholds:
        yield "Thresholds", _thresholds(rule.thresholds)
    for version, values in rule.older_thresholds.items():
        yield f"Thresholds of {_compiler(version)}", _thresholds(values) or "none"
    if rule.thresholds:
        name, value = next(iter(rule.thresholds.items()))
        yield "What if", f"`fusionscope what-if DUMP --set {rule.id}.{name}={value + 1}`"
    elif rule.can_be_left_out:
        yield "What if", f"`fusionscope what-if DUMP --disable {rule.id}`"
    visited = f"; seen in {_versions(rule)}" if rule.versions else ""
    yield "Where", f"{rule.backend}, pass {rule.pass_name}{visited}"
    if rule.accuracy:
        yield "Accuracy", rule.accuracy


def _versions(rule: RuleFacts) -> str:
    years = [_compiler(version) for version in rule.versions if "." not in version]
    jaxlib = ", ".join(version for version in rule.versions if "." in version)
    return ", ".join([*years, f"jaxlib {jaxlib}"])


def _compiler(version: str) -> str:
    return f"jaxlib {version}" if "." in version else f"XLA of {version}"


def print_list(rules: Sequence[RuleFacts], console: Console) -> None:
    """Print the list to a terminal."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    for heading, group in _by_pass(rules):
        console.print(Text(heading, style="bold"))
        table = Table(box=None, padding=(0, 2, 0, 0), show_header=False, pad_edge=False)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for rule in group:
            limits = Text(f" {_thresholds(rule.thresholds)}", style="dim")
            table.add_row(rule.id, Text(rule.page.title) + limits)
        console.print(Padding(table, (0, 0, 0, 2)))
    console.print("fusionscope rules ID prints the page of one rule")


def print_page(rule: RuleFacts, console: Console) -> None:
    """Print a page to a terminal, with its first examples."""
    from rich.padding import Padding
    from rich.text import Text

    page = rule.page
    console.print(Text(f"{page.id}: {page.title}", style="bold"))
    for heading, text in (*page.paragraphs, *_facts(rule)):
        line = Text(f"{heading} ", style="bold")
        line.append(text.replace("`", ""), style="not bold")
        console.print(Padding(line, (0, 0, 0, 2)))
    for example in page.first_examples:
        console.print()
        console.print(Text(_caption(example), style="bold"))
        console.print(Padding(Text(example.shown.rstrip()), (0, 0, 0, 2)))
    more = len(page.examples) - len(page.first_examples)
    if more:
        console.print(f"\n{more} more: fusionscope rules {page.id} --format markdown")


def _caption(example: Example) -> str:
    names = " -> ".join(filter(None, (example.producer, example.consumer)))
    return f"{example.verdict}: {names}, {example.why}"
