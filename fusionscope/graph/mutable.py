"""The mutable module that a replay changes and that rules read.

It behaves like the compiler's own graph wherever that shows in a result: the order of operands and
parameters of a fusion, of instructions in a computation, and of the printed text.
"""

from __future__ import annotations

import functools
import re
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from fusionscope.errors import UnusableInput
from fusionscope.hlo import Computation, Module, parse
from fusionscope.hlo.attributes import called_names, read_names, read_value, split_attributes
from fusionscope.hlo.model import NEVER_CALL, Body, Statement
from fusionscope.hlo.search import post_order
from fusionscope.hlo.shape import Shape, ShapeTable

_KIND = re.compile(r"(, kind=)\w+")
_FEW = 8  # with so few operands or users a scan is faster than an index
# The compiler nests two or three; rules that look into fusions do so level by level.
_DEEPEST = 8
CONTROL = re.compile(r", control-predecessors=\{[^{}]*\}")

_User = TypeVar("_User", bound=Hashable)


class Users(list[_User]):
    """The users of an instruction, each once, in the compiler's order: the last one takes the place
    of a removed one.

    Source: HloInstruction::Users in xla/hlo/ir/hlo_instruction.cc.
    """

    __slots__ = ("_places", "_slots")

    def __init__(self) -> None:
        # Places in the order, if there are many users; slots of users with more than one slot.
        self._places: dict[_User, int] | None = None
        self._slots: dict[_User, int] | None = None

    def add(self, user: _User) -> None:
        """Record that ``user`` reads it in one more slot."""
        places = self._places
        if user in (self if places is None else places):
            self._slots = self._slots or {}
            self._slots[user] = self._slots.get(user, 1) + 1
            return
        self.append(user)
        if places is not None:
            places[user] = len(self) - 1
        elif len(self) > _FEW:
            self._places = {user: place for place, user in enumerate(self)}

    def slots(self, user: _User) -> int:
        """Return the number of slots in which ``user`` reads it."""
        if user not in (self if self._places is None else self._places):
            return 0
        return self._slots.get(user, 1) if self._slots else 1

    def reorder(self, key: Callable[[_User], float]) -> None:
        self.sort(key=key)
        if self._places is not None:
            self._places = {user: place for place, user in enumerate(self)}

    def drop(self, user: _User) -> None:
        """Record that ``user`` reads it in one slot less."""
        if self._slots and (slots := self._slots.pop(user, 1)) > 1:
            if slots > 2:
                self._slots[user] = slots - 1
            return
        place = self.index(user) if self._places is None else self._places.pop(user)
        last = self.pop()
        if last != user:
            self[place] = last
            if self._places is not None:
                self._places[last] = place


class MutableInstruction:
    """One instruction.

    ``attributes_text`` is the text after the operands, verbatim; ``inside`` the literal of a
    constant or the number of a parameter. A fusion made by a replay has its ``fusion_kind``, and a
    ``backend_kind`` if it belongs to a library. ``places`` caches the slots of operands for
    ``slots_of`` if there are many. ``origin`` is the name that it, or the instruction that it was
    cloned from, had at the beginning; empty if a replay made it.
    """

    __slots__ = (
        "_attributes",
        "_values",
        "attributes_text",
        "backend_kind",
        "called",
        "fusion_kind",
        "inside",
        "name",
        "opcode",
        "operands",
        "origin",
        "parent",
        "places",
        "predecessors",
        "shape",
        "successors",
        "users",
    )

    def __init__(
        self,
        name: str,
        opcode: str,
        shape: Shape,
        operands: list[MutableInstruction],
        attributes_text: str = "",
        inside: str = "",
    ) -> None:
        self.name = name
        self.opcode = opcode
        self.shape = shape
        self.operands = operands
        self.attributes_text = attributes_text
        self.inside = inside
        self.users: Users[MutableInstruction] = Users()
        self.called: Sequence[MutableComputation] = ()
        self.parent: MutableComputation | None = None
        self.predecessors: Sequence[MutableInstruction] = ()
        self.successors: Sequence[MutableInstruction] = ()
        self.fusion_kind: str | None = None
        self.backend_kind: str | None = None
        self.origin = ""
        self._attributes: dict[str, str] | None = None
        self._values: dict[str, Any] | None = None
        self.places: dict[MutableInstruction, list[int]] | None = None

    def __repr__(self) -> str:
        return f"<{self.name} = {self.shape} {self.opcode}>"

    def set_attributes(self, text: str) -> None:
        """Replace all attributes, which are written as in a module."""
        self.attributes_text = text
        self._attributes = self._values = None

    @property
    def attributes(self) -> dict[str, str]:
        """Every attribute, verbatim, as in ``hlo.Instruction``."""
        if self._attributes is None:
            self._attributes = split_attributes(self.attributes_text)
        return self._attributes

    def attribute(self, key: str) -> Any:
        """Return one attribute as data, or None."""
        if self._values is None:
            self._values = {}
        if key not in self._values:
            value = self.attributes.get(key) if key in self.attributes_text else None
            self._values[key] = None if value is None else read_value(key, value)
        return self._values[key]

    @property
    def op_name(self) -> str | None:
        """The framework's name of the operation, as in ``hlo.Instruction``."""
        return (self.attribute("metadata") or {}).get("op_name") or None

    @property
    def computation(self) -> MutableComputation:
        assert self.parent is not None, f"{self.name} was removed"
        return self.parent

    @property
    def is_root(self) -> bool:
        return self.computation.root is self

    @property
    def is_custom_fusion(self) -> bool:
        return self.opcode == "fusion" and self.fusion_kind == "kCustom"

    @property
    def is_loop_fusion(self) -> bool:
        return self.opcode == "fusion" and self.fusion_kind == "kLoop"

    @property
    def fused(self) -> MutableComputation:
        """The computation inside a fusion."""
        return self.called[0]

    @property
    def result_name(self) -> str:
        """The name at the beginning of what it, a fusion or not, computes in the end."""
        result = self.fused.root if self.opcode == "fusion" else self
        return result.origin or self.name

    def holds(self, *opcodes: str) -> bool:
        """Return whether it is, or contains as a fusion, an instruction of one of ``opcodes``."""
        if self.opcode != "fusion":
            return self.opcode in opcodes
        inside = self.fused.opcodes
        return any(inside[opcode] for opcode in opcodes)

    @property
    def is_multi_output(self) -> bool:
        return self.opcode == "fusion" and self.fused.root.opcode == "tuple"

    @property
    def parameter_number(self) -> int:
        return int(self.inside)

    @property
    def literal(self) -> str:
        """The value of a constant, as written."""
        return self.inside.strip()


class Growth(NamedTuple):
    """One step of a fusion's growth: ``instruction``, with ``operands``, replaced ``parameter``."""

    parameter: MutableInstruction
    instruction: MutableInstruction
    operands: tuple[MutableInstruction, ...]


class MutableComputation:
    """One computation. ``instructions`` are in the order in which they were added, ``parameters``
    in that of their numbers. ``opcodes`` counts instructions by opcode, so rules need not search
    large fusions. ``nesting`` is the initial depth of fusions within fusions inside it; ``growth``
    holds the steps of fusion since.
    """

    __slots__ = (
        "callers",
        "footer",
        "growth",
        "instructions",
        "module",
        "name",
        "nesting",
        "opcodes",
        "parameters",
        "root",
    )

    def __init__(self, name: str, module: MutableModule, *, footer: str = "") -> None:
        self.name = name
        self.module = module
        self.footer = footer
        self.instructions: dict[MutableInstruction, None] = {}
        self.opcodes: Counter[str] = Counter()
        self.parameters: list[MutableInstruction] = []
        self.root: MutableInstruction
        self.callers: dict[MutableInstruction, None] = {}
        self.nesting = 0
        self.growth: list[Growth] = []

    def __repr__(self) -> str:
        return f"<computation {self.name}>"

    @property
    def is_fused(self) -> bool:
        """Whether a fusion calls it."""
        return any(caller.opcode == "fusion" for caller in self.callers)

    def add(self, instruction: MutableInstruction) -> MutableInstruction:
        """Add an instruction as the last one, and as a user of its operands."""
        instruction.parent = self
        self.instructions[instruction] = None
        # Most are the first of their opcode in a fusion, which a Counter counts slowly.
        self.opcodes[instruction.opcode] = self.opcodes.get(instruction.opcode, 0) + 1
        if instruction.opcode == "parameter":
            self.parameters.append(instruction)
        for operand in instruction.operands:
            operand.users.add(instruction)
        for callee in instruction.called:
            callee.callers[instruction] = None
        return instruction

    def make(
        self,
        opcode: str,
        shape: Shape,
        operands: list[MutableInstruction],
        attributes_text: str = "",
        *,
        name: str = "",
    ) -> MutableInstruction:
        """Add a new instruction. ``name`` is the wanted name, by default the opcode."""
        name = self.module.instruction_name(name or opcode)
        return self.add(MutableInstruction(name, opcode, shape, operands, attributes_text))

    def make_parameter(self, shape: Shape) -> MutableInstruction:
        """Add the next parameter."""
        number = str(len(self.parameters))
        name = self.module.instruction_name(f"parameter_{number}")
        return self.add(MutableInstruction(name, "parameter", shape, [], inside=number))

    def remove(self, instruction: MutableInstruction) -> None:
        """Remove an instruction without users, and hand on its control dependencies."""
        assert not instruction.users, f"{instruction.name} is still read"
        for operand in instruction.operands:
            operand.users.drop(instruction)
        for callee in instruction.called:
            callee.callers.pop(instruction, None)
        if instruction.predecessors or instruction.successors:
            _bypass(instruction)
        instruction.operands = []
        del self.instructions[instruction]
        self.opcodes[instruction.opcode] -= 1
        if instruction.opcode == "parameter":
            self.parameters.remove(instruction)
        instruction.parent = None

    def dissolve(self) -> None:
        """Free its unused contents: instructions refer to each other in cycles."""
        for instruction in self.instructions:
            for callee in instruction.called:
                callee.callers.pop(instruction, None)
            instruction.operands, instruction.users = [], Users()
            instruction.parent = None
            instruction.predecessors = instruction.successors = ()
        self.instructions, self.parameters, self.growth, self.callers = {}, [], [], {}
        del self.root

    def replace_uses(self, old: MutableInstruction, new: MutableInstruction) -> None:
        """Replace ``old`` by ``new`` for all users, and as the root."""
        for user in list(old.users):
            if user is not new:
                replace_operand(user, old, new)
        if self.root is old:
            self.root = new

    def replace(self, old: MutableInstruction, new: MutableInstruction) -> None:
        """Replace ``old`` by ``new`` and remove ``old``. Control dependencies on one become those
        on the other.
        """
        self.replace_uses(old, new)
        for before in old.predecessors:
            before.successors = [
                new if successor is old else successor for successor in before.successors
            ]
        for after in old.successors:
            after.predecessors = [
                new if predecessor is old else predecessor for predecessor in after.predecessors
            ]
        new.predecessors = [*new.predecessors, *old.predecessors]
        new.successors = [*new.successors, *old.successors]
        old.predecessors, old.successors = (), ()
        self.remove(old)

    def post_order(self) -> list[MutableInstruction]:
        """Return instructions in post-order, as the compiler walks and prints a computation.

        Not from a library: of all topological orders, only the compiler's own is right.

        Source: xla/hlo/ir/hlo_computation.cc, MakeInstructionPostOrder.
        """
        visited: set[MutableInstruction] = set()
        open_: set[MutableInstruction] = set()
        order: list[MutableInstruction] = []
        for start in self.instructions:
            if start.users:
                continue
            pending = [start]
            while pending:
                current = pending[-1]
                if current in open_:
                    pending.pop()
                    if current not in visited:
                        visited.add(current)
                        order.append(current)
                    continue
                open_.add(current)
                missing = [
                    operand for operand in reversed(current.operands) if operand not in visited
                ]
                if current.predecessors:
                    missing += [
                        predecessor
                        for predecessor in current.predecessors
                        if predecessor not in visited
                    ]
                if missing:
                    pending += missing
                else:
                    pending.pop()
                    visited.add(current)
                    order.append(current)
        return order


class MutableModule:
    """A mutable copy of a module.

    Raises ``UnusableInput`` if the module contradicts itself.
    """

    def __init__(self, module: Module) -> None:
        module.check()
        self.source = module
        self._names = _Names()
        self._computation_names = _Names()
        by_name: dict[str, MutableComputation] = {}
        for computation in module.reachable():
            by_name[computation.name] = self._copy(computation, by_name)
        self.entry = by_name[module.entry.name]

    def _copy(
        self, computation: Computation, by_name: dict[str, MutableComputation]
    ) -> MutableComputation:
        copied = MutableComputation(computation.name, self, footer=computation.body.footer)
        self._computation_names.take(computation.name)
        graph, shapes = computation.graph, computation.body.shapes
        copies: list[MutableInstruction] = []
        for statement, operands in zip(graph.statements, graph.operands, strict=True):
            _, name, shape, opcode, inside, attributes = statement
            copy = MutableInstruction(
                name,
                opcode,
                shapes[shape],
                [copies[index] for index in operands],
                attributes,
                inside if opcode in ("constant", "parameter") else "",
            )
            copy.origin = name
            if opcode not in NEVER_CALL and (calls := called_names(attributes)):
                copy.called = [by_name[call] for call in calls if call in by_name]
            if opcode == "fusion":
                problem = _find_problem(copy)
                if problem is not None:
                    instruction = computation.instructions[len(copies)]
                    raise UnusableInput(
                        f"{opcode} {name} {problem}",
                        file=self.source.file,
                        line=instruction.line,
                        column=instruction.column,
                    )
                copy.fusion_kind = copy.attributes.get("kind")
                copy.backend_kind = backend_kind(copy)
                copied.nesting = max(copied.nesting, copy.fused.nesting + 1)
            self._names.take(name)
            copies.append(copied.add(copy))
        copied.parameters.sort(key=lambda parameter: parameter.parameter_number)
        copied.root = copies[computation.graph.root]
        self._link(copies)
        return copied

    def _link(self, copies: list[MutableInstruction]) -> None:
        """Add the control dependencies of a computation."""
        by_name: dict[str, MutableInstruction] = {}
        for copy in copies:
            if "control-predecessors" in copy.attributes_text:
                by_name = by_name or {copy.name: copy for copy in copies}
                for name in read_names(copy.attributes["control-predecessors"]):
                    if name in by_name:  # not an element of a tuple that the text abbreviates
                        _run_before(by_name[name], copy)

    def post_order(self) -> list[MutableComputation]:
        """Return the computations that the entry calls, directly or not, callees before callers and
        the entry last.
        """

        def callees(computation: MutableComputation) -> Iterator[MutableComputation]:
            for instruction in computation.instructions:
                yield from instruction.called

        return list(post_order([self.entry], callees))

    def instruction_name(self, name: str) -> str:
        """Return ``name``, with a number appended if that name is taken."""
        return self._names.take(name)

    def add_computation(self, name: str) -> MutableComputation:
        return MutableComputation(self._computation_names.take(name), self)

    def walk(self) -> Iterator[MutableInstruction]:
        for computation in self.post_order():
            yield from computation.instructions

    def dissolve(self) -> None:
        """Free everything. Use it no more."""
        for computation in self.post_order():
            computation.dissolve()
        del self.entry


def _find_problem(fusion: MutableInstruction) -> str | None:
    """Return what a fusion lacks that rules need and reading a module does not check, or None."""
    count = len(fusion.fused.parameters)
    if count != len(fusion.operands):
        return f"has {len(fusion.operands)} operands, but {fusion.fused.name} {count} parameters"
    if fusion.fused.nesting >= _DEEPEST:
        return f"holds fusions nested more than {_DEEPEST} deep"
    return None


class _Names:
    """Names that are taken, and new ones as the compiler makes them: ``name``, ``name.1``."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def take(self, wanted: str) -> str:
        """Return ``wanted``, with another number if that is taken, and mark it as taken."""
        if wanted not in self._taken:
            self._taken.add(wanted)
            return wanted
        before, dot, end = wanted.rpartition(".")
        stem = before if dot and end.isdecimal() else wanted
        number = self._next.get(stem, 1)
        while (name := f"{stem}.{number}") in self._taken:
            number += 1
        self._next[stem] = number + 1
        self._taken.add(name)
        return name


def _run_before(before: MutableInstruction, after: MutableInstruction) -> None:
    """Add a control dependency of ``after`` on ``before``."""
    before.successors = [*before.successors, after]
    after.predecessors = [*after.predecessors, before]


def _bypass(instruction: MutableInstruction) -> None:
    """Let its control successors wait for its control predecessors instead."""
    for before in instruction.predecessors:
        before.successors = _without(before.successors, instruction)
        for after in instruction.successors:
            if after not in before.successors:
                _run_before(before, after)
    for after in instruction.successors:
        after.predecessors = _without(after.predecessors, instruction)
    instruction.predecessors, instruction.successors = (), ()


def _without(
    instructions: Sequence[MutableInstruction], removed: MutableInstruction
) -> list[MutableInstruction]:
    return [instruction for instruction in instructions if instruction is not removed]


def reorder_users(value: MutableInstruction, names: Iterable[str]) -> None:
    """Sort the users of ``value`` in the order of ``names``, if it has exactly these."""
    places = {name: place for place, name in enumerate(names)}
    if len(places) == len(value.users) and all(user.name in places for user in value.users):
        value.users.reorder(lambda user: places[user.name])


def replace_operand(
    user: MutableInstruction, old: MutableInstruction, new: MutableInstruction
) -> None:
    """Replace ``old`` by ``new`` in every slot in which ``user`` reads it."""
    slots = slots_of(user, old)
    for slot in slots:
        user.operands[slot] = new
        old.users.drop(user)
        new.users.add(user)
    if user.places:
        user.places.pop(old, None)
        user.places[new] = sorted((*slots, *user.places.get(new, ())))


def slots_of(user: MutableInstruction, operand: MutableInstruction) -> list[int]:
    """Return the slots in which ``user`` reads ``operand``, in order.

    They are cached for an instruction with many operands, so that finding the slots of all of them
    takes linear time.
    """
    operands = user.operands
    if len(operands) <= _FEW:
        return [slot for slot, each in enumerate(operands) if each is operand]
    slots = user.places.get(operand, []) if user.places is not None else []
    if len(slots) != operand.users.slots(user) or any(
        slot >= len(operands) or operands[slot] is not operand for slot in slots
    ):
        places: dict[MutableInstruction, list[int]] = {}
        user.places = places
        for slot, each in enumerate(operands):
            places.setdefault(each, []).append(slot)
        slots = places.get(operand, [])
    return slots


def remove_unused(instruction: MutableInstruction) -> None:
    """Remove an instruction and all operands that only it read, except results and parameters.

    Source: xla/hlo/ir/hlo_computation.cc, RemoveInstructionAndUnusedOperands.
    """
    pending = deque([instruction])
    while pending:
        current = pending.popleft()
        if (
            current.parent is not None
            and not current.users
            and not current.is_root
            and current.opcode != "parameter"
        ):
            pending.extend(current.operands)
            current.computation.remove(current)


def replace_and_prune(old: MutableInstruction, new: MutableInstruction) -> None:
    """Replace ``old`` by ``new``, and remove ``old`` with all operands that only it read.

    Source: xla/hlo/ir/hlo_computation.cc, ReplaceInstruction that removes unused operands.
    """
    old.computation.replace_uses(old, new)
    remove_unused(old)


def backend_kind(instruction: MutableInstruction) -> str | None:
    """The backend-specific kind of a fusion, such as ``__ynn_fusion``; None for plain ones."""
    return backend_kind_of(instruction.attribute("backend_config"))


def backend_kind_of(config: object) -> str | None:
    """Return the kind of a fusion by its ``backend_config``."""
    for key in ("fusion_config", "fusion_backend_config"):
        if isinstance(config, dict) and isinstance(config.get(key), dict):
            kind = config[key].get("kind")
            return kind if isinstance(kind, str) else None
    return None


def empty_module() -> MutableModule:
    """Return a module that computes nothing, to which computations can be added."""
    return MutableModule(_parse_nothing())


@functools.cache
def _parse_nothing() -> Module:
    return parse("HloModule empty\n\nENTRY empty {\n  ROOT nothing = () tuple()\n}\n")


def to_module(graph: MutableModule) -> Module:
    """Return the current module in the form that readers of dumps use.

    Raises ``UnusableInput`` if it contradicts itself.
    """
    for instruction in graph.walk():
        if "#" in instruction.name:  # an element that the text did not write
            instruction.name = graph.instruction_name(instruction.name.replace("#", "_"))
    shapes = ShapeTable()
    bodies = []
    for computation in graph.post_order():
        order = computation.post_order()
        statements = tuple(_statement(instruction, shapes) for instruction in order)
        parameters = ", ".join(f"{p.name}: {p.shape}" for p in computation.parameters)
        bodies.append(
            Body(
                computation.name,
                f"({parameters}) -> {computation.root.shape}",
                statements,
                shapes,
                computation.root.shape,
                computation.footer,
            )
        )
    line = 3
    lines = []
    for body in bodies:
        lines.append(line)
        line += len(body.written) + 3
    source = graph.source
    return Module(
        source.name,
        source.header,
        source.frames,
        tuple(bodies),
        tuple(lines),
        len(bodies) - 1,
        source.file,
    )


def _statement(instruction: MutableInstruction, shapes: ShapeTable) -> Statement:
    shape = str(instruction.shape)
    shapes.known.setdefault(shape, instruction.shape)
    inside = instruction.inside or ", ".join(f"%{operand.name}" for operand in instruction.operands)
    text = instruction.attributes_text
    if instruction.opcode == "fusion" and "kind=" in text:
        text = _KIND.sub(rf"\1{instruction.fusion_kind}", text)
    elif instruction.opcode == "fusion":
        text = f", kind={instruction.fusion_kind}, calls=%{instruction.fused.name}"
        if instruction.backend_kind is not None:
            is_triton = instruction.backend_kind.startswith("__triton")
            key = "fusion_backend_config" if is_triton else "fusion_config"
            text += f', backend_config={{"{key}":{{"kind":"{instruction.backend_kind}"}}}}'
    if instruction.predecessors or "control-predecessors" in text:
        text = CONTROL.sub("", text)
        if instruction.predecessors:
            names = ", ".join(f"%{predecessor.name}" for predecessor in instruction.predecessors)
            text += f", control-predecessors={{{names}}}"
    root = "ROOT" if instruction.is_root else ""
    return Statement(root, instruction.name, shape, instruction.opcode, inside, text)
