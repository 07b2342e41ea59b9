"""What a compiler version is: how a dump shows it, and which rules it has.

A dump does not name its compiler. But its file names show the order of passes, and every pipeline
leaves a stage before its first pass, whatever the program. A version of XLA that moves a pass, or
begins a pipeline with another one, therefore leaves a mark. The marks were found by compiling the
same programs with each version; `tools/conformance/find_marks.py` repeats that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from fusionscope.user_order.user_history import Rewriter

_START = "pipeline-start"


class Mark(NamedTuple):
    """In ``pipeline``, the pass ``before`` directly follows the pass ``after``.

    ``is_always`` says that every complete dump has the mark, so a dump without it is of another
    version. Above 0, ``capability`` limits this to NVIDIA GPUs of at least this major compute
    capability.
    """

    pipeline: str
    after: str
    before: str
    is_always: bool = False
    capability: int = 0

    @property
    def place(self) -> tuple[str, str, str]:
        return self.pipeline, self.after, self.before

    def __str__(self) -> str:
        if self.after == _START:
            return f"{self.pipeline} begins with {self.before}"
        return f"{self.before} behind {self.after}"


def begins(pipeline: str, first: str, *, is_always: bool = False, capability: int = 0) -> Mark:
    """Return the mark that ``pipeline`` begins with the pass ``first``."""
    return Mark(pipeline, _START, first, is_always, capability)


def follows(pipeline: str, after: str, before: str, *, is_always: bool = False) -> Mark:
    return Mark(pipeline, after, before, is_always)


class KnownCompiler(NamedTuple):
    """The rules of one backend, by their name for ``--rules``, and the module that defines them.

    ``has_priority_fusion`` is false for the passes that priority fusion replaced.
    """

    name: str
    module: str
    has_priority_fusion: bool = True

    @property
    def backend(self) -> str:
        return self.name.partition("-")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A release of jaxlib that was examined, or of XLA if its name is a year.

    Releases that no mark distinguishes are one version. A release between two examined ones is
    recognised as one of these. ``gained`` are the marks that the previous version lacks, ``lost``
    those that only it had, each by backend. ``flag`` is one that it and all newer versions have.
    ``compilers`` are the rules that were checked against
    its dumps, if any. ``rewriters`` are the GPU passes that decide the order of users and have
    another form than in the previous version.
    """

    name: str
    gained: Mapping[str, tuple[Mark, ...]] = field(default_factory=dict)
    lost: Mapping[str, tuple[Mark, ...]] = field(default_factory=dict)
    flag: str | None = None
    compilers: tuple[KnownCompiler, ...] = ()
    rewriters: Mapping[str, Rewriter] = field(default_factory=dict)
