"""The clock cycles that the GPU cost model counts for an elementwise operation.

Source: ``cycles.toml``, measured on the compiler, which keeps its figures in
xla/service/gpu/model/hlo_op_profiles_data.h and reads them in ``hlo_op_profiles.cc`` and
``GpuHloCostAnalysis::GetFlopsPerElementwiseOpElement``.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from fusionscope.dump.device import CudaCapability, Device, RocmCapability

_TABLE = "cycles.toml"
_UNKNOWN = "unknown"


def architecture_of(device: Device) -> str:
    """Return the key of a device's cycles in the compiler, for example ``sm_90`` or
    ``gfx942``.

    The feature suffix of a capability (a, f) and the name of the device do not matter.
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
    """Return the clock cycles for one element of the result, whose type is
    ``element_type``.

    This applies to all operations that XLA's visitors call elementwise except copy, which costs
    none.
    """
    table = _table()
    profile = table.get(architecture, table[_UNKNOWN])
    cycles: int = profile.get(element_type, {}).get(opcode, table["absent"])
    return cycles


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name(_TABLE).read_text(encoding="utf-8"))
