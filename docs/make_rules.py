"""Writes docs/rules/: one page a rule, from the rules themselves.

python docs/make_rules.py
"""

from pathlib import Path

from fusionscope.report.rules import list_to_markdown, page_to_markdown
from fusionscope.rules.catalogue import all_rules

DOCS = Path(__file__).parent / "rules"
INTRODUCTION = """# The compiler's fusion rules

There is one page per rule, grouped by pass, in the order in which the pass applies them.
`fusionscope rules ID` prints the same page, and [verify](../verify.md) shows how far the rules
agree with the compiler. `python docs/make_rules.py` generates these files.

"""


def pages() -> dict[str, str]:
    """File names and their text."""
    rules = all_rules()
    index = {"README.md": INTRODUCTION + list_to_markdown(rules)}
    return index | {f"{page.rule.id}.md": page_to_markdown(page) for page in rules}


if __name__ == "__main__":
    DOCS.mkdir(exist_ok=True)
    for old in DOCS.glob("*.md"):
        old.unlink()
    for name, text in pages().items():
        (DOCS / name).write_text(text, encoding="utf-8")
