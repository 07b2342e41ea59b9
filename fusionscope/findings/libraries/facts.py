"""Library calls, and the kernels beside them."""

from __future__ import annotations

from fusionscope.facts.facts import Facts


class Neighbour(Facts, frozen=True):
    """A kernel that makes an operand of a library call, or reads its result.

    name: the kernel
    operations: opcodes of the operations that make or read what passes between the two
    members: opcodes of all that the kernel computes
    bytes_between: bytes that need not pass through memory if both were one kernel, for one run
    serves: whether it computes nothing and exists only for library calls: a transpose, a pad, a
        copy
    """

    name: str
    operations: tuple[str, ...]
    members: tuple[str, ...]
    bytes_between: int
    serves: bool


class Call(Facts, frozen=True, kw_only=True, rename={"made_by": "pass"}):
    """A kernel that an emitter of its own makes. Bytes are those of one launch.

    computation: the computation that launches it
    runs: launches in a run, as in ``kernels[].runs``
    source: the user's line, as ``file:line``
    library: who computes it: cuBLASLt, cuDNN, Triton, XLA itself, …; ``custom call`` if unknown
    computes: what it computes, in words; the target of a custom call if there are none
    window: of a convolution, its kernel, strides, padding, dilation and groups, in words; empty
        for others
    operands: shapes of what it reads, with layouts
    results: shapes of what it writes, without ``scratch``
    bytes_read: bytes that one launch reads
    bytes_written: bytes that one launch writes, without ``scratch``
    scratch: bytes that it is given to work in
    since: label of the first stage that has it, from the one before fusion on
    made_by: the pass that made it; null if it was there before fusion
    """

    computation: str
    runs: int
    source: str | None
    library: str
    computes: str
    window: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    bytes_read: int
    bytes_written: int
    scratch: int
    since: str | None
    made_by: str | None


class Boundary(Call, frozen=True, kw_only=True):
    """A library call, or a fusion that an emitter of its own makes: nothing is fused across it.

    names: the instructions of the final stage, all that look alike; all else is about the first
    taken_before: what it first computes from its operands: opcodes
    taken_after: what it does to its result before it writes it: ``bias``, ``ReLU``, ``scaling by
        0.5``, …, else opcodes
    left_out: operations right after it that calls of its kind can include: ``scaling``, ``bias``,
        ``addition of another array``, ``ReLU``, ``GELU``
    rule: the first condition that is not met, from ``rules``: the one that keeps the first of
        them out of a call of cuBLASLt, or a product on a CPU from YNN; null if unknown
    why: why it does not include that here, or YNN does not compute it, if known
    before: kernels that make its operands
    after: kernels that read its result
    saved_at_most: bytes, over all runs of all alike, that need not pass through memory if all
        neighbours were part of the call
    """

    finding = "boundaries"

    names: tuple[str, ...]
    taken_before: tuple[str, ...]
    taken_after: tuple[str, ...]
    left_out: tuple[str, ...]
    rule: str | None
    why: str | None
    before: tuple[Neighbour, ...]
    after: tuple[Neighbour, ...]
    saved_at_most: int


class Fields(Facts, frozen=True):
    """
    boundaries: library calls on CPU and GPU, those across which fusion could save most
        first; similar calls once
    """

    boundaries: tuple[Boundary, ...] = ()
