"""Options and output functions that all commands share."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from errno import EBADF
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from fusionscope.cli.completion import complete_compiler, complete_device, complete_rule
from fusionscope.cli.streams import discard_output, show_problem
from fusionscope.errors import UnusableInput
from fusionscope.system.files import free_directory, why_unreadable, write_file
from fusionscope.words.text import safe_lines

if TYPE_CHECKING:
    from rich.console import Console

    from fusionscope.dump.device import Device
    from fusionscope.rules.changes import Changes
    from fusionscope.words.section import Section

Command = TypeVar("Command", bound=Callable[..., Any])

_WIDTH = 100  # of text that goes into a file or a pipe
_NARROWEST, _WIDEST = 20, 10_000


output_option = click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write to this file instead of standard output.",
)


def format_options(*formats: str) -> Callable[[Command], Command]:
    """Add ``--format`` with these choices, the first by default, and ``--output``."""

    def add(command: Command) -> Command:
        return format_option(*formats)(output_option(command))

    return add


def format_option(*formats: str) -> Callable[[Command], Command]:
    """Return ``--format`` with these choices, the first by default."""
    return click.option(
        "--format",
        "format_name",
        type=click.Choice(formats),
        default=formats[0],
        show_default=True,
        help="Output format.",
    )


top_option = click.option(
    "--top",
    default=5,
    show_default=True,
    type=click.IntRange(1),
    help="Maximum length of each list.",
)

resources_option = click.option(
    "--resources",
    is_flag=True,
    help="Also show registers, spills and occupancy of kernels for an NVIDIA GPU, by ptxas.",
)

jobs_option = click.option(
    "--jobs",
    default=1,
    show_default=True,
    type=click.IntRange(1),
    metavar="N",
    help="How many modules or dumps to work on at once, each in a process.",
)

rules_option = click.option(
    "--rules",
    metavar="NAME",
    shell_complete=complete_compiler,
    help="Use the rules of this version, such as cpu-0.10, instead of the one recognised.",
)


def _device(_context: object, _option: object, name: str | None) -> Device | None:
    if name is None:
        return None
    from fusionscope.dump.device import find_device

    return find_device(name)


device_option = click.option(
    "--device",
    metavar="NAME|FILE",
    shell_complete=complete_device,
    callback=_device,
    help="The GPU to assume: h100, b200, mi300x, …, or a device description file.",
)


cache_option = click.option(
    "--no-cache", is_flag=True, help="Neither use nor keep results of earlier runs."
)


python_option = click.option(
    "--python",
    metavar="PATH",
    default=sys.executable,
    help="A Python interpreter with jax installed, if this one has none.",
)


limit_option = click.option(
    "--limit",
    "limit_s",
    metavar="SECONDS",
    default=600.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="Time limit of each compilation.",
)


class InputFile(click.Path):
    """A file that is read later, and has to be there before the command begins to work."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(value)
        if problem := why_unreadable(path):
            raise UnusableInput(problem, file=str(path))
        return path


def running_options(command: Command) -> Command:
    """Add the inputs of a program run, as ``inputs`` and ``seed``."""
    inputs = click.option(
        "--inputs",
        metavar="FILE",
        type=InputFile(),
        help="Inputs to run on: an .npz with arrays in parameter order. If omitted, those that "
        "capture recorded, or random ones that suit the program.",
    )
    seed = click.option("--seed", default=0, show_default=True, help="Seed of the random inputs.")
    return inputs(seed(command))


arguments_option = click.option(
    "--arg",
    "arguments",
    metavar="SHAPE",
    multiple=True,
    help="The shape of the next argument, such as 'f32[128,256]'.",
)


flag_option = click.option(
    "--flag",
    "flags",
    metavar="NAME=VALUE",
    multiple=True,
    callback=lambda _context, _option, flags: as_flags(flags),
    help="An additional XLA flag; repeatable.",
)


def directory_option(
    directory: str, holds: str, *, picks_free: bool = False
) -> Callable[[Command], Command]:
    """Add ``--output``, a directory. ``directory`` is its default, ``holds`` its help. If
    ``picks_free`` is set, a number is appended to a default that is in use.
    """

    def pick(context: click.Context, option: click.Parameter, output: Path) -> Path:
        is_default = context.get_parameter_source(option.name or "") is ParameterSource.DEFAULT
        return free_directory(output) if picks_free and is_default else output

    return click.option(
        "--output",
        type=click.Path(path_type=Path, file_okay=False),
        default=Path(directory),
        show_default=True,
        callback=pick,
        help=holds,
    )


def compiling_options(
    directory: str, holds: str, *, picks_free: bool = False
) -> Callable[[Command], Command]:
    """Add the options of commands that compile, as ``flags``, ``output``, ``python``, ``limit_s``
    and ``format_name``. The arguments are those of ``directory_option``.
    """

    def add(command: Command) -> Command:
        for option in (
            format_option("text", "json"),
            limit_option,
            python_option,
            directory_option(directory, holds, picks_free=picks_free),
            flag_option,
        ):
            command = option(command)
        return command

    return add


def as_flags(words: Iterable[str]) -> list[str]:
    """Return flags in XLA's notation, whether they were given with dashes or without."""
    return [f"--{word.removeprefix('--')}" for word in words]


def changes_options(command: Command) -> Command:
    """Add the options that change rules: ``set_``, ``disable``, ``allow``, ``forbid``, ``plan``."""
    for option in (
        click.option(
            "--plan",
            metavar="FILE",
            type=InputFile(),
            help="Read these changes from a TOML file.",
        ),
        click.option(
            "--forbid", metavar="'P -> C'", multiple=True, help="Try not fusing these pairs."
        ),
        click.option("--allow", metavar="'P -> C'", multiple=True, help="Try fusing these pairs."),
        click.option(
            "--disable",
            metavar="ID",
            multiple=True,
            shell_complete=complete_rule,
            help="Try without this rule or pass.",
        ),
        click.option(
            "--set", "set_", metavar="ID.NAME=N", multiple=True, help="Try another threshold."
        ),
    ):
        command = option(command)
    return command


def read_changed_rules(
    sets: Sequence[str],
    disable: Sequence[str],
    allow: Sequence[str],
    forbid: Sequence[str],
    plan: Path | None,
) -> Changes | None:
    """Return the changes of rules that these options ask for, or None."""
    if not (sets or disable or allow or forbid or plan):
        return None
    from fusionscope.rules.changes import read_changes  # imports the rules
    from fusionscope.rules.plan_files import read_plan

    changes = read_changes(sets, disable, allow, forbid)
    return changes if plan is None else read_plan(plan).changes | changes


def write_text(text: str, output: Path | None) -> None:
    """Write ``text`` to the file ``output``, or to the standard output if that is None.

    A reader that closes the pipe early, such as ``head``, is not an error: the command still
    returns its exit code. Raises ``UnusableInput`` if ``output`` cannot be written, and ``OSError``
    if the standard output cannot.
    """
    if output is not None:
        write_file(output, text)
        return
    if sys.stdout is None:  # closed
        raise OSError(EBADF, os.strerror(EBADF))
    if sys.stdout.isatty():
        text = safe_lines(text)
    # Names from foreign files may contain characters that the terminal's encoding lacks.
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        click.echo(text, nl=False)
    except BrokenPipeError:
        discard_output()


def write_json(command: str, result: object, output: Path | None) -> None:
    """Write the output of ``fusionscope COMMAND --format json`` for its result."""
    from fusionscope.report.documents import to_json

    write_data(to_json(command, result), output)


def write_data(content: dict[str, Any], output: Path | None) -> None:
    write_text(json.dumps(content, indent=1) + "\n", output)


def terminal_size() -> tuple[int, int]:
    """Return columns and lines of the terminal, preferring ``COLUMNS``, with plausible minima."""
    columns, lines = shutil.get_terminal_size((_WIDTH, 25))
    return min(max(columns, _NARROWEST), _WIDEST), lines


def color_choice() -> bool | None:
    """Return whether ``--color`` wants colors, None where the terminal decides."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.color


@contextmanager
def open_console(output: Path | None) -> Iterator[Console]:
    """Return a console as wide as the terminal, or one that writes text, without colors unless
    they are asked for.
    """
    from io import StringIO

    from rich.console import Console

    buffer = StringIO()
    is_terminal = output is None and sys.stdout is not None and sys.stdout.isatty()
    wants_color = color_choice() if output is None else None
    width, height = terminal_size()
    console = Console(
        file=sys.stdout if is_terminal else buffer,
        width=width,
        height=height,
        force_terminal=wants_color,
        no_color=False if wants_color else None,
        color_system="standard" if wants_color else "auto",
        highlight=False,
        markup=False,
        emoji=False,
    )
    yield console
    if not is_terminal:
        write_text(re.sub(r" +$", "", buffer.getvalue(), flags=re.MULTILINE), output)


def write_report(
    command: str,
    result: object,
    format_name: str,
    output: Path | None,
    problems: Sequence[str],
    sections: Iterable[Section],
    *,
    markdown: Callable[[], str] | None = None,
) -> None:
    """Write a result as JSON, or in the words of ``sections``, and its problems to the error
    stream. ``markdown`` returns a page that is not these words.
    """
    for problem in problems:
        show_problem(problem)
    if format_name == "json":
        write_json(command, result, output)
    elif format_name == "markdown" and markdown is not None:
        write_text(markdown(), output)
    else:
        write_sections(sections, format_name, output, problems)


def write_sections(
    sections: Iterable[Section], format_name: str, output: Path | None, problems: Sequence[str] = ()
) -> None:
    """Write sections as text, or as Markdown, which ends with the problems."""
    from fusionscope.words.markdown import to_markdown
    from fusionscope.words.section import Section, Tone, lines
    from fusionscope.words.terminal import print_sections

    if format_name == "markdown":
        notes = Section(blocks=(lines(problems, Tone.WARNING),))
        write_text("\n".join(to_markdown([*sections, notes])), output)
    else:
        with open_console(output) as console:
            print_sections(sections, console)
