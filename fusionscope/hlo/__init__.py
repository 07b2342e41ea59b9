"""Reads and writes HLO text: shapes, instructions, modules, the parser and the printer.

The parser is imported when it is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fusionscope.hlo.model import Computation, Instruction, Module
    from fusionscope.hlo.parser import ParseTable, parse, read
    from fusionscope.hlo.printer import to_text
    from fusionscope.hlo.shape import Layout, Shape
    from fusionscope.hlo.source_location import SourceLocation

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

# Where each name is defined.
_FILES = {
    "model": ("Computation", "Instruction", "Module"),
    "parser": ("ParseTable", "parse", "read"),
    "printer": ("to_text",),
    "shape": ("Layout", "Shape"),
    "source_location": ("SourceLocation",),
}


def __getattr__(name: str) -> Any:
    for file, names in _FILES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{file}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
