"""Checks which operations the Triton emitter can compute.

Source: xla/backends/gpu/codegen/triton/support.cc.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fusionscope.dump.device import CudaCapability, Device, RocmCapability
from fusionscope.gpu.cost.memory import ComputeTime
from fusionscope.gpu.emitters import is_generic_triton
from fusionscope.graph.layouts import sizes
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import INTEGRAL, is_elementwise
from fusionscope.hlo.shape import Shape

_UNSUPPORTED = frozenset(
    """dynamic-reshape dynamic-slice dynamic-update-slice gather mulhi ragged-dot reduce-window
    scatter select-and-scatter set-dimension-size""".split()
)
_TYPES = frozenset("pred s4 s8 s16 s32 s64 u8 u16 u32 u64 f16 bf16 f32 f64 f8e5m2 f8e4m3fn".split())
_UNSIGNED = frozenset({"u8", "u16", "u32", "u64"})
_NANOO_TYPES = frozenset({"f8e5m2fnuz", "f8e4m3fnuz"})
_FLOAT8_TYPES = frozenset({"f8e5m2", "f8e4m3fn"})
_HALF_TYPES = frozenset({"bf16", "f16"})
_FLOAT_TYPES = _HALF_TYPES | {"f32", "f64"}
_FROM_4_BITS = frozenset({"s8", "u8", "f16", "bf16", "f32", "f64"})
_FROM_FLOAT8 = frozenset({"f16", "bf16", "f32"})

_FLOAT_OPERATIONS = frozenset(
    """acos acosh asin asinh atanh cbrt ceil cosine cosh erf exponential exponential-minus-one floor
    log log-plus-one round-nearest-even rsqrt sine sinh sqrt tan tanh atan2 divide power
    remainder""".split()
)
_COMPARING = frozenset({"add", "compare", "maximum", "minimum", "multiply"})
_LOGIC = frozenset({"and", "or", "xor"})
_NO_OPCODE = "Unsupported opcode."
_ALIGNMENT = 64  # elements of an operand of a concatenate


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonVersion:
    """What one compiler version can do with Triton, and how it estimates that.

    - ``has_unsigned``: supports unsigned integers.
    - ``divides_halves``: supports divisions of f16 and bf16.
    - ``has_pads``: supports padding at the end of an array, outside of matrix multiplications.
    - ``has_concatenates``: supports them outside of matrix multiplications.
    - ``aligns_concatenates``: the operands of a concatenate must be aligned.
    - ``many_operands``: the message for a reduction of several operands.
    - ``many_dimensions``: the message for a reduction of several dimensions, None if it is
      supported.
    - ``propagates_tiles``: tiles are propagated, not derived from indices (the flag
      xla_gpu_experimental_enable_tiling_propagation).
    - ``limits_transposes``: a transpose must fit into shared memory.
    - ``counts_copies``: copying an element counts as work.
    - ``counts_padding``: padding reduced dimensions to a power of two counts as work.
    - ``rounds``: supports ``round-nearest-even``.
    - ``has_integer_remainders``: supports remainders of integers.
    - ``unsupported``: operations that only newer versions support.
    - ``explains_types``: messages about types and conversions say why, and the elements of a tuple
      are checked, rather than every tuple refused.
    - ``division``: how messages about tiles write a quotient.
    - ``checks_last``: whether tiles are possible is checked once all exist, operands first.
    - ``names_opcodes``: the message about an unsupported operation names it.
    - ``has_endless_tilings``: a fusion whose tiles do not fit into registers has an infinite time,
      rather than no tiling.
    - ``compute_time`` takes the device, flops, blocks, and threads per block.
    """

    has_unsigned: bool
    divides_halves: bool
    has_pads: bool
    has_concatenates: bool
    aligns_concatenates: bool
    many_operands: str
    many_dimensions: str | None
    propagates_tiles: bool
    limits_transposes: bool
    counts_copies: bool
    counts_padding: bool
    names_opcodes: bool
    compute_time: ComputeTime
    rounds: bool = True
    has_integer_remainders: bool = True
    unsupported: frozenset[str] = frozenset()
    explains_types: bool = True
    division: str = "/"
    checks_last: bool = False
    has_endless_tilings: bool = False


def unsupported(
    instruction: MutableInstruction, device: Device, version: TritonVersion
) -> str | None:
    """Return the compiler's message, or None if Triton can compute the instruction.

    For a fusion, this is the message of its first unsupported instruction. A Triton fusion is
    always supported. Source: IsTritonSupported in xla/backends/gpu/transforms/priority_fusion.cc.
    """
    support = _Support(device, version)
    if instruction.opcode != "fusion":
        return support.message(instruction)
    if not is_generic_triton(instruction):
        for inner in instruction.fused.instructions:
            message = support.message(inner)
            if message is not None:
                return message
    return None


class _Support:
    """The checks, on one device."""

    def __init__(self, device: Device, version: TritonVersion) -> None:
        self._capability = device.capability
        self._is_rocm = isinstance(device.capability, RocmCapability)
        self._version = version
        self._types = _TYPES if version.has_unsigned else _TYPES - _UNSIGNED
        self._float8 = _FLOAT8_TYPES | (_NANOO_TYPES if self._is_rocm else frozenset())

    def message(self, instruction: MutableInstruction) -> str | None:
        """Source: IsTritonSupportedInstruction."""
        opcode, shape, version = instruction.opcode, instruction.shape, self._version
        if opcode in _UNSUPPORTED | version.unsupported:
            return f"Unsupported opcode {opcode}" if version.names_opcodes else _NO_OPCODE
        if opcode == "convert":
            return self._conversion(instruction.operands[0].shape.element_type, shape.element_type)
        problem = self._output_type(shape)
        if problem is not None:
            return problem
        if any(self._type(operand.shape.element_type) for operand in instruction.operands):
            return (
                f"Unsupported input data type{': Not allowed' if version.explains_types else '.'}"
            )
        check = _CHECKS.get(opcode)
        if check is not None:
            return check(self, instruction)
        if is_elementwise(instruction):
            supported = self._operations(instruction.operands[-1].shape.element_type)
            return None if opcode in supported else "Unsupported elementwise operation."
        return f"Unsupported instruction opcode {opcode}" if version.names_opcodes else _NO_OPCODE

    def _output_type(self, shape: Shape) -> str | None:
        if not self._version.explains_types:
            is_known = shape.is_array and self._type(shape.element_type) is None
            return None if is_known else "Unsupported output data type."
        for element in shape.elements if shape.is_tuple else (shape,):
            if shape.is_tuple and element.element_type in ("tuple", "token"):
                return "Nested tuple or token shape is not supported."
            problem = self._type(element.element_type)
            if problem is not None:
                return f"Unsupported output data type: {problem}"
        return None

    def _type(self, element_type: str) -> str | None:
        """Source: IsTritonSupportedDataType."""
        if element_type in _NANOO_TYPES:
            return None if self._is_rocm else "F8E4M3FNUZ/F8E5M2FNUZ not supported on Cuda."
        return None if element_type in self._types else f"Unsupported data type: {element_type}"

    def _conversion(self, source: str, result: str) -> str | None:
        """Source: IsTritonSupportedConversion."""
        problem = self._conversion_problem(source, result)
        message = f"Unsupported conversion in Triton: {source} to {result}"
        if not self._version.explains_types:
            return message if problem or self._type(source) or self._type(result) else None
        if problem is not None:
            return f"{message} with message:\n{problem}"
        if self._type(source) is not None:
            return f"Unsupported input type for conversion: {source}"
        if self._type(result) is not None:
            return f"Unsupported output type for conversion: {result}"
        return None

    def _conversion_problem(self, source: str, result: str) -> str | None:
        both = {source, result}
        is_other = source != result
        if is_other and "f8e4m3fn" in both and self._is_before_ada():
            return "F8E4M3FN is not supported before Ada."
        if is_other and len(both & self._float8) == 1 and not both & _FROM_FLOAT8:
            return "Unsupported F8 conversion."
        if source in ("s4", "u4") and result not in _FROM_4_BITS:
            return "Unsupported 4-bit integer conversion."
        if result in ("s4", "u4"):
            return "Unsupported 4-bit integer output type."
        if source == "pred" and result == "u8" and self._version.has_unsigned:
            return "Unsupported PRED to U8 conversion."
        return None

    def _is_before_ada(self) -> bool:
        capability = self._capability
        return isinstance(capability, CudaCapability) and (
            (capability.major, capability.minor) < (8, 9)
        )

    def _operations(self, element_type: str) -> frozenset[str]:
        """Return the elementwise operations on elements of this type.

        Source: TritonSupportedUnaryElementwiseOps and those for two and three operands.
        """
        supported = self._operations_of(element_type)
        if element_type in INTEGRAL:
            return supported if self._version.has_integer_remainders else supported - {"remainder"}
        return supported if self._version.rounds else supported - {"round-nearest-even"}

    def _operations_of(self, element_type: str) -> frozenset[str]:
        if element_type == "s4":
            return frozenset()
        if element_type in self._float8:
            return frozenset({"abs", "copy", "reduce-precision", "select"})
        supported = _COMPARING | {"clamp", "copy", "select"}
        if element_type == "pred":
            return supported | _LOGIC | {"not"}
        supported |= {"abs", "negate", "subtract"}
        if element_type in INTEGRAL:
            return supported | _LOGIC | {"divide", "not", "remainder"}
        supported |= {"reduce-precision"}
        if element_type not in _FLOAT_TYPES:
            return supported
        supported |= _FLOAT_OPERATIONS
        is_half = element_type in _HALF_TYPES
        return supported - {"divide"} if is_half and not self._version.divides_halves else supported

    def concatenate(self, instruction: MutableInstruction) -> str | None:
        """Source: IsTritonSupportedConcatenate."""
        if instruction.shape.element_type == "s4":
            return "S4 is not supported."
        if not self._version.has_concatenates:
            return "Only concatenates in nested GEMM fusions are supported."
        if not self._version.aligns_concatenates:
            return None
        place = instruction.attribute("dimensions")[0]
        aligned = all(
            sizes(operand.shape)[place] % _ALIGNMENT == 0 for operand in instruction.operands[:-1]
        )
        return None if aligned else "Concatenate operand is not aligned for tiling."

    def pad(self, instruction: MutableInstruction) -> str | None:
        if not self._version.has_pads:
            return "Pads are only supported within GEMM fusions."
        padding = [
            [int(number) for number in padding.split("_")]
            for padding in instruction.attributes["padding"].split("x")
        ]
        if any(low or any(interior) for low, _, *interior in padding):
            return "Only high padding is supported."
        if not any(high for _, high, *_ in padding):
            return "No-op pad ops are not allowed."
        return self.move(instruction)

    def constant(self, instruction: MutableInstruction) -> str | None:
        if instruction.shape.element_type == "s4":
            return "S4 is not supported."
        if instruction.shape.element_count != 1:
            return "Only scalar constants are supported in Triton."
        return None

    def iota(self, instruction: MutableInstruction) -> str | None:
        if instruction.shape.element_type in self._float8 | {"s4"}:
            return "F8E4M3FN, F8E5M2 and S4 are not supported for iota."
        return None

    def bitcast(self, instruction: MutableInstruction) -> str | None:
        source = instruction.operands[0].shape
        if source.element_count != instruction.shape.element_count:
            return "only bitcasts with the same number of elements are supported"
        types = {source.element_type, instruction.shape.element_type}
        if len(types) > 1 and "pred" in types:
            return "bitcasts with different element types are not supported if PRED is involved"
        return self.move(instruction)

    def move(self, instruction: MutableInstruction) -> str | None:
        return "S4 is not supported." if instruction.shape.element_type == "s4" else None

    def reduce(self, instruction: MutableInstruction) -> str | None:
        """Source: CanTritonHandleReduce."""
        if instruction.shape.element_type in self._float8:
            return "F8E4M3FN and F8E5M2 are not supported for reductions."
        if any(self.message(inner) for inner in instruction.called[0].instructions):
            return "Unsupported reduction computation by Triton."
        if len(instruction.operands) != 2:
            return self._version.many_operands
        reduced = len(instruction.attribute("dimensions"))
        if not reduced:
            return "Reduction must have at least one dimension."
        return self._version.many_dimensions if reduced > 1 else None

    def parameter(self, instruction: MutableInstruction) -> str | None:
        return None

    def fusion(self, instruction: MutableInstruction) -> str | None:
        return "Nested fusions are not supported."


_CHECKS: dict[str, Callable[[_Support, MutableInstruction], str | None]] = {
    "concatenate": _Support.concatenate,
    "pad": _Support.pad,
    "constant": _Support.constant,
    "iota": _Support.iota,
    "bitcast": _Support.bitcast,
    "reduce": _Support.reduce,
    "parameter": _Support.parameter,
    "fusion": _Support.fusion,
    "broadcast": _Support.move,
    "reshape": _Support.move,
    "slice": _Support.move,
    "transpose": _Support.move,
}
