"""The pages of rules: one Markdown file ``pages/ID.md`` for each.

A page is a title, paragraphs that begin with a word in bold, and examples (``examples.py``):

    # ID: a few words on what it refuses or allows

    **Refuses** exactly what (or **Allows**, or what else the rule does).

    **Because** of what the compiler has it.

    **You can** do this about it.

    **Source** file and function in XLA.

    ## Examples

    ## More examples

**Because** and **You can** are optional, and so are examples. A terminal shows those under the
first heading. Those under a heading such as ``## Examples on GPUs`` are for the rules of other
versions or backends.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path

from fusionscope.errors import UnusableInput, quoted
from fusionscope.rules.examples import Example, find_examples

_PAGES = Path(__file__).with_name("pages")
_PARAGRAPH = re.compile(r"^\*\*([^*]+)\*\* (.+?)$(?=\n\n|\n\Z)", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^## (Examples.*|More examples)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class RulePage:
    """The page of a rule.

    ``paragraphs`` are their first words, those in bold, and the others, in plain text; ``markdown``
    is the whole file.
    """

    id: str
    title: str
    paragraphs: tuple[tuple[str, str], ...]
    markdown: str

    @property
    def what(self) -> str:
        """Return exactly what the rule refuses or allows, in sentences that begin with a verb."""
        return " ".join(self.paragraphs[0])

    @property
    def why(self) -> str:
        """Return why the compiler has it, as a clause after *because*; empty if that is open."""
        return self._paragraph("Because")

    @property
    def lever(self) -> str | None:
        """Return the page's advice as a phrase after *you can*, None if it has none."""
        return self._paragraph("You can") or None

    @property
    def source(self) -> str:
        """Return file and function in XLA."""
        return self._paragraph("Source")

    def _paragraph(self, heading: str) -> str:
        return dict(self.paragraphs).get(heading, "").rstrip(".")

    @property
    def introduction(self) -> str:
        """Return the part of the file before the examples."""
        return _HEADING.split(self.markdown, 1)[0]

    @property
    def first_examples(self) -> tuple[Example, ...]:
        """Return those under the first heading."""
        return self._examples_under("Examples")

    @property
    def examples(self) -> tuple[Example, ...]:
        """Return all but those for the rules of other versions or backends."""
        return self._examples_under("Examples", "More examples")

    def examples_for(self, condition: str) -> tuple[Example, ...]:
        """Return those under *Examples OTHER*, such as *Examples on GPUs*."""
        return self._examples_under(f"Examples {condition}")

    def _examples_under(self, *headings: str) -> tuple[Example, ...]:
        parts = _HEADING.split(self.markdown)[1:]
        sections = zip(parts[::2], parts[1::2], strict=True)
        texts = (text for heading, text in sections if heading in headings)
        return tuple(chain.from_iterable(map(find_examples, texts)))


@cache
def page_ids() -> tuple[str, ...]:
    """Return the ids of all rules, sorted."""
    return tuple(sorted(file.stem for file in _PAGES.glob("*.md")))


def check_id(id: str) -> str:
    """Return the id of a rule. Raises ``UnusableInput`` if no rule has it."""
    ids = page_ids()
    if id in ids:
        return id
    from difflib import get_close_matches

    close = ", ".join(get_close_matches(id, ids, 3, 0.4)) or ", ".join(ids[:3])
    raise UnusableInput(
        f"no rule is called {quoted(id)}, expected one such as {close}",
        hint="fusionscope rules lists them all",
    )


@cache
def read_page(id: str) -> RulePage:
    """Return the page of a rule. Raises ``UnusableInput`` if no rule has this id."""
    markdown = (_PAGES / f"{check_id(id)}.md").read_text(encoding="utf-8")
    introduction = _HEADING.split(markdown, 1)[0]
    paragraphs = _PARAGRAPH.findall(introduction)
    return RulePage(
        id=id,
        title=introduction.partition("\n")[0].removeprefix(f"# {id}: "),
        paragraphs=tuple((heading, _plain(text)) for heading, text in paragraphs),
        markdown=markdown,
    )


def _plain(markdown: str) -> str:
    return " ".join(markdown.replace("`", "").split())


def read_examples(id: str, condition: str = "") -> tuple[Example, ...]:
    """Return the examples of a rule, or those for the rules of other versions or backends."""
    page = read_page(id)
    return page.examples_for(condition) if condition else page.examples


def find_title(id: str) -> str | None:
    """Return the title of a rule, or None if no rule has this id."""
    return read_page(id).title if id in page_ids() else None
