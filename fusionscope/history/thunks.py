"""What the steps of a program launch, which the runtimes of CPUs and GPUs call thunks.

A launch is what the runtime starts on the device: a kernel, a function of a library, a copy or a
fill of memory. A step that only decides what comes next, waits, or writes one number launches
nothing. Kinds and the operations that they are made of: Thunk::Kind, xla/backends/cpu/runtime/
thunk.h and xla/backends/gpu/runtime/thunk.h; EmitHloInstruction, xla/service/cpu/thunk_emitter.cc
and xla/service/gpu/thunk_emitter.cc.
"""

from __future__ import annotations

from typing import NamedTuple


class ThunkKind(NamedTuple):
    """A kind of step. ``source`` is what it is made of: names of operations and, behind ``:``, of
    targets of custom calls. ``launches`` is what one run of it launches, in words.
    """

    name: str
    source: str
    launches: str = "one"


_NOTHING = "nothing"
_INSIDE = "what it contains"
_COPIES = "one more for each operand that it may not overwrite"
_LIBRARY = "one call of the library, which may run several kernels"
_DONE = (
    "all-gather-done all-reduce-done async-done collective-permute-done copy-done recv-done "
    "send-done"
)

# What has no thunk, on both backends: it names, orders or views values, or only reserves memory.
NO_THUNK = frozenset(
    """add-dependency after-all bitcast constant domain get-dimension-size get-tuple-element
    opt-barrier parameter tuple""".split()
)
# Pin, Unpin and CreateBuffer change which memory a value is in. The others mark values for passes,
# which remove them.
TARGETS_NOT_LAUNCHED = frozenset(
    """AllocateBuffer CreateBuffer LayoutConstraint MoveToDevice MoveToHost Pin PinToDevice
    PinToDeviceSram SPMDFullToShardShape SPMDShardToFullShape Sharding Unpin
    annotate_device_placement""".split()
)

CPU_THUNKS = (
    ThunkKind("kCall", "call", _INSIDE),
    ThunkKind("kCollective", "all-gather all-reduce all-to-all collective-permute reduce-scatter"),
    ThunkKind("kConditional", "conditional", f"{_INSIDE}: one branch"),
    ThunkKind("kConvolution", "convolution"),
    ThunkKind("kCopy", "copy sort", f"one; a sort has {_COPIES}"),
    ThunkKind("kCustomCall", "custom-call"),
    ThunkKind("kDot", "dot"),
    ThunkKind("kFft", "fft"),
    ThunkKind("kInfeed", "infeed"),
    ThunkKind("kKernel", "fusion, other operations, a call with xla_cpu_small_call"),
    ThunkKind("kOneDnnFusion", "fusion"),
    ThunkKind("kOutfeed", "outfeed"),
    ThunkKind("kPartitionId", "partition-id", _NOTHING),
    ThunkKind("kReplicaId", "replica-id", _NOTHING),
    ThunkKind("kRngGetAndUpdateState", "rng-get-and-update-state"),
    ThunkKind("kRngSeed", ":GetRngSeed"),
    ThunkKind("kSort", "sort"),
    ThunkKind("kTopK", ":TopK"),
    ThunkKind("kWhile", "while", f"{_INSIDE}: the body in each step, maybe the condition"),
    ThunkKind("kYnnFusion", "fusion"),
)  # fmt: skip

GPU_THUNKS = (
    ThunkKind("kAllGather", "all-gather all-gather-start"),
    ThunkKind("kAllReduce", "all-reduce all-reduce-start"),
    ThunkKind("kAllToAll", "all-to-all"),
    ThunkKind("kAsyncDone", f"async-update {_DONE}", _NOTHING),
    ThunkKind("kAsyncStart", "async-start", f"{_INSIDE}, on another stream"),
    ThunkKind("kBuffersDebugChecksum", "", "one (a check, which flags request)"),
    ThunkKind("kBuffersDebugFloatCheck", "", "one (a check, which flags request)"),
    ThunkKind("kCollectiveBroadcast", "collective-broadcast"),
    ThunkKind("kCollectiveKernel", "all-reduce"),
    ThunkKind("kCollectiveMetadata", "", _NOTHING),
    ThunkKind("kCollectivePermute", "collective-permute collective-permute-start"),
    ThunkKind("kCommandBuffer", "", f"{_INSIDE}, as one graph"),
    ThunkKind("kConditional", "conditional", f"{_INSIDE}: one branch"),
    ThunkKind("kConvolution", "convolution", _LIBRARY),
    ThunkKind("kConvolutionReorder", ":__cudnn$convReorder", _LIBRARY),
    ThunkKind("kCopy", "copy copy-start fusion sort", f"one; a sort or scatter has {_COPIES}"),
    ThunkKind("kCuDnn", "fusion", _LIBRARY),
    ThunkKind("kCublasLtMatmul", ":__cublas$lt$matmul", _LIBRARY),
    ThunkKind("kCustomCall", "custom-call", "one call, which may run several kernels"),
    ThunkKind("kCustomKernel", "fusion sort", "one; a sort has one for a few of its stages"),
    ThunkKind("kDynamicSliceFusion", "fusion", f"{_INSIDE}: one call of a library"),
    ThunkKind("kFft", "fft", _LIBRARY),
    ThunkKind("kGemm", ":__cublas$gemm", _LIBRARY),
    ThunkKind("kGroup", "async-start", _INSIDE),
    ThunkKind("kHostExecuteDone", "async-done", _NOTHING),
    ThunkKind("kHostExecuteStart", "async-start", "one, on the host"),
    ThunkKind("kHostRecv", "recv"),
    ThunkKind("kHostRecvDone", "recv-done", _NOTHING),
    ThunkKind("kHostSend", "send"),
    ThunkKind("kHostSendDone", "send-done", _NOTHING),
    ThunkKind("kInfeed", "infeed"),
    ThunkKind("kKernel", "fusion rng-get-and-update-state", "one"),
    ThunkKind("kMemset32BitValue", "fusion", "one (a fill)"),
    ThunkKind("kMemzero", "fusion collective-permute", "one (a fill)"),
    ThunkKind("kNorm", ":__cudnn$norm", _LIBRARY),
    ThunkKind("kOutfeed", "outfeed"),
    ThunkKind("kPartitionId", "partition-id", f"{_NOTHING} (a fill of four bytes)"),
    ThunkKind("kRaggedAllToAll", "ragged-all-to-all"),
    ThunkKind("kRecv", "recv"),
    ThunkKind("kReduceScatter", "reduce-scatter"),
    ThunkKind("kReplicaId", "replica-id", f"{_NOTHING} (a fill of four bytes)"),
    ThunkKind("kRngSeed", ":GetRngSeed", "two fills of four bytes, which count as one"),
    ThunkKind("kSelectK", ":__gpu$TopK"),
    ThunkKind("kSend", "send"),
    ThunkKind("kSequential", "", _INSIDE),
    ThunkKind("kTriangularSolve", "triangular-solve", _LIBRARY),
    ThunkKind("kWhile", "while", f"{_INSIDE}: the body in each step, maybe the condition"),
)  # fmt: skip

_CONTAINERS = frozenset({"call", "conditional", "while"})  # an async-start is the launch itself

# Operations for which nothing is launched.
NOT_LAUNCHED = (
    NO_THUNK
    | _CONTAINERS
    | {
        opcode
        for kind in CPU_THUNKS + GPU_THUNKS
        if kind.launches.startswith(_NOTHING)
        for opcode in kind.source.split()
    }
)
