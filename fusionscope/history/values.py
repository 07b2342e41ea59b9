"""Numbers values so that the same value is recognised in every stage.

Each instruction gets the number of the value that it computes. Two instructions get one number if
they compute the same from the same operands. Names, fusions, ``call`` and asynchronous wrappers,
tuples, plain copies and duplicated instructions make no difference. The stage before fusion and the
final one are therefore comparable.

A later pass may rewrite an instruction (a dot becomes a library call), and then it and all its
users would get new numbers. Stages are therefore numbered in order, and an instruction that is new
in one stage takes the number of the instruction with the same name, or else the same users, or else
the same metadata, in the stage before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from fusionscope.history.operations import (
    COLLECTIVES,
    NOTHING_COMPUTED,
    TRANSPARENT,
    Operations,
    Value,
    flatten,
    is_free_reshape,
    is_passed_on,
    keeps_layout,
)
from fusionscope.history.replacements import (
    paired_operands,
    past_views,
    replacements,
    stands_for,
)
from fusionscope.hlo import Computation, Instruction, Module, Shape
from fusionscope.hlo.attributes import split_attributes
from fusionscope.hlo.model import Body, Statement
from fusionscope.hlo.views import COPIES

_LOOPS_AND_BRANCHES = frozenset({"conditional", "while"})
# Computations that are nested deeper than ``_DEEPEST`` in calls are not entered. Nor are further
# calls after ``_MOST_REPEATED`` instructions were visited again: each of forty computations could
# call the one before twice.
_DEEPEST = 64
_MOST_REPEATED = 20_000


class Block(NamedTuple):
    """An executed computation, with the values of its instructions in their order.

    ``inside`` is the fusion (or asynchronous wrapper) that executes it, or None if it is unfused.
    """

    computation: Computation
    values: list[Value]
    inside: Instruction | None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Execution:
    """One computation that runs instruction by instruction: the entry, or the body of a
    loop.

    ``path`` identifies it by its callers and is the same in every stage. ``blocks`` are the fusions
    that it runs and itself, which is the last; ``values`` the values of its own instructions.
    """

    path: Hashable
    computation: Computation
    blocks: list[Block] = field(default_factory=list)
    # (read value, reading value) in each kernel, through views too
    edges: dict[Instruction, set[tuple[int, int]]] = field(default_factory=dict)
    # The edges whose read value the kernel computes itself.
    joined: dict[Instruction, set[tuple[int, int]]] = field(default_factory=dict)
    # The value that a bitcast, or an operation that a pass inserted, is a view of.
    views: dict[int, int] = field(default_factory=dict)
    # The values that each kernel computes itself.
    computed: dict[Instruction, set[int]] = field(default_factory=dict)
    # The values of the elements that each library call returns.
    elements: dict[Instruction, list[int]] = field(default_factory=dict)
    _values: dict[Instruction, Value] = field(default_factory=dict)

    @property
    def values(self) -> dict[Instruction, Value]:
        if not self._values:
            last_block = self.blocks[-1]  # what it calls ends before it
            self._values.update(
                zip(last_block.computation.instructions, last_block.values, strict=True)
            )
        return self._values

    @property
    def steps(self) -> Iterator[tuple[Instruction, Value]]:
        """Every instruction that is executed, with the value that it computes."""
        for block in self.blocks:
            yield from zip(block.computation.instructions, block.values, strict=True)


@dataclass(frozen=True, slots=True, eq=False)
class NumberedModule:
    """All executions of one stage, the entry first.

    ``parts`` maps the number of a reduction that a pass split to the values of its first halves.
    ``controls`` maps the only result of a loop or conditional to the number of its tuple.
    ``is_whole`` is false if too many calls are repeated to enter them all.
    """

    module: Module
    executions: tuple[Execution, ...]
    parts: dict[int, set[int]]
    controls: dict[int, int]
    is_whole: bool = True

    def by_name(self) -> dict[tuple[Hashable, str | None, str], tuple[Instruction, Value]]:
        """Return instructions with their values by path, name of the fusion around, and name."""
        by_path: dict[tuple[Hashable, str | None, str], tuple[Instruction, Value]] = {}
        for execution in self.executions:
            path = execution.path
            for computation, values, inside in execution.blocks:
                fusion = None if inside is None else inside.name
                for instruction, value in zip(computation.instructions, values, strict=True):
                    by_path[path, fusion, instruction.name] = instruction, value
        return by_path


_Described = dict[Hashable, list[tuple[Instruction, Value]]]


@dataclass(frozen=True, eq=False)
class _Before:
    """The stage before: its instructions by name, those whose name is gone by their nameless
    description, and by the name of what replaced them.
    """

    named: dict[tuple[Hashable, str | None, str], tuple[Instruction, Value]]
    described: _Described
    replaced: dict[str, Instruction]

    def replaced_by(self, path: Hashable, name: str) -> tuple[Instruction, Value] | None:
        """Return the instruction, with its value, whose place one of that name took."""
        earlier = self.replaced.get(name)
        return None if earlier is None else self.named.get((path, None, earlier.name))

    @cached_property
    def moved(self) -> _Described:
        """The instructions outside of fusions by what they keep when they move into one."""
        described_moved: _Described = defaultdict(list)
        for (path, inside, _), entry in self.named.items():
            key = _moved(path, entry[0]) if inside is None else None
            if key is not None:
                described_moved[key].append(entry)
        return described_moved

    @cached_property
    def numbers(self) -> set[int]:
        """The numbers of all values."""
        return {number for _, value in self.named.values() for number in flatten(value)}


class _Earlier(NamedTuple):
    """A fusion in the stage before: its result (None if unknown), its name (None if it was not a
    fusion), and pairs of instructions, new and old, that may correspond.
    """

    result: Value | None
    inside: str | None
    alike: Sequence[tuple[Instruction, Instruction]]


class _Frame:
    """A computation being evaluated; ``values`` grows with each instruction."""

    __slots__ = (
        "arguments", "caller", "computation", "execution", "fusion", "mark", "nested", "values"
    )  # fmt: skip

    def __init__(
        self,
        computation: Computation,
        execution: Execution,
        arguments: tuple[Value, ...] | None,
        caller: Instruction | None,
        fusion: Instruction | None,
    ) -> None:
        self.computation = computation
        self.execution = execution
        self.arguments = arguments
        self.caller = caller
        self.fusion = fusion
        self.values: list[Value] = []
        self.mark = len(execution.blocks)
        self.nested = False  # whether it called computations itself


class Numbering:
    """Numbers the stages of one module, one after the other."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._alike: dict[Hashable, list[int]] = defaultdict(list)  # loops and conditionals by key
        self._taken: set[int] = set()  # numbers that those of this stage have
        self._count = 0
        self._fresh = False  # whether this stage has computed a new value
        self._entered: set[Computation] = set()  # computations that calls of this stage entered
        self._repeated = 0  # instructions in those that were entered again
        self._operations = Operations()
        # Numbers by what the text says, for the next stages, which have most lines unchanged.
        self._evaluated: dict[tuple[Statement, tuple[Value, ...]], int] = {}
        # Values inside fusions and their results, by content and operands.
        self._memory: dict[tuple[Body, tuple[Value, ...]], tuple[list[Value], Value]] = {}
        self._parts: dict[int, set[int]] = defaultdict(set)
        # Passes have a loop or conditional return its only result without a tuple.
        self._controls: dict[int, int] = {}
        self._first_count: int | None = None  # number of values in the first stage
        self._renamed: dict[int, int] = {}  # values that turned out to have an older number
        self._previous: NumberedModule | None = None
        self._module: Module | None = None
        self._known_before: _Before | None = None

    def fork(self) -> Numbering:
        """Return a numbering that continues from here, and leaves this one as it is: what it
        numbers depends on no other module that is numbered next.
        """
        forked = Numbering()
        forked._numbers = dict(self._numbers)
        forked._alike.update((key, list(numbers)) for key, numbers in self._alike.items())
        forked._count = self._count
        forked._operations = self._operations
        forked._evaluated = dict(self._evaluated)
        forked._memory = dict(self._memory)
        forked._parts.update((number, set(parts)) for number, parts in self._parts.items())
        forked._controls = dict(self._controls)
        forked._first_count = self._first_count
        forked._renamed = dict(self._renamed)
        forked._previous = self._previous
        return forked

    def adopt(self, numbered: NumberedModule) -> NumberedModule:
        """Return a stage that was numbered before the fork, as if it had been numbered here."""
        return replace(numbered, parts=self._parts, controls=self._controls)

    def number(self, module: Module, *, contents: bool = True) -> NumberedModule:
        """Number the values of the next stage. Raises ``UnusableInput`` like
        ``Module.check``.

        Without ``contents`` only the values are computed, not the contents of each kernel.
        """
        if contents:
            module.check()
        self._module, self._known_before, self._fresh = module, None, False
        self._entered, self._repeated, self._taken = set(), 0, set()
        executions: list[Execution] = []
        pending: list[tuple[Hashable, Computation]] = [("entry", module.entry)]
        visited: set[Hashable] = {"entry"}
        while pending:
            path, computation = pending.pop()
            execution = Execution(path=path, computation=computation)
            executions.append(execution)
            for inner, callee in self._run(execution):
                if inner not in visited:
                    visited.add(inner)
                    pending.append((inner, callee))
        if self._first_count is None:
            self._first_count = self._count
        for execution in executions if contents else ():
            _collect(execution, self._first_count)
        is_whole = self._repeated < _MOST_REPEATED
        numbered = NumberedModule(module, tuple(executions), self._parts, self._controls, is_whole)
        self._previous = numbered
        return numbered

    def _before(self) -> _Before:
        """Return the facts about the stage before, collected when the first new value turns up."""
        if self._known_before is None:
            self._known_before = self._look_back()
        return self._known_before

    def _look_back(self) -> _Before:
        assert self._module is not None
        if self._previous is None:
            return _Before({}, {}, {})
        previous = self._previous.by_name()
        names = {statement.name for body in self._module.bodies for statement in body.written}
        described: _Described = defaultdict(list)
        for (path, inside, name), entry in previous.items():
            if name in names:
                continue
            keys = [self._description(path, inside, entry[0])]
            if entry[0].opcode == "while":
                keys.append(self._loop(path, entry[0]))
            for key in filter(None, keys):
                described[key].append(entry)
        computations = {execution.computation for execution in self._previous.executions}
        return _Before(previous, described, replacements(computations, self._module))

    def _description(
        self, path: Hashable, inside: str | None, instruction: Instruction
    ) -> Hashable:
        """Return what an instruction is likely to keep when a pass replaces it under
        another name.

        In a fusion (a dot with swapped operands) that is its opcode and number of elements;
        elsewhere (a dot that becomes a library call) its metadata and shape. A view has the
        metadata of what it is a view of, and replaces no other operation. Without metadata, its
        name has to do; a constant whose elements are not printed keeps only its shape.
        """
        if inside is not None:
            if instruction.opcode not in ("convolution", "dot"):
                return None
            return path, inside, instruction.opcode, instruction.shape.element_count
        shape = self._operations.plain_shape(instruction.statement.shape)
        source = instruction
        if instruction.opcode == "get-tuple-element" and instruction.operands:
            source = instruction.operands[0]
        is_view = instruction.opcode in COPIES
        name = "constant" if self._operations.is_elided(instruction.statement) else instruction.name
        return path, None, source.attributes.get("metadata", name), shape, is_view

    def _loop(self, path: Hashable, loop: Instruction, length: int | None = None) -> Hashable:
        """Return what a loop keeps: its metadata and its first variables. Passes append others."""
        shapes = [
            self._operations.plain_shape(str(shape)) for shape in loop.shape.elements[:length]
        ]
        return "loop", path, loop.attributes.get("metadata"), tuple(shapes)

    def _run(self, execution: Execution) -> Iterator[tuple[Hashable, Computation]]:
        """Evaluate one computation. Yield the computations that it runs instruction by instruction
        (bodies of loops, branches), with their paths.
        """
        frames = [_Frame(execution.computation, execution, None, None, None)]
        finished: _Frame | None = None
        evaluated, renamed = self._evaluated, self._renamed
        while frames:
            frame = frames[-1]
            computation, values = frame.computation, frame.values
            graph = computation.graph
            remaining = islice(
                zip(graph.statements, graph.operands, strict=True), len(values), None
            )
            for statement, edges in remaining:
                operands = tuple([values[operand] for operand in edges])
                number = evaluated.get((statement, operands))
                if number is not None:
                    values.append(renamed.get(number, number))
                    continue
                instruction = computation.instructions[len(values)]
                if finished is not None:
                    value = self._return(frame, instruction, operands, finished)
                    finished = None
                elif (
                    statement.opcode in TRANSPARENT
                    and len(frames) < _DEEPEST
                    and self._repeated < _MOST_REPEATED
                ):
                    callees = instruction.called
                    remembered = self._memory.get((callees[0].body, operands)) if callees else None
                    if (
                        remembered is not None
                        and frame.fusion is None
                        and statement.opcode == "fusion"
                    ):
                        value = remembered[1]
                        execution.blocks.append(Block(callees[0], remembered[0], instruction))
                    elif callees:
                        inside = frame.fusion
                        if inside is None and statement.opcode != "call":
                            inside = instruction
                        frame.nested = True
                        if callees[0] in self._entered:
                            self._repeated += len(callees[0].body.written)
                        self._entered.add(callees[0])
                        frames.append(_Frame(callees[0], execution, operands, instruction, inside))
                        break
                    else:
                        value = self._evaluate(frame, statement, instruction, operands)
                else:
                    value = self._evaluate(frame, statement, instruction, operands)
                values.append(value)
                if frame.fusion is None and statement.opcode in _LOOPS_AND_BRANCHES:
                    control = control_of(value, self._controls)
                    for branch, called_computation in enumerate(instruction.called):
                        yield (execution.path, control, branch), called_computation
            else:
                if self._recognizes(frame):
                    # What is computed from a value that has its earlier number again may have one.
                    del execution.blocks[frame.mark :]
                    values.clear()
                    continue
                finished = frames.pop()
                execution.blocks.append(Block(computation, values, frame.fusion))

    def _recognizes(self, frame: _Frame) -> bool:
        """Return whether values of a fusion that was evaluated turn out to have earlier numbers."""
        fusion = frame.caller
        if fusion is None or fusion is not frame.fusion or fusion.opcode != "fusion":
            return False
        successors = self._successors(frame.execution.path, fusion, frame)
        if successors.keys() <= self._renamed.keys():
            return False
        self._renamed |= successors
        return True

    def _return(
        self,
        frame: _Frame,
        caller: Instruction,
        operands: tuple[Value, ...],
        finished: _Frame,
    ) -> Value:
        """Return the value of an instruction whose called computation was evaluated."""
        value = finished.values[finished.computation.graph.root]
        if frame.fusion is None and caller.opcode == "fusion" and not finished.nested:
            # The next stages have most fusions unchanged.
            self._memory[finished.computation.body, operands] = finished.values, value
        return value

    def _evaluate(
        self,
        frame: _Frame,
        statement: Statement,
        instruction: Instruction,
        operands: tuple[Value, ...],
    ) -> Value:
        opcode = statement.opcode
        path = frame.execution.path
        if opcode == "parameter":
            number = int(statement.inside)
            if frame.arguments is not None and number < len(frame.arguments):
                return frame.arguments[number]
            return self._number(("parameter", path, number))
        if opcode == "tuple":
            return operands
        if opcode == "get-tuple-element":
            index = int(split_attributes(statement.attributes).get("index", "0"))
            operand = operands[0]
            if isinstance(operand, tuple):
                return operand[index] if index < len(operand) else operand
            key: Hashable = ("element", operand, index)
        elif operands and (
            is_passed_on(opcode) or (opcode == "copy" and keeps_layout(instruction))
        ):
            return operands[0]
        elif opcode.removesuffix("-start") in COLLECTIVES:
            return self._collective(frame, statement, instruction, operands)
        else:
            key = self._operations.key(instruction, operands)
        value = self._find(key, frame, instruction, operands)
        if opcode == "get-tuple-element":
            whole = instruction.operands[0]
            if whole.opcode in _LOOPS_AND_BRANCHES and len(whole.shape.elements) == 1:
                self._controls.update((value, part) for part in flatten(operands[0]))
        # What a reshape does depends on its operand's layout, a call on what it calls.
        if opcode not in COPIES and not statement.calls and key in self._numbers:
            self._evaluated[statement, operands] = self._numbers[key]
        return value

    def _collective(
        self,
        frame: _Frame,
        statement: Statement,
        instruction: Instruction,
        operands: tuple[Value, ...],
    ) -> Value:
        opcode = statement.opcode
        shape = instruction.shape
        if opcode in ("all-gather-start", "collective-permute-start") and len(shape.elements) > 1:
            shape = shape.elements[1]  # the operand comes first
        shapes = shape.elements if len(operands) > 1 else (shape,)
        if len(shapes) != len(operands):
            key = self._operations.key(instruction, operands)
            return self._find(key, frame, instruction, operands)
        details = self._operations.details(instruction)
        values = tuple(
            self._find(
                (
                    opcode.removesuffix("-start"),
                    self._operations.plain_shape(str(part)),
                    (operand,),
                    *details,
                ),
                frame,
                instruction,
                operands,
            )
            for part, operand in zip(shapes, operands, strict=True)
        )
        return values if len(values) > 1 else values[0]

    def _find(
        self,
        key: Hashable,
        frame: _Frame,
        instruction: Instruction,
        operands: tuple[Value, ...],
    ) -> int:
        """Return the number of a key, possibly that of an instruction in the stage before."""
        if instruction.opcode in _LOOPS_AND_BRANCHES and frame.fusion is None:
            return self._find_control(key, frame.execution.path, instruction)
        number = self._numbers.get(key)
        if number is None:
            inside = frame.fusion.name if frame.fusion else None
            number = self._anchor(frame.execution.path, inside, instruction)
            if number is None:
                number = self._new()
            elif instruction.opcode == "reduce":
                half = instruction.operands[0]
                half = half.operands[0] if half.opcode == "get-tuple-element" else half
                if half.opcode == "reduce":
                    self._parts[number].update(flatten(frame.values[half.index]))
            self._numbers[key] = number
        return self._renamed.get(number, number)

    def _find_control(self, key: Hashable, path: Hashable, instruction: Instruction) -> int:
        """Return the number of a loop or conditional, unique in this stage.

        The contents of its computations are not part of the key, since passes rewrite them. Several
        may start from the same values; the name distinguishes them.
        """
        free = [number for number in self._alike[key] if number not in self._taken]
        if len(free) > 1:
            _, named_number = self._before().named.get((path, None, instruction.name), (None, None))
            free.sort(key=lambda number: number != named_number)
        number = free[0] if free else None
        if number is None:
            number = self._anchor(path, None, instruction)
            if number is None or number in self._taken:
                number = self._new()
            self._alike[key].append(number)
        self._taken.add(number)
        return number

    def _number(self, key: Hashable) -> int:
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = self._new()
        return number

    def _new(self) -> int:
        self._fresh = True
        self._count += 1
        return self._count

    def _anchor(self, path: Hashable, inside: str | None, instruction: Instruction) -> int | None:
        """Return the number of the same instruction in the stage before, if its value is new."""
        previous = self._before()
        before = previous.named.get((path, inside, instruction.name))
        if before is not None:
            old, value = before
            if isinstance(value, int) and old.opcode != "fusion" and self._fits(old, instruction):
                return value
        if inside is None:
            replaced = previous.replaced_by(path, instruction.name)
            if replaced is not None and isinstance(replaced[1], int):
                return replaced[1]
            if not previous.described:
                return None
            keys = [self._description(path, inside, instruction)]
            if instruction.opcode == "while":
                lengths = range(len(instruction.shape.elements), 0, -1)
                keys += [self._loop(path, instruction, length) for length in lengths]
            anchor = next((n for key in keys if (n := _only(previous.described.get(key)))), None)
            for key in keys if anchor is not None else ():
                previous.described.pop(key, None)  # one instruction has one successor
            return anchor
        return _only(previous.described.get(self._description(path, inside, instruction))) or _only(
            previous.moved.get(_moved(path, instruction))
        )

    def _fits(self, old: Instruction, new: Instruction) -> bool:
        """Return whether an instruction that kept its name has a compatible result: of the same
        shape, of another precision with conversions around it, or with more loop variables.
        """
        shapes = [
            self._operations.plain_shape(instruction_of.statement.shape)
            for instruction_of in (old, new)
        ]
        if shapes[0] == shapes[1]:
            return True
        if old.opcode != new.opcode:
            return False
        if new.opcode == "while":
            return shapes[1].startswith(shapes[0].removesuffix(")") + ",")
        return [part.dimensions for part in _arrays(old)] == [
            part.dimensions for part in _arrays(new)
        ]

    def _successors(self, path: Hashable, fusion: Instruction, frame: _Frame) -> dict[int, int]:
        """Return replacements for numbers in a fusion by those in the stage before.

        The compiler rewrites the inside of library and Triton fusions. Their results stay the same,
        and corresponding instructions have corresponding operands.
        """
        if not self._fresh:
            return {}
        previous = self._before()
        earlier = self._find_earlier(path, fusion, frame.computation)
        renamed: dict[int, int] = {}
        if earlier.result is not None:
            result = frame.values[frame.computation.graph.root]
            renamed = _renamed_results(result, earlier.result, previous.numbers)
        pending, visited = list(earlier.alike), set[Instruction]()
        while pending:
            new_value, old_value = map(past_views, pending.pop())
            value = frame.values[new_value.index]
            _, number = previous.named.get((path, earlier.inside, old_value.name), (None, None))
            if (
                new_value not in visited
                and isinstance(value, int)
                and isinstance(number, int)
                and (value not in previous.numbers or value == number)
                and renamed.get(value, number) == number
                and stands_for(new_value, old_value)
            ):
                visited.add(new_value)
                if value != number:
                    renamed[value] = number
                pending += paired_operands(new_value, old_value)
        return renamed

    def _find_earlier(self, path: Hashable, fusion: Instruction, inner: Computation) -> _Earlier:
        previous = self._before()
        before = previous.named.get((path, None, fusion.name))
        if before is not None and before[0].opcode == "fusion":
            roots = [(inner.root, callee.root) for callee in before[0].called[:1]]
            return _Earlier(before[1], fusion.name, roots)
        # It may have formed around one instruction, and then has its metadata and name.
        result, alike = None, []
        formed = previous.replaced_by(path, fusion.name)
        if formed is None:
            described = previous.described.get(self._description(path, None, fusion), [])
            formed = described[0] if len(described) == 1 else None
        if formed is not None:
            result = formed[1]
            alike.append((inner.root, formed[0]))
        dot = previous.named.get((path, None, fusion.name.removeprefix("gemm_fusion_")))
        if dot is not None:
            dots = [
                instruction
                for instruction in inner.instructions
                if instruction.opcode == dot[0].opcode
            ]
            alike += [(new, dot[0]) for new in dots if len(dots) == 1]
        return _Earlier(result, None, alike)


def control_of(result: Value, controls: Mapping[int, int]) -> Value:
    """Return the number by which paths name a loop or conditional with this ``result``."""
    return controls.get(result, result) if isinstance(result, int) else result


def _renamed_results(new: Value, old: Value, numbers: set[int]) -> dict[int, int]:
    """Return the earlier numbers of a fusion's results; those in ``numbers`` stay."""
    ours, theirs = tuple(flatten(new)), tuple(flatten(old))
    if len(ours) != len(theirs):
        return {}
    return {a: b for a, b in zip(ours, theirs, strict=True) if a != b and a not in numbers}


def _collect(execution: Execution, first_count: int) -> None:
    """Collect what each kernel computes, and what it reads for that.

    ``first_count`` is the largest number of the first stage. An operation with one operand that a
    pass inserted since (a conversion, a copy) does not separate the operations on both sides.
    """
    _collect_computed(execution, first_count)
    _collect_read(execution)


def _collect_computed(execution: Execution, first_count: int) -> None:
    views = execution.views
    for block in execution.blocks:
        instructions, edges = block.computation.instructions, block.computation.graph.operands
        for instruction, operands, value in zip(instructions, edges, block.values, strict=True):
            opcode = instruction.opcode
            if opcode in NOTHING_COMPUTED:
                continue
            kernel = block.inside or instruction
            computed = execution.computed.setdefault(kernel, set())
            if not isinstance(value, int):
                computed.update(flatten(value))
                continue
            computed.add(value)
            if opcode == "get-tuple-element":
                call = instruction.operands[0]
                if call.opcode == "custom-call" and block.inside is None:
                    execution.elements.setdefault(call, []).append(value)
                    execution.computed[call].add(value)
            elif (
                opcode == "bitcast"
                or is_free_reshape(instruction)
                or (value > first_count and (len(operands) == 1 or opcode == "pad"))
            ):
                views.update((value, n) for n in flatten(block.values[operands[0]]) if n != value)


def _collect_read(execution: Execution) -> None:
    views = execution.views
    current: Instruction | None = None
    for block in execution.blocks:
        instructions, edges = block.computation.instructions, block.computation.graph.operands
        outside = _from_outside(block)
        for instruction, operands, value in zip(instructions, edges, block.values, strict=True):
            if instruction.opcode in NOTHING_COMPUTED:
                continue
            kernel = block.inside or instruction
            if kernel is not current:
                current = kernel
                computed = execution.computed[kernel]
                read = execution.edges.setdefault(kernel, set())
                # It stays empty outside of fusions, where all operands are results of others.
                joined: set[tuple[int, int]] = set()
                if block.inside is not None:
                    joined = execution.joined.setdefault(kernel, joined)
            readers = [value] if isinstance(value, int) else list(flatten(value))
            is_split = len(readers) == len(operands) > 1  # each result has its own operand
            readers += execution.elements.get(instruction, ())
            for position, operand in enumerate(operands):
                is_own = not outside[operand]
                operand_value = block.values[operand]
                if (
                    isinstance(value, int)
                    and isinstance(operand_value, int)
                    and operand_value not in views
                    and len(readers) == 1
                ):
                    # Most operands: the rest does the same for any others.
                    read.add((operand_value, value))
                    if is_own and operand_value in computed:
                        joined.add((operand_value, value))
                    continue
                own_readers = readers[position : position + 1] if is_split else readers
                if instruction.opcode == "get-tuple-element" and not isinstance(operand_value, int):
                    operand_value = value  # it reads only this element of the tuple
                for number in (
                    (operand_value,) if isinstance(operand_value, int) else flatten(operand_value)
                ):
                    is_joined = is_own
                    for viewed in _viewed(number, views):
                        is_joined = is_joined and viewed in computed
                        for reader in own_readers:
                            read.add((viewed, reader))
                            if is_joined:
                                joined.add((viewed, reader))


def _from_outside(block: Block) -> list[bool]:
    """Return, for each instruction of a block, whether it only passes on an operand of its kernel:
    a parameter of its first computation, or any unfused instruction.
    """
    if block.inside is None:
        return [True] * len(block.values)
    outside: list[bool] = []
    is_first = block.computation in block.inside.called
    for instruction, operands in zip(
        block.computation.instructions, block.computation.graph.operands, strict=True
    ):
        is_element = instruction.opcode == "get-tuple-element"
        outside.append(
            is_first
            and (instruction.opcode == "parameter" or (is_element and outside[operands[0]]))
        )
    return outside


def _viewed(number: int, views: dict[int, int]) -> list[int]:
    """Return ``number``, the number that it is a view of, and so on."""
    chain = [number]
    while (viewed := views.get(chain[-1], number)) not in chain:
        chain.append(viewed)
    return chain


def _arrays(instruction: Instruction) -> Sequence[Shape]:
    shape = instruction.shape
    return (shape,) if shape.is_array else shape.elements


def _moved(path: Hashable, instruction: Instruction) -> Hashable:
    """Return what an instruction keeps when it moves into a fusion and a reshape moves
    across it.

    Return None for reshapes, which passes insert and remove.
    """
    if instruction.opcode in COPIES:
        return None
    return (
        "moved",
        path,
        instruction.opcode,
        instruction.attributes.get("metadata", instruction.name),
        instruction.shape.element_count,
    )


def _only(candidates: list[tuple[Instruction, Value]] | None) -> int | None:
    """Return the number of the only instruction found, or None."""
    value = candidates[0][1] if candidates and len(candidates) == 1 else None
    return value if isinstance(value, int) else None
