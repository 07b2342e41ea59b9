"""The checks of tools/conformance can be run, and what they yield is counted."""

from importlib import import_module
from pathlib import Path

import pytest
from conformance.__main__ import checks, main
from conformance.findings import Finding, counted, note, problem, report

FOLDER = Path(__file__).resolve().parent.parent / "tools" / "conformance"
MODULES = sorted(file.stem for file in FOLDER.glob("*.py") if not file.stem.startswith("__"))


@pytest.mark.parametrize("name", MODULES)
def test_a_module_finds_what_it_imports(name: str) -> None:
    try:
        import_module(f"conformance.{name}")
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in ("jax", "jaxlib"):
            raise
        pytest.skip("needs jax")


def test_the_page_names_every_check_and_module() -> None:
    page = (FOLDER / "README.md").read_text()
    names = {*checks(), *(f"{name}.py" for name in {*MODULES} - checks().keys())}
    assert [name for name in sorted(names) if f"`{name}`" not in page] == []


@pytest.mark.parametrize("name", checks())
def test_every_check_says_what_it_is(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        with pytest.raises(SystemExit, match="0"):
            main([name, "--help"])
    except ModuleNotFoundError as missing:
        assert (missing.name or "").partition(".")[0] in ("jax", "jaxlib")
        pytest.skip("needs jax")
    assert checks()[name] in capsys.readouterr().out


@pytest.mark.parametrize(
    ("findings", "code", "printed"),
    [
        ([counted("alike", "a line"), counted("alike")], 0, ["          2  alike", "0 problems"]),
        (
            [counted("alike"), problem("others", "b is c")],
            1,
            ["b is c", "          1  alike", "          1  others", "1 problems"],
        ),
        ([note("it is written")], 0, ["it is written"]),
        ([], 1, ["nothing was checked"]),
    ],
)
def test_problems_make_the_exit_code(
    findings: list[Finding], code: int, printed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(findings, is_verbose=False) == code
    assert capsys.readouterr().out.splitlines() == printed
