"""A module of HLO: immutable, and cheap to share between the stages of a dump.

What one line says is a ``Statement``, what the lines of one computation say together is a ``Body``.
Both know nothing of the file around them, so that a table can share them between modules.
``Module``, ``Computation`` and ``Instruction`` put them in their place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fusionscope.hlo.attributes import read_metadata, read_value, split_attributes
from fusionscope.hlo.shape import Shape
from fusionscope.hlo.source import SourceLocation, StackFrames, source_stack


class Statement(NamedTuple):
    """One instruction as its line states it.

    ``operands`` are names, with ``#index`` behind those that the line writes as elements of a
    tuple. ``calls`` are the names of the computations that it calls. ``literal`` is the text between the parentheses of a constant or parameter; ``typed``
    holds operand shapes where the line writes them. ``attributes`` is verbatim, from the comma on.
    """

    name: str
    opcode: str
    shape: Shape
    operands: tuple[str, ...]
    attributes: str
    calls: tuple[str, ...] = ()
    is_root: bool = False
    literal: str | None = None
    typed: tuple[Shape | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class Body:
    """The statements of one computation and the edges between them.

    ``operands[i]`` are the positions of the operands of statement ``i``. ``lines[i]`` counts lines
    from the one that opens the computation. A get-tuple-element that the text only writes as
    ``%op#1`` has a statement of its own, named ``op#1``, before its first use.
    """

    name: str
    signature: str
    statements: tuple[Statement, ...]
    operands: tuple[tuple[int, ...], ...]
    root: int
    lines: range | tuple[int, ...]
    footer: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Instruction:
    """One instruction of a computation of a module."""

    statement: Statement
    computation: Computation
    index: int

    @property
    def name(self) -> str:
        return self.statement.name

    @property
    def opcode(self) -> str:
        return self.statement.opcode

    @property
    def shape(self) -> Shape:
        return self.statement.shape

    @property
    def literal(self) -> str | None:
        """What a constant holds, as written (``{...}`` where the compiler left it out)."""
        return self.statement.literal if self.opcode == "constant" else None

    @property
    def parameter_number(self) -> int | None:
        """The number of a parameter, from 0."""
        literal = self.statement.literal
        return int(literal) if self.opcode == "parameter" and literal else None

    @property
    def is_root(self) -> bool:
        return self.index == self.computation.body.root

    @property
    def operands(self) -> tuple[Instruction, ...]:
        instructions = self.computation.instructions
        return tuple([instructions[i] for i in self.computation.body.operands[self.index]])

    @property
    def users(self) -> tuple[Instruction, ...]:
        """The instructions that read this one, each once, in the order of the text."""
        instructions = self.computation.instructions
        return tuple([instructions[i] for i in self.computation.users[self.index]])

    @property
    def attributes(self) -> dict[str, str]:
        """Every attribute, verbatim."""
        return split_attributes(self.statement.attributes)

    def attribute(self, key: str) -> Any:
        """One attribute as data (see ``attributes.read_value``), or None."""
        if key not in self.statement.attributes:
            return None
        value = self.attributes.get(key)
        return None if value is None else read_value(key, value)

    @property
    def called(self) -> tuple[Computation, ...]:
        """The computations that this instruction calls, in the order printed."""
        computations = self.computation.module.by_name
        return tuple([computations[name] for name in self.statement.calls])

    @property
    def metadata(self) -> dict[str, str]:
        value = self.attributes.get("metadata") if "metadata" in self.statement.attributes else None
        return read_metadata(value) if value else {}

    @property
    def op_name(self) -> str | None:
        """The framework's name of the operation."""
        return self.metadata.get("op_name") or None

    @property
    def stack(self) -> tuple[SourceLocation, ...]:
        """The user's call stack, innermost first; empty where the compiler does not say."""
        return source_stack(self.metadata, self.computation.module.frames)

    @property
    def source(self) -> SourceLocation | None:
        """The user's line."""
        stack = self.stack
        return stack[0] if stack else None

    @property
    def line(self) -> int:
        """The line in the file, from 1."""
        return self.computation.module.original_line(
            self.computation.line + self.computation.body.lines[self.index]
        )

    @property
    def column(self) -> int:
        """The column in the file, from 1, at which the instruction begins."""
        module = self.computation.module
        if module.positions is None:
            return 3
        return module.positions[
            self.computation.line + self.computation.body.lines[self.index] - 1
        ][1]

    def __repr__(self) -> str:
        return f"<{self.name} = {self.shape} {self.opcode}>"


@dataclass(frozen=True, slots=True, eq=False)
class Computation:
    """One computation of a module. ``line`` is that of its opening line, before normalising."""

    module: Module
    body: Body
    line: int
    is_entry: bool
    _lazy: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        return self.body.name

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """In the order of the text: operands before their users."""
        made: tuple[Instruction, ...] | None = self._lazy.get("instructions")
        if made is None:
            made = tuple(
                [
                    Instruction(statement, self, index)
                    for index, statement in enumerate(self.body.statements)
                ]
            )
            self._lazy["instructions"] = made
        return made

    @property
    def users(self) -> tuple[tuple[int, ...], ...]:
        """Positions of the users of each instruction, each once, in the order of the text."""
        made: tuple[tuple[int, ...], ...] | None = self._lazy.get("users")
        if made is None:
            lists: list[list[int]] = [[] for _ in self.body.operands]
            for index, operands in enumerate(self.body.operands):
                for operand in operands:
                    users = lists[operand]
                    if not users or users[-1] != index:
                        users.append(index)
            made = self._lazy["users"] = tuple(map(tuple, lists))
        return made

    @property
    def root(self) -> Instruction:
        return self.instructions[self.body.root]

    @property
    def parameters(self) -> tuple[Instruction, ...]:
        """In the order of their numbers."""
        return tuple(
            sorted(
                (i for i in self.instructions if i.opcode == "parameter"),
                key=lambda i: i.parameter_number or 0,
            )
        )

    @property
    def execution_thread(self) -> str:
        value = split_attributes(self.body.footer).get("execution_thread")
        return value.strip('"') if value else "main"

    def instruction(self, name: str) -> Instruction:
        """By name, with or without ``%``; raises ``KeyError``."""
        by_name: dict[str, int] | None = self._lazy.get("by_name")
        if by_name is None:
            by_name = {s.name: index for index, s in enumerate(self.body.statements)}
            self._lazy["by_name"] = by_name
        return self.instructions[by_name[name.lstrip("%")]]

    def __repr__(self) -> str:
        return f"<computation {self.name}, {len(self.body.statements)} instructions>"


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """One HLO module, as one file shows it.

    ``positions`` holds line and column in the user's text of each line that was read, where the
    text is not in the compiler's own form; None where lines are what they seem.
    """

    name: str
    header: str
    frames: StackFrames | None
    bodies: tuple[Body, ...]
    lines: tuple[int, ...]
    entry_index: int
    positions: tuple[tuple[int, int], ...] | None = None
    _lazy: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def computations(self) -> tuple[Computation, ...]:
        """In the order of the text."""
        made: tuple[Computation, ...] | None = self._lazy.get("computations")
        if made is None:
            made = tuple(
                Computation(self, body, line, index == self.entry_index)
                for index, (body, line) in enumerate(zip(self.bodies, self.lines, strict=True))
            )
            self._lazy["computations"] = made
        return made

    @property
    def by_name(self) -> dict[str, Computation]:
        made: dict[str, Computation] | None = self._lazy.get("by_name")
        if made is None:
            made = self._lazy["by_name"] = {c.name: c for c in self.computations}
        return made

    @property
    def entry(self) -> Computation:
        return self.computations[self.entry_index]

    @property
    def attributes(self) -> dict[str, str]:
        """Attributes of the header, verbatim."""
        return split_attributes(self.header)

    @property
    def is_scheduled(self) -> bool:
        return self.attributes.get("is_scheduled") == "true"

    @property
    def instruction_count(self) -> int:
        return sum(len(body.statements) for body in self.bodies)

    @property
    def edge_count(self) -> int:
        """Operand slots, a value that is read twice by one instruction counting twice."""
        return sum(len(operands) for body in self.bodies for operands in body.operands)

    def opcode_histogram(self) -> Counter[str]:
        return Counter(s.opcode for body in self.bodies for s in body.statements)

    def walk(self) -> Iterator[Instruction]:
        """Every instruction of every computation."""
        for computation in self.computations:
            yield from computation.instructions

    def reachable(self) -> tuple[Computation, ...]:
        """The computations that the entry calls, directly or not, the entry last.

        A pass can leave computations behind that nothing calls; they are printed all the same.
        """
        seen = {self.entry.name}
        pending = [self.entry]
        while pending:
            for statement in pending.pop().body.statements:
                for name in statement.calls:
                    if name not in seen:
                        seen.add(name)
                        pending.append(self.by_name[name])
        return tuple(c for c in self.computations if c.name in seen and not c.is_entry) + (
            self.entry,
        )

    def original_line(self, line: int) -> int:
        return line if self.positions is None else self.positions[line - 1][0]

    def __eq__(self, other: object) -> bool:
        """Whether both say the same; positions in the text do not count."""
        if not isinstance(other, Module):
            return NotImplemented
        return (
            (self.name, self.header, self.entry_index)
            == (other.name, other.header, other.entry_index)
            and (self.frames.text.split() if self.frames else [])
            == (other.frames.text.split() if other.frames else [])
            and len(self.bodies) == len(other.bodies)
            and all(
                (a.name, a.statements, a.operands, a.root, a.footer)
                == (b.name, b.statements, b.operands, b.root, b.footer)
                for a, b in zip(self.bodies, other.bodies, strict=True)
            )
        )

    def __hash__(self) -> int:
        return hash((self.name, self.header, len(self.bodies)))

    def __repr__(self) -> str:
        return f"<module {self.name}, {len(self.bodies)} computations>"
