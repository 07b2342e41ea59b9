"""``fusionscope``: the group of commands, each imported when it is called."""

from __future__ import annotations

import gc
import importlib
import sys
import traceback
from contextlib import suppress

import click

from fusionscope import __version__
from fusionscope.cli.output import discard_output, show_problem
from fusionscope.errors import UnusableInput
from fusionscope.system.processes import end_in_order

# Command names and one line on each; the file of the same name defines ``command``.
COMMANDS = {
    "explain": "Which operations were fused into one kernel, and why (not).",
    "history": "How fusions formed from pass to pass, or the life of one instruction.",
    "diff": "What differs between two files, two stages or two dumps.",
    "verify": "How far a replay of the compiler's rules agrees with what it did.",
    "check": "Hold dumps against what is expected of their fusions, for CI.",
    "capture": "Compile a program, also for a device that is not here, and explain its dump.",
    "rerun": "Compile a dumped program again, with the fusions that changed rules make.",
    "tune": "Look for fusions that make a dumped program faster on the device at hand.",
    "study": "Versions of one program, compiled, run and compared.",
    "rules": "The compiler's fusion rules, or the page of one of them.",
    "parse": "Read one HLO file and print what is in it.",
}


class _Commands(click.Group):
    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"fusionscope.cli.{name}").command
        return command

    def format_commands(
        self, context: click.Context, formatter: click.HelpFormatter
    ) -> None:  # without importing any of them
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fusionscope")
@click.option("--debug", is_flag=True, help="Show a traceback where something goes wrong.")
def cli(debug: bool) -> None:
    """Reads the HLO dumps of the XLA compiler and answers, for every producer and each of its
    consumers: were they fused into one kernel, and why (not)?

    \b
    Examples:
      fusionscope explain dump_dir/
      fusionscope history dump_dir/
      fusionscope diff before_dir/ after_dir/
      fusionscope verify dump_dir/ --at-least 99.5
      fusionscope check dump_dir/ --expect fusions.toml
      fusionscope capture model.py:step --device h100
      fusionscope rerun dump_dir/ --allow 'concatenate* -> *'
      fusionscope tune dump_dir/ --budget 300
      fusionscope study samples/cartpole
      fusionscope rules cpu-concat
      fusionscope parse module_0001.jit_f.before_optimizations.txt
    """


def main() -> None:
    """Runs the command that the command line names, and exits: with 0 where it is done, 1 where
    the answer is no, 2 on unusable input or options."""
    gc.disable()  # a command ends soon, and a quarter of its time would go into looking for garbage
    end_in_order()
    code = _run()
    try:
        if sys.stdout is not None:
            sys.stdout.flush()  # a full disk may be told this late
    except OSError as error:
        code = _tell(error)
    sys.exit(code)


def _tell(error: OSError) -> int:
    """Says what the system refused, and returns the exit code."""
    show_problem(f"{error.filename or 'standard output'}: {error.strerror or error}")
    if error.filename is None:
        discard_output()
    return 2


def _run() -> int:
    try:
        code = cli.main(standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except SystemExit as leave:
        if leave.code != 1:  # a signal
            raise
        # The reader of a help text has closed the pipe, which click answers by leaving with 1.
        discard_output()
        return 0
    except click.ClickException as error:
        with suppress(OSError, ValueError):
            error.show()
        return 2
    except (click.Abort, KeyboardInterrupt):
        return 130
    except UnusableInput as error:
        if "--debug" in sys.argv:
            traceback.print_exc()
        show_problem(str(error))
        return 2
    except OSError as error:
        # Files are read and written in one place, which tells its own errors: what is left is the
        # standard output, and a system without room for temporary files.
        return _tell(error)
    except MemoryError:
        show_problem("not enough memory for this input")
        return 2
    except Exception as error:
        if "--debug" in sys.argv or _is_of_another_package(error):
            raise
        show_problem(
            f"this is a mistake of fusionscope's own ({type(error).__name__}: {error}); "
            "please report it with what fusionscope --debug shows"
        )
        return 2


def _is_of_another_package(error: Exception) -> bool:
    """Whether a package is not installed, which ``fusionscope/__main__.py`` reports."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    return name is not None and name.partition(".")[0] != "fusionscope"
