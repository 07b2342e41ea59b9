"""How the arrays of a program are split over devices, before it is partitioned."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from math import prod

from fusionscope.hlo import Instruction
from fusionscope.hlo.devices import transposed
from fusionscope.hlo.shardings import normal_sharding, tuple_shardings
from fusionscope.hlo.window import read_window

_REACH_OVER = frozenset(
    "concatenate convolution pad reduce-window reverse select-and-scatter slice".split()
)
# Their results have other dimensions than their operands.
_CONTRACT = frozenset({"convolution", "dot", "reduce"})
_TILES = re.compile(r"\{devices=\[([\d,]+)\]")
_ASSIGNMENT = re.compile(r"\{devices=\[([\d,]+)\]([\d,]+)(.*)")
_SHARDING_CALLS = ("SPMD", "Sharding", "xla.sdy")
WHOLE = frozenset({"{replicated}", "{manual}"})


def text_of(instruction: Instruction, operand: Instruction | None = None) -> str:
    """Return the sharding of the result of an instruction, or of its part for an ``operand``."""
    text = instruction.attributes.get("sharding", "")
    index: int | None = None
    if instruction.opcode == "get-tuple-element" and not text:
        text = instruction.operands[0].attributes.get("sharding", "")
        index = int(instruction.attributes["index"])
    elif instruction.opcode in ("tuple", "while") and operand in instruction.operands:
        index = instruction.operands.index(operand)
    elements = tuple_shardings(text)
    if index is not None and index < len(elements):
        return elements[index]
    return text or "{replicated}"


def is_resharded(operand: Instruction, user: Instruction) -> bool:
    if user.opcode == "get-tuple-element" and operand in user.operands:
        return False  # a part of the same value
    text = text_of(user, operand)
    before, after = normal_sharding(text_of(operand)), normal_sharding(text)
    if user.opcode == "transpose":
        return before not in WHOLE and _permuted(before, user.attribute("dimensions")) != after
    if before in WHOLE or before in map(normal_sharding, tuple_shardings(text)):
        return False
    if user.opcode in _CONTRACT:
        return True
    if not user.shape.is_array or operand.shape.rank == user.shape.rank:
        return before != after
    if user.opcode == "broadcast":
        tiles = _tiles(after) or (1,) * user.shape.rank
        return _split(_tiles(before)) != _split(
            tiles[place] for place in user.attribute("dimensions")
        )
    return _spans(operand, before) != _spans(user, after)


def _permuted(sharding: str, order: Sequence[int]) -> str:
    """Return the sharding of an array whose dimensions are put in another order."""
    match = _ASSIGNMENT.fullmatch(sharding)
    if match is None:
        return sharding
    sizes, devices = (list(map(int, numbers.split(","))) for numbers in match.groups()[:2])
    places = [*order, *range(len(order), len(sizes))]
    new_sizes = ",".join(str(sizes[place]) for place in places)
    new_devices = ",".join(map(str, transposed(devices, sizes, places)))
    return f"{{devices=[{new_sizes}]{new_devices}{match[3]}"


def _tiles(text: str) -> tuple[int, ...]:
    """Return into how many parts each dimension is split; nothing if none is, or for a tuple."""
    match = _TILES.match(normal_sharding(text))
    return tuple(map(int, match[1].split(","))) if match is not None else ()


def parts_of(sharding: str) -> tuple[list[int], str]:
    """Return into how many parts the dimensions are split that are, and the devices."""
    return _split(_tiles(sharding)), sharding.partition("]")[2]


def split_operand(instruction: Instruction) -> Instruction:
    """Return the operand of a sum whose parts it combines: of a product, the one that is split
    along a contracted dimension, else the first that is split.
    """
    operands = instruction.operands
    if instruction.opcode == "dot":
        for operand, side in zip(operands, ("lhs", "rhs"), strict=False):
            tiles = _tiles(text_of(operand))
            contracted = instruction.attribute(f"{side}_contracting_dims") if tiles else ()
            if any(tiles[place] > 1 for place in contracted):
                return operand
    return next((operand for operand in operands if _tiles(text_of(operand))), operands[0])


def _split(tiles: Iterable[int]) -> list[int]:
    return [count for count in tiles if count > 1]


def _spans(instruction: Instruction, text: str) -> tuple[list[tuple[int, int]], str]:
    """Return of each dimension that is split how many elements it spans and into how many parts it
    is, which a reshape keeps, and the devices.
    """
    sizes = instruction.shape.dimensions
    spans = [
        (prod(size or 1 for size in sizes[place:]), count)
        for place, count in enumerate(_tiles(text)[: len(sizes)])
        if count > 1
    ]
    return spans, text.partition("]")[2]


def reaches_over(instruction: Instruction) -> bool:
    """Return whether an operation that is split as its operand is reads what is beside a part."""
    return instruction.opcode in _REACH_OVER and normal_sharding(text_of(instruction)) in (
        normal_sharding(text_of(operand)) for operand in instruction.operands
    )


def works_along_split(instruction: Instruction) -> bool:
    """Return whether an operation needs all of a dimension along which its operand is split."""
    if not instruction.operands:
        return False
    tiles = _tiles(text_of(instruction.operands[0]))
    return any(size > 1 for size in itertools.compress(tiles, _worked_along(instruction)))


def _worked_along(instruction: Instruction) -> Sequence[bool]:
    """Return for each dimension of the first operand whether an operation works along it."""
    every = range(instruction.operands[0].shape.rank)
    attributes = instruction.attributes
    match instruction.opcode:
        case "sort" | "scan" | "concatenate":
            return [place in instruction.attribute("dimensions") for place in every]
        case "reduce-window":
            return [part.size > 1 for part in read_window(attributes["window"])]
        case "fft":
            count = attributes["fft_length"].count(",") + 1
            return [place >= len(every) - count for place in every]
        case "cholesky" | "triangular-solve":
            return [place >= len(every) - 2 for place in every]
        case "custom-call":
            target = attributes.get("custom_call_target", "").strip('"')
            if target == "TopK":
                return [place == len(every) - 1 for place in every]
            return [not target.startswith(_SHARDING_CALLS) for _ in every]
    return ()
