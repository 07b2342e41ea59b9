"""What of a loop is known before it runs: its values of all steps can be computed at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fusionscope.advise.recipes.directions import Direction, read_direction
from fusionscope.advise.recipes.inner_loops import find_stacked, stack_loop
from fusionscope.advise.recipes.loops import (
    Loop,
    StepNumbers,
    copy_loop,
    element_of,
    extend_state,
    freeze,
)
from fusionscope.advise.recipes.patterns import build, integers, is_zero
from fusionscope.advise.recipes.recurrences import Recurrence, Solver, read_recurrence
from fusionscope.advise.recipes.rows import (
    Stack,
    read_row,
    read_stack,
    step_place,
    write_rows,
)
from fusionscope.advise.recipes.unroll_loop import UnrollLoop
from fusionscope.advise.recipes.vectorizing import Builder, Value, form_of
from fusionscope.graph.fusing import add_element
from fusionscope.graph.mutable import MutableInstruction, replace_operand
from fusionscope.hlo.search import reachable
from fusionscope.hlo.shape import Shape

_HEAVY = frozenset({"dot", "fft", "gather", "reduce", "while"})
_INTEGERS = frozenset("s32 s64 u32 u64".split())
_LIGHT = frozenset("broadcast constant get-tuple-element iota reshape".split())
# Of one element: a kernel's worth, such as a random number.
MANY_OPERATIONS = 20
_FACTORS = (1, 2, 4, 5, 8, 10, 16)  # steps of a chain that may become one


@dataclass(frozen=True, slots=True)
class Delay:
    """Element ``index`` of a state, which becomes what was computed independently of the state."""

    index: int
    result: MutableInstruction


@dataclass(frozen=True, slots=True)
class Chain:
    """Element ``index`` of a state, integers which become what depends on them alone, such as the
    key of random numbers.
    """

    index: int


State = Delay | Stack | Chain | Recurrence | Direction


class Independence:
    """The instructions and elements of ``loop`` that are known before it.

    ``has_recurrences`` is whether linear recurrences are, ``longest_chain`` how many integers an
    element of the state may have that a loop of its own computes first. ``schedule`` has them in an
    order in which they can be computed.
    """

    def __init__(self, loop: Loop, *, has_recurrences: bool, longest_chain: int = 0) -> None:
        self.loop = loop
        self.numbers = StepNumbers(loop)
        self.is_stacked: dict[MutableInstruction, bool] = {}
        self.states: dict[int, State] = {}
        self.inner_loops: dict[MutableInstruction, tuple[bool, ...]] = {}
        self.schedule: list[MutableInstruction | State] = []
        self._has_recurrences, self._longest_chain = has_recurrences, longest_chain
        self._order = [item for item in loop.body.post_order() if item is not loop.body.root]
        for index in loop.settled:
            self._mark(index, index in loop.counters)
        self._solve()

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left for the loop."""
        return len(self.states) + len(self.loop.settled) == len(self.loop.results)

    def _mark(self, index: int, is_stacked: bool) -> None:
        for element in self.loop.elements(index):
            self.is_stacked[element] = is_stacked

    def _solve(self) -> None:
        self._classify()
        while (state := next(self._solvable(), None)) is not None:
            self.states[state.index] = state
            self.schedule.append(state)
            if not isinstance(state, Stack):
                self._mark(state.index, True)
            if isinstance(state, Recurrence | Direction):
                self.is_stacked[state.result] = True
            self._classify()

    def _classify(self) -> None:
        for instruction in self._order:
            is_new = instruction not in self.is_stacked and instruction not in self.inner_loops
            if is_new and self._is_known(instruction):
                self.schedule.append(instruction)

    def _is_known(self, instruction: MutableInstruction) -> bool:
        """Return whether the values of all steps can be computed, and if so, note their form."""
        if instruction.opcode in ("constant", "iota"):
            self.is_stacked[instruction] = False
            return True
        if instruction.opcode == "while":
            return self._is_known_loop(instruction)
        if instruction.opcode == "get-tuple-element":
            elements = self.inner_loops.get(instruction.operands[0])
            if elements is not None:
                self.is_stacked[instruction] = elements[instruction.attribute("index")]
            return elements is not None
        if not instruction.operands or not all(o in self.is_stacked for o in instruction.operands):
            return False
        stacked = [self.is_stacked[operand] for operand in instruction.operands]
        if instruction.opcode == "dynamic-slice":
            is_possible = not stacked[0]
        else:
            is_possible = form_of(instruction, stacked, self.loop.steps) is not None
        if is_possible:
            self.is_stacked[instruction] = any(stacked)
        return is_possible

    def _is_known_loop(self, loop: MutableInstruction) -> bool:
        """Return whether a loop in the body can be computed for all steps."""
        (start,) = loop.operands
        if start.opcode != "tuple" or not all(o in self.is_stacked for o in start.operands):
            return False
        starts = [self.is_stacked[operand] for operand in start.operands]
        stacked = find_stacked(loop, starts, self.loop.steps)
        if stacked is not None:
            self.inner_loops[loop] = stacked
        return stacked is not None

    def _open(self) -> Iterator[tuple[int, MutableInstruction]]:
        """Yield the elements of the state that are not known, and what they become."""
        for index, result in enumerate(self.loop.results):
            if index not in self.states and index not in self.loop.settled:
                yield index, result

    def _solvable(self) -> Iterator[State]:
        """Yield the elements of the state that can be computed next."""
        for index, _ in self._open():
            state = self._stack(index) or self._delay(index) or self._recurrence(index)
            if state is not None:
                yield state
        for index, result in self._open():
            is_short = 0 < (result.shape.element_count or 0) <= self._longest_chain
            is_whole = result.shape.element_type in _INTEGERS
            if is_short and is_whole and self._reads(result) <= {index}:
                yield Chain(index)

    def _delay(self, index: int) -> Delay | None:
        result = self.loop.results[index]
        return Delay(index, result) if result in self.is_stacked else None

    def _stack(self, index: int) -> Stack | None:
        stack = read_stack(self.loop, self.numbers, index)
        return stack if stack is not None and stack.update in self.is_stacked else None

    def _recurrence(self, index: int) -> Recurrence | Direction | None:
        if not self._has_recurrences:
            return None
        loop = self.loop
        elements, result = loop.elements(index), loop.results[index]
        return read_recurrence(
            index, elements, self._order, result, self.is_stacked
        ) or read_direction(index, elements, self._order, result, self.is_stacked, loop.steps)

    def _reads(self, result: MutableInstruction) -> set[int]:
        """Return the changing elements of the state on which ``result`` depends."""
        elements = {element_of(item) for item in self.sources(result)}
        return {index for index in elements if index is not None} - self.loop.settled

    def sources(self, result: MutableInstruction) -> set[MutableInstruction]:
        """Return the instructions that compute ``result``."""
        return {*reachable([result], lambda instruction: instruction.operands)}

    def frontier(self) -> list[MutableInstruction]:
        """Return the stacked values that the rest of the loop reads, and that are worth computing
        outside: broadcasts of them stay.
        """
        pending = [result for _, result in self._open()]
        members, frontier = set(pending), []
        while pending:
            instruction = pending.pop()
            if self.is_stacked.get(instruction) and instruction.opcode != "broadcast":
                if self.is_worth(instruction):
                    frontier.append(instruction)
                continue
            operands = [operand for operand in instruction.operands if operand not in members]
            members.update(operands)
            pending += operands
        return frontier

    def is_worth(self, instruction: MutableInstruction) -> bool:
        """Return whether reading it takes less than computing it in the loop, if that is still
        possible there.
        """
        solved = {item for index in self.states for item in self.loop.elements(index)}
        return not solved.isdisjoint(self.sources(instruction)) or self.is_work(instruction)

    def is_work(self, instruction: MutableInstruction) -> bool:
        """Return whether computing it takes a kernel of its own."""
        opcodes = [
            source.opcode for source in self.sources(instruction) if source.opcode not in _LIGHT
        ]
        return not _HEAVY.isdisjoint(opcodes) or len(opcodes) >= MANY_OPERATIONS

    def reads_chain(self, instruction: MutableInstruction) -> bool:
        """Return whether it depends on what a loop of its own has to compute."""
        chains = [index for index, state in self.states.items() if isinstance(state, Chain)]
        return any(element_of(source) in chains for source in self.sources(instruction))

    def results(self) -> list[MutableInstruction]:
        """Return the values that are computed outside of the loop, and read in it or after it."""
        results = [] if self.is_complete else self.frontier()
        for state in self.states.values():
            if isinstance(state, Stack):
                results.append(state.update)
            elif not isinstance(state, Chain):
                results.append(state.result)
        return results

    def bytes_stacked(self) -> int:
        """Return the bytes of what has to be stored of all steps."""
        results = self.results()
        sources = {source for result in results for source in self.sources(result)}
        stored = {*results, *filter(self._is_stored, sources)}
        directions = (state for state in self.states.values() if isinstance(state, Direction))
        return self.loop.steps * (
            sum(value.shape.byte_size or 0 for value in stored if self.is_stacked.get(value))
            + sum(direction.bytes_stacked for direction in directions)
        )

    def _is_stored(self, source: MutableInstruction) -> bool:
        """Return whether it is in memory between kernels: what a loop computes, for example."""
        is_element = source.opcode == "get-tuple-element"
        return source.opcode in _HEAVY or (is_element and source.operands[0] in self.inner_loops)


class Outside:
    """Computes outside of a loop what is independent of it. ``values`` are those of the body's
    instructions, ``finals`` the elements of the state after the last step.
    """

    def __init__(self, independence: Independence) -> None:
        self._independence, self._loop = independence, independence.loop
        instruction = self._loop.instruction
        self._builder = Builder(instruction.computation, instruction, self._loop.steps)
        self.values: dict[MutableInstruction, Value] = {}
        self.finals: dict[int, Value] = {}
        self._inner: dict[MutableInstruction, list[Value]] = {}
        self._solver = Solver(self._builder, self.values)
        self._start()
        for item in independence.schedule:
            if not isinstance(item, MutableInstruction):
                self._settle(item)
            elif item in independence.inner_loops:
                starts = [self.values[operand] for operand in item.operands[0].operands]
                stacked = independence.inner_loops[item]
                self._inner[item] = stack_loop(item, stacked, starts, self._builder)
            elif item.opcode == "get-tuple-element" and item.operands[0] in self._inner:
                self.values[item] = self._inner[item.operands[0]][item.attribute("index")]
            elif item not in self.values and all(o in self.values for o in item.operands):
                # What is left out is between the steps of a recurrence that nothing else reads.
                self.values[item] = self._compute(item)

    def _start(self) -> None:
        loop = self._loop
        for index in loop.settled:
            value = self.finals[index] = Value(loop.starts[index], False)
            if index in loop.counters:
                value, self.finals[index] = self._counter_values(index)
            self.values |= dict.fromkeys(loop.elements(index), value)

    def _counter_values(self, index: int) -> tuple[Value, Value]:
        """Return what a counter is in each step, and after the last."""
        loop, (first, increment) = self._loop, self._loop.counters[index]
        numbers = f"s32[{loop.steps}]"
        counts = f"""
            places = {numbers} iota(), iota_dimension=0
            increment = s32[] constant({increment})
            increments = {numbers} broadcast(increment), dimensions={{}}
            product = {numbers} multiply(places, increments)
            first = s32[] constant({first})
            firsts = {numbers} broadcast(first), dimensions={{}}
            ROOT counts = {numbers} add(product, firsts)
            """
        last = f"ROOT last = s32[] constant({loop.count(index)[-1]})"
        near = loop.instruction
        return Value(build(near, counts, []), True), Value(build(near, last, []), False)

    def _compute(self, instruction: MutableInstruction) -> Value:
        operands = [self.values[operand] for operand in instruction.operands]
        if instruction.opcode == "dynamic-slice" and self._independence.is_stacked[instruction]:
            return self._rows(instruction, operands)
        return self._builder.clone(instruction, operands)

    def _rows(self, reader: MutableInstruction, operands: list[Value]) -> Value:
        """Return what a slice whose place depends on the step is in all steps."""
        whole, *starts = operands
        numbers = self._independence.numbers.of(reader.operands[1])
        sizes = reader.shape.dimensions
        is_row = sizes == (1, *whole.shape.dimensions[1:]) and all(
            map(is_zero, reader.operands[2:])
        )
        if is_row and numbers is not None:
            rows = self._builder.pick(whole, numbers, reader.shape)
            if rows is not None:
                return rows
        kind, steps = starts[0].shape.element_type, self._loop.steps
        column = Shape(kind, (steps, 1))
        columns = [
            self._builder.make("reshape", column, [self._builder.stack(start)]) for start in starts
        ]
        places = self._builder.make(
            "concatenate", Shape(kind, (steps, len(starts))), columns, ", dimensions={1}"
        )
        ranks = range(len(sizes))
        text = (
            f", offset_dims={integers([rank + 1 for rank in ranks])}, collapsed_slice_dims={{}}"
            f", start_index_map={integers(list(ranks))}, index_vector_dim=1"
            f", slice_sizes={integers([size or 0 for size in sizes])}"
        )
        return self._builder.make(
            "gather", self._builder.stacked(reader.shape), [whole, places], text
        )

    def _settle(self, state: State) -> None:
        index = state.index
        start = Value(self._loop.starts[index], False)
        match state:
            case Stack():
                rows = self._builder.stack(self.values[state.update])
                shape = Shape(rows.shape.element_type, self._loop.starts[index].shape.dimensions)
                rows = self._builder.make("reshape", shape, [rows])
                if state.numbers[0] > 0:
                    rows = self._builder.make("reverse", shape, [rows], ", dimensions={0}")
                self.finals[index] = rows
            case Delay():
                self._follow(index, start, self._builder.stack(self.values[state.result]))
            case Chain():
                stacked, self.finals[index] = _run_chain(self._loop, index)
                self.values |= dict.fromkeys(self._loop.elements(index), stacked)
            case Direction():
                elements = self._loop.elements(index)
                results = self._solver.directed_steps(state, elements, start)
                self.values[state.result] = results
                self._follow(index, start, results)
            case Recurrence() if self._is_read(state):
                results = self._solver.all_steps(state, start)
                self.values[state.result] = results
                self._follow(index, start, results)
            case Recurrence():
                self.finals[index] = self._solver.last_step(state, start)

    def _is_read(self, recurrence: Recurrence) -> bool:
        """Return whether something else reads the element in one of the steps."""
        inner = {*recurrence.inner, *self._loop.elements(recurrence.index)}
        readers = {user for item in inner for user in item.users} - inner
        return readers != {self._loop.body.root} or (
            self._loop.results.count(recurrence.result) > 1
        )

    def _follow(self, index: int, start: Value, results: Value) -> None:
        """Note an element that begins as ``start`` and is one of ``results`` after each step."""
        earlier = self._builder.cut(results, 0, self._loop.steps - 1)
        before = self._builder.join([self._builder.row(start), earlier])
        self.values |= dict.fromkeys(self._loop.elements(index), before)
        self.finals[index] = self._builder.last(results)


def _run_chain(loop: Loop, index: int) -> tuple[Value, Value]:
    """Add a loop that computes an element of the state alone. Return what it is before each step,
    and after the last.
    """
    chain = copy_loop(loop)
    for number in range(len(loop.results)):
        if number != index and number not in loop.settled:
            freeze(chain, number)
    (element, *_) = chain.elements(index) or [add_element(chain.body.parameters[0], index)]
    rows = write_rows(chain, element, step_place(chain))
    times = max(factor for factor in _FACTORS if loop.steps % factor == 0)
    if times > 1 and not chain.body.opcodes["while"]:
        UnrollLoop(times).unroll(chain.instruction)
    stacked, final = (add_element(chain.instruction, n) for n in (rows, index))
    return Value(stacked, True), Value(final, False)


def move_out(independence: Independence) -> None:
    """Compute outside of the loop what is independent of it, and let the loop read the results."""
    loop, outside = independence.loop, Outside(independence)
    frontier = [] if independence.is_complete else independence.frontier()
    _replace_finals(loop, outside)
    if independence.is_complete:
        return
    for instruction in frontier:
        _read_inside(loop, instruction, outside.values[instruction])
    for index in independence.states:
        freeze(loop, index)


def _replace_finals(loop: Loop, outside: Outside) -> None:
    for reader in list(loop.instruction.users):
        index = int(reader.attribute("index"))
        if index in outside.finals:
            value = outside.finals[index].instruction
            for user in list(reader.users):
                replace_operand(user, reader, value)
            if reader.is_root:
                reader.computation.root = value


def _read_inside(loop: Loop, instruction: MutableInstruction, value: Value) -> None:
    """Let the body read what was computed outside."""
    stack = extend_state(loop, value.instruction)
    row_read = read_row(stack, step_place(loop), instruction.shape, instruction)
    for user in list(instruction.users):
        replace_operand(user, instruction, row_read)
