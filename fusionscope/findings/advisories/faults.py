"""Known faults of the compiler: results that are wrong, or no results.

Each was reported in public, and compiled or run with the releases that it names and with those
around them, but for what only a GPU shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import isclose

from fusionscope.graph.mutable import backend_kind_of
from fusionscope.graph.properties import is_one_elementwise
from fusionscope.hlo import Instruction, Module
from fusionscope.hlo.search import reachable
from fusionscope.passes.gpu.gemm_rewriter.epilogues import gemm_config, is_product_call

# A call of cuBLASLt whose factor and bias are in another order is found in the program itself.
_MOVES = frozenset("bitcast convert copy reshape transpose".split())
_TRITON = "__triton"
_YNN = "__ynn_fusion"
# Up to this many elements, YNN computes the sums in one part (measured: 32,768 of f32, 16,384 of
# f64 are right, one more is wrong).
_MOST_RIGHT = {"f32": 32_768, "f64": 16_384}
_MOST_DIMENSIONS = 6


@dataclass(frozen=True, slots=True)
class Fault:
    """``find`` yields the kernels of a final module that are concerned, given the program before
    libraries got their share, if the dump has it. ``is_shown`` is whether that proves the fault,
    whatever the release; else releases from ``since`` to the one before ``fixed_in`` have it.
    """

    id: str
    title: str
    thread: str
    backend: str
    since: str
    fixed_in: str
    workaround: str
    find: Callable[[Module, Module | None], Iterator[Instruction]]
    is_shown: bool = False


def _factors_after_bias(final: Module, program: Module | None) -> Iterator[Instruction]:
    if program is None:
        return
    dots: dict[str, list[Instruction]] = {}
    for instruction in program.walk():
        if instruction.opcode == "dot" and instruction.op_name:
            dots.setdefault(instruction.op_name, []).append(instruction)
    for call in final.walk():
        if not is_product_call(call):
            continue
        config = gemm_config(call)
        factor, epilogue = config.get("alpha_real", 1), str(config.get("epilogue", ""))
        if factor != 1 and "BIAS" in epilogue:
            products = dots.get(call.op_name or "", ())
            if products and all(_is_scaled_after_bias(dot, factor) for dot in products):
                yield call


def _is_scaled_after_bias(dot: Instruction, factor: float) -> bool:
    value, has_bias = dot, False
    while len(value.users) == 1:
        (user,) = value.users
        beside = [operand for operand in user.operands if operand is not value]
        if user.opcode == "add" and len(beside) == 1:
            has_bias = has_bias or _leads_to_broadcast(beside[0])
        elif user.opcode == "multiply" and len(beside) == 1:
            constant = beside[0].operands[0] if beside[0].opcode == "broadcast" else beside[0]
            number = _number(constant)
            return has_bias and number is not None and isclose(number, factor, rel_tol=1e-2)
        elif user.opcode not in _MOVES:
            return False
        value = user
    return False


def _leads_to_broadcast(value: Instruction) -> bool:
    while value.opcode in _MOVES and value.operands:
        value = value.operands[0]
    return value.opcode == "broadcast" and bool(value.operands[0].shape.dimensions)


def _number(constant: Instruction) -> float | None:
    try:
        return float(constant.literal or "")
    except ValueError:
        return None


def _fusions(final: Module, kind: str) -> Iterator[tuple[Instruction, list[Instruction]]]:
    """Yield the fusions of a ``kind``, with their instructions, callees of fusions included."""
    for fusion in final.walk():
        if fusion.opcode != "fusion" or not fusion.called:
            continue
        if (backend_kind_of(fusion.attribute("backend_config")) or "").startswith(kind):
            bodies = reachable([fusion.called[0]], lambda computation: computation.calls)
            yield fusion, [instruction for body in bodies for instruction in body.instructions]


def _sums_of_products(final: Module, _: Module | None) -> Iterator[Instruction]:
    for fusion, instructions in _fusions(final, _YNN):
        most = _MOST_RIGHT.get(fusion.shape.element_type) if fusion.shape.is_array else None
        if most is None or (fusion.shape.element_count or 0) <= most:
            continue
        for reduction in instructions:
            if reduction.opcode == "reduce" and _reads_elementwise(reduction.operands[0], "dot"):
                yield fusion
                break


def _reads_elementwise(value: Instruction, opcode: str) -> bool:
    return any(
        instruction.opcode == opcode
        for instruction in reachable([value], lambda i: i.operands if is_one_elementwise(i) else ())
    )


def _sums_of_many_dimensions(final: Module, _: Module | None) -> Iterator[Instruction]:
    for fusion, instructions in _fusions(final, _YNN):
        if any(i.opcode == "reduce" and _has_many(i.operands[0]) for i in instructions):
            yield fusion


def _has_many(value: Instruction) -> bool:
    return value.shape.rank > _MOST_DIMENSIONS and value.shape.element_type == "f32"


def _nested_concatenations(final: Module, _: Module | None) -> Iterator[Instruction]:
    for fusion, instructions in _fusions(final, _TRITON):
        outer = (i for i in instructions if i.opcode == "concatenate")
        if any(_has_inner(concatenation.operands) for concatenation in outer):
            yield fusion


def _has_inner(operands: Iterable[Instruction]) -> bool:
    return any(i.opcode == "concatenate" for i in reachable(operands, lambda value: value.operands))


FAULTS = (
    Fault(
        id="factor-before-bias",
        title="factor · (product + bias) is computed as factor · product + bias",
        thread="https://github.com/openxla/xla/issues/46110",
        backend="gpu",
        since="0.10.0",
        fixed_in="0.11.1",
        workaround="jax.lax.optimization_barrier around the sum, before the factor",
        find=_factors_after_bias,
        is_shown=True,
    ),
    Fault(
        id="nested-concatenation",
        title="a concatenation in a concatenation is read at wrong indices by Triton",
        thread="https://github.com/jax-ml/jax/issues/39486",
        backend="gpu",
        since="0.10.2",
        fixed_in="0.11.1",
        workaround="jax.lax.optimization_barrier before the outer concatenation; "
        "--xla_gpu_verify_triton_fusion_numerics=true checks",
        find=_nested_concatenations,
    ),
    Fault(
        id="sum-of-products",
        title="a sum over a product in one kernel of YNN is wrong for some sizes",
        thread="https://github.com/jax-ml/jax/issues/39103",
        backend="cpu",
        since="0.10.2",
        fixed_in="0.11.0",
        workaround="--xla_cpu_experimental_ynn_fusion_type=-reduce",
        find=_sums_of_products,
    ),
    Fault(
        id="sum-of-seven-dimensions",
        title="a sum of f32 over an array of seven or more dimensions ends the process (YNN)",
        thread="https://github.com/jax-ml/jax/issues/40412",
        backend="cpu",
        since="0.10.2",
        fixed_in="0.11.0",
        workaround="--xla_cpu_experimental_ynn_fusion_type=-reduce, or reshape to fewer dimensions",
        find=_sums_of_many_dimensions,
    ),
)
