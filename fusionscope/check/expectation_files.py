"""Reads what is expected: a TOML file, or the table ``tool.fusionscope`` of a pyproject.

    [[expect]]
    fused = "exponential -> reduce"
    where = { module = "jit_step", device = "h100" }
    message = "the softmax is one kernel"

Each ``[[expect]]`` has one key of ``EXPECTATIONS``, and may have ``where`` and ``message``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import msgspec

from fusionscope.check.expectations import EXPECTATIONS, Expectation, NotRefused, Where
from fusionscope.errors import quoted
from fusionscope.rules.messages import UNKNOWN, rule_ids
from fusionscope.system.user_files import UserFile, expected_one_of, read_toml

_PYPROJECT = "pyproject.toml"

_Text = Annotated[str, msgspec.Meta(min_length=1)]
_Where = msgspec.defstruct(
    "_Where",
    [(field.name, _Text | None, None) for field in fields(Where)],
    forbid_unknown_fields=True,
)
_Expect = msgspec.defstruct(
    "_Expect",
    [
        *((key, Any, msgspec.UNSET) for key in EXPECTATIONS),
        ("where", _Where, msgspec.field(default_factory=_Where)),
        ("message", str, ""),
    ],
    forbid_unknown_fields=True,
)
_File = msgspec.defstruct(
    "_File",
    [("expect", list[_Expect], msgspec.field(default_factory=list))],  # type: ignore[valid-type]
    forbid_unknown_fields=True,
)


def read_expectations(path: Path) -> tuple[Expectation, ...]:
    """Read expectations. Raises ``UnusableInput`` with the line of an invalid key or value."""
    within = ("tool", "fusionscope") if path.name == _PYPROJECT else ()
    return tuple(_expectations(read_toml(path, _File, within=within)))


def _expectations(file: UserFile[Any]) -> Iterator[Expectation]:
    if not file.value.expect:
        raise file.error("has no expectations, expected [[expect]] tables")
    for index, table in enumerate(file.value.expect):
        given = {
            key: value
            for key in EXPECTATIONS
            if (value := getattr(table, key)) is not msgspec.UNSET
        }
        if len(given) != 1:
            found = f"has {' and '.join(given)}" if given else "says nothing"
            problem = f"an [[expect]] {found}, expected one of {', '.join(EXPECTATIONS)}"
            raise file.error(problem, "expect", index)
        ((key, value),) = given.items()
        kind, place = EXPECTATIONS[key], ("expect", index, key)
        if wanted := kind.expected(value):
            raise file.error(f"{key} = {quoted(value)}, expected {wanted}", *place)
        for id in value if kind is NotRefused else ():
            if id not in rule_ids() and id != UNKNOWN:
                close = expected_one_of(id, sorted(rule_ids()))
                raise file.error(f"no reason is called {quoted(id)}, {close}", *place)
        where = Where(**msgspec.structs.asdict(table.where))
        yield kind(value, where, table.message, file.line(*place))
