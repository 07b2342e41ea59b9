"""What there is to say of each rule: what ``fusionscope rules`` and docs/rules/ show."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from fusionscope.dump.fusion_passes import Purpose, find_fusion_pass
from fusionscope.errors import UnusableInput, quoted
from fusionscope.passes.causes import CAUSES, Cause
from fusionscope.passes.cpu.multi_output_fusion.rules import MultiOutputLegal
from fusionscope.passes.rule import Rule
from fusionscope.rules.examples import Example, read_examples
from fusionscope.versions import known


@dataclass(frozen=True, slots=True, kw_only=True)
class RulePage:
    """One rule, as the newest version has it.

    ``versions`` are those of jaxlib in which it was seen at work, none for a cause, ``thresholds``
    its numbers by name, ``older_thresholds`` those of versions that have others.
    """

    rule: Rule
    pass_name: str
    backend: str
    versions: tuple[str, ...]
    thresholds: dict[str, int]
    older_thresholds: dict[str, dict[str, int]]
    examples: tuple[Example, ...]

    @property
    def can_be_left_out(self) -> bool:
        """Whether leaving it out can change what is fused: wrapping one operation fuses nothing,
        no fusion can be formed against what makes it legal, and a cause is in no book."""
        if isinstance(self.rule, Cause):
            return False
        purpose = find_fusion_pass(self.pass_name, self.backend).purpose
        return purpose is not Purpose.WRAPS and self.rule.id != MultiOutputLegal.id


def all_rules() -> tuple[RulePage, ...]:
    """In the order of the passes and, within one, in the compiler's own; then the causes."""
    return (*map(_page, known.all_rules()), *map(_page_of_cause, CAUSES))


def find_rule(id: str) -> RulePage:
    """Raises ``UnusableInput`` where no rule has this id."""
    rule = known.find_rule(id)
    if rule is not None:
        return _page(rule)
    for cause in CAUSES:
        if cause.id == id:
            return _page_of_cause(cause)
    ids = [rule.id for rule in known.all_rules()] + [cause.id for cause in CAUSES]
    close = ", ".join(get_close_matches(id, ids, 3, 0.4)) or ", ".join(ids[:3])
    raise UnusableInput(
        f"no rule is called {quoted(id)}, expected one such as {close}",
        hint="fusionscope rules lists them all",
    )


def _page(rule: Rule) -> RulePage:
    books = list(known.books_at_work(rule.id))
    older: dict[str, dict[str, int]] = {}
    for release, book in books:
        found = book.find(rule.id)
        if found is not None and found.thresholds != rule.thresholds:
            older[release] = found.thresholds
    newest = books[0][1]
    return RulePage(
        rule=rule,
        pass_name=newest.pass_name,
        backend=newest.backend,
        versions=tuple(sorted({release for release, _ in books}, key=_numbers)),
        thresholds=rule.thresholds,
        older_thresholds=older,
        examples=read_examples(rule.id),
    )


def _page_of_cause(cause: type[Cause]) -> RulePage:
    return RulePage(
        rule=cause(),
        pass_name=cause.pass_name,
        backend=cause.backend,
        versions=(),
        thresholds={},
        older_thresholds={},
        examples=(),
    )


def _numbers(version: str) -> tuple[int, ...]:
    """To sort by; what is called by the year, since it was seen without jax, comes first."""
    return tuple(int(part) for part in version.split(".")) if "." in version else ()
