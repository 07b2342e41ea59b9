"""Modules as text without what only their users know: names, metadata, constants, configurations.

What is kept is listed here; everything else is left out, and counted.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from fusionscope.history.library_calls import is_library
from fusionscope.hlo import Computation, Module
from fusionscope.hlo.attributes import CALLS, split_attributes
from fusionscope.hlo.model import Statement
from fusionscope.hlo.text import NAME, strip_comments

MODULE = "jit_program"
_HEADER = frozenset(
    """allow_spmd_sharding_propagation_to_output allow_spmd_sharding_propagation_to_parameters
    buffer_donor entry_computation_layout input_output_alias is_scheduled num_partitions
    replica_count""".split()
)
# Attributes in which users can write anything.
_FREE = frozenset(
    """async_execution_thread debug_attributes frontend_attributes infeed_config literal metadata
    origin original_value outfeed_config statistics""".split()
)
_NAMES = CALLS | {"control-predecessors"}
_SHARDING = re.compile(
    r"(?:[{}\[\]()\d,=<>T ]|replicated|maximal|manual|devices?|last_tile_dim(?:_replicate|s))*"
)
_TARGETS = frozenset(("AllocateBuffer", "SPMDFullToShardShape", "SPMDShardToFullShape", "Sharding"))
# Libraries whose configuration the compiler writes, and nobody else.
_CONFIGURED = ("__cublas", "__cudnn", "__cub$", "__onednn")
_CONFIG_WORD = re.compile(r"-?\d+|[A-Z][A-Z0-9_]*|k[A-Z]\w*|__[a-z]\w*|[A-Z]?fusion_emitter")
_CONFIG_KEY = re.compile(r"[a-z][a-z0-9_]*")
UNLISTED = "op_unlisted"  # what no module defines
_MOST_PLAIN = 65_536  # of whole numbers that shapes and loops have
_OMITTED = "{...}"


class Redaction:
    """``names`` are new ones for all names. ``left_out`` counts what was left out or replaced."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names
        self.left_out: Counter[str] = Counter()
        self._lines: dict[Statement, str] = {}
        self._constants: dict[str, str] = {}
        self._targets: dict[str, str] = {}

    def module(self, module: Module) -> str:
        """Return the text of ``module``."""
        attributes = split_attributes(module.header)
        header = "".join(
            f", {key}={value}"
            for key, value in attributes.items()
            if key in _HEADER and '"' not in value
        )
        bodies = "".join(map(self._computation, module.computations))
        return f"HloModule {MODULE}{header}\n\n{bodies}"

    def message(self, text: str) -> str:
        """Return a message of the compiler with new names."""
        return re.sub(NAME, lambda match: self.names.get(match[0], match[0]), text)

    def _name(self, name: str) -> str:
        return self.names.get(name, UNLISTED)

    def _computation(self, computation: Computation) -> str:
        entry = "ENTRY " if computation.is_entry else ""
        lines = "".join(f"  {self._line(line)}\n" for line in computation.body.written)
        return f"{entry}%{self._name(computation.name)} {{\n{lines}}}\n\n"

    def _line(self, statement: Statement) -> str:
        if statement not in self._lines:
            self._lines[statement] = self._new_line(statement)
        return self._lines[statement]

    def _new_line(self, statement: Statement) -> str:
        root, name, shape, opcode, inside, attributes = statement
        if opcode == "constant":
            inside = self._constant(inside.strip(), shape)
        elif opcode != "parameter":
            inside = ", ".join(map(self._operand, statement.operands))
        values = split_attributes(attributes)
        target = values.get("custom_call_target", "").strip("\"'")
        pairs = ((key, self._value(key, value, target)) for key, value in values.items())
        new_attributes = "".join(f", {key}={value}" for key, value in pairs if value is not None)
        root = "ROOT " if root else ""
        result = f"{root}%{self._name(name)} = {strip_comments(shape)}"
        return f"{result} {opcode}({inside}){new_attributes}"

    def _operand(self, operand: str) -> str:
        name, place, index = operand.partition("#")
        return f"%{self._name(name)}{place}{index}"

    def _value(self, key: str, value: str, target: str) -> str | None:
        """Return what is kept of an attribute, None if nothing is."""
        if key in _NAMES:
            return re.sub(NAME, lambda match: self._name(match[0]), value)
        if key == "custom_call_target":
            return f'"{self._target(target)}"'
        if key == "backend_config":
            plain = self._config(value) if target.startswith(_CONFIGURED) or not target else None
        elif key == "sharding":
            plain = value if _SHARDING.fullmatch(value) else None
        else:
            plain = None if key in _FREE or re.search("[\"'%]", value) else value
        self.left_out[key] += plain is None
        return plain

    def _target(self, target: str) -> str:
        if _is_known(target):
            return target
        if target not in self._targets:
            self._targets[target] = f"custom_call_target_{len(self._targets) + 1}"
        self.left_out["custom_call_target"] += 1
        return self._targets[target]

    def _config(self, value: str) -> str | None:
        try:
            config = json.loads(value)
        except ValueError:  # in another notation
            return None
        return json.dumps(self._kept(config)) if isinstance(config, dict) else None

    def _kept(self, value: Any) -> Any:
        """Return a configuration without strings that are not the compiler's own words."""
        if isinstance(value, dict):
            fields = {
                key: self._kept(field) for key, field in value.items() if _CONFIG_KEY.fullmatch(key)
            }
            return {key: field for key, field in fields.items() if field is not None}
        if isinstance(value, list):
            return [item for item in map(self._kept, value) if item is not None]
        if isinstance(value, str) and not _CONFIG_WORD.fullmatch(value):
            self.left_out["string in backend_config"] += 1
            return None
        return value

    def _constant(self, text: str, shape: str) -> str:
        """Return a literal in the place of ``text``: small whole numbers and short fractions as
        they are, others as numbers that differ if they did; nothing of an array.
        """
        if text.startswith("{"):
            self.left_out["constant array"] += text != _OMITTED
            return _OMITTED
        if _is_plain_number(text):
            return text
        self.left_out["constant number"] += 1
        if text not in self._constants:
            self._constants[text] = _stand_in(len(self._constants), shape)
        return self._constants[text]


def _is_known(target: str) -> bool:
    return target in _TARGETS or is_library(target)


def _is_plain_number(text: str) -> bool:
    digits = text.removeprefix("-")
    if digits.isdecimal():
        return int(digits) <= _MOST_PLAIN
    return (
        digits in ("true", "false", "inf", "nan")
        or re.fullmatch(r"\d\.\d{1,2}|\de[+-]\d\d", digits) is not None
    )


def _stand_in(number: int, shape: str) -> str:
    if shape.startswith(("s", "u")):
        return str(_MOST_PLAIN + 1 + number)
    text = str(0.5 + (number % 127 + 1) / 256)  # exact in eight bits
    return f"({text}, {text})" if shape.startswith("c") else text
