"""Compiles parts of a program, also with further flags."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusionscope.advise.recipes.compiled import Compiled, read_compiled
from fusionscope.capture.compiler import CompilerProcess
from fusionscope.dump import DumpedModule
from fusionscope.errors import UnusableInput
from fusionscope.facts.suggestions import Figures
from fusionscope.hlo import Module, parse, to_text
from fusionscope.rerun.programs import require_final
from fusionscope.versions.context import read_context


class PartCompiler:
    """Compiles programs as ``module`` was, and with further flags, each once. ``final`` is what
    ``module`` came to. ``spend`` is asked for the number of instructions of each before.
    """

    def __init__(
        self, module: DumpedModule, process: CompilerProcess, spend: Callable[[int], bool]
    ) -> None:
        self.backend = module.backend or ""
        self._process, self._spend = process, spend
        self._gpu = read_context(module).gpu
        self.final = read_compiled(require_final(module), self.backend, self._gpu)
        self._modules: dict[tuple[str, frozenset[str]], Module | None] = {}
        self._contents: dict[tuple[str, frozenset[str]], Compiled | None] = {}

    def work(self, program: Module) -> int:
        """Return how many instructions have to be compiled for ``program``."""
        is_compiled = (to_text(program), frozenset[str]()) in self._modules
        return 0 if is_compiled else program.instruction_count

    def compile(self, program: Module, flags: Sequence[str] = ()) -> Module | None:
        """Return the final module of ``program``; None if it is beyond the limit, or cannot be
        compiled.
        """
        key = to_text(program), frozenset(flags)
        if key not in self._modules:
            if not self._spend(program.instruction_count):
                return None
            options = dict(flag.removeprefix("--").split("=", 1) for flag in flags)
            compiled = self._process.compile(key[0], options)
            self._modules[key] = None if compiled.problem else _read(compiled.text)
        return self._modules[key]

    def contents(self, program: Module, flags: Sequence[str] = ()) -> Compiled | None:
        """Return what ``program`` compiles to; None as ``compile`` does."""
        key = to_text(program), frozenset(flags)
        final = self.compile(program, flags)
        if final is not None and key not in self._contents:
            try:
                self._contents[key] = read_compiled(final, self.backend, self._gpu)
            except UnusableInput:
                self._contents[key] = None
        return self._contents.get(key)

    def figures(self, program: Module, flags: Sequence[str] = ()) -> Figures | None:
        """Return the figures of ``program``; None as ``compile`` does."""
        contents = self.contents(program, flags)
        return None if contents is None else contents.figures


def _read(text: str) -> Module | None:
    try:
        return parse(text)
    except UnusableInput:
        return None
