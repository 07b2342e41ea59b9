"""Writes a cut as a program, and finds its pair in what the compiler made of that."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum

from fusionscope.experiments.cut import Cut
from fusionscope.graph.mutable import MutableModule, to_module
from fusionscope.hlo import Computation, Instruction, Module, parse, to_text
from fusionscope.hlo.shape import Shape

PRODUCER, CONSUMER = "fusionscope_producer", "fusionscope_consumer"
_LAYOUT = re.compile(r"\{[\d,]*:[^{}]*\}")  # one with tiles, which a program cannot ask for
_METADATA = re.compile(r', metadata=\{(?:[^{}"]|"(?:[^"\\]|\\.)*"|\{[^{}]*\})*\}')
_SHAPE = re.compile(r"\b([a-z]\w*\[[\d,<=?]*\])\{[\d,]*(?::[^{}]*)?\}")
_MOVING = frozenset(
    "bitcast broadcast copy fusion get-tuple-element parameter reshape transpose tuple".split()
)
_ENTRY = re.compile(r"^ENTRY .*?^\}", re.MULTILINE | re.DOTALL)


class Answer(StrEnum):
    """What the compiler did to the pair of a cut."""

    FUSED = "fused"
    NOT_FUSED = "not-fused"
    GONE = "gone"  # one of the two is not in the final module
    FAILED = "failed"  # the compiler did not accept the program


def program_text(cut: Cut, *, has_copies: bool = True) -> str:
    """Return the cut as HLO text, in which metadata mark the pair.

    Its parameters and results have the layouts that they have in the cut. What is between them has
    none: the compiler assigns layouts again. If a program cannot have copies, none is in the text:
    the layouts of parameters and results make the compiler insert them.
    """
    text = _METADATA.sub("", to_text(cut.module if has_copies else _without_copies(cut)))
    marks = {cut.producer: PRODUCER, cut.consumer: CONSUMER}
    entry = _ENTRY.search(text)
    assert entry is not None
    lines = []
    for line in entry[0].splitlines():
        name = line.strip().removeprefix("ROOT ").partition(" = ")[0].lstrip("%")
        if name in marks:
            line += f', metadata={{op_name="{marks[name]}"}}'
        lines.append(line)
    program = text[: entry.start()] + "\n".join(lines) + text[entry.end() :]
    return _header(cut.module) + _SHAPE.sub(r"\1", program.partition("\n")[2])


def _without_copies(cut: Cut) -> Module:
    graph = MutableModule(cut.module)
    for computation in graph.post_order():
        for instruction in computation.post_order():
            if instruction.opcode == "copy":
                computation.replace(instruction, instruction.operands[0])
    return replace(to_module(graph), name=cut.module.name, header="", frames=None)


def _header(module: Module) -> str:
    parameters = [
        instruction
        for instruction in module.entry.instructions
        if instruction.opcode == "parameter"
    ]
    parameters.sort(key=lambda parameter: int(parameter.statement.inside))
    parameter_layouts = ", ".join(_with_layout(parameter.shape) for parameter in parameters)
    result_layout = _with_layout(module.entry.root.shape)
    layouts = f"entry_computation_layout={{({parameter_layouts})->{result_layout}}}"
    return f"HloModule {module.name}{module.header}, {layouts}\n"


def _with_layout(shape: Shape) -> str:
    if shape.is_tuple:
        return f"({', '.join(map(_with_layout, shape.elements))})"
    if not shape.rank:
        return f"{shape.element_type}[]"  # the compiler reads no layout of a scalar
    return _LAYOUT.sub(lambda layout: layout[0].partition(":")[0] + "}", str(shape))


def find_answer(text: str, cut: Cut, *, has_copies: bool = True) -> Answer:
    """Return the outcome of the pair of ``cut`` in the final module ``text``: fused if a kernel
    computes the consumer from the producer. ``has_copies`` is as for ``program_text``.
    """
    module = parse(text)
    marks = _Marks(cut, has_copies=has_copies)
    visited = {
        marks.of(instruction)
        for computation in module.computations
        for instruction in computation.instructions
    }
    if CONSUMER not in visited or (PRODUCER not in visited and not marks.is_constant):
        return Answer.GONE
    if any(marks.are_joined(computations) for computations in _kernels(module)):
        return Answer.FUSED
    return Answer.NOT_FUSED


class _Marks:
    """Finds the producer and the consumer of a cut in a final module."""

    def __init__(self, cut: Cut, *, has_copies: bool) -> None:
        by_name = {instruction.name: instruction for instruction in cut.module.entry.instructions}
        pair = {PRODUCER: by_name[cut.producer], CONSUMER: by_name[cut.consumer]}
        unmarked = {"constant"} if has_copies else {"constant", "copy"}
        self.is_constant = pair[PRODUCER].opcode == "constant"
        self._own = {mark: instruction.opcode for mark, instruction in pair.items()}
        self._unmarked = {
            mark: instruction
            for mark, instruction in pair.items()
            if instruction.opcode in unmarked
        }

    def of(self, instruction: Instruction) -> str:
        """Return which of the two it is, or "". The compiler keeps no metadata of constants, and of
        copies that are not in the program: any of the same shape is one. What it adds to move a
        value has that value's metadata.
        """
        opcode = instruction.opcode
        for mark, end in self._unmarked.items():
            if opcode == end.opcode and instruction.shape.compatible(end.shape):
                return mark
        name = instruction.op_name or _name_inside(instruction)
        mark = next((mark for mark in (PRODUCER, CONSUMER) if mark in name), "")
        return mark if mark and (opcode not in _MOVING or opcode == self._own[mark]) else ""

    def are_joined(self, computations: list[Computation]) -> bool:
        """Return whether a kernel with ``computations`` computes the consumer from the producer."""
        if any(map(self._joins, computations)):
            return True
        inside = [
            {self.of(instruction) for instruction in computation.instructions}
            for computation in computations
        ]
        return len(inside) > 1 and {PRODUCER, CONSUMER} <= set().union(*inside)

    def _joins(self, computation: Computation) -> bool:
        derived: set[str] = set()
        for instruction in computation.instructions:
            mark = self.of(instruction)
            is_derived = any(operand.name in derived for operand in instruction.operands)
            if is_derived and mark == CONSUMER:
                return True
            if is_derived or mark == PRODUCER:
                derived.add(instruction.name)
        return False


def _name_inside(instruction: Instruction) -> str:
    """Return the framework's name in what a rewritten operation calls: it keeps no other."""
    if instruction.opcode in ("fusion", "while", "conditional", "call"):
        return ""
    names = (
        inner.op_name for computation in instruction.called for inner in computation.instructions
    )
    return next((name for name in names if name), "")


def _kernels(module: Module) -> Iterator[list[Computation]]:
    """Yield the computations inside of each kernel."""
    fusions = [
        instruction
        for computation in module.computations
        for instruction in computation.instructions
        if instruction.opcode == "fusion"
    ]
    fused = {computation.name for fusion in fusions for computation in fusion.called}
    for fusion in fusions:
        if fusion.computation.name not in fused:
            inside = list(fusion.called)
            for computation in inside:
                inside += [
                    callee
                    for instruction in computation.instructions
                    if instruction.opcode == "fusion"
                    for callee in instruction.called
                ]
            yield inside
