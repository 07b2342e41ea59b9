"""What the tests of commands share: a command run in this process, as users run it."""

import json
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from jsonschema import Draft202012Validator

from fusionscope.cli.main import main


class Result(NamedTuple):
    code: int
    out: str
    errors: str

    def check_refused(self, message: str) -> None:
        """The command did nothing, and says why in one line, or with its usage."""
        assert (self.code, self.out) == (2, "")
        assert message in self.errors
        assert "Traceback" not in self.errors
        if "Usage" not in self.errors:
            assert len(self.errors.splitlines()) == 1


@cache
def validator(command: str) -> Draft202012Validator:
    """Of what this command prints as JSON, by its published schema."""
    file = Path(__file__).resolve().parents[2] / "docs" / "schema" / f"{command}.json"
    schema = json.loads(file.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


@pytest.fixture
def run_command(monkeypatch: pytest.MonkeyPatch, capfdbinary: Any) -> Callable[..., Result]:
    """Runs the console script in this process. What it prints as JSON has to be as the published
    schema says."""
    monkeypatch.delenv("COLUMNS", raising=False)

    def call(command: str, *arguments: object, **environment: str) -> Result:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["fusionscope", *map(str, (command, *arguments))])
        with pytest.raises(SystemExit) as leaving:
            main()
        sys.stdout.flush()
        out, errors = capfdbinary.readouterr()
        if "json" in arguments and out.startswith(b"{"):
            schema = "self_test" if "--self-test" in arguments else command
            if command == "survey" and arguments[0] in ("report", "query"):
                schema = f"survey_{arguments[0]}"
            validator(schema).validate(json.loads(out))
        return Result(int(leaving.value.code or 0), out.decode(), errors.decode())

    return call


@pytest.fixture
def run(request: pytest.FixtureRequest, run_command: Callable[..., Result]) -> Any:
    """Runs the command that the file is about."""
    return partial(run_command, request.path.stem.removeprefix("test_"))
