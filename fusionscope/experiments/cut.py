"""Cuts a producer, its consumer and a neighbourhood out of a module."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count

from fusionscope.errors import UnusableInput
from fusionscope.experiments.bitcasts import write_bitcasts
from fusionscope.experiments.convolutions import write_convolutions
from fusionscope.experiments.kernels import take_apart
from fusionscope.graph.mutable import (
    CONTROL,
    MutableComputation,
    MutableInstruction,
    MutableModule,
    replace_operand,
    to_module,
)
from fusionscope.graph.properties import has_side_effect
from fusionscope.hlo import Module
from fusionscope.hlo.search import reachable
from fusionscope.hlo.shape import TUPLE, Shape
from fusionscope.hlo.views import SAME_MEMORY, TUPLES

NAME = "experiment"
_ENTRY = "experiment"
_MOST, _MOST_IN_ALL = 200, 10_000  # instructions of a cut
WHOLE = "the whole computation"
_VIEWS = SAME_MEMORY | TUPLES
_WRITTEN = frozenset({"bitcast-convert", "reshape", "transpose"})  # for a bitcast


@dataclass(frozen=True, slots=True)
class Cut:
    """A module of its own, in whose entry ``consumer`` reads ``producer``. Both are names.

    ``around`` says which neighbourhood of the pair it holds. ``flags`` are those of the compiler
    with which it is compiled, in addition to those of the dump, each with its value.
    """

    module: Module
    producer: str
    consumer: str
    around: str = ""
    flags: tuple[tuple[str, str], ...] = ()

    def edit(self) -> OpenCut:
        """Return a copy to change."""
        return OpenCut(MutableModule(self.module), self)


class OpenCut:
    """A cut that is being changed."""

    def __init__(self, graph: MutableModule, cut: Cut) -> None:
        self.graph = graph
        self.entry = graph.entry
        by_name = {instruction.name: instruction for instruction in self.entry.instructions}
        self.producer, self.consumer = by_name[cut.producer], by_name[cut.consumer]
        self._around = cut.around

    @property
    def results(self) -> list[MutableInstruction]:
        """What the module returns."""
        return list(self.entry.root.operands)

    def path(self) -> list[MutableInstruction]:
        """Return the instructions between the producer and the consumer: views, or, where a kernel
        was taken apart, the kernel's instructions on the way.
        """
        try:
            return path_between(self.producer, self.consumer)
        except UnusableInput:
            return path_between(self.producer, self.consumer, is_view=lambda _: True)

    def chain(self) -> list[MutableInstruction]:
        """Return the producer and the path; the consumer reads the last."""
        return [self.producer, *self.path()]

    def other_users(self) -> list[MutableInstruction]:
        """Return the other users of the producer's value, through views."""
        chain = self.chain()
        path = {*chain, self.consumer, self.entry.root}
        other_users: dict[MutableInstruction, None] = {}
        for link in chain:
            for user in link.users:
                if user not in path:
                    other_users[user] = None
        return list(other_users)

    def set_results(self, results: list[MutableInstruction]) -> None:
        """Return only ``results`` from the module."""
        old = self.entry.root
        results = list(dict.fromkeys(results))
        shape = Shape(TUPLE, elements=tuple(result.shape for result in results))
        self.entry.root = self.entry.make("tuple", shape, results)
        self.entry.remove(old)

    def fit_results(self) -> None:
        """Give the tuple of results the shapes that these have now."""
        root = self.entry.root
        root.shape = replace(root.shape, elements=tuple(operand.shape for operand in root.operands))

    def close(self) -> Cut:
        """Return the changed cut, pruned. Raises ``UnusableInput`` if the pair is gone."""
        _prune(self.entry)
        present = self.entry.instructions
        if self.producer not in present or self.consumer not in present:
            raise UnusableInput("the pair is gone")
        module = replace(to_module(self.graph), name=NAME, header="", frames=None)
        return Cut(module, self.producer.name, self.consumer.name, self._around)


def path_between(
    producer: MutableInstruction,
    consumer: MutableInstruction,
    *,
    is_view: Callable[[str], bool] = (_VIEWS | _WRITTEN).__contains__,
) -> list[MutableInstruction]:
    """Return views through which ``consumer`` reads ``producer``, in order; the shortest way."""
    came: dict[MutableInstruction, MutableInstruction] = {}
    pending = [producer]
    for current in pending:
        if consumer in current.users:
            path = []
            while current is not producer:
                path.append(current)
                current = came[current]
            return path[::-1]
        for user in current.users:
            if is_view(user.opcode) and user not in came:
                came[user] = current
                pending.append(user)
    raise UnusableInput(f"{consumer.name} does not read {producer.name} in its computation")


def cuts(module: Module, final: Module, producer: str, consumer: str) -> Iterator[Cut]:
    """Yield cuts with ``consumer`` and ``producer``, which it reads, with more and more around
    them. ``final`` is what the compiler made of ``module``: what it put into the kernels of the two
    belongs to their neighbourhood.

    Raises ``UnusableInput`` if they are not in one computation.
    """
    visited = set()
    for around, names in _neighbourhoods(module, final, producer, consumer):
        is_small = len(names) <= (_MOST if around != WHOLE else _MOST_IN_ALL)
        if is_small and (names not in visited or around == "other users"):
            visited.add(names)
            yield _cut(module, producer, consumer, names, around)


def _neighbourhoods(
    module: Module, final: Module, producer: str, consumer: str
) -> Iterator[tuple[str, frozenset[str]]]:
    graph = MutableModule(module)
    start, end = _find(graph, producer), _find(graph, consumer)
    pair = dict.fromkeys([start, *path_between(start, end), end])
    yield "the pair", _names(pair)
    members = {*pair, *_readers(start)}
    yield "other users", _names(members)
    members |= {operand for instruction in (start, end) for operand in instruction.operands}
    members |= _readers(end)
    yield "operands", _names(members)
    by_name = {instruction.name: instruction for instruction in start.computation.instructions}
    together = _share_kernels(final, by_name)
    inside = set(members)
    for _ in range(2):
        inside |= {partner for instruction in inside for partner in together.get(instruction, ())}
        inside |= {user for instruction in inside for user in instruction.users}
        yield "kernels", _names(inside)
    yield from _grown(members, "users", lambda instruction: instruction.users)
    yield from _grown(
        members, "steps", lambda instruction: (*instruction.operands, *instruction.users)
    )
    yield WHOLE, _names(start.computation.instructions)


def _share_kernels(
    final: Module, by_name: Mapping[str, MutableInstruction]
) -> dict[MutableInstruction, set[MutableInstruction]]:
    """Return the instructions that are in one kernel of ``final`` with each, by their names."""
    partners: dict[MutableInstruction, set[MutableInstruction]] = {}
    for computation in final.computations:
        inside = {
            by_name[instruction.name]
            for instruction in computation.instructions
            if instruction.name in by_name
        }
        for member in inside:
            partners.setdefault(member, set()).update(inside)
    return partners


def _grown(
    members: set[MutableInstruction],
    words: str,
    near: Callable[[MutableInstruction], Iterable[MutableInstruction]],
) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield ``members`` with more and more around it, by one step of ``near`` at a time."""
    members, size = set(members), 0
    for distance in count(2):
        size = len(members)
        members |= {neighbour for inside in members for neighbour in near(inside)}
        if size == len(members) or size > _MOST:
            return
        yield f"{distance} {words}", _names(members)


def _find(graph: MutableModule, name: str) -> MutableInstruction:
    instruction_found = next(
        (instruction for instruction in graph.walk() if instruction.name == name), None
    )
    if instruction_found is None:
        raise UnusableInput(f"{name} is not in the module")
    return instruction_found


def _names(instructions: Iterable[MutableInstruction]) -> frozenset[str]:
    """Return the names, without a tuple of results: each cut has its own."""
    return frozenset(
        instruction.name for instruction in instructions if not _is_result_tuple(instruction)
    )


def _is_result_tuple(instruction: MutableInstruction) -> bool:
    return instruction.is_root and instruction.opcode == "tuple"


def _readers(value: MutableInstruction) -> set[MutableInstruction]:
    """Return all that reads ``value``, and the views through which it does."""

    def readers(reader: MutableInstruction) -> list[MutableInstruction]:
        passes = reader is value or reader.opcode in _VIEWS
        return [user for user in reader.users if passes and not _is_result_tuple(user)]

    return {*reachable([value], readers)} - {value}


def _is_boundary(instruction: MutableInstruction) -> bool:
    """Return whether its result becomes a parameter of a cut."""
    return instruction.opcode == "parameter" or (
        instruction.opcode == "get-tuple-element" and instruction.operands[0].opcode == "parameter"
    )


def _cut(module: Module, producer: str, consumer: str, names: frozenset[str], around: str) -> Cut:
    """Return a cut of the instructions ``names``. What they read becomes parameters. What others
    read becomes results, except the producer of a pair alone.
    """
    graph = MutableModule(module)
    start, end = _find(graph, producer), _find(graph, consumer)
    source = start.computation
    inside = [
        instruction
        for instruction in source.post_order()
        if instruction in (start, end)
        or (
            instruction.name in names
            and not _is_boundary(instruction)
            and not _is_result_tuple(instruction)
        )
    ]
    entry = graph.add_computation(_ENTRY)
    clones: dict[MutableInstruction, MutableInstruction] = {}
    members = set(inside)

    def get(value: MutableInstruction) -> MutableInstruction:
        if value not in clones:
            if value.opcode == "constant":
                clones[value] = _clone(value, entry, [])
            else:
                clones[value] = entry.make_parameter(value.shape)
        return clones[value]

    for member in inside:
        clones[member] = _clone(member, entry, [get(operand) for operand in member.operands])
    results = [
        member
        for member in inside
        if not any(user in members for user in member.users)
        or (around != "the pair" and any(user not in members for user in member.users))
        or (around != "the pair" and member.is_root)
    ]
    # The compiler visits the results in their order.
    order = {operand: place for place, operand in enumerate(source.root.operands)}
    results.sort(key=lambda member: order.get(member, len(order)))
    shape = Shape(TUPLE, elements=tuple(result.shape for result in results))
    entry.root = entry.make("tuple", shape, [clones[result] for result in results])
    graph.entry = entry
    replaced = take_apart(graph) | write_convolutions(graph)
    write_bitcasts(graph)
    first, last = (replaced.get(clones[member], clones[member]).name for member in (start, end))
    return OpenCut(graph, Cut(module, first, last, around)).close()


def _clone(
    original: MutableInstruction,
    entry: MutableComputation,
    operands: list[MutableInstruction],
) -> MutableInstruction:
    clone = MutableInstruction(
        entry.module.instruction_name(original.name),
        original.opcode,
        original.shape,
        operands,
        _without_origin(original),
        original.inside,
    )
    clone.called = list(original.called)
    clone.fusion_kind, clone.backend_kind = original.fusion_kind, original.backend_kind
    return entry.add(clone)


def _without_origin(instruction: MutableInstruction) -> str:
    """Return the attributes without where the instruction is from."""
    text = CONTROL.sub("", instruction.attributes_text)
    if "metadata=" not in text and "sharding=" not in text and "origin=" not in text:
        return text
    return "".join(
        f", {key}={value}"
        for key, value in instruction.attributes.items()
        if key not in ("metadata", "sharding", "control-predecessors", "origin", "original_value")
    )


def _prune(entry: MutableComputation) -> None:
    """Remove what nothing reads, parameters too."""
    for instruction in reversed(entry.post_order()):
        if not (instruction.users or instruction is entry.root or has_side_effect(instruction)):
            entry.remove(instruction)
    for number, parameter in enumerate(entry.parameters):
        parameter.inside = str(number)


def replace_with_parameter(value: MutableInstruction, user: MutableInstruction) -> None:
    """Let ``user`` read a new parameter instead of ``value``."""
    parameter = value.computation.make_parameter(value.shape)
    replace_operand(user, value, parameter)
