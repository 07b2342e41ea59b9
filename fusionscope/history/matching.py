"""Matches the instructions of two modules, from certain matches to fuzzy ones.

The comparison follows the flow of values, so a fusion that is formed, inlined or split makes no
difference to its operations. Two instructions match if they compute the same from the same
operands. The remaining ones are matched by their uses, by name, by metadata, and last by neighbours
that already match. An instruction that reads a matched one reads the same as before, so one change
does not spread.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import TypeAlias

from fusionscope.grouping import Numbers
from fusionscope.history.flow import Region, find_regions
from fusionscope.history.fusion_pairs import pair_fusions
from fusionscope.history.operations import (
    COLLECTIVES,
    TRANSPARENT,
    Operations,
    Value,
    elided_shapes,
    flatten,
    plain_shape,
)
from fusionscope.history.pairing import MatchKind, Pairs, Side, groups, unprinted
from fusionscope.hlo import Computation, Instruction, Module
from fusionscope.hlo.attributes import split_attributes
from fusionscope.hlo.model import Statement

# Two computations, and the indices of the second one's loop variables in the first.
_Pending: TypeAlias = "list[tuple[Computation, Computation, dict[int, int]]]"

# Instructions that compute nothing.
PLACES = TRANSPARENT | {"get-tuple-element", "parameter", "tuple"}
_UNEVALUATED = PLACES - {"parameter"}
_CALLS = TRANSPARENT - {"fusion"}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Matching:
    """The counterpart of each instruction in the other module.

    ``after`` maps an instruction of the first module to its counterpart in the second, and
    ``before`` the other way round. ``copies`` are instructions of the second module that compute a
    matched one's value again; ``merged`` are such instructions of the first module.
    ``computations`` holds the matched computations, ``shared`` those of either module that are
    copied or merged as a whole: callers that shared one now call equal ones, or the other way
    round. ``values`` numbers the value of each instruction: values with equal numbers are the same,
    or differ by a change that is reported where it happens. ``idle`` operations are dead: no result
    depends on them.

    ``rewired`` are matched operations of the first module that read other values than before, with
    their operands in both modules. ``results`` are roots of the first module, each with an
    operation that gave a result and the operation of the second module that gives it now.
    ``recounted`` elements of the second module have another index in a tuple that gained or lost
    elements.
    """

    modules: tuple[Module, Module]
    after: dict[Instruction, Instruction] = field(default_factory=dict)
    before: dict[Instruction, Instruction] = field(default_factory=dict)
    steps: dict[Instruction, MatchKind] = field(default_factory=dict)
    copies: dict[Instruction, Instruction] = field(default_factory=dict)
    merged: dict[Instruction, Instruction] = field(default_factory=dict)
    computations: dict[Computation, Computation] = field(default_factory=dict)
    values: dict[Instruction, Value] = field(default_factory=dict)
    idle: set[Instruction] = field(default_factory=set)
    rewired: dict[Instruction, tuple[tuple[Instruction, ...], tuple[Instruction, ...]]] = field(
        default_factory=dict
    )
    results: list[tuple[Instruction, Instruction, Instruction]] = field(default_factory=list)
    recounted: set[Instruction] = field(default_factory=set)
    shared: set[Computation] = field(default_factory=set)
    regions: tuple[dict[Computation, Region], dict[Computation, Region]] = ({}, {})

    @property
    def removed(self) -> Iterator[Instruction]:
        """Yield the instructions of the first module that the second does not have."""
        return (i for i in self.modules[0].walk() if i not in self.after and i not in self.merged)

    @property
    def inserted(self) -> Iterator[Instruction]:
        """Yield the instructions of the second module that the first does not have."""
        return (i for i in self.modules[1].walk() if i not in self.before and i not in self.copies)

    def add(self, old: Instruction, new: Instruction, step: MatchKind) -> None:
        self.after[old], self.before[new], self.steps[old] = new, old, step


class MatchTable:
    """The facts about each module, shared by all matches that it takes part in. ``elided`` as in
    ``Operations``: all modules must print the same constants, or it names the others.
    """

    def __init__(self, elided: frozenset[str] = frozenset()) -> None:
        self.operations = Operations(elided)
        self._regions: dict[int, tuple[Module, dict[Computation, Region]]] = {}
        self._kinds: dict[int, tuple[Region, list[int], dict[int, str]]] = {}
        self.numbers = Numbers()
        # By the identity of statements, which are kept.
        self._known: dict[Hashable, tuple[Statement, int]] = {}

    def regions(self, module: Module) -> dict[Computation, Region]:
        entry = self._regions.get(id(module))
        if entry is None:
            entry = self._regions[id(module)] = module, find_regions(module)
        return entry[1]

    def side(self, region: Region) -> Side:
        """Return a region with numbers of its operations: what each computes, apart from its
        operands.
        """
        entry = self._kinds.get(id(region))
        if entry is None:
            statements = self._known
            kinds = [
                numbered[1]
                if (numbered := statements.get(id(statement)))
                else self._kind(operation)
                for operation, statement in zip(region.operations, region.statements, strict=True)
            ]
            entry = self._kinds[id(region)] = region, kinds, unprinted(region, self.operations)
        return Side(*entry, self.operations.laid_out)

    def forget(self, module: Module) -> None:
        """Discard the facts about a module."""
        entry = self._regions.pop(id(module), None)
        for region in entry[1].values() if entry else ():
            self._kinds.pop(id(region), None)

    def _kind(self, instruction: Instruction) -> int:
        statement = instruction.statement
        opcode = statement.opcode
        brief: Hashable = id(statement)
        if self.operations.called(statement):
            brief = brief, tuple([id(computation.body) for computation in instruction.called])
        numbered = self._known.get(brief)
        if numbered is None:
            plain = opcode.removesuffix("-start")
            if self.operations.is_elided(statement):
                number = self.numbers[opcode, plain_shape(statement.shape), ...]
            elif plain in COLLECTIVES:  # the result of a start also holds the operand
                number = self.numbers[plain, *self.operations.details(instruction)]
            else:
                number = self.numbers[self.operations.key(instruction, ())]
            numbered = statement, number
            if opcode != "bitcast":  # which also depends on the shape of its operand
                self._known[brief] = numbered
        return numbered[1]


def match(before: Module, after: Module, table: MatchTable | None = None) -> Matching:
    """Match the instructions of two modules. Raises ``UnusableInput`` like
    ``Module.check``.

    ``table`` is shared by the matches of a chain of stages.
    """
    before.check()
    after.check()
    table = table or MatchTable(elided_shapes(before, after))
    return _Matcher(before, after, table).run()


class _Matcher:
    def __init__(self, before: Module, after: Module, table: MatchTable) -> None:
        regions = table.regions(before), table.regions(after)
        self._result = Matching(modules=(before, after), regions=regions)
        self._table = table
        self._numbers = Numbers()
        # Keys of the second module that turned out to have a number of the first.
        self._known: dict[Hashable, int] = {}
        # The values that the regions of each module compute, once requested.
        self._contents: list[set[int]] = []
        # The indices of a loop's variables in the first module, by the number of the loop.
        self._elements: dict[int, dict[int, int]] = {}
        # Arrays of the first module that are in a tuple in the second, such as the result of a call
        # that now also returns its workspace.
        self._packed: set[int] = set()

    def run(self) -> Matching:
        result = self._result
        before, after = result.modules
        self._match_regions([(before.entry, after.entry, {})])
        # Computations that have no caller any more, or another one.
        by_content: Callable[[Computation], Hashable] = self._table.operations.expression
        for describe in (by_content, lambda computation: computation.name):
            matched = set(result.computations.values())
            left = [
                [c for c in regions if c not in matched_of_side]
                for regions, matched_of_side in zip(
                    result.regions, (result.computations, matched), strict=True
                )
            ]
            pending: _Pending = [
                (old, new, {})
                for group in groups(left[0], left[1], describe)
                for old, new in zip(*group, strict=False)
            ]
            self._match_regions(pending)
        for regions, matched_of_side in zip(
            result.regions, (result.computations, set(result.computations.values())), strict=True
        ):
            for computation, region in regions.items():
                if computation not in matched_of_side:
                    self._evaluate_alone(region)
        self._match_moved()
        return result

    def _match_regions(self, pending: _Pending) -> None:
        """Match regions, and those that matched operations call."""
        result = self._result
        matched = set(result.computations.values())
        doubles: list[tuple[Computation, Computation]] = []
        while pending:
            old, new, elements = pending.pop()
            if self._is_exchanged(old, new):
                continue
            if old in result.computations or new in matched:
                if result.computations.get(old) is not new:
                    doubles.append((old, new))
                continue
            result.computations[old] = new
            matched.add(new)
            callees = None if elements else self._match_same(old, new)
            if callees is None:
                callees = self._match_region(old, new, elements)
            pending.extend(reversed(callees))
        for old, new in doubles:
            # Two instructions shared a computation and now have one each, or the other way round.
            if (old in result.computations) != (new in matched):
                self._note_double(old, new, is_copy=new not in matched)

    def _is_exchanged(self, old: Computation, new: Computation) -> bool:
        """Return whether a caller calls another one of the computations of both modules."""
        if old.is_entry or old.body is new.body or old.body.written == new.body.written:
            return False
        if not self._contents:
            self._contents += [
                {self._table.operations.expression(computation) for computation in regions}
                for regions in self._result.regions
            ]
        expression = self._table.operations.expression
        contents = expression(old), expression(new)
        return (
            contents[0] != contents[1]
            and contents[0] in self._contents[1]
            and contents[1] in self._contents[0]
        )

    def _note_double(self, old: Computation, new: Computation, *, is_copy: bool) -> None:
        """Record a computation that is called once more, or once less, as copied or merged."""
        ours, theirs = old.instructions, new.instructions
        values = [self._table.operations.values(computation) for computation in (old, new)]
        if sorted(values[0]) == sorted(values[1]):  # the order of the text does not count
            ours, theirs = (
                tuple([side[index] for index in sorted(range(len(side)), key=numbers.__getitem__)])
                for side, numbers in zip((ours, theirs), values, strict=True)
            )
        elif [i.opcode for i in ours] != [i.opcode for i in theirs]:
            return
        result = self._result
        result.shared.add(new if is_copy else old)
        for a, b in zip(ours, theirs, strict=True):
            if is_copy and b not in result.before:
                result.copies.setdefault(b, a)
            elif not is_copy and a not in result.after:
                result.merged.setdefault(a, b)

    def _evaluate_alone(self, region: Region) -> None:
        """Number the values of a region without a counterpart."""
        side = self._table.side(region)
        self._evaluate(side, {}, {}, is_second=False, apart=("alone", id(region)))
        self._keep_values(side)

    def _match_same(self, old: Computation, new: Computation) -> _Pending | None:
        """Match two regions with the same text, like ``_match_region``. Nearly all regions of most
        stages have it. Return None for others.
        """
        regions = self._result.regions[0][old], self._result.regions[1][new]
        sides = [self._table.side(region) for region in regions]
        if sides[0].kinds != sides[1].kinds or any(
            a.body is not b.body and a.body.written != b.body.written
            for a, b in zip(regions[0].computations, regions[1].computations, strict=False)
        ):
            return None
        a, b = sides
        self._evaluate(a, {}, {}, is_second=False, apart=("same", old.name))
        b.signatures, b.values = a.signatures, a.values
        self._keep_values(a)
        self._keep_values(b)
        result = self._result
        for ours, theirs in zip(regions[0].computations, regions[1].computations, strict=True):
            result.computations[ours] = theirs
            result.after.update(zip(ours.instructions, theirs.instructions, strict=True))
            result.before.update(zip(theirs.instructions, ours.instructions, strict=True))
            steps = [
                MatchKind.PLACE if statement[3] in _UNEVALUATED else MatchKind.VALUE
                for statement in ours.graph.statements
            ]
            result.steps.update(zip(ours.instructions, steps, strict=True))
        return self._called(a, b, ((index, index) for index in range(len(a.operations))))

    def _match_region(
        self, old: Computation, new: Computation, elements: dict[int, int]
    ) -> _Pending:
        """Match two regions. Return the computations that matched operations call, with the indices
        of the first region's loop variables by those of the second's.
        """
        result = self._result
        a, b = (
            self._table.side(regions[computation])
            for regions, computation in zip(result.regions, (old, new), strict=True)
        )
        parameters = self._parameters(old, new, elements)
        self._evaluate(a, parameters[0], {}, is_second=False)
        self._evaluate(b, parameters[1], {}, is_second=True)
        self._find_uses(a)
        self._find_uses(b)
        pairs = Pairs(a, b)
        by_number = {number: index for index, number in parameters[0].items()}
        for index, number in parameters[1].items():
            if number in by_number:
                pairs.add(by_number[number], index, MatchKind.VALUE)
        pairs.match_values()
        anchored: dict[int, int] = {}
        for step in (
            pairs.match_uses,
            pairs.match_names,
            pairs.match_metadata,
            pairs.match_neighbours,
        ):
            if not pairs.is_complete():
                pairs.look()
                matches = step()
                for ours, theirs in matches:
                    anchored[theirs] = a.signatures[ours]
                    if a.opcodes[ours] == b.opcodes[theirs] == "while":
                        self._elements[a.signatures[ours]] = _loop_variables(a, b, ours, theirs)
                    if b.operations[theirs].shape.is_tuple > a.operations[ours].shape.is_tuple:
                        self._packed.add(a.signatures[ours])
                if matches:
                    self._evaluate(b, parameters[1], anchored, is_second=True)
                    pairs.match_values()
        computations = pair_fusions(a, b)
        result.computations.update(computations)
        pairs.settle(computations)
        self._record(a, b, pairs, computations)
        mates = ((index, theirs) for index, (theirs, _) in pairs.mates.items())
        return self._called(a, b, mates)

    def _parameters(
        self, old: Computation, new: Computation, elements: dict[int, int]
    ) -> tuple[dict[int, int], dict[int, int]]:
        """Return the numbers of both regions' parameters, by their positions."""
        regions = self._result.regions[0][old], self._result.regions[1][new]
        sides = old.parameters, new.parameters
        described = [
            [(plain_shape(p.statement.shape), p.op_name) for p in parameters]
            for parameters in sides
        ]
        path = ("parameter", old.name, len(self._result.computations))
        if len(sides[0]) == len(sides[1]):
            counterparts = {index: index for index in range(len(sides[0]))}
        else:
            counterparts = {}
            matcher = SequenceMatcher(None, described[0], described[1], autojunk=False)
            for _, start, end, other_start, other_end in matcher.get_opcodes():
                if end - start == other_end - other_start:  # the same, or as many of other types
                    counterparts.update(
                        zip(range(other_start, other_end), range(start, end), strict=True)
                    )
        numbers: tuple[dict[int, int], dict[int, int]] = ({}, {})
        for index, parameter in enumerate(sides[0]):
            position = regions[0].carried[parameter]
            if isinstance(position, int):
                numbers[0][position] = self._numbers[*path, index]
        for index, parameter in enumerate(sides[1]):
            position = regions[1].carried[parameter]
            if isinstance(position, int):
                key = (*path, counterparts.get(index, ("new", index)))
                number = numbers[1][position] = self._numbers[key]
                if elements:
                    self._elements[number] = elements
        return numbers

    def _evaluate(
        self,
        side: Side,
        parameters: dict[int, int],
        anchored: dict[int, int],
        *,
        is_second: bool,
        apart: Hashable = None,
    ) -> None:
        """Number the values of one region. ``parameters`` holds the numbers of its parameters,
        ``anchored`` the numbers of first-region operations for their matches. ``apart`` separates
        the parameters of a region from those of others.
        """
        values: list[int] = []
        signatures: list[int] = []
        numbers, numbers_of_keys, elements = self._numbers, self._known, self._elements
        opcodes, commutative, passed_on = side.opcodes, side.commutative, side.passed_on
        unprinted = side.unprinted
        for index, (kind, sources) in enumerate(zip(side.kinds, side.sources, strict=True)):
            number = parameters.get(index)
            if number is None:
                operands = tuple([values[source] for source in sources])
                if commutative[index]:
                    operands = tuple(sorted(operands))
                number = anchored.get(index)
                if is_second and opcodes[index] == "get-tuple-element":
                    if operands[0] in self._packed:
                        number = operands[0]
                    elif elements:
                        kind = self._element(side, index, kind, operands[0])
                key: Hashable = (kind, operands)
                if index in unprinted:  # such constants differ only by name
                    key = (kind, unprinted[index])
                if apart is not None and opcodes[index] == "parameter":
                    key = (kind, apart, index)
                if number is not None:
                    if key not in numbers:
                        numbers_of_keys[key] = number
                else:
                    number = numbers_of_keys.get(key) if is_second else None
                    if number is None:
                        number = numbers[key]
            signatures.append(number)
            values.append(values[sources[0]] if passed_on[index] else number)
        side.values, side.signatures = values, signatures

    def _element(self, side: Side, index: int, kind: int, loop: int) -> int:
        """Return the kind of an element of a loop's variables, by its index in the first module."""
        counterparts = self._elements.get(loop)
        if not counterparts:
            return kind
        statement = side.operations[index].statement
        own = int(split_attributes(statement.attributes).get("index", "0"))
        matched_index = counterparts.get(own, -1 - own)
        if matched_index == own:
            return kind
        shape = plain_shape(statement.shape)
        key = "get-tuple-element", shape, (), (("index", str(matched_index)),), ()
        return self._table.numbers[key]

    def _find_uses(self, side: Side) -> None:
        """Number the uses of each operation, down to the results of the region."""
        made: list[list[tuple[int, int, int]]] = [[] for _ in side.operations]
        for output, slots in side.outputs.items():
            made[output] += [(-1, slot, 0) for slot in slots]
        side.uses = [0] * len(made)
        side.unused = self._numbers["use", ()]
        numbers = self._numbers
        for index in range(len(made) - 1, -1, -1):
            uses, sources = made[index], side.sources[index]
            uses.sort()
            number = side.uses[index] = numbers["use", tuple(uses)]
            if side.passed_on[index]:
                made[sources[0]].extend(uses)
                continue
            kind, is_commutative = side.kinds[index], side.commutative[index]
            for slot, source in enumerate(sources):
                made[source].append((kind, 0 if is_commutative else slot, number))

    def _record(
        self, a: Side, b: Side, pairs: Pairs, computations: dict[Computation, Computation]
    ) -> None:
        """Add the matches of two regions to the result."""
        result = self._result
        self._keep_values(a)
        self._keep_values(b)
        for index, (theirs, step) in sorted(pairs.mates.items()):
            self._add(a.operations[index], b.operations[theirs], step)
            read = [a.values[source] for source in a.sources[index]]
            if (
                read != [b.values[source] for source in b.sources[theirs]]
                or a.kinds[index] != b.kinds[theirs]
            ):
                self._compare_reads(a, b, index, theirs)
        self._compare_results(a, b)
        for theirs, index in pairs.copies.items():
            if b.operations[theirs] not in result.before:
                result.copies[b.operations[theirs]] = a.operations[index]
        for index, theirs in pairs.merged.items():
            if a.operations[index] not in result.after:
                result.merged[a.operations[index]] = b.operations[theirs]
        self._pair_shared(a, b)
        reverse = {b.region.computation: a.region.computation}
        reverse |= {new: old for old, new in computations.items()}
        reverse |= {
            result.computations[c]: c for c in a.region.computations if c in result.computations
        }
        paired = computations.keys(), {*computations.values()}
        callers_of = tuple(  # what a call of another computation became, its place says
            {
                caller
                for callee, caller in side.region.callers.items()
                if caller.opcode == "fusion" or callee in paired_of_side
            }
            for side, paired_of_side in zip((a, b), paired, strict=True)
        )
        shared = set(a.region.computations[1:]) - a.region.callers.keys()
        pending = [(old, new) for new, old in reverse.items()]
        for old, new in pending:  # grows on the way
            self._match_places(old, new, callers_of, shared)
            pending += self._called_alike(old)
        for old, new in computations.items():
            callers = a.region.callers.get(old), b.region.callers.get(new)
            if callers[0] is not None and callers[1] is not None:
                result.add(callers[0], callers[1], MatchKind.PLACE)

    def _compare_reads(self, a: Side, b: Side, ours: int, theirs: int) -> None:
        """Record an operation that reads other values than before."""
        our_sources, their_sources = a.sources[ours], b.sources[theirs]
        if not (
            _read_the_same(a, b, our_sources, their_sources)
            or (a.commutative[ours] and _read_the_same(a, b, our_sources, their_sources[::-1]))
        ):
            self._result.rewired.setdefault(
                a.operations[ours],
                (
                    tuple(a.operations[s] for s in our_sources),
                    tuple(b.operations[s] for s in their_sources),
                ),
            )
        if (
            a.opcodes[ours] == b.opcodes[theirs] == "get-tuple-element"
            and a.kinds[ours] != b.kinds[theirs]
            and a.kinds[ours]
            == self._element(b, theirs, b.kinds[theirs], b.values[their_sources[0]])
        ):
            self._result.recounted.add(b.operations[theirs])

    def _compare_results(self, a: Side, b: Side) -> None:
        """Record the results of a region that are other values than before."""
        root = a.region.computation.root
        results = [[*flatten(s.region.carried[s.region.computation.root])] for s in (a, b)]
        if len(results[0]) != len(
            results[1]
        ):  # another shape, or a whole tuple instead of elements
            self._result.results.append((root, root, b.region.computation.root))
            return
        for ours, theirs in zip(*results, strict=True):
            if not _read_the_same(a, b, (ours,), (theirs,)):
                self._result.results.append((root, a.operations[ours], b.operations[theirs]))

    def _add(self, old: Instruction, new: Instruction, step: MatchKind) -> None:
        """Add a match. Instructions of a shared computation match several times: the first match
        counts, and the others are copies, or merged.
        """
        result = self._result
        if old not in result.after and new not in result.before:
            result.add(old, new, step)
        elif new not in result.before:
            result.copies.setdefault(new, old)
        elif old not in result.after:
            result.merged.setdefault(old, new)

    def _pair_shared(self, a: Side, b: Side) -> None:
        """Pair shared computations by their operations, and record copies."""
        result = self._result
        matched = set(result.computations.values())
        for side, links, is_copy in (
            (a, result.after, False),
            (b, result.copies, True),
            (a, result.merged, False),
        ):
            matched_of_side = matched if is_copy else result.computations.keys()
            for computation in dict.fromkeys(side.region.computations):
                if computation in matched_of_side or computation in side.region.callers:
                    continue
                counterparts = Counter(
                    links[instruction].computation
                    for instruction in computation.instructions
                    if instruction in links
                )
                for counterpart, _ in counterparts.most_common(1):
                    if links is result.after:
                        if counterpart not in matched:
                            result.computations[computation] = counterpart
                            matched.add(counterpart)
                    elif is_copy:
                        self._note_double(counterpart, computation, is_copy=True)
                    else:
                        self._note_double(computation, counterpart, is_copy=False)

    def _called_alike(self, computation: Computation) -> Iterator[tuple[Computation, Computation]]:
        """Pair the computations that only matched calls in ``computation`` identify, as they have
        no operations of their own. Two calls may share one, and call one each in the other module.
        """
        result = self._result
        matched = set(result.computations.values())
        for caller in computation.instructions:
            counterpart = result.after.get(caller)
            if caller.opcode not in _CALLS or counterpart is None or not counterpart.called:
                continue
            for inner, outer in zip(caller.called, counterpart.called, strict=False):
                is_paired = inner in result.computations
                if not is_paired and outer not in matched:
                    result.computations[inner] = outer
                    matched.add(outer)
                    yield inner, outer
                elif is_paired is not (outer in matched):
                    self._note_double(inner, outer, is_copy=is_paired)

    def _keep_values(self, side: Side) -> None:
        values, value_of = side.values, self._result.values
        for instruction, carried in side.region.carried.items():
            value_of[instruction] = (
                values[carried] if isinstance(carried, int) else _values(carried, values)
            )
        for index, operation in enumerate(side.operations):
            if side.idle[index]:
                self._result.idle.add(operation)

    def _match_places(
        self,
        old: Computation,
        new: Computation,
        callers_of: tuple[set[Instruction], ...],
        shared: set[Computation],
    ) -> None:
        """Match the parameters, tuples and elements of two computations, which compute nothing."""
        result = self._result
        left = [
            [
                i
                for i in computation.instructions
                if i not in matched and i.opcode in PLACES and i not in callers
            ]
            for computation, matched, callers in (
                (old, result.after, callers_of[0]),
                (new, result.before, callers_of[1]),
            )
        ]

        def pair(describe: Callable[[Instruction], Hashable]) -> None:
            for ours, theirs in groups(left[0], left[1], describe):
                for a, b in zip(ours, theirs, strict=False):
                    result.add(a, b, MatchKind.PLACE)
            for number, matched in enumerate((result.after, result.before)):
                left[number] = [i for i in left[number] if i not in matched]

        if old in shared:  # its values are those of one of the calls, which may differ
            pair(lambda i: (i.opcode, i.statement.inside) if i.opcode == "parameter" else i)
            self._match_by_operands(left)
        pair(lambda i: (i.opcode, result.values[i], i.is_root, i.name))
        pair(lambda i: (i.opcode, result.values[i], i.is_root))
        pair(lambda i: (i.opcode, i.name))
        pair(lambda i: (i.opcode, i.is_root) if i.is_root else i)

    def _match_by_operands(self, left: list[list[Instruction]]) -> None:
        """Match instructions that read the same operands. Operands precede their users."""
        result = self._result
        theirs: dict[Hashable, list[Instruction]] = defaultdict(list)
        for new in left[1]:
            key = new.opcode, new.attribute("index"), new.called, new.operands
            theirs[key].append(new)
        for old in left[0]:
            operands = tuple([result.after.get(operand) for operand in old.operands])
            callees = tuple([result.computations.get(computation) for computation in old.called])
            counterparts = theirs.get((old.opcode, old.attribute("index"), callees, operands))
            if counterparts and old.opcode != "parameter":
                result.add(old, counterparts.pop(0), MatchKind.PLACE)
        for number, matched in enumerate((result.after, result.before)):
            left[number] = [
                instruction for instruction in left[number] if instruction not in matched
            ]

    def _called(self, a: Side, b: Side, mates: Iterable[tuple[int, int]]) -> _Pending:
        """Return the computations that matched operations call."""
        pending: _Pending = []
        regions = self._result.regions
        for ours, theirs in mates:
            old, new = a.operations[ours], b.operations[theirs]
            names = self._table.operations.called(old.statement)
            if names and self._table.operations.called(new.statement):
                elements: dict[int, int] = {}
                if old.opcode == "while" and new.opcode == "while":
                    elements = _loop_variables(a, b, ours, theirs)
                for inner, outer in zip(*map(self._computations, (old, new)), strict=False):
                    if inner in regions[0] and outer in regions[1]:
                        pending.append((inner, outer, elements))
        return pending

    def _computations(self, caller: Instruction) -> list[Computation]:
        by_name = caller.computation.module.by_name
        names = self._table.operations.called(caller.statement)
        return [by_name[name] for name in names if name in by_name]

    def _match_moved(self) -> None:
        """Match instructions that kept name and opcode, and moved into or out of a loop."""
        result = self._result
        by_name = {i.name: i for i in result.inserted if i.opcode not in PLACES}
        for old in list(result.removed) if by_name else ():
            new = by_name.get(old.name)
            if new is not None and old.opcode == new.opcode and old.shape == new.shape:
                result.add(old, new, MatchKind.NAME)


def _read_the_same(
    a: Side, b: Side, first_sources: tuple[int, ...], second_sources: tuple[int, ...]
) -> bool:
    """Return whether values are the same or come from matched operations, whose edits report any
    difference.
    """
    return len(first_sources) == len(second_sources) and all(
        a.values[s] == b.values[t] or a.signatures[s] == b.signatures[t]
        for s, t in zip(first_sources, second_sources, strict=True)
    )


def _values(carried: Value, values: list[int]) -> Value:
    if isinstance(carried, int):
        return values[carried]
    return tuple([_values(part, values) for part in carried])


def _loop_variables(a: Side, b: Side, ours: int, theirs: int) -> dict[int, int]:
    """Return the indices of a loop's variables in the first module, by those in the
    second.

    Empty if they are the same. A pass adds variables, or removes invariant ones.
    """
    sides = [
        [
            (shape.element_type, shape.dimensions, value)
            for shape, value in zip(
                side.operations[index].shape.elements,
                [side.values[source] for source in side.sources[index]],
                strict=False,
            )
        ]
        for side, index in ((a, ours), (b, theirs))
    ]
    if len(sides[0]) == len(sides[1]):
        return {}
    blocks = SequenceMatcher(None, sides[0], sides[1], autojunk=False).get_matching_blocks()
    return {block.b + i: block.a + i for block in blocks for i in range(block.size)}
