"""How much an instruction computes.

Source: xla/service/hlo_cost_analysis.cc. Of calls into a library it counts nothing; here those
count as the dot or convolution that they compute.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import fsum
from typing import Any, NamedTuple, TypeAlias

from fusionscope.graph.layouts import sizes
from fusionscope.graph.mutable import MutableComputation, MutableInstruction
from fusionscope.graph.properties import is_one_elementwise, leaves
from fusionscope.hlo import Computation, Instruction
from fusionscope.hlo.shape import Shape
from fusionscope.hlo.window import read_window

_TRANSCENDENTAL = frozenset(
    """acos acosh asin asinh atan2 atanh cbrt cosine cosh erf exponential exponential-minus-one log
    log-plus-one logistic power rsqrt sine sinh sqrt tan tanh""".split()
)
_NO_WORK = frozenset({"bitcast-convert", "constant", "copy"})
_CALLING = frozenset({"async-start", "call", "fusion"})
_FOR_EACH_ELEMENT = frozenset({"map", "reduce", "reduce-window", "scatter"})


AnyInstruction: TypeAlias = Instruction | MutableInstruction


class Work(NamedTuple):
    """Floating point operations, and transcendental ones beside them."""

    flops: float
    transcendentals: float


_NONE = Work(0.0, 0.0)


def count_work(instruction: AnyInstruction) -> Work:
    """What one execution of ``instruction`` computes, with all that is in a fusion."""
    opcode = instruction.opcode
    if opcode in _CALLING:
        return _work_inside(instruction.called)
    if opcode in _FOR_EACH_ELEMENT:
        times = _applications(instruction)
        flops, transcendentals = _work_inside(instruction.called[:1])
        return Work(times * flops, times * transcendentals)
    if opcode in ("convolution", "dot"):
        return Work(2.0 * instruction.shape.element_count * _products(instruction), 0.0)
    if opcode == "custom-call":
        return Work(_library_flops(instruction), 0.0)
    if opcode in _NO_WORK or not is_one_elementwise(instruction):
        return _NONE
    elements = float(instruction.shape.element_count)
    return Work(0.0, elements) if opcode in _TRANSCENDENTAL else Work(elements, 0.0)


def _work_inside(computations: Sequence[Computation | MutableComputation]) -> Work:
    cache: dict[str, Work] = {}
    if len(computations) == 1 and isinstance(computations[0], Computation):
        cache = computations[0].shared_cache("work")
    if "all" not in cache:
        amounts = [
            count_work(instruction)
            for computation in computations
            for instruction in computation.instructions
        ]
        cache["all"] = Work(
            fsum(flops for flops, _ in amounts),
            fsum(transcendentals for _, transcendentals in amounts),
        )
    return cache["all"]


def _applications(instruction: AnyInstruction) -> int:
    """How often a computation for single elements is called."""
    results = leaves(instruction.shape)[0].element_count
    source = instruction.operands[0].shape.element_count
    if instruction.opcode == "reduce":
        return source - results
    if instruction.opcode == "reduce-window":
        window = read_window(instruction.attributes.get("window", "{}"))
        return (math.prod(dimension.size for dimension in window) - 1) * results
    if instruction.opcode == "scatter":
        return instruction.operands[-1].shape.element_count
    return results


def _products(instruction: AnyInstruction) -> int:
    """That go into one element of a result; those with the padding of a convolution count, too, but
    not those with the gaps of its base dilation, by which TPUs express batches of products.
    """
    left, right = (operand.shape for operand in instruction.operands)
    if instruction.opcode == "dot":
        contracted = instruction.attribute("lhs_contracting_dims") or ()
        return math.prod(sizes(left)[dimension] for dimension in contracted)
    window = read_window(instruction.attributes.get("window", "{}"))
    gaps = math.prod(dimension.base_dilation for dimension in window)
    return _products_of_filter(right, instruction.attributes["dim_labels"]) // gaps


def _products_of_filter(shape: Shape, labels: str) -> int:
    """That go into one element of what a convolution with a filter of this shape makes."""
    output = labels.partition("->")[0].partition("_")[2].index("o")
    return shape.element_count // max(1, sizes(shape)[output])


def _library_flops(call: AnyInstruction) -> float:
    """Of a matrix multiplication or convolution that a library computes; 0 for other calls."""
    results = leaves(call.shape)
    if len(call.operands) < 2 or not results:
        return 0.0
    left, right = (operand.shape for operand in call.operands[:2])
    result = results[0]
    labels = call.attributes.get("dim_labels")
    if labels is not None:
        target = call.attributes.get("custom_call_target", "")
        if "BackwardFilter" in target:
            output, filters = right, result
        else:
            output, filters = left if "BackwardInput" in target else result, right
        return 2.0 * output.element_count * _products_of_filter(filters, labels)
    contracted = _contracted(call.attribute("backend_config"))
    if not contracted or any(place >= left.rank for place in contracted):
        return 0.0
    return 2.0 * result.element_count * math.prod(sizes(left)[place] for place in contracted)


def _contracted(config: Any) -> list[int]:
    """The dimensions of its first operand that a call to cuBLAS sums over."""
    if not isinstance(config, dict):
        return []
    config = config.get("grouped_gemm_backend_config", config)
    for name in ("gemm_backend_config", "dot_dimension_numbers", "lhs_contracting_dimensions"):
        config = config.get(name) if isinstance(config, dict) else None
    places = config if isinstance(config, list | tuple) else ()
    return [int(place) for place in places if str(place).isdecimal()]
