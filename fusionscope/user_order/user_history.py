"""Reconstructs the order of the users of each value, which no text shows, from all earlier stages.

A new instruction becomes the last user of its operands; when a user is removed, the last one takes
its place (HloInstruction::Users in xla/hlo/ir/hlo_instruction.cc). Some passes are replayed; the
effect of the others is inferred from their results. The first stage was read from a proto, which
has the order of the text.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, pairwise
from operator import itemgetter
from typing import NamedTuple

from fusionscope.dump import DumpedModule, Stage
from fusionscope.errors import UnusableInput
from fusionscope.graph.mutable import MutableInstruction, MutableModule, reorder_users
from fusionscope.hlo import Computation, Instruction, Module
from fusionscope.hlo.model import Statement
from fusionscope.system.memory import working_memory
from fusionscope.user_order.call_inliner import inline_calls
from fusionscope.user_order.creation_order import (
    find_made_again,
    first_creation_order,
    later_creation_order,
    numbered,
)
from fusionscope.user_order.degenerate_dimensions import drop_degenerate_dimensions
from fusionscope.user_order.float_normalization import normalize_floats
from fusionscope.user_order.infer_user_order import (
    BodyGraph,
    StageGraph,
    UserOrder,
    infer_user_order,
)
from fusionscope.user_order.layout_normalization import normalize_layouts
from fusionscope.user_order.renaming import find_renamed

Rewriter = Callable[[MutableModule], None]

_REWRITERS: Mapping[str, Rewriter] = {
    "call-inliner": inline_calls,
    "degenerate-dimension-rewriter": drop_degenerate_dimensions,
    "layout_normalization": normalize_layouts,
}
# Passes that remove replaced instructions at their end (MergeDots in dot_merger.cc).
_REMOVING_LAST = frozenset({"dot-merger"})
# Suffixes of the names of cloned computations, once or repeatedly, and made unique.
_ADDED = re.compile(r"(.+)\.(?:clone|sunk|\d+)|wide\.(.+)")
_name_of, _opcode_of = itemgetter(1), itemgetter(3)  # of a statement
_NEAR = 64  # the range in the text in which the next clone of an instruction is searched


class _History(NamedTuple):
    """The facts about a stage: the ordered users of those values for which it is not the order of
    the text, and its instructions.
    """

    users: UserOrder
    graph: StageGraph


def find_user_order(
    module: DumpedModule, until: Stage, rewriters: Mapping[str, Rewriter]
) -> UserOrder:
    """Return the ordered users of the instructions of ``until`` by name, if there are several;
    nothing if a stage cannot be read. ``rewriters`` are passes that the compiler version has in
    another form, by name.
    """
    try:
        return _all_users(_follow(module, _stages(module)[0], until, {}, rewriters))
    except UnusableInput as problem:
        module.note(problem)
        return {}


def find_creation_order(
    module: DumpedModule, until: Stage, rewriters: Mapping[str, Rewriter]
) -> dict[str, dict[str, int]]:
    """Return the order in which the instructions of ``until`` were created, by computation and
    name, as far as earlier stages show it; their ids, if the dump has them. Return nothing if a
    stage cannot be read.
    """
    try:
        graph = _follow(module, _stages(module)[0], until, {}, rewriters).graph
    except UnusableInput as problem:
        module.note(problem)
        return {}
    return _creation_order(graph)


def _creation_order(graph: StageGraph) -> dict[str, dict[str, int]]:
    return {
        name: {
            instruction.name: graph.ages[instruction.name]
            for instruction in computation.instructions
        }
        for name, computation in graph.computations.items()
    }


class UserHistory:
    """The users and the ages of instructions, followed from one stage of a module to the next.
    ``rewriters`` are those of ``find_user_order``.
    """

    def __init__(self, module: DumpedModule, rewriters: Mapping[str, Rewriter]) -> None:
        self._module = module
        self._rewriters = rewriters
        self._stages = _stages(module)
        self._place = 0
        self._history: _History | None = None

    def go_to(self, stage: Stage) -> None:
        """Follow the users to ``stage``. If that is an earlier one, they are followed from the
        first stage. Raises ``UnusableInput``.
        """
        place = self._stages.index(stage)
        if self._history is None or place < self._place:
            self._place, self._history = 0, _History({}, _read(self._module, self._stages[0]))
        if place > self._place:
            since, (users, graph) = self._stages[self._place], self._history
            followed = _follow(self._module, since, stage, users, self._rewriters, graph)
            self._place, self._history = place, followed

    def set_users(self, stage: Stage, users: UserOrder) -> None:
        """Go to ``stage``, not before the one that was followed last, whose users are known."""
        if self._history is None:
            return
        graph = self._history.graph
        place = self._stages.index(stage)
        for later in self._stages[self._place + 1 : place + 1]:
            graph = _read(self._module, later, graph)
        self._place, self._history = place, _History(_known_orders(users, graph), graph)

    def forget(self) -> None:
        """Begin again at the first stage: one cannot be read."""
        self._history = None

    @property
    def users(self) -> UserOrder:
        """The ordered users of values that have several, at the stage that it came to."""
        return {} if self._history is None else _all_users(self._history)

    @property
    def ages(self) -> dict[str, dict[str, int]]:
        """The order of creation, as ``find_creation_order`` returns it."""
        return {} if self._history is None else _creation_order(self._history.graph)


def _all_users(followed: _History) -> dict[str, Sequence[str]]:
    in_text = followed.graph.users.items()
    return {
        name: followed.users.get(name, order_in_text)
        for name, order_in_text in in_text
        if len(order_in_text) > 1
    }


def _follow(
    module: DumpedModule,
    since: Stage,
    until: Stage,
    users: UserOrder,
    rewriters: Mapping[str, Rewriter],
    graph: StageGraph | None = None,
) -> _History:
    """Return the history of ``until``. ``graph`` is that of ``since``, if it was read already."""
    stages = _stages(module)
    first, *later_stages = stages[stages.index(since) : stages.index(until) + 1]
    before = graph or _read(module, first)
    users = _known_orders(users, before)
    for stage_before, stage in pairwise([first, *later_stages]):
        after = _read(module, stage, before)
        if before is after:
            continue
        if _has_same_lines(before, after):  # at most the names differ
            users = _renamed(users, before, after)
        else:
            name = stage.name.after
            rewrite = _find_rewriter(module, stage, rewriters)
            followed = infer_user_order(before, after, users, removes_last=name in _REMOVING_LAST)
            followed |= _cloned(before, after, users)
            if rewrite is not None:
                followed |= _rewrite(module.read(stage_before), users, rewrite, before, after)
            users = _known_orders(followed, after)
        before = after
    return _History(users, before)


@working_memory()
def _rewrite(
    module: Module, users: UserOrder, rewrite: Rewriter, before: StageGraph, after: StageGraph
) -> dict[str, list[str]]:
    """Return the users in ``after`` if ``rewrite`` led to it. Instructions of ``after`` that have
    no ids are numbered as they were made.
    """
    graph = arrange(module, users)
    rewrite(graph)
    names = _find_names(graph, after)
    if after.ids is None:
        _number(
            after,
            before,
            [names[instruction] for instruction in graph.walk() if instruction in names],
        )
    users = users_by_name(names)
    graph.dissolve()
    return users


def _find_rewriter(
    module: DumpedModule, stage: Stage, rewriters: Mapping[str, Rewriter]
) -> Rewriter | None:
    """Return the rewriter of the pass that leads to ``stage``."""
    name = stage.name.after
    if name.startswith("float-normalization"):  # the narrow type follows
        return partial(normalize_floats, result=module.read(stage))
    return rewriters.get(name) or _REWRITERS.get(name)


def arrange(module: Module | MutableModule, users: UserOrder) -> MutableModule:
    """Return ``module`` with the users of instructions in an order that no text shows and that
    passes depend on. A graph is changed.
    """
    graph = MutableModule(module) if isinstance(module, Module) else module
    for instruction in graph.walk():
        if instruction.name in users:
            reorder_users(instruction, users[instruction.name])
    return graph


def users_by_name(names: Mapping[MutableInstruction, str]) -> dict[str, list[str]]:
    """Return users by their ``names``, for values all of whose users have one."""
    return {
        name: [names[user] for user in instruction.users]
        for instruction, name in names.items()
        if all(user in names for user in instruction.users)
    }


def _stages(module: DumpedModule) -> list[Stage]:
    return [stage for stage in module.stages if stage.name.counter is not None]


def _read(module: DumpedModule, stage: Stage, before: StageGraph | None = None) -> StageGraph:
    """Read a stage; return ``before`` if nothing changed. If the dump has no ids, those of
    ``before`` are kept, and new instructions follow.
    """
    ids = module.instruction_ids(stage)
    current = module.read(stage)
    if before is not None and ids is before.ids and _is_same(current, before.module):
        return before
    graph = StageGraph(
        ages={},
        operands={},
        users={},
        roots={},
        computations={},
        module=current,
        bodies={},
        ids=ids,
    )
    for computation in current.reachable():
        body = before.bodies.get(computation.body) if before is not None else None
        body = body or _read_body(computation, before)
        graph.bodies[computation.body] = body
        graph.computations[computation.name] = computation
        graph.roots[computation.name] = _root(body.statements)
        graph.operands.update(body.operands)
        graph.users.update(body.users)
        ages = ids.get(computation.name, {}) if ids is not None else {}
        graph.ages.update(dict.fromkeys(body.names, 0))
        if hidden := ages.keys() - body.operands.keys():
            ages = {name: age for name, age in ages.items() if name not in hidden}
        graph.ages.update(ages)
    if ids is None:
        _number(graph, before)
    return graph


def _read_body(computation: Computation, before: StageGraph | None) -> BodyGraph:
    """Read one computation. Raises ``UnusableInput`` if it reads what it does not define, but not
    for other contradictions: comparing all with all takes longer than all the rest.
    """
    earlier = before.computations.get(computation.name) if before is not None else None
    try:
        if before is not None and earlier is not None:
            return _read_changed(computation, before.bodies[earlier.body])
        statements = _with_elements(computation.body.written, ())
        operands = {statement.name: list(statement.operands) for statement in statements}
        _check_names(computation, operands)
    except UnusableInput:
        _ = computation.graph  # raises it with its place
        raise
    return BodyGraph(statements, list(operands), operands, _find_users(operands))


def _with_elements(
    statements: tuple[Statement, ...], earlier_statements: Sequence[Statement]
) -> tuple[Statement, ...]:
    """Return the statements with those that a text omits: of the elements of tuples that are
    written as ``op#1``, each before its first use. ``earlier_statements`` may have some of these.
    """
    if not any("#" in statement.inside for statement in statements):
        return statements
    elements = {
        statement.name: statement for statement in earlier_statements if "#" in statement.name
    }
    by_name: dict[str, Statement] = {}
    for statement in statements:
        for operand in statement.operands if "#" in statement.inside else ():
            outer, *indices = operand.split("#")
            for index in indices:
                name = f"{outer}#{index}"
                if name not in by_name:
                    element = Statement("", name, "", "get-tuple-element", outer, "")
                    by_name[name] = elements.get(name, element)
                outer = name
        by_name[statement.name] = statement
    return tuple(by_name.values())


def _check_names(computation: Computation, operands: Mapping[str, list[str]]) -> None:
    statements = computation.body.written
    is_twice = len(set(map(_name_of, statements))) < len(statements)
    if is_twice or not operands.keys() >= set(chain.from_iterable(operands.values())):
        _ = computation.graph  # raises it with its place


def _root(statements: Sequence[Statement]) -> str:
    return next(
        (statement.name for statement in reversed(statements) if statement.root),
        statements[-1].name,
    )


def _find_users(operands: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    users: dict[str, list[str]] = {name: [] for name in operands}
    for name, read in operands.items():
        for operand in read if len(read) < 2 else dict.fromkeys(read):
            users[operand].append(name)
    return users


def _read_changed(computation: Computation, old_graph: BodyGraph) -> BodyGraph:
    """Read what a computation was changed to. A line that stages share reads the same in both, so
    only the users of what other lines read are searched again.
    """
    statements = _with_elements(computation.body.written, old_graph.statements)
    names = list(map(_name_of, statements))
    old = dict(zip(map(id, old_graph.statements), old_graph.operands.items(), strict=True))
    lines = list(map(id, statements))
    new_places = [place for place, line in enumerate(lines) if line not in old]
    read = [old[line][1] if line in old else [] for line in lines]
    for place in new_places:
        read[place] = list(statements[place].operands)
    operands = dict(zip(names, read, strict=True))
    _check_names(computation, operands)
    now = set(lines)
    if [line for line in lines if line in old] != [line for line in old if line in now]:
        return BodyGraph(statements, names, operands, _find_users(operands))  # in another order
    gone = dict(edge for line, edge in old.items() if line not in now)
    reading: dict[str, list[str]] = {names[place]: [] for place in new_places}
    for place in new_places:
        for operand in dict.fromkeys(read[place]):
            reading.setdefault(operand, []).append(names[place])
    for edge in gone.values():
        reading |= {operand: [] for operand in edge if operand not in reading}
    users = {name: old_graph.users.get(name, []) for name in names}
    places = dict(zip(names, range(len(names)), strict=True))
    for name, new in reading.items():
        if name in users:
            still = [user for user in users[name] if user not in gone]
            users[name] = sorted([*still, *new], key=places.__getitem__)
    return BodyGraph(statements, names, operands, users)


def _has_same_lines(before: StageGraph, after: StageGraph) -> bool:
    """Return whether both have the same operations with operands at the same places."""
    sides = before.computations.values(), after.computations.values()
    return len(sides[0]) == len(sides[1]) and all(
        first.body is second.body
        or (
            _opcodes(before, first) == _opcodes(after, second)
            and first.graph.operands == second.graph.operands
        )
        for first, second in zip(*sides, strict=True)
    )


def _opcodes(graph: StageGraph, computation: Computation) -> list[str]:
    return list(map(_opcode_of, graph.bodies[computation.body].statements))


def _is_same(first: Module, second: Module) -> bool:
    return first.entry_index == second.entry_index and first.bodies == second.bodies


def _number(graph: StageGraph, before: StageGraph | None, new_names: Sequence[str] = ()) -> None:
    """Assign ids that the dump lacks: first instructions of the stage before, then those known to
    be ``new_names`` in that order, then the rest by names and text.
    """
    ages: dict[str, int] = {}
    if before is not None and _has_same_lines(before, graph):
        ages = dict(zip(graph.ages, before.ages.values(), strict=True))
    elif before is not None:
        ages = {name: age for name, age in before.ages.items() if name in graph.ages}
        for name in find_made_again(before, graph):
            ages.pop(name, None)
        ages |= {name: before.ages[old] for name, old in find_renamed(before, graph).items()}
    newest = max(ages.values(), default=0)
    known = {*new_names}
    remaining: list[str] = []
    for computation in graph.computations.values():
        if before is None:
            remaining += first_creation_order(computation)
        elif computation.body not in before.bodies:
            operands = graph.bodies[computation.body].operands
            new = {
                name: read
                for name, read in operands.items()
                if name not in ages and name not in known
            }
            originals = _originals_of(computation, before, graph)
            if originals:
                remaining += _as_old_as(originals, new, before)
            else:
                remaining += later_creation_order(new, before.ages)
    for name in [*new_names, *remaining]:
        if name not in ages:
            newest += 1
            ages[name] = newest
    graph.ages.update(ages)


def _renamed(users: UserOrder, before: StageGraph, after: StageGraph) -> UserOrder:
    names = dict(zip(before.ages, after.ages, strict=True))
    return {names[name]: [names[user] for user in readers] for name, readers in users.items()}


def _known_orders(users: UserOrder, after: StageGraph) -> UserOrder:
    """Return ``users`` of values whose order is known completely and is not that of the text."""
    return {
        name: order
        for name, order in users.items()
        if len(order) > 1
        and (order_after := after.users.get(name)) is not None
        and order != order_after
        and set(order) == set(order_after)
    }


def _find_names(graph: MutableModule, after: StageGraph) -> dict[MutableInstruction, str]:
    """Return names in ``after``: of the operands of a result there, and of their operands."""
    pending = [
        (instruction, after.roots[computation.name] if instruction.is_root else instruction.name)
        for computation in graph.post_order()
        if computation.name in after.roots
        for instruction in computation.instructions
        if instruction.is_root or (not instruction.users and instruction.name in after.ages)
    ]
    names: dict[MutableInstruction, str] = {}
    while pending:
        instruction, name = pending.pop()
        operands = after.operands[name]
        if instruction not in names and len(instruction.operands) == len(operands):
            names[instruction] = name
            pending += zip(instruction.operands, operands, strict=True)
    return names


def _cloned(before: StageGraph, after: StageGraph, users: UserOrder) -> dict[str, list[str]]:
    """Return the users in clones of computations, in the order of their originals' users.

    Source: xla/hlo/ir/hlo_computation.cc, SortClonedInstructionUsersAndControlLists.
    """
    originals = _find_originals(before, after)
    cloned: dict[str, list[str]] = {}
    for clone, original in originals.items():
        original_users = users.get(original) or before.users[original]
        places = {user: place for place, user in enumerate(original_users)}
        key = {
            user: places.get(originals.get(user, ""), len(places)) for user in after.users[clone]
        }
        cloned[clone] = sorted(after.users[clone], key=key.__getitem__)
    return cloned


def _find_source(clone: str, before: StageGraph) -> Computation | None:
    name = clone
    while (added := _ADDED.fullmatch(name)) is not None:
        name = added[1] or added[2]
        if name in before.computations:
            return before.computations[name]
    return None


def _find_originals(before: StageGraph, after: StageGraph) -> dict[str, str]:
    """Return the originals of instructions in new computations whose names show that they are
    clones. A pass may have removed or inserted some.
    """
    originals: dict[str, str] = {}
    for computation in after.computations.values():
        originals |= _originals_of(computation, before, after)
    return originals


def _originals_of(clone: Computation, before: StageGraph, after: StageGraph) -> dict[str, str]:
    """Return the originals of instructions of a computation, nothing if it is no clone."""
    if clone.name in before.computations:
        return {}
    source = _find_source(clone.name, before)
    return _pair_clones(before, after, source, clone) if source is not None else {}


def _as_old_as(
    originals: Mapping[str, str], clones: Iterable[str], before: StageGraph
) -> list[str]:
    """Return clones in the order in which their ``originals`` were created, and new instructions
    behind them.

    Source: xla/hlo/ir/hlo_computation.cc, SortClonedInstructions.
    """
    newest = max(before.ages.values())
    ages = {name: before.ages[originals[name]] for name in originals}
    return sorted(clones, key=lambda name: ages.get(name, newest + 1))


def _pair_clones(
    before: StageGraph, after: StageGraph, source: Computation, clone: Computation
) -> dict[str, str]:
    """Return the originals of instructions of ``clone``. Clones get their names in the order in
    which the originals were created, and read what belongs to the operands of the originals.
    """
    clones = _by_stem(clone, lambda name: numbered(name)[1])
    stems = _by_stem(source, before.ages.__getitem__)
    originals = {
        clone.name: original.name
        for stem, alike in clones.items()
        for clone, original in _side_by_side(alike, stems.get(stem, ()))
    }
    reads = after.bodies[clone.body].operands, before.bodies[source.body].operands
    pending = list(originals.items())
    while pending:
        one, original = pending.pop()
        operands = reads[0][one], reads[1][original]
        for pair in zip(*operands, strict=True) if len(operands[0]) == len(operands[1]) else ():
            if pair[0] not in originals:
                originals[pair[0]] = pair[1]
                pending.append(pair)
    return originals


def _by_stem(computation: Computation, key: Callable[[str], int]) -> dict[str, list[Instruction]]:
    """Return the instructions by their names without numbers, each group sorted by ``key``."""
    groups: dict[str, list[Instruction]] = defaultdict(list)
    for instruction in sorted(
        computation.instructions, key=lambda instruction_of: key(instruction_of.name)
    ):
        groups[numbered(instruction.name)[0]].append(instruction)
    return groups


def _side_by_side(
    clones: Sequence[Instruction], originals: Sequence[Instruction]
) -> Iterator[tuple[Instruction, Instruction]]:
    """Yield corresponding instructions of two lists in the same order."""
    kinds = [
        [(instruction.opcode, instruction.shape) for instruction in clone_place]
        for clone_place in (clones, originals)
    ]
    clone_place, original_place = 0, 0
    while clone_place < len(clones) and original_place < len(originals):
        if kinds[0][clone_place] == kinds[1][original_place]:
            yield clones[clone_place], originals[original_place]
            clone_place, original_place = clone_place + 1, original_place + 1
        else:
            skipped = _skip(
                kinds[0][clone_place : clone_place + _NEAR],
                kinds[1][original_place : original_place + _NEAR],
            )
            clone_place, original_place = clone_place + skipped[0], original_place + skipped[1]


def _skip(first_kinds: Sequence[object], second_kinds: Sequence[object]) -> tuple[int, int]:
    """Return how many instructions to skip on both sides, as few as possible."""
    places: dict[tuple[object, ...], int] = {}
    for place in range(min(len(second_kinds), _NEAR)):
        places.setdefault(tuple(second_kinds[place : place + 2]), place)
    skips = (
        (first + second, first, second)
        for first in range(min(len(first_kinds), _NEAR))
        if (second := places.get(tuple(first_kinds[first : first + 2]), _NEAR)) + first < _NEAR
    )
    return min(skips, default=(2, 1, 1))[1:]
