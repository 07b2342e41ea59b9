"""Predicts the copies that the compiler inserts after fusion.

An instruction that updates its operand in place, a loop, and an output that shares the buffer of a
parameter overwrite a value. If that value is read later, or must not change, the compiler copies
it. Which values are read later depends on what was fused.

Source: xla/service/copy_insertion.cc, xla/service/copy_removal.cc. Branches of conditionals, and
collectives, whose operands are always copied, are not considered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from fusionscope.graph.aliasing import follow_tuples, in_place_operands, leaf_indices
from fusionscope.graph.buffer_sharing import may_share
from fusionscope.graph.buffers import (
    Buffer,
    find_body,
    find_buffers,
    walk_control_flow,
)
from fusionscope.graph.fusing import add_element, clone_into
from fusionscope.graph.memory_reuse import Sharing
from fusionscope.graph.mutable import MutableComputation, MutableInstruction, MutableModule
from fusionscope.graph.properties import is_elementwise
from fusionscope.graph.reachability import Reachability
from fusionscope.hlo.search import reachable
from fusionscope.hlo.shape import TUPLE, Shape
from fusionscope.hlo.views import TUPLES

_SAME = frozenset({"bitcast", "opt-barrier"})
_FREE = frozenset({"bitcast", "tuple"})
_LEAST_FILL = 1 << 20  # bytes: smaller ones are copied


class _Value(NamedTuple):
    """The part of an instruction's result at ``at``, an array."""

    maker: MutableInstruction
    at: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        shape = self.maker.shape
        for number in self.at:
            shape = shape.elements[number]
        return shape.byte_size

    @property
    def is_given(self) -> bool:
        return self.maker.opcode in ("constant", "parameter")


class _Copy(NamedTuple):
    """A copy of ``value``, which ``waits`` for other readers of the buffer that it is written to: a
    control dependency.
    """

    value: _Value
    waits: bool = False


class Copied(NamedTuple):
    """A value that is copied: its size in bytes, and the computation that copies it."""

    computation: str
    size: int


class Part(NamedTuple):
    """The part at ``at`` of the parameter of a computation."""

    computation: str
    parameter: str
    at: tuple[int, ...]


class Copies(NamedTuple):
    """What is copied how often, and how many kernels must run before one that overwrites what they
    read and does not depend on them, or a part of a parameter is copied after all.
    """

    copied: Counter[Copied]
    left_to_order: Counter[Part]


def insert_copies(
    graph: MutableModule,
    backend: str | None,
    sharing: Sharing = may_share,
    read_late: Callable[[], Collection[Part]] = frozenset,
) -> Copies:
    """Insert the copies that the compiler inserts into ``graph``, the module after fusion, and
    return what they copy. Nothing reads them: only their costs are right. ``sharing`` tells whether
    a kernel may write over an operand. Where the order of kernels decides, what ``read_late``
    returns is copied.
    """
    buffers = find_buffers(graph)
    copied: Counter[Copied] = Counter()
    left_to_order: Counter[Part] = Counter()
    for computation in list(walk_control_flow(graph)):
        is_entry = computation is graph.entry
        copies = _Copies(
            computation,
            buffers.get(computation, []),
            is_entry=is_entry,
            may_order=backend == "gpu",
            sharing=sharing,
        )
        for value, waits in list(copies.find()):
            copied[Copied(computation.name, value.size)] += 1
            may_fuse = is_entry and not waits
            if backend != "gpu" or not (
                _is_filled_again(value) or (may_fuse and _becomes_output(value))
            ):
                _copy(value)
        for old, count in copies.left_to_order.items():
            part = Part(computation.name, old.maker.name, old.at)
            left_to_order[part] = count
            if part in read_late():
                copied[Copied(computation.name, old.size)] += 1
                _copy(old)
    return Copies(copied, left_to_order)


def copied_parts(graph: MutableModule) -> frozenset[Part]:
    """Return the parts of parameters in whose buffers results are returned, and that are copied,
    they or the results. ``graph`` has the compiler's copies.
    """
    return frozenset(
        Part(computation.name, buffer.parameter.name, buffer.part)
        for computation, buffers in find_buffers(graph).items()
        for buffer in buffers
        if _origin(computation.root, buffer.output).maker.opcode == "copy"
        or any(
            reader.opcode == "copy" for reader in _readers(_Value(buffer.parameter, buffer.part))
        )
    )


def _copy(value: _Value) -> None:
    maker, computation = value.maker, value.maker.computation
    for number in value.at:
        maker = computation.make(
            "get-tuple-element", maker.shape.elements[number], [maker], f", index={number}"
        )
    computation.make("copy", maker.shape, [maker])


def _is_filled_again(value: _Value) -> bool:
    """Compute a large value with equal elements once more, instead of copying it, unless one
    instruction reads the value and the copy. Return whether that is possible.

    Source: xla/backends/gpu/transforms/copy_fusion.cc, ShouldRematerializeConstantFill.
    """
    fusion = value.maker
    is_fill = (
        fusion.is_loop_fusion
        and not fusion.operands
        and len(fusion.fused.instructions) == 2
        and fusion.fused.root.opcode == "broadcast"
        and fusion.shape.byte_size >= _LEAST_FILL
    )
    if is_fill and len(list(_readers(value))) > 1:
        clone_into(fusion, fusion.computation)
        return True
    return False


def _becomes_output(value: _Value) -> bool:
    """Make a copy another output of the fusion that computes the value. Return whether that is
    possible.

    Source: xla/backends/gpu/transforms/copy_fusion.cc.
    """
    fusion = value.maker
    if fusion.opcode != "fusion" or fusion.is_custom_fusion:
        return False
    if value.at:
        readers = [user for user in fusion.users if int(user.attributes["index"]) == value.at[0]]
        if sum(len(reader.users) for reader in readers) > 1:
            return False
    for inside in reachable(fusion.fused.parameters, lambda inside: inside.users):
        opcode = inside.opcode
        if opcode not in _FREE | {"parameter"} and (opcode == "copy" or not is_elementwise(inside)):
            return False
    fused, root = fusion.fused, fusion.fused.root
    outputs = list(root.operands) if fusion.is_multi_output else [root]
    source = outputs[value.at[0] if value.at else 0]
    outputs.append(fused.make("copy", source.shape, [source]))
    shape = Shape(TUPLE, elements=tuple(output.shape for output in outputs))
    fused.root = fused.make("tuple", shape, outputs)
    fusion.shape = shape
    if root.opcode == "tuple":
        fused.remove(root)
    else:
        fusion.computation.replace_uses(fusion, add_element(fusion, 0))
    return True


class _Copies:
    """The values of a computation that are overwritten, and by what.

    ``may_order`` is whether instructions that do not depend on each other run in the order that
    needs no copies. That is what schedules for GPUs do.
    """

    def __init__(
        self,
        computation: MutableComputation,
        buffers: Sequence[Buffer],
        *,
        is_entry: bool,
        may_order: bool,
        sharing: Sharing,
    ) -> None:
        self.left_to_order: Counter[_Value] = Counter()
        self._root = computation.root
        self._buffers = buffers
        self._is_entry = is_entry
        self._may_order = may_order
        self._may_share = sharing
        self._order = computation.post_order()
        self._reachability: Reachability | None = None
        self._results = Counter(_origin(self._root, index) for index in leaf_indices(self._root))
        self._shared = {_Value(buffer.parameter, buffer.part) for buffer in buffers}
        self._writers: dict[_Value, list[MutableInstruction]] = {}
        self._overwritten: dict[_Value, _Value] = {}  # the old value of each new one
        for instruction in self._order:
            for old, new in _overwritten(instruction):
                self._writers.setdefault(old, []).append(instruction)
                self._overwritten[new] = old

    def find(self) -> Iterator[_Copy]:
        """Yield each copy that is needed."""
        kept_values = set()
        for value, writers in self._writers.items():
            may_write = not (self._must_not_change(value) or self._results[value]) and any(
                self._runs_last(writer, value) for writer in writers
            )
            yield from [_Copy(value)] * (len(writers) - may_write)
            if not may_write:
                kept_values.add(value)
        reused: set[_Value] = set()
        for buffer in self._buffers:
            old = _Value(buffer.parameter, buffer.part)
            new = _origin(self._root, buffer.output)
            if new != old:
                later = self._may_run_later(old, new)
                count = self._between(old, new, kept_values, is_taken=new in reused)
                if later and self._may_order and not count:
                    self.left_to_order[old] = later
                yield from [_Copy(new, waits=later > 0)] * count
            reused.add(new)
        if self._is_entry:
            for value, count in self._results.items():
                yield from [_Copy(value)] * (count - (not self._must_not_change(value)))

    def _may_run_later(self, old: _Value, new: _Value) -> int:
        """Return how many readers of ``old`` may run after ``new`` is made. If any do, the compiler
        copies both until instructions have an order: the copy of ``new`` waits for that of ``old``.
        """
        return sum(
            reader is not new.maker and not self._is_before(reader, new.maker)
            for reader in _readers(old)
        )

    def _must_not_change(self, value: _Value) -> bool:
        is_argument = self._is_entry and value.maker.opcode == "parameter"
        return value.maker.opcode == "constant" or (is_argument and value not in self._shared)

    def _runs_last(self, writer: MutableInstruction, value: _Value) -> bool:
        """Return whether everything else reads ``value`` before ``writer``. Other writers read a
        copy.
        """
        other_readers = (reader for reader in _readers(value) if reader is not writer)
        if self._may_order:
            copied = self._writers[value]
            return not any(
                self._is_before(writer, reader) for reader in other_readers if reader not in copied
            )
        return all(self._is_before(reader, writer) for reader in other_readers)

    def _between(
        self, old: _Value, new: _Value, kept_values: set[_Value], *, is_taken: bool
    ) -> int:
        """Return the number of copies that are needed to put ``new`` where ``old`` is: of ``old``
        if it is read too late, and of ``new`` if it is made too early.
        """
        first = new
        while first in self._overwritten and first != old:
            first = self._overwritten[first]
        is_updated = first == old
        if is_updated and old not in kept_values:
            return int(is_taken)
        is_elsewhere = is_taken or (first.is_given and not is_updated)
        readers = list(_readers(old))
        if self._may_order:
            is_free = is_updated or self._may_replace(old, first, readers)
            return int(is_elsewhere or not is_free)
        is_late = not all(self._is_before(reader, new.maker) for reader in readers)
        if is_late or self._results[old]:
            depends = any(self._is_before(reader, first.maker) for reader in readers)
            return 1 + (is_elsewhere or not (is_updated or depends))
        is_free = not is_updated and self._may_replace(old, first, readers)
        return int(is_elsewhere or not is_free)

    def _may_replace(self, old: _Value, new: _Value, readers: Sequence[MutableInstruction]) -> bool:
        """Return whether nothing reads ``old`` after ``new`` is made."""
        for reader in readers:
            if reader is new.maker:
                reads = (operand for operand in reader.operands if _origin(operand, ()) == old)
                if not all(self._may_share(operand, reader, new.at) for operand in reads):
                    return False
            elif self._may_order:
                if self._is_before(new.maker, reader):
                    return False
            elif not self._is_before(reader, new.maker):
                return False
        return True

    def _is_before(self, first: MutableInstruction, second: MutableInstruction) -> bool:
        if self._reachability is None:
            self._reachability = Reachability(self._order)
        return self._reachability.reaches(first, second)


def _readers(value: _Value) -> Iterator[MutableInstruction]:
    """Yield the instructions that read a value."""
    pending = [value.maker]
    visited = {value.maker}
    while pending:
        for user in pending.pop().users:
            if user in visited:
                continue
            visited.add(user)
            if user.opcode in TUPLES or user.opcode in _SAME:
                pending.append(user)
            elif any(
                _origin(operand, index) == value
                for operand in user.operands
                for index in leaf_indices(operand)
            ):
                yield user


def _origin(instruction: MutableInstruction, index: tuple[int, ...]) -> _Value:
    """Return the value that is the part of ``instruction`` at ``index``."""
    while True:
        instruction, index = follow_tuples(instruction, index)
        if instruction.opcode not in _SAME:
            return _Value(instruction, index)
        instruction = instruction.operands[0]


def _overwritten(instruction: MutableInstruction) -> Iterator[tuple[_Value, _Value]]:
    """Yield the values that an instruction overwrites, each with the new one."""
    if instruction.opcode == "while":
        body = find_body(instruction)
        for index in leaf_indices(instruction):
            if _origin(body.root, index) != _Value(body.parameters[0], index):
                yield _origin(instruction.operands[0], index), _Value(instruction, index)
    for slot, output, part in in_place_operands(instruction):
        yield _origin(instruction.operands[slot], part), _Value(instruction, output)
