"""The list of rules and the page of one, as JSON, as Markdown, and on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fusionscope.words.text import cell

if TYPE_CHECKING:
    from rich.console import Console

    from fusionscope.rules.catalogue import RulePage


def _thresholds(values: dict[str, int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def list_to_markdown(pages: Sequence[RulePage]) -> str:
    """Return a table, each rule with a link to its page beside it."""
    return "\n".join(_markdown_list(pages)) + "\n"


def _markdown_list(pages: Sequence[RulePage]) -> Iterator[str]:
    for heading, group in _by_pass(pages):
        yield f"## {heading}\n"
        yield "| rule | summary | thresholds | jaxlib |\n|---|---|---|---|"
        for page in group:
            yield (
                f"| [{page.id}]({page.id}.md) | {cell(page.title)} "
                f"| {_thresholds(page.thresholds)} | {', '.join(page.versions)} |"
            )
        yield ""


def _by_pass(pages: Sequence[RulePage]) -> Iterator[tuple[str, list[RulePage]]]:
    """Yield the pages of each pass, with its name and backend: two passes may share a name."""
    for key in dict.fromkeys((page.pass_name, page.backend) for page in pages):
        group = [page for page in pages if (page.pass_name, page.backend) == key]
        yield f"{key[0]} ({key[1]})", group


def page_to_markdown(page: RulePage) -> str:
    return "\n".join(_markdown_page(page)) + "\n"


def _markdown_page(page: RulePage) -> Iterator[str]:
    yield f"# {page.id}\n"
    yield f"{page.title[0].upper()}{page.title[1:]}.\n"
    for heading, text in _paragraphs(page):
        yield f"**{heading}** {text}\n"
    for example in _shown(page):
        yield f"{_caption(page, example)}\n\n```\n{example.text}```\n"


def _paragraphs(page: RulePage) -> Iterator[tuple[str, str]]:
    """Yield the headings and texts that the page has."""
    yield "What", page.what
    if page.why:
        yield "Why", page.why
    if page.message:
        yield "Message", f"`{page.message}`"
    if page.thresholds:
        yield "Thresholds", _thresholds(page.thresholds)
    for version, values in page.older_thresholds.items():
        yield f"Thresholds of {_compiler(version)}", _thresholds(values) or "none"
    if page.lever:
        yield "Try", page.lever
    if page.thresholds:
        name, value = next(iter(page.thresholds.items()))
        yield "What if", f"`fusionscope explain DUMP --set {page.id}.{name}={value + 1}`"
    elif page.can_be_left_out:
        yield "What if", f"`fusionscope explain DUMP --disable {page.id}`"
    seen = f"; seen in {_versions(page)}" if page.versions else ""
    yield "Where", f"{page.backend}, pass {page.pass_name}{seen}"
    yield "Source", page.source


def _versions(page: RulePage) -> str:
    years = [_compiler(version) for version in page.versions if "." not in version]
    jaxlib = ", ".join(version for version in page.versions if "." in version)
    return ", ".join([*years, f"jaxlib {jaxlib}"])


def _compiler(version: str) -> str:
    return f"jaxlib {version}" if "." in version else f"XLA of {version}"


def _shown(page: RulePage) -> Iterator[Any]:
    """Yield the first example that the rule decides and the first that it leaves."""
    for is_decided in (True, False):
        yield from [each for each in page.examples if each.is_decided is is_decided][:1]


def _caption(page: RulePage, example: Any) -> str:
    ends = f"`{example.producer}`"
    if example.consumer is not None:
        ends += f" → `{example.consumer}`"
    if example.is_decided:
        return f"It decides {ends}: {example.why}."
    instead = f" ({example.instead} decides)" if example.instead else ""
    return f"It leaves {ends}{instead}: {example.why}."


def print_list(pages: Sequence[RulePage], console: Console) -> None:
    """Print the list to a terminal."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    for heading, group in _by_pass(pages):
        console.print(Text(heading, style="bold"))
        table = Table(box=None, padding=(0, 2, 0, 0), show_header=False, pad_edge=False)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for page in group:
            limits = Text(f" {_thresholds(page.thresholds)}", style="dim")
            table.add_row(page.id, Text(page.title) + limits)
        console.print(Padding(table, (0, 0, 0, 2)))
    console.print("fusionscope rules ID prints the page of one rule")


def print_page(page: RulePage, console: Console) -> None:
    """Print a page to a terminal."""
    from rich.padding import Padding
    from rich.text import Text

    console.print(Text(f"{page.id}: {page.title}", style="bold"))
    for heading, text in _paragraphs(page):
        line = Text(f"{heading}: ", style="dim")
        line.append(text.replace("`", ""), style="default")
        console.print(Padding(line, (0, 0, 0, 2)))
    for example in _shown(page):
        console.print()
        console.print(Text(_caption(page, example).replace("`", ""), style="bold"))
        console.print(Padding(Text(example.text.rstrip()), (0, 0, 0, 2)))
