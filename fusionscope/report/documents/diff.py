"""The JSON output of ``fusionscope diff``."""

from __future__ import annotations

from typing import Annotated

from fusionscope.compare.cost_changes import CostChanges
from fusionscope.compare.difference import FusionDifference, SideFacts
from fusionscope.compare.first_divergence import FirstDivergence
from fusionscope.compare.memory_difference import MemoryDifference
from fusionscope.compare.relation import Unrelated
from fusionscope.facts.result import Operation
from fusionscope.history.changes import EditKind
from fusionscope.history.outcomes import Outcome
from fusionscope.reasons.estimates import Estimate
from fusionscope.report.documents.form import At, Form


class Pair(Form):
    """A pair on one side.

    producer: the producer before fusion
    consumer: the consumer before fusion
    computation: the computation that both are in
    outcome: ``fused``, ``duplicated``, ``not-fused`` or ``gone``, as in ``pairs[].outcome`` of
        ``explain``
    kernel: the kernel that computes both; null unless fused or duplicated
    stage: label of the first stage in which they are in one kernel
    reason: id of the rule that refused the pair, or ``unknown``; null unless not fused
    message: the compiler's own words, with its numbers
    evidence: the source of the reason, as in ``pairs[].evidence`` of ``explain``
    bytes_saved: bytes, over all runs, that need not pass through memory if both are in one kernel
    """

    producer: Operation
    consumer: Operation
    computation: str
    outcome: Outcome
    kernel: str | None
    stage: str | None
    reason: str | None
    message: str | None
    evidence: str | None
    bytes_saved: int


class OutcomeChange(Form):
    """A pair that ended differently.

    before: the pair in BEFORE, the first of those that look alike
    after: the same in AFTER
    count: how many pairs look alike
    """

    before: Pair
    after: Pair
    count: int


class Edit(Form):
    """An edit of a single instruction.

    kind: ``updated``, ``moved`` (to another computation), ``inserted``, ``removed``, ``copied``
        (computed once more than before), ``merged`` (once less), ``different`` (the modules differ
        here, and no other edit covers it)
    before: the instruction on this side; null if it was inserted or removed
    after: the instruction on this side; null if it was inserted or removed
    fields: what was updated, ``opcode``, ``shape``, ``layout``, ``literal``, ``operands``, ``root``
        (another instruction gives the result), ``text`` (of what is ``different``) or an attribute:
        the text on each side, empty if there is none
    step: what matched the two, as in ``matched.steps``; null unless updated or moved
    count: how many edits look alike
    """

    kind: EditKind
    before: Operation | None
    after: Operation | None
    fields: dict[str, list[str]]
    step: str | None
    count: int


class Decision(Form):
    """The decision of one side: on the producer, or on it and one consumer.

    producer: the producer that was decided on
    consumer: the consumer, if the pass decides about each; null if it decides about all of them at
        once
    is_fused: whether it was fused
    consumers: what it was fused into
    message: why it was not fused, in the compiler's words; empty if it was
    estimate: what the compiler expected; null if the record has no figures
    """

    producer: Annotated[str, At("0.0")]
    consumer: Annotated[str | None, At(lambda side: side[0][1] if len(side[0]) > 1 else None)]
    is_fused: Annotated[bool, At("1.is_fused")]
    consumers: Annotated[list[str], At("1.consumers")]
    message: Annotated[str, At("1.message")]
    estimate: Annotated[Estimate | None, At("1.estimate")]


class DecisionChange(Form):
    """The first recorded decision with a different result.

    before: the decision in BEFORE
    after: the decision in AFTER
    is_near_tie: whether one side expected to gain or lose at most 5%; null without figures
    is_first: whether it certainly is the first; false if an earlier fusion is of operations that
        may not be the same in both
    """

    before: Annotated[Decision, At(lambda change: (change.subject_before, change.before))]
    after: Annotated[Decision, At(lambda change: (change.subject_after, change.after))]
    is_near_tie: bool | None
    is_first: bool


class Matched(Form):
    """How the instructions of two modules were matched.

    steps: instructions that were matched by ``value`` (computes the same from the same), ``use``
        (all that is computed from it is the same), ``name``, ``metadata``, ``neighbours``,
        ``place`` (a fusion, parameter or tuple in the same place)
    certain: share, from 0 to 1, of the instructions of both sides that were matched by ``value``,
        ``use`` or ``place``
    """

    steps: dict[str, int]
    certain: Annotated[float, At(lambda module: round(module.certain, 4))]


class Module(Form):
    """A module that differs.

    before: the module in BEFORE
    after: the module in AFTER
    unrelated: why the comparison means little; empty if the modules are versions of one program for
        the same device
    costs: the lines or scopes of the program whose cost differs; null if none does, if most kernels
        come from no known place, or if the backends differ
    header: an attribute of the module that says how it is run (``input_output_alias``,
        ``num_partitions``, ``is_scheduled`` and so on) and differs: the text on each side
    flags: a compiler flag that differs between two dumps: the value on each side, empty if it is
        not set. Flags that control dumping are omitted. A flag alone makes no difference
    swapped: names of operations of AFTER that read the two operands of a commutative operation the
        other way round, which makes no difference
    outcomes: pairs that ended differently, the lost ones first; empty unless two whole dumps are
        compared
    fusions: changes of fusions, the worst first
    lost: names of the fusions that only BEFORE has
    gained: names of the fusions that only AFTER has
    changed: fusions of both sides that are not the same
    renamed: fusions of both sides that only have another name
    edits: edits of single instructions, the worst first
    incidental: edits that go with changes of fusions and are not in ``edits``
    first_divergence: where the two compilations diverge; null unless two whole dumps are
        compared
    decision: the first recorded decision that came out differently; null without such a one
    memory: what differs in memory; null if totals and peaks are equal, or unless two whole
        dumps that show both are compared
    matched: how the instructions of the two were matched
    notes: what could not be found or read, one line each
    """

    before: SideFacts
    after: SideFacts
    unrelated: list[Unrelated]
    costs: CostChanges | None
    header: dict[str, list[str]]
    flags: dict[str, list[str]]
    swapped: list[str]
    outcomes: list[OutcomeChange]
    fusions: list[FusionDifference]
    lost: list[str]
    gained: list[str]
    changed: int
    renamed: int
    edits: list[Edit]
    incidental: int
    first_divergence: FirstDivergence | None
    decision: DecisionChange | None
    memory: MemoryDifference | None
    matched: Annotated[Matched, At()]
    notes: list[str]


class Unchanged(Form):
    """A module that does not differ.

    module: the name of one of them
    flags: as in a module that differs
    swapped: as in a module that differs
    """

    module: str
    flags: dict[str, list[str]]
    swapped: list[str]


class Document(Form, tag_field="schema", tag="fusionscope.diff/1"):
    """``fusionscope diff BEFORE AFTER --format json``.

    before: BEFORE, as it was named on the command line
    after: AFTER, as it was named on the command line
    is_same: whether nothing differs, nothing is without counterpart and everything could be read:
        what ``--exit-code`` tells
    modules: modules that differ, the worst first
    same: names of the modules that do not differ
    unchanged: modules whose flags or operands differ without making a difference
    only_before: names of modules without counterpart in AFTER
    only_after: names of modules without counterpart in BEFORE
    problems: one line for each pair of modules that could not be compared, and for each file that
        could not be read; one on operations that no rule covers
    """

    before: str
    after: str
    is_same: bool
    modules: list[Module]
    same: Annotated[list[str], At("same.module")]
    unchanged: Annotated[list[Unchanged], At("same")]
    only_before: list[str]
    only_after: list[str]
    problems: Annotated[list[str], At(lambda found: (*found.problems, *found.notes))]
