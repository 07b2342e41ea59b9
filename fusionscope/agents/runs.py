"""What an agent may run, if its user allows that: commands of fusionscope, each in a process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fusionscope.agents.answers import bounded, call
from fusionscope.errors import UnusableInput
from fusionscope.system.processes import run_for_output
from fusionscope.system.roots import Roots

_LIMIT_S = 1_800.0


@dataclass(frozen=True, slots=True)
class Runs:
    """Commands that compile and run programs, in the first of the ``roots``. Each method raises
    ``UnusableInput``.
    """

    roots: Roots

    @property
    def tools(self) -> tuple[Callable[..., str], ...]:
        return (self.rerun, self.record)

    def rerun(
        self,
        dump: str,
        output: str,
        flags: list[str] | None = None,
        recipes: list[str] | None = None,
        allow: list[str] | None = None,
        forbid: list[str] | None = None,
    ) -> str:
        """Compile the program of a dump again with compiler `flags` (NAME=VALUE), `recipes` (ids of
        edits, as explain names them), or pairs to fuse or not (`allow`, `forbid`: 'P -> C'), and
        compare. Runs the program if its device is present. `output` is a new directory.
        """
        options = [
            *_options("flag", flags),
            *_options("recipe", recipes),
            *_options("allow", allow),
            *_options("forbid", forbid),
        ]
        words = [str(self.roots.find(dump)), *options]
        return self._run("rerun", words, output)

    def record(self, command: list[str], output: str) -> str:
        """Run a program, such as ["python", "train.py"], dump what XLA compiles for it into the new
        directory `output`, and explain the module that matters.
        """
        if not command:
            raise UnusableInput("expected a command, such as ['python', 'train.py']")
        return self._run("record", ["--", *command], output)

    def _run(self, command: str, words: Sequence[str], output: str) -> str:
        place = str(self.roots.find_new(output))
        ended, printed = run_for_output(
            # -P: a folder of the program is not taken for a package of fusionscope.
            [sys.executable, "-P", "-m", "fusionscope", command, f"--output={place}", *words],
            None,
            _LIMIT_S,
            self.roots.directories[0],
        )
        end = "took too long" if ended.is_late else f"exit code {ended.code}"
        # record says what it found on the error stream.
        return bounded(f"{end}\n{printed}\n{ended.errors}", [call("explain", dump=output)])


def _options(name: str, values: Iterable[str] | None) -> list[str]:
    return [f"--{name}={value}" for value in values or ()]
