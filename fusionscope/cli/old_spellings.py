"""Options of the last release that are spelled otherwise now: they work, and say so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from fusionscope.cli.streams import show_problem

Command = TypeVar("Command", bound=Callable[..., Any])
_META = "fusionscope.old_options"


def old_option(declaration: str, instead: str, **attributes: Any) -> Callable[[Command], Command]:
    """Return a hidden option whose value ``old_values`` holds, and which says to write ``instead``
    from the next release on.
    """

    def note(context: click.Context, option: click.Parameter, value: Any) -> None:
        source = context.get_parameter_source(option.name or "")
        if source is ParameterSource.COMMANDLINE:
            note_old_spelling(declaration, instead)
            context.meta.setdefault(_META, {})[option.name] = value

    return click.option(declaration, hidden=True, expose_value=False, callback=note, **attributes)


def note_old_spelling(old: str, instead: str) -> None:
    """Tell the user what takes the place of an option."""
    show_problem(f"note: the next release has no {old}; use {instead}")


def old_values() -> dict[str, Any]:
    """Return the values of the old options on this command line, by their names."""
    values: dict[str, Any] = click.get_current_context().meta.get(_META, {})
    return values
