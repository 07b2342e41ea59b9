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

NAME = "experiment"
_ENTRY = "experiment"
_MOST, _MOST_IN_ALL = 200, 10_000  # instructions of a cut
WHOLE = "the whole computation"
# They name values and move none.
_VIEWS = frozenset({"bitcast", "get-tuple-element", "tuple", "opt-barrier", "add-dependency"})
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
        named = {each.name: each for each in self.entry.instructions}
        self.producer, self.consumer = named[cut.producer], named[cut.consumer]
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
        found: dict[MutableInstruction, None] = {}
        for each in chain:
            for user in each.users:
                if user not in path:
                    found[user] = None
        return list(found)

    def set_results(self, results: list[MutableInstruction]) -> None:
        """Return only ``results`` from the module."""
        old = self.entry.root
        results = list(dict.fromkeys(results))
        shape = Shape(TUPLE, elements=tuple(each.shape for each in results))
        self.entry.root = self.entry.make("tuple", shape, results)
        self.entry.remove(old)

    def fit_results(self) -> None:
        """Give the tuple of results the shapes that these have now."""
        root = self.entry.root
        root.shape = replace(root.shape, elements=tuple(each.shape for each in root.operands))

    def close(self) -> Cut:
        """Return the changed cut, without what nothing reads. Raises ``UnusableInput`` if the pair
        is no longer in it.
        """
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
            found = []
            while current is not producer:
                found.append(current)
                current = came[current]
            return found[::-1]
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
    seen = set()
    for around, kept in _neighbourhoods(module, final, producer, consumer):
        is_small = len(kept) <= (_MOST if around != WHOLE else _MOST_IN_ALL)
        if is_small and (kept not in seen or around == "other users"):
            seen.add(kept)
            yield _cut(module, producer, consumer, kept, around)


def _neighbourhoods(
    module: Module, final: Module, producer: str, consumer: str
) -> Iterator[tuple[str, frozenset[str]]]:
    graph = MutableModule(module)
    one, two = _find(graph, producer), _find(graph, consumer)
    pair = dict.fromkeys([one, *path_between(one, two), two])
    yield "the pair", _names(pair)
    kept = {*pair, *_readers(one)}
    yield "other users", _names(kept)
    kept |= {operand for each in (one, two) for operand in each.operands}
    kept |= _readers(two)
    yield "operands", _names(kept)
    named = {each.name: each for each in one.computation.instructions}
    together = _share_kernels(final, named)
    inside = set(kept)
    for _ in range(2):
        inside |= {other for each in inside for other in together.get(each, ())}
        inside |= {user for each in inside for user in each.users}
        yield "kernels", _names(inside)
    yield from _grown(kept, "users", lambda each: each.users)
    yield from _grown(kept, "steps", lambda each: (*each.operands, *each.users))
    yield WHOLE, _names(one.computation.instructions)


def _share_kernels(
    final: Module, named: Mapping[str, MutableInstruction]
) -> dict[MutableInstruction, set[MutableInstruction]]:
    """Return the instructions that are in one kernel of ``final`` with each, by their names."""
    found: dict[MutableInstruction, set[MutableInstruction]] = {}
    for computation in final.computations:
        inside = {named[each.name] for each in computation.instructions if each.name in named}
        for each in inside:
            found.setdefault(each, set()).update(inside)
    return found


def _grown(
    kept: set[MutableInstruction],
    words: str,
    near: Callable[[MutableInstruction], Iterable[MutableInstruction]],
) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield ``kept`` with more and more around it, by one step of ``near`` at a time."""
    kept, size = set(kept), 0
    for distance in count(2):
        size = len(kept)
        kept |= {each for inside in kept for each in near(inside)}
        if size == len(kept) or size > _MOST:
            return
        yield f"{distance} {words}", _names(kept)


def _find(graph: MutableModule, name: str) -> MutableInstruction:
    found = next((each for each in graph.walk() if each.name == name), None)
    if found is None:
        raise UnusableInput(f"{name} is not in the module")
    return found


def _names(instructions: Iterable[MutableInstruction]) -> frozenset[str]:
    """Return the names, without a tuple of results: each cut has its own."""
    return frozenset(each.name for each in instructions if not _is_result_tuple(each))


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


def _cut(module: Module, producer: str, consumer: str, kept: frozenset[str], around: str) -> Cut:
    """Return a cut of the instructions ``kept``. What they read becomes parameters. What others
    read becomes results, except the producer of a pair alone.
    """
    graph = MutableModule(module)
    one, two = _find(graph, producer), _find(graph, consumer)
    source = one.computation
    inside = [
        each
        for each in source.post_order()
        if each in (one, two)
        or (each.name in kept and not _is_boundary(each) and not _is_result_tuple(each))
    ]
    entry = graph.add_computation(_ENTRY)
    clones: dict[MutableInstruction, MutableInstruction] = {}
    wanted = set(inside)

    def get(value: MutableInstruction) -> MutableInstruction:
        if value not in clones:
            if value.opcode == "constant":
                clones[value] = _clone(value, entry, [])
            else:
                clones[value] = entry.make_parameter(value.shape)
        return clones[value]

    for each in inside:
        clones[each] = _clone(each, entry, [get(operand) for operand in each.operands])
    results = [
        each
        for each in inside
        if not any(user in wanted for user in each.users)
        or (around != "the pair" and any(user not in wanted for user in each.users))
        or (around != "the pair" and each.is_root)
    ]
    # The compiler visits the results in their order.
    order = {each: place for place, each in enumerate(source.root.operands)}
    results.sort(key=lambda each: order.get(each, len(order)))
    shape = Shape(TUPLE, elements=tuple(each.shape for each in results))
    entry.root = entry.make("tuple", shape, [clones[each] for each in results])
    graph.entry = entry
    replaced = take_apart(graph) | write_convolutions(graph)
    write_bitcasts(graph)
    first, last = (replaced.get(clones[each], clones[each]).name for each in (one, two))
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
    pending = [each for each in entry.instructions if not each.users and each is not entry.root]
    while pending:
        current = pending.pop()
        if current.parent is None or current.users or has_side_effect(current):
            continue
        operands = list(dict.fromkeys(current.operands))
        entry.remove(current)
        pending += [each for each in operands if not each.users]
    for number, parameter in enumerate(entry.parameters):
        parameter.inside = str(number)


def replace_with_parameter(value: MutableInstruction, user: MutableInstruction) -> None:
    """Let ``user`` read a new parameter instead of ``value``."""
    made = value.computation.make_parameter(value.shape)
    replace_operand(user, value, made)
