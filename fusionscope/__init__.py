"""fusionscope: which operations XLA fused into one kernel, and why (not).

The names below are the library. Each is imported when it is first asked for, so that a command
that needs little starts fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fusionscope.capture.capture import Captured
    from fusionscope.capture.functions import capture_dump, capturing
    from fusionscope.dump import Dump, DumpedModule, Stage, open_dump
    from fusionscope.errors import UnusableInput
    from fusionscope.explain import Explanation, ModuleFacts, PairFacts, Selection
    from fusionscope.explain import explain as explain_dump
    from fusionscope.explain.difference import Difference, compare
    from fusionscope.explain.module_history import History, history_of
    from fusionscope.hlo import Computation, Instruction, Module, Shape, parse, to_text
    from fusionscope.passes.overrides import PairPattern
    from fusionscope.rerun.applying import Applied, apply
    from fusionscope.rules.changes import Changes
    from fusionscope.verify.verification import Verification
    from fusionscope.verify.verification import verify as verify_dump

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
    "compare",
    "explain_dump",
    "history_of",
    "open_dump",
    "parse",
    "to_text",
    "verify_dump",
]

# Where each name is defined.
_FOLDERS = {
    "fusionscope.capture.capture": ("Captured",),
    "fusionscope.capture.functions": ("capture_dump", "capturing"),
    "fusionscope.dump": ("Dump", "DumpedModule", "Stage", "open_dump"),
    "fusionscope.errors": ("UnusableInput",),
    "fusionscope.explain": ("Explanation", "ModuleFacts", "PairFacts", "Selection", "explain_dump"),
    "fusionscope.explain.difference": ("Difference", "compare"),
    "fusionscope.explain.module_history": ("History", "history_of"),
    "fusionscope.verify.verification": ("Verification", "verify_dump"),
    "fusionscope.rerun.applying": ("Applied", "apply"),
    "fusionscope.passes.overrides": ("PairPattern",),
    "fusionscope.rules.changes": ("Changes",),
    "fusionscope.hlo": ("Computation", "Instruction", "Module", "Shape", "parse", "to_text"),
}
# A plain ``explain`` or ``verify`` would be hidden by the folder of that name, which becomes an
# attribute of the package as soon as anything in it is imported.
_RENAMED = {"explain_dump": "explain", "verify_dump": "verify"}


def __getattr__(name: str) -> Any:
    for folder, names in _FOLDERS.items():
        if name in names:
            return getattr(import_module(folder), _RENAMED.get(name, name))
    raise AttributeError(f"module 'fusionscope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
