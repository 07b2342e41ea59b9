"""Checks of instructions that everything after the parser relies on.

Required attributes, their form, and their agreement with the shapes of operands and result. The
compiler's parser and verifier check far more; these are the ones that fusionscope computes with.
Shapes other than arrays, and operations that are not listed here, are not checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from fusionscope.errors import UnusableInput
from fusionscope.hlo.attributes import called_names, read_attributes
from fusionscope.hlo.opcodes import BINARY, UNARY
from fusionscope.hlo.shape import TUPLE, Shape, ShapeTable
from fusionscope.hlo.text import NAME, STRING
from fusionscope.hlo.window import window_dimensions

# The least number of computations that they call.
_CALLS = {
    "call": 1,
    "fusion": 1,
    "map": 1,
    "reduce": 1,
    "reduce-window": 1,
    "scatter": 1,
    "select-and-scatter": 2,
    "sort": 1,
    "while": 2,
}
_METADATA = re.compile(
    rf", metadata=\{{[^{{}}\"']*(?:(?:{STRING}|\{{[^{{}}\"']*\}})[^{{}}\"']*)*\}}", re.DOTALL
)
_CALLEE = re.compile(rf", to_apply=%{NAME}$")
_TOO_LARGE = 10**18


class _Written(NamedTuple):
    opcode: str
    operands: Sequence[Shape]
    shape: Shape
    attributes: dict[str, Any]

    @property
    def rank(self) -> int:
        return self.operands[0].rank

    def numbers(self, key: str) -> tuple[int, ...] | None:
        """Return the value of ``key`` if it is a list of distinct numbers; None otherwise."""
        value = self.attributes.get(key)
        if not isinstance(value, tuple) or not all(isinstance(number, int) for number in value):
            return None
        return value if len({*value}) == len(value) else None


def find_problem(
    opcode: str, operands: Sequence[str], shape: str, attributes: str, shapes: ShapeTable
) -> str | None:
    """Return what is wrong with an instruction of these operands, result (as text) and attributes,
    or None.
    """
    least = _CALLS.get(opcode, 0)
    if least and (count := len(called_names(attributes))) < least:
        return f"calls {count} computations, expected {least}"
    if opcode not in _CHECKS:
        return None
    # Without metadata and what they apply, few instructions are distinct.
    stated = "" if opcode in ELEMENTWISE else _without_metadata(attributes)
    stated = _CALLEE.sub("", stated)
    case = (opcode, stated, shape, *operands)
    if case in shapes.fitting:
        return None
    read = [shapes[operand] for operand in operands]
    problem = _find_problem(opcode, read, shapes[shape], stated)
    if problem is None:
        shapes.fitting.add(case)
    return problem


def _without_metadata(attributes: str) -> str:
    before, _, metadata = attributes.partition(", metadata={")
    if metadata.find("}") == len(metadata) - 1:  # nothing follows it
        return before
    return _METADATA.sub("", attributes)


def _find_problem(
    opcode: str, operands: Sequence[Shape], shape: Shape, attributes: str
) -> str | None:
    if opcode != "get-tuple-element" and not all(operand.is_array for operand in operands):
        return None
    if not operands:
        return "has no operands"
    return _CHECKS[opcode](_Written(opcode, operands, shape, _read(attributes)))


def _element(statement: _Written) -> str | None:
    read, index = statement.operands[0], statement.attributes.get("index")
    if not isinstance(index, int) or not 0 <= index < _TOO_LARGE:
        return "has no index= of an element"
    if read.is_tuple and index >= len(read.elements):
        return f"has index={index}, which a tuple of {len(read.elements)} has not"
    return None


_read = lru_cache(maxsize=4096)(read_attributes)


def _dimensions(statement: _Written, rank: int, key: str = "dimensions") -> str | None:
    """Return a message unless the dimensions are distinct and below ``rank``."""
    dimensions = statement.numbers(key)
    if dimensions is None:
        return f"names no dimensions, or one twice, expected {key}="
    if any(not 0 <= dimension < rank for dimension in dimensions):
        return (
            f"has {key}={{{','.join(map(str, dimensions))}}}, which an array of rank {rank} has not"
        )
    return None


def _of_operand(statement: _Written) -> str | None:
    return _dimensions(statement, statement.rank)


def _transpose(statement: _Written) -> str | None:
    problem = _dimensions(statement, statement.rank)
    dimensions = statement.numbers("dimensions") or ()
    return problem or _counted("dimensions", len(dimensions), statement.rank) or _ranked(statement)


def _broadcast(statement: _Written) -> str | None:
    if statement.rank == 0 and not statement.attributes.get("dimensions"):
        return None
    problem = _dimensions(statement, statement.shape.rank)
    return problem or _counted(
        "dimensions", len(statement.numbers("dimensions") or ()), statement.rank
    )


def _reduce(statement: _Written) -> str | None:
    if problem := _dimensions(statement, statement.rank):
        return problem
    rank = statement.rank - len(statement.numbers("dimensions") or ())
    results = statement.shape.elements if statement.shape.is_tuple else (statement.shape,)
    if len(results) != len(statement.operands) // 2:
        return f"has {len(results)} results, expected {len(statement.operands) // 2}"
    ranks = {operand.rank for operand in statement.operands[: len(results)]}
    if ranks != {statement.rank}:
        return "reduces arrays of different ranks"
    return next((p for result in results if (p := _counted("sizes", result.rank, rank))), None)


def _concatenate(statement: _Written) -> str | None:
    if problem := _dimensions(statement, statement.shape.rank):
        return problem
    if len(statement.numbers("dimensions") or ()) != 1:
        return "concatenates along several dimensions, expected one"
    ranks = (operand.rank for operand in statement.operands)
    return next((p for rank in ranks if (p := _counted("sizes", rank, statement.shape.rank))), None)


def _slice(statement: _Written) -> str | None:
    cuts = statement.attributes.get("slice", ())
    if _lacks(statement, "slice") or not all(
        cut[0] >= 0 and cut[1] >= 0 and cut[2:] != (0,) and _is_small(cut) for cut in cuts
    ):
        return "has no slice= of entries such as [0:8:2]"
    return _counted("cuts", len(cuts), statement.rank) or _ranked(statement)


def _pad(statement: _Written) -> str | None:
    pads = statement.attributes.get("padding", ())
    if _lacks(statement, "padding") or not all(
        _is_small(pad) and min(pad[2:], default=0) >= 0 for pad in pads
    ):
        return "has no padding= of entries such as 1_1 or 1_1_0"
    return _counted("paddings", len(pads), statement.rank) or _ranked(statement)


def _is_small(numbers: Iterable[int]) -> bool:
    return all(abs(number) < _TOO_LARGE for number in numbers)


def _dynamic(statement: _Written) -> str | None:
    """Check for one index per dimension or, as in older compilers, one array of them."""
    indices = statement.operands[2 if statement.opcode == "dynamic-update-slice" else 1 :]
    is_one_array = len(indices) == 1 and indices[0].rank == 1
    problem = None if is_one_array else _counted("indices", len(indices), statement.rank)
    if problem is None and statement.opcode == "dynamic-update-slice":
        problem = _counted("sizes of its update", statement.operands[1].rank, statement.rank)
    return problem or _ranked(statement)


def _gather(statement: _Written) -> str | None:
    sizes = statement.attributes.get("slice_sizes")
    count = len(sizes) if isinstance(sizes, tuple) else 0
    return _counted("slice sizes", count, statement.rank)


def _dot(statement: _Written) -> str | None:
    for side, operand in zip(("lhs", "rhs"), statement.operands, strict=False):
        for key in (f"{side}_batch_dims", f"{side}_contracting_dims"):
            if key in statement.attributes and (p := _dimensions(statement, operand.rank, key)):
                return p
    return None


def _window(statement: _Written) -> str | None:
    try:
        window = window_dimensions(statement.attributes.get("window", {}))
    except UnusableInput as error:
        return f"has {error.problem}"
    if statement.opcode == "reduce-window":
        if _lacks(statement, "window"):
            return "has no window="
        return _counted("sizes of its window", len(window), statement.rank) or _ranked(statement)
    return None


def _same(statement: _Written) -> str | None:
    """Check an elementwise operation: all arrays have the same rank, scalars excepted."""
    ranks = {operand.rank for operand in statement.operands} - {0}
    ranks |= {statement.shape.rank} if statement.shape.is_array else set()
    return "has operands and a result of different ranks" if len(ranks) > 1 else None


def _lacks(statement: _Written, key: str) -> bool:
    """Return whether a required attribute is missing. Operations on scalars do not need it."""
    return statement.rank > 0 and key not in statement.attributes


def _counted(what: str, count: int, expected: int) -> str | None:
    return None if count == expected else f"has {count} {what}, expected {expected}"


def _ranked(statement: _Written) -> str | None:
    if not statement.shape.is_array:
        return None
    return _counted("sizes", statement.shape.rank, statement.rank)


# A bitcast-convert to another width changes the rank.
ELEMENTWISE = (UNARY | BINARY) - {"bitcast-convert"}
_CHECKS: dict[str, Callable[[_Written], str | None]] = {
    **dict.fromkeys(ELEMENTWISE, _same),
    "broadcast": _broadcast,
    "concatenate": _concatenate,
    "convolution": _window,
    "dot": _dot,
    "dynamic-slice": _dynamic,
    "dynamic-update-slice": _dynamic,
    "gather": _gather,
    "get-tuple-element": _element,
    "pad": _pad,
    "reduce": _reduce,
    "reduce-window": _window,
    "reverse": _of_operand,
    "slice": _slice,
    "sort": _of_operand,
    "transpose": _transpose,
}
# Operations whose shape the compiler's parser infers, whatever the text declares.
TRANSFERS = frozenset({"outfeed", "recv", "recv-done", "send", "send-done"})
# The operations that are checked.
CHECKED = frozenset(_CHECKS) | frozenset(_CALLS) | TRANSFERS


def transfer_shape(opcode: str, operands: Sequence[Shape], declared: Shape) -> Shape | None:
    """Return the shape of one of ``TRANSFERS``, or None if it has no data to transfer. Source:
    xla/hlo/ir/hlo_instructions.cc, HloSendInstruction and so on.
    """
    token = Shape("token")
    if opcode in ("outfeed", "send-done"):
        return token
    if opcode == "send":
        return Shape(TUPLE, elements=(operands[0], Shape("u32"), token)) if operands else None
    source = declared if opcode == "recv" else operands[0]
    if not source.elements:
        return None
    if opcode == "recv-done":
        return Shape(TUPLE, elements=(source.elements[0], token))
    return Shape(TUPLE, elements=(source.elements[0], Shape("u32"), token))
