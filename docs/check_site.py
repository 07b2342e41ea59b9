"""Checks the links of a built site: each to the site itself leads to a file and an anchor in it.

python docs/check_site.py build/site

Prints what links to nothing, and the addresses of other sites, which it does not look up.
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LINKS = {"a": "href", "link": "href", "img": "src", "script": "src", "source": "src"}


class Page(HTMLParser):
    """The anchors of a page, and its links."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors |= {values[name] or "" for name in ("id", "name") if name in values}
        if link := values.get(LINKS.get(tag, "")):
            self.links.append(link)


def check(site: Path) -> tuple[list[str], set[str], int]:
    """Return one line for each link to nothing, the addresses elsewhere, and how many links lead
    somewhere.
    """
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    problems, elsewhere, count = [], set(), 0
    for path, page in pages.items():
        for link in page.links:
            address = urlsplit(link)
            if address.scheme or address.netloc:
                elsewhere.add(link)
                continue
            name = unquote(address.path)
            target = site / name.lstrip("/") if name.startswith("/") else path.parent / name
            target = (target if name else path).resolve()
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(address.fragment)
            if not target.is_file():
                problems.append(f"{path.relative_to(site)}: {link}: no such file")
            elif anchor and target in pages and anchor not in pages[target].anchors:
                problems.append(f"{path.relative_to(site)}: {link}: no such anchor")
            else:
                count += 1
    return problems, elsewhere, count


def main() -> None:
    site = Path(sys.argv[1]).resolve()
    problems, elsewhere, count = check(site)
    print(*problems, *sorted(elsewhere), sep="\n")
    print(f"{count:,} links lead somewhere on the site, {len(problems)} to nothing")
    print(f"{len(elsewhere)} addresses elsewhere, listed above")
    sys.exit(1 if problems or not count else 0)


if __name__ == "__main__":
    main()
