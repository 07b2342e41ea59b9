"""Which refused pairs a change settles: they are fused, or their value is no longer written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fusionscope.dump import DumpedModule, Stage
from fusionscope.history.outcomes import TOGETHER, Outcome, Pair, find_pairs
from fusionscope.history.values import NumberedModule, Numbering
from fusionscope.hlo import Instruction, Module

Names = tuple[str, str]
_Sizes = Mapping[str, Sequence[int]]


def settled_pairs(module: DumpedModule, dump: DumpedModule) -> frozenset[Names]:
    """Return the producers and consumers before fusion, by name, that ``dump``, the same program
    compiled with a flag or edited, fuses, or whose value it no longer writes.
    """
    assert module.final is not None
    pairs, last = _follow_made(module, dump)
    before = _written(Numbering().number(module.read(module.final), contents=False))
    gone: dict[str, list[int]] = defaultdict(list)
    for value in dict.fromkeys(pair.producer for pair in pairs if pair.outcome is Outcome.GONE):
        gone[_name(value)].append(value.shape.byte_size)
    changes = _Changes(before, _written(last), gone)
    return frozenset(
        _names(pair)
        for pair in pairs
        if pair.outcome in TOGETHER
        or (pair.outcome is Outcome.GONE and not changes.writes(pair.producer))
    )


def fused_by_plan(module: DumpedModule, dump: DumpedModule) -> frozenset[Names]:
    """Return the producers and consumers before fusion, by name, that ``dump``, the same program
    compiled with a plan, fuses. Kernels of a plan lack the framework's names, so they do not show
    which values are no longer written.
    """
    pairs, _ = _follow_made(module, dump)
    return frozenset(_names(pair) for pair in pairs if pair.outcome in TOGETHER)


def _follow_made(
    module: DumpedModule, dump: DumpedModule
) -> tuple[tuple[Pair, ...], NumberedModule]:
    assert dump.final is not None
    stages = list(_stages_from(module, dump))
    return _follow(module, map(dump.read, stages[:-1]), dump.read(stages[-1]))


def _follow(
    module: DumpedModule, between: Iterable[Module], after: Module
) -> tuple[tuple[Pair, ...], NumberedModule]:
    numbering = Numbering()
    first = numbering.number(module.read(module.pre_fusion or module.stages[0]))
    latest = first.module
    for stage in between:
        if stage.bodies != latest.bodies:
            numbering.number(stage, contents=False)
            latest = stage
    last = numbering.number(after)
    return find_pairs(first, [("after", last)]), last


def _stages_from(module: DumpedModule, dump: DumpedModule) -> Iterator[Stage]:
    """Yield the stages of ``dump`` from the one that corresponds to the stage of ``module`` before
    fusion. A flag may change earlier passes, so that no stage has the same name.
    """
    start = module.pre_fusion
    stages = [stage for stage in dump.stages if not stage.is_final or stage is dump.final]
    alike = [stage for stage in stages if start is not None and stage.label == start.label]
    same = [s for s in stages if start is not None and s.name.pipeline == start.name.pipeline]
    first = next(iter((*alike, *same)), dump.pre_fusion or stages[0])
    return iter(stages[stages.index(first) :])


@dataclass(frozen=True, slots=True)
class _Changes:
    """The sizes in bytes of the values that kernels write ``before`` and ``after`` a change, by
    name; ``gone`` are those of the values that it replaces.
    """

    before: _Sizes
    after: _Sizes
    gone: _Sizes

    def writes(self, value: Instruction) -> bool:
        """Return whether a kernel still writes a value that is gone, as far as names and sizes
        show: unless there are fewer values of its name that are at least as large, by as many as
        are gone, or none.
        """
        name, least = _name(value), value.shape.byte_size
        before, after, gone = (
            sum(size >= least for size in sizes.get(name, ()))
            for sizes in (self.before, self.after, self.gone)
        )
        return after > max(before - gone, 0)


def _written(numbered: NumberedModule) -> _Sizes:
    """Return the sizes of the values that kernels write, by the framework's names, and of
    everything that is computed, by opcode.
    """
    sizes: dict[str, list[int]] = defaultdict(list)
    for execution in numbered.executions:
        for instruction in execution.values:
            if instruction.op_name is not None:
                sizes[instruction.op_name].append(instruction.shape.byte_size)
    for instruction in numbered.module.walk():
        sizes[instruction.opcode].append(instruction.shape.byte_size)
    return sizes


def _name(value: Instruction) -> str:
    """Return the framework's name. Without one, only the kind of operation is known."""
    return value.op_name or value.opcode


def _names(pair: Pair) -> Names:
    return pair.producer.name, pair.consumer.name
