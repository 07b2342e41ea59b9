"""When a call of cuDNN also computes what follows a convolution: a factor, a bias, a sum with
another array, an activation. The conditions are those for NVIDIA GPUs.

Source of all: xla/backends/gpu/transforms/cudnn_fused_conv_rewriter.cc.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from fusionscope.hlo import Instruction
from fusionscope.passes.gpu.conv_rewriter import FORWARD_TARGETS, PASS_NAME
from fusionscope.passes.gpu.gemm_rewriter.epilogues import is_gelu
from fusionscope.passes.rule import Decision, Rule, RuleBook, first_decision

# Operations after which something is still said to follow the convolution.
_BETWEEN = frozenset("bitcast convert copy reshape slice transpose".split())
_ZEROS = ("0", "-0")


class Step(StrEnum):
    """The steps that may follow."""

    SCALING = "scaling"
    BIAS = "bias"
    ADDITION = "addition of another array"
    RELU = "ReLU"
    RELU6 = "ReLU6"
    ELU = "ELU"
    LEAKY_RELU = "leaky ReLU"
    GELU = "GELU"


_SUMS = frozenset({Step.BIAS, Step.ADDITION})
_COMPILED = frozenset({Step.RELU6, Step.ELU, Step.LEAKY_RELU})
_SELECTED = frozenset({Step.ELU, Step.LEAKY_RELU})
_ACTIVATIONS = _COMPILED | {Step.RELU}


@dataclass(frozen=True, slots=True)
class Follower:
    """``step`` is computed by ``operation`` from the result of ``call`` and ``operand``. ``path``
    leads from the result to what ``operation`` reads, both included. ``has_engine`` is whether
    cuDNN may compile kernels (``xla_gpu_use_runtime_fusion``).
    """

    call: Instruction
    step: Step
    operation: Instruction
    operand: Instruction
    path: tuple[Instruction, ...]
    has_engine: bool

    @property
    def config(self) -> Mapping[str, Any]:
        config = self.call.attribute("backend_config") or {}
        part: Mapping[str, Any] = config.get("cudnn_conv_backend_config") or {}
        return part

    @property
    def activation(self) -> str:
        return str(self.config.get("activation_mode", "kNone")).removeprefix("k")

    @property
    def is_biased(self) -> bool:
        """Whether the call has the form with a bias, which may be zeros."""
        return len(self.call.operands) > 2

    @property
    def has_bias(self) -> bool:
        """Whether the call adds a bias that is not zero."""
        return self.is_biased and _constant(self.call.operands[2]) not in _ZEROS

    @property
    def channels(self) -> tuple[int, int]:
        """The channels of the kernel: those that it reads in a group, and those that it makes."""
        labels = self.call.attributes["dim_labels"].partition("->")[0].partition("_")[2]
        sizes = self.call.operands[1].shape.dimensions
        return sizes[labels.index("i")] or 0, sizes[labels.index("o")] or 0

    @property
    def is_depthwise(self) -> bool:
        groups = self.call.attribute("feature_group_count") or 1
        return groups > 1 and self.channels[0] == 1


def is_convolution_call(instruction: Instruction) -> bool:
    target = instruction.attributes.get("custom_call_target", "").strip('"')
    return instruction.opcode == "custom-call" and target in FORWARD_TARGETS


def find_follower(call: Instruction, *, has_engine: bool) -> Follower | None:
    """Return what follows the convolution next and is no part of the call, None if no call could
    compute it: an activation rather than a part of it, else what comes first in the text.
    """
    followers = sorted(
        _followers(call, has_engine),
        key=lambda follower: follower.step not in (Step.GELU, *_SELECTED),
    )
    return next(iter(followers), None)


def _followers(call: Instruction, has_engine: bool) -> Iterator[Follower]:
    pending: list[tuple[Instruction, ...]] = [
        (user,)
        for user in call.users
        if user.opcode == "get-tuple-element" and user.attribute("index") == 0
    ]
    while pending:
        path = pending.pop()
        for user in path[-1].users:
            if user.opcode in _BETWEEN:
                pending.append((*path, user))
                continue
            beside = [operand for operand in user.operands if operand is not path[-1]]
            step = _step(user, path[-1], beside)
            if step is not None:
                yield Follower(call, step, user, beside[-1], path, has_engine)


def _step(operation: Instruction, value: Instruction, beside: list[Instruction]) -> Step | None:
    match operation.opcode:
        case "add" if len(beside) == 1:
            is_vector = beside[0].opcode == "broadcast" and beside[0].operands[0].shape.rank <= 1
            return Step.BIAS if is_vector else Step.ADDITION
        case "maximum" if len(beside) == 1 and beside[0].opcode == "broadcast":
            return Step.RELU
        case "multiply" if len(beside) == 1 and _is_gelu(operation, value, beside[0]):
            return Step.GELU
        case "multiply" if len(beside) == 1 and _is_number(beside[0]):
            return Step.SCALING
        case "clamp" if operation.operands[1] is value:
            return Step.RELU6
        case "select" if operation.operands[1] is value and len(beside) == 2:
            match beside:
                case [condition, negative] if condition.opcode == "compare":
                    return _SELECTIONS.get(negative.opcode)
    return None


_SELECTIONS = {"exponential-minus-one": Step.ELU, "multiply": Step.LEAKY_RELU}


def _is_gelu(operation: Instruction, value: Instruction, operand: Instruction) -> bool:
    """Return whether the product, or that with half of it, is GELU of ``value``."""
    halves = [later for later in operation.users if later.opcode == "multiply"]
    factors = [factor for later in halves for factor in later.operands if factor is not operation]
    return any(is_gelu(value, factor) for factor in (operand, *factors))


def _is_number(operand: Instruction) -> bool:
    return operand.opcode == "broadcast" and not operand.operands[0].shape.dimensions


def _constant(operand: Instruction) -> str | None:
    """Return the number that is broadcast, None if it is no constant."""
    return operand.operands[0].literal if _is_number(operand) else None


class ConvolutionRule(Rule):
    """A condition for one step, or several."""

    __slots__ = ()
    steps: ClassVar[frozenset[Step]] = frozenset(Step)

    @abstractmethod
    def check(self, follower: Follower) -> Decision | None:
        """Return a refusal, or None if what follows meets the condition."""


class Depthwise(ConvolutionRule):
    """Source: IsNonDepthwiseConvCustomCall."""

    __slots__ = ()
    id: ClassVar = "conv-depthwise"

    def check(self, follower: Follower) -> Decision | None:
        if not follower.is_depthwise:
            return None
        return self.refuse("each channel has a kernel of its own", at=follower.call.name)


class Between(ConvolutionRule):
    """Source: FuseConvAlpha, FuseBiasOrSideInput, FuseRelu, FuseRelu6, FuseElu, FuseLeakyRelu."""

    __slots__ = ()
    id: ClassVar = "conv-between"

    def check(self, follower: Follower) -> Decision | None:
        if len(follower.path) == 1:
            return None
        first = follower.path[1]
        return self.refuse(
            f"{first.opcode} is between the convolution and the {follower.operation.opcode}",
            at=first.name,
        )


class Known(ConvolutionRule):
    """Source: CudnnFusedConvRewriter::RunImpl."""

    __slots__ = ()
    id: ClassVar = "conv-activation"
    steps: ClassVar = frozenset({Step.GELU})

    def check(self, follower: Follower) -> Decision | None:
        return self.refuse(f"no call computes {follower.step}", at=follower.operation.name)


class ReadOnce(ConvolutionRule):
    """Source: the same as for ``Between``: ``WithOneUse``."""

    __slots__ = ()
    id: ClassVar = "conv-users"

    def check(self, follower: Follower) -> Decision | None:
        value = follower.path[0]
        parts = {follower.operation}
        if follower.step in _SELECTED:
            parts.update(follower.operation.operands)
        readers = [user for user in (*follower.call.users, *value.users) if user is not value]
        also = next((reader for reader in readers if reader not in parts), None)
        if also is not None:
            return self.refuse(f"the result is also read by {also.name}", at=value.name)
        return (
            self.refuse("it is a result of the program", at=value.name) if value.is_root else None
        )


class Compiled(ConvolutionRule):
    """Source: ShouldUseCudnnRuntimeFusion."""

    __slots__ = ()
    id: ClassVar = "conv-engine"
    steps: ClassVar = _COMPILED

    def check(self, follower: Follower) -> Decision | None:
        if follower.has_engine:
            return None
        return self.refuse(
            f"{follower.step} needs xla_gpu_use_runtime_fusion", at=follower.operation.name
        )


class Half(ConvolutionRule):
    """Source: FuseElu, FuseRelu6, FuseLeakyRelu."""

    __slots__ = ()
    id: ClassVar = "conv-half"
    steps: ClassVar = _COMPILED

    def check(self, follower: Follower) -> Decision | None:
        kind = follower.path[0].shape.element_type
        if kind == "f16":
            return None
        return self.refuse(f"the convolution is of {kind}, not f16", at=follower.path[0].name)


class Formula(ConvolutionRule):
    """Source: FuseRelu, FuseRelu6, FuseElu, FuseLeakyRelu."""

    __slots__ = ()
    id: ClassVar = "conv-formula"
    steps: ClassVar = _ACTIVATIONS

    def check(self, follower: Follower) -> Decision | None:
        operation, value = follower.operation, follower.path[-1]
        if follower.step is Step.RELU:
            if _constant(follower.operand) in _ZEROS:
                return None
            return self.refuse("the maximum is not one with zero", at=follower.operand.name)
        if follower.step is Step.RELU6:
            bounds = _constant(operation.operands[0]), _constant(operation.operands[2])
            if bounds[0] in _ZEROS and bounds[1] == "6":
                return None
            return self.refuse("the bounds are not 0 and 6", at=operation.name)
        condition, _, negative = operation.operands
        if condition.attributes.get("direction") != "GT":
            return self.refuse("the condition is not whether it is over zero", at=condition.name)
        if condition.operands[0] is not value or _constant(condition.operands[1]) not in _ZEROS:
            return self.refuse("the condition is not whether it is over zero", at=condition.name)
        if value not in negative.operands:
            return self.refuse("below zero something else is read", at=negative.name)
        if len(condition.users) > 1 or len(negative.users) > 1:
            return self.refuse("a part of it is also read elsewhere", at=negative.name)
        return None


class Order(ConvolutionRule):
    """Source: CudnnFusedConvRewriter::RunImpl, and what each step asks of the configuration."""

    __slots__ = ()
    id: ClassVar = "conv-order"

    def check(self, follower: Follower) -> Decision | None:
        operation = follower.operation
        if follower.activation != "None":
            words = follower.activation.replace("Relu", "ReLU")
            return self.refuse(f"the call already computes {words}", at=operation.name)
        if follower.step is Step.SCALING and follower.is_biased:
            return self.refuse("the call already adds, or has a factor", at=operation.name)
        if follower.step in _SUMS and follower.has_bias and len(follower.call.operands) > 3:
            return self.refuse("the call already adds a bias and an array", at=operation.name)
        return None


class Factor(ConvolutionRule):
    """Source: FuseConvAlpha, FuseLeakyRelu."""

    __slots__ = ()
    id: ClassVar = "conv-factor"
    steps: ClassVar = frozenset({Step.SCALING, Step.LEAKY_RELU})

    def check(self, follower: Follower) -> Decision | None:
        factor = follower.operand
        if follower.step is Step.LEAKY_RELU:
            factors = [part for part in factor.operands if part is not follower.path[-1]]
            factor = factors[0] if factors else factor
        if _is_number(factor) and factor.operands[0].opcode == "constant":
            return None
        return self.refuse("the factor is not a constant", at=factor.name)


class Channels(ConvolutionRule):
    """Source: IsSuitableForCudnnRuntimeFusion."""

    __slots__ = ()
    id: ClassVar = "conv-channels"
    steps: ClassVar = _COMPILED

    def check(self, follower: Follower) -> Decision | None:
        if len(follower.call.operands) > 3:
            return self.refuse("the call adds another array", at=follower.call.name)
        odd = [count for count in follower.channels if count % 2]
        if odd or follower.call.operands[0].shape.element_type != "f16":
            return self.refuse(f"the channels are {follower.channels}", at=follower.call.name)
        return None


CONVOLUTIONS: RuleBook[ConvolutionRule] = RuleBook(
    "conv-rewriter-epilogues",
    PASS_NAME,
    "gpu",
    (
        Compiled(),
        Known(),
        Depthwise(),
        Between(),
        Formula(),
        Half(),
        ReadOnce(),
        Order(),
        Factor(),
        Channels(),
    ),
)


def find_refusal(follower: Follower) -> Decision | None:
    """Return the first condition that is not met."""
    return first_decision(
        rule.check(follower) for rule in CONVOLUTIONS if follower.step in rule.steps
    )
