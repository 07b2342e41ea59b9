"""Makes the site of mkdocs.yml from pages wherever they are in the checkout.

Each page and file keeps its path, so a link leads to the same place on the site as in the checkout.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from fusionscope.report.rules import list_to_markdown, page_to_markdown
from fusionscope.rules.facts import all_facts, find_facts

ROOT = Path(__file__).resolve().parent.parent
RULES = "fusionscope/rules/pages"
PAGES = (
    "*.md", "docs/**/*.md", f"{RULES}/*.md", "benchmarks/*.md", "samples/*.md",
    "tools/conformance/*.md", "skills/*/*.md",
)  # fmt: skip
LINK = re.compile(r"""(?:\]\(|href="|src=")([^)"#:]+)[)"#]""")
# One page each, too many to list in mkdocs.yml.
LISTED = {"Rules": RULES, "Recipes": "docs/recipes"}


def on_config(config: MkDocsConfig) -> None:
    for section in config.nav:
        for title, entries in section.items():
            if title in LISTED:
                pages = sorted((ROOT / LISTED[title]).glob("[a-z]*.md"))
                entries.extend(page.relative_to(ROOT).as_posix() for page in pages)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    theme = [file for file in files if file.src_dir != config.docs_dir]
    pages = [page for pattern in PAGES for page in sorted(ROOT.glob(pattern))]
    linked = sorted({file for page in pages for file in _linked_files(page)})
    own_paths = [path.relative_to(ROOT).as_posix() for path in [*pages, *linked]]
    paths = [*own_paths, *config.extra_css]
    own = (File(path, str(ROOT), config.site_dir, config.use_directory_urls) for path in paths)
    return Files([*theme, *own])


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Add what the classes of rules say: to the page of a rule its thresholds and versions, to the
    index of rules their table.
    """
    path = Path(page.file.src_uri)
    if path.parent == Path(RULES):
        return page_to_markdown(find_facts(path.stem))
    if path == Path("docs/rules.md"):
        return f"{markdown}\n{list_to_markdown(all_facts(), f'../{RULES}/')}"
    return markdown


def on_post_build(config: MkDocsConfig) -> None:
    """Write llms.txt where agents look for it, with the addresses of pages."""
    text = (ROOT / "docs" / "llms.txt").read_text(encoding="utf-8")
    pages = re.sub(r"\]\((\S+?)(?:/index)?\.md\)", r"](\1/)", text)
    Path(config.site_dir, "llms.txt").write_text(pages, encoding="utf-8")


def _linked_files(page: Path) -> Iterator[Path]:
    """The files, other than pages, that a page links to."""
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        target = (page.parent / link).resolve()
        if target.is_file() and target.suffix != ".md":
            yield target
