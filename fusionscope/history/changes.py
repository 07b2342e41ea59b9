"""The differences between two matched modules: edits of instructions and changes of fusions."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from fusionscope.history.kernels import (
    KernelKind,
    fusion_emitter,
    kind_and_emitter,
    operations_in,
)
from fusionscope.history.matching import PLACES, Matching, match
from fusionscope.history.meaning import (
    ATTRIBUTES,
    AttributeMeaning,
    is_commutative,
    normal_attributes,
    normal_constant,
    normal_shape,
    says,
)
from fusionscope.history.operations import TRANSPARENT, Operations, flatten, plain_shape
from fusionscope.history.pairing import MatchKind
from fusionscope.history.sameness import Sameness, check_sameness
from fusionscope.hlo import Computation, Instruction, Module
from fusionscope.hlo.attributes import read_names, read_value
from fusionscope.hlo.literals import is_elided
from fusionscope.hlo.model import Statement


class EditKind(StrEnum):
    UPDATED = "updated"
    MOVED = "moved"  # into, out of or between computations
    INSERTED = "inserted"
    REMOVED = "removed"
    COPIED = "copied"  # computed one more time than before
    MERGED = "merged"  # computed one time fewer than before
    SWAPPED = "swapped"  # reads its two operands in swapped order, with the same result
    DIFFERENT = "different"  # differs, and no other edit describes how


@dataclass(frozen=True, slots=True, eq=False)
class Edit:
    """One instruction that changed.

    ``before`` is None for an inserted instruction, ``after`` for a removed one. For a copied or
    merged instruction, the other field is the instruction that it was matched with. ``fields``
    lists what was updated, with both texts: ``opcode``, ``shape``, ``layout``, ``literal``,
    ``operands``, ``root`` (another instruction gives the result) or the name of an attribute.
    """

    kind: EditKind
    before: Instruction | None
    after: Instruction | None
    fields: tuple[tuple[str, str, str], ...] = ()
    step: MatchKind | None = None

    @property
    def instruction(self) -> Instruction:
        subject = self.before if self.kind in (EditKind.REMOVED, EditKind.MERGED) else self.after
        subject = subject or self.before
        assert subject is not None
        return subject


class ChangeKind(StrEnum):
    FORMED = "formed"
    GROWN = "grown"
    SHRUNK = "shrunk"
    MERGED = "merged"
    SPLIT = "split"
    DUPLICATED = "duplicated"
    MULTI_OUTPUT = "multi-output"
    DISSOLVED = "dissolved"
    LIBRARY = "library"
    WRAPPED = "wrapped"
    EMITTER = "emitter"
    REWRITTEN = "rewritten"  # operations inside were added or removed
    RENAMED = "renamed"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True, eq=False)
class FusionChange:
    """One change of fusions.

    ``before`` are fusions and single operations of the first module. ``after`` are the fusions and
    operations of the second module that they became. ``gained`` are operations of the second module
    that joined the fusion, ``lost`` those of the first that left it.
    """

    kind: ChangeKind
    before: tuple[Instruction, ...]
    after: tuple[Instruction, ...]
    gained: tuple[Instruction, ...] = ()
    lost: tuple[Instruction, ...] = ()


# Instructions whose operands follow from the contents of their computations.
_FOLLOWS = frozenset({"get-tuple-element", "parameter"})


def find_edits(matching: Matching) -> tuple[Edit, ...]:
    """Return one edit for each instruction that was updated, moved, inserted, removed, copied,
    merged or swapped.
    """
    fields = _changed_fields(matching)
    edits: list[Edit] = []
    for before, after in matching.after.items():
        step = matching.steps[before]
        if before in fields:
            edits.append(Edit(EditKind.UPDATED, before, after, fields[before], step))
        if _is_swapped(matching, before, after):
            old, new = (", ".join(o.name for o in side.operands) for side in (before, after))
            edits.append(Edit(EditKind.SWAPPED, before, after, (("operands", old, new),), step))
        if matching.computations.get(before.computation) is not after.computation:
            edits.append(Edit(EditKind.MOVED, before, after, (), step))
    for after, before in matching.copies.items():
        fields_of_copy = _fields_of_double(matching, before, after, after.computation)
        edits.append(Edit(EditKind.COPIED, before, after, fields_of_copy))
    for before, after in matching.merged.items():
        fields_of_copy = _fields_of_double(matching, before, after, before.computation)
        edits.append(Edit(EditKind.MERGED, before, after, fields_of_copy))
    edits += [Edit(EditKind.REMOVED, side, None) for side in matching.removed]
    edits += [Edit(EditKind.INSERTED, None, side) for side in matching.inserted]
    for root, before, after in matching.results:
        if not _is_result_told(fields, root):
            field = "root", before.name, after.name
            edits.append(Edit(EditKind.UPDATED, before, after, (field,)))
    return tuple(edits)


def _fields_of_double(
    matching: Matching, before: Instruction, after: Instruction, computation: Computation
) -> tuple[tuple[str, str, str], ...]:
    """Return what differs between an instruction and its copy; their operands only if the
    ``computation`` was copied or merged as a whole.
    """
    fields = _own_updates(matching, before, after)
    if computation in matching.shared:
        fields = updates(matching, before, after)
    return tuple(fields)


def is_of_shared(matching: Matching, edit: Edit) -> bool:
    """Return whether an edit only says that callers share a computation, or no longer do."""
    end = {EditKind.COPIED: edit.after, EditKind.MERGED: edit.before}.get(edit.kind)
    return end is not None and end.computation in matching.shared and not edit.fields


# The differences by instruction of the first module: names of fields with both texts.
_Fields = dict[Instruction, tuple[tuple[str, str, str], ...]]


def _changed_fields(matching: Matching) -> _Fields:
    channels = _renumbered_channels(matching)
    fields: _Fields = {}
    for before, after in matching.after.items():
        changes = tuple(updates(matching, before, after))
        if before in channels:
            changes += (channels[before],)
        if changes:
            fields[before] = changes
    for before, sources in matching.rewired.items():
        if before in matching.after and not _is_told(fields, before):
            old, new = (", ".join(source.name for source in side) for side in sources)
            fields[before] = (*fields.get(before, ()), ("operands", old, new))
    return fields


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """The differences between two modules. ``matching`` is None if the modules are equal, including
    the order of operands. ``swapped`` are edits of operations that read swapped operands and
    compute the same; they do not count as differences.
    """

    matching: Matching | None
    fusions: tuple[FusionChange, ...] = ()
    edits: tuple[Edit, ...] = ()
    swapped: tuple[Edit, ...] = ()


def find_changes(before: Module, after: Module, backend: str | None) -> Changes:
    """Return the differences between two modules. They are empty exactly if ``check_sameness``
    finds no difference. Raises ``UnusableInput`` like ``Module.check``.
    """
    before.check()
    after.check()
    sameness: Sameness | None = None
    if _opcodes(before) == _opcodes(after):  # otherwise they differ
        sameness = check_sameness(before, after)
        if sameness.is_same and not sameness.is_swapped:
            return Changes(None)
    matching = match(before, after)
    edits = tuple(edit for edit in find_edits(matching) if not is_of_shared(matching, edit))
    swapped = tuple(edit for edit in edits if edit.kind is EditKind.SWAPPED)
    if sameness is not None and sameness.is_same:
        return Changes(matching, swapped=swapped)
    fusions = find_fusion_changes(matching, backend)
    edits = tuple(edit for edit in edits if edit.kind is not EditKind.SWAPPED)
    if all(change.kind is ChangeKind.RENAMED for change in fusions) and all(
        map(is_incidental, edits)
    ):
        sameness = sameness or check_sameness(before, after)
        edits += _unexplained(matching, sameness.begins)
    return Changes(matching, fusions, edits, swapped)


def _opcodes(module: Module) -> set[tuple[str, ...]]:
    """Return the opcodes of each computation. Equal computations count once."""
    return {
        tuple(sorted(s[3] for s in computation.graph.statements))
        for computation in module.computations
    }


def _unexplained(
    matching: Matching, begins: tuple[list[Instruction], list[Instruction]]
) -> tuple[Edit, ...]:
    """Return edits for differences that no other edit describes. ``begins`` are the instructions of
    each module at which the difference begins.
    """
    pairs = {earlier: matching.after.get(earlier) for earlier in begins[0]}
    matched = {*pairs.values()}
    ends: list[tuple[Instruction | None, Instruction | None]] = [*pairs.items()]
    ends += [(matching.before.get(later), later) for later in begins[1] if later not in matched]
    return tuple(
        Edit(EditKind.DIFFERENT, *both, (("text", _text(both[0]), _text(both[1])),))
        for both in ends
    )


def _text(instruction: Instruction | None) -> str:
    if instruction is None:
        return ""
    statement = instruction.statement
    attributes = normal_attributes(statement.attributes)
    attributes_text = "".join(f", {key}={value}" for key, value in attributes.items())
    root = "ROOT " if instruction.is_root else ""
    return f"{root}{statement.shape} {statement.opcode}({statement.inside}){attributes_text}"


def _is_result_told(fields: _Fields, root: Instruction) -> bool:
    """Return whether a changed result is already reported: as an edit of the root of a computation,
    or of an element of a tuple that the root reads.
    """
    return any(name in _RESULTS for name, _, _ in fields.get(root, ())) or any(
        name == "index" for operand in root.operands for name, _, _ in fields.get(operand, ())
    )


_RESULTS = frozenset({"index", "opcode", "operands", "shape"})


def _is_told(fields: _Fields, reader: Instruction) -> bool:
    """Return whether a changed operand is reported already, as an edit of reader or element."""
    return any(name == "operands" for name, _, _ in fields.get(reader, ())) or any(
        name == "index" for operand in reader.operands for name, _, _ in fields.get(operand, ())
    )


def _is_swapped(matching: Matching, before: Instruction, after: Instruction) -> bool:
    """Return whether a commutative operation reads its two operands in swapped order."""
    if not (is_commutative(before.statement) and is_commutative(after.statement)):
        return False
    read = before.operands, after.operands
    if len(read[0]) != 2 or len(read[1]) != 2:
        return False
    first, second = ([matching.values.get(source) for source in side] for side in read)
    return first != second and first == second[::-1]


def _renumbered_channels(matching: Matching) -> dict[Instruction, tuple[str, str, str]]:
    """Return the instructions that share their channel with other instructions than before. The
    number of a channel itself means nothing.
    """
    numbers: tuple[dict[str, str], dict[str, str]] = ({}, {})
    renumbered: dict[Instruction, tuple[str, str, str]] = {}
    for before, after in matching.after.items():
        if "channel_id" in before.statement.attributes:
            old_channel, new_channel = (
                instruction.attributes.get("channel_id", "") for instruction in (before, after)
            )
            if (
                old_channel
                and new_channel
                and (
                    numbers[0].setdefault(old_channel, new_channel) != new_channel
                    or numbers[1].setdefault(new_channel, old_channel) != old_channel
                )
            ):
                renumbered[before] = "channel_id", old_channel, new_channel
    return renumbered


def updates(
    matching: Matching, before: Instruction, after: Instruction
) -> Iterator[tuple[str, str, str]]:
    """Yield what differs between two instructions: names of fields with both texts."""
    yield from _own_updates(matching, before, after)
    opcodes = before.opcode, after.opcode
    if before.opcode not in _FOLLOWS and "fusion" not in opcodes:
        yield from _operands(matching, before, after)


def _own_updates(
    matching: Matching, before: Instruction, after: Instruction
) -> Iterator[tuple[str, str, str]]:
    """Yield the same without operands."""
    old, new = before.statement, after.statement
    if old.opcode != new.opcode:
        yield "opcode", old.opcode, new.opcode
    if old.shape != new.shape:
        if plain_shape(old.shape) != plain_shape(new.shape):
            yield "shape", str(before.shape), str(after.shape)
        elif normal_shape(old.shape) != normal_shape(new.shape):
            yield "layout", str(before.shape), str(after.shape)
    if old.opcode == new.opcode:
        if old.opcode == "constant":
            literals = old.inside.strip(), new.inside.strip()
            if (
                literals[0] != literals[1]
                and not any(map(is_elided, literals))
                and normal_constant(old) != normal_constant(new)
            ):
                yield "literal", *literals
        yield from _attributes(matching, before, after)
    else:
        yield from _execution(old, new)


def _operands(
    matching: Matching, before: Instruction, after: Instruction
) -> Iterator[tuple[str, str, str]]:
    """Yield the operands that are other values than before."""
    values = matching.values
    read = before.operands, after.operands
    if len(read[0]) == len(read[1]) and all(
        values[a] == values[b]
        or matching.after.get(a) is b
        or matching.copies.get(b) is a
        or matching.merged.get(a) is b
        for a, b in zip(*read, strict=True)
    ):
        return
    # Elements of a tuple count as separate operands.
    leaves = [tuple(flatten(tuple([values[operand] for operand in operands]))) for operands in read]
    if is_commutative(before.statement) and is_commutative(after.statement):
        leaves = [tuple(sorted(leaf)) for leaf in leaves]
    if leaves[0] != leaves[1]:
        names = [", ".join(operand.name for operand in operands) for operands in read]
        if names[0] == names[1]:  # parameters of the same names are other values now
            names = [
                ", ".join(_source(matching, number, operand) for operand in operands)
                for number, operands in enumerate(read)
            ]
        yield "operands", names[0], names[1]


def _source(matching: Matching, side: int, operand: Instruction) -> str:
    """Return the name of the value ``operand``, outside of its fusion if it is a parameter."""
    if operand.opcode != "parameter":
        return operand.name
    for region in matching.regions[side].values():
        position = region.carried.get(operand)
        if isinstance(position, int):
            source = region.operations[position]
            number = f" (parameter {source.parameter_number})" if source is operand else ""
            return f"{source.name}{number}"
    return operand.name


def _attributes(
    matching: Matching, before: Instruction, after: Instruction
) -> Iterator[tuple[str, str, str]]:
    texts = before.statement.attributes, after.statement.attributes
    if texts[0] == texts[1] and not _NAMING.search(texts[0]):
        return
    old, new = before.attributes, after.attributes
    normal = [normal_attributes(text) for text in texts]
    for key in dict.fromkeys((*normal[0], *normal[1])):
        meaning = says(key)
        if meaning is AttributeMeaning.CALLS:
            yield from _calls(matching, key, before, after)
        elif meaning is AttributeMeaning.CHANNEL:
            if (key in old) != (key in new):
                yield key, old.get(key, ""), new.get(key, "")
        elif (
            meaning is not AttributeMeaning.ORDER
            and normal[0].get(key) != normal[1].get(key)
            and not (key == "kind" and _is_told_as_emitter(before, after))
            and not (key == "index" and _is_same_element(matching, before, after))
        ):
            texts = old.get(key, ""), new.get(key, "")
            values = normal[0].get(key, ""), normal[1].get(key, "")
            if key == "backend_config":
                yield from _json_fields(key, *values)
            else:  # equal texts differ after a comma
                yield (key, *(values if texts[0] == texts[1] else texts))
    yield from _control_predecessors(matching, before, after)


def _execution(old: Statement, new: Statement) -> Iterator[tuple[str, str, str]]:
    """Yield the attributes of different operations that say where or how they run, if they say
    so of any operation.
    """
    normal = [normal_attributes(statement.attributes) for statement in (old, new)]
    for key in _OF_EVERY_OPERATION:
        values = normal[0].get(key, ""), normal[1].get(key, "")
        if values[0] != values[1]:
            yield key, *values


_OF_EVERY_OPERATION = ("frontend_attributes", "sharding")


def _control_predecessors(
    matching: Matching, before: Instruction, after: Instruction
) -> Iterator[tuple[str, str, str]]:
    key = "control-predecessors"
    waits = [set(instruction.waits_for) for instruction in (before, after)]
    if {matching.after.get(instruction, instruction) for instruction in waits[0]} != waits[1]:
        names = [", ".join(sorted(instruction.name for instruction in side)) for side in waits]
        yield key, names[0], names[1]


_NAMING = re.compile(
    "|".join(
        key
        for key, told in ATTRIBUTES.items()
        if told in (AttributeMeaning.CALLS, AttributeMeaning.ORDER)
    )
)


def _is_told_as_emitter(before: Instruction, after: Instruction) -> bool:
    """Return whether a changed fusion kind follows from an emitter's change, reported anyway."""
    emitters = [fusion_emitter(instruction.statement.attributes) for instruction in (before, after)]
    is_outermost = before.computation not in before.computation.module.outermost_fusions
    return is_outermost and emitters[0] != emitters[1]


def _is_same_element(matching: Matching, before: Instruction, after: Instruction) -> bool:
    """Return whether an element has another index but is the same value."""
    if matching.steps.get(before) is MatchKind.PLACE:
        return matching.values[before] == matching.values[after]
    return after in matching.recounted


def _calls(
    matching: Matching, key: str, before: Instruction, after: Instruction
) -> Iterator[tuple[str, str, str]]:
    """Yield the called computations that are not matched with each other. Differences between
    matched computations are reported there, and differences between fusions with the fusions.
    """
    if before.opcode in TRANSPARENT:
        return
    names = [read_names(instruction.attributes.get(key, "")) for instruction in (before, after)]
    sides = [
        [
            instruction.computation.module.by_name[name]
            for name in names_of_side
            if name in instruction.computation.module.by_name
        ]
        for instruction, names_of_side in zip((before, after), names, strict=True)
    ]
    expression = Operations().expression
    if len(sides[0]) != len(sides[1]) or any(
        matching.computations.get(old) is not new and expression(old) != expression(new)
        for old, new in zip(*sides, strict=True)
    ):
        yield key, ", ".join(names[0]), ", ".join(names[1])


def is_incidental(edit: Edit) -> bool:
    """Return whether an edit merely accompanies a change of fusions: an instruction that moved into
    or out of a fusion, or parameters, tuples and their elements around it. A shape or layout that
    changed is incidental if it is that of the value that the instruction passes on.
    """
    ends = [end for end in (edit.before, edit.after) if end is not None]
    opcodes = {end.opcode for end in ends}
    in_fusion = [end.computation in end.computation.module.outermost_fusions for end in ends]
    if edit.kind is EditKind.DIFFERENT:
        return False
    if edit.fields:
        names = {name for name, _, _ in edit.fields}
        if not names <= _INCIDENTAL or (names != {"operands"} and not all(map(_has_shape, ends))):
            return False
    if edit.kind is EditKind.MOVED:
        return any(in_fusion) or not opcodes.isdisjoint(CARRIERS)
    if "parameter" in opcodes:
        return any(in_fusion) and (edit.kind is EditKind.UPDATED or all(map(_is_plain, ends)))
    if edit.kind is EditKind.UPDATED and not any(in_fusion):
        return False
    return not opcodes.isdisjoint(CARRIERS)


def _is_plain(parameter: Instruction) -> bool:
    """Return whether a parameter only passes on what its caller passes."""
    return _has_shape(parameter) and not normal_attributes(parameter.statement.attributes)


def _has_shape(carrier: Instruction) -> bool:
    """Return whether an instruction that computes nothing has the shape and layout of the value
    that it passes on; true if there is no such value.
    """
    if carrier.opcode == "parameter":
        number = carrier.parameter_number or 0
        return all(
            number >= len(caller.operands) or _are_laid_out_alike(caller.operands[number], carrier)
            for caller in carrier.computation.module.callers.get(carrier.computation, ())
            if caller.opcode in TRANSPARENT
        )
    if carrier.opcode == "get-tuple-element":
        whole, index = carrier.operands[0].shape, int(carrier.attributes.get("index", "0"))
        if index >= len(whole.elements):
            return True
        return normal_shape(str(whole.elements[index])) == normal_shape(carrier.statement.shape)
    if carrier.opcode in ("fusion", "call"):
        return _are_laid_out_alike(carrier.called[0].root, carrier)
    return True


def _are_laid_out_alike(first: Instruction, second: Instruction) -> bool:
    shapes = first.statement.shape, second.statement.shape
    return shapes[0] == shapes[1] or normal_shape(shapes[0]) == normal_shape(shapes[1])


_INCIDENTAL = frozenset({"layout", "operands", "shape"})
# Instructions that compute nothing.
CARRIERS = PLACES | {"async-done", "async-update"}


def same_but_for_notes(matching: Matching) -> bool:
    """Return whether two modules differ in nothing but names, metadata and annotations for later
    passes (backend configurations, shardings, annotations).
    """
    if any(change.kind is not ChangeKind.RENAMED for change in find_fusion_changes(matching, None)):
        return False
    return all(
        is_incidental(edit)
        or edit.kind is EditKind.SWAPPED
        or (
            edit.kind is EditKind.UPDATED
            and all(name.partition(".")[0] in _NOTES for name, _, _ in edit.fields)
        )
        for edit in find_edits(matching)
    )


_NOTES = frozenset({"backend_config", "frontend_attributes", "sharding", "control-predecessors"})


def _json_fields(key: str, old: str, new: str) -> Iterator[tuple[str, str, str]]:
    """Yield the differences between two JSON objects. The order of keys does not count."""
    sides: list[dict[str, str]] = []
    for text in (old, new):
        value = read_value(key, text) if text else {}
        if not isinstance(value, dict):
            yield key, old, new
            return
        leaves: dict[str, str] = {}
        pending: list[tuple[str, object]] = [(key, value)]
        while pending:
            path, part = pending.pop()
            if isinstance(part, dict) and part:
                pending.extend((f"{path}.{name}", inner) for name, inner in part.items())
            else:
                leaves[path] = json.dumps(part)
        sides.append(leaves)
    paths = sides[0].keys() | sides[1].keys()
    for path in sorted(paths - {key} if len(paths) > 1 else paths):  # {} beside its fields
        before, after = (leaves.get(path, "") for leaves in sides)
        if before != after:
            yield path, before, after


class _Fusions:
    """The outermost fusions of one module, their operations, and the fusion of each instruction."""

    def __init__(self, module: Module) -> None:
        self._of = module.outermost_fusions
        self.members: dict[Instruction, list[Instruction]] = defaultdict(list)
        for computation, fusion in self._of.items():
            self.members[fusion] += [
                i for i in computation.instructions if i.opcode not in _NOT_MEMBERS
            ]

    def home(self, instruction: Instruction) -> Instruction | None:
        """Return the fusion that an instruction is in, or None if it is unfused."""
        return self._of.get(instruction.computation)


_NOT_MEMBERS = frozenset({"bitcast", "constant", "fusion", "get-tuple-element", "parameter",
                          "tuple"})  # fmt: skip


def find_fusion_changes(matching: Matching, backend: str | None) -> tuple[FusionChange, ...]:
    """Return the changes of fusions between two modules, in the order of the second module's text.

    The contents of each fusion of the second module are looked up in the first. Fusions that share
    a result, or most of their operations, are the same fusion.
    """
    return tuple(_Changes(matching, backend).find())


@dataclass(frozen=True, slots=True, eq=False)
class _Moves:
    """The operations that moved into and out of one fusion.

    ``joined`` are operations of the second module that were elsewhere, ``new`` those that did not
    exist. ``left`` are operations of the first module that are elsewhere now, ``removed`` those
    that no longer exist. ``is_told`` is also true if another change reports everything that moved.
    """

    joined: tuple[Instruction, ...]
    left: tuple[Instruction, ...]
    removed: tuple[Instruction, ...]
    new: tuple[Instruction, ...]
    is_told: bool


class _Changes:
    def __init__(self, matching: Matching, backend: str | None) -> None:
        self._matching = matching
        self._backend = backend
        self._before, self._after = (_Fusions(module) for module in matching.modules)
        # Operations of the first module that the second computes in several places, at least one of
        # them a fusion.
        self._places = self._find_places()

    def find(self) -> Iterator[FusionChange]:
        yield from self._there()
        yield from self._no_more()
        by_places: dict[tuple[Instruction, ...], list[Instruction]] = defaultdict(list)
        for before, homes in self._places.items():
            home = self._before.home(before)
            # A fusion without a counterpart is reported as a whole.
            if home is None or home in self._matching.after:
                by_places[homes].append(before)
        for homes, producers in by_places.items():
            yield FusionChange(ChangeKind.DUPLICATED, tuple(producers), homes)
        yield from self._library_calls()

    def _there(self) -> Iterator[FusionChange]:
        """Yield the changes of the second module's fusions, those that were split last."""
        matching = self._matching
        splits: dict[tuple[Instruction, ...], list[Instruction]] = defaultdict(list)
        for fusion, members in self._after.members.items():
            earlier = matching.before.get(fusion)
            if is_idle(matching, fusion):
                continue
            changes = (
                self._changed(earlier, fusion, members)
                if earlier is not None and earlier.opcode == "fusion"
                else self._formed(fusion, members)
            )
            for change in changes:
                if change.kind is ChangeKind.SPLIT:
                    splits[change.before].append(fusion)
                else:
                    yield change
        for before, parts in splits.items():
            later = dict.fromkeys(matching.after[fusion] for fusion in before)
            yield FusionChange(ChangeKind.SPLIT, before, (*later, *parts))

    def _no_more(self) -> Iterator[FusionChange]:
        """Yield the changes of the first module's fusions that have no counterpart."""
        matching = self._matching
        for fusion, members in self._before.members.items():
            later = matching.after.get(fusion)
            is_there = (
                later is not None and later.opcode == "fusion" and not is_idle(matching, later)
            )
            if not is_there and not is_idle(matching, fusion):
                yield from self._gone(fusion, members)

    def _library_calls(self) -> Iterator[FusionChange]:
        """Yield operations that became library calls."""
        for before, after in self._matching.after.items():
            if (
                before.opcode not in ("custom-call", "fusion")
                and after.opcode == "custom-call"
                and kind_and_emitter(after, self._backend)[0] is KernelKind.LIBRARY
            ):
                yield FusionChange(ChangeKind.LIBRARY, (before,), (after,))

    def _find_places(self) -> dict[Instruction, tuple[Instruction, ...]]:
        matching = self._matching
        everywhere: dict[Instruction, list[Instruction]] = defaultdict(list)
        for after, before in matching.copies.items():
            if after.opcode not in _NOT_MEMBERS and after not in matching.idle:
                everywhere[before].append(after)
        places: dict[Instruction, tuple[Instruction, ...]] = {}
        for before, copies in everywhere.items():
            first = matching.after[before]
            homes = dict.fromkeys(
                self._after.home(copy) or copy
                for copy in ([] if first in matching.idle else [first]) + copies
            )
            if len(homes) > 1 and any(home.opcode == "fusion" for home in homes):
                places[before] = tuple(homes)
        return places

    def _origin(self, instruction: Instruction) -> Instruction | None:
        """Return the first module's instruction that this was matched with or copied from."""
        matching = self._matching
        return matching.before.get(instruction) or matching.copies.get(instruction)

    def _later_home(self, instruction: Instruction) -> Instruction | None:
        """Return the fusion that now holds an instruction of the first module, or the matched
        instruction itself if it is unfused. Return None if it no longer exists.
        """
        later = self._matching.after.get(instruction) or self._matching.merged.get(instruction)
        return None if later is None else self._after.home(later) or later

    def _sort(
        self, members: list[Instruction]
    ) -> tuple[dict[Instruction, list[Instruction]], dict[Instruction, Instruction]]:
        """Return members by their earlier fusion, and members that were unfused with their earlier
        instruction. New members are in neither.
        """
        fusions: dict[Instruction, list[Instruction]] = defaultdict(list)
        alone: dict[Instruction, Instruction] = {}
        for member in members:
            origin = self._origin(member)
            if origin is not None:
                home = self._before.home(origin)
                if home is None:
                    alone[member] = origin
                else:
                    fusions[home].append(member)
        return fusions, alone

    def _formed(self, fusion: Instruction, members: list[Instruction]) -> Iterator[FusionChange]:
        """Yield the change for a fusion without a counterpart in the first module."""
        matching = self._matching
        fusions, alone = self._sort(members)
        before = (*fusions, *dict.fromkeys(alone.values()))
        kind = ChangeKind.FORMED
        if kind_and_emitter(fusion, self._backend)[0] is KernelKind.LIBRARY:
            kind = ChangeKind.LIBRARY
        elif fusions and not alone and all(home in matching.after for home in fusions):
            if all(self._origin(member) in self._places for member in members):
                return  # reported as duplicated
            kind = ChangeKind.SPLIT
        elif not fusions and len(operations_in(fusion)) < 2:
            kind = ChangeKind.WRAPPED
        yield FusionChange(kind, before, (fusion,), tuple(members))

    def _changed(
        self, earlier: Instruction, fusion: Instruction, members: list[Instruction]
    ) -> Iterator[FusionChange]:
        """Yield the changes of one fusion."""
        moves = self._moves(earlier, fusion, members)
        if any(self._origin(member) not in self._places for member in moves.joined):
            origins = dict.fromkeys(o for m in moves.joined if (o := self._origin(m)) is not None)
            yield FusionChange(ChangeKind.GROWN, (earlier, *origins), (fusion,), moves.joined)
        if moves.left:
            homes = dict.fromkeys(now for member in moves.left if (now := self._later_home(member)))
            yield FusionChange(ChangeKind.SHRUNK, (earlier,), (fusion, *homes), (), moves.left)
        if moves.new or moves.removed:
            yield FusionChange(
                ChangeKind.REWRITTEN, (earlier,), (fusion,), moves.new, moves.removed
            )
        has_more_outputs = len(fusion.called[0].results) > len(earlier.called[0].results)
        if has_more_outputs:
            yield FusionChange(ChangeKind.MULTI_OUTPUT, (earlier,), (fusion,))
        emitters = [fusion_emitter(member.statement.attributes) for member in (earlier, fusion)]
        has_other_emitter = emitters[0] != emitters[1]
        if has_other_emitter:
            kinds = [kind_and_emitter(member, self._backend)[0] for member in (earlier, fusion)]
            is_library = kinds[1] is KernelKind.LIBRARY is not kinds[0]
            kind = ChangeKind.LIBRARY if is_library else ChangeKind.EMITTER
            yield FusionChange(kind, (earlier,), (fusion,))
        is_told = moves.is_told or has_more_outputs or has_other_emitter
        if earlier.name != fusion.name and not is_told:
            yield FusionChange(ChangeKind.RENAMED, (earlier,), (fusion,))

    def _moves(
        self, earlier: Instruction, fusion: Instruction, members: list[Instruction]
    ) -> _Moves:
        """Return the operations that moved between two matched fusions."""
        matching = self._matching
        fusions, alone = self._sort(members)
        remaining = {self._origin(member) for member in fusions.pop(earlier, ())}
        merged = [home for home in fusions if home not in matching.after]
        for home in merged:
            del fusions[home]  # reported as merged
        joined = (*alone, *(member for members_of in fusions.values() for member in members_of))
        left: list[Instruction] = []
        removed: list[Instruction] = []
        has_parted = False
        for each in self._before.members[earlier]:
            home_now = self._later_home(each)
            if each in remaining or home_now is fusion:
                continue
            has_parted = True
            if home_now is None:
                removed.append(each)
            elif home_now.opcode != "fusion" or home_now in matching.before:
                left.append(each)  # what went into a new fusion is part of that change
        new = tuple(member for member in members if self._origin(member) is None)
        is_told = bool(merged or joined or new) or has_parted
        return _Moves(joined, tuple(left), tuple(removed), new, is_told)

    def _gone(self, fusion: Instruction, members: list[Instruction]) -> Iterator[FusionChange]:
        """Yield the change for a fusion without a counterpart in the second module."""
        matching = self._matching
        became = matching.after.get(fusion)
        homes: dict[Instruction, None] = {}
        for member in members:
            homes.update(dict.fromkeys(self._places.get(member, ())))
            later = self._later_home(member)
            if later is not None and not (later.opcode == "fusion" and is_idle(matching, later)):
                homes[later] = None
        fusions = tuple(home for home in homes if home.opcode == "fusion")
        lost = tuple(members)
        if became is not None and became.opcode != "fusion":
            yield FusionChange(ChangeKind.LIBRARY, (fusion,), (became,), (), lost)
        elif len(fusions) > 1:
            yield FusionChange(ChangeKind.DUPLICATED, (fusion,), tuple(homes), (), lost)
        elif fusions:
            yield FusionChange(ChangeKind.MERGED, (fusion,), tuple(homes), (), lost)
        elif homes:
            yield FusionChange(ChangeKind.DISSOLVED, (fusion,), tuple(homes), (), lost)
        else:
            yield FusionChange(ChangeKind.REMOVED, (fusion,), (), (), lost)


def is_idle(matching: Matching, fusion: Instruction) -> bool:
    """Return whether nothing reads a fusion any more: a pass has fused it and left it behind."""
    operations = [
        instruction
        for instruction in fusion.called[0].instructions
        if instruction.opcode not in CARRIERS
    ]
    if not operations:
        return not (fusion.users or fusion.is_root)
    return all(operation in matching.idle for operation in operations)


def group_identical(changes: Iterable[FusionChange]) -> list[tuple[FusionChange, int]]:
    """Return changes that look the same (in the layers of a model) once, with their count."""
    counts: Counter[Hashable] = Counter()
    first: dict[Hashable, FusionChange] = {}
    for change in changes:
        key = (
            change.kind,
            *(
                tuple(sorted((i.opcode, plain_shape(i.statement.shape)) for i in side))
                for side in (change.before, change.after, change.gained, change.lost)
            ),
        )
        counts[key] += 1
        first.setdefault(key, change)
    return [(first[key], count) for key, count in counts.items()]
