"""Checks which matrix multiplications the Triton emitter can compute.

Source: xla/backends/gpu/codegen/triton/support.cc, IsTritonSupportedDot.
"""

from __future__ import annotations

from fusionscope.dump.device import CudaCapability, Device, RocmCapability
from fusionscope.gpu.triton_support import TritonVersion, unsupported
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.hlo.shape import Shape

# The operand types of an algorithm, and its accumulation type.
_ALGORITHMS = {
    "dot_f16_f16_f16": ("f16", "f16"),
    "dot_f32_f32_f32": ("f32", "f32"),
    "dot_f16_f16_f32": ("f16", "f32"),
    "dot_bf16_bf16_f32": ("bf16", "f32"),
    "dot_bf16_bf16_f32_x3": ("f32", "f32"),
    "dot_bf16_bf16_f32_x6": ("f32", "f32"),
    "dot_bf16_bf16_f32_x9": ("f32", "f32"),
    "dot_tf32_tf32_f32": ("f32", "f32"),
    "dot_tf32_tf32_f32_x3": ("f32", "f32"),
    "dot_f64_f64_f64": ("f64", "f64"),
}
_NOT_ON_ROCM = "dot_f64_f64_f64"
_ONLY_ON_ROCM = {"dot_bf16_bf16_bf16": ("bf16", "bf16")}
_FLOAT_TYPES = frozenset({"bf16", "f16", "f32", "f8e4m3fn", "f8e5m2"})
_NANOO_TYPES = frozenset({"f8e4m3fnuz", "f8e5m2fnuz"})
_INTEGRAL_TYPES = frozenset("s4 s8 s16 s32 s64 u4 u8 u16 u32 u64 pred".split())


def unsupported_dot(dot: MutableInstruction, device: Device, version: TritonVersion) -> str | None:
    """Return the compiler's message, or None if Triton can compute the dot."""
    lhs, rhs = (operand.shape.element_type for operand in dot.operands)
    result = dot.shape.element_type
    for shape in (dot.shape, *(operand.shape for operand in dot.operands)):
        problem = _unsupported_type(shape, device, version)
        if problem is not None:
            return problem
    is_rocm = isinstance(device.capability, RocmCapability)
    mixed = {"f8e5m2", "f8e4m3fn"}, _NANOO_TYPES if is_rocm else {"f8e5m2", "f8e4m3fn"}
    if lhs != rhs and {lhs, rhs} not in mixed:
        return "Dot operation only supports same types for lhs and rhs."
    if result in ("s4", "u4"):
        return "4-bit integer is not supported."
    contracting = dot.attribute("lhs_contracting_dims") or ()
    if len(contracting) != 1:
        dimensions = ",".join(map(str, contracting))
        return f"Exactly one contracting dimension is supported, got {dimensions}"
    algorithm = dot.attributes.get("algorithm")
    if algorithm is None:
        return _of_types(lhs, result, device) or _of_types(rhs, result, device)
    types = _ALGORITHMS.get(algorithm)
    if is_rocm:
        types = None if algorithm == _NOT_ON_ROCM else types or _ONLY_ON_ROCM.get(algorithm)
    name = f"ALG_{algorithm.upper()}"
    if types is None:
        return f"Unsupported dot algorithm: {name}"
    problem = _of_algorithm(algorithm, types, (lhs, rhs), dot.shape, device, version)
    return f"{problem} for dot algorithm {name}" if problem is not None else None


def _unsupported_type(shape: Shape, device: Device, version: TritonVersion) -> str | None:
    """Return the message for a type. Any operation without special checks shows it."""
    return unsupported(MutableInstruction("", "parameter", shape, []), device, version)


def _of_types(operand: str, result: str, device: Device) -> str | None:
    """Return the message for a dot without an algorithm. Source: AreTypesSupportedByAlgUnsetDot."""
    if operand == "f64" != result:
        return "Dot operation only supports F64 result type for F64 input type."
    capability = device.capability
    if (
        "f8e4m3fn" in (operand, result)
        and isinstance(capability, CudaCapability)
        and capability.major < 9
    ):
        return "Dot operation for F8E4M3FN is not supported before Hopper."
    is_rocm = isinstance(capability, RocmCapability)
    if operand in _FLOAT_TYPES | (_NANOO_TYPES if is_rocm else {"f64"}):
        return None
    if operand in ("s8", "u8") and result in ("s32", "u32"):
        return None
    if operand in _INTEGRAL_TYPES:
        if result in _INTEGRAL_TYPES:
            return "Dot operation does not support these integer types."
        return "Dot operation does not support floating point input and integer result types."
    return f"Unsupported types: input={operand}, result={result}"


def _of_algorithm(
    algorithm: str,
    types: tuple[str, str],
    operands: tuple[str, str],
    result: Shape,
    device: Device,
    version: TritonVersion,
) -> str | None:
    """Source: AreDotAlgorithmInputAndOutputConversionsSupported."""
    multiplied, summed = types
    if result.element_type != summed and not (
        _converts(summed, result.element_type, device, version)
        and _converts(result.element_type, summed, device, version)
    ):
        return "Unsupported result conversion"
    capability = device.capability
    if (
        algorithm == _NOT_ON_ROCM
        and Shape(operands[0]).bits < 32
        and isinstance(capability, CudaCapability)
        and capability.major < 10
    ):
        return "Unsupported BF16 on GPUs on ROCm and before Blackwell"
    for side, operand in zip(("lhs", "rhs"), operands, strict=True):
        if operand != multiplied and not _converts(operand, multiplied, device, version):
            return f"Unsupported {side} conversion"
    return None


def _converts(source: str, result: str, device: Device, version: TritonVersion) -> bool:
    operand = MutableInstruction("", "parameter", Shape(source), [])
    convert = MutableInstruction("", "convert", Shape(result), [operand])
    return unsupported(convert, device, version) is None
