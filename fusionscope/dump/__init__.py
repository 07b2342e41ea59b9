"""A directory becomes modules with ordered stages, read when they are asked for."""

from fusionscope.dump.directory import Dump, DumpedModule, open_dump
from fusionscope.dump.stage import Stage

__all__ = ["Dump", "DumpedModule", "Stage", "open_dump"]
