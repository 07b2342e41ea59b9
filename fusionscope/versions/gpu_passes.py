"""Where in the dump of a GPU the passes ran that can be replayed, and their replay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from fusionscope.dump import DumpedModule, Stage
from fusionscope.dump.debug_options import DebugOptions
from fusionscope.dump.device import Device
from fusionscope.gpu.kinds import choose_kind
from fusionscope.gpu.state import GpuState
from fusionscope.graph.mutable import MutableInstruction, MutableModule
from fusionscope.passes.gpu.block_level.run import FusionBlockLevelRewriter
from fusionscope.passes.gpu.copy_fusion.run import CopyFusion
from fusionscope.passes.gpu.gemm_fusion.rules import GemmState
from fusionscope.passes.gpu.gemm_fusion.rules_v2 import GPU_GEMM_V2
from fusionscope.passes.gpu.gemm_fusion.run_v1 import GemmFusionV1
from fusionscope.passes.gpu.gemm_fusion.run_v2 import GemmFusionV2
from fusionscope.passes.gpu.multi_output_fusion.run import GpuMultiOutputFusion
from fusionscope.passes.gpu.priority_fusion.record import recorded_users, undecided_order
from fusionscope.passes.gpu.priority_fusion.run import PriorityFusion
from fusionscope.passes.gpu.softmax_fusion.run import SoftmaxRewriter
from fusionscope.passes.gpu.sort_iota_fusion.run import SortIotaFusion
from fusionscope.passes.gpu.variadic_op_splitter.run import VariadicOpSplitter
from fusionscope.passes.gpu_before_priority_fusion.fusion_merger.run import FusionMerger
from fusionscope.passes.gpu_before_priority_fusion.horizontal_fusion.run import (
    HorizontalInputFusion,
    HorizontalLoopFusion,
)
from fusionscope.passes.gpu_before_priority_fusion.instruction_fusion.rules import (
    DUPLICATING,
    is_expensive,
)
from fusionscope.passes.gpu_before_priority_fusion.instruction_fusion.run import (
    GpuInstructionFusion,
)
from fusionscope.passes.plan import FusionPlan, PassRun
from fusionscope.passes.rule import RuleBook
from fusionscope.passes.state import FusionState
from fusionscope.passes.wrapper import FusionWrapper
from fusionscope.versions.books import Books, find_book
from fusionscope.versions.chosen_rules import choose_rules
from fusionscope.versions.gpu_target import (
    GpuTarget,
    is_known_to_run,
    read_device,
    read_gpu_settings,
)
from fusionscope.versions.older_passes import has_older_passes, is_from_2023
from fusionscope.versions.xla_2023.instruction_fusion import InstructionFusion2023
from fusionscope.versions.xla_2023.rules import GPU_DUPLICATION_2023, GPU_FUSION_2023

PRIORITY_FUSION = "priority-fusion"
_START = "pipeline-start"
_SILENT = {"horizontal_input_fusion", "gpu_horizontal_input_fusion"}

# The passes of the pipelines that fuse, in their order, as far as they can leave a stage. Source:
# xla/service/gpu/gpu_compiler.cc, fusion_pipeline.cc, fusion_dispatch_pipeline.cc,
# pre_scheduling_copy_insertion_pipeline.cc.
_PIPELINES: dict[str, tuple[str, ...]] = {
    "hlo_normalization": (
        "algsimp", "bitcast_dtypes_expander", "transpose-folding", "reshape-decomposer",
        "reduce-decomposer", "algorithm-checker", "dot_normalizer", "dot_dimension_sorter",
        "gemv-rewriter", "splitk-rewriter", "triton-gemm-rewriter", "hoist-fused-bitcasts",
        "gemm-fusion-swap-operands", "cublas-pad-for-gemms", "cublas-gemm-rewriter",
        "cublas-gemm-broadcast-folding-rewriter", "reshape-decomposer", "layout_normalization",
        "algsimp", "scatter_simplifier", "broadcast_canonicalizer",
        "reduction-degenerate-dim-remover", "reduction-layout-normalizer", "algsimp", "cse",
        "constant_folding", "dce", "triton-softmax-rewriter", "reduction-dimension-grouper",
        "reduction-splitter", "tree-reduction-rewriter", "sub-byte-size-setter",
    ),
    "fusion": (
        "variadic-op-splitter", "sort-iota-fusion", PRIORITY_FUSION, "cse", "dce",
        "multi_output_fusion", "cse", "dce",
    ),
    "autotuner": ("fusion-wrapper", "autotuner", "convert_triton_gemm_config"),
    "pre-scheduling-copy-insertion": (
        "dce", "loop-schedule-linearizer", "copy-insertion", "constant-fill-copy-rewriter",
        "copy_fusion", "sanitize-constant-names",
    ),
    "pre-scheduling-passes": (
        "fusion-wrapper", "dynamic-slice-copy-fusion-async-wrapper", "gpu-copy-async-wrapper",
    ),
    "fusion-wrapper": ("fusion-wrapper",),
    "fusion-dispatch-pipeline": ("dce", "fusion-block-level-rewriter"),
}  # fmt: skip


# Before priority fusion. The second run of a pass is another one here than the first, which files
# name alike.
_OLDER_PIPELINES: dict[str, tuple[str, ...]] = {
    "fusion": (
        "variadic-op-splitter", "fusion", DUPLICATING, "fusion_merger", "cse", "dce",
        "multi_output_fusion", "cse", "dce",
    ),
    "horizontal_fusion": (
        "horizontal_loop_fusion", "horizontal_input_fusion", "cse", "dce",
    ),
}  # fmt: skip


# The passes of a pipeline run again until none of them changes anything.
_PIPELINES_2023: dict[str, tuple[str, ...]] = {
    "fusion": (
        "variadic-op-splitter", "fusion", DUPLICATING, "fusion_merger", "multi_output_fusion",
        "cse", "dce",
    ),
    "horizontal_fusion": (
        "gpu_horizontal_loop_fusion", "gpu_horizontal_input_fusion", "cse", "dce",
    ),
}  # fmt: skip


def read_target(
    module: DumpedModule, flags: DebugOptions | None, device: Device | None = None
) -> GpuTarget:
    """``device`` is the one to take, the dump's own where None. Raises ``UnusableInput`` where
    neither is known, or there can be no such device."""
    device = read_device(module, device)
    record = module.priority_fusion
    ids: dict[str, dict[str, int]] = {}
    for run in find_gpu_runs(module):
        if run.pass_name == PRIORITY_FUSION:
            ids = module.instruction_ids(run.before) or {}
    return GpuTarget(
        device=device,
        settings=read_gpu_settings(module, flags),
        ids=ids,
        users=recorded_users(record.steps) if record is not None else {},
        recorded=undecided_order(record.steps) if record is not None else None,
        has_record=record is not None,
    )


def find_gpu_runs(module: DumpedModule) -> Iterator[PassRun]:
    """In their order; of a pass that changed nothing ``after`` is None.

    Where not every pass that changed something left a file, only what is named as the next pass ran
    right behind a stage. Raises ``UnusableInput``.
    """
    names = [book.pass_name for book in choose_rules(module).books]
    known = {name for name in names if is_known_to_run(_file_name(name), module)}
    pipelines = _OLDER_PIPELINES if has_older_passes(module) else _PIPELINES
    if is_from_2023(module):
        pipelines = _PIPELINES_2023
    stages = [stage for stage in module.stages if stage.name.counter is not None]
    if not module.shows_all_passes:
        for before, after in pairwise(stages):
            if _in_place(before, after, pipelines) and before.name.before == after.name.after:
                passes = pipelines[after.name.pipeline]
                place = _place_of(passes, after, 0)
                if place < len(passes) and passes[place] in known:
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
                end = _place_of(passes, stages[later], start)
                break
        for name in passes[start:end]:
            if name in known:
                following = stages[index + 1]
                # It says that it changed something only if it changed the last computation.
                is_silent = acted is None and name in _SILENT
                has_acted = is_silent and _differs(module, before, following)
                yield PassRun(name, before, following if has_acted else None)
        if acted is not None and end < len(passes):
            place = end + 1
            if passes[end] in known:
                yield PassRun(passes[end], stages[acted - 1], stages[acted])


def _in_place(before: Stage, after: Stage, pipelines: Mapping[str, tuple[str, ...]]) -> bool:
    """Whether ``after`` is a later stage of a pipeline that is known, of the same run of it."""
    pipeline = before.name.pipeline
    return pipeline in pipelines and after.name.pipeline == pipeline and after.name.after != _START


def _place_of(passes: Sequence[str], stage: Stage, start: int) -> int:
    """That of the pass behind ``stage``: of several of the name, the one that the next pass is the
    nearest to; that of no pass where it is none of them."""
    names = list(map(_file_name, passes))
    found = len(passes)
    least = found
    for place in range(start, len(passes)):
        if names[place] == stage.name.after:
            rest = names[place + 1 :]
            distance = rest.index(stage.name.before) if stage.name.before in rest else len(rest)
            if distance < least:
                found, least = place, distance
    return found


def _differs(module: DumpedModule, one: Stage, other: Stage) -> bool:
    return module.read(one).bodies != module.read(other).bodies


def _file_name(pass_name: str) -> str:
    return "fusion" if pass_name == DUPLICATING else pass_name


def replay_gpu(pass_name: str, graph: MutableModule, target: GpuTarget, books: Books) -> FusionPlan:
    """What a pass makes of ``graph``, which it changes."""
    book: RuleBook[Any] = find_book(books, pass_name, "gpu")
    state = GpuState(target.device, target.settings)
    match pass_name:
        case "triton-gemm-rewriter":
            settings = target.settings
            gemm_state = GemmState(target.device, settings.gemm_threshold, settings.triton)
            rewriter = GemmFusionV2 if book.name == GPU_GEMM_V2.name else GemmFusionV1
            return rewriter(graph, book, gemm_state).run()
        case "triton-softmax-rewriter":
            return SoftmaxRewriter(graph, book, state).run()
        case "variadic-op-splitter":
            return VariadicOpSplitter(graph, book).run()
        case "sort-iota-fusion":
            return SortIotaFusion(graph, book).run()
        case "multi_output_fusion":
            return GpuMultiOutputFusion(graph, book, state).run()
        case "fusion" | "fusion-duplicating":
            may_duplicate = pass_name == DUPLICATING
            of_run = FusionState(is_expensive=is_expensive, may_duplicate=may_duplicate)
            is_of_2023 = book.name in (GPU_FUSION_2023.name, GPU_DUPLICATION_2023.name)
            fusion = InstructionFusion2023 if is_of_2023 else GpuInstructionFusion
            return fusion(graph, book, of_run, state).run()
        case "fusion_merger":
            return FusionMerger(graph, book, state).run()
        case "horizontal_loop_fusion" | "gpu_horizontal_loop_fusion":
            return HorizontalLoopFusion(graph, book, state).run()
        case "horizontal_input_fusion" | "gpu_horizontal_input_fusion":
            return HorizontalInputFusion(graph, book, state).run()
        case "fusion-wrapper":
            kind_of = partial(_kind_of, target=target)
            return FusionWrapper(graph, book, kind_of).run()
        case "copy_fusion":
            return CopyFusion(graph, book, state).run()
        case "fusion-block-level-rewriter":
            return FusionBlockLevelRewriter(graph, book, state).run()
    return PriorityFusion(
        graph=graph,
        book=book,
        state=state,
        ids=target.ids,
        users=target.users,
        recorded=target.recorded,
        tells_events=target.has_record,
    ).run()


def _kind_of(instruction: MutableInstruction, target: GpuTarget) -> str:
    return choose_kind(instruction, instruction, target.device, target.settings.emitters)
