"""Holds outcomes against what the compiler recorded, and against names.

Each of DUMPS is a dump, or a directory with dumps in it. Three checks, each independent of how
values are numbered, and one that needs no second opinion:

- The record of PriorityFusion (GPU). Taken on the module that the pass worked on, a pair is fused
  where the record has a step for it, and only there. Constants of one element are fused without a
  step, and bitcasts are no ends of pairs.
- Fusion Explorer records (all backends). The same, for each pass that makes such a record.
- Names and metadata (``by_names.py``), between the stage before fusion and the final
  one.
- Metadata changes nothing: the same stages without it give the same outcomes.

Prints every disagreement, then counts for each of DUMPS. Exits with 1 where there is one that is
not explained below.
"""

import os
import re
from argparse import ArgumentParser, Namespace
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from conformance.by_names import Judge
from conformance.findings import Finding, add_dumps, counted, problem, tally
from fusionscope.dump import DumpedModule, Stage, open_dump
from fusionscope.dump.fusion_explorer import Kind
from fusionscope.dump.priority_fusion import Fused, Ineligible
from fusionscope.errors import UnusableInput
from fusionscope.history import NumberedModule, Numbering, Outcome, Pair, find_pairs
from fusionscope.hlo import Instruction, Module, parse

JOINED = (Outcome.FUSED, Outcome.DUPLICATED)
_METADATA = re.compile(
    r', metadata=\{(?:[^{}"]|"(?:[^"\\]|\\.)*")*\}'
    r"|^(?:FileNames|FunctionNames|FileLocations|StackFrames)\n(?:\d+ .*\n)*",
    re.MULTILINE,
)


class Steps:
    """Recorded fusions, brought back to the instructions that there were before the pass.

    A fusion that the pass makes keeps the place of the consumer that it grew from, and holds what
    its producer and its consumer held.
    """

    def __init__(self) -> None:
        self._slots: dict[str, str] = {}
        self._members: dict[str, frozenset[str]] = {}
        self.steps: list[tuple[str, frozenset[str]]] = []  # what was fused, into which of these

    def slot(self, name: str) -> str:
        return self._slots.get(name, name)

    def members(self, name: str) -> frozenset[str]:
        return self._members.get(name, frozenset([name]))

    def add(self, producer: str, consumer: str, fusion: str) -> None:
        members = self.members(consumer)
        self.steps.append((self.slot(producer), members))
        slot, members = self.slot(consumer), members | self.members(producer)
        self._slots[fusion], self._members[fusion] = slot, members


def without_metadata(text: str) -> str:
    """The text of a module without metadata and the tables to which it refers."""
    return _METADATA.sub("", text)


def numbered(
    module: DumpedModule,
    numbering: Numbering,
    after: Stage,
    read: Callable[[Stage], Module] | None = None,
) -> Iterator[tuple[Stage, NumberedModule]]:
    """The stages from ``after`` to the final one."""
    read = read or module.read
    final = module.final
    for stage in module.stages[module.stages.index(after) :]:
        if stage is final or (stage.name.counter is not None and stage.text is not None):
            yield stage, numbering.number(read(stage))
        if stage is final:
            break


def is_small_constant(instruction: Instruction) -> bool:
    return instruction.opcode == "constant" and instruction.shape.element_count <= 1


def outcomes(pairs: Iterable[Pair]) -> dict[tuple[str, str], list[Outcome]]:
    outcomes_by_pair: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for pair in pairs:
        outcomes_by_pair[pair.producer.name, pair.consumer.name].append(pair.outcome)
    return outcomes_by_pair


def readers(stage: NumberedModule, producer: str, members: frozenset[str]) -> set[tuple[str, str]]:
    """Pairs of ``producer`` with those of ``members`` that read it, also where bitcasts that are
    members themselves stand between."""
    pairs_read: set[tuple[str, str]] = set()
    for execution in stage.executions:
        values_of_producer = [i for i in execution.values if i.name == producer]
        pending = [user for instruction in values_of_producer for user in instruction.users]
        while pending:
            user = pending.pop()
            if user.name not in members and user.opcode != "get-tuple-element":
                continue
            if user.opcode in ("bitcast", "get-tuple-element", "reshape"):
                pending += user.users
            pairs_read.add((producer, user.name))
    return pairs_read


def check_record(module: DumpedModule, counts: Counter[str]) -> Iterator[str]:
    """PriorityFusion's own record."""
    record = module.priority_fusion
    if record is None:
        return
    after = next((s for s in module.stages if s.name.after == "priority-fusion"), None)
    recorded = Steps()
    last: dict[str, object] = {}
    for step in record.steps:
        if isinstance(step, Fused):
            recorded.add(step.producer, step.consumer, step.fusion)
        last[recorded.slot(step.producer)] = step
    if after is None:
        if recorded.steps:
            yield "record: it has fusions, but no stage is called after_priority-fusion"
        return
    numbering = Numbering()
    first = numbering.number(parse(record.module_before_fusion()))
    stages = [(stage.label, n) for stage, n in numbered(module, numbering, after)]
    at_once = find_pairs(first, stages[:1])
    final = outcomes(find_pairs(first, stages)) if module.final else {}
    ends = outcomes(at_once)
    covered: set[tuple[str, str]] = set()
    for producer, members in recorded.steps:
        concerned = readers(first, producer, members) & ends.keys()
        covered |= concerned
        if not concerned:
            counts["record: steps without a pair (bitcasts)"] += 1
            continue
        wrong = [pair for pair in concerned if not set(ends[pair]) & set(JOINED)]
        counts["record: steps agree" if not wrong else "record: steps DISAGREE"] += 1
        for pair in wrong:
            yield f"record: {' -> '.join(pair)} was fused, told {ends[pair]}"
        for pair in concerned:
            if set(final.get(pair, JOINED)).isdisjoint((*JOINED, Outcome.GONE)):
                counts["record: fused, later taken apart"] += 1
    for pair in at_once:
        name = pair.producer.name, pair.consumer.name
        if is_small_constant(pair.producer) or name in covered:
            continue
        # The pass removes nothing that a refused pair needs.
        wrong = pair.outcome is not Outcome.NOT_FUSED
        counts["record: other pairs DISAGREE" if wrong else "record: other pairs agree"] += 1
        if wrong:
            yield f"record: {' -> '.join(name)} has no step, told {pair.outcome.value}"
        if isinstance(last.get(pair.producer.name), Ineligible):
            counts["record: of these, producer ineligible to the end"] += 1


def check_explorer(module: DumpedModule, counts: Counter[str]) -> Iterator[str]:
    """Fusion Explorer records: every backend."""
    recorded = Steps()
    passes: set[str] = set()
    for record in module.fusion_explorer:
        about: tuple[str, str] | None = None
        for decision in record.decisions:
            producer, consumer = decision.producer, decision.consumer
            if decision.kind in (Kind.ABOUT_TO_FUSE, Kind.ABOUT_TO_FUSE_MULTI_OUTPUT):
                about = (producer or "", consumer or "")
            elif decision.kind is Kind.ABOUT_TO_FUSE_SIBLINGS:
                about = None
            elif decision.kind is Kind.FUSED and about and consumer:
                passes.add(decision.pass_name or "")
                recorded.add(*about, consumer)
                about = None
    if not recorded.steps:
        return
    name = {"cpu": "fusion", "gpu": "priority-fusion", "tpu": "tpu_fusion"}[module.backend or ""]
    if name == "priority-fusion" and "InstructionFusion" in passes:
        name = "fusion"  # of an older compiler
    after = next((s for s in module.stages if s.name.after == name), None)
    if after is None:
        yield f"explorer: fusions are recorded, but no stage is called after_{name}"
        return
    before = module.stages[module.stages.index(after) - 1]
    numbering = Numbering()
    first = numbering.number(module.read(before))
    stages = [(stage.label, n) for stage, n in numbered(module, numbering, after)]
    at_once = find_pairs(first, stages[:1])
    ends = outcomes([*at_once, *find_pairs(first, stages)])
    covered: set[tuple[str, str]] = set()
    for producer, members in recorded.steps:
        concerned = readers(first, producer, members) & ends.keys()
        covered |= concerned
        if not concerned:
            counts["explorer: steps without a pair"] += 1
            continue
        wrong = [pair for pair in concerned if not set(ends[pair]) & set(JOINED)]
        counts["explorer: steps agree" if not wrong else "explorer: steps DISAGREE"] += 1
        for pair in wrong:
            yield f"explorer: {' -> '.join(pair)} was fused, told {ends[pair]}"
    for pair in at_once:
        name = pair.producer.name, pair.consumer.name
        if name not in covered and not is_small_constant(pair.producer):
            joined = pair.outcome in JOINED
            counts[f"explorer: other pairs {'DISAGREE' if joined else 'agree'}"] += 1
            if joined:
                yield f"explorer: {' -> '.join(name)} has no step, told {pair.outcome.value}"


def pairs_of(
    module: DumpedModule, read: Callable[[Stage], Module] | None = None
) -> tuple[Pair, ...]:
    """The pairs of the stage before fusion; none if this or the final stage is missing."""
    before, final = module.pre_fusion, module.final
    if before is None or final is None or not (before.text and final.text):
        return ()
    numbering = Numbering()
    first = numbering.number((read or module.read)(before))
    after = module.stages[module.stages.index(before) + 1]
    stages = [(stage.label, n) for stage, n in numbered(module, numbering, after, read)]
    passes = {stage.label for stage in module.fusion_stages} | {final.label}
    return find_pairs(first, [stage for stage in stages if stage[0] in passes])


def check_metadata(module: DumpedModule, counts: Counter[str]) -> Iterator[str]:
    """The same stages without metadata."""

    def read(stage: Stage) -> Module:
        assert stage.text is not None
        return parse(without_metadata(stage.text.text()))

    for pair, plain in zip(pairs_of(module), pairs_of(module, read), strict=True):
        same = pair.outcome is plain.outcome
        counts["metadata: agree" if same else "metadata: DISAGREE"] += 1
        if not same:
            yield (
                f"metadata: {pair.producer!r} -> {pair.consumer!r} told {pair.outcome.value}, "
                f"without it {plain.outcome.value}"
            )


def check_names(module: DumpedModule, counts: Counter[str]) -> Iterator[str]:
    """Names and metadata, before fusion and in the end."""
    pairs = pairs_of(module)
    before, final = module.pre_fusion, module.final
    if not pairs or before is None or final is None or not (before.text and final.text):
        counts["names: modules without both stages"] += 1
        return
    judge = Judge(before.text.text(), final.text.text())
    verdicts = judge.verdicts(
        (pair.producer.computation.name, pair.producer.name, pair.consumer.name) for pair in pairs
    )
    for pair, verdict in zip(pairs, verdicts, strict=True):
        counts[f"pairs: {pair.outcome.value}"] += 1
        outcome = "together" if pair.outcome in JOINED else "apart"
        if verdict == "lost" or pair.outcome is Outcome.GONE:
            gone = "gone" if pair.outcome is Outcome.GONE else "known"
            counts[f"names: told {gone}, names {verdict}"] += 1
        elif verdict == "unclear":
            counts["names: unclear"] += 1
        else:
            counts["names: agree" if verdict == outcome else "names: DISAGREE"] += 1
        if verdict in ("together", "apart") and verdict != outcome:
            if pair.outcome is Outcome.GONE:
                counts["names: DISAGREE"] += verdict == "together"
            yield (
                f"names: {pair.producer!r} -> {pair.consumer!r} {verdict}, "
                f"told {pair.outcome.value} {pair.kernel.name if pair.kernel else ''}"
            )


CHECKS = (check_record, check_explorer, check_names, check_metadata)


def dumps(root: Path) -> Iterator[Path]:
    """Every directory that holds files of a dump itself, but none inside another."""
    for directory, folders, files in os.walk(root):
        folders.sort()
        if any("module_" in file for file in files):
            folders.clear()
            yield Path(directory)


def add_options(parser: ArgumentParser) -> None:
    add_dumps(parser)


def findings(options: Namespace) -> Iterator[Finding]:
    counts: Counter[str] = Counter()
    for directory in (dump for root in options.dumps for dump in dumps(root)):
        try:
            modules = open_dump(directory).modules
        except UnusableInput as error:
            yield counted("dumps not readable", f"{directory}: {error}")
            continue
        counts["modules"] += len(modules)
        for module in modules:
            for check in CHECKS:
                where = f"{directory} {module.number}"
                try:
                    for line in check(module, counts):
                        yield problem("disagreements", f"{where}: {line}")
                except UnusableInput as error:
                    yield counted("checks not possible", f"{where}: {check.__name__}: {error}")
    yield from tally(counts)
