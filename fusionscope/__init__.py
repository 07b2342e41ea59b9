"""fusionscope: which operations XLA fused into one kernel, and why (not).

The names below are the library. Each is imported when it is first asked for, so that a command
that needs little starts fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fusionscope.api import OpenedDump, diff, open
    from fusionscope.capture.capture import Captured
    from fusionscope.capture.functions import capture_dump, capturing
    from fusionscope.compare.difference import Difference
    from fusionscope.compare.module_history import History
    from fusionscope.dump import Dump, DumpedModule, Stage
    from fusionscope.errors import UnusableInput
    from fusionscope.explain import Explanation, ModuleFacts, PairFacts, Selection
    from fusionscope.hlo import Computation, Instruction, Module, Shape, parse, to_text
    from fusionscope.passes.overrides import PairPattern
    from fusionscope.report.frames import to_frame
    from fusionscope.rerun.applying import Applied, apply
    from fusionscope.rules.changes import Changes
    from fusionscope.verify.verification import Verification

__version__ = "0.1.0"

__all__ = [
    "Applied",
    "Captured",
    "Changes",
    "Computation",
    "Difference",
    "Dump",
    "DumpedModule",
    "Explanation",
    "History",
    "Instruction",
    "Module",
    "ModuleFacts",
    "OpenedDump",
    "PairFacts",
    "PairPattern",
    "Selection",
    "Shape",
    "Stage",
    "UnusableInput",
    "Verification",
    "__version__",
    "apply",
    "capture_dump",
    "capturing",
    "diff",
    "open",
    "parse",
    "to_frame",
    "to_text",
]

# Where each name is defined.
_FOLDERS = {
    "fusionscope.api": ("OpenedDump", "diff", "open"),
    "fusionscope.capture.capture": ("Captured",),
    "fusionscope.capture.functions": ("capture_dump", "capturing"),
    "fusionscope.dump": ("Dump", "DumpedModule", "Stage"),
    "fusionscope.errors": ("UnusableInput",),
    "fusionscope.explain": ("Explanation", "ModuleFacts", "PairFacts", "Selection"),
    "fusionscope.compare.difference": ("Difference",),
    "fusionscope.compare.module_history": ("History",),
    "fusionscope.hlo": ("Computation", "Instruction", "Module", "Shape", "parse", "to_text"),
    "fusionscope.passes.overrides": ("PairPattern",),
    "fusionscope.report.frames": ("to_frame",),
    "fusionscope.rerun.applying": ("Applied", "apply"),
    "fusionscope.rules.changes": ("Changes",),
    "fusionscope.verify.verification": ("Verification",),
}


def __getattr__(name: str) -> Any:
    for folder, names in _FOLDERS.items():
        if name in names:
            return getattr(import_module(folder), name)
    raise AttributeError(f"module 'fusionscope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
