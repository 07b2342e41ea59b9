"""The JSON output of ``fusionscope parse``."""

from __future__ import annotations

from typing import Annotated

from fusionscope.report.documents.form import At, Form


class Place(Form):
    """A line of the user's program."""

    file: str
    line: int
    function: str | None


class Instruction(Form):
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
    name: str
    line: Annotated[int, At(lambda computation: computation.module.place(computation.line)[0])]
    root: Annotated[str, At("root.name")]
    instructions: list[Instruction]


class Document(Form, tag_field="schema", tag="fusionscope.parse/1"):
    name: str
    entry: Annotated[str, At("entry.name")]
    is_scheduled: bool
    attributes: dict[str, str]
    instructions: Annotated[int, At("instruction_count")]
    edges: Annotated[int, At("edge_count")]
    opcodes: Annotated[dict[str, int], At(lambda module: module.opcode_histogram().most_common())]
    computations: list[Computation]
