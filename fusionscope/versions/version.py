"""What a version of the compiler is: how a dump shows it, and which rules are known of it.

A dump does not name its compiler. Its file names tell which pass follows which, and every pipeline
leaves a stage before its first pass, whatever the program. A version of XLA that moves a pass or
begins a pipeline with another one thus leaves a mark. The marks were found by compiling the same
programs with each of the versions; `tools/conformance/find_marks.py` does so again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from fusionscope.user_order.user_history import Rewriter

_START = "pipeline-start"


class Mark(NamedTuple):
    """In ``pipeline``, the pass ``before`` comes right behind the pass ``after``.

    ``is_always`` says that every dump of all passes has it, so that one without it is of no such
    version.
    """

    pipeline: str
    after: str
    before: str
    is_always: bool = False

    @property
    def place(self) -> tuple[str, str, str]:
        return self.pipeline, self.after, self.before

    def __str__(self) -> str:
        if self.after == _START:
            return f"{self.pipeline} begins with {self.before}"
        return f"{self.before} behind {self.after}"


def begins(pipeline: str, first: str, *, is_always: bool = False) -> Mark:
    """``pipeline`` begins with the pass ``first``."""
    return Mark(pipeline, _START, first, is_always)


def follows(pipeline: str, after: str, before: str, *, is_always: bool = False) -> Mark:
    return Mark(pipeline, after, before, is_always)


class KnownCompiler(NamedTuple):
    """The rules of one backend, as ``--rules`` calls them, and the module that defines them.

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
    """A release of jaxlib that was looked at, or of XLA where it is called by a year.

    Releases that no mark tells apart are one; those between two that were looked at are taken for
    one of the two. ``gained`` are the marks that the version before lacks, ``lost`` those that it
    had, each by backend. ``compilers`` are the rules that were checked against its dumps, none
    where there are none. ``rewriters`` are passes that decide the order of users on GPUs and that
    this version has in another form than the one before.
    """

    name: str
    gained: Mapping[str, tuple[Mark, ...]] = field(default_factory=dict)
    lost: Mapping[str, tuple[Mark, ...]] = field(default_factory=dict)
    compilers: tuple[KnownCompiler, ...] = ()
    rewriters: Mapping[str, Rewriter] = field(default_factory=dict)
