"""The modules of XLA's own tests of rewriters, compiled without Triton."""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import ExitStack, contextmanager
from pathlib import Path
from sys import executable
from tempfile import TemporaryDirectory

from fusionscope.capture.capture import capture
from fusionscope.capture.targets import Program, ProgramKind, read_target
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.errors import UnusableInput
from fusionscope.graph.mutable import MutableInstruction, MutableModule, to_module
from fusionscope.hlo import Module, parse, to_text

# The conditions that a change of a module may break, and the change: false if it does not fit.
Mutation = tuple[Set[str], Callable[[MutableModule], bool]]

_RAW = re.compile(r'R"\((.*?)\)"', re.DOTALL)
_PLACEHOLDERS = {
    "<<F8E4M3>>": "f8e4m3fn",
    "<<F8E5M2>>": "f8e5m2",
    "<<ABType>>": "bf16",
    "<<DType>>": "bf16",
}
FLAGS = "--xla_gpu_enable_triton_gemm=false"


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--device", default="h100")
    parser.add_argument("--python", default=executable, help="one that compiles for the device")


def modules(file: Path) -> Iterator[Module]:
    """Yield the modules with dots of a file, HLO or C++ with HLO in raw strings, each dot with a
    name of its own.
    """
    text = file.read_text(encoding="utf-8")
    for raw in _RAW.findall(text) if file.suffix == ".cc" else [text]:
        for placeholder, kind in _PLACEHOLDERS.items():
            raw = raw.replace(placeholder, kind)
        if "dot(" not in raw or "CHECK" in raw or "<<" in raw:
            continue
        raw = raw.strip()
        if not raw.startswith("HloModule"):
            raw = f"HloModule m\n\n{'' if 'ENTRY' in raw else 'ENTRY '}{raw}"
        try:
            graph = MutableModule(parse(raw + "\n"))
        except UnusableInput:
            continue
        for number, dot in enumerate(dots(graph)):
            dot.attributes_text += f', metadata={{op_name="dot{number}"}}'
        yield to_module(graph)


def mutants(
    module: Module, mutations: Sequence[Mutation]
) -> Iterator[tuple[Set[str], str, Module]]:
    """Yield what each of ``mutations`` that fits makes of ``module``, after the conditions that it
    may break, and its name.
    """
    for broken, mutate in mutations:
        graph = MutableModule(parse(to_text(module)))
        if mutate(graph):
            yield broken, mutate.__name__.strip("_"), to_module(graph)


def dots(graph: MutableModule) -> list[MutableInstruction]:
    return [instruction for instruction in graph.walk() if instruction.opcode == "dot"]


@contextmanager
def compiled(module: Module, options: Namespace) -> Iterator[DumpedModule | None]:
    """Provide the dump of ``module``, None if it does not compile."""
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(TemporaryDirectory()))
        file = scratch / "module.hlo"
        file.write_text(to_text(module), encoding="utf-8")
        try:
            captured = capture(
                Program(kind=ProgramKind.HLO, file=file),
                read_target(options.device),
                scratch / "dump",
                flags=[FLAGS],
                python=options.python,
            )
            dumps = [] if captured.problem else open_dump(captured.directory).modules
        except UnusableInput:
            dumps = []
        yield dumps[0] if dumps else None
