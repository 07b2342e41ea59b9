"""The cycles of operations, against the times that compilers recorded of them."""

from __future__ import annotations

import gzip
import math
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from fusionscope.dump.device import (
    CudaCapability,
    Device,
    OneApiCapability,
    RocmCapability,
    read_device,
)
from fusionscope.dump.priority_fusion import Priority, PriorityFusionRecord, read_priority_fusion
from fusionscope.gpu.cost.cycles import architecture_of, cycles_of
from fusionscope.hlo import parse

ROOT = Path(__file__).parents[2]


@pytest.fixture
def h100() -> Device:
    file = ROOT / "samples/devices/h100.txtpb"
    return read_device(file.read_bytes(), file.name)


def record_in(directory: str) -> PriorityFusionRecord:
    (file,) = (ROOT / directory).glob("*.priority_fusion_dump.txt*")
    data = file.read_bytes()
    return read_priority_fusion(gzip.decompress(data) if file.suffix == ".gz" else data, file.name)


def ticks(ns: float) -> float:
    """A duration as the compiler keeps it: quarters of a ns, halves away from zero."""
    return math.floor(ns * 4 + 0.5) / 4


def execution_ns(
    elements: int, cycles: int, flops_per_ns: int, sizes: list[int], bandwidth: int
) -> float:
    """How long an operation takes by itself that reads and writes arrays of these ``sizes``."""
    computation = ticks(elements * cycles / flops_per_ns)
    memory = sum(ticks(size / bandwidth * 1e9) for size in sizes)
    return computation + memory - ticks(0.95 * min(computation, memory))


def test_times_by_hand():
    # H100: 2 · 1.98 GHz · 132 cores · 128 units. jaxlib 0.12.0.1 recorded 4.8005 us for tanh -> add
    # of f32[512,512]; two launches take 1 us each.
    elements, h100 = 512 * 512, (66_908, 3_352_320_000_000)
    tanh, add = cycles_of("sm_90", "tanh", "f32"), cycles_of("sm_90", "add", "f32")
    assert execution_ns(elements, tanh, h100[0], [4 * elements] * 2, h100[1]) == 1861.0
    assert execution_ns(elements, add, h100[0], [4 * elements] * 3, h100[1]) == 939.5

    # A100: 108 cores of 64 units. jaxlib 0.4.35, which took 2 · 1.41 GHz for 2, recorded 3.39425 us
    # for tanh -> multiply of f32[128,256].
    elements, a100 = 128 * 256, (13_824, 2_039_040_000_000)
    tanh, multiply = cycles_of("sm_80", "tanh", "f32"), cycles_of("sm_80", "multiply", "f32")
    assert execution_ns(elements, tanh, a100[0], [4 * elements] * 2, a100[1]) == 1201.25
    assert execution_ns(elements, multiply, a100[0], [4 * elements] * 3, a100[1]) == 193.0


@pytest.mark.parametrize(
    ("target", "program", "producers"),
    [
        ("a100", "reductions", "mul.4.0"),
        ("b200", "dense", "add.7.0"),
        ("h100", "reductions", "mul.4.0"),
        (
            "h100",
            "elementwise",
            """tanh.1.0 neg.1.0 mul.17.0 mul.10.0 exp.1.0 clamp.1 add.3.0 gt.3.0 abs.3.0 sqrt.1.0
            add.4.0 log1p.1.0 sin.1.0 abs.2.0 cos.1.0 add.5.0""",
        ),
        ("h200", "elementwise", "tanh.1.0 neg.1.0 add.3.0 abs.3.0 sin.1.0 cos.1.0"),
    ],
)
def test_times_that_compilers_recorded(target, program, producers):
    record = record_in(f"samples/dumps/{target}/{program}")
    device = record.device
    per_ns = int(2 * device.clock_rate_ghz * device.core_count * device.fpus_per_core)
    entry = parse(record.module_before_fusion()).entry
    priorities = [step for step in record.steps if isinstance(step, Priority)]
    for producer in producers.split():
        # The first one is that of the operation before anything was fused with it.
        step = next(priority for priority in priorities if priority.producer == producer)
        unfused_us = 1.0 + len(step.consumers)
        for name in (step.producer, *step.consumers):
            operation = entry.instruction(name)
            shape = operation.shape
            assert shape.element_count >= 128 * device.core_count  # so that no core is idle
            cycles = cycles_of(architecture_of(device), operation.opcode, shape.element_type)
            sizes = [operand.shape.byte_size for operand in (operation, *operation.operands)]
            unfused_us += (
                execution_ns(shape.element_count, cycles, per_ns, sizes, device.memory_bandwidth)
                / 1000
            )
        # The record keeps 32-bit floats.
        assert struct.pack("f", unfused_us) == struct.pack("f", step.unfused_us), producer


@pytest.mark.parametrize(
    ("capability", "architecture"),
    [
        (CudaCapability(9, 0, "a"), "sm_90"),
        (CudaCapability(10, 3, ""), "sm_103"),
        (CudaCapability(12, 0, "f"), "sm_120"),
        (RocmCapability("gfx90a:sramecc+:xnack-"), "gfx90a"),
        (OneApiCapability("BMG"), "unknown"),
        (None, "unknown"),
    ],
)
def test_architecture_of_a_device(h100, capability, architecture):
    assert architecture_of(replace(h100, capability=capability)) == architecture


def test_architectures_without_figures_of_their_own_share_those_of_one():
    for architecture in ("sm_86", "sm_89", "sm_120", "gfx90a", "gfx942", "unknown"):
        assert cycles_of(architecture, "tanh", "f32") == cycles_of("sm_990", "tanh", "f32")
    local = [f"sm_{item}" for item in (60, 70, 75, 80, 90, 100, 103, 990)]
    assert len({cycles_of(architecture, "tanh", "f32") for architecture in local}) == len(local)


def test_what_the_table_does_not_have_costs_three():
    # jaxlib 0.12.0.1 recorded them so on an H100, see mul.17.0 and clamp.1 above.
    assert cycles_of("sm_90", "multiply", "f32") == cycles_of("sm_90", "clamp", "f32") == 3
    assert cycles_of("sm_90", "add", "f8e8m0fnu") == cycles_of("sm_90", "no-such", "f32") == 3
