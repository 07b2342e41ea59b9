"""The stages of a module, each linked to the next: how fusions form, pass by pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from fusionscope.dump import DumpedModule, Stage
from fusionscope.errors import UnusableInput
from fusionscope.grouping import Numbers, grouped
from fusionscope.history.changes import FusionChange, find_fusion_changes
from fusionscope.history.kernels import call_target, fusion_emitter, is_library
from fusionscope.history.matching import Matching, MatchTable, match
from fusionscope.history.operations import Operations
from fusionscope.history.successors import find_successors, sends_alike
from fusionscope.hlo import Computation, Instruction, Module
from fusionscope.hlo.model import Body, Statement
from fusionscope.progress import Progress, counted, silent


@dataclass(frozen=True, slots=True)
class _Known:
    """Facts about bodies, which stages share, by their identity: the fusions and library calls in
    one, and the contents of a fused one.
    """

    launches: dict[int, list[Statement]] = field(default_factory=dict)
    contents: dict[int, int] = field(default_factory=dict)
    numbers: Numbers = field(default_factory=Numbers)
    operations: Operations = field(default_factory=Operations)

    def launches_in(self, body: Body) -> list[Statement]:
        launches = self.launches.get(id(body))
        if launches is None:
            launches = [
                statement for statement in body.written if statement[3] in ("custom-call", "fusion")
            ]
            self.launches[id(body)] = launches
        return launches

    def launch(self, statement: Statement, by_name: Mapping[str, Body]) -> Hashable:
        """Return a key for a fusion or library call, apart from its name: its emitter and
        contents, or its target. ``by_name`` are the bodies of its module.
        """
        if statement.opcode != "fusion":
            return call_target(statement.attributes)
        inside: list[int] = []
        for name in statement.calls:
            body = by_name.get(name)
            if body is not None:
                number = self.contents.get(id(body))
                if number is None:
                    number = self.numbers[self._content(body)]
                    self.contents[id(body)] = number
                inside.append(number)
        return fusion_emitter(statement.attributes), tuple(inside)

    def _content(self, body: Body) -> Hashable:
        """Return a key of the operations of a fused computation, whatever their names."""
        graph, plain_shape = body.graph, self.operations.plain_shape
        operations = [
            (statement.opcode, plain_shape(statement.shape), statement.calls if body.calls else ())
            for statement in graph.statements
        ]
        return tuple(operations), graph.operands, graph.root


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Lineage:
    """The readable stages of a module. ``modules[i]`` is the module at ``stages[i]``. Links between
    stages are computed on demand. ``notes`` names the stages that cannot be read.
    """

    dumped: DumpedModule
    stages: tuple[Stage, ...]
    modules: tuple[Module, ...]
    notes: tuple[str, ...]
    _table: MatchTable = field(default_factory=MatchTable, repr=False)
    _matchings: dict[int, Matching] = field(default_factory=dict, repr=False)
    _changes: dict[int, tuple[FusionChange, ...]] = field(default_factory=dict, repr=False)
    _touched: dict[int, bool] = field(default_factory=dict, repr=False)
    _fusions: dict[int, dict[str, Instruction]] = field(default_factory=dict, repr=False)
    _launched: dict[int, dict[str, tuple[int, Hashable]]] = field(default_factory=dict, repr=False)
    _gone: dict[int, frozenset[Hashable]] = field(default_factory=dict, repr=False)
    _kept: dict[int, set[Hashable] | None] = field(default_factory=dict, repr=False)
    _traces: dict[int, _Trace] = field(default_factory=dict, repr=False)
    _known: _Known = field(default_factory=_Known, repr=False)
    _copies: dict[int, dict[Instruction, list[Instruction]]] = field(
        default_factory=dict, repr=False
    )
    _stands_for: dict[int, dict[Instruction, list[Instruction]]] = field(
        default_factory=dict, repr=False
    )
    _called: dict[int, frozenset[Computation]] = field(default_factory=dict, repr=False)
    _successors: dict[int, dict[Instruction, tuple[Instruction, ...]]] = field(
        default_factory=dict, repr=False
    )

    def matching(self, index: int) -> Matching:
        """Return the matching between stage ``index`` and the next."""
        matching = self._matchings.get(index)
        if matching is None:
            for cached_index in list(self._matchings):  # one at a time: they are large
                del self._matchings[cached_index]
                if cached_index != index + 1:
                    self._table.forget(self.modules[cached_index])
                if cached_index != index - 1:
                    self._table.forget(self.modules[cached_index + 1])
            module, next_one = self.modules[index], self.modules[index + 1]
            matching = self._matchings[index] = match(module, next_one, self._table)
        return matching

    def touches_fusions(self, index: int) -> bool:
        """Return whether a stage may change fusions or library calls of stage ``index``."""
        is_touched = self._touched.get(index)
        if is_touched is None:
            is_touched = self._touched[index] = self.modules[index].bodies != self.modules[
                index + 1
            ].bodies and self._trace(index) != self._trace(index + 1)
        return is_touched

    def _may_change_fusions(self, index: int) -> bool:
        """Return whether more than calls of other targets than libraries changes."""
        trace, next_trace = self._trace(index), self._trace(index + 1)
        return (
            trace.fusions != next_trace.fusions or trace.library_calls != next_trace.library_calls
        )

    def _trace(self, index: int) -> _Trace:
        """Return a key for the fusions and calls of a stage, independent of names."""
        trace = self._traces.get(index)
        if trace is None:
            trace = self._traces[index] = _trace(self.modules[index], self._known)
        return trace

    def changes(self, index: int) -> tuple[FusionChange, ...]:
        """Return the changes of fusions between stage ``index`` and the next."""
        changes = self._changes.get(index)
        if changes is None:
            changes = ()
            if self.touches_fusions(index) and self._may_change_fusions(index):
                changes = find_fusion_changes(self.matching(index), self.dumped.backend)
            self._changes[index] = changes
        return changes

    def earlier(self, index: int, instruction: Instruction) -> Instruction | None:
        """Return the predecessor in stage ``index`` of an instruction of stage ``index + 1``."""
        if not self.touches_fusions(index):
            same = self._same(instruction, index)
            if same is not None:
                return same
        matching = self.matching(index)
        return (
            matching.before.get(instruction)
            or matching.copies.get(instruction)
            or next(iter(self._predecessors(index, instruction)), None)
        )

    def unchanged(self, index: int, instruction: Instruction) -> Instruction | None:
        """Return what a fusion or library call of stage ``index + 1`` was in stage ``index``, if
        the texts show that nothing about it has changed. Stages are not matched for that.
        """
        number, launch = self._launches(index).get(instruction.name, (0, None))
        if launch is None or launch != self._launches(index + 1)[instruction.name][1]:
            return None
        if index not in self._gone:
            next_launches = self._launches(index + 1)
            gone = (
                launch
                for name, (_, launch) in self._launches(index).items()
                if name not in next_launches
            )
            self._gone[index] = frozenset(gone)
        if launch in self._gone[index]:  # it may have been merged into this one
            return None
        return self.modules[index].computations[number].instruction(instruction.name)

    def is_new(self, index: int, instruction: Instruction) -> bool:
        """Return whether a fusion of stage ``index + 1`` cannot stem from a fusion or library call
        of stage ``index``: the texts show that all of those are still there, and that none has its
        contents. Stages are not matched for that.
        """
        inside = (self._known.launches_in(callee.body) for callee in instruction.called)
        if instruction.opcode != "fusion" or any(inside):
            return False
        before, after = self._launches(index), self._launches(index + 1)
        if index not in self._kept:
            is_kept = all(
                name in after and after[name][1] == launch for name, (_, launch) in before.items()
            )
            self._kept[index] = {launch for _, launch in before.values()} if is_kept else None
        unchanged = self._kept[index]
        return unchanged is not None and after[instruction.name][1] not in unchanged

    def _launches(self, index: int) -> dict[str, tuple[int, Hashable]]:
        """Return keys of the fusions and library calls of a stage, with their places, by name."""
        launches = self._launched.get(index)
        if launches is None:
            module = self.modules[index]
            by_name = {body.name: body for body in module.bodies}
            launches = self._launched[index] = {
                statement.name: (number, self._known.launch(statement, by_name))
                for number, body in enumerate(module.bodies)
                for statement in self._known.launches_in(body)
            }
        return launches

    def successors(self, index: int) -> dict[Instruction, tuple[Instruction, ...]]:
        """Return the successors, in stage ``index + 1``, of instructions that it no longer has."""
        successors = self._successors.get(index)
        if successors is None:
            successors = self._successors[index] = find_successors(self.matching(index))
        return successors

    def _same(self, instruction: Instruction, index: int) -> Instruction | None:
        """Return the counterpart in stage ``index`` of an instruction of a neighbouring stage that
        has the same fusions and library calls, as far as the texts show.
        """
        if instruction.opcode not in ("custom-call", "fusion"):
            return _same_line(instruction, self.modules[index])
        if index not in self._fusions:
            self._fusions[index] = {
                instruction.name: instruction
                for computation in self.modules[index].computations
                for instruction, statement in zip(
                    computation.instructions, computation.graph.statements, strict=True
                )
                if statement.opcode in ("custom-call", "fusion")
            }
        same = self._fusions[index].get(instruction.name)
        return same if same is not None and same.opcode == instruction.opcode else None

    def later(self, index: int, instruction: Instruction) -> tuple[Instruction, ...]:
        """Return the successors in stage ``index + 1`` of an instruction of stage ``index``: itself
        and its copies, the instruction that it was merged with, or its successors. Empty if there
        are none.
        """
        if not self.touches_fusions(index):
            same = self._same(instruction, index + 1)
            if same is not None and self.is_called(index + 1, same.computation):
                return (same,)
        matching = self.matching(index)
        if index not in self._copies:
            copies = grouped((original, copy) for copy, original in matching.copies.items())
            self._copies[index] = copies
        candidates = [matching.after.get(instruction) or matching.merged.get(instruction)]
        candidates += self._copies[index].get(instruction, ())
        later = [successor for successor in candidates if successor is not None]
        # Instructions that nothing reads or calls any more are dead.
        live = [
            successor
            for successor in later
            if successor not in matching.idle and self.is_called(index + 1, successor.computation)
        ]
        return tuple(live) or self.successors(index).get(instruction) or tuple(later)

    def sent_along(
        self, index: int, instruction: Instruction, later: Instruction
    ) -> tuple[Instruction, ...]:
        """Return the other collectives of stage ``index`` that ``later`` also sends."""
        if not sends_alike(instruction, later):
            return ()
        sent = (self.matching(index).before.get(later), *self._predecessors(index, later))
        return tuple(
            receiver for receiver in sent if receiver is not None and receiver is not instruction
        )

    def _predecessors(self, index: int, successor: Instruction) -> list[Instruction]:
        """Return the instructions of stage ``index`` that ``successor`` replaces in the next."""
        if index not in self._stands_for:
            self._stands_for[index] = grouped(
                (after, before)
                for before, successors in self.successors(index).items()
                for after in successors
            )
        return self._stands_for[index].get(successor, [])

    def is_called(self, index: int, computation: Computation) -> bool:
        """Return whether a computation is reachable from the entry of stage ``index``."""
        reachable = self._called.get(index)
        if reachable is None:
            reachable = self._called[index] = frozenset(self.modules[index].reachable())
        return computation in reachable


def stages_in_order(dumped: DumpedModule) -> tuple[Stage, ...]:
    """Return the stages whose position is known: of the files that no pass wrote, only the first
    and the last.
    """
    return (
        tuple(
            stage
            for stage in dumped.stages
            if stage.name.counter is not None or stage in (dumped.stages[0], dumped.final)
        )
        or dumped.stages
    )


def skim_lineage(dumped: DumpedModule, *, progress: Progress = silent) -> Lineage:
    """Read the stages of a module, and check none before it is compared with the next. Most
    questions that go back from the end compare few.

    Raises ``UnusableInput`` if none can be read. So do the methods of the lineage where a stage
    contradicts itself, which ``read_lineage`` leaves out.
    """
    notes: list[str] = []
    readable: list[tuple[Stage, Module]] = []
    for stage in counted(stages_in_order(dumped), "reading stage", progress):
        try:
            readable.append((stage, dumped.read(stage)))
        except UnusableInput as error:
            notes.append(str(error))
    stages, modules = _readable(readable, notes)
    return Lineage(dumped=dumped, stages=stages, modules=modules, notes=tuple(notes))


def _readable(
    pairs: list[tuple[Stage, Module]], notes: list[str]
) -> tuple[tuple[Stage, ...], tuple[Module, ...]]:
    if not pairs:
        raise UnusableInput(notes[0] if len(notes) == 1 else f"no stage can be read: {notes[0]}")
    stages, modules = zip(*pairs, strict=True)
    return stages, modules


def read_lineage(
    dumped: DumpedModule, *, for_changes: bool = False, progress: Progress = silent
) -> Lineage:
    """Read the stages of a module. Raises ``UnusableInput`` if none can be read.

    ``for_changes`` promises to ask for ``changes`` only. Stages between which no fusion changes are
    not needed for that, and so not checked.
    """
    notes: list[str] = []
    stages_wanted = stages_in_order(dumped)
    facts = _Known()
    readable: list[tuple[Stage, Module, _Trace | None]] = []

    def drop_contradictions(trace: _Trace | None) -> None:
        """Drop the last stages that contradict themselves before a stage with this trace."""
        while readable and readable[-1][2] != trace:
            try:
                readable[-1][1].check()
                return
            except UnusableInput as error:
                notes.append(str(error))
                readable.pop()

    for stage in counted(stages_wanted, "reading stage", progress):
        try:
            module = dumped.read(stage)
            trace = _located_trace(module, facts) if for_changes else None
            if trace is None or not readable or trace != readable[-1][2]:
                module.check()
        except UnusableInput as error:
            notes.append(str(error))
            continue
        drop_contradictions(trace)
        readable.append((stage, module, trace))
    drop_contradictions(None)
    stages, modules = _readable([(stage, module) for stage, module, _ in readable], notes)
    return Lineage(
        dumped=dumped,
        stages=stages,
        modules=modules,
        notes=tuple(notes),
        _known=facts,
        _traces={n: trace for n, (_, _, trace) in enumerate(readable) if trace is not None},
    )


@dataclass(frozen=True, slots=True)
class _Trace:
    """The fusions of a stage, with emitters and contents, and how often it calls each target."""

    fusions: frozenset[Hashable]
    calls: Counter[Hashable]

    @property
    def library_calls(self) -> dict[Hashable, int]:
        return {target: n for target, n in self.calls.items() if is_library(str(target))}


def _located_trace(module: Module, facts: _Known) -> _Trace:
    """Return the trace. Raises ``UnusableInput`` with the place in the file, which a body does not
    know: stages share it.
    """
    try:
        return _trace(module, facts)
    except UnusableInput:
        module.check()
        raise


def _trace(module: Module, facts: _Known) -> _Trace:
    fusions: set[Hashable] = set()
    calls: Counter[Hashable] = Counter()
    by_name = {body.name: body for body in module.bodies}
    for body in module.bodies:
        for statement in facts.launches_in(body):
            launch = facts.launch(statement, by_name)
            if statement[3] == "fusion":
                fusions.add((statement.name, launch))
            else:
                calls[launch] += 1
    return _Trace(frozenset(fusions), calls)


def _same_line(instruction: Instruction, module: Module) -> Instruction | None:
    """Return the instruction that has the same line in the computation of the same name."""
    computation = module.by_name.get(instruction.computation.name)
    if computation is None:
        return None
    if computation.body is instruction.computation.body:
        return computation.instructions[instruction.index]
    try:
        counterpart = computation.instruction(instruction.name)
    except KeyError:
        return None
    if counterpart.statement != instruction.statement:
        return None
    bodies = [
        tuple(callee.body for callee in instruction_of.called)
        for instruction_of in (instruction, counterpart)
    ]
    return counterpart if bodies[0] == bodies[1] else None
