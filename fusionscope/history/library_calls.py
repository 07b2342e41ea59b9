"""Libraries that XLA calls on CPU and GPU: what each call computes, and the steps it can include.

Targets of calls: xla/service/gpu/cublas_cudnn.h, xla/service/gpu/ir_emission_utils.h, and the
handlers that JAX registers. Steps of a call: xla/backends/gpu/transforms/gemm_rewriter.cc and
cudnn_fused_conv_rewriter.cc; each was checked against programs compiled by jaxlib 0.12.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, NamedTuple

from fusionscope.hlo import Instruction


class EpilogueStep(StrEnum):
    """The steps that a call can apply to its result before it writes it, in this order."""

    SCALING = "scaling"
    BIAS = "bias"
    ADDITION = "addition of another array"
    RELU = "ReLU"
    GELU = "GELU"


# A call that includes a step cannot include a step of an earlier kind, and only one activation.
_ORDER = {
    EpilogueStep.SCALING: 0,
    EpilogueStep.BIAS: 1,
    EpilogueStep.ADDITION: 1,
    EpilogueStep.RELU: 2,
    EpilogueStep.GELU: 2,
}
ACTIVATIONS = frozenset({EpilogueStep.RELU, EpilogueStep.GELU})

_CUBLASLT = frozenset(EpilogueStep)
_CUBLAS = frozenset({EpilogueStep.SCALING, EpilogueStep.ADDITION})
_CUDNN = frozenset(
    {EpilogueStep.SCALING, EpilogueStep.BIAS, EpilogueStep.ADDITION, EpilogueStep.RELU}
)


class Library(NamedTuple):
    """The library of a call, in words what it computes, and the steps that such calls include."""

    name: str
    computes: str
    takes: frozenset[EpilogueStep] = frozenset()


_PRODUCT = "matrix product"
# By the first characters of the target of a custom call, or of the kind of a fusion; the longest
# match counts. The computation of a fusion is read from its operations.
_BY_TARGET = {
    "__cublas$gemm": Library("cuBLAS", _PRODUCT, _CUBLAS),
    "__cublas$lt$matmul": Library("cuBLASLt", _PRODUCT, _CUBLASLT),
    "__cublas$lt$matmul$f8": Library("cuBLASLt", f"{_PRODUCT} of 8-bit floats", _CUBLASLT),
    "__cublas$lt$matmul$mx": Library("cuBLASLt", f"{_PRODUCT} of block-scaled numbers"),
    "__cublas$lt$groupedMatmul": Library("cuBLASLt", "a matrix product for each group"),
    "__cublas$triangularSolve": Library("cuBLAS", "triangular solve"),
    "cublas_": Library("cuBLAS", ""),
    "__cudnn$convForward": Library("cuDNN", "convolution", _CUDNN),
    "__cudnn$convBiasActivationForward": Library("cuDNN", "convolution", _CUDNN),
    "__cudnn$convBackwardInput": Library(
        "cuDNN", "gradient of a convolution with respect to its input"
    ),
    "__cudnn$convBackwardFilter": Library(
        "cuDNN", "gradient of a convolution with respect to its kernel"
    ),
    "__cudnn$convReorderFilter": Library("cuDNN", "reordering of a convolution's kernel"),
    "__cudnn$norm": Library("cuDNN", "layer normalization"),
    "__cudnn$fmha": Library("cuDNN", "attention"),
    "__cudnn$blockScaledDot": Library("cuDNN", f"{_PRODUCT} of block-scaled numbers"),
    "__cudnn$fusion": Library("cuDNN", ""),
    "cudnn_rnn": Library("cuDNN", "recurrent network"),
    "cusolver_potrf": Library("cuSOLVER", "Cholesky decomposition"),
    "cusolver_getrf": Library("cuSOLVER", "LU decomposition"),
    "cusolver_geqrf": Library("cuSOLVER", "QR decomposition"),
    "cusolver_orgqr": Library("cuSOLVER", "Q of a QR decomposition"),
    "cusolver_ormqr": Library("cuSOLVER", "product with Q of a QR decomposition"),
    "cusolver_syev": Library("cuSOLVER", "eigenvalues of a symmetric matrix"),
    "cusolver_geev": Library("cuSOLVER", "eigenvalues"),
    "cusolver_gesvd": Library("cuSOLVER", "singular value decomposition"),
    "cusolver_": Library("cuSOLVER", ""),
    "cusparse_": Library("cuSPARSE", ""),
    "cu_lu_pivots_to_permutation": Library("JAX", "permutation of an LU decomposition"),
    "cu_threefry2x32": Library("JAX", "random bits (threefry)"),
    "xla.gpu.ext.cub_sort": Library("CUB", "radix sort"),
    "__cub$DeviceRadixSort": Library("CUB", "radix sort"),
    "xla.gpu.ext.cub_scan": Library("CUB", "prefix sum"),
    "__gpu$TopK": Library("XLA", "top-k"),
    "__triton_collective": Library("Triton", "collective operation"),
    "__triton": Library("Triton", ""),
    "triton_kernel_call": Library("Triton", "a hand-written kernel"),
    "__gpu$xla.gpu.triton": Library("Triton", "a hand-written kernel"),
    "mosaic_gpu": Library("Mosaic", "a hand-written kernel"),
    "xla_ffi_python_": Library("Python", "a callback into the program"),
    "xla_ffi_partitioned_python_": Library("Python", "a callback into the program"),
    "xla_buffer_python_": Library("Python", "a callback into the program"),
    "__ynn_fusion": Library("YNN", ""),
    "__onednn": Library("oneDNN", ""),
    "lapack_": Library("LAPACK", ""),
    "TopK": Library("XLA", "top-k"),
}

# Main operations of fusions that a library or an emitter of its own computes, and operations that
# are launched unfused.
HEROES = {
    "dot": _PRODUCT,
    "scaled-dot": f"{_PRODUCT} of block-scaled numbers",
    "ragged-dot": "a matrix product for each group",
    "convolution": "convolution",
    "sort": "sort",
    "topk": "top-k",
    "fft": "Fourier transform",
    "cholesky": "Cholesky decomposition",
    "triangular-solve": "triangular solve",
}


def is_library(target: str) -> bool:
    """Return whether the target of a custom call is one of a known library."""
    return target.startswith(tuple(_BY_TARGET))


def library_of(target: str, hero: str, backend: str) -> Library:
    """Return the library of a target or kind of fusion with a main operation ``hero``."""
    prefix = max(filter(target.startswith, _BY_TARGET), key=len, default="")
    library = _BY_TARGET.get(prefix)
    if library is None and hero == "custom-call":
        return Library("custom call", target)
    if library is None:
        library = Library("cuFFT" if (backend, hero) == ("gpu", "fft") else "XLA", "")
    return library._replace(computes=library.computes or HEROES.get(hero, target if hero else ""))


class Taken(NamedTuple):
    """An operation that a call includes; ``step`` is None if it is not a separate step."""

    text: str
    step: EpilogueStep | None = None


_EPILOGUES = {"BIAS": EpilogueStep.BIAS, "RELU": EpilogueStep.RELU, "GELU": EpilogueStep.GELU}
_ACTIVATIONS = {"kRelu": EpilogueStep.RELU}
_ACTIVATION_NAMES = {"kRelu6": "ReLU6", "kElu": "ELU", "kLeakyRelu": "leaky ReLU"}


def taken_by(call: Instruction) -> tuple[Taken, ...]:
    """Return the steps that the configuration of a custom call applies to its result."""
    if gemm := gemm_config(call):
        return tuple(_by_gemm(gemm))
    convolution = _message(call.attribute("backend_config"), "cudnn_conv_backend_config")
    return tuple(_by_convolution(call, convolution)) if convolution else ()


def window_of(call: Instruction) -> str:
    """Return the window of a convolution in words, empty for other operations."""
    if "dim_labels" not in call.attributes:
        return ""
    window = call.attribute("window") or {}
    sizes = "x".join(map(str, window.get("size", ()))) or "1"
    words = [f"{sizes} kernel"]
    for key, text in _WINDOW.items():
        if any(value != 1 for value in window.get(key, ())):
            words.append(f"{text} {'x'.join(map(str, window[key]))}")
    if any(map(any, window.get("pad", ()))):
        words.append("padding " + " x ".join(f"{low}+{high}" for low, high in window["pad"]))
    if window.get("rhs_reversal"):
        words.append("reversed")
    for key in ("feature", "batch"):
        if (groups := call.attribute(f"{key}_group_count") or 1) != 1:
            words.append(f"{groups:,} groups of the {key}{'s' * (key == 'feature')}")
    return ", ".join(words)


_WINDOW = {"stride": "stride", "lhs_dilate": "input dilated", "rhs_dilate": "kernel dilated"}


def gemm_config(call: Instruction) -> dict[str, Any]:
    """Return how the call of a matrix product is configured; empty if it has no such part."""
    config = call.attribute("backend_config")
    grouped = _message(config, "grouped_gemm_backend_config")
    return _message(grouped or config, "gemm_backend_config")


def _by_gemm(config: dict[str, Any]) -> list[Taken]:
    steps = []
    scale, beta = _number(config, "alpha_real", 1.0), _number(config, "beta", 0.0)
    if scale != 1:
        steps.append(Taken(f"scaling by {scale:g}", EpilogueStep.SCALING))
    if beta != 0:
        times = f" times {beta:g}" if beta != 1 else ""
        steps.append(Taken(f"{EpilogueStep.ADDITION}{times}", EpilogueStep.ADDITION))
    for part in str(config.get("epilogue", "DEFAULT")).split("_"):
        if part == "AUX":
            steps.append(Taken("values that its gradient needs"))
        elif part not in ("", "DEFAULT"):
            step = _EPILOGUES.get(part)
            steps.append(Taken(step or part, step))
    return steps


def _by_convolution(call: Instruction, config: dict[str, Any]) -> list[Taken]:
    steps = []
    scale = _number(config, "conv_result_scale", 1.0)
    if scale != 1:
        steps.append(Taken(f"scaling by {scale:g}", EpilogueStep.SCALING))
    if "convBias" in call.attributes.get("custom_call_target", "") and len(call.operands) > 2:
        bias = call.operands[2]
        # Without operands it is zeros: the call that knows ReLU requires a bias.
        if bias.opcode == "parameter" or bias.operands:
            steps.append(Taken(EpilogueStep.BIAS, EpilogueStep.BIAS))
    side_scale = _number(config, "side_input_scale", 0.0)
    if side_scale != 0:
        times = f" times {side_scale:g}" if side_scale != 1 else ""
        steps.append(Taken(f"{EpilogueStep.ADDITION}{times}", EpilogueStep.ADDITION))
    activation = str(config.get("activation_mode", "kNone"))
    if activation != "kNone":
        step = _ACTIVATIONS.get(activation)
        name = _ACTIVATION_NAMES.get(activation, activation.removeprefix("k"))
        steps.append(Taken(step or name, step))
    operations = _GRAPH_OPERATION.findall(str(config.get("serialized_graph", "")))
    steps += [Taken(_GRAPH_WORDS.get(name, name)) for name in operations if name != "conv"]
    return steps


# Source: GraphString in xla/backends/gpu/transforms/cudnn_fused_conv_rewriter.cc.
_GRAPH_OPERATION = re.compile(r"\d+:\[\w+\](\w+)\(")
_GRAPH_WORDS = {
    "add": EpilogueStep.ADDITION,
    "amax": "the largest absolute value",
    "elu": "ELU",
    "invscale": "division by a scale",
    "max": "maximum",
    "min": "minimum",
    "relu": EpilogueStep.RELU,
    "scale": "scaling",
}


def _message(config: object, name: str) -> dict[str, Any]:
    """Return a part of a configuration; empty if it has none."""
    part = config.get(name) if isinstance(config, dict) else None
    return part if isinstance(part, dict) else {}


def _number(config: dict[str, Any], name: str, default: float) -> float:
    value = config.get(name, default)
    is_number = type(value) in (int, float) and -_LARGE < value < _LARGE
    return float(value) if is_number else default


_LARGE = 1e300  # more than any compiler writes


def step_of(operation: Instruction, value: Instruction) -> EpilogueStep | None:
    """Return the step that ``operation`` is for its operand ``value``, if a call can include it."""
    other_operands = [operand for operand in operation.operands if operand is not value]
    if len(other_operands) != 1 or len(operation.operands) != 2:
        return None
    second = other_operands[0]
    while second.opcode in ("bitcast", "convert") and second.operands:
        second = second.operands[0]
    is_broadcast = second.opcode == "broadcast" and bool(second.operands)
    dimensions = second.attribute("dimensions") if is_broadcast else None
    constant = second.operands[0].literal if is_broadcast and dimensions == () else None
    match operation.opcode:
        case "add" if dimensions == (operation.shape.rank - 1,):
            return EpilogueStep.BIAS
        case "add" if not is_broadcast:
            return EpilogueStep.ADDITION
        case "multiply" if constant is not None:
            return EpilogueStep.SCALING
        case "maximum" if constant in ("0", "-0"):
            return EpilogueStep.RELU
    return None


def comes_too_late(step: EpilogueStep, earlier_steps: Iterable[EpilogueStep]) -> bool:
    """Return whether a call with ``earlier_steps`` can no longer include ``step``."""
    last = max(_ORDER[earlier_step] for earlier_step in earlier_steps)
    return _ORDER[step] < last or (step in ACTIVATIONS and _ORDER[step] == last)
