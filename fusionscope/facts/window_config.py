"""Reads what the TPU compiler writes about the code of a kernel: the ``window_config`` in the
``backend_config`` of the final module.

The compiler's source is closed. Seen with libtpu 0.0.50 to 0.0.52 for v4, v5e, v5p, v6e and tpu7x:
numbers of 64 bits are strings, 0 is a figure that it did not fill in, and kernels that another unit
runs have 2^63-1 cycles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fusionscope.hlo import Instruction

_NO_ESTIMATE = 2**63 - 1
_NAME = "window_config"


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowConfig:
    """The windows in which a kernel passes over its arrays, and the compiler's estimates.

    ``cycles`` are clocks of one run, ``microseconds`` those of a learned model, ``vmem_bytes`` what
    the windows take of the vector memory; None if the compiler does not say. ``iterations`` are the
    steps over each dimension, and the windows are in tiles; empty if they are not known.
    """

    cycles: int | None = None
    microseconds: float | None = None
    vmem_bytes: int | None = None
    iterations: tuple[int, ...] = ()
    input_window: tuple[int, ...] = ()
    kernel_window: tuple[int, ...] = ()
    output_window: tuple[int, ...] = ()


def window_config_of(launch: Instruction) -> WindowConfig | None:
    """Return the configuration of a launch, or of what an asynchronous one starts; None without
    one. Values of another form count as absent.
    """
    if launch.opcode == "async-start" and launch.called:
        launch = launch.called[0].root
    if _NAME not in launch.statement.attributes:
        return None
    return read_window_config(launch.attribute("backend_config"))


def read_window_config(backend_config: object) -> WindowConfig | None:
    """Return the configuration in a ``backend_config`` as data, None without one."""
    config = backend_config.get(_NAME) if isinstance(backend_config, Mapping) else None
    if not isinstance(config, Mapping):
        return None
    return WindowConfig(
        cycles=_count(config.get("estimated_cycles")),
        microseconds=_positive(config.get("ml_estimated_microseconds")),
        vmem_bytes=_count(config.get("estimated_vmem_bytes")),
        iterations=_counts(config.get("iteration_bounds")),
        input_window=_counts(config.get("input_window_bounds")),
        kernel_window=_counts(config.get("kernel_window_bounds")),
        output_window=_counts(config.get("output_window_bounds")),
    )


def _count(value: Any) -> int | None:
    """Return a positive number of 64 bits, None for anything else."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20:
        value = int(value)
    return value if type(value) is int and 0 < value < _NO_ESTIMATE else None


def _positive(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and 0 < value < _NO_ESTIMATE else None


def _counts(values: Any) -> tuple[int, ...]:
    """Return a list of positive numbers, empty if it has anything else."""
    counts = [_count(value) for value in values] if isinstance(values, list | tuple) else []
    return () if None in counts else tuple(count for count in counts if count is not None)
