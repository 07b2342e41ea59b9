"""What differs below HLO: the code of kernels that both dumps have, LLVM's or PTX."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from fusionscope.facts.facts import Facts
from fusionscope.hlo import Module
from fusionscope.system.files import read_text

_LLVM = re.compile(r"^define [^@\n]*@\"?([\w.$-]+)\"?\(.*?^\}", re.MULTILINE | re.DOTALL)
_PTX = re.compile(r"^\.visible \.entry ([\w.$]+)\(.*?^\}", re.MULTILINE | re.DOTALL)
_VECTOR = re.compile(r"<(\d+) x (?:float|double|half|bfloat|i\d+)>")
_CALL = re.compile(r"\bcall [^@\n]*@\"?([\w.$-]+)")
_BLOCK = re.compile(r"^\"?([^\s\":]+|(?<=\")[^\"\n]+)\"?:", re.MULTILINE)
_BRANCH = re.compile(r"\blabel %(?:\"([^\"\n]+)\"|([\w.$-]+))")
_SWAPS = "compare-and-swap loops"
# What a kernel gains or loses a multiple of its speed by, and how it is written.
_COUNTED = {
    "atomic operations": re.compile(r"\batomicrmw\b|\b(?:atom|red)\.(?!\S*cas)\S+"),
    _SWAPS: re.compile(r"\bcmpxchg\b|\batom\.\S*cas\S*"),
    "places in local memory": re.compile(r"\balloca\b|^\s*\.local\b", re.MULTILINE),
    "operations on tensor cores": re.compile(r"\b(?:wgmma\.mma_async|mma|tcgen05\.mma)\.\S+"),
    "vectors of 4 in PTX": re.compile(r"\b(?:ld|st)\.\S*v4\S*"),
    "vectors of 2 in PTX": re.compile(r"\b(?:ld|st)\.\S*v2\S*"),
}
_WIDTH = "elements of the widest vector"
_LOOPS = "loops: none (0) or some (1)"


class CodeChange(Facts, frozen=True):
    """A trait of the code of a kernel that both sides have.

    kernel: the function
    trait: what is counted: atomic operations, vector widths, loops, calls of a function, …
    before: how much of it the first release makes
    after: how much of it the second release makes
    """

    kernel: str
    trait: str
    before: int
    after: int


def compare_code(
    before: Path, after: Path, kernels: Container[str] | None = None
) -> tuple[CodeChange, ...] | None:
    """Return the traits in which kernels of the same name differ, of ``kernels`` only if there are
    any; None if the dumps share none.
    """
    ours, theirs = dict(_kernels(before)), dict(_kernels(after))
    shared = [name for name in ours if name in theirs and (kernels is None or name in kernels)]
    if not shared:
        return None
    return tuple(
        CodeChange(name, trait, ours[name][trait], theirs[name][trait])
        for name in shared
        for trait in sorted(ours[name].keys() | theirs[name].keys())
        if ours[name][trait] != theirs[name][trait]
    )


def swap_loops(dump: Path) -> int | None:
    """Return how many compare-and-swap loops the kernels of a dump have; None if it has no code."""
    kernels = dict(_kernels(dump))
    return sum(traits[_SWAPS] for traits in kernels.values()) if kernels else None


def same_kernels(before: Module, after: Module) -> set[str]:
    """Return the names of kernels, as code has them, that both modules make of the same HLO."""
    ours, theirs = _operations(before), _operations(after)
    return {name for name, operations in ours.items() if theirs.get(name) == operations}


def _operations(module: Module) -> dict[str, list[tuple[str, str]]]:
    """Return the opcodes and shapes of each kernel."""
    return {
        re.sub(r"\W", "_", fusion.name): [
            (instruction.opcode, str(instruction.shape))
            for instruction in (fusion, *fusion.operands, *computation.instructions)
        ]
        for computation, fusion in module.outermost_fusions.items()
    }


def _kernels(dump: Path) -> Iterator[tuple[str, Counter[str]]]:
    for file in sorted(dump.glob("*.ir-with-opt.ll")):
        if not any(dump.glob("*.ptx")):  # of a GPU, PTX says the same later
            for kernel in _LLVM.finditer(read_text(file)):
                yield kernel[1], _traits(kernel[0])
    for file in sorted(dump.glob("*.ptx")):
        for kernel in _PTX.finditer(read_text(file)):
            yield kernel[1], _traits(kernel[0])


def _traits(code: str) -> Counter[str]:
    traits = Counter({name: len(form.findall(code)) for name, form in _COUNTED.items()})
    traits[_WIDTH] = max(map(int, _VECTOR.findall(code)), default=1)
    traits[_LOOPS] = int(_has_loop(code))
    traits.update(f"calls of {name}" for name in _CALL.findall(code) if "llvm." not in name)
    return traits


def _has_loop(code: str) -> bool:
    """Return whether the blocks of an LLVM function branch in a circle; False for PTX, whose
    kernels the grid repeats.

    A kernel that writes an element in place has none, one that copies the array around it has.
    """
    _, *pieces = _BLOCK.split(code)
    branches = {
        label: [quoted or plain for quoted, plain in _BRANCH.findall(block)]
        for label, block in zip(pieces[::2], pieces[1::2], strict=True)
    }
    try:
        TopologicalSorter(branches).prepare()
    except CycleError:
        return True
    return False
