"""Where the time to compile went: the passes and the code of kernels, by the times of files."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from itertools import pairwise
from operator import itemgetter
from pathlib import Path

from fusionscope.dump import DumpedModule
from fusionscope.dump.stage import START, Stage
from fusionscope.facts.facts import Facts
from fusionscope.system.files import read_text

# XLA names the files of a kernel's code after its fusion (xla/service/cpu/cpu_compiler.cc,
# xla/backends/gpu/codegen/emitters/emitter_base.cc), or numbers them on GPUs. It writes MLIR as it
# emits the kernel, and the others as LLVM compiles it, which may come much later.
_CODE = re.compile(
    r"\.(?:obj-file\.)?(?:__compute_module_)?(?P<kernel>.*?)(?:_elemental)?(?:_kernel_module)?"
    r"(?:(?P<mlir>-(?:pre|post)-\w+\.mlir|\.mlir-(?:passes\.log|trace\.txt))"
    r"|\.?(?:o|ptx|ir-(?:no|with)-opt\.ll))"
)
_ENTRY = re.compile(
    r"^(?:define (?:[\w()]+ )*?void @|\.visible \.entry )\"?([\w.$-]+)", re.MULTILINE
)
_NS = 1e9


class CompileStep(Facts, frozen=True):
    """A part of a compilation, by the times at which the compiler wrote the files of its dump.

    step: the pass that changed the module, or a kernel whose code was generated; empty for the code
        of all kernels together
    is_code: whether it is the code of a kernel. Kernels may be compiled at the same time
    seconds: since the stage before, or from the first file of the kernel's code to its last; since
        another kernel's if it has one only
    """

    step: str
    is_code: bool
    seconds: float


class CompileSteps(Facts, frozen=True):
    """The parts of a compilation.

    passes_s: seconds from the first stage to the final one
    code_s: seconds from the final stage to the last file of code; 0 if there is none
    steps: the passes in their order, then the kernels
    """

    passes_s: float
    code_s: float
    steps: tuple[CompileStep, ...]


def compile_steps(module: DumpedModule) -> CompileSteps:
    """Return the parts of the compilation that wrote the dump of ``module``. The files have to be
    as the compiler left them: those of a copy may have other times.
    """
    stages = [stage for stage in module.stages if stage.order <= module.last.order]
    times = [_written_at(stage.file.path) for stage in stages]
    passes: Counter[str] = Counter()
    for stage, (begin, end) in zip(stages[1:], pairwise(times), strict=True):
        passes[_step(stage)] += max(end - begin, 0)
    kernels, last = _kernels(module)
    steps = [CompileStep(step, False, spent / _NS) for step, spent in passes.items()]
    steps += (CompileStep(kernel, True, spent / _NS) for kernel, spent in kernels.items())
    return CompileSteps((times[-1] - times[0]) / _NS, max(last - times[-1], 0) / _NS, tuple(steps))


def _step(stage: Stage) -> str:
    return f"before {stage.name.pipeline}" if stage.name.after == START else stage.pass_name


def _kernels(module: DumpedModule) -> tuple[Counter[str], int]:
    """Return the nanoseconds that each kernel took, and when the last file of code was written."""
    prefix = f"module_{module.number:04}.{module.name}"
    files = [
        (_written_at(path), path, code)
        for path in module.directory.iterdir()
        if path.name.startswith(prefix) and (code := _CODE.fullmatch(path.name[len(prefix) :]))
    ]
    files.sort(key=itemgetter(0))
    times = [time for time, _, _ in files]
    indices_of: defaultdict[tuple[str, bool], list[int]] = defaultdict(list)
    for index, (_, path, code) in enumerate(files):
        kernel = code["kernel"]
        name = _entry(path) or kernel if kernel.isdigit() else kernel
        indices_of[name, code["mlir"] is None].append(index)
    kernels: Counter[str] = Counter()
    for (kernel, _), indices in indices_of.items():
        first = indices[0] if len(indices) > 1 else max(indices[0] - 1, 0)
        kernels[kernel] += times[indices[-1]] - times[first]
    return kernels, times[-1] if times else 0


def _entry(path: Path) -> str | None:
    """Return the kernel in a file that a GPU's compiler has numbered."""
    entry = _ENTRY.search(read_text(path))
    return None if entry is None else entry[1]


def _written_at(path: Path) -> int:
    return path.stat().st_mtime_ns
