"""When a call of cuBLASLt also computes what follows a product: a bias, a sum with another matrix,
ReLU, GELU, a factor. The conditions are those for NVIDIA GPUs.

Source of all: xla/backends/gpu/transforms/gemm_rewriter.cc.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fusionscope.graph.properties import is_one_elementwise
from fusionscope.history.library_calls import EpilogueStep, gemm_config
from fusionscope.hlo import Instruction
from fusionscope.hlo.search import reachable
from fusionscope.passes.gpu.gemm_rewriter import FLOAT8_TARGET, PASS_NAME, TARGET
from fusionscope.passes.gpu.gemm_rewriter.gelu import find_gelu_problem
from fusionscope.passes.rule import Decision, Rule, RuleBook, first_decision

# Operations after which something is still said to follow the product.
_BETWEEN = frozenset("bitcast convert copy reshape slice transpose".split())
_SOME = frozenset({("slice",), ("bitcast",)})
_BY_STEP = {
    EpilogueStep.BIAS: _SOME | {("slice", "bitcast")},
    EpilogueStep.ADDITION: _SOME | {("slice", "bitcast"), ("convert",)},
    EpilogueStep.RELU: _SOME,
    EpilogueStep.GELU: _SOME,
    EpilogueStep.SCALING: frozenset[tuple[str, ...]](),
}
_ACTIVATED = frozenset({"f8e4m3fn", "f8e5m2", "f16", "bf16", "f32", "f64"})
_NARROW_SUMS = frozenset({("bf16", "f32"), ("f16", "f32"), ("s8", "f32")})
# What GELU by tanh is made of, between the product and the hyperbolic tangent.
_POLYNOMIAL = frozenset({"add", "convert", "multiply"})
_ERROR_FUNCTIONS = ("erf", "erfc")


@dataclass(frozen=True, slots=True)
class Follower:
    """``step`` is computed by ``operation`` from the result of ``call`` and ``operand``. ``path``
    leads from the result to what ``operation`` reads, both included.
    """

    call: Instruction
    step: EpilogueStep
    operation: Instruction
    operand: Instruction
    path: tuple[Instruction, ...]

    @property
    def config(self) -> Mapping[str, Any]:
        return gemm_config(self.call)

    @property
    def product(self) -> Instruction:
        """The product itself, which may be the first element of what the call returns."""
        return self.path[0]

    @property
    def between(self) -> tuple[Instruction, ...]:
        return self.path[1:]

    @property
    def epilogue(self) -> str:
        return str(self.config.get("epilogue", "DEFAULT"))

    @property
    def is_float8(self) -> bool:
        return FLOAT8_TARGET in self.call.attributes["custom_call_target"]

    @property
    def adds_matrix(self) -> bool:
        return bool(self.config.get("beta", 0))


def is_product_call(instruction: Instruction) -> bool:
    target = instruction.attributes.get("custom_call_target", "").strip('"')
    return instruction.opcode == "custom-call" and target in (TARGET, FLOAT8_TARGET)


def find_follower(call: Instruction) -> Follower | None:
    """Return what follows the product next and is no part of the call, None if no call could
    compute it: GELU rather than its factor, else what comes first in the text.
    """
    followers = sorted(_followers(call), key=lambda follower: follower.step != EpilogueStep.GELU)
    return next(iter(followers), None)


def _followers(call: Instruction) -> Iterator[Follower]:
    results = (
        [call]
        if call.shape.is_array
        else [
            user
            for user in call.users
            if user.opcode == "get-tuple-element" and user.attribute("index") == 0
        ]
    )
    pending: list[tuple[Instruction, ...]] = [(result,) for result in results]
    while pending:
        path = pending.pop()
        for user in path[-1].users:
            if user.opcode in _BETWEEN:
                pending.append((*path, user))
                continue
            if user.opcode == "clamp" and user.operands[1] is path[-1]:
                yield Follower(call, EpilogueStep.RELU, user, user.operands[0], path)
            beside = [operand for operand in user.operands if operand is not path[-1]]
            step = _step(user, path[-1], beside[0]) if len(beside) == 1 else None
            if step is EpilogueStep.SCALING:  # which may be the half of GELU
                for later in user.users:
                    factors = [operand for operand in later.operands if operand is not user]
                    if later.opcode == "multiply" and factors and is_gelu(path[-1], factors[0]):
                        yield Follower(call, EpilogueStep.GELU, later, factors[0], path)
            if step is not None:
                yield Follower(call, step, user, beside[0], path)


def _step(operation: Instruction, value: Instruction, operand: Instruction) -> EpilogueStep | None:
    match operation.opcode:
        case "add":
            is_spread = operand.opcode == "broadcast"
            return EpilogueStep.BIAS if is_spread else EpilogueStep.ADDITION
        case "maximum" if operand.opcode == "broadcast":
            return EpilogueStep.RELU
        case "multiply" if is_gelu(value, operand):
            return EpilogueStep.GELU
        case "multiply" if operand.opcode == "broadcast":
            return EpilogueStep.SCALING if not operand.operands[0].shape.dimensions else None
    return None


def is_gelu(value: Instruction, operand: Instruction) -> bool:
    """Return whether ``operand`` looks like the distribution function of GELU at ``value``."""
    formula = _formula(operand, value)
    if value not in formula:
        return False
    return _is_by_erf(formula) or any(
        part.opcode == "tanh" and _is_polynomial(part.operands[0], value) for part in formula
    )


def _formula(result: Instruction, value: Instruction) -> list[Instruction]:
    """Return what computes ``result``, elementwise, from ``value``."""
    return list(reachable([result], lambda i: () if i is value else _elementwise_operands(i)))


def _is_by_erf(formula: list[Instruction]) -> bool:
    return any(
        part.opcode == "erf" or (part.op_name or "").endswith(_ERROR_FUNCTIONS) for part in formula
    )


def _elementwise_operands(instruction: Instruction) -> tuple[Instruction, ...]:
    return instruction.operands if is_one_elementwise(instruction) else ()


def _is_polynomial(formula: Instruction, value: Instruction) -> bool:
    terms = set(reachable([formula], lambda i: i.operands if i.opcode in _POLYNOMIAL else ()))
    leaves = {term for term in terms if term.opcode not in _POLYNOMIAL}
    return value in terms and all(
        term is value or term.opcode in ("broadcast", "constant") for term in leaves
    )


class EpilogueRule(Rule):
    """A condition for one step, or several."""

    __slots__ = ()
    steps: ClassVar[frozenset[EpilogueStep]] = frozenset(EpilogueStep)

    @abstractmethod
    def check(self, follower: Follower) -> Decision | None:
        """Return a refusal, or None if what follows meets the condition."""


class Between(EpilogueRule):
    """Source: HandleAdd, HandleMaximum, HandleMultiply."""

    __slots__ = ()
    id: ClassVar = "lt-between"

    def check(self, follower: Follower) -> Decision | None:
        opcodes = tuple(instruction.opcode for instruction in follower.between)
        if not opcodes or opcodes in _BY_STEP[follower.step]:
            return None
        allowed = {opcode for path in _BY_STEP[follower.step] for opcode in path}
        first = next((i for i in follower.between if i.opcode not in allowed), follower.between[0])
        return self.refuse(
            f"{first.opcode} is between the product and the {follower.operation.opcode}",
            at=first.name,
        )


class ReadOnce(EpilogueRule):
    """Source: HandleAdd, HandleMaximum, HandleMultiply: ``WithOneUser``."""

    __slots__ = ()
    id: ClassVar = "lt-users"
    steps: ClassVar = frozenset(EpilogueStep) - {EpilogueStep.GELU}

    def check(self, follower: Follower) -> Decision | None:
        for value in follower.path:
            if len(value.users) > 1 or value.is_root:
                readers = [user.name for user in value.users if not _leads_to(user, follower)]
                also = f"is also read by {readers[0]}" if readers else "is a result of the program"
                return self.refuse(f"the product {also}", at=value.name)
        return None


def _leads_to(user: Instruction, follower: Follower) -> bool:
    return user is follower.operation or user in follower.path


class Zeros(EpilogueRule):
    """Source: HandleMaximum."""

    __slots__ = ()
    id: ClassVar = "lt-zero"
    steps: ClassVar = frozenset({EpilogueStep.RELU})

    def check(self, follower: Follower) -> Decision | None:
        if follower.operation.opcode == "clamp":
            return self.refuse("a clamp has an upper bound, too", at=follower.operation.name)
        (smallest,) = follower.operand.operands
        if smallest.literal in ("0", "-0"):
            return None
        return self.refuse("the maximum is not one with zero", at=follower.operand.name)


class Formula(EpilogueRule):
    """Source: HandleMultiply."""

    __slots__ = ()
    id: ClassVar = "lt-gelu"
    steps: ClassVar = frozenset({EpilogueStep.GELU})

    def check(self, follower: Follower) -> Decision | None:
        if _is_by_erf(_formula(follower.operand, follower.path[-1])):
            return self.refuse("GELU is by erf, not by tanh", at=follower.operand.name)
        problem = find_gelu_problem(follower.operand, follower.path[-1])
        return self.refuse(problem.words, at=problem.at.name) if problem is not None else None


class Constant(EpilogueRule):
    """Source: HandleMultiply."""

    __slots__ = ()
    id: ClassVar = "lt-factor"
    steps: ClassVar = frozenset({EpilogueStep.SCALING})

    def check(self, follower: Follower) -> Decision | None:
        (factor,) = follower.operand.operands
        if factor.opcode != "constant":
            return self.refuse("the factor is not a constant", at=factor.name)
        if len(follower.operand.users) > 1:
            return self.refuse("other operations multiply by the factor, too", at=factor.name)
        return None


class Spread(EpilogueRule):
    """Source: HandleAdd."""

    __slots__ = ()
    id: ClassVar = "lt-broadcast"
    steps: ClassVar = frozenset({EpilogueStep.ADDITION})

    def check(self, follower: Follower) -> Decision | None:
        if follower.operand.opcode != "broadcast":
            return None
        return self.refuse("other operations read the broadcast bias", at=follower.operand.name)


class Types(EpilogueRule):
    """Source: SupportsEpilogueFusion, FuseMatrixBiasAdd, HandleAdd, HandleMultiply."""

    __slots__ = ()
    id: ClassVar = "lt-type"

    def check(self, follower: Follower) -> Decision | None:
        kind = follower.product.shape.element_type
        is_linear = follower.step in (EpilogueStep.ADDITION, EpilogueStep.SCALING)
        if not (kind != "s32" if is_linear else kind in _ACTIVATED):
            return self.refuse(f"the product is of {kind}", at=follower.product.name)
        added = follower.operand
        if follower.step is EpilogueStep.ADDITION and added.shape.element_type.startswith("f8"):
            return self.refuse("the other array is of 8-bit floats", at=added.name)
        return None


class Wider(EpilogueRule):
    """Source: HandleAdd: ``has_no_consumer``."""

    __slots__ = ()
    id: ClassVar = "lt-wider"
    steps: ClassVar = frozenset({EpilogueStep.ADDITION})

    def check(self, follower: Follower) -> Decision | None:
        if not any(instruction.opcode == "convert" for instruction in follower.between):
            return None
        total = follower.operation
        kind = follower.call.operands[0].shape.element_type
        if (kind, total.shape.element_type) not in _NARROW_SUMS:
            kinds = f"{total.shape.element_type} from operands of {kind}"
            return self.refuse(f"no call computes {kinds}", at=total.name)
        if total.is_root or all(u.opcode == "tuple" and u.is_root for u in total.users):
            return None
        return self.refuse(
            f"the sum is wider than the product, and {total.users[0].name} reads it", at=total.name
        )


class Start(EpilogueRule):
    """Source: FuseMatrixBiasAdd."""

    __slots__ = ()
    id: ClassVar = "lt-slice"
    steps: ClassVar = frozenset({EpilogueStep.ADDITION})

    def check(self, follower: Follower) -> Decision | None:
        for instruction in follower.between:
            bounds = instruction.attribute("slice") if instruction.opcode == "slice" else ()
            if any(bound[0] != 0 or bound[2:] not in ((), (1,)) for bound in bounds):
                return self.refuse(
                    "the slice does not begin where the product does", at=instruction.name
                )
        return None


class First(EpilogueRule):
    """Source: HandleAdd: ``AddAnyOrder`` matches the first operand first."""

    __slots__ = ()
    id: ClassVar = "lt-first"
    steps: ClassVar = frozenset({EpilogueStep.ADDITION})

    def check(self, follower: Follower) -> Decision | None:
        first = follower.operation.operands[0]
        if first is follower.path[-1]:
            return None
        while len(first.users) == 1 and first.opcode in (*_BETWEEN, "get-tuple-element"):
            first = first.operands[0]
        if not is_product_call(first) or len(first.users) > 1:
            return None
        return self.refuse("the sum is tried only for its first product", at=first.name)


class Vacant(EpilogueRule):
    """Source: FuseMatrixBiasAdd, FuseVectorBiasAdd, FuseReluActivation, FuseGeluActivation,
    HandleMultiply.
    """

    __slots__ = ()
    id: ClassVar = "lt-epilogue"

    def check(self, follower: Follower) -> Decision | None:
        allowed = {"DEFAULT"}
        if follower.step in (EpilogueStep.ADDITION, EpilogueStep.RELU, EpilogueStep.GELU):
            allowed.add("BIAS")
        is_alone = follower.step in (EpilogueStep.ADDITION, EpilogueStep.SCALING) or (
            follower.step is EpilogueStep.BIAS and follower.is_float8
        )
        if is_alone and follower.adds_matrix:
            return self.refuse("the call already adds a matrix", at=follower.operation.name)
        if follower.epilogue in allowed:
            return None
        words = follower.epilogue.replace("_", ", ")
        return self.refuse(f"the call already computes {words}", at=follower.operation.name)


class Columns(EpilogueRule):
    """Source: FuseVectorBiasAdd."""

    __slots__ = ()
    id: ClassVar = "lt-columns"
    steps: ClassVar = frozenset({EpilogueStep.BIAS})

    def check(self, follower: Follower) -> Decision | None:
        dimensions = follower.config.get("dot_dimension_numbers", {})
        columns = follower.call.operands[1].shape.rank - sum(
            len(dimensions.get(f"rhs_{kind}_dimensions", ())) for kind in ("batch", "contracting")
        )
        rank = follower.operand.operands[0].shape.rank
        if columns <= 1 and rank == columns:
            return None
        return self.refuse(
            f"the bias has {rank} dimensions, the columns of the product {columns}",
            at=follower.operand.name,
        )


class Minor(EpilogueRule):
    """Source: FuseVectorBiasAdd."""

    __slots__ = ()
    id: ClassVar = "lt-minor"
    steps: ClassVar = frozenset({EpilogueStep.BIAS})

    def check(self, follower: Follower) -> Decision | None:
        spread, shape = follower.operand, follower.path[-1].shape
        if not spread.operands[0].shape.dimensions:
            return None
        order = shape.layout.minor_to_major if shape.layout is not None else (shape.rank - 1,)
        minor = order[0]
        bias = spread.operands[0].shape.dimensions
        if tuple(spread.attribute("dimensions")) == (minor,) and bias == (shape.dimensions[minor],):
            return None
        return self.refuse(
            "the bias is not along the dimension whose elements are next to each other",
            at=spread.name,
        )


class BiasType(EpilogueRule):
    """Source: FuseVectorBiasAdd."""

    __slots__ = ()
    id: ClassVar = "lt-bias-type"
    steps: ClassVar = frozenset({EpilogueStep.BIAS})

    def check(self, follower: Follower) -> Decision | None:
        (bias,) = follower.operand.operands
        if not follower.is_float8 or bias.shape.element_type != "f32":
            return None
        source = bias.operands[0].shape.element_type if bias.opcode == "convert" else "f32"
        result = follower.product.shape.element_type
        allowed = {"bf16": {"bf16", "f32"}, "f16": {"f16"}}.get(source, set())
        if result in allowed | ({"f8e4m3fn", "f8e5m2"} if allowed else set()):
            return None
        return self.refuse(
            f"the bias is {source}, the product of 8-bit floats {result}", at=bias.name
        )


EPILOGUES: RuleBook[EpilogueRule] = RuleBook(
    "gemm-rewriter-epilogues",
    PASS_NAME,
    "gpu",
    (
        Between(),
        Formula(),
        Zeros(),
        ReadOnce(),
        Constant(),
        Spread(),
        Wider(),
        Types(),
        Start(),
        First(),
        Vacant(),
        Columns(),
        Minor(),
        BiasType(),
    ),
)


def find_refusal(follower: Follower) -> Decision | None:
    """Return the first condition that is not met. A bias that is no vector for the columns is
    added as a matrix, if only a bitcast is between: Source: HandleAdd.
    """
    refusal = first_decision(
        rule.check(follower) for rule in EPILOGUES if follower.step in rule.steps
    )
    is_bitcast = [instruction.opcode for instruction in follower.between] == ["bitcast"]
    if refusal is None or follower.step != EpilogueStep.BIAS or not is_bitcast:
        return refusal
    if len(follower.operand.users) > 1:
        return refusal
    matrix = replace(follower, step=EpilogueStep.ADDITION)
    return first_decision(
        rule.check(matrix)
        for rule in EPILOGUES
        if matrix.step in rule.steps and rule.id != Spread.id
    )
