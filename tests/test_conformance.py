"""The scripts of tools/conformance, which other tests do not run, can be."""

from importlib import import_module
from pathlib import Path

import pytest

SCRIPTS = sorted(
    (Path(__file__).resolve().parent.parent / "tools" / "conformance").glob("*.py"),
    key=lambda file: file.stem,
)


@pytest.mark.parametrize("name", [file.stem for file in SCRIPTS])
def test_a_script_finds_what_it_imports(name: str) -> None:
    try:
        import_module(name)
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in ("jax", "jaxlib"):
            raise
        pytest.skip("needs jax")


def test_the_page_names_every_script() -> None:
    page = (SCRIPTS[0].parent / "README.md").read_text()
    assert [file.name for file in SCRIPTS if f"`{file.name}`" not in page] == []
