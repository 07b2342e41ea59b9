"""Where in the dump of a GPU the passes ran that can be replayed, and their replay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from fusionscope.dump import DumpedModule
from fusionscope.dump.debug_options import DebugOptions
from fusionscope.dump.device import Device
from fusionscope.errors import UnusableInput
from fusionscope.replay.gpu_multi_output import GpuMultiOutputFusion
from fusionscope.replay.plan import FusionPlan, PassRun
from fusionscope.replay.priority_fusion import PriorityFusion, RecordedOrder
from fusionscope.replay.priority_record import recorded_users, undecided_order
from fusionscope.rules.books import GPU_BOOKS, Books, find_book
from fusionscope.rules.gpu.state import GpuSettings, GpuState
from fusionscope.rules.gpu.triton_support import TRITON_0_10, TRITON_0_11, TRITON_0_12
from fusionscope.rules.graph import MutableModule
from fusionscope.rules.rule import RuleBook

_FUSING = "fusion"  # the pipeline in which both main passes run
PRIORITY_FUSION = "priority-fusion"
_FUSING_PASSES = (
    "variadic-op-splitter", "sort-iota-fusion", PRIORITY_FUSION, "cse", "dce",
    "multi_output_fusion", "cse", "dce",
)  # fmt: skip
_MAX_UNROLL = "xla_gpu_experimental_max_unroll_factor"
_HEROLESS = "xla_gpu_experimental_enable_triton_heroless_priority_fusion"
_TILES = "xla_gpu_experimental_enable_tiling_propagation"

# Passes that only one version has, each behind a stage of the pipeline before it.
_ONLY_IN = {
    ("autotuner", "pipeline-start", "fusion-wrapper"): "gpu-0.10",
    (
        "pre-spmd-partitioner", "pipeline-start", "async-collective-custom-call-rewriter"
    ): "gpu-0.11",
}  # fmt: skip
_TRITON = {"gpu-0.10": TRITON_0_10, "gpu-0.11": TRITON_0_11, "gpu-0.12": TRITON_0_12}
# What the rules divide by or count with.
_POSITIVE = (
    "block_dim_limit_x", "block_dim_limit_y", "clock_rate_ghz", "core_count", "fpus_per_core",
    "memory_bandwidth", "threads_per_warp",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class GpuTarget:
    """What the passes compiled for, and by which flags. ``ids`` are the unique ids of instructions
    before priority fusion, by computation and name, ``users`` those of instructions in their order
    by name, both as far as the dump has them; ``recorded`` is as much of the order of a record as
    is to be followed."""

    device: Device
    settings: GpuSettings = field(default_factory=GpuSettings)
    ids: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    users: Mapping[str, Sequence[str]] = field(default_factory=dict)
    recorded: RecordedOrder | None = None


def read_target(
    module: DumpedModule, flags: DebugOptions | None, device: Device | None = None
) -> GpuTarget:
    """``device`` is the one to take, the dump's own where None. Raises ``UnusableInput`` where
    neither is known, or there can be no such device."""
    device = device or module.device
    if device is None:
        raise UnusableInput(
            f"nothing in the dump says which GPU {module.name} was compiled for",
            file=str(module.stages[0].file),
            hint="name it, as in --device h100, or put *.gpu_target_config.pbtxt beside the stages",
        )
    for name in _POSITIVE:
        figure = getattr(device, name)
        if not 0 < figure < 2**63:
            raise UnusableInput(
                f"{name} of the GPU for {module.name} is {str(figure)[:20]}, expected more than 0",
                file=str(module.stages[0].file),
                hint="name the GPU, as in --device h100",
            )
    values: Mapping[str, Sequence[str]] = flags.values if flags is not None else {}
    default = GpuSettings()
    unroll = values.get(_MAX_UNROLL, (str(default.max_unroll),))[-1]
    heroless = values.get(_HEROLESS, ("false",))[-1]
    triton = _TRITON[_version_of(module)]
    if _TILES in values:
        triton = replace(triton, propagates_tiles=values[_TILES][-1] == "true")
    record = module.priority_fusion
    ids: dict[str, dict[str, int]] = {}
    for run in find_gpu_runs(module):
        if run.pass_name == PRIORITY_FUSION:
            ids = module.instruction_ids(run.before) or {}
    return GpuTarget(
        device,
        GpuSettings(
            int(unroll) if unroll.isdecimal() else default.max_unroll, heroless == "true", triton
        ),
        ids,
        recorded_users(record.steps) if record is not None else {},
        undecided_order(record.steps) if record is not None else None,
    )


def find_gpu_runs(module: DumpedModule) -> Iterator[PassRun]:
    """In their order; of a pass that changed nothing ``after`` is None.

    Where not every pass that changed something left a file, only what is named as the next pass ran
    right behind a stage. Raises ``UnusableInput``.
    """
    values: Mapping[str, Sequence[str]] = module.flags.values if module.flags is not None else {}
    shows_all_passes = values.get("xla_dump_hlo_pass_re", (".*",)) == (".*",)
    known = {book.pass_name for book in pick_gpu_books(module)}
    known.difference_update(values.get("xla_disable_hlo_passes", ()))
    if values.get("xla_enable_hlo_passes_only"):
        known.intersection_update(values["xla_enable_hlo_passes_only"])
    stages = [stage for stage in module.stages if stage.name.counter is not None]
    waiting = list(_FUSING_PASSES)
    for before, after in pairwise([*stages, None]):
        assert before is not None
        passes = [before.name.before]
        if shows_all_passes and before.name.pipeline == _FUSING:
            acted = after.name.after if after is not None else ""
            ends = waiting.index(acted) + 1 if acted in waiting else len(waiting)
            passes, waiting = waiting[:ends], waiting[ends:]
        elif shows_all_passes and after is not None:
            passes.append(after.name.after)
        for name in dict.fromkeys(passes):
            if name in known:
                changed = after is not None and after.name.after == name
                yield PassRun(name, before, after if changed else None)


def pick_gpu_books(module: DumpedModule) -> Books:
    """Those of the version that made the dump, the newest where it does not show."""
    return GPU_BOOKS[_version_of(module)]


def _version_of(module: DumpedModule) -> str:
    for stage in module.stages:
        name = stage.name
        version = _ONLY_IN.get((name.pipeline, name.after, name.before))
        if version is not None:
            return version
    return "gpu-0.12"


def replay_gpu(pass_name: str, graph: MutableModule, target: GpuTarget, books: Books) -> FusionPlan:
    """What a pass makes of ``graph``, which it changes."""
    book: RuleBook[Any] = find_book(books, pass_name)
    state = GpuState(target.device, target.settings)
    if pass_name == "multi_output_fusion":
        return GpuMultiOutputFusion(graph, book, state).run()
    return PriorityFusion(graph, book, state, target.ids, target.users, target.recorded).run()
