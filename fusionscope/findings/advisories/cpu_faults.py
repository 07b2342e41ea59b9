"""Known faults of the compiler for CPUs."""

from __future__ import annotations

from collections.abc import Iterator

from fusionscope.findings.advisories.faults import Fault, fusions_of
from fusionscope.graph.properties import is_one_elementwise
from fusionscope.hlo import Instruction, Module
from fusionscope.hlo.search import reachable

_YNN = "__ynn_fusion"
# Up to this many elements, YNN computes the sums in one part (measured: 32,768 of f32, 16,384 of
# f64 are right, one more is wrong).
_MOST_RIGHT = {"f32": 32_768, "f64": 16_384}
_MOST_DIMENSIONS = 6


def _sums_of_products(final: Module, _: Module | None) -> Iterator[Instruction]:
    for fusion, instructions in fusions_of(final, _YNN):
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
    for fusion, instructions in fusions_of(final, _YNN):
        if any(i.opcode == "reduce" and _has_many(i.operands[0]) for i in instructions):
            yield fusion


def _has_many(value: Instruction) -> bool:
    return value.shape.rank > _MOST_DIMENSIONS and value.shape.element_type == "f32"


FAULTS = (
    Fault(
        id="sum-of-products",
        title="a sum over a product in one kernel of YNN is wrong for some sizes",
        thread="https://github.com/jax-ml/jax/issues/39103",
        since="0.10.2",
        fixed_in="0.11.0",
        workaround="--xla_cpu_experimental_ynn_fusion_type=-reduce",
        find=_sums_of_products,
    ),
    Fault(
        id="sum-of-seven-dimensions",
        title="a sum of f32 over an array of seven or more dimensions ends the process (YNN)",
        thread="https://github.com/jax-ml/jax/issues/40412",
        since="0.10.2",
        fixed_in="0.11.0",
        workaround="--xla_cpu_experimental_ynn_fusion_type=-reduce, or reshape to fewer dimensions",
        find=_sums_of_many_dimensions,
    ),
)
