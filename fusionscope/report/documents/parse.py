"""The JSON output of ``fusionscope parse``."""

from __future__ import annotations

from typing import Annotated

from fusionscope.report.documents.form import At, Form


class Place(Form):
    """A line of the user's program.

    file: file of the user's program
    line: line in it
    function: function in it
    """

    file: str
    line: int
    function: str | None


class Instruction(Form):
    """An instruction. An element of a tuple that the text only writes as ``op#1`` is one of that
    name, a get-tuple-element.

    name: name, without percent sign
    opcode: the operation
    shape: shape of its value, with layout if the text has one
    operands: instructions that it reads, in their order
    users: instructions that read it, each once
    called: computations that it calls
    attributes: attributes, as written
    literal: what a constant holds, as written: ``{...}`` if the compiler left it out
    line: line in the file, from 1
    column: column in that line, from 1, at which it begins
    source: the user's call stack, innermost first; empty if the compiler does not say
    """

    name: str
    opcode: str
    shape: str
    operands: Annotated[list[str], At("operands.name")]
    users: Annotated[list[str], At("users.name")]
    called: Annotated[list[str], At("called.name")]
    attributes: dict[str, str]
    literal: str | None
    line: int
    column: int
    source: Annotated[list[Place], At("stack")]


class Computation(Form):
    """A computation of the module.

    name: name of the computation
    line: line in the file, from 1, that opens it
    root: the instruction whose value it returns
    instructions: its instructions
    """

    name: str
    line: Annotated[int, At(lambda computation: computation.module.place(computation.line)[0])]
    root: Annotated[str, At("root.name")]
    instructions: list[Instruction]


class Document(Form, tag_field="schema", tag="fusionscope.parse/1"):
    """``fusionscope parse FILE --format json``: instructions are in the order of the text, operands
    before their users.

    name: name of the module
    entry: the computation that a run starts with
    is_scheduled: whether the order of instructions is the one in which they run
    attributes: attributes of the header, as written
    instructions: instructions in all computations
    edges: operands of all instructions; one that is read twice counts twice
    opcodes: instructions with this opcode, the most frequent first
    computations: in the order of the text
    """

    name: str
    entry: Annotated[str, At("entry.name")]
    is_scheduled: bool
    attributes: dict[str, str]
    instructions: Annotated[int, At("instruction_count")]
    edges: Annotated[int, At("edge_count")]
    opcodes: Annotated[dict[str, int], At(lambda module: module.opcode_histogram().most_common())]
    computations: list[Computation]
