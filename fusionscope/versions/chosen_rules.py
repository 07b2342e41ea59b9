"""Which rules a replay takes, and why."""

from __future__ import annotations

from dataclasses import dataclass

from fusionscope.dump import DumpedModule
from fusionscope.passes.gpu.gemm_fusion.rules_v1 import GPU_GEMM_V1
from fusionscope.passes.gpu.gemm_fusion.rules_v2 import GPU_GEMM_V2
from fusionscope.versions import recognise
from fusionscope.versions.books import BEFORE_PRIORITY_FUSION, BOOKS, CPU_BOOKS, GPU_BOOKS, Books
from fusionscope.versions.marks import RULES
from fusionscope.versions.older_passes import has_older_passes

_OTHERS = "rules of the caller"
_GEMM_V2 = "xla_gpu_experimental_gemm_fusion_v2"


@dataclass(frozen=True, slots=True)
class ChosenRules:
    """``name`` is what the ``books`` are called, ``version`` what made the dump, in words, and
    ``shown_by`` what shows that, empty where nothing does.

    ``are_checked`` is whether they were checked against dumps of that version, or of all that it
    can be: where they were not, what they say is a guess.
    """

    name: str
    books: Books
    version: str
    shown_by: str
    are_checked: bool


def choose_rules(module: DumpedModule, books: Books | None = None) -> ChosenRules:
    """``books``, or where None those of the version that made ``module``: of several that it can be
    the newest, and where there are none the nearest newer ones that know its passes.

    Raises ``UnusableInput`` where the flags cannot be read.
    """
    backend = module.backend or ""
    known = _names_for(module, backend)  # the newest first
    found = recognise(module)
    own = [f"{backend}-{RULES[version]}" for version in reversed(found.versions)]
    fitting = [name for name in own if name in known]
    are_checked = bool(fitting) and fitting == own
    name = fitting[0] if fitting else known[-1] if found.versions else known[0]
    chosen = _as_flags_say(BOOKS[name], module)
    if books is not None and books != chosen:
        name = next((name for name, each in BOOKS.items() if each == books), _OTHERS)
        are_checked = False
    return ChosenRules(name, books or chosen, str(found), found.shown_by, are_checked)


def _names_for(module: DumpedModule, backend: str) -> list[str]:
    """What the books are called that know the passes of ``module``."""
    if backend != "gpu":
        return list(CPU_BOOKS)
    is_older = has_older_passes(module)
    return [name for name in GPU_BOOKS if (name in BEFORE_PRIORITY_FUSION) is is_older]


def _as_flags_say(books: Books, module: DumpedModule) -> Books:
    """A flag of newer GPU compilers tells which of two passes forms fusions around dots."""
    values = module.flags.values if module.flags is not None else {}
    chosen = values.get(_GEMM_V2)
    if chosen is None:
        return books
    other = GPU_GEMM_V2 if chosen[-1] == "true" else GPU_GEMM_V1
    return tuple(other if book.pass_name == other.pass_name else book for book in books)
