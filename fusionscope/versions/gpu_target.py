"""What a dump of a GPU was compiled for, by which version, and with which flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fusionscope.dump import DumpedModule
from fusionscope.dump.debug_options import DebugOptions
from fusionscope.dump.device import CudaCapability, Device
from fusionscope.errors import UnusableInput
from fusionscope.gpu.model import GpuModel
from fusionscope.passes.gpu.gemm_fusion.rules_v2 import GPU_GEMM_V2
from fusionscope.passes.gpu.priority_fusion.run import RecordedOrder
from fusionscope.versions.chosen_rules import choose_rules
from fusionscope.versions.gpu_models import GPU_MODELS

_GEMM = GPU_GEMM_V2.pass_name
_GEMM_THRESHOLD = "xla_gpu_gemm_rewrite_size_threshold"
_MAX_UNROLL = "xla_gpu_experimental_max_unroll_factor"
_HEROLESS = "xla_gpu_experimental_enable_triton_heroless_priority_fusion"
_TILES = "xla_gpu_experimental_enable_tiling_propagation"
# Without the one there are no such fusions, without the other they are formed by other rules.
_FOR_GEMM = ("xla_gpu_enable_triton_gemm", "xla_gpu_triton_gemm_any")
_NEEDING_TRITON = (_GEMM, "triton-softmax-rewriter", "fusion-block-level-rewriter")
_AMPERE = 8
# What the rules divide by or count with, and how little or much of it a GPU can have.
_LIMITS: Mapping[str, tuple[float, float]] = {
    "block_dim_limit_x": (1, 2**32),
    "block_dim_limit_y": (1, 2**32),
    "clock_rate_ghz": (0.001, 1000),
    "core_count": (1, 2**20),
    "fpus_per_core": (1, 2**20),
    "memory_bandwidth": (2**20, 2**60),
    "threads_per_warp": (1, 1024),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTarget:
    """What the passes compiled for, and by which flags. ``ids`` are the unique ids of instructions
    before priority fusion, by computation and name, ``users`` those of instructions in their order
    by name, both as far as the dump has them; ``recorded`` is as much of the order of a record as
    is to be followed, ``has_record`` whether there is one to compare with."""

    device: Device
    settings: GpuModel
    ids: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    users: Mapping[str, Sequence[str]] = field(default_factory=dict)
    recorded: RecordedOrder | None = None
    has_record: bool = False


def read_device(module: DumpedModule, device: Device | None = None) -> Device:
    """``device``, or the dump's own where None. Raises ``UnusableInput`` where neither is known, or
    there can be no such device."""
    device = device or module.device
    if device is None:
        raise UnusableInput(
            f"nothing in the dump says which GPU {module.name} was compiled for",
            file=str(module.stages[0].file),
            hint="name it, as in --device h100, or put *.gpu_target_config.pbtxt beside the stages",
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


def read_gpu_settings(module: DumpedModule, flags: DebugOptions | None) -> GpuModel:
    values = _values(flags)
    default = GPU_MODELS[choose_rules(module).name]
    triton = default.triton
    if _TILES in values:
        triton = replace(triton, propagates_tiles=values[_TILES][-1] == "true")
    return replace(
        default,
        max_unroll=_number(values, _MAX_UNROLL, default.max_unroll),
        has_heroless_triton=values.get(_HEROLESS, ("false",))[-1] == "true",
        gemm_threshold=_number(values, _GEMM_THRESHOLD, default.gemm_threshold),
        triton=triton,
    )


def is_known_to_run(pass_name: str, module: DumpedModule) -> bool:
    """Whether neither a flag nor the GPU keeps a pass from running, by the rules that are known."""
    if not module.lets_run(pass_name):
        return False
    values = _values(module.flags)
    if pass_name == _GEMM and any(values.get(each, ("",))[-1] == "false" for each in _FOR_GEMM):
        return False
    capability = module.device.capability if module.device is not None else None
    is_before_triton = isinstance(capability, CudaCapability) and capability.major < _AMPERE
    return not (is_before_triton and pass_name in _NEEDING_TRITON)


def _values(flags: DebugOptions | None) -> Mapping[str, Sequence[str]]:
    return flags.values if flags is not None else {}


def _number(values: Mapping[str, Sequence[str]], name: str, default: int) -> int:
    text = values.get(name, ("",))[-1]
    return int(text) if text.isdecimal() else default
