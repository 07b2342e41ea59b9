"""Writes docs/commands.md: the commands with their options, as ``--help`` has them.

python docs/make_commands.py
"""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click

from fusionscope.cli.main import COMMANDS, cli

DOCS = Path(__file__).parent
HEAD = """# Commands

`fusionscope COMMAND --help` prints the same. `python docs/make_commands.py` generates this page.

The exit code of every command is 0 on success, 1 if the answer is no (`check` found a violation,
`diff --exit-code` a difference, `doctor` something broken), and 2 for input or options that cannot
be used, with one line that says where and what to do. `fusionscope --debug COMMAND` adds the
traceback.

`fusionscope --color always|never COMMAND` decides on colors; otherwise a terminal gets them, unless
`NO_COLOR` is set.

## Defaults

`[tool.fusionscope]` in the nearest `pyproject.toml` that has such a table, from the working
directory upwards, has defaults: `color`, and a table of options for each command. What the command
line says wins; an option that may be repeated is a list. Files and directories are relative to that
file.

```toml
[tool.fusionscope]
color = "always"

[tool.fusionscope.explain]
top = 10
try = false
where = ["op=dot"]
```
"""
_TYPES = {"integer": "N", "integer range": "N", "float": "NUMBER", "float range": "NUMBER"}


def page() -> str:
    return "\n".join([HEAD, *(line for name in COMMANDS for line in _section(name))])


def _section(name: str) -> Iterator[str]:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None and command.help is not None
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    options = [
        option
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden
    ]
    usage = " ".join(["fusionscope", name, "[OPTIONS]", *map(_argument, arguments)])
    yield f"## {name}\n"
    yield f"`{usage}`\n"
    paragraphs = inspect.cleandoc(command.help).split("\n\n")
    for text in paragraphs:
        if text.startswith("\b"):
            yield f"```sh\n{inspect.cleandoc(text.partition('Examples:')[2])}\n```\n"
        else:
            yield f"{_escaped(' '.join(text.split()))}\n"
    own = f"{name}.md"
    if (DOCS / own).exists():
        yield f"More: [{own}]({own})\n"
    yield "| option | |\n|---|---|"
    for option in options:
        yield f"| {_option(option)} | {_about(option)} |"
    yield ""


def _argument(argument: click.Argument) -> str:
    word = argument.metavar or (argument.name or "").upper()
    word = f"{word}..." if argument.nargs == -1 else word
    return word if argument.required or word.startswith("[") else f"[{word}]"


def _option(option: click.Option) -> str:
    names = ", ".join([*option.opts, *option.secondary_opts])
    if option.is_flag:
        return f"`{names}`"
    kind = option.type
    if isinstance(kind, click.Choice) and not option.metavar:
        word = "/".join(map(str, kind.choices))
    else:
        word = option.metavar or _TYPES.get(kind.name, "PATH" if "Path" in repr(kind) else "TEXT")
    return f"`{names} {word.replace('|', '/')}`"  # a bar would end the cell


def _about(option: click.Option) -> str:
    about = _escaped(option.help or "")
    if option.show_default and not option.is_flag:
        default = option.default
        shown = ", ".join(map(str, default)) if isinstance(default, tuple) else default
        about += f" Default: {shown}."
    return about


def _escaped(text: str) -> str:
    return re.sub(r"([*<|])", r"\\\1", text)


if __name__ == "__main__":
    (DOCS / "commands.md").write_text(page(), encoding="utf-8")
