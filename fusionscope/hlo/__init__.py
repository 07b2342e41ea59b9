"""Reads and writes HLO text: shapes, instructions, modules, the parser and the printer."""

from fusionscope.hlo.model import Computation, Instruction, Module
from fusionscope.hlo.parser import ParseTable, parse, read
from fusionscope.hlo.printer import to_text
from fusionscope.hlo.shape import Layout, Shape
from fusionscope.hlo.source import SourceLocation

__all__ = [
    "Computation",
    "Instruction",
    "Layout",
    "Module",
    "ParseTable",
    "Shape",
    "SourceLocation",
    "parse",
    "read",
    "to_text",
]
