"""Chooses the compiler whose passes a replay uses, and says why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from fusionscope.dump import DumpedModule, Stage
from fusionscope.dump.fusion_passes import PRIORITY_FUSION
from fusionscope.errors import UnusableInput
from fusionscope.graph.comparison import compare
from fusionscope.graph.mutable import MutableModule
from fusionscope.passes.cpu.instruction_fusion.expense import is_expensive
from fusionscope.passes.cpu.instruction_fusion.rules import find_skipping
from fusionscope.passes.expense import is_expensive as is_plainly_expensive
from fusionscope.passes.instruction_fusion import is_embedded
from fusionscope.versions import known
from fusionscope.versions.compiler import Compiler
from fusionscope.versions.flags import read_flags
from fusionscope.versions.recognition import recognise

if TYPE_CHECKING:
    from fusionscope.user_order.user_history import Rewriter

_GEMM_V2 = "xla_gpu_experimental_gemm_fusion_v2"
_ANY_DOT = "xla_gpu_triton_gemm_any"
_FUSING = "HLO_passes_after_layout_assignment"
_LIBRARY = "dot-library-passes"
_AFTER_WRAPPER = "simplification_after_layout_assignment"
_HORIZONTAL = "horizontal_fusion"
_REPLACED = frozenset({"fusion", "fusion_merger"})  # by priority fusion


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenCompiler:
    """The chosen compiler. ``version`` names the version that made the dump, and ``shown_by`` the
    evidence, empty if there is none.

    ``are_checked`` is whether the rules were checked against dumps of that version, or of all
    versions that it may be. Otherwise, their reasons are guesses. ``is_requested`` is whether they
    are others than those that would be chosen.
    """

    compiler: Compiler
    version: str
    shown_by: str
    are_checked: bool
    is_requested: bool = False

    @property
    def name(self) -> str:
        return self.compiler.name


def choose_compiler(module: DumpedModule, compiler: Compiler | None = None) -> ChosenCompiler:
    """Return ``compiler`` or, if it is None, that of the version that made ``module``: the newest
    of the possible ones, or else the nearest newer one that has its passes.

    Raises ``UnusableInput`` if the flags cannot be read, or ``compiler`` is of another backend.
    """
    if compiler is not None and compiler.backend != (module.backend or compiler.backend):
        raise UnusableInput(
            f"{module.name} was compiled for {module.backend}, and the rules {compiler.name} are "
            f"those of {compiler.backend}",
            file=str(module.stages[0].file),
        )
    candidates = _candidates(module)  # the newest first
    recognition = recognise(module)
    compilers = [
        _compiler_of(version, module.backend) for version in reversed(recognition.versions)
    ]
    fitting = tuple(name for name in compilers if name in candidates)
    are_checked = bool(fitting) and len(fitting) == len(compilers)
    name = (
        _choose(fitting, module)
        if fitting
        else candidates[-1]
        if recognition.versions
        else candidates[0]
    )
    choice = _as_flags_say(known.load_compiler(name), module)
    is_requested = compiler is not None and compiler != choice
    return ChosenCompiler(
        compiler=compiler or choice,
        version=str(recognition),
        shown_by=recognition.shown_by,
        are_checked=are_checked and not is_requested,
        is_requested=is_requested,
    )


def find_rewriters(module: DumpedModule) -> dict[str, Rewriter]:
    """Return the passes that decide the order of users, in the form of the version that made
    ``module``, or of the newest possible one.
    """
    if module.backend != "gpu":
        return {}
    possible = recognise(module).versions
    newest = possible[-1] if possible else known.VERSIONS[-1].name
    rewriters: dict[str, Rewriter] = {}
    for version in known.VERSIONS:
        rewriters.update(version.rewriters)
        if version.name == newest:
            break
    return rewriters


def _choose(names: tuple[str, ...], module: DumpedModule) -> str:
    """Return the name of the newest compiler that ``module`` does not contradict, or else the
    newest one. No pass is moved between some versions that fuse differently on a CPU.
    """
    distinct = tuple(dict.fromkeys(names))
    if len(distinct) == 1 or module.backend != "cpu":
        return names[0]
    return module.remember(distinct, lambda: _newest_fitting(distinct, module))


def _newest_fitting(names: tuple[str, ...], module: DumpedModule) -> str:
    fitting = (name for name in names if not _contradicts(module, known.load_compiler(name)))
    return next(fitting, names[0])


def _contradicts(module: DumpedModule, compiler: Compiler) -> bool:
    """Return whether ``module`` shows what ``compiler`` would not have left."""
    library = [stage for stage in module.stages if stage.name.pipeline == _LIBRARY]
    wrapped = [stage for stage in module.stages if stage.name.pipeline == _AFTER_WRAPPER]
    return (
        _finds_work(module, compiler, "dot-library-rewriter", library[-1:])
        or _finds_work(module, compiler, "fusion-wrapper", wrapped[:1])
        or _fuses_embedded(module, compiler)
        or _weighs_otherwise(module, compiler)
    )


def _finds_work(
    module: DumpedModule, compiler: Compiler, pass_name: str, stages: Sequence[Stage]
) -> bool:
    """Return whether a pass of ``compiler``, if it has it, finds something to do in ``stages``,
    which that of ``module`` has left.
    """
    has_pass = any(fusion_pass.name == pass_name for fusion_pass in compiler.passes)
    return has_pass and any(
        decision.fusion
        for stage in stages
        for decision in compiler.find(pass_name)
        .run(MutableModule(module.read(stage)), read_flags(module))
        .decisions
    )


def _fuses_embedded(module: DumpedModule, compiler: Compiler) -> bool:
    """Return whether ``module`` has fusions in computations that ``compiler`` leaves out."""
    return not find_skipping(compiler.find("fusion").book).visits_embedded and any(
        is_embedded(instruction.computation)
        for instruction in MutableModule(module.read(module.last)).walk()
        if instruction.opcode == "fusion"
    )


def _weighs_otherwise(module: DumpedModule, compiler: Compiler) -> bool:
    """Return whether ``module`` has operations that are expensive in some versions only, such as
    rounding to bf16, and ``compiler`` would fuse them otherwise.
    """
    for before, after in pairwise(module.stages):
        if (after.name.pipeline, after.name.after) == (_FUSING, "fusion"):
            graph = MutableModule(module.read(before))
            if all(is_expensive(value) == is_plainly_expensive(value) for value in graph.walk()):
                return False
            plan = compiler.find("fusion").run(graph, read_flags(module))
            return not compare(plan.graph, MutableModule(module.read(after))).has_same_kernels()
    return False


def _compiler_of(version: str, backend: str | None) -> str | None:
    compilers = next(
        version_of.compilers for version_of in known.VERSIONS if version_of.name == version
    )
    return next((compiler.name for compiler in compilers if compiler.backend == backend), None)


def _candidates(module: DumpedModule) -> list[str]:
    """Return the names of the compilers that have the passes of ``module``."""
    backend = "gpu" if module.backend == "gpu" else "cpu"
    has_priority_fusion = backend == "cpu" or _has_priority_fusion(module)
    return [
        compiler.name
        for compiler in known.COMPILERS.values()
        if compiler.backend == backend and compiler.has_priority_fusion is has_priority_fusion
    ]


def _has_priority_fusion(module: DumpedModule) -> bool:
    """Return whether no pass ran that priority fusion replaced, as far as stages show."""
    names = [stage.name for stage in module.stages]
    fusing = {
        pass_name for n in names if n.pipeline == "fusion" for pass_name in (n.after, n.before)
    }
    if not _REPLACED.isdisjoint(fusing):
        return False
    if PRIORITY_FUSION in fusing or all(name.pipeline != _HORIZONTAL for name in names):
        return True
    # Both have horizontal fusion: a module without anything to fuse shows no more than its version.
    possible = recognise(module).versions
    return bool(possible) and not any(
        not compiler.has_priority_fusion
        for version in known.VERSIONS
        if version.name in possible
        for compiler in version.compilers
    )


def _as_flags_say(compiler: Compiler, module: DumpedModule) -> Compiler:
    """Return the compiler adjusted by flags for GPUs: whether Triton gets dots alone, and, of newer
    compilers, which of two passes forms fusions around dots.
    """
    values = module.flags.values if module.flags is not None else {}
    if values.get(_ANY_DOT, ("",))[-1] == "true" and compiler.find_rule("gf-lone") is not None:
        book = compiler.find("triton-gemm-rewriter").book
        return compiler.with_books(book.without("gf-lone"))
    flag_values = values.get(_GEMM_V2)
    if flag_values is None or compiler.backend != "gpu":
        return compiler
    from fusionscope.passes.gpu.gemm_fusion.rules_v1 import GPU_GEMM_V1
    from fusionscope.passes.gpu.gemm_fusion.rules_v2 import GPU_GEMM_V2

    if flag_values[-1] == "true":
        return compiler.with_books(GPU_GEMM_V2)
    is_v2 = compiler.find(GPU_GEMM_V2.pass_name).book.name == GPU_GEMM_V2.name
    return compiler.with_books(GPU_GEMM_V1) if is_v2 else compiler
