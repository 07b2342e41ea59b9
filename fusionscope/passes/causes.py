"""The causes for which an operation stays out of a fusion, if no rule states them.

A fusion pass checks whether an operation can be in a fusion at all, and records only that it
cannot. A cause names the kind of operation. Some passes stop without evaluating a rule; a cause
says why. A cause is in no rule book, so it cannot be disabled.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, ClassVar

from fusionscope.passes.rule import Decision, Number, Rule

if TYPE_CHECKING:
    from fusionscope.graph.mutable import MutableInstruction, Users

_NAMED = 3  # users that are listed by name


def count_users(users: Users[MutableInstruction]) -> dict[str, Number]:
    """Return how many users there are, and the names of the first: each of them needs this text."""
    names = [user.result_name for user in islice(users, _NAMED)]
    more = ", …" if len(users) > _NAMED else ""
    return {"users": len(users), "read_by": ", ".join(names) + more}


class Cause(Rule):
    """``opcodes`` are the operations that it is about; ``pass_name`` and ``backend`` are the passes
    and backends to which it applies.
    """

    pass_name: ClassVar[str] = "any"
    backend: ClassVar[str] = "cpu, gpu"
    opcodes: ClassVar[frozenset[str]] = frozenset()
    source: ClassVar[str] = (
        "xla/hlo/ir/hlo_instruction.cc, HloInstruction::IsFusible; "
        "xla/backends/gpu/transforms/priority_fusion.cc, IsFusible; "
        "xla/service/cpu/cpu_instruction_fusion.cc, CanBeLoopFused"
    )
    is_legality: ClassVar[bool] = True


class LibraryCall(Cause):
    id: ClassVar = "never-library"
    title: ClassVar = "a library call, or its own emitter"
    what: ClassVar = (
        "One of the two is a call of a library (cuBLAS, cuDNN, YNN, oneDNN, LAPACK, …), a fusion "
        "that was formed for one, or an operation that has an emitter of its own: a dot, a "
        "convolution, a Fourier transform, a Cholesky decomposition, a triangular solve."
    )
    why: ClassVar = (
        "The code of the call is fixed: it reads its operands from memory and writes its result "
        "there. Some calls first apply a few steps to their result (a scaling, a bias, an "
        "activation); the steps that this call can apply are named."
    )
    opcodes: ClassVar = frozenset(
        """cholesky convolution dot fft ragged-dot scaled-dot triangular-solve""".split()
    )


class OtherCustomCall(Cause):
    id: ClassVar = "never-custom-call"
    title: ClassVar = "a custom call"
    what: ClassVar = (
        "One of the two is a custom call that does not belong to a library: a hand-written kernel "
        "(Pallas, Triton, Mosaic), a function of the framework, a callback into the program."
    )
    why: ClassVar = "The compiler knows only its target, not its code."
    opcodes: ClassVar = frozenset({"custom-call"})


class Collective(Cause):
    id: ClassVar = "never-collective"
    title: ClassVar = "a collective between devices"
    what: ClassVar = (
        "One of the two is an all-reduce, all-gather, reduce-scatter, all-to-all, collective "
        "permute or broadcast, or the start or end of one."
    )
    why: ClassVar = "Devices exchange whole buffers, which must be in memory before and after."
    opcodes: ClassVar = frozenset(
        f"{name}{end}"
        for name in (
            "all-gather", "all-reduce", "all-to-all", "collective-broadcast", "collective-permute",
            "ragged-all-to-all", "reduce-scatter",
        )
        for end in ("", "-start", "-done")
    )  # fmt: skip


class ControlFlow(Cause):
    id: ClassVar = "never-control-flow"
    title: ClassVar = "a loop, a branch or a call"
    what: ClassVar = (
        "One of the two is a while loop, a conditional or a call, whose operands and results are "
        "in memory."
    )
    why: ClassVar = "Kernels are launched inside of it, so it cannot be part of a kernel."
    opcodes: ClassVar = frozenset({"call", "conditional", "while"})


class Sort(Cause):
    id: ClassVar = "never-sort"
    title: ClassVar = "a sort"
    what: ClassVar = "One of the two is a sort or a top-k."
    why: ClassVar = "It passes over its data many times, in place."
    opcodes: ClassVar = frozenset({"sort", "topk"})


class ScatterKernel(Cause):
    id: ClassVar = "never-scatter"
    title: ClassVar = "a scatter"
    what: ClassVar = "One of the two is a scatter. On GPUs pf-scatter decides about it instead."
    why: ClassVar = (
        "It writes elements in place and in no fixed order: no element of its result is known "
        "before it ends, and it is not a loop over its result."
    )
    opcodes: ClassVar = frozenset({"scatter"})


class Window(Cause):
    id: ClassVar = "never-window"
    title: ClassVar = "an operation on windows"
    what: ClassVar = (
        "One of the two is a reduce-window (pooling, cumulative sums, and long reductions as CPUs "
        "compute them) or a select-and-scatter, its gradient. GPUs fuse a reduce-window of one "
        "array."
    )
    why: ClassVar = (
        "Windows overlap: if fused, each element would be computed once for every window that "
        "contains it."
    )
    opcodes: ClassVar = frozenset({"reduce-window", "select-and-scatter"})


class RandomBits(Cause):
    id: ClassVar = "never-random"
    title: ClassVar = "a random number generator"
    what: ClassVar = (
        "One of the two is an rng-bit-generator, an rng with several users, or the state of one."
    )
    why: ClassVar = "It changes its state, once for all of its result."
    opcodes: ClassVar = frozenset({"rng", "rng-bit-generator", "rng-get-and-update-state"})


class Barrier(Cause):
    id: ClassVar = "never-barrier"
    title: ClassVar = "a barrier"
    what: ClassVar = (
        "One of the two is an optimization barrier, or the value passes through one "
        "(jax.lax.optimization_barrier, jax.checkpoint); or a domain, or a dependency that orders "
        "effects."
    )
    why: ClassVar = "The purpose of a barrier is to keep the operations on its two sides apart."
    opcodes: ClassVar = frozenset({"add-dependency", "after-all", "domain", "opt-barrier"})


class SideEffect(Cause):
    id: ClassVar = "never-side-effect"
    title: ClassVar = "a side effect"
    what: ClassVar = "One of the two is an infeed, an outfeed, a send or a receive."
    why: ClassVar = "An effect must happen exactly once, in its order."
    opcodes: ClassVar = frozenset("infeed outfeed recv recv-done send send-done trace".split())


class Transfer(Cause):
    id: ClassVar = "never-transfer"
    title: ClassVar = "a copy that runs beside the kernels"
    what: ClassVar = (
        "One of the two is the start or the end of an asynchronous copy or computation "
        "(copy-start, async-start and the operations that wait for them)."
    )
    why: ClassVar = "It runs on another stream, or on the copy engine of the device."
    opcodes: ClassVar = frozenset(
        "async-done async-start async-update copy-done copy-start".split()
    )


class SeveralUsers(Cause):
    """For a pass that continues from an operation to its user only if it is the only one."""

    def refuse_for(self, users: Users[MutableInstruction]) -> Decision:
        return self.refuse(None, **count_users(users))


class DotSeveralUsers(SeveralUsers):
    id: ClassVar = "gf-one-user"
    pass_name: ClassVar = "triton-gemm-rewriter"
    backend: ClassVar = "gpu"
    title: ClassVar = "several operations read the dot's result"
    what: ClassVar = (
        "The producer is a dot, or the result of a fusion of a dot, and more than one operation "
        "reads it, or the computation returns it. The fusion ends there."
    )
    why: ClassVar = (
        "The value must be in memory for the other operations, so the kernel writes it unchanged."
    )
    source: ClassVar = (
        "xla/backends/gpu/transforms/gemm_fusion.cc, FuseTowardUsers and CreateTileableFusion"
    )


class LibrarySeveralUsers(SeveralUsers):
    id: ClassVar = "lib-one-user"
    pass_name: ClassVar = "dot-library-rewriter"
    backend: ClassVar = "cpu"
    title: ClassVar = "several operations read it"
    what: ClassVar = (
        "The producer is an operand of a library fusion that other operations read too; or it is "
        "a library fusion that several operations read. A library fusion includes operands that "
        "nothing else reads, and its user if it has only one."
    )
    why: ClassVar = "The value must be in memory for the other operations."
    source: ClassVar = "xla/backends/cpu/transforms/library_rewriter.cc, AddFusionCandidates"


class SecondDot(Cause):
    id: ClassVar = "gf-second-dot"
    pass_name: ClassVar = "triton-gemm-rewriter"
    backend: ClassVar = "gpu"
    title: ClassVar = "both are in fusions of a dot"
    what: ClassVar = (
        "The producer is a dot or in the fusion of one, and the consumer is in the fusion of "
        "another: each dot has a fusion of its own."
    )
    why: ClassVar = "A Triton kernel loops over the contracted dimension of one dot."
    source: ClassVar = "xla/backends/gpu/transforms/gemm_fusion.cc"


class SplitSum(Cause):
    id: ClassVar = "gf-split-k"
    pass_name: ClassVar = "triton-gemm-rewriter"
    backend: ClassVar = "gpu"
    title: ClassVar = "the sum over a split dot's parts"
    what: ClassVar = (
        "The consumer is a reduction that the compiler itself added after the dot: splitk-rewriter "
        "computes a dot of few rows and columns in parts along the contracted dimension, and adds "
        "them up."
    )
    why: ClassVar = (
        "Different blocks compute the parts at the same time, and a fusion of a dot cannot contain "
        "a reduction of its result."
    )
    source: ClassVar = "xla/backends/gpu/transforms/splitk_rewriter.cc"


class SeveralResults(Cause):
    id: ClassVar = "never-several-results"
    title: ClassVar = "a producer with several results"
    what: ClassVar = (
        "The producer has several results (an argmax is a reduction of values and of their "
        "positions), and the consumer reads one of them."
    )
    why: ClassVar = (
        "A pass that fuses a producer into its consumers can fuse a value, but not one part of a "
        "tuple."
    )


class ThroughTuple(Cause):
    id: ClassVar = "never-tuple"
    title: ClassVar = "a tuple is between the two"
    what: ClassVar = (
        "When the pass ran, one instruction packed the value in a tuple and another one extracted "
        "it. They are removed later, after the last fusion pass."
    )
    why: ClassVar = "A pass only examines instructions that read each other directly."
    opcodes: ClassVar = frozenset({"get-tuple-element", "tuple"})


class OwnKernel(Cause):
    id: ClassVar = "never-emitter"
    title: ClassVar = "no emitter of fusions computes it"
    what: ClassVar = (
        "One of the two is an operation that no other cause covers and that the backend emits as "
        "a kernel of its own, if at all."
    )
    why: ClassVar = "A fusion consists of operations that its emitter can compute."


CAUSES: tuple[type[Cause], ...] = (
    LibraryCall,
    OtherCustomCall,
    Collective,
    ControlFlow,
    Sort,
    ScatterKernel,
    Window,
    RandomBits,
    Barrier,
    SideEffect,
    Transfer,
    DotSeveralUsers,
    SecondDot,
    SplitSum,
    LibrarySeveralUsers,
    SeveralResults,
    ThroughTuple,
    OwnKernel,
)

BY_OPCODE: dict[str, type[Cause]] = {
    opcode: cause for cause in CAUSES for opcode in sorted(cause.opcodes)
}
