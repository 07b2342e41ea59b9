"""The rules of matrix multiplication fusion for Triton that all versions share.

Source of all: xla/backends/gpu/transforms/gemm_fusion.cc and
xla/service/gpu/triton_tiling_propagation.cc.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import ClassVar, Generic, TypeVar

from fusionscope.dump.device import Device
from fusionscope.gpu.triton_support import TritonVersion
from fusionscope.graph.layouts import sizes
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import is_elementwise
from fusionscope.passes.gpu.gemm_fusion.triton_dot import unsupported_dot
from fusionscope.passes.rule import Decision, Rule, first_decision

PASS_NAME = "triton-gemm-rewriter"

VIEWS = frozenset({"bitcast", "reshape"})
_LOOP_TYPES = frozenset({"f16", "f32", "bf16"})
_LOOP_ALGORITHMS = frozenset({None, "dot_bf16_bf16_f32", "dot_f32_f32_f32"})


class Neighbour(Enum):
    """The role of a candidate for a fusion."""

    OPERAND = "operand"
    USER = "user"


@dataclass(frozen=True, slots=True)
class GemmState:
    """The state of a run of the pass: the device, the flag xla_gpu_gemm_rewrite_size_threshold, and
    the abilities of Triton.
    """

    device: Device
    size_threshold: int
    triton: TritonVersion


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate for a fusion: ``instruction`` is an operand of ``reader`` or, for a user of the
    fusion, reads ``reader``, which is then the fusion.

    ``original`` is the candidate in the compiled module.
    """

    neighbour: Neighbour
    instruction: MutableInstruction
    original: MutableInstruction
    reader: MutableInstruction | None

    def takes_broadcast(self, broadcast: MutableInstruction) -> bool:
        """Return whether a broadcast that it reads could follow it into the fusion."""
        return True


class DotRule(Rule):
    """A rule about a dot, whatever is around it."""

    __slots__ = ()

    @abstractmethod
    def check(self, dot: MutableInstruction, state: GemmState) -> Decision | None:
        """Return a refusal, or None if the rule has no objection to a fusion of the dot."""


AnyCandidate = TypeVar("AnyCandidate", bound=Candidate)


class AroundRule(Rule, Generic[AnyCandidate]):
    """A rule about the neighbours of the fusion in its current form."""

    __slots__ = ()
    neighbours: ClassVar[tuple[Neighbour, ...]] = (Neighbour.OPERAND, Neighbour.USER)

    @abstractmethod
    def check(self, candidate: AnyCandidate, state: GemmState) -> Decision | None:
        """Return a refusal, or None if the rule has no objection to the candidate."""


def find_refusal(rules: Iterable[Rule], candidate: Candidate, state: GemmState) -> Decision | None:
    """Return the first refusal of the candidate."""
    return first_decision(
        rule.check(candidate, state)
        for rule in rules
        if isinstance(rule, AroundRule) and candidate.neighbour in rule.neighbours
    )


class GemmSize(DotRule):
    __slots__ = ()
    id: ClassVar = "gemm-size"

    def check(self, dot: MutableInstruction, state: GemmState) -> Decision | None:
        lhs, rhs = (sizes(operand.shape) for operand in dot.operands)
        batch = prod(lhs[dimension] for dimension in dot.attribute("lhs_batch_dims") or ())
        size = (prod(lhs) + prod(rhs)) // batch if batch else 0
        if (
            size >= state.size_threshold
            or dot.shape.element_type not in _LOOP_TYPES
            or dot.attributes.get("algorithm") not in _LOOP_ALGORITHMS
        ):
            return None
        return self.refuse(size=size, threshold=state.size_threshold)


class GemmSupport(DotRule):
    __slots__ = ()
    id: ClassVar = "gf-dot-support"
    is_legality: ClassVar = True

    def check(self, dot: MutableInstruction, state: GemmState) -> Decision | None:
        problem = unsupported_dot(dot, state.device, state.triton)
        return None if problem is None else self.refuse(problem)


class GemmPower(AroundRule[Candidate]):
    __slots__ = ()
    id: ClassVar = "gf-power"
    neighbours: ClassVar[tuple[Neighbour, ...]] = (Neighbour.OPERAND,)
    message: ClassVar = "Not fusing power op with multiple users."

    def check(self, candidate: Candidate, state: GemmState) -> Decision | None:
        original = candidate.original
        if original.opcode != "power" or len(original.users) <= 1:
            return None
        return self.refuse(users=len(original.users))


@dataclass(frozen=True, slots=True)
class GemmInputWorth(AroundRule[Candidate]):
    id: ClassVar = "gf-input-worth"
    neighbours: ClassVar[tuple[Neighbour, ...]] = (Neighbour.OPERAND,)
    message: ClassVar = "Not obviously profitable to fuse as input."

    tolerance: int = 1024

    def check(self, candidate: Candidate, state: GemmState) -> Decision | None:
        original = candidate.original
        if reads_broadcast(original, candidate) or self.is_worth(original):
            return None
        return self.refuse(added_bytes=added_bytes(original) or 0, tolerance=self.tolerance)

    def is_worth(self, instruction: MutableInstruction) -> bool:
        added = added_bytes(instruction)
        if added is None:
            return False
        if added <= self.tolerance:
            return True
        if len(instruction.users) > 1 or instruction.opcode == "multiply":
            return False
        if instruction.opcode == "slice" and (
            _reads_given(instruction) or self.takes_part(instruction)
        ):
            return True
        return _reads_given(instruction) and all(
            len(operand.users) <= 1 for operand in instruction.operands
        )

    def takes_part(self, slice_: MutableInstruction) -> bool:
        """Return whether a slice's operand has users other than such slices, and is cheap."""
        operand = slice_.operands[0]
        while operand.opcode in ("bitcast", "transpose", "reshape") and len(operand.users) == 1:
            operand = operand.operands[0]
        users = list(operand.users)
        if len(users) <= 1 or all(
            user.opcode == "slice" and sizes(user.shape) == sizes(slice_.shape) for user in users
        ):
            return False
        return self.is_cheap(operand)

    def is_cheap(self, instruction: MutableInstruction) -> bool:
        """Return whether computing it for several users costs little."""
        return (
            instruction.opcode in ("parameter", "constant")
            or is_elementwise(instruction)
            or all(user.opcode == "slice" for user in instruction.users)
        )


class GemmOtherInputs(AroundRule[Candidate]):
    __slots__ = ()
    id: ClassVar = "gf-other-inputs"
    neighbours: ClassVar[tuple[Neighbour, ...]] = (Neighbour.USER,)
    message: ClassVar = "Has multiple inputs - not properly analyzed yet."

    def check(self, candidate: Candidate, state: GemmState) -> Decision | None:
        if candidate.reader is None:
            return None
        operands = candidate.instruction.operands
        slot = operands.index(candidate.reader)
        for operand in (*operands[:slot], *operands[slot + 1 :]):
            source = operand
            if operand.opcode == "broadcast":
                source = operand.operands[0]
                if not source.shape.rank:
                    continue
            if not _is_effective_parameter(source):
                return self.refuse(operand=operand.name)
        return None


@dataclass(frozen=True, slots=True)
class GemmOutputWorth(AroundRule[Candidate]):
    id: ClassVar = "gf-output-worth"
    neighbours: ClassVar[tuple[Neighbour, ...]] = (Neighbour.USER,)
    message: ClassVar = "Not obviously profitable to fuse as output."

    tolerance: int = 1024

    def check(self, candidate: Candidate, state: GemmState) -> Decision | None:
        original = candidate.original
        added = added_bytes(original)
        if added is not None and (_ends_there(original) or added >= -self.tolerance):
            return None
        return self.refuse(added_bytes=added or 0, tolerance=self.tolerance)


def added_bytes(instruction: MutableInstruction) -> int | None:
    """Return the bytes read less those written, None for tuples (InputMinusOutputBytes)."""
    if any(operand.shape.is_tuple for operand in instruction.operands):
        return None
    read = sum(operand.shape.byte_size for operand in instruction.operands)
    return read - instruction.shape.byte_size


def reads_broadcast(instruction: MutableInstruction, candidate: Candidate | None = None) -> bool:
    """Return whether it is elementwise and one of its two operands is a broadcast of a parameter or
    constant.

    Source: IsBinaryElementwiseOfBroadcastParamOrConst.
    """
    return (
        len(instruction.operands) == 2
        and is_elementwise(instruction)
        and any(
            operand.opcode == "broadcast"
            and operand.operands[0].opcode in ("parameter", "constant")
            and (candidate is None or candidate.takes_broadcast(operand))
            for operand in instruction.operands
        )
    )


def added_parameters(instruction: MutableInstruction) -> int:
    """Return how many parameters it adds to a fusion. Source: NumAddedParameters."""
    return len(instruction.operands) - 1


def _reads_given(instruction: MutableInstruction) -> bool:
    return all(operand.opcode in ("parameter", "constant") for operand in instruction.operands)


def _ends_there(instruction: MutableInstruction) -> bool:
    """Return whether it has no user into which it could be fused (CanNotBeFusedIntoAUser)."""
    if instruction.is_root:
        return True
    users = list(instruction.users)
    return len(users) == 1 and users[0].is_root and users[0].opcode == "tuple"


def _is_effective_parameter(instruction: MutableInstruction) -> bool:
    while instruction.opcode in ("bitcast", "get-tuple-element"):
        instruction = instruction.operands[0]
    return instruction.opcode == "parameter"
