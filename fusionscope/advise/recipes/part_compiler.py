"""Compiles parts of a program with further flags."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusionscope.capture.compiler import CompilerProcess
from fusionscope.dump import DumpedModule
from fusionscope.errors import UnusableInput
from fusionscope.facts.suggestions import Figures
from fusionscope.facts.times import count_figures
from fusionscope.hlo import Module, parse, to_text
from fusionscope.versions.context import read_context


class PartCompiler:
    """Compiles programs as ``module`` was, and with further flags, each once. ``spend`` is asked
    for the number of instructions of each before.
    """

    def __init__(
        self, module: DumpedModule, process: CompilerProcess, spend: Callable[[int], bool]
    ) -> None:
        self._backend, self._process, self._spend = module.backend, process, spend
        self._gpu = read_context(module).gpu
        self._compiled: dict[tuple[str, frozenset[str]], Module | None] = {}

    def compile(self, program: Module, flags: Sequence[str] = ()) -> Module | None:
        """Return the final module of ``program``; None if it is beyond the limit, or cannot be
        compiled.
        """
        key = to_text(program), frozenset(flags)
        if key not in self._compiled:
            if not self._spend(program.instruction_count):
                return None
            options = dict(flag.removeprefix("--").split("=", 1) for flag in flags)
            compiled = self._process.compile(key[0], options)
            self._compiled[key] = None if compiled.problem else _read(compiled.text)
        return self._compiled[key]

    def figures(self, program: Module, flags: Sequence[str] = ()) -> Figures | None:
        """Return the figures of ``program``; None as ``compile`` does."""
        final = self.compile(program, flags)
        try:
            return None if final is None else count_figures(final, self._backend, self._gpu)
        except UnusableInput:
            return None


def _read(text: str) -> Module | None:
    try:
        return parse(text)
    except UnusableInput:
        return None
