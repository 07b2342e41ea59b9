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
    made = text[: entry.start()] + "\n".join(lines) + text[entry.end() :]
    return _header(cut.module) + _SHAPE.sub(r"\1", made.partition("\n")[2])


def _without_copies(cut: Cut) -> Module:
    graph = MutableModule(cut.module)
    for computation in graph.post_order():
        for each in computation.post_order():
            if each.opcode == "copy":
                computation.replace(each, each.operands[0])
    return replace(to_module(graph), name=cut.module.name, header="", frames=None)


def _header(module: Module) -> str:
    parameters = [each for each in module.entry.instructions if each.opcode == "parameter"]
    parameters.sort(key=lambda each: int(each.statement.inside))
    given = ", ".join(_with_layout(each.shape) for each in parameters)
    made = _with_layout(module.entry.root.shape)
    layouts = f"entry_computation_layout={{({given})->{made}}}"
    return f"HloModule {module.name}{module.header}, {layouts}\n"


def _with_layout(shape: Shape) -> str:
    if shape.is_tuple:
        return f"({', '.join(map(_with_layout, shape.elements))})"
    if not shape.rank:
        return f"{shape.element_type}[]"  # the compiler reads no layout of a scalar
    return _LAYOUT.sub(lambda found: found[0].partition(":")[0] + "}", str(shape))


def find_answer(text: str, cut: Cut, *, has_copies: bool = True) -> Answer:
    """Return the outcome of the pair of ``cut`` in the final module ``text``: fused if a kernel
    computes the consumer from the producer. ``has_copies`` is as for ``program_text``.
    """
    module = parse(text)
    marks = _Marks(cut, has_copies=has_copies)
    seen = {
        marks.of(each) for computation in module.computations for each in computation.instructions
    }
    if CONSUMER not in seen or (PRODUCER not in seen and not marks.is_constant):
        return Answer.GONE
    if any(marks.are_joined(computations) for computations in _kernels(module)):
        return Answer.FUSED
    return Answer.NOT_FUSED


class _Marks:
    """Finds the producer and the consumer of a cut in a final module."""

    def __init__(self, cut: Cut, *, has_copies: bool) -> None:
        named = {each.name: each for each in cut.module.entry.instructions}
        pair = {PRODUCER: named[cut.producer], CONSUMER: named[cut.consumer]}
        unmarked = {"constant"} if has_copies else {"constant", "copy"}
        self.is_constant = pair[PRODUCER].opcode == "constant"
        self._own = {mark: each.opcode for mark, each in pair.items()}
        self._unmarked = {mark: each for mark, each in pair.items() if each.opcode in unmarked}

    def of(self, instruction: Instruction) -> str:
        """Return which of the two it is, or "". The compiler keeps no metadata of constants, and of
        copies that are not in the program: any of the same shape is one. What it adds to move a
        value has that value's metadata.
        """
        opcode = instruction.opcode
        for mark, each in self._unmarked.items():
            if opcode == each.opcode and instruction.shape.compatible(each.shape):
                return mark
        name = instruction.op_name or _name_inside(instruction)
        mark = next((mark for mark in (PRODUCER, CONSUMER) if mark in name), "")
        return mark if mark and (opcode not in _MOVING or opcode == self._own[mark]) else ""

    def are_joined(self, computations: list[Computation]) -> bool:
        """Return whether a kernel with ``computations`` computes the consumer from the producer."""
        if any(map(self._joins, computations)):
            return True
        inside = [{self.of(each) for each in each.instructions} for each in computations]
        return len(inside) > 1 and {PRODUCER, CONSUMER} <= set().union(*inside)

    def _joins(self, computation: Computation) -> bool:
        derived: set[str] = set()
        for each in computation.instructions:
            mark = self.of(each)
            is_derived = any(operand.name in derived for operand in each.operands)
            if is_derived and mark == CONSUMER:
                return True
            if is_derived or mark == PRODUCER:
                derived.add(each.name)
        return False


def _name_inside(instruction: Instruction) -> str:
    """Return the framework's name in what an operation calls: one that the compiler has rewritten
    keeps no other.
    """
    if instruction.opcode in ("fusion", "while", "conditional", "call"):
        return ""
    names = (each.op_name for called in instruction.called for each in called.instructions)
    return next((name for name in names if name), "")


def _kernels(module: Module) -> Iterator[list[Computation]]:
    """Yield the computations inside of each kernel."""
    fusions = [
        each
        for computation in module.computations
        for each in computation.instructions
        if each.opcode == "fusion"
    ]
    fused = {called.name for each in fusions for called in each.called}
    for fusion in fusions:
        if fusion.computation.name not in fused:
            inside = list(fusion.called)
            for computation in inside:
                inside += [
                    called
                    for each in computation.instructions
                    if each.opcode == "fusion"
                    for called in each.called
                ]
            yield inside
