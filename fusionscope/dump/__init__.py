"""Opens a dump: modules with ordered stages, read on demand."""

from fusionscope.dump.directory import Dump, DumpedModule, NewFacts, open_dump
from fusionscope.dump.stage import Stage

__all__ = ["Dump", "DumpedModule", "NewFacts", "Stage", "open_dump"]
