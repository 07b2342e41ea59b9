"""Prints the figures of the code itself: lines, options, names, searches, arrows between folders.

With BASE, a git revision, the same figures of that revision stand beside them. Nothing here is a
problem; what must not grow is tested in tests/test_variable_names.py and tests/test_package.py.
"""

from __future__ import annotations

import ast
import re
import subprocess
import tempfile
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from conformance.findings import ROOT, Finding, note

PRONOUNS = frozenset(
    """asked called chosen counted done each found given held its kept known looked made meant
    met missing named needed one ones other others own picked put rest said seen shown taken that
    these this those told tried used wanted written""".split()
)
SEARCHES = {"pop", "popleft"}


def sources(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*.py")) if "__pycache__" not in path.parts)


def lines(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text("utf-8").splitlines()) for path in paths)


def words(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text("utf-8").split()) for path in paths)


def variables(tree: ast.AST) -> Iterator[str]:
    """The name of each variable that is bound, of each parameter, and of each field."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def pronouns(paths: Iterable[Path]) -> tuple[int, int]:
    """How many variables are called by a pronoun or a participle, and how many there are."""
    names = Counter(chain.from_iterable(variables(ast.parse(path.read_text())) for path in paths))
    return sum(names[name] for name in PRONOUNS), names.total()


def structs(path: Path) -> Iterator[tuple[int, str]]:
    """The number of fields of each class that declares some."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef):
            yield sum(isinstance(line, ast.AnnAssign) for line in node.body), node.name


def searches(path: Path) -> int:
    """The hand-written graph searches: loops over a stack or queue that they fill themselves."""
    loops = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.While))
    return sum(
        isinstance(node.test, ast.Name)
        and any(
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr in SEARCHES
            and isinstance(call.func.value, ast.Name)
            and call.func.value.id == node.test.id
            for call in ast.walk(node)
        )
        for node in loops
    )


def imports(root: Path) -> dict[str, set[str]]:
    """The modules of the package that each of its modules imports when it is imported itself."""
    names = {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sources(root / "fusionscope")
    }
    return {name: set(_imported(path, names)) - {name} for name, path in names.items()}


def _imported(path: Path, names: Iterable[str]) -> Iterator[str]:
    pending: list[ast.AST] = [ast.parse(path.read_text())]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield from (module for module in (name, node.module) if module in names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not (
            isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        ):
            pending.extend(ast.iter_child_nodes(node))


def circles(arrows: dict[str, set[str]]) -> int:
    """The modules that cannot be put in an order because they import each other. A package is
    imported before its modules, so it counts only where it imports one that imports it."""
    remaining = {name: set(targets) for name, targets in arrows.items()}
    while free := [name for name, targets in remaining.items() if not targets & remaining.keys()]:
        for name in free:
            del remaining[name]
    return len(remaining)


def upward(root: Path, arrows: dict[str, set[str]]) -> int:
    """The imports from a folder of a later layer."""
    text = (root / "tests" / "test_package.py").read_text()
    layers = re.findall(r'"(\w+)"', text.partition("LAYERS = (")[2].partition(")")[0])
    ranks = {layer: rank for rank, layer in enumerate(layers)}

    def rank(module: str) -> int:
        return ranks.get(module.split(".")[1] if "." in module else "", -1)

    return sum(
        rank(target) > rank(source) >= 0 for source, targets in arrows.items() for target in targets
    )


def options(root: Path) -> Iterator[tuple[str, int]]:
    """How many options each command has, by its generated page."""
    page = (root / "docs" / "commands.md").read_text("utf-8")
    for part in re.split(r"^## ", page, flags=re.M)[1:]:
        yield part.partition("\n")[0], len(re.findall(r"^\| `-", part, re.M))


def figures(root: Path) -> Iterator[tuple[str, str]]:
    package = list(sources(root / "fusionscope"))
    for name in ("fusionscope", "tools", "tests"):
        yield f"lines of {name}/", f"{lines(sources(root / name)):,}"
    yield "files of explain/", str(len(list(sources(root / "fusionscope" / "explain"))))
    size, name = max(chain.from_iterable(structs(path) for path in package))
    yield "fields of the largest struct", f"{size} ({name})"
    yield "graph searches by hand", str(sum(searches(path) for path in package))
    arrows = imports(root)
    yield "modules in circles", str(circles(arrows))
    yield "arrows upwards", str(upward(root, arrows))
    yield "words of README", f"{words([root / 'README.md']):,}"
    yield "words of docs/", f"{words((root / 'docs').rglob('*.md')):,}"
    for command, count in sorted(options(root), key=lambda item: -item[1])[:5]:
        yield f"options of {command}", str(count)
    for folder in sorted({path.parent for path in (root / "fusionscope").glob("*/*.py")}):
        yield f"pronouns in {folder.name}/", _share(*pronouns(sources(folder)))
    for name in ("fusionscope", "tools", "tests"):
        yield f"pronouns in {name}/ in all", _share(*pronouns(sources(root / name)))


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %"


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("base", nargs="?", metavar="BASE", help="a git revision to compare with")


def findings(options: Namespace) -> Iterator[Finding]:
    before: dict[str, str] = {}
    if options.base:
        with tempfile.TemporaryDirectory() as folder:
            archive = subprocess.run(
                ["git", "archive", options.base], cwd=ROOT, stdout=subprocess.PIPE, check=True
            )
            subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
            before = dict(figures(Path(folder)))
    for name, figure in figures(ROOT):
        yield note(f"{name:36} {before.get(name, ''):>16} {figure:>16}")
