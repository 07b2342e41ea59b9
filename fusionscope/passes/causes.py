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
    is_legality: ClassVar[bool] = True


class LibraryCall(Cause):
    id: ClassVar = "never-library"
    opcodes: ClassVar = frozenset(
        """cholesky convolution dot fft ragged-dot scaled-dot triangular-solve""".split()
    )


class OtherCustomCall(Cause):
    id: ClassVar = "never-custom-call"
    opcodes: ClassVar = frozenset({"custom-call"})


class Collective(Cause):
    id: ClassVar = "never-collective"
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
    opcodes: ClassVar = frozenset({"call", "conditional", "while"})


class Sort(Cause):
    id: ClassVar = "never-sort"
    opcodes: ClassVar = frozenset({"sort", "topk"})


class ScatterKernel(Cause):
    id: ClassVar = "never-scatter"
    opcodes: ClassVar = frozenset({"scatter"})


class Window(Cause):
    id: ClassVar = "never-window"
    opcodes: ClassVar = frozenset({"reduce-window", "select-and-scatter"})


class RandomBits(Cause):
    id: ClassVar = "never-random"
    opcodes: ClassVar = frozenset({"rng", "rng-bit-generator", "rng-get-and-update-state"})


class Barrier(Cause):
    id: ClassVar = "never-barrier"
    opcodes: ClassVar = frozenset({"add-dependency", "after-all", "domain", "opt-barrier"})


class SideEffect(Cause):
    id: ClassVar = "never-side-effect"
    opcodes: ClassVar = frozenset("infeed outfeed recv recv-done send send-done trace".split())


class Transfer(Cause):
    id: ClassVar = "never-transfer"
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


class LibrarySeveralUsers(SeveralUsers):
    id: ClassVar = "lib-one-user"
    pass_name: ClassVar = "dot-library-rewriter"
    backend: ClassVar = "cpu"


class SecondDot(Cause):
    id: ClassVar = "gf-second-dot"
    pass_name: ClassVar = "triton-gemm-rewriter"
    backend: ClassVar = "gpu"


class SplitSum(Cause):
    id: ClassVar = "gf-split-k"
    pass_name: ClassVar = "triton-gemm-rewriter"
    backend: ClassVar = "gpu"


class SeveralResults(Cause):
    id: ClassVar = "never-several-results"


class ThroughTuple(Cause):
    id: ClassVar = "never-tuple"
    opcodes: ClassVar = frozenset({"get-tuple-element", "tuple"})


class OwnKernel(Cause):
    id: ClassVar = "never-emitter"


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
