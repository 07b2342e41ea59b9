"""Describes a GPU, which need not be present, in the form that the compiler reads.

That form is the text of a GpuTargetConfigProto (xla/service/gpu_target_config.proto and
xla/stream_executor/device_description.proto), which ``dump.device`` reads too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from fusionscope.dump.device import (
    ELEMENT_TYPES,
    CudaCapability,
    Device,
    OneApiCapability,
    RocmCapability,
    UnitRate,
)

_NUMBERS = """threads_per_block_limit threads_per_warp shared_memory_per_block
    shared_memory_per_block_optin shared_memory_per_core threads_per_core_limit core_count
    fpus_per_core block_dim_limit_x block_dim_limit_y block_dim_limit_z memory_bandwidth
    l2_cache_size clock_rate_ghz device_memory_size registers_per_core_limit
    registers_per_block_limit""".split()
# What the driver of a card reports, as all descriptions of NVIDIA's in
# xla/backends/gpu/target_config/specs have it. Without them the compiler uses no library for 8-bit
# floats, and no cuDNN.
_VERSIONS = {"driver_version": "13.0.0", "runtime_version": "12.8.0", "dnn_version": "9.10.0"}
_FEATURES = {"a": "ACCELERATED_FEATURES", "f": "FAMILY_COMPATIBLE_FEATURES"}


def describe_target(device: Device) -> str:
    """Return the text from which a compiler generates code for ``device``."""
    info = [f"{name}: {getattr(device, name)}" for name in _NUMBERS if getattr(device, name)]
    info.append(f"name: {_quoted(device.name)}")
    if device.compile_time_toolkit_version:
        info.append(f"compile_time_toolkit_version: {_quoted(device.compile_time_toolkit_version)}")
    if isinstance(device.capability, CudaCapability):
        info += [f"{name}: {_quoted(version)}" for name, version in _VERSIONS.items()]
    info += _capability(device.capability)
    info += _units("scalar_unit_description", device.scalar_units)
    info += _units("matrix_unit_description", device.matrix_units)
    lines = [
        *_block("gpu_device_info", info),
        f"platform_name: {_quoted(device.platform_name)}",
        f"device_description_str: {_quoted(device.name)}",
    ]
    return "".join(f"{line}\n" for line in lines)


def _capability(
    capability: CudaCapability | RocmCapability | OneApiCapability | None,
) -> Iterator[str]:
    match capability:
        case CudaCapability(major, minor, feature):
            fields = [f"major: {major}", f"minor: {minor}"]
            if feature:
                fields.append(f"feature_extension: {_FEATURES[feature]}")
            yield from _block("cuda_compute_capability", fields)
        case RocmCapability(name):
            yield from _block("rocm_compute_capability", [f"gcn_arch_name: {_quoted(name)}"])
        case OneApiCapability(name):
            yield from _block("oneapi_compute_capability", [f"architecture: {_quoted(name)}"])


def _units(name: str, rates: Iterable[UnitRate]) -> Iterator[str]:
    keys: Mapping[str, int] = {
        element_type: number for number, element_type in ELEMENT_TYPES.items()
    }
    entries = [
        f"rate_infos {{ key: {keys[rate.element_type]} value {{ "
        f"clock_rate_ghz: {rate.clock_rate_ghz} units_per_core: {rate.units_per_core} "
        f"ops_per_clock: {rate.ops_per_clock} }} }}"
        for rate in rates
    ]
    if entries:
        yield from _block(name, entries)


def _block(name: str, fields: Iterable[str]) -> Iterator[str]:
    yield f"{name} {{"
    yield from (f"  {field}" for field in fields)
    yield "}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
