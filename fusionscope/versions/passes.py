"""Where in a dump the passes ran that can be replayed, and their replay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from fusionscope.dump import DumpedModule, Stage
from fusionscope.dump.device import Device
from fusionscope.graph.mutable import MutableModule
from fusionscope.hlo import Module
from fusionscope.passes.cpu.instruction_fusion.expense import is_expensive
from fusionscope.passes.cpu.instruction_fusion.run import CpuInstructionFusion, find_skipped
from fusionscope.passes.cpu.library_fusion.run import LibraryRewriter
from fusionscope.passes.cpu.multi_output_fusion.run import MultiOutputFusion
from fusionscope.passes.plan import FusionPlan, PassRun
from fusionscope.passes.rule import RuleBook
from fusionscope.passes.state import FusionState
from fusionscope.passes.wrapper import FusionWrapper
from fusionscope.versions.books import Books, find_book
from fusionscope.versions.chosen_rules import choose_rules
from fusionscope.versions.gpu_passes import find_gpu_runs, read_target, replay_gpu
from fusionscope.versions.gpu_target import GpuTarget

# The stage after which the compiler simplifies what it fused.
_LATER = "simplification_after_layout_assignment"
# The passes that look at what was fused before that, in the pipeline of the fusion pass.
_FUSING = "HLO_passes_after_layout_assignment"
_AFTER_WRAPPER = frozenset({"cpu_multi_output_fusion", "tuple-simplifier"})
_YNN_FLAG = "xla_cpu_experimental_ynn_fusion_type"
_YNN_PREFIX = "LIBRARY_FUSION_TYPE_"


@dataclass(frozen=True, slots=True)
class Settings:
    """The flags of a module, as far as a replay has to know them.

    ``ynn_types`` are the types of library fusions that are on, ``has_emitters`` whether the
    emitters of fusions are, ``has_multi_output`` whether multi-output fusion runs. ``gpu`` is what
    was compiled for, None where that was no GPU.
    """

    ynn_types: frozenset[str] = frozenset({"INDIVIDUAL_DOT", "INDIVIDUAL_CONVOLUTION", "REDUCE"})
    has_emitters: bool = True
    has_multi_output: bool = False
    gpu: GpuTarget | None = None


def read_settings(module: DumpedModule, device: Device | None = None) -> Settings:
    """Defaults where the dump does not tell; ``device`` is the GPU to take, the dump's own where
    None. Raises ``UnusableInput``."""
    flags = module.flags
    gpu = read_target(module, flags, device) if module.backend == "gpu" else None
    if flags is None:
        return Settings(gpu=gpu)
    extra = {value.partition("=")[0] for value in flags.values.get("xla_backend_extra_options", ())}
    types = flags.values.get(_YNN_FLAG)
    emitters = "xla_cpu_disable_new_fusion_emitters" not in extra
    return Settings(
        Settings().ynn_types
        if types is None
        else frozenset(each.removeprefix(_YNN_PREFIX) for each in types),
        emitters,
        emitters and "xla_cpu_use_multi_output_fusion" in extra,
        gpu,
    )


def find_runs(module: DumpedModule) -> tuple[PassRun, ...]:
    """The runs of passes that can be replayed, in their order. Raises ``UnusableInput``."""
    if module.backend == "gpu":
        return tuple(find_gpu_runs(module))
    if module.backend != "cpu":
        return ()
    settings = read_settings(module)
    stages = [stage for stage in module.stages if stage.name.counter is not None]
    passes = [book.pass_name for book in choose_rules(module).books]
    runs: list[tuple[float, PassRun]] = [
        (index, PassRun(stage.name.after, before, stage))
        for index, (before, stage) in enumerate(pairwise(stages), 1)
        if stage.name.after in passes
        and (module.shows_all_passes or before.name.before == stage.name.after)
    ]
    if module.shows_all_passes:
        seen = {run.pass_name for _, run in runs}
        idle = _idle_runs(stages, seen, settings)
        runs += [(place, run) for place, run in idle if module.lets_run(run.pass_name)]
    return tuple(run for _, run in sorted(runs, key=lambda found: found[0]))


def _idle_runs(
    stages: Sequence[Stage], seen: set[str], settings: Settings
) -> Iterator[tuple[float, PassRun]]:
    """Runs that changed nothing, by what stands around the place where they must have been."""
    library = [i for i, stage in enumerate(stages) if stage.name.pipeline == "dot-library-passes"]
    if library and "dot-library-rewriter" not in seen:
        yield library[-1] + 0.5, PassRun("dot-library-rewriter", stages[library[-1]], None)
    later = next(
        (i for i, s in enumerate(stages) if s.name.pipeline == _LATER or "wrapper" in s.name.after),
        0,
    )
    if later and "fusion" not in seen:
        yield later - 0.5, PassRun("fusion", stages[later - 1], None)
    end = next((i for i, stage in enumerate(stages) if stage.name.pipeline == _LATER), 0)
    fused = [stage.name.after if stage.name.pipeline == _FUSING else "" for stage in stages[:end]]
    joined = next((i for i, name in enumerate(fused) if name in _AFTER_WRAPPER), end)
    if joined and "fusion-wrapper" not in fused:
        yield joined - 0.4, PassRun("fusion-wrapper", stages[joined - 1], None)
    if joined and settings.has_multi_output and "cpu_multi_output_fusion" not in seen:
        yield joined - 0.3, PassRun("cpu_multi_output_fusion", stages[joined - 1], None)


def replay(
    pass_name: str,
    before: Module,
    settings: Settings,
    books: Books,
    graph: MutableModule | None = None,
) -> FusionPlan:
    """What a pass makes of ``before``, or of ``graph`` where that is given (and changed).

    Raises ``UnusableInput`` where ``before`` contradicts itself, or ``books`` are of another
    backend.
    """
    graph = graph or MutableModule(before)
    if settings.gpu is not None:
        return replay_gpu(pass_name, graph, settings.gpu, books)
    book: RuleBook[Any] = find_book(books, pass_name, "cpu")
    if pass_name == "dot-library-rewriter":
        return LibraryRewriter(graph, book, settings.ynn_types).run()
    if pass_name == "fusion":
        state = FusionState(
            is_expensive=is_expensive,
            may_duplicate=not settings.has_multi_output,
            skipped=find_skipped(graph, emitters=settings.has_emitters),
        )
        return CpuInstructionFusion(graph, book, state).run()
    if pass_name == "fusion-wrapper":
        return FusionWrapper(graph, book).run()
    return MultiOutputFusion(graph, book).run()
