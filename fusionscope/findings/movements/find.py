"""The ledger of copies: the origin and the purpose of the data movement in the final module.

A copy, transpose, convert or reshape computes nothing. It is in the final module because the
program has it, or because a pass needed a value in another layout, another type or another buffer.
The instruction is followed back through the stages to the first one that has it: the pass before
that stage inserted it, and its users in that stage are its purpose.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import fsum

from fusionscope.facts.result import KernelFacts
from fusionscope.facts.source_lines import operation_of, user_line
from fusionscope.findings.movements.facts import Movement, MovementCause
from fusionscope.graph.layouts import transpose_is_bitcast
from fusionscope.history.kernels import Kernel, instructions_in
from fusionscope.history.lineage import Lineage
from fusionscope.history.matching import Matching
from fusionscope.history.operations import is_free_reshape, is_view
from fusionscope.history.traffic import traffic
from fusionscope.hlo import Instruction

_REARRANGES = frozenset({"copy", "copy-start", "reshape", "transpose"})
_MOVES = _REARRANGES | {"convert"}
_UPDATES = frozenset({"dynamic-update-slice", "scatter"})
_VIEWS = frozenset({"bitcast", "get-tuple-element", "opt-barrier"})
_SILENT = _VIEWS | {"broadcast", "constant", "parameter", "tuple"}

_LAYOUT_PASSES = ("layout-assignment",)
_COPY_PASSES = ("adding_", "copy-insertion", "copy_insertion")
_TYPE_PASSES = (
    "all-reduce-promotion", "change-op-data-type", "float-normalization", "operand_converter",
)  # fmt: skip

_ALIASED = re.compile(r"\(\s*(\d+)\s*,")  # the parameter in {0}: (2, {}, may-alias)
_MOST_NAMES = 3
_MOST_STEPS = 32  # to the nearest operation that names a line of the program


def find_movements(
    lineage: Lineage, final: int, kernels: Sequence[Kernel], facts: Sequence[KernelFacts]
) -> tuple[Movement, ...]:
    """Return the data movement in the stage of index ``final``, the costliest first.

    ``kernels`` are those of that stage, ``facts`` what is known of each.
    """
    costs: dict[str, list[KernelFacts]] = {}
    for fact in facts:
        costs.setdefault(fact.name, []).append(fact)
    by_name = {kernel.name: kernel.instruction for kernel in kernels}
    launches = [_launch(launch, costs[name]) for name, launch in by_name.items()]
    origins = _origins(lineage, final, (move for launch in launches for move in launch.moves))
    movements = [
        _movement(lineage, launch, origins[instruction], instruction)
        for launch in launches
        for instruction in launch.moves
    ]
    movements += _updates(lineage.stages[final].label, launches)
    return tuple(
        sorted(movements, key=lambda movement: (-movement.bytes_moved, movement.operation.name))
    )


@dataclass(frozen=True, slots=True)
class _Launch:
    """A kernel with the movements in it, and its costs over all runs. ``size`` are the bytes that
    all its movements read and write if it only moves data, else 0.
    """

    instruction: Instruction
    moves: tuple[Instruction, ...]
    is_alone: bool
    size: int
    runs: int
    bytes_moved: int
    time_ns: float | None


def moves_in(launch: Instruction) -> tuple[tuple[Instruction, ...], bool]:
    """Return the movements that a launch executes, and whether it executes nothing else."""
    operations = [
        operation for operation in instructions_in(launch) if operation.opcode not in _SILENT
    ]
    is_alone = all(operation.opcode in _MOVES for operation in operations)
    return tuple(operation for operation in operations if _moves(operation)), is_alone


def _launch(launch: Instruction, facts: Sequence[KernelFacts]) -> _Launch:
    moves, is_alone = moves_in(launch)
    times = [fact.runs * fact.time_ns for fact in facts if fact.time_ns is not None]
    return _Launch(
        instruction=launch,
        moves=moves,
        is_alone=is_alone,
        size=sum(map(_size, moves)) if is_alone else 0,
        runs=sum(fact.launches for fact in facts),
        bytes_moved=sum(fact.bytes_moved for fact in facts),
        time_ns=fsum(times) if len(times) == len(facts) else None,
    )


def _movement(
    lineage: Lineage, launch: _Launch, origin: _Origin, instruction: Instruction
) -> Movement:
    share = _size(instruction) / launch.size if launch.size else 0.0
    cause, text, served = origin.cause
    return Movement(
        operation=operation_of(instruction),
        kernel=launch.instruction.name,
        is_alone=launch.is_alone,
        runs=launch.runs,
        bytes_moved=round(share * launch.bytes_moved),
        time_ns=None if launch.time_ns is None else share * launch.time_ns,
        made_by=origin.made_by,
        stage=lineage.stages[origin.stage].label,
        cause=cause,
        text=text,
        served=operation_of(served) if served is not None else None,
        source=_nearest_source(origin.instruction),
    )


def _moves(instruction: Instruction) -> bool:
    """Return whether it moves data: a transpose or a reshape may leave all elements in place."""
    if instruction.opcode == "transpose":
        permutation = tuple(instruction.attribute("dimensions"))
        return not transpose_is_bitcast(
            instruction.operands[0].shape, instruction.shape, permutation
        )
    return instruction.opcode in _MOVES and not is_free_reshape(instruction)


def _size(instruction: Instruction) -> int:
    return instruction.shape.byte_size + sum(o.shape.byte_size for o in instruction.operands)


_Cause = tuple[MovementCause, str, Instruction | None]  # with a sentence, and what it is for


@dataclass(frozen=True, slots=True)
class _Origin:
    """A movement in the first stage that has it, by the index of that stage."""

    stage: int
    made_by: str | None
    instruction: Instruction
    cause: _Cause


def _origins(
    lineage: Lineage, final: int, instructions: Iterable[Instruction]
) -> dict[Instruction, _Origin]:
    """Follow instructions of stage ``final`` back, all by one step at a time: each step needs the
    matching of two stages, which take too much memory to keep.
    """
    origins: dict[Instruction, _Origin] = {}
    current = {instruction: instruction for instruction in instructions}
    for index in range(final - 1, -1, -1):
        earlier: dict[Instruction, Instruction] = {}
        inserted: dict[Instruction, Instruction] = {}
        for instruction, here in current.items():
            before = lineage.earlier(index, here)
            if before is None or not _is_alike(before, here):
                before = _rewritten(lineage, index, here)
            if before is None:
                inserted[instruction] = here
            else:
                earlier[instruction] = before
        if inserted:
            made_by = lineage.stages[index + 1].pass_name
            causes = _causes(lineage, index, made_by, inserted.values())
            for (instruction, here), cause in zip(inserted.items(), causes, strict=True):
                origins[instruction] = _Origin(index + 1, made_by, here, cause)
        current = earlier
    for instruction, here in current.items():
        served = _served(here)
        cause = (MovementCause.PROGRAM, "the program has it", served)
        origins[instruction] = _Origin(0, None, here, cause)
    return origins


def _rewritten(lineage: Lineage, index: int, instruction: Instruction) -> Instruction | None:
    """Return the movement of stage ``index`` that a pass replaced by ``instruction``, such as the
    copy that layout normalization made a transpose: it has the same operand or the same user."""
    matching = lineage.matching(index)

    def gone(candidates: Iterable[Instruction]) -> dict[Instruction, None]:
        return {
            candidate: None
            for candidate in candidates
            if _is_alike(candidate, instruction) and candidate not in matching.after
        }

    source = matching.before.get(_viewed(instruction.operands[0])) if instruction.operands else None
    by_operand = gone(_users(source)) if source is not None else {}
    by_user: dict[Instruction, None] = {}
    for user, slot in _uses(instruction):
        before = matching.before.get(user)
        if before is not None and slot < len(before.operands):
            by_user |= gone([_viewed(before.operands[slot])])
    both = {instruction: None for instruction in by_user if instruction in by_operand}
    # Of several with the same operand or the same user, each has the same cause.
    return next(iter(both or by_user or by_operand), None)


def _served(instruction: Instruction) -> Instruction | None:
    """Return the first operation behind ``instruction`` that computes something."""
    pending, visited = [instruction], {instruction}
    for current in pending:  # grows on the way
        for user in _users(current):
            if user.opcode not in _REARRANGES | _SILENT:
                return user
            if user not in visited and len(visited) < _MOST_STEPS:
                visited.add(user)
                pending.append(user)
    return None


def _is_alike(first: Instruction, second: Instruction) -> bool:
    """Return whether both change the order of elements, or both change the type."""
    opcodes = {first.opcode, second.opcode}
    return opcodes <= _REARRANGES or opcodes == {"convert"}


def _viewed(instruction: Instruction) -> Instruction:
    while is_view(instruction):
        instruction = instruction.operands[0]
    return instruction


def _uses(instruction: Instruction) -> Iterator[tuple[Instruction, int]]:
    """Yield the users and the number of the operand that they read, through views."""
    pending, visited = [instruction], {instruction}
    while pending:
        here = pending.pop()
        for user in here.users:
            if user.opcode in _VIEWS or is_free_reshape(user):
                if user not in visited:
                    visited.add(user)
                    pending.append(user)
                continue
            for slot, operand in enumerate(user.operands):
                if operand is here:
                    yield user, slot


def _users(instruction: Instruction) -> tuple[Instruction, ...]:
    return tuple(dict.fromkeys(user for user, _ in _uses(instruction)))


def _causes(
    lineage: Lineage, index: int, made_by: str, inserted: Iterable[Instruction]
) -> Iterator[_Cause]:
    """Yield why a pass inserted instructions into the stage after ``index``."""
    explain: Callable[[Instruction, tuple[Instruction, ...]], _Cause | None] | None = None
    if made_by.startswith(_LAYOUT_PASSES):
        explain = _layout
    elif made_by.startswith(_COPY_PASSES):
        explain = _buffer
    elif made_by.startswith(_TYPE_PASSES):
        explain = _type
    replaced: _Replaced | None = None
    for instruction in inserted:
        users = _users(instruction)
        cause = explain(instruction, users) if explain is not None else None
        if cause is None:
            replaced = replaced or _Replaced(lineage.matching(index))
            cause = _rewrite(made_by, _served(instruction), replaced.find(instruction))
        yield cause


def _layout(instruction: Instruction, users: tuple[Instruction, ...]) -> _Cause | None:
    if instruction.opcode != "copy" or not instruction.operands:
        return None
    operand = instruction.operands[0]
    has, needs = (_layout_text(end) for end in (operand, instruction))
    operand_layout = f"{_named(operand)} has {has}"
    if not users or _is_result(instruction, users):
        where = "the program's result" if _is_entry(instruction) else "the computation's result"
        return MovementCause.LAYOUT, f"{where} has layout {needs}, {operand_layout}", None
    return (
        MovementCause.LAYOUT,
        f"{_named(users[0])} reads layout {needs}, {operand_layout}",
        users[0],
    )


def _layout_text(instruction: Instruction) -> str:
    layout = instruction.shape.layout
    order = layout.minor_to_major if layout is not None else ()
    return "{" + ",".join(map(str, order)) + "}"


def _type(instruction: Instruction, users: tuple[Instruction, ...]) -> _Cause | None:
    if instruction.opcode != "convert":
        return None
    source, target = instruction.operands[0], instruction.shape.element_type
    narrow = source.shape.element_type
    if users and instruction.shape.bits >= source.shape.bits:
        text = f"this device computes {_named(users[0])} in {target}, not in {narrow}"
        return MovementCause.TYPE, text, users[0]
    text = f"this device computes {_named(source)} in {narrow}, its users read {target}"
    return MovementCause.TYPE, text, source


def _buffer(instruction: Instruction, users: tuple[Instruction, ...]) -> _Cause | None:
    """Return the reason for a copy that copy insertion made: two values would share a buffer.
    Source: xla/hlo/transforms/…/copy_insertion.cc.
    """
    if instruction.opcode not in ("copy", "copy-start") or not instruction.operands:
        return None
    needed_text = _still_needed(instruction)
    served = users[0] if users else None
    for user in users:
        loop = next(
            (user_of for user_of in (user, *_users(user)) if user_of.opcode == "while"), None
        )
        if loop is not None:
            return MovementCause.LOOP, f"{_named(loop)} updates it in place{needed_text}", loop
    module = instruction.computation.module
    callers = module.callers.get(instruction.computation, ())
    loop = next((caller for caller in callers if caller.opcode == "while"), None)
    if _is_result(instruction, users):
        if loop is not None:
            text = f"the next step of {_named(loop)} needs it in a buffer of its own{needed_text}"
            return MovementCause.LOOP, text, loop
        if callers:
            text = f"a result of {_named(callers[0])} needs a buffer of its own{needed_text}"
            return MovementCause.RESULT, text, callers[0]
        return MovementCause.RESULT, f"a result needs a buffer of its own{needed_text}", None
    if loop is not None and _element(instruction.operands[0]) is not None:
        readers = _list([user.name for user in users])
        text = f"{_named(loop)} writes the next value in its place before {readers} read this one"
        return MovementCause.LOOP, text, loop
    for user in users:
        if user.opcode in _UPDATES or instruction in _updated(user):
            return MovementCause.UPDATE, f"{_named(user)} updates it in place{needed_text}", user
    if _source(instruction.operands[0]).opcode == "constant":
        return MovementCause.BUFFER, f"it needs a buffer that can be written{needed_text}", served
    text = f"it is overwritten before its last read{needed_text}"
    return MovementCause.BUFFER, text, served


def _updated(user: Instruction) -> Iterator[Instruction]:
    if user.opcode == "fusion":
        yield from (_viewed(buffer) for buffer in traffic(user).updated)


def _source(instruction: Instruction) -> Instruction:
    """Return the instruction that ``instruction`` is a view of."""
    while instruction.opcode in _VIEWS and instruction.operands:
        instruction = instruction.operands[0]
    return instruction


def _element(instruction: Instruction) -> tuple[Instruction, str] | None:
    """Return the parameter of a computation and the index of its element that ``instruction`` is a
    view of; None if it is not such a view.
    """
    while instruction.opcode in _VIEWS and instruction.opcode != "get-tuple-element":
        instruction = instruction.operands[0]
    if instruction.opcode != "get-tuple-element":
        return None
    owner = instruction.operands[0]
    return (owner, instruction.attributes["index"]) if owner.opcode == "parameter" else None


def _still_needed(copy: Instruction) -> str:
    """Return why the copied buffer cannot be used, after a colon; "" if nothing shows it."""
    operand = copy.operands[0]
    element, source = _element(operand), _source(operand)
    if element is not None:
        owner, index = element
        views = [user for user in owner.users if user.attributes.get("index") == index]
        readers = dict.fromkeys(reader for view in views for reader in _users(view))
        name = f"element {index} of {owner.name}"
    else:
        readers = dict.fromkeys(_users(source))
        name = _named(source)
    if source.opcode == "constant":
        return f": {name} is a constant"
    is_argument = element is None and source.opcode == "parameter" and _is_entry(source)
    if is_argument and source.parameter_number not in _donated(source):
        return f": {name} is not donated"
    other_readers = [
        reader.name for reader in readers if reader is not copy and reader.opcode != "copy"
    ]
    other_readers += [r.name for r in readers if r is not copy and r.opcode == "copy"]
    if not other_readers:
        return ""
    return f": {_list(other_readers)} also {'reads' if len(other_readers) == 1 else 'read'} {name}"


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_NAMES]) + (" and others" if len(names) > _MOST_NAMES else "")


def _donated(parameter: Instruction) -> frozenset[int]:
    """Return the numbers of the program's parameters whose buffers results may use."""
    alias = parameter.computation.module.attributes.get("input_output_alias", "")
    return frozenset(map(int, _ALIASED.findall(alias)))


def _rewrite(made_by: str, served: Instruction | None, replaced: Instruction | None) -> _Cause:
    if replaced is not None:
        return MovementCause.REWRITE, f"{made_by} replaced {_named(replaced)}", served
    if served is not None:
        return MovementCause.REWRITE, f"{made_by} inserted it for {_named(served)}", served
    return MovementCause.REWRITE, f"{made_by} inserted it", None


class _Replaced:
    """The operations that a pass removed."""

    def __init__(self, matching: Matching) -> None:
        self._matching = matching
        self._removed = {
            instruction: None
            for instruction in matching.removed
            if instruction.opcode not in _SILENT
        }
        self._by_op_name: dict[str, Instruction] = {}
        for instruction in self._removed:
            if instruction.op_name is not None:
                self._by_op_name.setdefault(instruction.op_name, instruction)

    def find(self, instruction: Instruction) -> Instruction | None:
        """Return the one that has the metadata of ``instruction``, or else its place."""
        if instruction.op_name in self._by_op_name:
            return self._by_op_name[instruction.op_name]
        for user, slot in _uses(instruction):
            before = self._matching.before.get(user)
            if before is not None and slot < len(before.operands):
                candidate = _viewed(before.operands[slot])
                if candidate in self._removed:
                    return candidate
        return None


def _updates(stage: str, launches: Iterable[_Launch]) -> Iterator[Movement]:
    """Yield the updates that write a whole array for the sake of a part of it."""
    for launch in launches:
        kernel = launch.instruction
        updates = [inner for inner in instructions_in(kernel) if inner.opcode in _UPDATES]
        if not updates or traffic(kernel).updated:
            continue
        for update in updates:
            yield Movement(
                operation=operation_of(update),
                kernel=kernel.name,
                is_alone=False,
                runs=launch.runs,
                bytes_moved=0,
                time_ns=0.0,
                made_by=None,
                stage=stage,
                cause=MovementCause.NOT_IN_PLACE,
                text=_why_not_in_place(kernel, update),
                served=None,
                source=_nearest_source(update),
            )


def _why_not_in_place(launch: Instruction, update: Instruction) -> str:
    users = [user for user in _users(update) if user.opcode != "tuple"]
    if users:
        return f"its kernel goes on to compute {_named(users[0])}, and so writes all elements"
    return (
        f"{launch.name} reads the array elsewhere or has other results, and so writes all elements"
    )


def _nearest_source(instruction: Instruction) -> str | None:
    """Return the user's line of the nearest operation that has one, among users first."""
    pending, visited = [instruction], {instruction}
    for neighbour in pending:  # grows on the way
        place = user_line(neighbour.stack)
        if place is not None:
            return str(place)
        if len(pending) < _MOST_STEPS:
            near = [
                n
                for n in (*neighbour.users, *neighbour.operands)
                if n not in visited and n.opcode != "tuple"
            ]
            visited.update(near)
            pending += near
    return None


def _is_result(instruction: Instruction, users: Sequence[Instruction]) -> bool:
    root = instruction.computation.root
    return instruction is root or root in users


def _is_entry(instruction: Instruction) -> bool:
    return instruction.computation is instruction.computation.module.entry


def _named(instruction: Instruction) -> str:
    if instruction.opcode in instruction.name:
        return instruction.name
    return f"{instruction.opcode} {instruction.name}"
