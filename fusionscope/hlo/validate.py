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
from fusionscope.hlo.text import STRING
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
        if not isinstance(value, tuple) or not all(isinstance(each, int) for each in value):
            return None
        return value if len({*value}) == len(value) else None


def find_problem(
    opcode: str, operands: Sequence[str], shape: str, attributes: str, shapes: ShapeTable
) -> str | None:
    """Return what is wrong with an instruction of these operands, result (as text) and attributes,
    or None.
    """
    needed = _CALLS.get(opcode, 0)
    if needed and (called := len(called_names(attributes))) < needed:
        return f"calls {called} computations, expected {needed}"
    if opcode not in _CHECKS:
        return None
    # Without metadata, few instructions are distinct.
    stated = "" if opcode in ELEMENTWISE else _without_metadata(attributes)
    key = (opcode, stated, shape, *operands)
    if key in shapes.fitting:
        return None
    read = [shapes[each] for each in operands]
    problem = _find_problem(opcode, read, shapes[shape], stated)
    if problem is None:
        shapes.fitting.add(key)
    return problem


def _without_metadata(attributes: str) -> str:
    before, _, metadata = attributes.partition(", metadata={")
    if metadata.find("}") == len(metadata) - 1:  # nothing follows it
        return before
    return _METADATA.sub("", attributes)


def _find_problem(
    opcode: str, operands: Sequence[Shape], shape: Shape, attributes: str
) -> str | None:
    if opcode != "get-tuple-element" and not all(each.is_array for each in operands):
        return None
    if not operands:
        return "has no operands"
    return _CHECKS[opcode](_Written(opcode, operands, shape, _read(attributes)))


def _element(written: _Written) -> str | None:
    read, index = written.operands[0], written.attributes.get("index")
    if not isinstance(index, int) or not 0 <= index < _TOO_LARGE:
        return "has no index= of an element"
    if read.is_tuple and index >= len(read.elements):
        return f"has index={index}, which a tuple of {len(read.elements)} has not"
    return None


_read = lru_cache(maxsize=4096)(read_attributes)


def _dimensions(written: _Written, rank: int, key: str = "dimensions") -> str | None:
    """Return a message unless the dimensions are distinct and below ``rank``."""
    found = written.numbers(key)
    if found is None:
        return f"names no dimensions, or one twice, expected {key}="
    if any(not 0 <= each < rank for each in found):
        return f"has {key}={{{','.join(map(str, found))}}}, which an array of rank {rank} has not"
    return None


def _of_operand(written: _Written) -> str | None:
    return _dimensions(written, written.rank)


def _transpose(written: _Written) -> str | None:
    problem = _dimensions(written, written.rank)
    found = written.numbers("dimensions") or ()
    return problem or _counted("dimensions", len(found), written.rank) or _ranked(written)


def _broadcast(written: _Written) -> str | None:
    if written.rank == 0 and not written.attributes.get("dimensions"):
        return None
    problem = _dimensions(written, written.shape.rank)
    return problem or _counted("dimensions", len(written.numbers("dimensions") or ()), written.rank)


def _reduce(written: _Written) -> str | None:
    if problem := _dimensions(written, written.rank):
        return problem
    kept = written.rank - len(written.numbers("dimensions") or ())
    results = written.shape.elements if written.shape.is_tuple else (written.shape,)
    if len(results) != len(written.operands) // 2:
        return f"has {len(results)} results, expected {len(written.operands) // 2}"
    ranks = {each.rank for each in written.operands[: len(results)]}
    if ranks != {written.rank}:
        return "reduces arrays of different ranks"
    return next((p for each in results if (p := _counted("sizes", each.rank, kept))), None)


def _concatenate(written: _Written) -> str | None:
    if problem := _dimensions(written, written.shape.rank):
        return problem
    if len(written.numbers("dimensions") or ()) != 1:
        return "concatenates along several dimensions, expected one"
    ranks = (each.rank for each in written.operands)
    return next((p for rank in ranks if (p := _counted("sizes", rank, written.shape.rank))), None)


def _slice(written: _Written) -> str | None:
    cuts = written.attributes.get("slice", ())
    if _lacks(written, "slice") or not all(
        cut[0] >= 0 and cut[1] >= 0 and cut[2:] != (0,) and _is_small(cut) for cut in cuts
    ):
        return "has no slice= of entries such as [0:8:2]"
    return _counted("cuts", len(cuts), written.rank) or _ranked(written)


def _pad(written: _Written) -> str | None:
    pads = written.attributes.get("padding", ())
    if _lacks(written, "padding") or not all(
        _is_small(pad) and min(pad[2:], default=0) >= 0 for pad in pads
    ):
        return "has no padding= of entries such as 1_1 or 1_1_0"
    return _counted("paddings", len(pads), written.rank) or _ranked(written)


def _is_small(numbers: Iterable[int]) -> bool:
    return all(abs(number) < _TOO_LARGE for number in numbers)


def _dynamic(written: _Written) -> str | None:
    """Check for one index per dimension or, as in older compilers, one array of them."""
    others = written.operands[2 if written.opcode == "dynamic-update-slice" else 1 :]
    one = len(others) == 1 and others[0].rank == 1
    problem = None if one else _counted("indices", len(others), written.rank)
    if problem is None and written.opcode == "dynamic-update-slice":
        problem = _counted("sizes of its update", written.operands[1].rank, written.rank)
    return problem or _ranked(written)


def _gather(written: _Written) -> str | None:
    sizes = written.attributes.get("slice_sizes")
    found = len(sizes) if isinstance(sizes, tuple) else 0
    return _counted("slice sizes", found, written.rank)


def _dot(written: _Written) -> str | None:
    for side, operand in zip(("lhs", "rhs"), written.operands, strict=False):
        for key in (f"{side}_batch_dims", f"{side}_contracting_dims"):
            if key in written.attributes and (p := _dimensions(written, operand.rank, key)):
                return p
    return None


def _window(written: _Written) -> str | None:
    try:
        window = window_dimensions(written.attributes.get("window", {}))
    except UnusableInput as error:
        return f"has {error.problem}"
    if written.opcode == "reduce-window":
        if _lacks(written, "window"):
            return "has no window="
        return _counted("sizes of its window", len(window), written.rank) or _ranked(written)
    return None


def _same(written: _Written) -> str | None:
    """Check an elementwise operation: all arrays have the same rank, scalars excepted."""
    ranks = {each.rank for each in written.operands} - {0}
    ranks |= {written.shape.rank} if written.shape.is_array else set()
    return "has operands and a result of different ranks" if len(ranks) > 1 else None


def _lacks(written: _Written, key: str) -> bool:
    """Return whether a required attribute is missing. Operations on scalars do not need it."""
    return written.rank > 0 and key not in written.attributes


def _counted(what: str, found: int, expected: int) -> str | None:
    return None if found == expected else f"has {found} {what}, expected {expected}"


def _ranked(written: _Written) -> str | None:
    if not written.shape.is_array:
        return None
    return _counted("sizes", written.shape.rank, written.rank)


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
