"""Text becomes a module: shapes, instructions, the parser and the printer of HLO."""

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
