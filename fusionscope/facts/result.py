"""The result of ``explain``: plain data, which every report renders."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeVar

from fusionscope.dump.length import Length
from fusionscope.facts.facts import Facts
from fusionscope.facts.suggestions import Figures, Suggestions
from fusionscope.verify.agreement import RulesUsed
from fusionscope.words.shown import Shown

Kind = TypeVar("Kind", bound=Facts)
Findings = dict[str, Facts | tuple[Facts, ...]]


class TimeSource(StrEnum):
    """The source of the time of a kernel: see ``facts/times.py``."""

    MODEL = "model"  # the compiler's own estimate
    FLOOR = "floor"  # a GPU or TPU needs at least as long
    NOMINAL = "nominal"  # on a nominal CPU


class BoundSource(StrEnum):
    """Where the bandwidth of a bound comes from."""

    MODEL = "model"
    MEASURED = "measured"


class Limit(StrEnum):
    """What takes over half of a time."""

    LAUNCHES = "launches"
    MEMORY = "memory"
    COMPUTE = "compute"
    LIBRARY = "library"
    UNEXPLAINED = "unexplained"  # neither bytes nor products: on a TPU
    MIXED = "mixed"  # none of the others


@dataclass(frozen=True, slots=True)
class TimeEstimate:
    """The time of all kernels in one run of a module. A loop whose length the compiler does not
    know counts once.

    microseconds: of all kernels, with their launches
    floor_launches: launches that count with the least that they can take (see
        ``kernels[].time_source``)
    """

    microseconds: float
    floor_launches: int


@dataclass(frozen=True, slots=True)
class Operation:
    """An instruction as a report names it.

    name: the instruction
    opcode: its opcode
    shape: its shape with layout; of a tuple of more than 64 elements the first 64, and how many
        more
    op_name: the framework's name of the operation
    source: the user's line, as ``file:line``
    """

    name: str
    opcode: str
    shape: str
    op_name: str | None
    source: str | None


class Grouping(StrEnum):
    """The kinds of groups that kernels are broken down by."""

    SCOPE = "scope"
    STACK = "stack"
    FILE = "file"
    KIND = "kind"


class SortedBy(StrEnum):
    TIME = "time"
    BYTES = "bytes"
    LAUNCHES = "launches"
    HEADROOM = "headroom"


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """Kernels that come from one part of the program: launches, bytes and estimated microseconds of
    a run, the bytes of refused pairs, and those that kernels spill.

    ``count`` is the number of parts if it combines several that differ only in numbers, such as the
    layers of a model. ``time_us`` is 0 if no time is known, and ``spill_bytes`` None if nothing is
    known of the resources of any kernel. ``kernels`` are their numbers, ``at_best_us`` the least
    time of one kernel that does the same, and ``limited_by`` what takes over half of their time;
    None if no GPU is known. One that ``is_rest`` combines all parts that a short list omits.
    """

    name: str
    count: int
    launches: int
    bytes_moved: int
    time_us: float
    refused_bytes: int
    spill_bytes: int | None
    kernels: tuple[int, ...] = ()
    at_best_us: float | None = None
    limited_by: Limit | None = None
    is_rest: bool = False
    children: tuple[Branch, ...]

    def figure(self, sorted_by: SortedBy) -> float:
        match sorted_by:
            case SortedBy.TIME:
                return self.time_us
            case SortedBy.BYTES:
                return self.bytes_moved
            case SortedBy.LAUNCHES:
                return self.launches
            case SortedBy.HEADROOM:
                return max(self.time_us - (self.at_best_us or 0.0), 0.0)


@dataclass(frozen=True, slots=True)
class Breakdown:
    """The launches, bytes and time of a module by part. ``lines`` are the largest parts of
    ``tree``; together they are the whole. Times are measured ones if it ``is_measured``.
    """

    by: Grouping
    sorted_by: SortedBy
    is_measured: bool
    tree: Branch
    lines: tuple[Branch, ...]

    def figure(self, branch: Branch) -> float:
        """The sort keys of branches."""
        return branch.figure(self.sorted_by)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelResources:
    """What a kernel takes of an NVIDIA GPU.

    registers: registers of a thread
    spill_store_bytes: bytes that a thread spills, once for each place in the code
    spill_load_bytes: bytes that a thread loads again, likewise
    shared_bytes: bytes of shared memory of a block; null if the dump does not say
    blocks: blocks of a launch
    threads_per_block: threads of a block
    occupancy: share of the warps of a core that run at once; null if no block fits
    occupancy_limit: what limits it: ``blocks``, ``registers``, ``shared memory``, ``threads``
    assembly_ms: how long ptxas took for the kernel, in milliseconds, as it says itself; null if it
        does not
    """

    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    shared_bytes: int | None
    blocks: int
    threads_per_block: int
    occupancy: float | None
    occupancy_limit: str | None
    assembly_ms: float | None = None

    @property
    def spill_bytes(self) -> int:
        """Return the bytes that all threads of a launch store and load again."""
        of_thread = self.spill_store_bytes + self.spill_load_bytes
        return of_thread * self.blocks * self.threads_per_block


@dataclass(frozen=True, slots=True)
class KernelMeasurement:
    """What a trace shows of a kernel in one run of its module: quartiles of microseconds over all
    runs, the launches of the median run, and the microseconds that the model expects of these.

    low_us: the lower quartile of the runs
    high_us: the upper quartile
    launches: events of a run in the trace, the median; some launches have several
    expected_us: what the model expects of a run, times ``measured.scale``; null if it has no time
    is_off: whether the model is wrong by more than a factor of two, by at least a hundredth of all
        measured time
    """

    low_us: float
    high_us: float
    launches: int
    expected_us: float | None
    is_off: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFacts(Shown):
    """One kernel of the final module; bytes of one of its ``runs`` in a run of the program.

    ``model`` (the compiler's own), ``floor`` (the least that a GPU or TPU needs) or ``nominal``
    (those of a nominal CPU).

    name: the instruction of the final stage that is launched
    kind: ``fusion`` (at least two operations), ``wrapped`` (one operation that was wrapped in a
        fusion to be emitted), ``library``, ``custom-call``, ``operation`` (unfused), ``function``
        (a loop that a CPU runs as one function)
    emitter: who makes the code: a fusion kind, a backend's own kind of fusion, a library's function
    computation: the computation that launches it
    members: opcodes of what it computes, without constants, tuples and bitcasts
    bytes_read: bytes that one launch reads, each element once; of an operand that is only looked at
        in part, the part (how bytes are counted)
    bytes_written: bytes that one launch writes; of a buffer that is updated in place, the update
    runs: how often it runs in a run: the trip counts of the loops around it, multiplied
    runs_known: false inside a loop whose trip count the compiler does not know, and inside a branch
    launches: the same, and 0 inside a ``function``, which is launched as a whole
    op_name: the framework's name of the operation
    source: the user's line, as ``file:line``
    time_ns: estimated nanoseconds of one launch, with the overhead of a launch; null if nothing is
        known of the device
    time_source: what that comes from: ``model`` (the compiler's own model), ``floor`` (the least
        that a GPU takes: a launch, and its bytes at the memory bandwidth or its flops at the peak
        rate; on a TPU what passes through HBM), ``nominal`` (such a floor for a nominal CPU)
    resources: what it takes of an NVIDIA GPU (``--show resources``, registers and
        spills); null if it was not requested or is unknown
    measured_us: measured microseconds of all launches in a run (``--profile``, measured
        times), the median of the runs; null if the trace does not have the kernel
    measurement: more on that; null with it
    at_best_us: least microseconds that all runs can take; null unless a GPU or TPU is known
    limited_by: what takes over half of the time: ``launches``, ``memory`` (reading and writing),
        ``compute``, ``library`` (calls of libraries), ``unexplained`` (kernels of a TPU of which
        neither bytes nor products explain half), ``mixed`` (none of these); null unless a GPU or
        TPU is known
    """

    name: str
    kind: str
    emitter: str
    computation: str
    members: tuple[str, ...]
    bytes_read: int
    bytes_written: int
    runs: int
    runs_known: bool
    launches: int
    op_name: str | None = None
    source: str | None
    time_ns: float | None = None
    time_source: TimeSource | None = None
    resources: KernelResources | None = None
    measured_us: float | None = None
    measurement: KernelMeasurement | None = None
    at_best_us: float | None = None
    limited_by: Limit | None = None

    @property
    def bytes_moved(self) -> int:
        return (self.bytes_read + self.bytes_written) * self.runs

    @property
    def spill_bytes(self) -> int | None:
        """Return the bytes that all runs spill, None if that is unknown."""
        return None if self.resources is None else self.resources.spill_bytes * self.runs

    @property
    def time_us(self) -> float:
        """Return the time over all runs, measured if there is a trace; 0 if none is known."""
        if self.measured_us is not None:
            return self.measured_us
        return (self.time_ns or 0.0) * self.runs / 1_000

    @property
    def bandwidth(self) -> float | None:
        """Return the measured bytes per microsecond, None if nothing was measured."""
        if not self.measured_us or self.measurement is None or not self.bytes_moved:
            return None
        launches = self.runs if self.runs_known else self.measurement.launches
        return (self.bytes_read + self.bytes_written) * launches / self.measured_us


@dataclass(frozen=True, slots=True)
class AlikeKernels:
    """Kernels of one form (the layers of a model): same kind, emitter, operations, bytes and line.
    ``bytes_moved`` is the sum over all ``count``."""

    example: KernelFacts
    count: int
    bytes_moved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedByLaterPass:
    """The refusal of one pass for a pair that a later one, ``by``, fused. The other fields are as
    in ``PairFacts``.
    """

    reason: str
    message: str | None
    evidence: str | None
    by: str
    title: str | None = None
    numbers: tuple[tuple[str, int | str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCost:
    """One kernel in the compiler's estimate: times, bytes, and launch dimensions.

    name: which of the three
    total_us: without its launch; less than the sum of its parts, which overlap
    compute_us: time to compute
    read_us: time to read
    write_us: time to write
    bytes_read: bytes read, those read again counted again
    bytes_written: bytes written
    blocks: blocks that it is launched with
    threads: threads of each
    """

    name: str
    total_us: float
    compute_us: float
    read_us: float
    write_us: float
    bytes_read: int
    bytes_written: int
    blocks: int
    threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerCost:
    """The time of a consumer without the producer in it and with it, including its launch.

    name: the consumer, by what it computes in the end; null for the rest
    consumers: how many consumers it represents
    unfused_us: its kernel as it is, with its launch
    fused_us: its kernel with the producer in it, with its launch
    share: its part of what all consumers take longer with the producer in them; they add up to 1,
        and one below 0 gets faster
    """

    name: str | None
    consumers: int
    unfused_us: float
    fused_us: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CostFacts:
    """The times of a producer and all its ``consumers``, unfused and fused.

    consumers: number of consumers of the producer, into all of which it would be fused
    unfused_us: all kernels as they are, launches included
    fused_us: all kernels with the producer in each consumer
    benefit_us: what the compiler expected of the fusion, below 0; it may be older than the two
        times
    launch_us: what each launch takes of these times
    producer_us: the producer's own kernel, with its launch
    near_tie: whether the benefit is at most 5% of the time as it is
    shares: the consumers, those first into which fusing the producer costs most: up to five, that
        of the pair, and the rest together. With ``producer_us`` they add up to ``unfused_us`` and
        ``fused_us``
    kernels: the producer alone, the consumer that costs most alone, and the two in one kernel
    """

    consumers: int
    unfused_us: float
    fused_us: float
    benefit_us: float
    launch_us: float
    producer_us: float
    near_tie: bool
    shares: tuple[ConsumerCost, ...]
    kernels: tuple[KernelCost, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFacts(Shown):
    """A producer and one of its consumers before fusion, and their outcome.

    ``outcome`` is fused, duplicated, not-fused or gone. ``kernel`` is the kernel that computes
    both, ``stage`` the first stage in which they share a kernel. ``reason`` is a rule id or
    ``unknown``, None if no reason is needed. ``evidence`` is its source: ``recorded`` (the
    compiler, with its ``message``), ``re-evaluated`` (a replay of its rules, based on
    ``numbers``), ``agree`` (both), ``disagree`` (both, and the replay's rule is ``otherwise``),
    ``guess`` (a replay of rules that may not be the compiler's).
    ``bytes_saved`` is the number of bytes, over all runs, that need not pass through memory if the
    pair shares a kernel: saved, or for ``not-fused`` not saved.
    ``cost`` is the cost comparison if the reason is that fusion would take longer.
    ``fused_by_later_pass`` is the refusal of a pass before the one that fused the pair.
    ``decided_by`` is the pass whose decision the reason is, None for the main fusion pass.
    """

    producer: Operation
    consumer: Operation
    computation: str
    outcome: str
    kernel: str | None
    stage: str | None
    reason: str | None
    message: str | None
    evidence: str | None
    bytes_saved: int
    title: str | None = None
    numbers: tuple[tuple[str, int | str], ...] = ()
    otherwise: str | None = None
    cost: CostFacts | None = None
    fused_by_later_pass: FusedByLaterPass | None = None
    decided_by: str | None = None


@dataclass(frozen=True, slots=True)
class Refusals:
    """Pairs that look alike (the layers of a model) and that a pass refused: same opcodes and
    shapes, same lines, same reason.

    ``example`` is the costliest, ``bytes_saved`` the sum over all ``count``.
    """

    example: PairFacts
    count: int
    bytes_saved: int


class ReasonFacts(Facts, frozen=True):
    """The pairs that one rule refused.

    title: what the rule says, in a few words
    pairs: pairs that it refused
    bytes_saved: bytes that they would have saved
    """

    title: str
    pairs: int
    bytes_saved: int


class KindFacts(Facts, frozen=True):
    """Kernels of one kind.

    kernels: kernels of this kind (see ``kernels[].kind``)
    launches: how often a run launches them
    bytes_moved: what they read and write in a run
    """

    kernels: int
    launches: int
    bytes_moved: int


class Summary(Facts, frozen=True, kw_only=True):
    """Totals of all kernels and pairs, regardless of the selection.

    launches_before: kernels that a run would launch if nothing were fused: the stage before fusion
    launches: kernels that a run launches: the final stage
    bytes_before: bytes that a run would read and write if nothing were fused
    bytes_moved: bytes that a run reads and writes
    exact: false if a loop has a data-dependent trip count, or a branch may not run (see ``loops``)
    time_before: estimated time of a run if nothing were fused; null if nothing is known of the
        device
    time: the same of the final stage
    at_best_us: least microseconds of one kernel that does all of that (see ``modules[].headroom``
        and, for a CPU, ``modules[].run``); null unless a GPU or TPU is known, or a CPU was
        measured
    at_best_from: ``model``, or ``measured`` bandwidth; null with it
    limited_by: what takes over half of the time: ``launches``, ``memory`` (reading and writing),
        ``compute``, ``library`` (calls of libraries), ``unexplained`` (kernels of a TPU of which
        neither bytes nor products explain half), ``mixed`` (none of these); null with it
    branches: conditionals of the final stage, each branch of which counts once
    kinds: kernels by kind, those that move most first
    outcomes: pairs with this outcome (see ``pairs[].outcome``)
    reasons: pairs by the rule that refused them, the costliest first
    """

    launches_before: int
    launches: int
    bytes_before: int
    bytes_moved: int
    exact: bool
    time_before: TimeEstimate | None = None
    time: TimeEstimate | None = None
    at_best_us: float | None = None
    at_best_from: BoundSource | None = None
    limited_by: Limit | None = None
    branches: int
    kinds: dict[str, KindFacts]
    outcomes: dict[str, int]
    reasons: dict[str, ReasonFacts]


@dataclass(frozen=True, slots=True)
class Alike:
    """The kernels and the refused pairs of a module, those that look alike once, the costliest
    first. The refusals in ``fused_by_later_pass`` are those before the pass that fused the pair.
    """

    kernels: tuple[AlikeKernels, ...]
    refusals: tuple[Refusals, ...]
    fused_by_later_pass: tuple[Refusals, ...]


class Stages(Facts, frozen=True):
    """The two stages that are compared.

    pre_fusion: label of the stage that pairs are taken from; null if only one stage was dumped
    final: label of the stage that kernels are taken from
    """

    pre_fusion: str | None
    final: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedPair:
    """A pair that changed rules fuse or keep apart, and the rule that refuses it in the case in
    which it is not fused (None if unknown).

    producer: name of the instruction before the fusion passes
    consumer: the same
    before: the outcome by the rules as they are
    after: the outcome by the changed rules
    rule: the rule that keeps the two apart in one of the cases; null if unknown
    bytes_between: bytes that need not pass through memory if both share a kernel, for one run of it
    follows: the requested pair that caused this change; null if this pair was requested itself, or
        nothing shows the cause
    """

    producer: str
    consumer: str
    before: str
    after: str
    rule: str | None
    bytes_between: int
    follows: str | None = None


@dataclass(frozen=True, slots=True)
class ChangedKernel:
    """A kernel that only one of two modules has: launches, bytes and estimated microseconds of a
    run, None if no time is known.

    name: name of the kernel
    launches: launches in a run
    bytes_moved: bytes that these read and write
    time_us: estimated microseconds of a run; null if nothing is known of the device
    """

    name: str
    launches: int
    bytes_moved: int
    time_us: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """The effect of ``changes`` of the rules, or of another GPU.

    ``before`` and ``after`` are a run of the module right after the fusion passes, without and with
    the changes, both replayed. ``final`` is the final module, and the result if the later passes do
    the same as they did (None for another GPU, or if it was not dumped). ``gone`` are the kernels
    that only the first has, ``made`` those that only the second has. ``is_guess`` is whether the
    unchanged rules may not be those of the compiler that made the dump. ``peak`` is that of memory
    in the final module without the changes, and an estimate with them; None if it is unknown.
    """

    changes: str
    before: Figures
    after: Figures
    final: tuple[Figures, Figures] | None
    gone: tuple[ChangedKernel, ...]
    made: tuple[ChangedKernel, ...]
    pairs: tuple[ChangedPair, ...]
    notes: tuple[str, ...]
    is_guess: bool = False
    peak: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class KernelInput:
    """An operand of a kernel, and the number of its bytes that the kernel reads.

    name: an instruction that it reads
    opcode: its opcode
    shape: its shape
    bytes_read: bytes that a launch reads of it
    """

    name: str
    opcode: str
    shape: str
    bytes_read: int


@dataclass(frozen=True, slots=True)
class KernelOutput:
    """An array that a kernel writes, and the names of its readers.

    shape: an array that it writes
    readers: instructions that read it; ``the caller`` of the program
    """

    shape: str
    readers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelPage(Shown):
    """One kernel by itself.

    ``hlo`` are the lines of what it computes, ``sources`` the lines of the program. ``began`` are
    the refused pairs whose consumer is in it, ``ended`` those whose producer is in it, the
    costliest first.
    """

    kernel: KernelFacts
    inputs: tuple[KernelInput, ...]
    outputs: tuple[KernelOutput, ...]
    hlo: tuple[str, ...]
    sources: tuple[str, ...]
    began: tuple[PairFacts, ...]
    ended: tuple[PairFacts, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopRow:
    """A loop of the final module: the ``steps`` of its body and the ``tests`` of its condition in
    one run of the loop, and ``runs`` of it in a run of the program.

    name: the name, as ``--steps`` takes it
    steps: how often one run of the loop runs its body, as far as it is counted
    length: what is known of that: ``known``, ``at most`` (the condition bounds it), ``unknown``
        (counts as one), ``given`` (by ``--steps``)
    tests: how often one run of the loop runs its condition (launches)
    runs: how often a run of the module runs the loop
    is_function: whether it is one function, and so one launch
    source: the user's line, as ``file:line``
    """

    name: str
    steps: int
    length: Length
    tests: int
    runs: int
    is_function: bool
    source: str | None


@dataclass(frozen=True, slots=True)
class GraphLaunches:
    """How often the host launches a CUDA graph in a run, and the launches that are in them.

    graphs: how often the host launches one in a run
    launches: launches of the module that are in them
    """

    graphs: int
    launches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleFacts(Shown):
    """Everything that ``explain`` knows about one module.

    ``arguments`` are the shapes of the parameters of the program as the compiler received it,
    without layouts, each with its sharding if it has one. ``pairs`` are the selected ones. Lists
    start with the costliest. ``notes`` list what could not be found or read. ``rules`` are those
    that gave reasons, None if no pass was replayed. ``near`` are names, or pairs, near to the
    requested ones, if those select nothing. ``findings`` has what each finding computed, by name.
    """

    number: int
    name: str
    backend: str | None
    device: str | None
    flags: tuple[str, ...]
    stages: Stages
    summary: Summary
    alike: Alike
    kernels: tuple[KernelFacts, ...]
    pairs: tuple[PairFacts, ...]
    notes: tuple[str, ...]
    what_if: WhatIf | None = None
    arguments: tuple[str, ...] = ()
    rules: RulesUsed | None = None
    suggestions: Suggestions | None = None
    breakdown: Breakdown | None = None
    near: tuple[str, ...] = ()
    kernel_pages: tuple[KernelPage, ...] = ()
    loops: tuple[LoopRow, ...] = ()
    graphs: GraphLaunches | None = None
    findings: Findings = field(default_factory=dict)

    def find(self, kind: type[Kind]) -> Kind | None:
        """Return the finding of this kind, or None."""
        facts = self.findings.get(kind.finding)
        return facts if isinstance(facts, kind) else None

    def find_all(self, kind: type[Kind]) -> tuple[Kind, ...]:
        """Return the findings of this kind."""
        facts = self.findings.get(kind.finding)
        rows = facts if isinstance(facts, tuple) else ()
        return tuple(fact for fact in rows if isinstance(fact, kind))

    def with_finding(self, kind: type[Kind], facts: Kind | tuple[Kind, ...]) -> ModuleFacts:
        """Return a copy of these facts with one more finding."""
        return replace(self, findings={**self.findings, kind.finding: facts})

    @property
    def relation(self) -> str:
        """Return how a run compares with the summary: empty if they are exact, ``≤``, ``≥``, or
        ``≈`` if some of it counts too often and some too rarely.
        """
        if self.summary.exact:
            return ""
        lengths = {loop.length for loop in self.loops}
        if Length.UNKNOWN not in lengths:
            return "≤"
        return "≈" if self.summary.branches or Length.BOUND in lengths else "≥"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleRow:
    """The cost of one run of the final module of a dump.

    ``device`` is what it was compiled for, in words, empty if unknown. ``time_us`` is None if
    nothing is known of the device, ``refused_bytes`` if pairs were not examined. ``is_helper`` is
    whether JAX compiled it for a function of its own, such as ``jax.random.normal``, and not for a
    user's.
    """

    name: str
    number: int
    device: str
    launches: int
    bytes_moved: int
    time_us: float | None
    refused_bytes: int | None
    is_helper: bool


@dataclass(frozen=True, slots=True)
class Explanation(Shown):
    """The explanation of a dump.

    ``modules`` are explained, the user's before helpers of JAX, those for CPUs after those for
    other devices, the costliest first. ``table`` are all modules, in the same order, ``folded``
    those that were not explained, ``problems`` one line for each file that could not be read.
    """

    path: str
    modules: tuple[ModuleFacts, ...]
    folded: tuple[ModuleRow, ...]
    problems: tuple[str, ...]
    table: tuple[ModuleRow, ...] = ()
