"""The target device of a module: ``gpu_target_config.pbtxt``, or one known by name.

The same block, ``gpu_device_info``, is in the priority fusion record. Its fields are those of
GpuDeviceInfoProto in ``xla/stream_executor/device_description.proto``, and keep their names here
and in ``devices.toml``, which describes the devices that are known by name.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from fusionscope.dump.text_proto import Message, parse
from fusionscope.errors import UnusableInput, quoted
from fusionscope.system.files import is_directory, is_there, read_file

# PrimitiveType in xla_data.proto: the numbers that key the rates of the execution units.
ELEMENT_TYPES = {
    1: "pred",
    2: "s8",
    3: "s16",
    4: "s32",
    5: "s64",
    6: "u8",
    7: "u16",
    8: "u32",
    9: "u64",
    10: "f16",
    11: "f32",
    12: "f64",
    15: "c64",
    16: "bf16",
    18: "c128",
    19: "f8e5m2",
    20: "f8e4m3fn",
    21: "s4",
    22: "u4",
    23: "f8e4m3b11fnuz",
    24: "f8e5m2fnuz",
    25: "f8e4m3fnuz",
    28: "f8e4m3",
    29: "f8e3m4",
    32: "f4e2m1fn",
    33: "f8e8m0fnu",
    35: "f6e3m2fn",
    36: "f6e2m3fn",
}
_TABLE = "devices.toml"
_CUDA = re.compile(r"sm_(\d+)(\d)([af]?)")
_FEATURE_SUFFIXES = {"ACCELERATED_FEATURES": "a", "FAMILY_COMPATIBLE_FEATURES": "f"}


@dataclass(frozen=True, slots=True)
class CudaCapability:
    """An NVIDIA compute capability. ``feature`` is the suffix of its name: "", "a" or "f"."""

    major: int
    minor: int
    feature: str

    def __str__(self) -> str:
        return f"sm_{self.major}{self.minor}{self.feature}"


@dataclass(frozen=True, slots=True)
class RocmCapability:
    """An AMD architecture, such as ``gfx942:sramecc+:xnack-``."""

    gcn_arch_name: str

    def __str__(self) -> str:
        return self.gcn_arch_name.partition(":")[0]


@dataclass(frozen=True, slots=True)
class OneApiCapability:
    """An Intel architecture, such as ``BMG``."""

    architecture: str

    def __str__(self) -> str:
        return self.architecture


@dataclass(frozen=True, slots=True)
class UnitRate:
    """The rate of one kind of execution unit for one element type."""

    element_type: str
    clock_rate_ghz: float
    units_per_core: int
    ops_per_clock: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A GPU as the compiler sees it.

    Sizes are bytes, ``memory_bandwidth`` is bytes per second. Missing figures are 0, missing texts
    are empty.
    """

    name: str
    platform_name: str
    capability: CudaCapability | RocmCapability | OneApiCapability | None
    threads_per_block_limit: int
    threads_per_warp: int
    shared_memory_per_block: int
    shared_memory_per_block_optin: int
    shared_memory_per_core: int
    threads_per_core_limit: int
    core_count: int
    fpus_per_core: int
    block_dim_limit_x: int
    block_dim_limit_y: int
    block_dim_limit_z: int
    memory_bandwidth: int
    l2_cache_size: int
    clock_rate_ghz: float
    device_memory_size: int
    registers_per_core_limit: int
    registers_per_block_limit: int
    compile_time_toolkit_version: str
    scalar_units: tuple[UnitRate, ...]
    matrix_units: tuple[UnitRate, ...]


def read_device(data: bytes, file: str) -> Device:
    """Read a GpuTargetConfigProto in text form.

    Raises ``UnusableInput`` if it is not a text proto or describes no GPU.
    """
    target = parse(data, file)
    info = target.message("gpu_device_info")
    if info is None:
        raise UnusableInput(
            "no gpu_device_info in it, expected the description of a GPU",
            file=file,
            hint="the compiler writes one as *.gpu_target_config.pbtxt",
        )
    return device_from(info, target)


def device_from(info: Message, around: Message) -> Device:
    """Return the device of a ``gpu_device_info`` message, which its parent may name too."""
    integers = {
        field.name: info.integer(field.name) for field in fields(Device) if field.type == "int"
    }
    for level in info.messages("data_caches"):  # newer descriptions have these instead
        if level.integer("level") == 2:
            integers["l2_cache_size"] = level.integer("size_bytes")
    return Device(
        name=info.string("name") or around.string("device_description_str"),
        platform_name=around.string("platform_name"),
        capability=_capability(info) or _capability(around),  # as of 2023
        clock_rate_ghz=info.number("clock_rate_ghz"),
        compile_time_toolkit_version=info.string("compile_time_toolkit_version"),
        scalar_units=_unit_rates(info.message("scalar_unit_description")),
        matrix_units=_unit_rates(info.message("matrix_unit_description")),
        **integers,
    )


def _capability(info: Message) -> CudaCapability | RocmCapability | OneApiCapability | None:
    if cuda := info.message("cuda_compute_capability"):
        feature = _FEATURE_SUFFIXES.get(cuda.string("feature_extension"), "")
        return CudaCapability(cuda.integer("major"), cuda.integer("minor"), feature)
    if rocm := info.message("rocm_compute_capability"):
        return RocmCapability(rocm.string("gcn_arch_name"))
    if one_api := info.message("oneapi_compute_capability"):
        return OneApiCapability(one_api.string("architecture"))
    return None


def _unit_rates(description: Message | None) -> tuple[UnitRate, ...]:
    rates = []
    for entry in description.messages("rate_infos") if description else ():
        key = entry.integer("key")
        rate = entry.message("value") or Message([], entry.file)
        rates.append(
            UnitRate(
                ELEMENT_TYPES.get(key, f"type {key}"),
                round(rate.number("clock_rate_ghz"), 6),  # some versions print meaningless digits
                rate.integer("units_per_core"),
                rate.integer("ops_per_clock"),
            )
        )
    return tuple(rates)


class _Card(NamedTuple):
    label: str
    device: Device


@cache
def _cards() -> Mapping[str, _Card]:
    """Return the devices in ``devices.toml`` by name."""
    text = Path(__file__).with_name(_TABLE).read_text(encoding="utf-8")
    return {name: _card(figures) for name, figures in tomllib.loads(text).items()}


def _card(figures: dict[str, Any]) -> _Card:
    label = figures.pop("label")
    capability = _named_capability(figures.pop("capability"))
    scalar_units, matrix_units = (
        _named_unit_rates(figures.pop(kind, {})) for kind in ("scalar_units", "matrix_units")
    )
    figures.setdefault("compile_time_toolkit_version", "")
    return _Card(
        label,
        Device(
            capability=capability, scalar_units=scalar_units, matrix_units=matrix_units, **figures
        ),
    )


def _named_unit_rates(by_types: Mapping[str, Sequence[Any]]) -> tuple[UnitRate, ...]:
    """Return the rates in the order in which the compiler writes them."""
    rates = {
        element_type: rate for types, rate in by_types.items() for element_type in types.split()
    }
    return tuple(
        UnitRate(element_type, *rates[element_type])
        for element_type in ELEMENT_TYPES.values()
        if element_type in rates
    )


def _named_capability(name: str) -> CudaCapability | RocmCapability | OneApiCapability:
    if cuda := _CUDA.fullmatch(name):
        return CudaCapability(int(cuda[1]), int(cuda[2]), cuda[3])
    return RocmCapability(name) if name.startswith("gfx") else OneApiCapability(name)


def known_device(name: str) -> Device:
    """Return the device of that name: ``h100``, ``H100 SXM`` or the driver's name, ``NVIDIA H100
    80GB HBM3``. Case, spaces and dashes do not matter.

    Raises ``UnusableInput``, with the known names, if there is none.
    """
    cards = _cards()
    names = {_letters(card_name): card_name for card_name in cards}
    for card_name, card in cards.items():
        for label in card.label, card.device.name:
            names.setdefault(_letters(label), card_name)
    letters = _letters(name)
    if letters in names:
        return cards[names[letters]].device
    close = dict.fromkeys(names[match] for match in get_close_matches(letters, names, 3, 0.6))
    raise UnusableInput(
        f"no device is called {quoted(name)}, expected {', '.join(cards)}",
        hint=f"did you mean {' or '.join(close)}?" if close else None,
    )


def device_names() -> tuple[str, ...]:
    """Return the names of the known devices, in the form of ``h100``."""
    return tuple(_cards())


def _letters(name: str) -> str:
    return re.sub("[ _-]", "", name.lower())


def find_device(name: str) -> Device:
    """Return a device by its name, or else the one that a file of this name describes.

    Raises ``UnusableInput`` if there is neither.
    """
    try:
        return known_device(name)
    except UnusableInput as unknown:
        path = Path(name)
        if not is_there(path) or is_directory(path):
            raise UnusableInput(
                f"{unknown.problem} or a file that describes one", hint=unknown.hint
            ) from None
    return read_device(read_file(path, name=name), name)


# Versions of a driver report slightly different memory and bandwidth for the same card. Cards that
# the table distinguishes by them differ by much more.
_TOLERANCE = 0.01


def marketing_name(device: Device) -> str | None:
    """Return the common name of a card: from its figures, or else its own name, if any."""
    capability = _without_features(device)
    for card in _cards().values():
        known_device_ = card.device
        if (
            _without_features(known_device_) == capability
            and known_device_.core_count == device.core_count
            and _close(known_device_.device_memory_size, device.device_memory_size)
            and _close(known_device_.memory_bandwidth, device.memory_bandwidth)
        ):
            return card.label
    return device.name or None


def _without_features(device: Device) -> str:
    return str(device.capability).rstrip("af") if device.capability else ""


def _close(expected: int, actual: int) -> bool:
    return abs(expected - actual) <= _TOLERANCE * expected


def describe(device: Device) -> str:
    """Return one line such as ``H100 SXM (sm_90a, 132 cores, 3.35 TB/s)``."""
    figures = [str(device.capability)] if device.capability else []
    if device.core_count:
        figures.append(f"{device.core_count} cores")
    if device.memory_bandwidth:
        figures.append(f"{device.memory_bandwidth / 1e12:.2f} TB/s")
    name = marketing_name(device) or "unnamed GPU"
    return f"{name} ({', '.join(figures)})" if figures else name
