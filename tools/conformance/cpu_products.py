"""Who computes a product on a CPU is who the compiler gives it to.

Some hundred products of different types, sizes, layouts and batches are compiled. The compiler
writes an object file for each kernel that it makes, none for what YNN or Eigen computes; whether a
product is YNN's, the final module shows. A product that is YNN's has to meet all of its conditions,
and no other one. PATHS are dumps of programs, whose products are examined instead, and whether the
pass that gives operations to YNN made of them what the replay does.
"""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from sys import executable
from tempfile import TemporaryDirectory

from conformance.compiling import compile_all, compiler_of, version_of
from conformance.findings import Finding, counted, problem
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.graph.mutable import backend_kind_of
from fusionscope.hlo import Instruction
from fusionscope.passes.context import PassContext
from fusionscope.passes.cpu.products import EIGEN, emitter_of, find_refusal
from fusionscope.passes.rule import Rule, RuleBook
from fusionscope.verify.verification import verify
from fusionscope.versions.choice import choose_compiler

_FLAGS = "--xla_dump_hlo_as_text --xla_dump_hlo_pass_re=.*"
_KINDS = ("f32", "bf16 f32", "f64", "c64", "s8 s32", "s16", "s32", "u32", "f16")
_SIZES = ((1, 64, 64), (64, 64, 1), (4, 4, 4), (2, 300, 2), (3, 64, 3), (64, 3, 64), (8, 2, 2))
_SIZES += ((64, 64, 64), (200, 100, 300), (16, 100, 100))  # rows, contracted, columns
_BATCHES = (0, 5)
_TURNED = ((False, False), (True, False), (False, True))
_LIBRARY = "dot-library-rewriter"


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH")
    parser.add_argument("--python", default=executable, help="one that has jax")


def findings(options: Namespace) -> Iterator[Finding]:
    for path in options.paths:
        yield from _of_programs(path)
    if options.paths:
        return
    compiler = compiler_of(version_of(options.python))
    book = next((p.book for p in compiler.passes if p.name == _LIBRARY), None)
    texts = list(_texts())
    with TemporaryDirectory() as scratch:
        problems = compile_all(options.python, _FLAGS, texts, Path(scratch))
        dumps = {module.name: module for module in open_dump(Path(scratch) / "dump").modules}
        objects = [file.name for file in (Path(scratch) / "dump").glob("*.o")]
        for number, reason in enumerate(problems):
            module = dumps.get(f"product_{number}")
            if reason or module is None:
                yield counted("do not compile", f"{texts[number]}: {reason}")
            else:
                yield from _compared(module, book, objects, texts[number])


def _of_programs(path: Path) -> Iterator[Finding]:
    dump = open_dump(path)
    objects = [file.name for file in path.glob("*.o")]
    for verified in verify(dump, dump.modules).modules:
        for run in verified.passes:
            if run.pass_name == _LIBRARY:
                kind = "modules with YNN's fusions as replayed"
                yield (counted if run.is_identical else problem)(kind, verified.name)
    for module in dump.modules:
        compiler = choose_compiler(module).compiler
        book = next((p.book for p in compiler.passes if p.name == _LIBRARY), None)
        yield from _compared(module, book, objects, module.name)
        yield from (
            counted(f"taken by YNN: {instruction.opcode}", module.name)
            for instruction in _in_ynn(module)
            if instruction.opcode in ("convolution", "dot", "reduce", "reduce-window")
        )


def _in_ynn(module: DumpedModule) -> Iterator[Instruction]:
    """Yield what the fusions of YNN compute."""
    assert module.final is not None
    for fusion in module.read(module.final).walk():
        kind = backend_kind_of(fusion.attribute("backend_config"))
        if fusion.opcode == "fusion" and kind == "__ynn_fusion":
            yield from fusion.called[0].instructions


def _texts() -> Iterator[str]:
    cases = product(_KINDS, _SIZES, _BATCHES, _TURNED)
    for number, (kinds, (rows, depth, columns), batch, turned) in enumerate(cases):
        kind, *wide = kinds.split()
        left = (depth, rows) if turned[0] else (rows, depth)
        right = (columns, depth) if turned[1] else (depth, columns)
        shapes = [
            ",".join(map(str, (batch, *sizes) if batch else sizes))
            for sizes in (left, right, (rows, columns))
        ]
        first = 1 if batch else 0
        dims = f"lhs_contracting_dims={{{first + (not turned[0])}}}, "
        dims += f"rhs_contracting_dims={{{first + turned[1]}}}"
        if batch:
            dims += ", lhs_batch_dims={0}, rhs_batch_dims={0}"
        yield (
            f"HloModule product_{number}\n\nENTRY main {{\n"
            f"  x = {kind}[{shapes[0]}] parameter(0)\n  w = {kind}[{shapes[1]}] parameter(1)\n"
            f"  ROOT dot = {wide[0] if wide else kind}[{shapes[2]}] dot(x, w), {dims}\n}}\n"
        )


def _compared(
    module: DumpedModule, book: RuleBook[Rule] | None, objects: list[str], text: str
) -> Iterator[Finding]:
    assert module.final is not None
    final = module.read(module.final)
    operations = set(_in_ynn(module))
    dots = [instruction for instruction in final.walk() if instruction.opcode == "dot"]
    words = " ".join(text.split("ROOT")[-1].split())
    if not dots:
        yield counted("no product is left", words)
    for dot in dots:
        yield from _compared_dot(module, book, objects, words, dot, is_ynn=dot in operations)


def _compared_dot(
    module: DumpedModule,
    book: RuleBook[Rule] | None,
    objects: list[str],
    words: str,
    dot: Instruction,
    *,
    is_ynn: bool,
) -> Iterator[Finding]:
    refusal = find_refusal(dot, book, PassContext().ynn_types) if book is not None else None
    if book is not None and is_ynn != (refusal is None):
        yield problem("other conditions of YNN", f"{words}: {dot.name}: {refusal}")
    if is_ynn:
        yield counted("YNN", words)
        return
    name = f"{module.name}.obj-file.{dot.name}_elemental_kernel_module.o"
    is_kernel = any(file.endswith(name) for file in objects)
    function = re.compile(rf"\b{re.escape(module.name)}\.obj-file\.call[\w.]*_computation_kernel")
    is_in_loop = dot.computation is not dot.computation.module.entry
    if is_in_loop and not is_kernel and any(map(function.search, objects)):
        yield counted("in a loop that is one function, whose products no file shows", words)
        return
    expected = emitter_of(dot)
    is_right = is_kernel == (expected is not EIGEN)
    kind = " ".join(filter(None, expected))
    line = f"{words}: {dot.name}: {kind}, {refusal}"
    yield (counted if is_right else problem)(kind if is_right else "computed by another", line)
