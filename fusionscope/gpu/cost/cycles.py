"""How many clock cycles the GPU cost model counts for an elementwise operation.

Source: ``cycles.toml``, measured on the compiler, which keeps its figures in
xla/service/gpu/model/hlo_op_profiles_data.h and reads them in ``hlo_op_profiles.cc`` and
``GpuHloCostAnalysis::GetFlopsPerElementwiseOpElement``.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from fusionscope.dump.device import CudaCapability, Device, RocmCapability

_TABLE = "cycles.toml"
_UNKNOWN = "unknown"


def architecture_of(device: Device) -> str:
    """What the compiler looks a device's cycles up by: ``sm_90``, ``gfx942``.

    The features of a capability (a, f) make no difference, nor does the name of the device.
    """
    match device.capability:
        case CudaCapability(major, minor):
            return f"sm_{major}{minor}"
        case RocmCapability():
            return str(device.capability)
        case _:
            return _UNKNOWN


@cache
def cycles_of(architecture: str, opcode: str, element_type: str) -> int:
    """Clock cycles for one element of the result, whose type is ``element_type``.

    Holds for all operations that XLA's visitors call elementwise, but for copy, which costs none.
    """
    table = _table()
    profile = table.get(architecture, table[_UNKNOWN])
    cycles: int = profile.get(element_type, {}).get(opcode, table["absent"])
    return cycles


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads((files(__package__) / _TABLE).read_text(encoding="utf-8"))
