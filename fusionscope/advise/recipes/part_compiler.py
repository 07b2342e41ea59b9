"""Compiles parts of a program, also with further flags."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from math import sqrt

from fusionscope.advise.recipes.compiled import Compiled, CompiledEdit, read_compiled
from fusionscope.capture.compiler import CompilerProcess
from fusionscope.dump import DumpedModule
from fusionscope.errors import UnusableInput
from fusionscope.facts.suggestions import Figures, Suggestion
from fusionscope.gpu.emitters import TRITON
from fusionscope.graph.comparison import meaning
from fusionscope.graph.mutable import backend_kind_of
from fusionscope.graph.work import count_work
from fusionscope.hlo import Instruction, Module, parse, to_text
from fusionscope.rerun.programs import require_final
from fusionscope.versions.context import read_context
from fusionscope.words.text import plural

# What takes as long to compile up to its schedule as so many other instructions: any program, and
# a product. Of equal products, which read what is computed equally in as many steps, the compiler
# chooses tiles once.
_PROGRAM, _PRODUCT = 100, 10
# For a TPU, code is generated, too, and a larger product has more: with the square root of its
# flops to at most two seconds (24 programs for a v5e, libtpu 0.0.52).
_FOR_GIGAFLOPS, _MOST_FOR_PRODUCT = 300, 1_600
_STEPS = 3
# For a kernel of Triton, the compiler finds a tile for each way from the result to an instruction,
# and compares it with the others: so many pairs take as long as an instruction.
_PAIRS_OF_WAYS = 90
_PRODUCTS = frozenset({"convolution", "dot"})
# What a launch on a TPU may take that a change adds and of which only the least time is known, in
# microseconds: of the kernels that only move at most 100 kB, nine tenths have an estimate of at
# most 2,114 cycles (24 programs for a v5e, libtpu 0.0.52).
_UNPRICED_US = 2.0
_NO_CODE = frozenset("bitcast constant get-tuple-element parameter tuple".split())


class PartCompiler:
    """Compiles programs as ``module`` was, and with further flags, each once. ``final`` is what
    ``module`` came to, ``left`` the number of instructions that may still be compiled, products and
    programs as so many more; None means no limit. ``start`` returns the compiler; it is called for
    the first program, and raises ``UnusableInput`` if there is none.
    """

    def __init__(
        self, module: DumpedModule, start: Callable[[], CompilerProcess], left: int | None
    ) -> None:
        self.backend = module.backend or ""
        self.left = left
        self._start = start
        self._process: CompilerProcess | None = None
        self._device = read_context(module).gpu or module.tpu
        self._final = require_final(module)
        self.final = read_compiled(self._final, self.backend, self._device)
        tiles = _pairs_of_ways(self._final) / _PAIRS_OF_WAYS
        self._work_of_instruction = 1 + tiles / max(_count(self._final), 1)
        self._modules: dict[tuple[str, frozenset[str]], Module | None] = {}
        self._contents: dict[tuple[str, frozenset[str]], Compiled | None] = {}

    def take_final_for(self, program: Module) -> None:
        """Take what ``module`` came to for what ``program`` compiles to, which is all of it."""
        key = to_text(program), frozenset[str]()
        self._modules[key], self._contents[key] = self._final, self.final

    def reserve(self, work: int) -> None:
        """Take so much off the limit, or give it back if negative. It may be more than is left."""
        if self.left is not None:
            self.left -= work

    def is_affordable(self, programs: Iterable[Module], *variants: Sequence[str]) -> bool:
        """Return whether compiling ``programs`` with the flags of each of ``variants`` is within
        the limit.
        """
        return self.left is None or self.left >= self.work(programs, *variants)

    def work(self, programs: Iterable[Module], *variants: Sequence[str]) -> int:
        """Return how much of the limit compiling ``programs`` so takes."""
        programs_by_key = {
            (text, frozenset(flags)): program
            for program, text in [(program, to_text(program)) for program in programs]
            for flags in variants
        }
        pending = (program for key, program in programs_by_key.items() if key not in self._modules)
        return sum(map(self._work, pending))

    def compile(self, program: Module, flags: Sequence[str] = ()) -> Module | None:
        """Return the final module of ``program``; None if it is beyond the limit, or cannot be
        compiled.
        """
        key = to_text(program), frozenset(flags)
        if key not in self._modules:
            if self.left is not None:
                if (work := self._work(program)) > self.left:
                    return None
                self.left -= work
            self._modules[key] = self._compile(key[0], flags)
        return self._modules[key]

    def figures_again(self, program: Module) -> Figures | None:
        """Return the figures of ``program`` as it is compiled here, whatever was taken for it, and
        without counting it. Returns None as ``compile`` does.
        """
        if self.left is not None and self._work(program) > self.left:
            return None
        final = self._compile(to_text(program), ())
        return None if final is None else read_compiled(final, self.backend, self._device).figures

    def _compile(self, text: str, flags: Sequence[str]) -> Module | None:
        options = dict(flag.removeprefix("--").split("=", 1) for flag in flags)
        if self._process is None:
            self._process = self._start()
        compiled = self._process.compile(text, options)
        return None if compiled.problem else _read(compiled.text)

    def contents(self, program: Module, flags: Sequence[str] = ()) -> Compiled | None:
        """Return what ``program`` compiles to; None as ``compile`` does."""
        key = to_text(program), frozenset(flags)
        final = self.compile(program, flags)
        if final is not None and key not in self._contents:
            try:
                self._contents[key] = read_compiled(final, self.backend, self._device)
            except UnusableInput:
                self._contents[key] = None
        return self._contents.get(key)

    def figures(self, program: Module, flags: Sequence[str] = ()) -> Figures | None:
        """Return the figures of ``program``; None as ``compile`` does."""
        contents = self.contents(program, flags)
        return None if contents is None else contents.figures

    def why_not_certain(self, parts: Iterable[CompiledEdit], change: Suggestion) -> str:
        """Return why a ``change`` of ``parts`` for a TPU may save no time: launches that it adds
        have no estimate. Nothing if it saves more than these can take.
        """
        added = sum(
            part.times * (part.after.unpriced - part.before.unpriced)
            for part in parts
            if self.backend == "tpu"
        )
        saved = (change.before.time_us or 0.0) - (change.after.time_us or 0.0)
        if added <= 0 or not 0 < saved <= added * _UNPRICED_US:
            return ""
        return f"it adds {plural(added, 'launch')} of unknown time"

    def _work(self, program: Module) -> int:
        products = {_origin(value): value for value in program.walk() if value.opcode in _PRODUCTS}
        return (
            _PROGRAM
            + int(self._work_of_instruction * _count(program))
            + sum(map(self._work_of_product, products.values()))
        )

    def _work_of_product(self, product: Instruction) -> int:
        if self.backend != "tpu":
            return _PRODUCT
        code = int(_FOR_GIGAFLOPS * sqrt(count_work(product).flops / 1e9))
        return _PRODUCT + min(code, _MOST_FOR_PRODUCT)


def _count(program: Module) -> int:
    return sum(instruction.opcode not in _NO_CODE for instruction in program.walk())


def _pairs_of_ways(final: Module) -> int:
    """Return the sum over the kernels of Triton of the square of the number of ways from their
    results to instructions.
    """
    pairs = 0
    for fusion in final.walk():
        if fusion.opcode != "fusion" or not _is_triton(fusion):
            continue
        ways: Counter[Instruction] = Counter([fusion.called[0].root])
        for instruction in reversed(fusion.called[0].instructions):
            for operand in instruction.operands:
                ways[operand] += ways[instruction]
        pairs += ways.total() ** 2
    return pairs


def _is_triton(fusion: Instruction) -> bool:
    kind = backend_kind_of(fusion.attribute("backend_config"))
    return kind is not None and kind.startswith(TRITON)


def _origin(product: Instruction) -> tuple[tuple[str, ...], ...]:
    """Return what a product and the instructions a few steps before it do."""
    operations, level = [], [product]
    for _ in range(_STEPS + 1):
        operations += [(i.opcode, str(i.shape), *meaning(i).values()) for i in level]
        level = [operand for instruction in level for operand in instruction.operands]
    return tuple(operations)


def _read(text: str) -> Module | None:
    try:
        return parse(text)
    except UnusableInput:
        return None
