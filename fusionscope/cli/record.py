"""``fusionscope record -- COMMAND``."""

from __future__ import annotations

import re
import shutil
import signal
import sys
from contextlib import redirect_stdout
from pathlib import Path

import click

from fusionscope.cli import explain
from fusionscope.cli.output import directory_option
from fusionscope.cli.streams import show_problem
from fusionscope.errors import UnusableInput
from fusionscope.words.text import plural, size

_PYTHON = re.compile(r"python[\d.]*")
# A caller that sends one of these does not wait for an explanation.
_ENDING = {signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}


@click.command(name="record", context_settings={"allow_interspersed_args": False})
@directory_option(
    "fusionscope-dump", "Where to write the dump: a new or empty directory.", picks_free=True
)
@click.option("--modules", metavar="GLOB", help="Dump only modules with such a name.")
@click.option(
    "--first", type=click.IntRange(1), metavar="N", help="Keep the first N modules in the end."
)
@click.option(
    "--largest", type=click.IntRange(1), metavar="N", help="Keep the N largest modules in the end."
)
@click.argument("program", metavar="[--] COMMAND", nargs=-1, required=True)
def command(
    output: Path,
    modules: str | None,
    first: int | None,
    largest: int | None,
    program: tuple[str, ...],
) -> int:
    """Run a program, dump what XLA compiles for it, and explain the module that matters.

    COMMAND is any command that compiles with XLA: python train.py, python -m package, pytest. The
    dump's flags are added to XLA_FLAGS, for this run alone, and JAX's compilation cache is off. The
    program's output, input, signals and exit code are its own; what fusionscope says goes to the
    error stream.

    \b
    Examples:
      fusionscope record -- python train.py --steps 2
      fusionscope record --output dump -- python -m package.train
      fusionscope record --modules 'jit_step*' -- pytest tests/test_model.py
      fusionscope record --largest 3 -- torchrun train.py
    """
    from fusionscope.capture.recording import Filter, record

    recorded = record(program, output, Filter(modules, first, largest), show_problem)
    code = recorded.ran.code
    if code:
        show_problem(f"{program[0]} {_end_in_words(code)}")
    if recorded.modules:
        show_problem(
            f"{plural(recorded.modules, 'module')}, {size(recorded.bytes)}: "
            f"fusionscope explain {output}"
        )
        if not _ENDING & set(recorded.ran.signals):
            _explain(output, program[0])
    return code if code >= 0 else 128 - code


def _end_in_words(code: int) -> str:
    if code > 0:
        return f"ended with exit code {code}"
    return f"was ended by {signal.Signals(-code).name}"


def _explain(dump: Path, program: str) -> None:
    """Print what ``explain`` prints of the dump. Recipes are tried by the program's own Python."""
    from fusionscope.capture.recording import search_path

    path = (
        shutil.which(program, path=search_path()) if _PYTHON.fullmatch(Path(program).name) else None
    )
    words = [str(dump), "--python", path or sys.executable]
    with redirect_stdout(sys.stderr):
        try:
            explain.command.main(
                words,
                "explain",
                standalone_mode=False,
                parent=click.get_current_context().parent,
            )
        except UnusableInput as problem:  # the exit code is the program's
            show_problem(str(problem))
