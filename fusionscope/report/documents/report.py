"""The data inside the page of ``fusionscope report``: positions and stages for the picture, beside
the documents of the other commands.

Lists of numbers are flat: a place takes three (operation, kernel, whether the kernel writes the
operation's value), an edge two (operation, the operation that reads it).
"""

from __future__ import annotations

from typing import Annotated

from fusionscope.report.documents import diff, explain, rules
from fusionscope.report.documents.form import At, Form
from fusionscope.words.section import Section


def _flat(name: str) -> At:
    return At(lambda result: [int(part) for row in getattr(result, name) for part in row])


class Name(Form):
    """The name of a kernel, in the span from one stage to the next."""

    kernel: Annotated[int, At("0")]
    name: Annotated[str, At("1")]


class Stage(Form):
    """A stage that changed the picture, and what it changed."""

    label: str
    pass_: Annotated[str, At("pass_name")]
    added: Annotated[list[int], _flat("added")]
    removed: Annotated[list[int], _flat("removed")]
    edges_added: Annotated[list[int], _flat("edges_added")]
    edges_removed: Annotated[list[int], _flat("edges_removed")]
    names: list[Name]


class Node(Form):
    """An operation; the position in its list is its number."""

    name: str
    opcode: str
    shape: str
    op_name: str | None
    source: str | None


class Box(Form):
    """Where a kernel of the final stage is drawn, or an operation that no final kernel computes."""

    kernel: int | None
    layer: int
    order: int


class Spot(Form):
    """Where an operation is drawn in a box."""

    node: int
    box: int
    row: int
    column: int


class Picture(Form):
    """The graph of a module. ``pairs`` has the numbers of both operations of each pair of the
    module's explanation, and ``kernels`` the number of each kernel there; -1 if it is not drawn.
    ``apart`` are edges, each with a final kernel that computes the first operation for something
    else: the second reads the equal value of another kernel.
    """

    nodes: list[Node]
    stages: list[Stage]
    quiet: int
    boxes: list[Box]
    spots: list[Spot]
    pairs: list[int]
    kernels: list[int]
    apart: Annotated[list[int], _flat("apart")]
    notes: list[str]


class SourceLines(Form):
    """Lines of a source file. ``first`` is the number of the first."""

    file: str
    first: int
    lines: list[str]


class Side(Form):
    """One dump: its explained modules, and for each its picture, what limits it and what to try,
    and what else was found, in the words of ``fusionscope explain``.
    """

    explanation: explain.Document  # type: ignore[valid-type]
    pictures: list[Picture | None]
    tried: list[list[Section]]
    findings: list[list[Section]]


class Document(Form, tag_field="schema", tag="fusionscope.report/1"):
    """``before`` and ``difference`` are null in the page of one dump. Otherwise the modules of both
    sides correspond, and their pictures have the same nodes, boxes and spots. ``changes`` are the
    words of ``fusionscope diff`` on each module that differs, ``same`` on what does not.
    """

    now: Side
    before: Side | None
    difference: diff.Document | None
    changes: list[list[Section]]
    same: list[str]
    rules: list[rules.Rule]
    sources: list[SourceLines]
