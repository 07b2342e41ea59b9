"""Which of the known faults of the compiler concern a module."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from fusionscope.dump import DumpedModule
from fusionscope.facts.source_lines import user_line
from fusionscope.findings.advisories.facts import Advisory
from fusionscope.findings.advisories.faults import Fault
from fusionscope.hlo import Instruction, Module
from fusionscope.hlo.source import source_stack
from fusionscope.versions.recognition import VERSIONS, recognise


def find_advisories(module: DumpedModule, final: Module) -> tuple[Advisory, ...]:
    """Return the faults that the ``final`` module shows, or has what they need and may be of such a
    release. Raises ``UnusableInput`` if a stage cannot be read.
    """
    versions = recognise(module).versions
    return tuple(
        _advisory(fault, kernels, final)
        for fault in faults_for(module.backend)
        if fault.is_shown or _may_have(fault, versions)
        if (kernels := list(fault.find(final, _program(module) if fault.is_shown else None)))
    )


def faults_for(backend: str | None) -> tuple[Fault, ...]:
    """Return the faults of the compiler for a backend."""
    if backend not in ("cpu", "gpu"):
        return ()
    faults: tuple[Fault, ...] = import_module(f"{__package__}.{backend}_faults").FAULTS
    return faults


def _may_have(fault: Fault, versions: tuple[str, ...]) -> bool:
    """Return whether one of ``versions`` has the fault; not if nothing is known of them."""
    if versions == tuple(VERSIONS):
        return False
    return any(fault.is_in(version) for version in versions)


def _program(module: DumpedModule) -> Module | None:
    """Return the program before products become calls, None if the dump lacks it."""
    from fusionscope.passes.gpu.gemm_rewriter import stage_before  # not for CPUs

    stage = stage_before(module)
    return module.read(stage) if stage is not None else None


def _advisory(fault: Fault, kernels: list[Instruction], final: Module) -> Advisory:
    lines: Iterator[object] = (user_line(source_stack(k.metadata, final.frames)) for k in kernels)
    line = next((line for line in lines if line is not None), None)
    return Advisory(
        id=fault.id,
        title=fault.title,
        thread=fault.thread,
        since=fault.since,
        fixed_in=fault.fixed_in,
        workaround=fault.workaround,
        is_certain=fault.is_shown,
        instructions=tuple(kernel.name for kernel in kernels),
        source=str(line) if line is not None else None,
    )
