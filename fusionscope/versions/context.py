"""The target, version and flags of a dump."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fusionscope.dump import DumpedModule
from fusionscope.dump.fusion_passes import PRIORITY_FUSION
from fusionscope.errors import UnusableInput
from fusionscope.passes.context import GpuTarget, PassContext
from fusionscope.versions.choice import choose_compiler
from fusionscope.versions.flags import read_flags
from fusionscope.versions.runs import find_runs

if TYPE_CHECKING:
    from fusionscope.dump.device import Device
    from fusionscope.dump.tpu_target import TpuTarget
    from fusionscope.gpu.cost.model import Lookups
    from fusionscope.gpu.model import GpuModel

_GEMM_THRESHOLD = "xla_gpu_gemm_rewrite_size_threshold"
_MAX_UNROLL = "xla_gpu_experimental_max_unroll_factor"
_TRITON_OUTPUTS = "xla_gpu_unsupported_enable_triton_multi_output_fusion"
_HEROLESS = "xla_gpu_experimental_enable_triton_heroless_priority_fusion"
_TILES = "xla_gpu_experimental_enable_tiling_propagation"
# Values that the rules divide by or count with, and the range that a GPU can have.
_LIMITS: Mapping[str, tuple[float, float]] = {
    "block_dim_limit_x": (1, 2**32),
    "block_dim_limit_y": (1, 2**32),
    "clock_rate_ghz": (0.001, 1000),
    "core_count": (1, 2**20),
    "fpus_per_core": (1, 2**20),
    "memory_bandwidth": (2**20, 2**60),
    "threads_per_warp": (1, 1024),
}


def read_context(module: DumpedModule, device: Device | None = None) -> PassContext:
    """Return the context, with defaults where the dump has no information. ``device`` overrides the
    dump's own GPU. Raises ``UnusableInput`` if the flags cannot be read, or if the GPU is unknown
    or impossible.
    """
    context = read_flags(module)
    if module.backend == "gpu":
        context = replace(context, gpu=_read_target(module, device))
    return context


def with_flags_of(module: DumpedModule, context: PassContext) -> PassContext:
    """Return the ``context`` of the same module with the flags that ``module`` has. Raises
    ``UnusableInput``.
    """
    flags = replace(read_flags(module), tells_decisions=context.tells_decisions)
    gpu = context.gpu
    if gpu is None:
        return flags
    gpu = replace(gpu, gpu_model=_read_model(module))
    return replace(flags, gpu=replace(gpu, lookups=_lookups_for(gpu)))


def _lookups_for(gpu: GpuTarget) -> Lookups:
    """Return the look-ups of ``gpu``, or new ones if these are for other costs."""
    from fusionscope.gpu.cost.model import Lookups

    target = gpu.device, gpu.gpu_model.costs_on(gpu.device)
    lookups = gpu.lookups or Lookups(target)
    return lookups if lookups.target == target else Lookups(target)


def read_gpu(module: DumpedModule, device: Device | None = None) -> GpuTarget | None:
    """Return the device and the compiler's model of it, without the orders that only passes need,
    or None for other backends. ``device`` and errors are as for ``read_context``.
    """
    if module.backend != "gpu":
        return None
    return GpuTarget(device=read_device(module, device), gpu_model=_read_model(module))


def read_target(module: DumpedModule, device: Device | None = None) -> GpuTarget | TpuTarget | None:
    """Return what gives times to a module: its GPU as ``read_gpu`` does, its TPU if a file of the
    dump shows it, or None. Raises ``UnusableInput`` likewise.
    """
    return module.tpu if module.backend == "tpu" else read_gpu(module, device)


def _read_target(module: DumpedModule, device: Device | None) -> GpuTarget:
    from fusionscope.passes.gpu.priority_fusion.record import recorded_users, undecided_order

    record = module.priority_fusion
    ids: dict[str, dict[str, int]] = {}
    for run in find_runs(module):
        if run.pass_name == PRIORITY_FUSION:
            ids = module.instruction_ids(run.before) or {}
    gpu = GpuTarget(
        device=read_device(module, device),
        gpu_model=_read_model(module),
        ids=ids,
        users=recorded_users(record.steps) if record is not None else {},
        recorded=undecided_order(record.steps) if record is not None else None,
        has_record=record is not None,
    )
    return replace(gpu, lookups=_lookups_for(gpu))


def read_device(module: DumpedModule, device: Device | None = None) -> Device:
    """Return ``device``, or else the dump's. Raises ``UnusableInput`` without a possible one."""
    device = device or module.device
    if device is None:
        raise UnusableInput(
            f"nothing in the dump says which GPU {module.name} was compiled for",
            file=str(module.stages[0].file),
            hint="name it, as in --device h100, or put *.gpu_target_config.pbtxt next to stages",
        )
    for name, (least, most) in _LIMITS.items():
        figure = getattr(device, name)
        if not least <= figure <= most:
            raise UnusableInput(
                f"{name} of the GPU for {module.name} is {str(figure)[:20]}, "
                f"expected {least} to {most}",
                file=str(module.stages[0].file),
                hint="name the GPU, as in --device h100",
            )
    return device


def _read_model(module: DumpedModule) -> GpuModel:
    values = module.flags.values if module.flags is not None else {}
    default = choose_compiler(module).compiler.gpu
    assert default is not None
    triton = default.triton
    if _TILES in values:
        triton = replace(triton, propagates_tiles=values[_TILES][-1] == "true")
    return replace(
        default,
        max_unroll=_number(values, _MAX_UNROLL, default.max_unroll),
        has_heroless_triton=values.get(_HEROLESS, ("false",))[-1] == "true",
        gemm_threshold=_number(values, _GEMM_THRESHOLD, default.gemm_threshold),
        has_triton_outputs=values[_TRITON_OUTPUTS][-1] == "true"
        if _TRITON_OUTPUTS in values
        else default.has_triton_outputs,
        triton=triton,
    )


def _number(values: Mapping[str, Sequence[str]], name: str, default: int) -> int:
    text = values.get(name, ("",))[-1]
    return int(text) if text.isdecimal() else default
