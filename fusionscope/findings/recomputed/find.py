"""Values that several kernels compute, the cost of that, and the cost of keeping them instead.

A fusion that duplicates its producer computes the value again instead of reading it. That is often
right: it saves a launch and the bytes of the value. So each value is priced both ways: with the
kernels as they are, and with one of them, or a launch of its own, writing the value and the others
reading it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from msgspec import structs

from fusionscope.facts.result import KernelFacts
from fusionscope.facts.source_lines import operation_of
from fusionscope.facts.times import clock_for
from fusionscope.findings.recomputed.facts import (
    KeptValues,
    Recomputation,
    RecomputedValue,
    RunCosts,
)
from fusionscope.findings.recomputed.materialized import Draft, Drafts, needed_for
from fusionscope.graph.work import count_work
from fusionscope.history.kernels import Kernel, kernel_of
from fusionscope.history.operations import TRANSPARENT, flatten
from fusionscope.history.traffic import traffic
from fusionscope.history.values import Execution, NumberedModule
from fusionscope.hlo import Instruction
from fusionscope.passes.context import GpuTarget
from fusionscope.system.memory import working_memory

# They only move elements, or change their representation.
_MOVES = frozenset(
    """bitcast bitcast-convert broadcast constant convert copy iota reshape reverse
    transpose""".split()
)
_NO_VALUE = TRANSPARENT | {"get-tuple-element", "parameter", "tuple"}
_REDUCTIONS = frozenset({"reduce", "reduce-window"})
_ATTRIBUTES = ("kind", "backend_config")  # attributes of a fusion that affect its emitter

# Limits of what is priced unless all is.
_MOST_VALUES = 100
_MOST_OPERATIONS = 20_000  # in drafts: kernels of a thousand operations may read one value

_Holders = dict[
    Instruction, list[Instruction]
]  # kernels, and the instructions that compute a value in each


@working_memory()
def find_recomputed(
    first: NumberedModule,
    last: NumberedModule,
    kernels: Sequence[tuple[Kernel, KernelFacts]],
    backend: str | None,
    gpu: GpuTarget | None,
    *,
    prices_all: bool,
) -> Recomputation:
    """Return the values that several of ``kernels``, those of the final stage ``last``, compute.

    ``first`` is the stage before fusion, ``gpu`` the device if it is known. Unless ``prices_all``,
    only the values that take most work are priced. Raises ``UnusableInput`` if ``last`` contradicts
    itself.
    """
    facts = {(kernel.path, kernel.instruction): facts for kernel, facts in kernels}
    before = {execution.path: _holders(execution) for execution in first.executions}
    all_duplicates = [_Duplicates(execution, facts) for execution in last.executions]
    last_values = [
        (duplicate, number) for duplicate in all_duplicates for number in duplicate.last_of_chains()
    ]
    last_values.sort(key=lambda value: -value[0].work(value[1]))
    drafts = Drafts()
    candidates: list[_Candidate] = []
    for duplicates, number in last_values:
        is_enough = len(candidates) >= _MOST_VALUES or drafts.operations >= _MOST_OPERATIONS
        if is_enough and not prices_all:
            break
        computed = before.get(duplicates.execution.path, {}).get(number, {})
        sources = tuple(duplicate for computing in computed.values() for duplicate in computing)
        candidate = _candidate(duplicates, number, drafts, backend, sources)
        candidates += [] if candidate is None else [candidate]
    measured = _Measured(drafts, backend, gpu)
    values = [_price(candidate, measured) for candidate in candidates]
    measured.release()
    worse = [value for value in values if value is not None]
    priced = [
        duplicate
        for duplicate in worse
        if duplicate.time_again_ns is not None or duplicate.bytes_again > 0
    ]
    saving = {
        candidate: value
        for candidate, value in zip(candidates, values, strict=True)
        if value is not None and value.saved_ns
    }
    return Recomputation(
        values=tuple(sorted(priced, key=_rank)),
        kept=_keep(saving, backend, gpu),
        free=sum(duplicate.free for duplicate in all_duplicates) + len(values) - len(worse),
        unpriced=len(last_values) - len(candidates) + len(worse) - len(priced),
    )


def _rank(value: RecomputedValue) -> tuple[float, float, int]:
    """Return a sort key: the most saved by keeping the value first, then the highest cost."""
    return -(value.saved_ns or 0.0), -(value.time_again_ns or 0.0), -value.bytes_again


def _holders(execution: Execution) -> dict[int, _Holders]:
    """Return each value that is computed, with the kernels that do."""
    holders: dict[int, _Holders] = defaultdict(dict)
    for block in execution.blocks:
        edges = block.computation.graph.operands
        for instruction, operands, value in zip(
            block.computation.instructions, edges, block.values, strict=True
        ):
            if instruction.opcode in _NO_VALUE or not isinstance(value, int):
                continue
            if any(value in flatten(block.values[operand]) for operand in operands):
                continue  # an instruction that only passes the value on
            holders[value].setdefault(block.inside or instruction, []).append(instruction)
    return holders


class _Duplicates:
    """The values of one computation that several kernels compute."""

    def __init__(
        self, execution: Execution, facts: Mapping[tuple[object, Instruction], KernelFacts]
    ) -> None:
        self.execution = execution
        self.facts = facts
        self.free = 0
        self._numbers: dict[tuple[Instruction, Instruction], int] = {}
        self.holders: dict[int, _Holders] = {}
        for number, holders in _holders(execution).items():
            computation = next(iter(holders)).computation  # the others call it, or it calls them
            launched = {
                kernel: computing
                for kernel, computing in holders.items()
                if (execution.path, kernel) in facts and kernel.computation is computation
            }
            if len(launched) > 1:
                self.holders[number] = launched
                self._numbers.update(
                    ((kernel, instruction), number)
                    for kernel, computing in launched.items()
                    for instruction in computing
                )

    def last_of_chains(self) -> Iterator[int]:
        """Yield the values that are worth a look.

        Constants, broadcasts and scalars are not. If the same kernels compute several values one
        from the other, only the last of them is.
        """
        for number, holders in self.holders.items():
            if self._is_free(number):
                self.free += 1
            elif any(
                self._leaves(kernel, instruction)
                for kernel in holders
                for instruction in holders[kernel]
            ):
                yield number

    def work(self, number: int) -> int:
        """Return how many elements are computed for a value, over all kernels, at most."""
        holders = self.holders[number]
        first_holder = next(iter(holders.values()))[:1]
        return len(holders) * sum(
            instruction.shape.element_count for instruction in needed_for(first_holder)
        )

    def _is_free(self, number: int) -> bool:
        """Return whether computing a value takes no more than reading it."""
        instruction = next(iter(self.holders[number].values()))[0]
        operands = [operand.shape.byte_size for operand in instruction.operands]
        return instruction.shape.element_count <= 1 or (
            instruction.opcode in _MOVES and instruction.shape.byte_size >= max(operands, default=0)
        )

    def _leaves(self, kernel: Instruction, instruction: Instruction) -> bool:
        """Return whether ``kernel`` uses a value other than for values that all the same kernels
        compute.
        """
        holders = self.holders[self._numbers[kernel, instruction]].keys()
        pending, visited = [instruction], {instruction}
        while pending:
            value = pending.pop()
            if value is kernel or value.is_root:
                return True
            for user in value.users:
                number = self._numbers.get((kernel, user))
                if number is None or self.holders[number].keys() != holders:
                    return True
                if user not in visited and self._is_free(number):
                    visited.add(user)
                    pending.append(user)
        return False


@dataclass(frozen=True, slots=True, eq=False)
class _Option:
    """A way to keep a value.

    ``added`` are the drafts besides those of the readers, ``replaced`` the kernels that the drafts
    replace. ``written_by`` is the kernel that writes the value.
    """

    written_by: Instruction | None
    added: tuple[str, ...] = ()
    replaced: tuple[Instruction, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    """A value, the way to keep it, and the draft ``computing`` that computes it alone.

    ``holders`` are the kernels that compute it, each with the instructions that do. ``readers`` are
    the kernels that would read it, each with its draft, None if it would compute nothing more.
    ``operand`` is the name of the value there.
    """

    instruction: Instruction
    holders: _Holders
    kernels: dict[Instruction, KernelFacts]
    is_written: bool
    computing: str
    readers: dict[Instruction, str | None]
    operand: str
    options: tuple[_Option, ...]
    before_fusion: tuple[Instruction, ...]


def _candidate(
    duplicates: _Duplicates,
    number: int,
    drafts: Drafts,
    backend: str | None,
    before_fusion: tuple[Instruction, ...],
) -> _Candidate | None:
    """Draft the launches for a value in memory; None if the kernels cannot be split."""
    holders, execution = duplicates.holders[number], duplicates.execution
    kernels = sorted(holders, key=lambda kernel: kernel.index)
    fusions = [kernel for kernel in kernels if _is_flat(kernel, holders[kernel])]
    if not fusions:
        return None
    first = fusions[0]
    writing = [kernel for kernel in kernels if set(holders[kernel]) & set(_results(kernel))]
    writer = next(
        (kernel_writing for kernel_writing in writing if not _depends(kernel_writing, kernels)),
        None,
    )
    kept_value = holders[first][0] if writer is None else holders[writer][0]
    computing = drafts.add(Draft(first, holders[first][:1]), _emission(holders[first][0], backend))
    readers: dict[Instruction, str | None] = {}
    for kernel in kernels:
        results = [result for result in _results(kernel) if result not in holders[kernel]]
        if kernel is writer or not _has_type(holders[kernel][0], kept_value):
            continue
        if not results or kernel.opcode != "fusion":
            readers[kernel] = None
        elif kernel in fusions:
            replacements = dict.fromkeys(holders[kernel], kept_value)
            readers[kernel] = drafts.add(Draft(kernel, results, replacements), _attributes(kernel))
    if len(readers) + (writer is not None) < 2:
        return None
    options = [_Option(writer) if writer is not None else _Option(None, (computing,))]
    if writer is None and backend == "gpu" and _can_write(first, kept_value):
        writing_draft = drafts.add(Draft(first, [*_results(first), kept_value]), _attributes(first))
        options.append(_Option(first, (writing_draft,), (first,)))
    return _Candidate(
        instruction=kept_value,
        holders=holders,
        kernels={kernel: duplicates.facts[execution.path, kernel] for kernel in kernels},
        is_written=writer is not None,
        computing=computing,
        readers=readers,
        operand=drafts.operand(kept_value),
        options=tuple(options),
        before_fusion=before_fusion,
    )


def _is_flat(kernel: Instruction, computing: Sequence[Instruction]) -> bool:
    """Return whether a kernel is a fusion, and computes a value outside of its inner fusions."""
    return kernel.opcode == "fusion" and all(
        instruction.computation is kernel.called[0] for instruction in computing
    )


def _is_custom(kernel: Instruction) -> bool:
    return kernel.attributes.get("kind") == "kCustom"


def _results(kernel: Instruction) -> list[Instruction]:
    """Return the instructions that a launch writes."""
    if kernel.opcode != "fusion":
        return [kernel]
    root = kernel.called[0].root
    return list(root.operands) if root.opcode == "tuple" else [root]


def _depends(kernel: Instruction, kernels: Sequence[Instruction]) -> bool:
    """Return whether ``kernel`` needs a result of one of ``kernels``."""
    least = min(candidate.index for candidate in kernels)
    pending, visited = [kernel], {kernel}
    while pending:
        for operand in pending.pop().operands:
            if operand in kernels:
                return True
            if operand.index > least and operand not in visited:
                visited.add(operand)
                pending.append(operand)
    return False


def _has_type(first: Instruction, second: Instruction) -> bool:
    return (first.shape.element_type, first.shape.dimensions) == (
        second.shape.element_type,
        second.shape.dimensions,
    )


def _can_write(fusion: Instruction, value: Instruction) -> bool:
    """Return whether a fusion can have a value as one more result: all have the same elements."""
    count = value.shape.element_count
    return not _is_custom(fusion) and all(
        result.shape.element_count == count for result in _results(fusion)
    )


def _attributes(fusion: Instruction) -> dict[str, str]:
    attributes = fusion.attributes
    return {key: attributes[key] for key in _ATTRIBUTES if key in attributes}


def _emission(value: Instruction, backend: str | None) -> dict[str, str]:
    """Return the attributes of a fusion that ends in ``value``."""
    is_input = backend == "gpu" and value.opcode in _REDUCTIONS
    return {"kind": "kInput" if is_input else "kLoop"}


class _Measured:
    """The bytes, times and flops of drafts."""

    def __init__(self, drafts: Drafts, backend: str | None, gpu: GpuTarget | None) -> None:
        module = self._module = drafts.module()
        clock = clock_for(module, backend, gpu)
        self._kernels = {
            instruction.name: kernel_of(instruction, backend)
            for instruction in module.entry.instructions
            if instruction.opcode == "fusion"
        }
        self._times = {
            name: clock.time(kernel) if clock is not None else None
            for name, kernel in self._kernels.items()
        }
        self._launch_ns = clock.machine.launch if clock is not None else 0.0

    def release(self) -> None:
        """Free the drafts, which may be many."""
        self._kernels.clear()
        self._module.release()

    def kernel(self, draft: str) -> Kernel:
        return self._kernels[draft]

    def flops(self, draft: str) -> int:
        return round(fsum(count_work(self._kernels[draft].instruction)))

    def read(self, draft: str, operand: str) -> int:
        """Return the bytes that a draft reads of one operand."""
        bytes_by_operand = traffic(self._kernels[draft].instruction).operands
        return sum(
            size for operand_read, size in bytes_by_operand.items() if operand_read.name == operand
        )

    def cost(self, draft: str, runs: int, *, is_inside: bool) -> RunCosts:
        """Return the cost of so many runs, of which none is a launch if a function has them."""
        kernel, time = self._kernels[draft], self._times[draft]
        launch = self._launch_ns if is_inside else 0.0
        return RunCosts(
            0 if is_inside else runs,
            runs * (kernel.bytes_read + kernel.bytes_written),
            runs * (time.nanoseconds - launch) if time is not None else None,
        )

    def cost_instead(self, draft: str | None, kernel: Instruction, facts: KernelFacts) -> RunCosts:
        """Return the cost of ``draft`` in the place of ``kernel``. ``draft`` is None if nothing is
        left to compute.
        """
        if draft is None:
            return RunCosts(0, 0, 0.0)
        cost = self.cost(draft, facts.runs, is_inside=_is_inside(facts))
        time = self._times[draft]
        # A custom fusion would have other tiles, and a floor is not an estimate.
        if time is None or (time.source is facts.time_source and not _is_custom(kernel)):
            return cost
        return structs.replace(cost, time_ns=None)


def _price(candidate: _Candidate, measured: _Measured) -> RecomputedValue | None:
    """Return what a value costs; None if computing it again takes no longer than reading it."""
    kernels, readers = candidate.kernels, candidate.readers
    as_is = _sum(_cost(kernels[kernel]) for kernel in readers)
    reading = _sum(
        measured.cost_instead(draft, reader, kernels[reader]) for reader, draft in readers.items()
    )
    time_again = None
    if as_is.time_ns is not None and reading.time_ns is not None:
        time_again = as_is.time_ns - reading.time_ns
    flops = measured.flops(candidate.computing)
    costs_time = flops > 0 and (time_again is None or time_again > 0)
    if as_is.bytes_moved <= reading.bytes_moved and not costs_time:
        return None
    runs = max(facts.runs for facts in kernels.values())
    is_inside = any(map(_is_inside, kernels.values()))
    times = sum(kernels[kernel].runs for kernel in readers)
    bytes_read = sum(kernels[kernel].runs * kernels[kernel].bytes_read for kernel in readers)
    for kernel, draft in readers.items():
        if draft is not None:
            bytes_elsewhere = measured.kernel(draft).bytes_read - measured.read(
                draft, candidate.operand
            )
            bytes_read -= kernels[kernel].runs * bytes_elsewhere
    computing = measured.kernel(candidate.computing)
    if not candidate.is_written:  # it is needed once
        bytes_read -= runs * computing.bytes_read
        times -= runs
    choices: list[tuple[_Option, RunCosts, RunCosts]] = []
    for option in candidate.options:
        remaining = {
            kernel: draft for kernel, draft in readers.items() if kernel not in option.replaced
        }
        concerned = dict.fromkeys((*remaining, *option.replaced))
        before = _sum(_cost(kernels[kernel]) for kernel in concerned)
        after = _sum(
            [
                *(
                    measured.cost_instead(draft, reader, kernels[reader])
                    for reader, draft in remaining.items()
                ),
                *(measured.cost(draft, runs, is_inside=is_inside) for draft in option.added),
            ]
        )
        choices.append((option, before, after))
    option, before, after = min(choices, key=lambda choice: _change(*choice[1:]))
    source = candidate.before_fusion or (candidate.instruction,)
    value = operation_of(source[0])
    return RecomputedValue(
        value=value,
        source=value.source,
        operations=computing.operations,
        kernels=tuple(facts.name for facts in kernels.values()),
        launches=sum(facts.launches for facts in kernels.values()),
        instructions=len(candidate.before_fusion),
        flops_again=times * flops,
        bytes_again=max(bytes_read, 0),
        time_again_ns=time_again,
        written_by=option.written_by.name if option.written_by is not None else None,
        is_written=candidate.is_written,
        before=before,
        after=after,
    )


def _keep(
    saving: Mapping[_Candidate, RecomputedValue], backend: str | None, gpu: GpuTarget | None
) -> KeptValues | None:
    """Return the values that are best kept at once.

    What values save alone adds up if no kernel computes two of them. Of others, either all are
    kept or the best one.
    """
    if not saving:
        return None
    drafts = Drafts()
    groups = [
        (group, _Together(group, drafts, backend) if len(group) > 1 else None)
        for group in _groups(saving)
    ]
    measured = _Measured(drafts, backend, gpu)
    kept_values: list[KeptValues] = []
    for group, together in groups:
        best = max(
            (saving[choice_of] for choice_of in group), key=lambda value: value.saved_ns or 0.0
        )
        choices = [KeptValues(1, len(best.kernels), best.before, best.after)]
        choices += [] if together is None else [together.price(measured)]
        choices_known = (choice for choice in choices if choice.after.time_ns is not None)
        kept_values.append(
            min(choices_known, key=lambda choice_of: _change(choice_of.before, choice_of.after))
        )
    measured.release()
    return KeptValues(
        sum(choice_of.values for choice_of in kept_values),
        sum(choice_of.kernels for choice_of in kept_values),
        _sum(choice_of.before for choice_of in kept_values),
        _sum(choice_of.after for choice_of in kept_values),
    )


def _groups(candidates: Iterable[_Candidate]) -> list[list[_Candidate]]:
    """Return values in groups, of which no two have a kernel in common."""
    groups: list[tuple[set[Instruction], list[_Candidate]]] = []
    for candidate in candidates:
        kernels, members = set(candidate.holders), [candidate]
        apart = []
        for group in groups:
            if kernels.isdisjoint(group[0]):
                apart.append(group)
            else:
                kernels |= group[0]
                members = group[1] + members
        groups = [*apart, (kernels, members)]
    return [members for _, members in groups]


class _Together:
    """Drafts that keep several values at once.

    A kernel that writes one of them already, and computes no other, stays as it is. For any other
    value there is a launch of its own, which reads the others.
    """

    def __init__(
        self, candidates: Sequence[_Candidate], drafts: Drafts, backend: str | None
    ) -> None:
        self._values = len(candidates)
        self._facts: dict[Instruction, KernelFacts] = {}
        self._launches: list[tuple[str, int, bool]] = []
        self._instead: dict[Instruction, str | None] = {}
        replacements: dict[Instruction, dict[Instruction, Instruction]] = defaultdict(dict)
        for candidate in candidates:
            self._facts |= candidate.kernels
            for kernel, computing in candidate.holders.items():
                if _is_flat(kernel, computing) and _has_type(computing[0], candidate.instruction):
                    replacements[kernel].update(dict.fromkeys(computing, candidate.instruction))
        for candidate in candidates:
            writer, kept_value = candidate.options[0].written_by, candidate.instruction
            if writer is not None and set(replacements[writer].values()) <= {kept_value}:
                del replacements[writer]
                continue
            first = next(
                (
                    holder
                    for holder in candidate.holders
                    if kept_value in replacements[holder].values()
                ),
                None,
            )
            if first is not None:
                value = candidate.holders[first][0]
                other_values = {
                    instruction: replacement
                    for instruction, replacement in replacements[first].items()
                    if replacement is not kept_value
                }
                launch = drafts.add(Draft(first, [value], other_values), _emission(value, backend))
                runs = max(kernel.runs for kernel in candidate.kernels.values())
                is_inside = any(map(_is_inside, candidate.kernels.values()))
                self._launches.append((launch, runs, is_inside))
        for kernel, read in replacements.items():
            results = [result for result in _results(kernel) if result not in read]
            draft = Draft(kernel, results, read)
            self._instead[kernel] = drafts.add(draft, _attributes(kernel)) if results else None

    def price(self, measured: _Measured) -> KeptValues:
        facts = self._facts
        before = [_cost(facts[kernel]) for kernel in self._instead]
        after = [
            measured.cost_instead(draft, kernel, facts[kernel])
            for kernel, draft in self._instead.items()
        ]
        after += [
            measured.cost(launch, runs, is_inside=is_inside)
            for launch, runs, is_inside in self._launches
        ]
        return KeptValues(self._values, len(facts), _sum(before), _sum(after))


def _change(before: RunCosts, after: RunCosts) -> tuple[float, int]:
    are_known = before.time_ns is not None and after.time_ns is not None
    time = (after.time_ns or 0.0) - (before.time_ns or 0.0) if are_known else 0.0
    return time, after.bytes_moved - before.bytes_moved


def _cost(facts: KernelFacts) -> RunCosts:
    time = facts.runs * facts.time_ns if facts.time_ns is not None else None
    return RunCosts(facts.launches, facts.bytes_moved, time)


def _is_inside(facts: KernelFacts) -> bool:
    return facts.launches < facts.runs


def _sum(costs: Iterable[RunCosts]) -> RunCosts:
    all_costs = list(costs)
    times = [cost.time_ns for cost in all_costs if cost.time_ns is not None]
    return RunCosts(
        sum(cost.launches for cost in all_costs),
        sum(cost.bytes_moved for cost in all_costs),
        fsum(times) if len(times) == len(all_costs) else None,
    )
