"""The facts that ``fusionscope rules`` and the documentation add to the page of a rule."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from fusionscope.rules.pages import RulePage, check_id, read_page
from fusionscope.system.kept import code_digest, keep, read_kept

_NAME = "rules"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFacts:
    """One rule: its page, and the facts about it in the form of the newest version.

    ``message`` and ``is_legality`` are as in ``Rule``. ``versions`` are those of jaxlib in which it
    was active, none for a cause. ``thresholds`` are its numbers by name, ``older_thresholds`` those
    of versions with other values. ``can_be_left_out`` is whether disabling it can change fusion.
    ``accuracy`` says how often a rule was right that was found by experiment; empty for others.
    """

    id: str
    message: str
    is_legality: bool
    pass_name: str
    backend: str
    versions: tuple[str, ...] = ()
    thresholds: dict[str, int]
    older_thresholds: dict[str, dict[str, int]]
    can_be_left_out: bool = False
    accuracy: str = ""

    @property
    def page(self) -> RulePage:
        return read_page(self.id)


def all_facts() -> tuple[RuleFacts, ...]:
    """Return all rules in the order of the passes and, within one, of the compiler; then the
    causes. Collecting them imports the rules of all versions, so they are cached.
    """
    digest = code_digest()
    if (cached := read_kept(_NAME, digest)) is not None:
        return tuple(
            RuleFacts(**row | {"versions": tuple(row["versions"])}) for row in json.loads(cached)
        )
    from fusionscope.rules.catalogue import collect_facts

    facts = tuple(collect_facts())
    keep(_NAME, digest, json.dumps([asdict(rule) for rule in facts]).encode())
    return facts


def find_facts(id: str) -> RuleFacts:
    """Return the facts about a rule. Raises ``UnusableInput`` if no rule has this id."""
    check_id(id)
    return next(facts for facts in all_facts() if facts.id == id)
