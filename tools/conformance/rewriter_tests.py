"""The modules of XLA's own tests of rewriters, compiled without Triton."""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import AbstractContextManager
from pathlib import Path
from sys import executable

from conformance.compiling import scheduled
from fusionscope.dump import DumpedModule
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
    "TYPE": "f16",
}
FLAGS = "--xla_gpu_enable_triton_gemm=false --xla_gpu_use_runtime_fusion=true"


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--device", default="h100")
    parser.add_argument("--python", default=executable, help="one that compiles for the device")


def modules(file: Path) -> Iterator[Module]:
    """Yield the modules with products of a file, HLO or C++ with HLO in raw strings, each product
    with a name of its own.
    """
    text = file.read_text(encoding="utf-8")
    for raw in _RAW.findall(text) if file.suffix == ".cc" else [text]:
        for placeholder, kind in _PLACEHOLDERS.items():
            raw = raw.replace(placeholder, kind)
        is_read = "dot(" in raw or "convolution(" in raw
        if not is_read or "CHECK" in raw or "<<" in raw:
            continue
        raw = raw.strip()
        if not raw.startswith("HloModule"):
            raw = f"HloModule m\n\n{'' if 'ENTRY' in raw else 'ENTRY '}{raw}"
        try:
            graph = MutableModule(parse(raw + "\n"))
        except UnusableInput:
            continue
        for number, product in enumerate(heroes(graph)):
            product.attributes_text += f', metadata={{op_name="dot{number}"}}'
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


def heroes(graph: MutableModule) -> list[MutableInstruction]:
    return [i for i in graph.walk() if i.opcode in ("convolution", "dot")]


def named_modules(options: Namespace) -> list[tuple[str, Module]]:
    """Return the modules of all files."""
    return [
        (f"{file.name} {number}", module)
        for file in options.files
        for number, module in enumerate(modules(file))
    ]


def compiled(
    modules: Iterable[Module], options: Namespace
) -> AbstractContextManager[list[DumpedModule | None]]:
    """Provide the dump of each module, None if it does not compile."""
    texts = [to_text(module) for module in modules]
    return scheduled(options.python, texts, FLAGS, options.device)
