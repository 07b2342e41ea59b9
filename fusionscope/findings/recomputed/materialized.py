"""Launches that do not exist, written down to be measured.

If several fusions compute one value, it could be computed once and kept in memory instead: one
launch would write it, the others would read it. ``Drafts`` writes such launches as fusions of a
module, whose bytes and times are then estimated like those of any other.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from fusionscope.history.operations import is_view
from fusionscope.hlo import Computation, Instruction, Module
from fusionscope.hlo.model import Body, Statement
from fusionscope.hlo.shape import ShapeTable


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """The part of ``fusion`` that computes ``results``, instructions inside it.

    ``given`` are instructions inside it that are not computed but read from memory, each with the
    instruction, inside some fusion, whose value is there.
    """

    fusion: Instruction
    results: Sequence[Instruction]
    given: Mapping[Instruction, Instruction] = field(default_factory=dict)


def needed_for(
    results: Sequence[Instruction], sources: Collection[Instruction] = ()
) -> list[Instruction]:
    """Return ``results`` and all of their computation that they need, without what only ``sources``
    need, in the order of the text."""
    computation = results[0].computation
    edges, instructions = computation.graph.operands, computation.instructions
    enough = {source.index for source in sources}
    indices: set[int] = set()
    pending = [result.index for result in results]
    while pending:
        index = pending.pop()
        if index not in indices:
            indices.add(index)
            if index not in enough:
                pending += edges[index]
    return [instructions[index] for index in sorted(indices)]


def _given_to(fusion: Instruction) -> Hashable:
    """Return what is known of the operands of a fusion: the values, and which are views of one."""
    places: dict[Instruction, int] = {}
    key: list[Hashable] = []
    for operand in fusion.operands:
        while operand not in places:
            places[operand] = len(places)
            source = is_view(operand)
            literal = operand.statement.inside if operand.opcode == "constant" else None
            key.append((operand.opcode if source else literal, operand.statement.shape))
            if not source:
                break
            operand = operand.operands[0]
        else:
            key.append(places[operand])
    return tuple(key)


@dataclass(slots=True, eq=False)
class Drafts:
    """A module of drafts; their operands are its parameters. ``operations`` counts what is written
    into them, parameters included."""

    operations: int = 0
    _shapes: ShapeTable = field(default_factory=ShapeTable)
    _called: dict[str, Body] = field(default_factory=dict)
    _bodies: list[Body] = field(default_factory=list)
    _entry: list[Statement] = field(default_factory=list)
    _names: dict[Instruction, str] = field(default_factory=dict)
    _parameters: int = 0
    _known: dict[Hashable, str] = field(default_factory=dict)
    _given: dict[Instruction, Hashable] = field(default_factory=dict)

    def add(self, draft: Draft, attributes: Mapping[str, str]) -> str:
        """Add the launch of a draft, a fusion with these ``attributes``, and return its name.
        Drafts of kernels that are alike are one launch.
        """
        form = self._form(draft), tuple(attributes.items())
        if form not in self._known:
            self._known[form] = self._add(draft, attributes)
        return self._known[form]

    def _form(self, draft: Draft) -> Hashable:
        """Return everything that the bytes, time and flops of a draft depend on."""
        fused = draft.fusion.called[0]
        inputs = self._given.get(draft.fusion)
        if inputs is None:
            inputs = self._given[draft.fusion] = _given_to(draft.fusion)
        return (
            fused.module.contents[fused.name],
            inputs,
            tuple([result.index for result in draft.results]),
            tuple(
                sorted([(instruction.index, value) for instruction, value in draft.given.items()])
            ),
        )

    def _add(self, draft: Draft, attributes: Mapping[str, str]) -> str:
        operands: list[str] = []
        statements: list[Statement] = []
        single = draft.results[0] if len(draft.results) == 1 else None
        instructions = needed_for(draft.results, draft.given)
        outside = draft.fusion.operands
        for instruction in instructions:
            statement = instruction.statement
            root = "ROOT" if instruction is single else ""
            if instruction in draft.given or statement.opcode == "parameter":
                source = draft.given.get(instruction) or outside[instruction.parameter_number or 0]
                inside = str(len(operands))
                operands.append(self.operand(source))
                statement = Statement(
                    root, instruction.name, statement.shape, "parameter", inside, ""
                )
            else:
                self._call(instruction.called)
                if statement.root != root:
                    statement = statement._replace(root=root)
            statements.append(statement)
        if single is None:
            shape = f"({', '.join(result.statement.shape for result in draft.results)})"
            inside = ", ".join(f"%{result.name}" for result in draft.results)
            names = {instruction.name for instruction in instructions}
            name = next(name for n in count() if (name := f"results.{n}") not in names)
            statements.append(Statement("ROOT", name, shape, "tuple", inside, ""))
        else:
            shape = single.statement.shape
        self.operations += len(statements)
        number = len(self._bodies)
        body = Body(f"draft.{number}", "", tuple(statements), self._shapes)
        self._bodies.append(body)
        text = "".join(f", {key}={value}" for key, value in attributes.items())
        inside = ", ".join(f"%{operand}" for operand in operands)
        launch = f"launch.{number}"
        self._entry.append(
            Statement("", launch, shape, "fusion", inside, f"{text}, calls=%{body.name}")
        )
        return launch

    def module(self) -> Module:
        """Return the module. The drafts are instructions of its entry."""
        entry = [*self._entry, Statement("ROOT", "nothing", "()", "tuple", "", "")]
        main = Body("draft.entry", "", tuple(entry), self._shapes)
        bodies = (*self._called.values(), *self._bodies, main)
        lines = [3]
        for body in bodies[:-1]:
            lines.append(lines[-1] + len(body.written) + 3)
        return Module("drafts", "", None, bodies, tuple(lines), len(bodies) - 1)

    def operand(self, instruction: Instruction) -> str:
        """Return the name of a value in the entry. Views stay views: they are the same memory."""
        views: list[Instruction] = []
        while instruction not in self._names and is_view(instruction):
            views.append(instruction)
            instruction = instruction.operands[0]
        if instruction not in self._names:
            is_constant = instruction.opcode == "constant"
            inside = instruction.statement.inside if is_constant else ""
            self._name(instruction, "constant" if is_constant else "parameter", inside)
        for view in reversed(views):
            self._name(view, view.opcode, f"%{self._names[view.operands[0]]}")
            instruction = view
        return self._names[instruction]

    def _name(self, instruction: Instruction, opcode: str, inside: str) -> None:
        name = self._names[instruction] = f"operand.{len(self._names)}"
        if opcode == "parameter":
            inside = str(self._parameters)
            self._parameters += 1
        shape = instruction.statement.shape
        self._entry.append(Statement("", name, shape, opcode, inside, ""))

    def _call(self, callees: tuple[Computation, ...]) -> None:
        """Add the computations that an instruction calls, callees first."""
        pending = [(callee, False) for callee in callees]
        while pending:
            computation, is_done = pending.pop()
            if is_done:
                self._called.setdefault(computation.name, computation.body)
            elif computation.name not in self._called:
                pending.append((computation, True))
                pending += [(call, False) for call in computation.calls]
