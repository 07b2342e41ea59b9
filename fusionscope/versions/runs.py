"""Finds the runs of passes in a dump that can be replayed, and replays them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from fusionscope.dump import DumpedModule, Stage
from fusionscope.dump.fusion_passes import KnownPass
from fusionscope.graph.mutable import MutableModule
from fusionscope.hlo import Module
from fusionscope.passes.context import PassContext
from fusionscope.passes.plan import FusionPlan, PassRun
from fusionscope.versions.choice import choose_compiler
from fusionscope.versions.compiler import Compiler
from fusionscope.versions.flags import read_flags

if TYPE_CHECKING:
    from fusionscope.dump.device import Device

# The stage after which the compiler simplifies the fused module.
_LATER = "simplification_after_layout_assignment"
# The pipeline of the fusion pass. Its later passes inspect earlier fusions.
_FUSING = "HLO_passes_after_layout_assignment"
_AFTER_WRAPPER = frozenset({"cpu_multi_output_fusion", "tuple-simplifier"})
_START = "pipeline-start"
_AMPERE = 8


def replay(
    pass_name: str,
    before: Module,
    context: PassContext,
    compiler: Compiler,
    graph: MutableModule | None = None,
) -> FusionPlan:
    """Return the result of a pass on ``before``, or on ``graph`` if that is given (and changed).

    Raises ``UnusableInput`` if ``before`` contradicts itself, or ``compiler`` has no such pass.
    """
    context.progress(pass_name)
    return compiler.find(pass_name).run(graph or MutableModule(before), context)


def find_runs(module: DumpedModule) -> tuple[PassRun, ...]:
    """Return the runs of passes that can be replayed, in order. Raises ``UnusableInput``."""
    if module.backend == "gpu":
        return tuple(_find_gpu_runs(module))
    if module.backend != "cpu":
        return ()
    stages = [stage for stage in module.stages if stage.name.counter is not None]
    passes = {fusion_pass.name for fusion_pass in choose_compiler(module).compiler.passes}
    runs: list[tuple[float, PassRun]] = [
        (index, PassRun(stage.name.after, before, stage))
        for index, (before, stage) in enumerate(pairwise(stages), 1)
        if stage.name.after in passes
        and (module.shows_all_passes or before.name.before == stage.name.after)
    ]
    if module.shows_all_passes:
        visited = {run.pass_name for _, run in runs}
        idle = _idle_runs(stages, visited, read_flags(module))
        runs += [
            (place, run)
            for place, run in idle
            if run.pass_name in passes and module.lets_run(run.pass_name)
        ]
    return tuple(run for _, run in sorted(runs, key=lambda numbered_run: numbered_run[0]))


def _idle_runs(
    stages: Sequence[Stage], visited: set[str], context: PassContext
) -> Iterator[tuple[float, PassRun]]:
    """Yield runs that changed nothing, inferred from the stages around them."""
    library = [i for i, stage in enumerate(stages) if stage.name.pipeline == "dot-library-passes"]
    if library and "dot-library-rewriter" not in visited:
        yield library[-1] + 0.5, PassRun("dot-library-rewriter", stages[library[-1]], None)
    later = next(
        (i for i, s in enumerate(stages) if s.name.pipeline == _LATER or "wrapper" in s.name.after),
        0,
    )
    if later and "fusion" not in visited:
        yield later - 0.5, PassRun("fusion", stages[later - 1], None)
    end = next((i for i, stage in enumerate(stages) if stage.name.pipeline == _LATER), 0)
    fused = [stage.name.after if stage.name.pipeline == _FUSING else "" for stage in stages[:end]]
    joined = next((i for i, name in enumerate(fused) if name in _AFTER_WRAPPER), end)
    if joined and "fusion-wrapper" not in fused:
        yield joined - 0.4, PassRun("fusion-wrapper", stages[joined - 1], None)
    if joined and context.has_multi_output and "cpu_multi_output_fusion" not in visited:
        yield joined - 0.3, PassRun("cpu_multi_output_fusion", stages[joined - 1], None)


def _find_gpu_runs(module: DumpedModule) -> Iterator[PassRun]:
    """Yield runs in order. ``after`` is None for a pass that changed nothing.

    If not every pass with an effect left a file, only passes that a stage names as the next one,
    and so directly follow it, are included. Raises ``UnusableInput``.
    """
    compiler = choose_compiler(module).compiler
    passes_by_name = {
        fusion_pass.name: fusion_pass.known
        for fusion_pass in compiler.passes
        if _can_run(fusion_pass.known, module)
    }
    pipelines = compiler.pipelines
    stages = [stage for stage in module.stages if stage.name.counter is not None]
    if not module.shows_all_passes:
        for before, after in pairwise(stages):
            if _in_place(before, after, pipelines) and before.name.before == after.name.after:
                passes = pipelines[after.name.pipeline]
                place = _place_of(passes, passes_by_name, after, 0)
                if place < len(passes) and passes[place] in passes_by_name:
                    yield PassRun(passes[place], before, after)
        return
    place = 0  # in its pipeline, of the first pass that can have run since
    for index, before in enumerate(stages[:-1]):
        passes = pipelines.get(before.name.pipeline, ())
        if not passes:
            continue
        start = 0 if before.name.after == _START else place
        end, acted = len(passes), None
        for later in range(index + 1, len(stages)):
            if _in_place(before, stages[later], pipelines):
                acted = later
                end = _place_of(passes, passes_by_name, stages[later], start)
                break
        for name in passes[start:end]:
            if name in passes_by_name:
                following = stages[index + 1]
                # The pass only reports a change if it changed the last computation.
                is_silent = acted is None and passes_by_name[name].is_silent
                has_acted = is_silent and _differs(module, before, following)
                yield PassRun(name, before, following if has_acted else None)
        if acted is not None and end < len(passes):
            place = end + 1
            if passes[end] in passes_by_name:
                yield PassRun(passes[end], stages[acted - 1], stages[acted])


def _in_place(before: Stage, after: Stage, pipelines: Mapping[str, tuple[str, ...]]) -> bool:
    """Return whether ``after`` is a later stage of the same run of a known pipeline."""
    pipeline = before.name.pipeline
    return pipeline in pipelines and after.name.pipeline == pipeline and after.name.after != _START


def _can_run(fusion_pass: KnownPass, module: DumpedModule) -> bool:
    """Return whether no known flag or GPU property prevents a pass from running."""
    if not module.lets_run(fusion_pass.in_files):
        return False
    values = module.flags.values if module.flags is not None else {}
    if any(values.get(flag, ("",))[-1] == "false" for flag in fusion_pass.needed_flags):
        return False
    return not fusion_pass.needs_triton or _has_triton(module.device)


def _has_triton(device: Device | None) -> bool:
    from fusionscope.dump.device import CudaCapability

    capability = device.capability if device is not None else None
    return not isinstance(capability, CudaCapability) or capability.major >= _AMPERE


def _place_of(
    passes: Sequence[str], passes_by_name: Mapping[str, KnownPass], stage: Stage, start: int
) -> int:
    """Return the position of the pass after ``stage``: if several have that name, the one closest
    to the next pass; the length if none has.
    """
    names = [passes_by_name[name].in_files if name in passes_by_name else name for name in passes]
    place_found = len(passes)
    least = place_found
    for place in range(start, len(passes)):
        if names[place] == stage.name.after:
            later_names = names[place + 1 :]
            distance = (
                later_names.index(stage.name.before)
                if stage.name.before in later_names
                else len(later_names)
            )
            if distance < least:
                place_found, least = place, distance
    return place_found


def _differs(module: DumpedModule, first: Stage, second: Stage) -> bool:
    return module.read(first).bodies != module.read(second).bodies
