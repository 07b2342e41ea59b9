"""Plants faults in fused kernels, and has ``bisect`` find them.

A fault belongs to one or more places of the compiler's plan: an operation that reads another one in
the same kernel, a chain of three, or an operation that is in a kernel with any other. Wherever a
module that goes through the compiler's hook has all of these places fused, one operation there is
made wrong: another operation, its operands swapped, left out, or rounded to bfloat16. Unfused, it
is right. A fault that the results do not show is drawn again.

A fault is found if what ``bisect`` ends with has all places of it in its kernels. It is minimal if
there is nothing else but operations that must run between those. Exit code 1 if one was not found,
or less than nine of ten are minimal.
"""

import random
import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import networkx

from conformance.findings import Finding, counted, note, problem
from fusionscope.bisect.bisect import bisect
from fusionscope.bisect.fused_plan import FusedPlan, Kernel
from fusionscope.bisect.reference import Reference
from fusionscope.bisect.result import Bisection
from fusionscope.dump import open_dump
from fusionscope.graph.mutable import (
    MutableComputation,
    MutableInstruction,
    MutableModule,
    to_module,
)
from fusionscope.hlo import Module
from fusionscope.hlo.attributes import read_metadata
from fusionscope.rerun.plans import own_plan
from fusionscope.rerun.running import why_not_run

OTHERS = {
    "add": "subtract",
    "subtract": "add",
    "multiply": "add",
    "divide": "multiply",
    "maximum": "minimum",
    "minimum": "maximum",
    "exponential": "tanh",
    "tanh": "logistic",
    "negate": "abs",
    "sqrt": "tanh",
    "rsqrt": "tanh",
    "sine": "cosine",
    "cosine": "sine",
    "log": "tanh",
}
FLOATS = {"f32", "f64"}

# An operation, recognised under any name: opcode, shape, the framework's name for it, and its line.
Key = tuple[str, str, str, str]


def key_of(instruction: MutableInstruction) -> Key:
    metadata = read_metadata(instruction.attributes.get("metadata", ""))
    line = metadata.get("stack_frame_id", metadata.get("source_line", ""))
    return instruction.opcode, str(instruction.shape), metadata.get("op_name", ""), line


@dataclass(frozen=True)
class Place:
    """Operations that read each other in one kernel; one alone is in a kernel with any other."""

    chain: tuple[Key, ...]

    def ends(self, inside: MutableComputation) -> list[MutableInstruction]:
        """The last of them, wherever they are in the computation of a kernel."""
        operations = [e for e in inside.instructions if e.opcode not in ("parameter", "constant")]
        if len(operations) < 2:
            return []
        return [operation for operation in operations if self._ends(operation, len(self.chain) - 1)]

    def _ends(self, operation: MutableInstruction, last: int) -> bool:
        if key_of(operation) != self.chain[last]:
            return False
        return last == 0 or any(self._ends(operand, last - 1) for operand in operation.operands)


@dataclass(frozen=True)
class Fault:
    effect: str
    places: tuple[Place, ...]

    def plant(self, module: Module) -> Module:
        graph = MutableModule(module)
        fused = [computation for computation in graph.post_order() if computation.is_fused]
        ends_by_place = [
            [e for inside in fused for e in place.ends(inside)] for place in self.places
        ]
        if not all(ends_by_place):
            return module
        for end in ends_by_place[0]:
            self._make_wrong(end)
        return to_module(graph)

    def _make_wrong(self, operation: MutableInstruction) -> None:
        inside = operation.computation
        if self.effect == "another operation":
            inside.opcodes[operation.opcode] -= 1
            operation.opcode = OTHERS[operation.opcode]
            inside.opcodes[operation.opcode] += 1
        elif self.effect == "swapped operands":
            operation.operands.reverse()
        elif self.effect == "left out":
            inside.replace_uses(operation, operation.operands[0])
        else:
            wrong = inside.make("reduce-precision", operation.shape, [operation], ROUNDED)
            for user in list(operation.users):
                if user is not wrong:
                    for slot, operand in enumerate(user.operands):
                        if operand is operation:
                            user.operands[slot] = wrong
                            operation.users.drop(user)
                            wrong.users.add(user)
            if inside.root is operation:
                inside.root = wrong


ROUNDED = ", exponent_bits=8, mantissa_bits=7"


def effects_on(operation: MutableInstruction) -> list[str]:
    if operation.shape.element_type not in FLOATS or not operation.operands:
        return []
    effects = ["rounded to bfloat16"]
    if operation.opcode in OTHERS:
        effects.append("another operation")
    if operation.opcode in ("subtract", "divide"):
        effects.append("swapped operands")
    if operation.opcode in OTHERS and operation.operands[0].shape == operation.shape:
        effects.append("left out")
    return effects


def draw(plan: FusedPlan, source: random.Random) -> tuple[Fault, int, str] | None:
    """A fault, the fewest operations that must be fused for it, and its places in words."""
    graph = MutableModule(plan.plan.after)
    by_name = {instruction.name: instruction for instruction in graph.walk()}
    fused = [computation for computation in graph.post_order() if computation.is_fused]
    divided = [kernel for kernel in plan.kernels if kernel.parts[0].producer]
    if not divided:
        return None
    count = 2 if len(divided) > 1 and source.random() < 0.15 else 1
    places, least, words = [], 0, []
    for kernel in source.sample(divided, count):
        drawn = draw_place(kernel, by_name, source)
        if drawn is None:
            return None
        names, size = drawn
        least += size
        places.append(Place(tuple(key_of(by_name[name]) for name in names)))
        if (
            sum(len(places[-1].ends(fused_computation)) for fused_computation in fused) > 1
        ):  # which of them would be wrong?
            return None
        words.append(f"{kernel.name}: {' -> '.join(names)}")
        if len(places) == 1:
            effects = effects_on(by_name[names[-1]])
    return (
        (Fault(source.choice(effects), tuple(places)), least, " and ".join(words))
        if effects
        else None
    )


def draw_place(
    kernel: Kernel, by_name: dict[str, MutableInstruction], source: random.Random
) -> tuple[tuple[str, ...], int] | None:
    """The names of a chain in ``kernel``, and the size of the smallest kernel with it."""
    pairs = [part for part in kernel.parts if not part.are_siblings]
    reads = networkx.DiGraph([(part.producer, part.consumer) for part in pairs])
    part = source.choice(pairs)
    names: tuple[str, ...] = (part.producer, part.consumer)
    kind = source.random()
    if kind < 0.2:
        names = (part.consumer,)
    elif kind < 0.4:
        before = list(reads.predecessors(part.producer))
        if before:
            names = (source.choice(before), *names)
    between = set(names)
    for start in names:
        for end in names:
            if start != end and networkx.has_path(reads, start, end):
                between |= networkx.descendants(reads, start) & networkx.ancestors(reads, end)
    return names, max(2, len(between))


def judge(fault: Fault, least: int, bisection: Bisection) -> tuple[bool, bool]:
    """Whether the fault was found, and whether nothing else was."""
    kernels = [
        Counter((operation.opcode, operation.shape) for operation in kernel.operations)
        for kernel in bisection.found
    ]
    is_found = all(
        any(Counter(key[:2] for key in place.chain) <= kernel for kernel in kernels)
        for place in fault.places
    )
    total = sum(len(kernel.operations) for kernel in bisection.found)
    return is_found, is_found and total <= least and len(kernels) <= len(fault.places)


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("dumps", nargs="+", type=Path)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--python", default=sys.executable)


def findings(options: Namespace) -> Iterator[Finding]:
    totals: Counter[str] = Counter()
    drawn_before: set[tuple[Path, Fault]] = set()
    dumps = []
    for dump in options.dumps:
        (module,) = open_dump(dump).modules
        if why := why_not_run(module):
            yield note(f"{dump.name}: left out: {why}")
        else:
            dumps.append(dump)
    seed = options.seed * 1000
    while totals["planted"] < options.count:
        seed += 1
        dump = dumps[seed % len(dumps)]
        (module,) = open_dump(dump).modules
        drawn = draw(FusedPlan(module, own_plan(module)), random.Random(seed))
        if drawn is None:
            yield counted("without a clear place")
            continue
        fault, least, words = drawn
        if (dump, fault) in drawn_before:
            yield counted("drawn again")
            continue
        drawn_before.add((dump, fault))
        bisection = bisect(module, Reference(), python=options.python, alter=fault.plant)
        if bisection.problem == "the results are not wrong":
            yield counted("not shown by the results")
            continue
        is_found, is_minimal = judge(fault, least, bisection)
        if not is_minimal and bisect(module, Reference(), python=options.python).found:
            yield note(f"{dump.name}: left out: its results differ without a planted fault, too")
            dumps.remove(dump)
            continue
        totals.update(planted=1, minimal=is_minimal)
        sizes = " + ".join(str(len(kernel.operations)) for kernel in bisection.found)
        line = (
            f"{seed} {dump.name}: {fault.effect} in {words}: {sizes or 0} of {least} "
            f"operations, {bisection.tried} tried of {bisection.kernels} kernels "
            f"{bisection.problem}"
        )
        if is_found:
            yield counted("minimal" if is_minimal else "found, not minimal", line)
        else:
            yield problem("not found", line)
    if totals["minimal"] < 0.9 * options.count:
        yield problem("too few minimal", f"only {totals['minimal']} of {options.count} are minimal")
