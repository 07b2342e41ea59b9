"""When a product becomes one call of cuBLASLt on 8-bit floats, with the factors that scale them.
The conditions are those for NVIDIA GPUs.

Source of all: xla/backends/gpu/transforms/gemm_rewriter.cc.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from fusionscope.dump.device import CudaCapability
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import is_elementwise
from fusionscope.hlo import Instruction
from fusionscope.hlo.search import reachable
from fusionscope.passes.gpu.gemm_rewriter import PASS_NAME
from fusionscope.passes.rule import Decision, Rule, RuleBook, first_decision

_E4, _E5 = "f8e4m3fn", "f8e5m2"
_NAMES = ("left", "right")
# Instructions with several operands that lead to an 8-bit float, and which of these.
_LEADING = {
    "divide": (0,),
    "dynamic-slice": (0,),
    "multiply": (0, 1),
    "pad": (0,),
    "select": (1, 2),
}
_BETWEEN = frozenset(
    "bitcast broadcast copy dynamic-slice pad reshape select slice transpose".split()
)
# What a dot reads and computes, in the table of cuBLASLt.
_TYPES = frozenset(
    {
        *((kind, kind, result) for kind in ("bf16", "f16") for result in (kind, "f32")),
        ("f32", "f32", "f32"),
        *((_E4, _E4, result) for result in ("bf16", "f16", "f32", _E4)),
        *((_E4, _E5, result) for result in ("bf16", "f16", "f32", _E4, _E5)),
        *((_E5, _E4, result) for result in ("bf16", "f16", "f32", _E4, _E5)),
    }
)
_RESULTS = frozenset({"bf16", "f16", "f32", _E4, _E5})


def is_float8(value: Instruction | MutableInstruction) -> bool:
    return value.shape.is_array and value.shape.element_type.startswith("f8")


@dataclass(frozen=True, slots=True)
class Operand:
    """Operand ``number`` of a dot. ``path`` leads to it from an array of 8-bit floats, both
    included; it is empty if nothing does. Then ``obstacle`` is what stands between, None if there
    are no 8-bit floats.
    """

    number: int
    path: tuple[MutableInstruction, ...]
    obstacle: MutableInstruction | None = None

    @property
    def name(self) -> str:
        return f"the {_NAMES[self.number]} operand"

    @property
    def scale(self) -> MutableInstruction | None:
        """The factor, before it is broadcast, by which the array is multiplied or divided."""
        if len(self.path) < 3 or self.path[1].opcode != "convert":
            return None
        wider, scaled = self.path[1:3]
        factors = [operand for operand in scaled.operands if operand is not wider]
        is_scaled = scaled.opcode == "multiply" or (
            scaled.opcode == "divide" and scaled.operands[0] is wider
        )
        if not is_scaled or len(factors) != 1 or factors[0].opcode != "broadcast":
            return None
        return factors[0].operands[0]

    @property
    def later(self) -> tuple[MutableInstruction, ...]:
        """What comes after the array is converted and scaled, the dot's operand last."""
        return self.path[3 if self.scale is not None else 2 :]


def read_operand(dot: MutableInstruction, number: int) -> Operand:
    """Source: FindF8SubgraphRecursive."""
    start = dot.operands[number]
    readers: dict[MutableInstruction, MutableInstruction | None] = {}
    pending: list[tuple[MutableInstruction, MutableInstruction | None]] = [(start, None)]
    while pending:
        instruction, reader = pending.pop()
        if instruction in readers:
            continue
        readers[instruction] = reader
        if is_float8(instruction):
            return Operand(number, tuple(_up_to(instruction, readers)))
        count = len(instruction.operands)
        slots = (0,) if count == 1 else _LEADING.get(instruction.opcode, ())
        pending += [(instruction.operands[slot], instruction) for slot in reversed(slots)]
    return Operand(number, (), next(filter(_hides_float8, readers), None))


def _hides_float8(instruction: MutableInstruction) -> bool:
    """Return whether the search ends here, and elementwise operations lead on to 8-bit floats."""
    if len(instruction.operands) < 2 or instruction.opcode in _LEADING:
        return False
    return any(map(is_float8, reachable([instruction], _operands_by_element)))


def _operands_by_element(instruction: MutableInstruction) -> Sequence[MutableInstruction]:
    is_passed = instruction.opcode in _BETWEEN or is_elementwise(instruction)
    return instruction.operands if is_passed else ()


def _up_to(
    instruction: MutableInstruction | None,
    readers: dict[MutableInstruction, MutableInstruction | None],
) -> Iterator[MutableInstruction]:
    while instruction is not None:
        yield instruction
        instruction = readers[instruction]


@dataclass(frozen=True, slots=True)
class Product:
    """``capability`` is that of the GPU, None if it is unknown."""

    dot: MutableInstruction
    operands: tuple[Operand, Operand]
    capability: CudaCapability | None


class OperandRule(Rule):
    """A condition for one operand."""

    __slots__ = ()

    @abstractmethod
    def check(self, operand: Operand) -> Decision | None:
        """Return a refusal, or None if the operand meets the condition."""


class ProductRule(Rule):
    """A condition for a dot whose operands meet theirs."""

    __slots__ = ()

    @abstractmethod
    def check(self, product: Product) -> Decision | None:
        """Return a refusal, or None if the dot meets the condition."""


class Types(ProductRule):
    """Source: TypesAreSupportedByCublasLt, which is asked first."""

    __slots__ = ()
    id: ClassVar = "f8-types"

    def check(self, product: Product) -> Decision | None:
        dot = product.dot
        lhs, rhs, result = types = (
            *(operand.shape.element_type for operand in dot.operands),
            dot.shape.element_type,
        )
        if types in _TYPES:
            return None
        return self.refuse(f"the dot computes {result} from {lhs} and {rhs}")


class Source(OperandRule):
    """Source: FindF8SubgraphRecursive."""

    __slots__ = ()
    id: ClassVar = "f8-source"

    def check(self, operand: Operand) -> Decision | None:
        if operand.path:
            return None
        if operand.obstacle is None:
            return self.refuse(f"{operand.name} has no 8-bit floats")
        opcode = operand.obstacle.opcode
        message = f"the way from {operand.name} to 8-bit floats ends at {opcode}"
        return self.refuse(message, at=operand.obstacle.origin)


class Dequantization(OperandRule):
    """Source: MatchFp8Param."""

    __slots__ = ()
    id: ClassVar = "f8-dequantization"

    def check(self, operand: Operand) -> Decision | None:
        if len(operand.path) == 1 or operand.path[1].opcode == "convert":
            return None
        first = operand.path[1]
        return self.refuse(f"{operand.name} begins with {first.opcode}", at=first.origin)


class Between(OperandRule):
    """Source: MatchFp8Param."""

    __slots__ = ()
    id: ClassVar = "f8-between"

    def check(self, operand: Operand) -> Decision | None:
        before = operand.path[-len(operand.later) - 1] if operand.later else None
        for instruction in operand.later:
            if instruction.opcode not in _BETWEEN or not _keeps_values(instruction, before):
                message = f"{operand.name} goes through {instruction.opcode} after it is scaled"
                return self.refuse(message, at=instruction.origin)
            before = instruction
        return None


def _keeps_values(instruction: MutableInstruction, source: MutableInstruction | None) -> bool:
    """Return whether a bitcast keeps the type, and a select the values or else zeros."""
    if instruction.opcode == "bitcast":
        return instruction.shape.element_type == instruction.operands[0].shape.element_type
    if instruction.opcode == "select":
        _, yes, no = instruction.operands
        filling = no if yes is source else yes
        constant = filling.operands[0] if filling.opcode == "broadcast" else filling
        is_scalar = constant.opcode == "constant" and not constant.shape.dimensions
        return filling.opcode == "broadcast" and is_scalar and constant.literal in ("0", "-0")
    return True


@dataclass(frozen=True, slots=True)
class Capability(ProductRule):
    """The GPU has at least the capability ``least``: 89 is 8.9. Source: CreateF8CustomCall."""

    least: int = 89
    id: ClassVar = "f8-device"

    def check(self, product: Product) -> Decision | None:
        capability = product.capability
        if capability is None or 10 * capability.major + capability.minor >= self.least:
            return None
        return self.refuse(f"the GPU is {capability}")


class Formats(ProductRule):
    """Source: CreateF8CustomCall."""

    __slots__ = ()
    id: ClassVar = "f8-formats"

    def check(self, product: Product) -> Decision | None:
        lhs, rhs = (operand.path[0].shape.element_type for operand in product.operands)
        if {lhs, rhs} <= {_E4, _E5} and not lhs == rhs == _E5:
            return None
        return self.refuse(f"the operands are {lhs} and {rhs}")


class ScalarScale(OperandRule):
    """Source: CreateF8CustomCall."""

    __slots__ = ()
    id: ClassVar = "f8-scale"

    def check(self, operand: Operand) -> Decision | None:
        scale = operand.scale
        if scale is None or not scale.shape.dimensions:
            return None
        sizes = ",".join(map(str, scale.shape.dimensions))
        shape = f"{scale.shape.element_type}[{sizes}]"
        return self.refuse(f"the scale of {operand.name} is {shape}", at=scale.origin)


class Result(ProductRule):
    """Source: CreateF8CustomCall."""

    __slots__ = ()
    id: ClassVar = "f8-result"

    def check(self, product: Product) -> Decision | None:
        kind = product.dot.shape.element_type
        return None if kind in _RESULTS else self.refuse(f"the dot computes {kind}")


class Dimensions(ProductRule):
    """Source: CreateF8CustomCall."""

    __slots__ = ()
    id: ClassVar = "f8-dimensions"

    def check(self, product: Product) -> Decision | None:
        batch = len(product.dot.attribute("lhs_batch_dims") or ())
        for operand, side in zip(product.operands, ("lhs", "rhs"), strict=True):
            contracted = len(product.dot.attribute(f"{side}_contracting_dims") or ())
            rank = (operand.later or operand.path)[-1 if operand.later else 0].shape.rank
            if contracted != 1 or rank != batch + 2:
                free = rank - batch - contracted
                message = f"{operand.name} has {contracted} contracted and {free} free dimensions"
                return self.refuse(message)
        return None


FLOAT8: RuleBook[Rule] = RuleBook(
    "gemm-rewriter-float8",
    PASS_NAME,
    "gpu",
    (
        Types(),
        Source(),
        Dequantization(),
        Between(),
        Capability(),
        Formats(),
        ScalarScale(),
        Result(),
        Dimensions(),
    ),
)


def find_refusal(product: Product) -> Decision | None:
    """Return the first condition that is not met, in the order of the compiler: conditions for one
    operand that follow each other are asked for the left operand, then for the right one.
    """
    return first_decision(_decisions(product))


def _decisions(product: Product) -> Iterator[Decision | None]:
    of_operand: list[OperandRule] = []
    for rule in FLOAT8:
        if isinstance(rule, OperandRule):
            of_operand.append(rule)
            continue
        yield from (r.check(operand) for operand in product.operands for r in of_operand)
        of_operand = []
        assert isinstance(rule, ProductRule)
        yield rule.check(product)
