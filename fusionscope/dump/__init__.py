"""Opens a dump: modules with ordered stages, read on demand."""

from fusionscope.dump.directory import Dump, DumpedModule, Learned, open_dump
from fusionscope.dump.stage import Stage

__all__ = ["Dump", "DumpedModule", "Learned", "Stage", "open_dump"]
