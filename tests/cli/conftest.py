"""What the tests of commands share: a command run in this process, as users run it."""

import gc
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from fusionscope.cli.main import main


class Result(NamedTuple):
    code: int
    out: str
    errors: str


@pytest.fixture
def run(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any
) -> Iterator[Any]:
    """Runs the console script in this process, with the command that the file is about."""
    command = request.path.stem.removeprefix("test_")
    monkeypatch.delenv("COLUMNS", raising=False)

    def call(*arguments: object, **environment: str) -> Result:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["fusionscope", command, *map(str, arguments)])
        with pytest.raises(SystemExit) as leaving:
            main()
        sys.stdout.flush()
        out, errors = capfdbinary.readouterr()
        return Result(int(leaving.value.code or 0), out.decode(), errors.decode())

    yield call
    gc.enable()  # which a command turns off
