"""Rejects operations and attributes that the compiler's parser does not know.

This applies to text that people write (``parse``), not to the stages of a dump: newer compilers add
operations and words, and their dumps have to stay readable. Source: xla/hlo/parser/hlo_parser.cc
and the enumerators in xla/xla_data.proto and xla/service/hlo.proto.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable
from itertools import starmap
from typing import NamedTuple

from fusionscope.errors import UnusableInput, quoted, shorten
from fusionscope.hlo.attribute_table import ALL_KEYS, ATTRIBUTE_KEYS, COMMON, HEADER, AttributeKeys
from fusionscope.hlo.attributes import (
    attribute_keys,
    has_known_words,
    plain_keys,
    split_attributes,
    unknown_word,
)
from fusionscope.hlo.grammar import derive
from fusionscope.hlo.model import Instruction, Module
from fusionscope.hlo.opcodes import OPCODES
from fusionscope.hlo.window import read_window

_ONE_DIMENSION = frozenset(
    """all-gather all-gather-start concatenate get-dimension-size reduce-scatter
    set-dimension-size""".split()
)
_IOTA = re.compile(r"\[([\d,\s\-]*)\]\s*<=\s*\[([\d,\s\-]*)\](?:\s*T\s*\(([\d,\s\-]*)\))?")
_DEVICES = re.compile(r"devices=\[([\d,\s\-]*)\]\s*(-?\d[\d,\s\-]*)")
_MESH = re.compile(r"mesh\[([^\]]*)\]\s*(?:,[^{]*)?\{([^{}]*)\}")
_QUOTED = re.compile(r"[\"']([^\"']*)[\"']")


def check_known(module: Module, outlines: Iterable[tuple[str, str]], text: str) -> None:
    """Raises ``UnusableInput`` with file and line for anything that the compiler's parser does not
    know.

    ``outlines`` are the opcodes and attributes of all instructions, with digits as zeros and empty
    strings. There are few distinct ones, so they are searched first, and ``text``, what the user
    wrote, only for the place of an error.
    """
    _check_header(module, text)
    pairs = list(outlines)
    doubtful = [pair for pair in pairs if not _is_plain(*pair)]
    doubted = any(unknown_word(text) for _, text in doubtful)
    doubted = doubted or any(starmap(_wrong_attribute, doubtful))
    numbered = {opcode for opcode, text in pairs if _NUMBERED_KEY.search(text)}
    # Most instructions need no check.
    checked = numbered | {opcode for opcode, _ in pairs if opcode not in _PLAIN}
    for computation in module.computations:
        graph = computation.graph
        for index, statement in enumerate(graph.statements):
            if statement[3] not in checked and not doubted:
                continue
            problem = word = None
            if statement.opcode not in OPCODES:
                problem = (
                    f"{statement.name} is an unknown operation, {quoted(statement.opcode)} (of a "
                    "newer compiler? explain reads the folder of a dump with such operations)"
                )
            elif doubted and (wrong := _wrong_attribute(statement.opcode, statement.attributes)):
                problem = f"{statement.name}: {wrong}"
            elif doubted and (word := _unknown_word(statement.attributes)):
                problem = f"{statement.name}: {word.problem}"
            elif statement.opcode in numbered and (wrong := _wrong_number(statement.attributes)):
                problem = f"{statement.name}: {wrong}"
            rule = _RULES.get(statement.opcode)
            if rule is not None and problem is None:
                problem = rule(computation.instructions[index])
            if problem is not None:
                error = UnusableInput(problem, line=graph.lines[index])
                placed = module.placed(error, computation.line)
                raise word.placed(placed, text) if word else placed


class _Word(NamedTuple):
    """A word that the compiler's parser does not know, with the attribute that has it, as written,
    and its column there (from 1).
    """

    problem: str
    key: str
    attribute: str
    column: int

    def placed(self, error: UnusableInput, text: str) -> UnusableInput:
        """Return the error of an instruction at the place of the word in ``text``, at that of its
        attribute if comments hide the word, or as it is if the attribute is on another line.
        """
        line, column = error.line or 1, error.column or 1
        row = text.split("\n", line)[line - 1]
        if (start := row.find(self.attribute, column - 1)) >= 0:
            column = start + self.column
        elif (start := row.find(f"{self.key}=", column - 1)) >= 0:
            column = start + 1
        return UnusableInput(error.problem, file=error.file, line=line, column=column)


def _check_header(module: Module, text: str) -> None:
    wrong = _wrong_key(HEADER, attribute_keys(module.header))
    word = None if wrong else _unknown_word(module.header)
    if problem := wrong or (word and word.problem):
        line = text[: text.find("HloModule")].count("\n") + 1
        error = UnusableInput(problem, file=module.file, line=line, column=1)
        raise word.placed(error, text) if word else error


def _is_plain(opcode: str, outline: str) -> bool:
    """Return whether the attributes are in the compiler's own form, and nothing is wrong."""
    keys = plain_keys(outline)
    allowed = ATTRIBUTE_KEYS.get(opcode, COMMON)
    return keys is not None and _wrong_key(allowed, keys) is None and has_known_words(outline)


def _wrong_attribute(opcode: str, attributes: str) -> str | None:
    """Return what is wrong with the keys of the attributes of an operation, or None."""
    if opcode not in OPCODES:
        return None
    keys = ATTRIBUTE_KEYS.get(opcode, COMMON)
    return _wrong_key(keys, attribute_keys(attributes), f" of {opcode}")


def _wrong_key(keys: AttributeKeys, present: frozenset[str], place: str = "") -> str | None:
    foreign = (present - keys.allowed) & ALL_KEYS  # other ones are those of a newer compiler
    if foreign:
        expected = ", ".join(sorted(keys.allowed))
        return f"{min(foreign)}= is no attribute{place}, expected one of {expected}"
    if not present >= keys.required:
        return f"has no {min(keys.required - present)}=, expected one"
    return None


def _unknown_word(attributes: str) -> _Word | None:
    key = unknown_word(attributes)
    if key is None:
        return None
    value = split_attributes(attributes)[key]
    attribute = f"{key}={value}"
    try:
        derive("known", attribute)
    except UnusableInput as error:
        return _Word(f"{key}={shorten(value)}: {error.problem}", key, attribute, error.column or 1)
    return _Word(f"found {key}={shorten(value)}, expected something else", key, attribute, 1)


def _wrong_number(attributes: str) -> str | None:
    if _NUMBERED_KEY.search(attributes) is None:
        return None
    for key, value in split_attributes(attributes).items():
        check = _NUMBERED.get(key)
        if check and (problem := check(value)):
            return problem
    return None


def _product(numbers: str) -> int:
    return math.prod(int(number) for number in numbers.split(",") if number.strip())


def _iota(value: str, what: str) -> str | None:
    for tiles, sizes, order in _IOTA.findall(value):
        if _product(tiles) != _product(sizes):
            return f"{what} [{tiles}] hold {_product(sizes)} devices, expected as many"
        rank = len(sizes.split(","))
        if order and sorted(map(int, order.split(","))) != [*range(rank)]:
            return f"found T({order}), expected an order of {rank} dimensions"
    return None


@functools.lru_cache(maxsize=4096)
def _sharding(value: str) -> str | None:
    for tiles, devices in _DEVICES.findall(value):
        count = len(devices.split(","))
        if count != _product(tiles):
            return f"tiles [{tiles}] hold {count} devices, expected as many"
    return _iota(value, "tiles")


@functools.lru_cache(maxsize=4096)
def _groups(value: str) -> str | None:
    if problem := _iota(value, "replica groups"):
        return problem
    for mesh, axes in _MESH.findall(value):
        names = _QUOTED.findall(mesh)
        for axis in _QUOTED.findall(axes):
            if axis not in names and not (axis.isdecimal() and int(axis) < len(names)):
                return f"the mesh has no axis {quoted(axis)}"
    return None


@functools.lru_cache(maxsize=4096)
def _window(value: str) -> str | None:
    try:
        read_window(value)
    except UnusableInput as error:
        return error.problem
    return None


@functools.lru_cache(maxsize=4096)
def _labels(value: str) -> str | None:
    for part in re.split("_|->", value):
        for label in part:
            if label.isdigit() and int(label) >= len(part) - 2:
                return f"found {label} in {quoted(value)}, expected spatial dimensions from 0 on"
    return None


# Attributes whose numbers have to agree.
_NUMBERED: dict[str, Callable[[str], str | None]] = {
    "dim_labels": _labels,
    "replica_groups": _groups,
    "sharding": _sharding,
    "window": _window,
}
_NUMBERED_KEY = re.compile(f"(?:{'|'.join(_NUMBERED)})=")


def _one_dimension(instruction: Instruction) -> str | None:
    dimensions = instruction.attribute("dimensions")
    if isinstance(dimensions, tuple) and len(dimensions) != 1:
        return f"{instruction.name} has {len(dimensions)} dimensions, expected 1"
    return None


def _several(instruction: Instruction) -> str | None:
    if instruction.shape.is_tuple and instruction.shape.elements:
        return None
    return f"{instruction.name} is {instruction.shape}, expected a tuple that is not empty"


def _conditional(instruction: Instruction) -> str | None:
    selector = instruction.operands[0].shape
    if selector.dimensions or selector.element_type not in ("pred", "s32"):
        return f"{instruction.name} branches on {selector}, expected pred[] or s32[]"
    key = "true_computation" if selector.element_type == "pred" else "branch_computations"
    if key not in instruction.attributes:
        return f"{instruction.name} branches on {selector}, expected {key}="
    if len(instruction.operands) != 1 + len(instruction.called):
        return (
            f"{instruction.name} has {len(instruction.operands) - 1} operands for "
            f"{len(instruction.called)} branches, expected as many"
        )
    return None


def _reshape(instruction: Instruction) -> str | None:
    operand, shape = instruction.operands[0].shape, instruction.shape
    if not operand.is_array or not shape.is_array or None in operand.dimensions:
        return None
    if operand.element_count != shape.element_count:
        return (
            f"{instruction.name} is {shape}, expected as many elements as its operand has, "
            f"{operand}"
        )
    if instruction.opcode == "dynamic-reshape" and len(instruction.operands) - 1 != shape.rank:
        return (
            f"{instruction.name} has {len(instruction.operands) - 1} sizes, expected {shape.rank}"
        )
    return None


def _grouped(instruction: Instruction) -> str | None:
    global_ids = instruction.attribute("use_global_device_ids") is True
    if global_ids and instruction.attribute("channel_id") is None:
        return f"{instruction.name} has use_global_device_ids=true, expected a channel_id="
    if instruction.opcode in _ONE_DIMENSION:
        return _one_dimension(instruction)
    return None


def _constrained(instruction: Instruction) -> str | None:
    layouts = instruction.attributes.get("operand_layout_constraints")
    if layouts is None:
        return None
    shapes = instruction.computation.body.shapes[f"({layouts.strip()[1:-1]})"].elements
    if len(shapes) != len(instruction.operands):
        return (
            f"{instruction.name} constrains the layouts of {len(shapes)} operands, expected "
            f"{len(instruction.operands)}"
        )
    for shape, operand in zip(shapes, instruction.operands, strict=True):
        if not shape.compatible(operand.shape):
            return (
                f"{instruction.name} constrains its operand {operand.name} to {shape}, but that is "
                f"{operand.shape}"
            )
    return None


def _asynchronous(instruction: Instruction) -> str | None:
    shape = instruction.shape
    if instruction.opcode != "async-done" and (
        len(shape.elements) < 2 or not shape.elements[0].is_tuple
    ):
        return (
            f"{instruction.name} is {shape}, expected a tuple of its operands' shapes, its "
            "result, and what it needs meanwhile"
        )
    if instruction.opcode == "async-start":
        return None
    start = instruction.operands[0]
    if start.opcode == "async-done":
        return f"{instruction.name} goes on with {start.name}, which is done"
    while start.opcode == "async-update":
        start = start.operands[0]
    for key in ("calls", "async_execution_thread"):
        if start.opcode == "async-start" and key in instruction.attributes:
            value, value_of_start = (
                end.attributes.get(key, '"main"') for end in (instruction, start)
            )
            if value.lstrip("%") != value_of_start.lstrip("%"):
                return (
                    f"{instruction.name} has {key}={value}, but {start.name} has {value_of_start}"
                )
    return None


_RULES: dict[str, Callable[[Instruction], str | None]] = {
    **dict.fromkeys(_ONE_DIMENSION, _one_dimension),
    **dict.fromkeys(("async-start", "async-update", "async-done"), _asynchronous),
    **dict.fromkeys(("all-gather", "all-reduce", "all-reduce-start", "reduce-scatter"), _grouped),
    **dict.fromkeys(("dynamic-reshape", "reshape"), _reshape),
    **dict.fromkeys(("infeed", "recv"), _several),
    "conditional": _conditional,
    "custom-call": _constrained,
}
_PLAIN = OPCODES.difference(_RULES)
