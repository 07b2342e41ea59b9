"""The collectives of a final module, each with its origin and what runs beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import fsum

from fusionscope.dump import DumpedModule
from fusionscope.facts.result import KernelFacts
from fusionscope.facts.tpu_times import until_done
from fusionscope.findings.collectives.facts import Collective
from fusionscope.findings.collectives.partitioning import UNKNOWN, kind_of, read_partitioning
from fusionscope.graph.properties import leaves
from fusionscope.grouping import grouped
from fusionscope.hlo import Instruction, Module, Shape

_COUNTS = ("num_partitions", "replica_count")


def is_distributed(module: Module) -> bool:
    """Return whether a module is for several devices."""
    return any(module.attributes.get(count, "1") != "1" for count in _COUNTS)


def find_collectives(
    module: DumpedModule, final: Module, kernels: Sequence[KernelFacts]
) -> tuple[Collective, ...]:
    """Return the collectives of the final stage. The origins of those that the partitioner added
    are unknown if the dump lacks the stages around it.

    Raises ``UnusableInput`` if one of these cannot be read.
    """
    partitioning = read_partitioning(module)
    facts = {kernel.name: kernel for kernel in kernels}
    parts = grouped(
        (_same(instruction), instruction) for instruction in final.walk() if kind_of(instruction)
    )
    collectives = []
    for (kind, _, _), instructions in parts.items():
        first = instructions[0]
        origin = partitioning.origin(first) if partitioning is not None else UNKNOWN
        launches = list(dict.fromkeys(map(_launch, instructions)))
        beside = [kernel for launch in launches for kernel in _beside(launch, facts)]
        times = [kernel.time_ns for kernel in beside]
        collectives.append(
            Collective(
                name=first.name,
                kind=kind,
                kernels=tuple(launch.name for launch in launches),
                runs=max(
                    (
                        facts[instruction.name].runs
                        for instruction in launches
                        if instruction.name in facts
                    ),
                    default=1,
                ),
                bytes=_size(first),
                groups=first.attributes.get("replica_groups")
                or first.attributes.get("source_target_pairs", ""),
                cause=origin.cause,
                source=origin.source,
                before=origin.before,
                after=origin.after,
                beside=tuple(kernel.name for kernel in beside),
                beside_ns=None if None in times else fsum(time for time in times if time),
            )
        )
    return tuple(collectives)


def _same(collective: Instruction) -> tuple[str, str, str]:
    """Return what the parts have in common into which a collective is cut."""
    channel = collective.attributes.get("channel_id")
    return kind_of(collective), channel or collective.name, collective.op_name or ""


def _launch(collective: Instruction) -> Instruction:
    """Return the instruction that launches a collective, which a fusion or a start may contain."""
    launch, callers = collective, collective.computation.module.callers
    while wrappers := [
        caller
        for caller in callers.get(launch.computation, ())
        if caller.opcode in ("async-start", "fusion")
    ]:
        launch = wrappers[0]
    return launch


def _beside(launch: Instruction, facts: Mapping[str, KernelFacts]) -> Iterator[KernelFacts]:
    """Yield the kernels between the start of a collective and its end, or the one that also does
    it.
    """
    if launch.opcode.endswith("-start"):
        for instruction in until_done(launch):
            kernel = facts.get(instruction.name)
            if kernel is not None and not kind_of(instruction):
                yield kernel
    elif launch.opcode == "fusion" and launch.name in facts:
        yield facts[launch.name]


def _size(collective: Instruction) -> int:
    """Return the bytes of the operands of a collective or of its result, whichever is more."""
    results = collective.shape
    if kind_of(collective) != collective.opcode and len(results.elements) > 1:
        results = results.elements[1]
    return max(_bytes([operand.shape for operand in collective.operands]), _bytes([results]))


def _bytes(shapes: Sequence[Shape]) -> int:
    return sum(array.byte_size for shape in shapes for array in leaves(shape))
