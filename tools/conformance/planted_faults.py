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
        others = [e for e in inside.instructions if e.opcode not in ("parameter", "constant")]
        if len(others) < 2:
            return []
        return [each for each in others if self._ends(each, len(self.chain) - 1)]

    def _ends(self, each: MutableInstruction, last: int) -> bool:
        if key_of(each) != self.chain[last]:
            return False
        return last == 0 or any(self._ends(operand, last - 1) for operand in each.operands)


@dataclass(frozen=True)
class Fault:
    effect: str
    places: tuple[Place, ...]

    def plant(self, module: Module) -> Module:
        graph = MutableModule(module)
        fused = [computation for computation in graph.post_order() if computation.is_fused]
        found = [[e for inside in fused for e in place.ends(inside)] for place in self.places]
        if not all(found):
            return module
        for each in found[0]:
            self._make_wrong(each)
        return to_module(graph)

    def _make_wrong(self, each: MutableInstruction) -> None:
        inside = each.computation
        if self.effect == "another operation":
            inside.opcodes[each.opcode] -= 1
            each.opcode = OTHERS[each.opcode]
            inside.opcodes[each.opcode] += 1
        elif self.effect == "swapped operands":
            each.operands.reverse()
        elif self.effect == "left out":
            inside.replace_uses(each, each.operands[0])
        else:
            wrong = inside.make("reduce-precision", each.shape, [each], ROUNDED)
            for user in list(each.users):
                if user is not wrong:
                    for slot, operand in enumerate(user.operands):
                        if operand is each:
                            user.operands[slot] = wrong
                            each.users.drop(user)
                            wrong.users.add(user)
            if inside.root is each:
                inside.root = wrong


ROUNDED = ", exponent_bits=8, mantissa_bits=7"


def effects_on(each: MutableInstruction) -> list[str]:
    if each.shape.element_type not in FLOATS or not each.operands:
        return []
    effects = ["rounded to bfloat16"]
    if each.opcode in OTHERS:
        effects.append("another operation")
    if each.opcode in ("subtract", "divide"):
        effects.append("swapped operands")
    if each.opcode in OTHERS and each.operands[0].shape == each.shape:
        effects.append("left out")
    return effects


def draw(plan: FusedPlan, source: random.Random) -> tuple[Fault, int, str] | None:
    """A fault, the fewest operations that must be fused for it, and its places in words."""
    graph = MutableModule(plan.plan.after)
    named = {instruction.name: instruction for instruction in graph.walk()}
    fused = [computation for computation in graph.post_order() if computation.is_fused]
    divided = [kernel for kernel in plan.kernels if kernel.parts[0].producer]
    if not divided:
        return None
    count = 2 if len(divided) > 1 and source.random() < 0.15 else 1
    places, least, words = [], 0, []
    for kernel in source.sample(divided, count):
        drawn = draw_place(kernel, named, source)
        if drawn is None:
            return None
        names, size = drawn
        least += size
        places.append(Place(tuple(key_of(named[name]) for name in names)))
        if sum(len(places[-1].ends(each)) for each in fused) > 1:  # which of them would be wrong?
            return None
        words.append(f"{kernel.name}: {' -> '.join(names)}")
        if len(places) == 1:
            effects = effects_on(named[names[-1]])
    return (
        (Fault(source.choice(effects), tuple(places)), least, " and ".join(words))
        if effects
        else None
    )


def draw_place(
    kernel: Kernel, named: dict[str, MutableInstruction], source: random.Random
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
    for one in names:
        for other in names:
            if one != other and networkx.has_path(reads, one, other):
                between |= networkx.descendants(reads, one) & networkx.ancestors(reads, other)
    return names, max(2, len(between))


def judge(fault: Fault, least: int, found: Bisection) -> tuple[bool, bool]:
    """Whether the fault was found, and whether nothing else was."""
    kernels = [
        Counter((operation.opcode, operation.shape) for operation in each.operations)
        for each in found.found
    ]
    is_found = all(
        any(Counter(key[:2] for key in place.chain) <= kernel for kernel in kernels)
        for place in fault.places
    )
    total = sum(len(each.operations) for each in found.found)
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
        found = bisect(module, Reference(), python=options.python, alter=fault.plant)
        if found.problem == "the results are not wrong":
            yield counted("not shown by the results")
            continue
        is_found, is_minimal = judge(fault, least, found)
        if not is_minimal and bisect(module, Reference(), python=options.python).found:
            yield note(f"{dump.name}: left out: its results differ without a planted fault, too")
            dumps.remove(dump)
            continue
        totals.update(planted=1, minimal=is_minimal)
        sizes = " + ".join(str(len(each.operations)) for each in found.found)
        line = (
            f"{seed} {dump.name}: {fault.effect} in {words}: {sizes or 0} of {least} "
            f"operations, {found.tried} tried of {found.kernels} kernels {found.problem}"
        )
        if is_found:
            yield counted("minimal" if is_minimal else "found, not minimal", line)
        else:
            yield problem("not found", line)
    if totals["minimal"] < 0.9 * options.count:
        yield problem("too few minimal", f"only {totals['minimal']} of {options.count} are minimal")
