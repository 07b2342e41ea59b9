"""What there is to say of each rule: what ``fusionscope rules`` and docs/rules/ show.

It is kept in ``pages.json``, so that a page is shown without loading the passes of all versions.
``make docs`` writes that file from the rules themselves.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusionscope.errors import UnusableInput, quoted
from fusionscope.rules.examples import Example, read_examples

_PAGES = "pages.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class RulePage:
    """One rule, in the form of the newest version; ``id`` to ``is_legality`` are as in ``Rule``.

    ``versions`` are those of jaxlib in which it was active, none for a cause. ``thresholds`` are
    its numbers by name, ``older_thresholds`` those of versions with other values.
    ``can_be_left_out`` is whether disabling it can change fusion.
    """

    id: str
    title: str
    what: str
    why: str
    lever: str | None
    source: str
    message: str
    is_legality: bool
    pass_name: str
    backend: str
    versions: tuple[str, ...]
    thresholds: dict[str, int]
    older_thresholds: dict[str, dict[str, int]]
    can_be_left_out: bool
    examples: tuple[Example, ...]


def all_pages() -> tuple[RulePage, ...]:
    """Return all pages in the order of the passes and, within one, of the compiler; then the
    causes.
    """
    return tuple(map(_page, _read()))


def legality_rules() -> frozenset[str]:
    """Return the ids of the rules without which there is no code, or a wrong one."""
    return frozenset(page["id"] for page in _read() if page["is_legality"])


def find_page(id: str) -> RulePage:
    """Return the page of a rule. Raises ``UnusableInput`` if no rule has this id."""
    pages = {page["id"]: page for page in _read()}
    if id in pages:
        return _page(pages[id])
    from difflib import get_close_matches

    ids = list(pages)
    close = ", ".join(get_close_matches(id, ids, 3, 0.4)) or ", ".join(ids[:3])
    raise UnusableInput(
        f"no rule is called {quoted(id)}, expected one such as {close}",
        hint="fusionscope rules lists them all",
    )


def _read() -> list[dict[str, Any]]:
    pages: list[dict[str, Any]] = json.loads(
        Path(__file__).with_name(_PAGES).read_text(encoding="utf-8")
    )
    return pages


def _page(fields: dict[str, Any]) -> RulePage:
    versions = tuple(fields.pop("versions"))
    return RulePage(**fields, versions=versions, examples=read_examples(fields["id"]))
