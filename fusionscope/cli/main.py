"""``fusionscope``: the group of commands, each imported when it is called."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click
from click.core import ParameterSource

from fusionscope import __version__
from fusionscope.cli.streams import discard_output, show_problem
from fusionscope.errors import UnusableInput, did_you_mean, quoted
from fusionscope.system.signals import end_in_order

# Command names and one line on each; the file of the same name defines ``command``.
COMMANDS = {
    "explain": "Show which operations were fused into one kernel, and why (not).",
    "what-if": "Show what would be fused under changed rules, or on another GPU.",
    "experiment": "Ask the compiler what must change for a refused pair to be fused.",
    "draw": "Draw kernels with their neighbours.",
    "history": "Show how fusions formed pass by pass, or trace one instruction.",
    "diff": "Compare two files, two stages or two dumps.",
    "verify": "Measure how well the replay of the compiler's rules matches a dump.",
    "report": "Write a page about a dump that opens in any browser.",
    "check": "Check dumps against expectations or a baseline, for CI.",
    "record": "Run a program, dump what XLA compiles for it, and explain that.",
    "capture": "Compile a program, even for a device that is absent, and explain its dump.",
    "upgrade": "Say what an upgrade of jaxlib changed for a program: same, better or worse.",
    "rerun": "Recompile a dumped program with the fusions that changed rules make.",
    "tune": "Search for fusions that make a dumped program faster on the local device.",
    "bisect": "Find which fusion changes the results of a program, or makes it slow.",
    "study": "Compile, run and compare versions of one program.",
    "survey": "Turn the dumps of a fleet into tables, and ask them.",
    "rules": "List the compiler's fusion rules, or print the page of one rule.",
    "recipes": "List edits of a program that help, or print the page of one.",
    "mcp": "Answer an agent's questions about dumps, by the Model Context Protocol.",
    "parse": "Parse one HLO file and print a summary.",
    "cache": "Show what is cached between runs, or remove it.",
    "doctor": "Check this installation: what works, what does not, and what to do.",
}


class _Commands(click.Group):
    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(
            f"fusionscope.cli.{name.replace('-', '_')}"
        ).command
        return command

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            hint = did_you_mean(name, COMMANDS) or "`fusionscope --help` lists all commands"
            raise UnusableInput(f"no command is called {quoted(name)}", hint=hint)
        return super().resolve_command(context, args)

    def format_commands(
        self, context: click.Context, formatter: click.HelpFormatter
    ) -> None:  # without importing any of them
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


_COLORS = {"auto": None, "always": True, "never": False}  # as click has them


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fusionscope")
@click.option("--debug", is_flag=True, help="Show a traceback on errors.")
@click.option(
    "--color",
    type=click.Choice([*_COLORS]),
    default="auto",
    show_default=True,
    help="Colors in what is printed; auto: on a terminal, unless NO_COLOR is set.",
)
@click.pass_context
def cli(context: click.Context, debug: bool, color: str) -> None:
    """Explain XLA's fusion decisions. fusionscope reads the HLO dumps of the XLA compiler and
    answers, for every producer and each of its consumers: were they fused into one kernel, and why
    (not)?

    \b
    Examples:
      fusionscope explain dump_dir/
      fusionscope what-if dump_dir/ --allow 'concatenate* -> *'
      fusionscope history dump_dir/
      fusionscope diff before_dir/ after_dir/
      fusionscope verify dump_dir/ --at-least 99.5
      fusionscope check dump_dir/ --expect fusions.toml
      fusionscope record -- python train.py
      fusionscope capture model.py:step --device h100
      fusionscope upgrade model.py:step --from 0.10.1 --to 0.12.0
      fusionscope rerun dump_dir/ --allow 'concatenate* -> *'
      fusionscope tune dump_dir/ --budget 300
      fusionscope bisect dump_dir/ --output wrong
      fusionscope study samples/cartpole
      fusionscope survey dumps/ -o tables
      fusionscope rules cpu-concat
      fusionscope recipes reduce-parts
      fusionscope parse module_0001.jit_f.before_optimizations.txt
    """
    from fusionscope.cli.defaults import default_color, defaults_of, find_defaults

    file = find_defaults(Path.cwd(), list(COMMANDS))
    if file is not None:
        if context.get_parameter_source("color") is ParameterSource.DEFAULT:
            color = default_color(file, [*_COLORS])
        context.default_map = {
            name: defaults_of(file, name, command)
            for name in _commands_of(context.invoked_subcommand)
            if (command := cli.get_command(context, name)) is not None
        }
    context.color = _COLORS[color]


def _commands_of(name: str | None) -> Iterator[str]:
    """Yield a command, and the one that it ends with."""
    if name is not None:
        yield name
    if name == "record":
        yield "explain"


def main() -> None:
    """Run the command that the command line names, and exit: with 0 on success, with 1 if the
    answer is no, with 2 on unusable input or options.
    """
    end_in_order()
    code = _run()
    try:
        if sys.stdout is not None:
            sys.stdout.flush()  # a full disk may be reported only now
    except OSError as error:
        code = _tell(error)
    sys.exit(code)


def _tell(error: OSError) -> int:
    """Report what the system refused, and return the exit code."""
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
        # The reader of a help text has closed the pipe; click responds by exiting with 1.
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
        # Files are read and written in one place, which reports its own errors. What remains is the
        # standard output, and a system without room for temporary files.
        return _tell(error)
    except MemoryError:
        show_problem("not enough memory for this input")
        return 2
    except Exception as error:
        if "--debug" in sys.argv or _is_of_another_package(error):
            raise
        show_problem(
            f"internal error ({type(error).__name__}: {error}); this is a bug in fusionscope: "
            "please report it with the output of fusionscope --debug"
        )
        return 2


def _is_of_another_package(error: Exception) -> bool:
    """Return whether a package is not installed, which ``fusionscope/__main__.py`` reports."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    return name is not None and name.partition(".")[0] != "fusionscope"
