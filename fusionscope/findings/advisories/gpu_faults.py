"""Known faults of the compiler for GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import isclose

from fusionscope.findings.advisories.faults import Fault, fusions_of
from fusionscope.graph.properties import number_of
from fusionscope.history.library_calls import gemm_config
from fusionscope.hlo import Instruction, Module
from fusionscope.hlo.search import reachable
from fusionscope.passes.gpu.gemm_rewriter.epilogues import is_product_call

_MOVES = frozenset("bitcast convert copy reshape transpose".split())
_TRITON = "__triton"


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
            number = number_of(constant)
            return has_bias and number is not None and isclose(number, factor, rel_tol=1e-2)
        elif user.opcode not in _MOVES:
            return False
        value = user
    return False


def _leads_to_broadcast(value: Instruction) -> bool:
    while value.opcode in _MOVES and value.operands:
        value = value.operands[0]
    return value.opcode == "broadcast" and bool(value.operands[0].shape.dimensions)


def _nested_concatenations(final: Module, _: Module | None) -> Iterator[Instruction]:
    for fusion, instructions in fusions_of(final, _TRITON):
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
        since="0.10.2",
        fixed_in="0.11.1",
        workaround="jax.lax.optimization_barrier before the outer concatenation; "
        "--xla_gpu_verify_triton_fusion_numerics=true checks",
        find=_nested_concatenations,
    ),
)
