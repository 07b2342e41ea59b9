"""The smallest edits of a module after which a product's call of cuBLASLt can include what follows.

An edit changes no result, but for rounding, and may cost more than it saves. It is one of HLO: it
works on the stage in which the condition was examined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fusionscope.graph.mutable import (
    MutableComputation,
    MutableInstruction,
    MutableModule,
    remove_unused,
    replace_and_prune,
    replace_operand,
)
from fusionscope.graph.properties import is_one_elementwise
from fusionscope.history.library_calls import EpilogueStep
from fusionscope.hlo.search import reachable
from fusionscope.hlo.shape import Shape
from fusionscope.passes.gpu.gemm_rewriter.epilogues import Follower

_BARRIER = "opt-barrier"


@dataclass(frozen=True, slots=True)
class Place:
    """What ``Follower`` says, of a module that can be changed."""

    step: EpilogueStep
    operation: MutableInstruction
    operand: MutableInstruction
    path: tuple[MutableInstruction, ...]
    call: MutableInstruction

    @property
    def computation(self) -> MutableComputation:
        return self.operation.computation

    @property
    def readers(self) -> set[MutableInstruction]:
        """What leads from the product to the operation."""
        return {*self.path, self.operation}


def meet(rule: str, graph: MutableModule, follower: Follower) -> bool:
    """Change ``graph`` so that the condition ``rule`` is met. Return whether there is an edit for
    that; without one, nothing is changed.
    """
    edit = _EDITS.get(rule)
    if edit is None:
        return False
    computation = next(
        c for c in graph.post_order() if c.name == follower.operation.computation.name
    )
    by_name = {instruction.name: instruction for instruction in computation.instructions}
    return edit(
        Place(
            follower.step,
            by_name[follower.operation.name],
            by_name[follower.operand.name],
            tuple(by_name[instruction.name] for instruction in follower.path),
            by_name[follower.call.name],
        )
    )


def _compute_product_twice(place: Place) -> bool:
    """Other readers of the product get one of their own: with operands of its own, since the
    compiler makes one product of two that share one (xla/hlo/transforms/simplifiers/dot_merger.cc).
    """
    make = place.computation.make
    copies = {
        operand: make(_BARRIER, operand.shape, [operand]) for operand in place.call.operands[:2]
    }
    chain = place.path if place.path[0] is place.call else (place.call, *place.path)
    for value in chain:
        copies[value] = _copy(value, copies)
    for value in place.path:
        _give_others(value, copies[value], place.readers)
    return True


def _copy(
    value: MutableInstruction, copies: dict[MutableInstruction, MutableInstruction]
) -> MutableInstruction:
    """Return a copy that reads copies, where there are some."""
    operands = [copies.get(operand, operand) for operand in value.operands]
    return value.computation.make(value.opcode, value.shape, operands, value.attributes_text)


def _give_others(
    value: MutableInstruction, copy: MutableInstruction, readers: set[MutableInstruction]
) -> None:
    """Let all that read ``value``, but for ``readers``, read ``copy``."""
    for user in list(value.users):
        if user not in readers:
            replace_operand(user, value, copy)
    if value.is_root:
        value.computation.root = copy


def _operate_first(place: Place) -> bool:
    """What converts or moves the product comes after the operation instead of before."""
    value, operand = place.path[-1], place.operand
    steps = list(zip(place.path, place.path[1:], strict=False))
    if place.step is EpilogueStep.GELU or any(
        value.users != [place.operation] for value in place.path[1:]
    ):
        return False
    for before, after in reversed(steps):
        moved = _undo(after, before.shape, operand)
        if moved is None:
            return False
        operand = moved
    product = place.path[0]
    is_first = place.operation.operands[0] is value
    operands = [product, operand] if is_first else [operand, product]
    result = place.computation.make(place.operation.opcode, product.shape, operands)
    for _, after in steps:
        shape = Shape(result.shape.element_type, after.shape.dimensions)
        if after.opcode == "convert":
            shape = after.shape
        result = place.computation.make(after.opcode, shape, [result], after.attributes_text)
    replace_and_prune(place.operation, result)
    return True


def _undo(
    step: MutableInstruction, shape: Shape, operand: MutableInstruction
) -> MutableInstruction | None:
    """Return ``operand`` as it is before ``step``, which made its shape from ``shape``."""
    make, kind = operand.computation.make, operand.shape.element_type
    if step.opcode == "convert":
        source = operand.operands[0] if operand.opcode == "broadcast" else operand
        narrow = make("convert", Shape(shape.element_type, source.shape.dimensions), [source])
        if source is operand:
            return narrow
        return make("broadcast", shape, [narrow], operand.attributes_text)
    before = Shape(kind, shape.dimensions)
    if operand.opcode == "broadcast" and not operand.operands[0].shape.dimensions:
        return make("broadcast", before, list(operand.operands), ", dimensions={}")
    if step.opcode in ("bitcast", "reshape"):
        is_plain = step.opcode == "reshape" or all(map(_is_row_major, (step.shape, shape)))
        return make("reshape", before, [operand]) if is_plain else None
    if step.opcode == "copy":
        return operand
    if step.opcode == "transpose":
        order = step.attribute("dimensions")
        inverse = ",".join(str(order.index(dimension)) for dimension in range(len(order)))
        return make("transpose", before, [operand], f", dimensions={{{inverse}}}")
    return None


def _is_row_major(shape: Shape) -> bool:
    """Return whether a bitcast of such a shape is a reshape, and no transpose."""
    order = shape.layout.minor_to_major if shape.layout is not None else ()
    return list(order) == sorted(order, reverse=True)


def _spread_by_columns(place: Place) -> bool:
    """A number becomes a vector for the columns, and what is none of these a matrix."""
    (bias,), shape = place.operand.operands, place.operand.shape
    if bias.shape.dimensions or shape.rank < 2:
        return _add_matrix(place)
    minor = shape.layout.minor_to_major[0] if shape.layout is not None else shape.rank - 1
    vector = Shape(bias.shape.element_type, (shape.dimensions[minor],))
    make = place.computation.make
    spread = make("broadcast", vector, [bias], ", dimensions={}")
    columns = make(_BARRIER, vector, [spread])
    wide = make("broadcast", shape, [columns], f", dimensions={{{minor}}}")
    replace_operand(place.operation, place.operand, wide)
    remove_unused(place.operand)
    return True


def _add_matrix(place: Place) -> bool:
    """The bias is written as a matrix, which the call adds."""
    matrix = place.computation.make(_BARRIER, place.operand.shape, [place.operand])
    replace_operand(place.operation, place.operand, matrix)
    return True


def _spread_twice(place: Place) -> bool:
    """Other readers of the bias get one of their own."""
    if place.operand.opcode != "broadcast":
        return False
    (bias,) = place.operand.operands
    source = place.computation.make(_BARRIER, bias.shape, [bias])
    copy = _copy(place.operand, {bias: source})
    _give_others(place.operand, copy, {place.operation})
    return True


def _compute_gelu_twice(place: Place) -> bool:
    """Other readers of parts of GELU compute these again."""
    value = place.path[-1]
    parts = _parts(place.operand, value)
    formula = {*parts, place.operation}
    shared = [part for part in parts if part.is_root or not formula.issuperset(part.users)]
    if not shared:
        return False
    copies = {value: place.computation.make(_BARRIER, value.shape, [value])}
    for part in parts:
        copies[part] = _copy(part, copies)
    for part in shared:
        _give_others(part, copies[part], formula)
    return True


def _parts(result: MutableInstruction, value: MutableInstruction) -> Sequence[MutableInstruction]:
    """Return what computes ``result`` from ``value``, elementwise, operands first."""
    parts = set(
        reachable([result], lambda i: () if i is value or not is_one_elementwise(i) else i.operands)
    )
    return [
        part
        for part in result.computation.post_order()
        if part in parts and part is not value and is_one_elementwise(part)
    ]


def _operate_before_slice(place: Place) -> bool:
    """The other array is filled up with zeros, and the sum is cut out instead of the product."""
    if [instruction.opcode for instruction in place.path[1:]] != ["slice"]:
        return False
    product, cut = place.path
    bounds = [(*bound, 1)[:3] for bound in cut.attribute("slice")]
    text = "x".join(
        f"{start}_{size - start - stride * (count - 1) - 1}_{stride - 1}"
        for (start, _, stride), size, count in zip(
            bounds, product.shape.dimensions, cut.shape.dimensions, strict=True
        )
        if size is not None and count is not None
    )
    make = place.computation.make
    zero = make("constant", Shape(product.shape.element_type, ()), [])
    zero.inside = "0"
    filled = make("pad", product.shape, [place.operand, zero], f", padding={text}")
    total = make("add", product.shape, [product, filled])
    replace_and_prune(place.operation, make("slice", cut.shape, [total], cut.attributes_text))
    return True


def _swap(place: Place) -> bool:
    """The product is the first operand of the sum."""
    first, second = place.operation.operands
    total = place.computation.make("add", place.operation.shape, [second, first])
    replace_and_prune(place.operation, total)
    return True


_EDITS: dict[str, Callable[[Place], bool]] = {
    "lt-between": _operate_first,
    "lt-broadcast": _spread_twice,
    "lt-columns": _spread_by_columns,
    "lt-first": _swap,
    "lt-gelu": _compute_gelu_twice,
    "lt-minor": _add_matrix,
    "lt-slice": _operate_before_slice,
    "lt-users": _compute_product_twice,
    "lt-wider": _operate_first,
}
