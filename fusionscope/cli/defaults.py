"""Defaults of options: ``tool.fusionscope`` in the nearest ``pyproject.toml`` that has that table.

[tool.fusionscope]
color = "always"

[tool.fusionscope.explain]
top = 10
no-cache = true
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fusionscope.errors import UnusableInput, expected_one_of, quoted
from fusionscope.system.files import is_there, read_text

if TYPE_CHECKING:
    from fusionscope.system.user_files import UserFile

_FILE = "pyproject.toml"
_MARK = "tool.fusionscope"
_COLOR = "color"
_OF_CHECK = ("allow", "expect", "program", "target")  # tables that ``check`` reads


def find_defaults(directory: Path, commands: Sequence[str]) -> UserFile[dict[str, Any]] | None:
    """Return the table that holds for ``directory``, or None. Raises ``UnusableInput`` for a file
    that cannot be read, and for a key that is neither one of ``commands`` nor known otherwise.
    """
    for folder in (directory, *directory.parents):
        path = folder / _FILE
        if is_there(path) and _MARK in read_text(path):
            break
    else:
        return None
    from fusionscope.system.user_files import read_toml  # imports msgspec

    file = read_toml(path, dict[str, Any], within=("tool", "fusionscope"))
    for key, value in file.value.items():
        if key not in (_COLOR, *_OF_CHECK, *commands):
            near = expected_one_of(key, [_COLOR, *_OF_CHECK, *commands])
            raise file.error(f"unknown key {quoted(key)} in {_MARK}, {near}", key)
        if key in commands and not isinstance(value, dict):
            raise file.error(f"{key} = {quoted(value)}, expected a table of options", key)
    return file


def default_color(file: UserFile[dict[str, Any]], choices: Sequence[str]) -> str:
    """Return the value for ``--color``, by default the first of ``choices``. Raises
    ``UnusableInput`` if it is none of them.
    """
    value = file.value.get(_COLOR, choices[0])
    if value not in choices:
        near = expected_one_of(str(value), choices)
        raise file.error(f"{_COLOR} = {quoted(value)}, {near}", _COLOR)
    return str(value)


def defaults_of(
    file: UserFile[dict[str, Any]], name: str, command: click.Command
) -> dict[str, Any]:
    """Return the values for the parameters of a command. Raises ``UnusableInput`` for a key that
    is not one of its options, and for a value that the option does not take.
    """
    options = {
        spelling.removeprefix("--"): option
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden
        for spelling in option.opts
    }
    values = {}
    for key, value in file.value.get(name, {}).items():
        if key not in options:
            near = expected_one_of(key, list(options))
            raise file.error(f"unknown key {quoted(key)} in {_MARK}.{name}, {near}", name, key)
        option = options[key]
        if not _is_of_kind(option, value):
            expected = "true or false" if option.is_flag else "a text or a number"
            expected = "a list of texts" if option.multiple else expected
            raise file.error(f"{key} = {quoted(value)}, expected {expected}", name, key)
        if isinstance(option.type, click.Path):
            value = str(file.path.parent / value)
        with file.at(name, key):
            values[option.name or key] = _checked(option, command, key, value)
    return values


def _is_of_kind(option: click.Option, value: Any) -> bool:
    if option.multiple:
        return isinstance(value, list) and all(_is_scalar(option, item) for item in value)
    return _is_scalar(option, value)


def _is_scalar(option: click.Option, value: Any) -> bool:
    if option.is_flag:
        return isinstance(value, bool)
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _checked(option: click.Option, command: click.Command, key: str, value: Any) -> Any:
    """Return the value if the option takes it. What a callback says of it comes later."""
    try:
        option.type_cast_value(click.Context(command), value)
    except click.BadParameter as error:
        raise UnusableInput(f"{key} = {quoted(value)}: {error.message}") from None
    return value
