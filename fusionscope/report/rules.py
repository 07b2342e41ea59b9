"""The list of rules and the page of one, in words and as the pages of the site."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fusionscope.words.section import Column, Line, Lines, Section, Table, Tone, lines, spans
from fusionscope.words.text import cell

if TYPE_CHECKING:
    from fusionscope.rules.examples import Example
    from fusionscope.rules.facts import RuleFacts

_LIST = (Column("rule"), Column("summary", wraps=True))


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


def list_sections(rules: Sequence[RuleFacts]) -> Iterator[Section]:
    """Yield the rules of each pass."""
    for heading, group in _by_pass(rules):
        rows = tuple(
            (rule.id, f"{rule.page.title} {_thresholds(rule.thresholds)}".strip()) for rule in group
        )
        table = Table(columns=_LIST, rows=rows, noun="rule", has_head=False)
        yield Section(title=heading, blocks=(table,), is_heading=True)
    hint = "fusionscope rules ID prints the page of one rule"
    yield Section(blocks=(lines([hint]),), is_heading=True)


def page_sections(rule: RuleFacts) -> Iterator[Section]:
    """Yield the page of a rule, with its first examples."""
    page = rule.page
    texts = (
        Line(spans=spans((heading, Tone.STRONG), f" {text.replace('`', '')}"))
        for heading, text in (*page.paragraphs, *_facts(rule))
    )
    title = f"{page.id}: {page.title}"
    yield Section(title=title, blocks=(Lines(tuple(texts)),), is_heading=True)
    for example in page.first_examples:
        text = lines(example.shown.rstrip().splitlines())
        yield Section(title=_caption(example), blocks=(text,), is_heading=True)
    if more := len(page.examples) - len(page.first_examples):
        hint = f"{more} more: fusionscope rules {page.id} --format markdown"
        yield Section(blocks=(lines([hint]),), is_heading=True)


def _caption(example: Example) -> str:
    names = " -> ".join(filter(None, (example.producer, example.consumer)))
    return f"{example.verdict}: {names}, {example.why}"
