"""Writes docs/rules/, and what fusionscope shows of rules, from the rules themselves.

python docs/make_rules.py
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fusionscope.dump.fusion_passes import Purpose, find_fusion_pass
from fusionscope.passes.causes import CAUSES, Cause
from fusionscope.passes.cpu.multi_output_fusion.rules import MultiOutputLegal
from fusionscope.passes.rule import Rule, RuleBook
from fusionscope.passes.tpu.accuracy import accuracy_of, libtpu
from fusionscope.passes.tpu.rules import PASS_NAME, TPU_RULES, TpuRule
from fusionscope.report.rules import list_to_markdown, page_to_markdown
from fusionscope.rules.catalogue import all_pages
from fusionscope.versions import known

DOCS = Path(__file__).parent / "rules"
CATALOGUE = DOCS.parents[1] / "fusionscope" / "rules" / "pages.json"
# No replay applies it, so it cannot be changed.
IN_NO_BOOK: dict[str, Any] = {
    "versions": [],
    "thresholds": {},
    "older_thresholds": {},
    "can_be_left_out": False,
}
INTRODUCTION = """# The compiler's fusion rules

There is one page per rule, grouped by pass, in the order in which the pass applies them.
`fusionscope rules ID` prints the same page, and [verify](../verify.md) shows how far the rules
agree with the compiler. `python docs/make_rules.py` generates these files.

"""


def catalogue() -> str:
    """The text of ``fusionscope/rules/pages.json``."""
    pages = [*map(page_of_rule, known.all_rules()), *map(page_of_tpu_rule, TPU_RULES)]
    pages += map(page_of_cause, CAUSES)
    return json.dumps(pages, indent=1, ensure_ascii=False) + "\n"


def page_of_rule(rule: Rule) -> dict[str, Any]:
    """The fields of ``RulePage``, but the examples."""
    books = list(books_at_work(rule.id))
    older: dict[str, dict[str, int]] = {}
    for release, book in books:
        found = book.find(rule.id)
        if found is not None and found.thresholds != rule.thresholds:
            older[release] = found.thresholds
    newest = books[0][1]
    purpose = find_fusion_pass(newest.pass_name, newest.backend).purpose
    # Wrapping one operation fuses nothing, and no fusion can be formed against what makes it legal.
    can_be_left_out = purpose is not Purpose.WRAPS and rule.id != MultiOutputLegal.id
    return texts(rule) | {
        "pass_name": newest.pass_name,
        "backend": newest.backend,
        "versions": sorted({release for release, _ in books}, key=numbers),
        "thresholds": rule.thresholds,
        "older_thresholds": older,
        "can_be_left_out": can_be_left_out,
    }


def page_of_tpu_rule(rule: TpuRule) -> dict[str, Any]:
    return texts(rule) | {
        "source": f"{rule.source}; {how_often(rule.id)}",
        "pass_name": PASS_NAME,
        "backend": "tpu",
        **IN_NO_BOOK,
    }


def page_of_cause(cause: type[Cause]) -> dict[str, Any]:
    fields = texts(cause) | {"pass_name": cause.pass_name, "backend": cause.backend, **IN_NO_BOOK}
    if accuracy_of(cause.id) is not None:
        fields["backend"] += ", tpu"
        fields["source"] += f"; for TPUs by experiment: {how_often(cause.id)}"
    return fields


def how_often(id: str) -> str:
    """How often a rule was right on TPUs."""
    return (
        f"with libtpu {libtpu()}, {accuracy_of(id)} pairs of other programs were refused as it says"
    )


def texts(rule: Rule | type[Rule]) -> dict[str, Any]:
    """What is said of every version."""
    names = ("id", "title", "what", "why", "lever", "source", "message", "is_legality")
    return {name: getattr(rule, name) for name in names}


def books_at_work(id: str) -> Iterator[tuple[str, RuleBook[Any]]]:
    """Yield the books with the rule of this ``id``, the newest first, each with the release in
    whose dumps its pass was active.
    """
    for compiler in known.all_compilers():
        for each in compiler.passes:
            if each.name not in compiler.unseen and each.book.find(id) is not None:
                yield compiler.release, each.book


def numbers(version: str) -> tuple[int, ...]:
    """To sort by; what is called by the year, since it was seen without jax, comes first."""
    return tuple(int(part) for part in version.split(".")) if "." in version else ()


def pages() -> dict[str, str]:
    """File names and their text, as the catalogue has them."""
    found = all_pages()
    index = {"README.md": INTRODUCTION + list_to_markdown(found)}
    return index | {f"{page.id}.md": page_to_markdown(page) for page in found}


if __name__ == "__main__":
    CATALOGUE.write_text(catalogue(), encoding="utf-8")
    DOCS.mkdir(exist_ok=True)
    for old in DOCS.glob("*.md"):
        old.unlink()
    for name, text in pages().items():
        (DOCS / name).write_text(text, encoding="utf-8")
