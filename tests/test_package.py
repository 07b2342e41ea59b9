"""What the package is: its names, its layers, what it imports, what stands in its files."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

import fusionscope
from fusionscope.doctor import doctor

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "fusionscope"
SOURCES = sorted(PACKAGE.rglob("*.py"))

# Each imports only from those before it.
LAYERS = (
    "system", "hlo", "dump", "history", "graph", "gpu", "passes", "user_order", "versions",
    "rules", "words", "verify", "facts", "reasons", "findings", "what_if", "explain", "compare",
    "page", "capture", "rerun", "advise", "tune", "bisect", "study", "experiments", "sketch",
    "upgrade", "doctor", "check", "survey", "report", "bundle",
    "agents", "cli",
)  # fmt: skip
WITH_JAX = ("capture", "rerun")
EXTRAS = set(
    "fsspec jax jax_plugins jaxlib jinja2 mcp numpy "
    "pyarrow pytest resvg_py scipy torch torchax".split()
)


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text())))


@cache
def imports(path: Path) -> set[str]:
    """Every module that a file imports, at its top or inside a function."""
    names = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def folder(path: Path) -> str | None:
    """The layer that a file belongs to; None for those that lie beside the layers."""
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else None


def tracked() -> list[Path]:
    """The files of the project: whatever else lies in a clone, such as an environment, is not."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no git checkout")
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_these_names_are_the_library():
    assert fusionscope.__all__ == [
        "Applied",
        "Captured",
        "Changes",
        "Computation",
        "Difference",
        "Dump",
        "DumpedModule",
        "Explanation",
        "History",
        "Instruction",
        "Module",
        "ModuleFacts",
        "OpenedDump",
        "PairFacts",
        "PairPattern",
        "Selection",
        "Shape",
        "Stage",
        "UnusableInput",
        "Verification",
        "__version__",
        "apply",
        "capture_dump",
        "capturing",
        "diff",
        "open",
        "parse",
        "to_frame",
        "to_text",
    ]


@pytest.mark.parametrize("name", fusionscope.__all__)
def test_each_name_is_what_its_folder_defines(name):
    definition = getattr(fusionscope, name)
    if name != "__version__":
        assert (
            getattr(importlib.import_module(definition.__module__), definition.__name__)
            is definition
        )


def test_names_stay_when_the_folders_are_imported():
    lines = (
        "import fusionscope, fusionscope.explain, fusionscope.dump, fusionscope.hlo",
        "from fusionscope import *",
        "assert all(callable(name) for name in (diff, fusionscope.open, parse, to_text))",
    )
    subprocess.run([sys.executable, "-c", "\n".join(lines)], cwd=ROOT, check=True)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="fuse_all"):
        _ = fusionscope.fuse_all


def test_importing_the_package_imports_nothing_heavy():
    code = "import sys; old = set(sys.modules); import fusionscope; print(*set(sys.modules) - old)"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in result.stdout.split()}
    assert loaded - sys.stdlib_module_names == {"fusionscope"}
    assert "fusionscope.hlo" not in result.stdout


def is_dataclass(node: ast.ClassDef) -> bool:
    return any(ast.unparse(item).startswith("dataclass") for item in node.decorator_list)


def has_fields(node: ast.ClassDef) -> bool:
    annotated = (item for item in node.body if isinstance(item, ast.AnnAssign))
    return any("ClassVar" not in ast.unparse(item.annotation) for item in annotated)


def test_a_class_that_adds_no_fields_is_not_made_a_dataclass_again():
    """Each time takes a third of a millisecond when the file is imported."""
    classes = [
        (path, node) for path in SOURCES for node in nodes(path) if isinstance(node, ast.ClassDef)
    ]
    assert classes and not [
        f"{path}: {node.name}"
        for path, node in classes
        if node.bases and is_dataclass(node) and not has_fields(node)
    ]


def test_version():
    result = subprocess.run(
        [sys.executable, "-m", "fusionscope", "--version"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == f"fusionscope, version {fusionscope.__version__}\n"


def test_a_folder_imports_only_those_above_it():
    for path in SOURCES:
        if (layer := folder(path)) is None:
            continue
        allowed = {*LAYERS[: LAYERS.index(layer) + 1], "errors", "grouping", "progress"}
        for name in imports(path):
            package, _, remaining = name.partition(".")
            if package == "fusionscope" and remaining != "__version__":
                assert remaining.partition(".")[0] in allowed, f"{path} imports {name}"


def test_extras_are_documented_and_tried():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"])
    for_users = extras - {"test", "dev", "docs"}
    page = (ROOT / "docs" / "doctor.md").read_text().partition("## The extras")[2]
    rows = re.findall(r"^\| (`.+?) \|", page.partition("\n## ")[0], re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == extras
    install = (ROOT / "README.md").read_text().partition("## Install")[2].partition("\n## ")[0]
    assert for_users <= set(re.findall(r"(?<=`)\w+(?=`)|(?<=\[)\w+(?=\]')", install))
    assert set(doctor.WITHOUT) == for_users


def test_each_extra_that_is_named_exists():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    by_name = set()
    for path in tracked():
        if path.suffix in (".md", ".py", ".toml", "") and "dumps" not in path.parts:
            for names in re.findall(
                r"(?:fusionscope|[ '\"]\.)\[([a-z,]+)\]['\"]", path.read_text()
            ):
                by_name |= set(names.split(","))
    assert {"cuda", "docs", "jax", "report", "test"} <= by_name
    assert by_name <= set(project["optional-dependencies"])


def test_the_version_is_the_same_everywhere():
    version = fusionscope.__version__
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert re.search(rf"^## \[{re.escape(version)}\]", (ROOT / "CHANGELOG.md").read_text(), re.M)


# A quantifier with a plus behind it, and an atomic group: CPython before 3.11.5 gets them wrong.
POSSESSIVE = re.compile(r"(?<!\\)[*+?}]\+|\(\?>")


def strings(path: Path) -> set[str]:
    """Every string of a source file, and the parts between the values of an f-string."""
    return {
        node.value
        for node in nodes(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_no_pattern_is_possessive():
    texts = [(path, string) for path in SOURCES for string in strings(path)]
    assert texts and not [text for text in texts if POSSESSIVE.search(text[1])]


def test_no_terminal_is_possessive():
    lines = (ROOT / "grammars" / "hlo.lark").read_text().split("\n")
    assert not [line for line in lines if POSSESSIVE.search(line)]


@pytest.mark.parametrize("pattern", [r"a*+", r"a++", r"(?:a|b)?+", r"\d{1,9}+", r"(?>a)", "x ++"])
def test_possessive_patterns_are_found(pattern):
    assert POSSESSIVE.search(pattern)


def test_jax_stays_outside():
    for path in SOURCES:
        jax_modules = {name.partition(".")[0] for name in imports(path)} & {"jax", "jaxlib"}
        is_script = path == PACKAGE / "dump" / "proto_printer.py"  # run in a process of its own
        assert not jax_modules or folder(path) in WITH_JAX or is_script, path


def test_networkx_is_imported_where_a_graph_is_asked_for():
    """It takes ten times as long to import as Python to start."""
    modules = (path.relative_to(ROOT).with_suffix("") for path in SOURCES)
    names = [".".join(path.parts) for path in modules if path.parts[1] in ("cli", "explain")]
    lines = (
        f"import sys, {', '.join(name for name in names if not name.endswith('__main__'))}",
        "assert 'networkx' not in sys.modules",
    )
    subprocess.run([sys.executable, "-c", "\n".join(lines)], cwd=ROOT, check=True)


# The only files that open others: our own grammar and pages, and scripts that run under a Python
# without fusionscope.
OPENING_FILES = {
    "capture/child.py",
    "capture/compiler_child.py",
    "capture/threads.py",
    "hlo/grammar.py",
    "rerun/runner.py",
    "rerun/workbench_child.py",
    "rules/pages.py",
    "system/files.py",
    "system/forks.py",
}
OPENING = re.compile(r"^open$|\.(open|fdopen|read_text|read_bytes|write_text|write_bytes)$")
# Of archives; of /dev/null; of an installed package.
HARMLESS = {"archive.open", "tarfile.open", "os.open", "installed.read_text"}


def calls(path: Path) -> Iterator[ast.Call]:
    return (node for node in nodes(path) if isinstance(node, ast.Call))


def test_files_are_opened_in_one_place():
    names = {path: path.relative_to(PACKAGE).as_posix() for path in SOURCES}
    assert set(names.values()) >= OPENING_FILES
    for path in SOURCES:
        for call in calls(path) if names[path] not in OPENING_FILES else ():
            function = ast.unparse(call.func)
            opens = OPENING.search(function) and "Path(__file__)" not in function  # our own tables
            assert not opens or function in HARMLESS, f"{names[path]}:{call.lineno}: {function}"


def test_errors_quote_values_in_one_way():
    """By ``quoted``, and not by ``!r``, which shows all of a value."""
    for path in SOURCES:
        for call in calls(path):
            if getattr(call.func, "id", "") == "UnusableInput":
                values = [part for part in ast.walk(call) if isinstance(part, ast.FormattedValue)]
                assert all(value.conversion == -1 for value in values), f"{path}:{call.lineno}"


def test_dependencies_are_those_that_are_imported():
    project = (ROOT / "pyproject.toml").read_text()
    listed = re.search(r"^dependencies = \[(.*?)^\]", project, re.DOTALL | re.MULTILINE)
    assert listed is not None
    declared = {name.replace("-", "_") for name in re.findall(r'"([a-z-]+)', listed[1])}
    used = {name.partition(".")[0] for path in SOURCES for name in imports(path)}
    foreign = used - sys.stdlib_module_names - {"fusionscope"}
    assert foreign - EXTRAS == declared


def test_the_recipe_for_conda_is_that_of_the_project():
    recipe = yaml.safe_load((ROOT / "packaging" / "conda" / "recipe.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert recipe["context"]["version"] == fusionscope.__version__
    assert recipe["about"]["license"] == project["license"]
    (script,) = project["scripts"].items()
    assert recipe["build"]["python"]["entry_points"] == [" = ".join(script)]
    python, *packages = recipe["requirements"]["run"]
    assert python == "python >=${{ python_min }}"
    assert [name.replace(" ", "") for name in packages] == project["dependencies"]


# Paths of one machine and hosts of package registries, put together so that this file has none.
FOREIGN = re.compile(
    "|".join((r"/wo" + "rk/", r"/ro" + "ot/", r"py" + r"pi\.org", r"python" + r"hosted\."))
)


def test_no_file_names_a_machine_or_a_registry():
    foreign_names = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in tracked()
        if (match := FOREIGN.search(path.read_bytes().decode("utf-8", "replace")))
    ]
    assert not foreign_names
