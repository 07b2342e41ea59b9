"""Finds what could be faster: work that no call needs, work of a loop that no step needs, loops of
short steps, and patterns of waste.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import fsum

from fusionscope.facts.limits import sum_of_limits
from fusionscope.facts.needed_bytes import Needs
from fusionscope.facts.result import Limit
from fusionscope.facts.source_lines import user_line
from fusionscope.findings.opportunities.facts import Opportunity, OpportunityKind
from fusionscope.findings.opportunities.patterns import LOOPS, PATTERNS, UNTIMED, WHOLE
from fusionscope.findings.opportunities.patterns.program import Match, Pattern, Program
from fusionscope.findings.opportunities.settled import Settled, settled_parameters
from fusionscope.history.kernels import Kernel
from fusionscope.history.loops import is_counted
from fusionscope.history.thunks import NOT_LAUNCHED
from fusionscope.hlo import Module
from fusionscope.words.text import first_names, plural

_LEAST = 0.01  # of the time of the module: what gains less is not listed
_MOVING = frozenset("broadcast copy dynamic-slice gather reshape reverse slice transpose".split())
_JOINING = frozenset({"concatenate", "pad"})
_FILLING = frozenset({"broadcast", "constant", "iota"})
_SMALL = 4_096  # bytes: a counter of a loop, not a table
_SEVERAL = 4  # times that an array is repeated
_FEW = 8  # kernels of a step, of which unrolling saves a part


@dataclass(slots=True)
class _Group:
    """Kernels of one kind of opportunity, those of them that would be ``needless``, the bytes that
    they move, and their time at best.
    """

    kernels: list[int] = field(default_factory=list)
    needless: set[int] = field(default_factory=set)
    parameters: dict[str, None] = field(default_factory=dict)
    bytes: float = 0.0
    time_us: float = 0.0
    at_best_us: float = 0.0
    in_loops: bool = False


def find_opportunities(needs: Needs, module: Module) -> tuple[Opportunity, ...]:
    """Return what could be faster, what gains most first."""
    total = fsum(limits.total for limits in needs.bounds.limits)
    groups = _settled(needs, module)
    needless = frozenset(number for group in groups.values() for number in group.needless)
    patterns = list(_patterns(Program(needs, module), needless))
    loops = {row.where for row in patterns if row.id in LOOPS}
    short = [row for row in _short_steps(needs) if row.where not in loops]
    settled = [_opportunity(*kind, group, needs) for kind, group in groups.items()]
    opportunities = [*settled, *_invariant(needs), *short, *patterns]
    opportunities.sort(key=lambda opportunity: opportunity.at_best_us - opportunity.time_us)
    return tuple(
        opportunity
        for opportunity in opportunities
        if opportunity.gain_us >= _LEAST * total or opportunity.id in UNTIMED
    )


def _patterns(program: Program, needless: frozenset[int]) -> Iterator[Opportunity]:
    """Yield the patterns of waste, each once for all that comes from one line, but for those in
    ``needless`` kernels alone.
    """
    for pattern in PATTERNS:
        by_line: dict[tuple[str, str | None], list[Match]] = defaultdict(list)
        for match in pattern.matches(program):
            if needless.issuperset(match.kernels):
                continue
            line = None if pattern.id in WHOLE else _source(program.needs, match.kernels[:1])
            by_line[match.where, line].append(match)
        for matches in by_line.values():
            yield _of_pattern(pattern, matches, program)


def _of_pattern(pattern: Pattern, matches: Sequence[Match], program: Program) -> Opportunity:
    matches = sorted(matches, key=lambda match: match.at_best_us - match.time_us)
    kernels = dict.fromkeys(kernel for match in matches for kernel in match.kernels)
    names = dict.fromkeys(program.kernels[kernel].name for kernel in kernels)
    where = matches[0].where or first_names(list(names))
    return Opportunity(
        id=pattern.id,
        what=pattern.title.format(where),
        where=where,
        source=_source(program.needs, [match.kernels[0] for match in matches]),
        time_us=fsum(match.time_us for match in matches),
        at_best_us=fsum(match.at_best_us for match in matches),
        bytes=round(fsum(match.bytes for match in matches)),
        parameters=(),
        advice=pattern.advice,
    )


def _settled(needs: Needs, module: Module) -> dict[tuple[OpportunityKind, str], _Group]:
    """Return what depends only on parameters that stay the same, by kind and type."""
    groups: dict[tuple[OpportunityKind, str], _Group] = defaultdict(_Group)
    parameters = settled_parameters(module, {loop.steps for loop in needs.handoffs.loops})
    if not parameters:
        return groups
    settled = Settled(needs, parameters, module)
    for number, kernel in enumerate(needs.kernels):
        if not kernel.runs:
            continue
        if settled.computes(number):
            names = settled.read_by(number)
            is_table = kernel.bytes_written >= _SMALL and not _fills(kernel)
            if (names or is_table) and not _repeats(kernel):
                _add(groups[_kind(kernel)], number, names, needs)
        else:
            _add_conversions(groups, number, settled, needs)
    return groups


def _work(kernel: Kernel) -> frozenset[str]:
    return frozenset(kernel.operations) - NOT_LAUNCHED


def _fills(kernel: Kernel) -> bool:
    """Return whether a kernel only fills arrays with constants or positions."""
    reads = kernel.instruction.operands
    return _work(kernel) <= (_FILLING if reads else _FILLING | _MOVING)


def _repeats(kernel: Kernel) -> bool:
    """Return whether a kernel only repeats what it reads: nobody would store that."""
    is_moving = _work(kernel) <= _MOVING and bool(kernel.instruction.operands)
    return is_moving and kernel.bytes_written > _SEVERAL * kernel.bytes_read


def _kind(kernel: Kernel) -> tuple[OpportunityKind, str]:
    """Return what a kernel does with parameters that stay the same, and the type of its result."""
    work = _work(kernel)
    shape = kernel.instruction.shape
    element_type = shape.element_type if shape.is_array else ""
    if "convert" in work and work <= _MOVING | _JOINING | {"convert"} and element_type:
        return OpportunityKind.CONVERTED, element_type
    if work <= _MOVING | _JOINING:
        return OpportunityKind.MOVED, ""
    return OpportunityKind.COMPUTED, ""


def _add(group: _Group, number: int, names: Sequence[str], needs: Needs) -> None:
    """Add a kernel that nothing would launch. What is converted in a loop is still copied there."""
    kernel = needs.kernels[number]
    group.kernels.append(number)
    group.parameters.update(dict.fromkeys(names))
    group.bytes += kernel.bytes_moved
    group.time_us += needs.bounds.limits[number].total
    if not {"convert", "dynamic-slice"} <= _work(kernel):
        group.needless.add(number)
    else:
        group.in_loops = True
        copied = 2 * kernel.bytes_written * kernel.runs
        copying = kernel.runs * needs.bounds.launch_us + copied / needs.bounds.bytes_per_us
        group.at_best_us += min(copying, needs.bounds.limits[number].total)
        group.bytes -= copied


def _add_conversions(
    groups: dict[tuple[OpportunityKind, str], _Group], number: int, settled: Settled, needs: Needs
) -> None:
    """Add the bytes of parameters that a kernel reads to convert them to a narrower type."""
    for operand, size, element_type in needs.too_wide(number):
        if settled.is_settled(operand) and (names := settled.names_of(operand)):
            group = groups[OpportunityKind.CONVERTED, element_type]
            group.kernels.append(number)
            group.parameters.update(dict.fromkeys(names))
            group.bytes += size
            group.time_us += size / needs.bounds.bytes_per_us


def _opportunity(
    kind: OpportunityKind, element_type: str, group: _Group, needs: Needs
) -> Opportunity:
    where = first_names(list(group.parameters)) if group.parameters else "tables and masks"
    return Opportunity(
        id=kind,
        what=_WORDS[kind].format(where),
        where=where,
        source=_source(needs, group.kernels),
        time_us=group.time_us,
        at_best_us=group.at_best_us,
        bytes=round(group.bytes),
        parameters=tuple(group.parameters),
        advice=_ADVICE[kind].format(type=element_type) + _UNROLL * group.in_loops,
    )


_WORDS = {
    OpportunityKind.CONVERTED: "converts {} on each call",
    OpportunityKind.MOVED: "moves {} on each call",
    OpportunityKind.COMPUTED: "computes what depends on {} alone on each call",
    OpportunityKind.INVARIANT: "computes the same in each step of {}",
}
_SHORT = "unroll the loop, or write a step as one kernel"
_ENDING = "some steps between tests of its end, or a step written as one kernel"
_LONG = "fewer and larger kernels in a step: more work at once, by batches, or one kernel for parts"
_UNROLL = "; what is left copies slices in a loop: unroll it"
_ADVICE = {
    OpportunityKind.CONVERTED: "store as {type}",
    OpportunityKind.MOVED: "store in the layout in which it is read",
    OpportunityKind.COMPUTED: "compute once, and pass the result",
    OpportunityKind.INVARIANT: "compute before the loop",
}


def _source(needs: Needs, kernels: Sequence[int]) -> str | None:
    """Return the line of the costliest kernel that has one."""
    costly = sorted(kernels, key=lambda kernel: -needs.bounds.limits[kernel].total)
    lines = (user_line(needs.kernels[kernel].instruction.stack) for kernel in costly)
    return next((str(line) for line in lines if line is not None), None)


def _invariant(needs: Needs) -> Iterator[Opportunity]:
    """Yield what a loop computes again in each step."""
    groups: dict[int, _Group] = defaultdict(_Group)
    handoffs = needs.handoffs
    for number, kernel in enumerate(needs.kernels):
        around, outputs = handoffs.around[number], handoffs.outputs[number]
        if not kernel.runs or not outputs or _fills(kernel):
            continue
        varying = frozenset().union(*(handoffs.places[place].loops for place in outputs))
        constant = around - varying
        if constant and kernel.bytes_written >= _SMALL:
            group = groups[min(constant)]
            group.kernels.append(number)
            group.bytes += kernel.bytes_moved
            time_us = needs.bounds.limits[number].total
            group.time_us += time_us
            group.at_best_us += time_us / max(handoffs.repetitions(constant), 1)
    for loop, group in groups.items():
        where = handoffs.loops[loop].loop.name
        yield Opportunity(
            id=OpportunityKind.INVARIANT,
            what=_WORDS[OpportunityKind.INVARIANT].format(where),
            where=where,
            source=_source(needs, group.kernels),
            time_us=group.time_us,
            at_best_us=group.at_best_us,
            bytes=round(group.bytes),
            parameters=(),
            advice=_ADVICE[OpportunityKind.INVARIANT],
        )


def _short_steps(needs: Needs) -> Iterator[Opportunity]:
    """Yield loops whose steps are too short for their launches."""
    runs = {loop.loop: loop.runs for loop in needs.handoffs.loops}
    for step in needs.steps:
        limits = sum_of_limits(needs.bounds.limits[kernel] for kernel in step.kernels)
        if limits is not None and limits.limited_by is Limit.LAUNCHES:
            source = user_line(step.loop.stack)
            launches = sum(needs.kernels[kernel].launches for kernel in step.kernels)
            count = round(launches / max(runs[step.loop], 1))
            yield Opportunity(
                id=OpportunityKind.SHORT_STEPS,
                what=f"{step.loop.name} starts {plural(count, 'kernel')} in each of its steps",
                where=step.loop.name,
                source=str(source) if source is not None else None,
                time_us=limits.total,
                at_best_us=step.by_step_us,
                bytes=round(step.state_bytes),
                parameters=(),
                advice=_LONG if count > _FEW else _SHORT if is_counted(step.loop) else _ENDING,
            )
