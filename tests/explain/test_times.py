"""Estimates of time, against figures by hand and the compiler's own records."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusionscope import parse
from fusionscope.dump import open_dump
from fusionscope.dump.device import find_device
from fusionscope.explain import Selection, explain
from fusionscope.facts.clock import NOMINAL_CPU
from fusionscope.facts.result import TimeSource
from fusionscope.facts.times import clock_for, estimate, estimate_final
from fusionscope.graph.mutable import MutableModule
from fusionscope.graph.work import Work, count_work
from fusionscope.history.kernels import find_kernels
from fusionscope.history.values import Numbering
from fusionscope.passes.context import GpuTarget
from fusionscope.rules.changes import read_changes
from fusionscope.versions.context import read_gpu
from fusionscope.versions.known import load_compiler

DUMPS = Path(__file__).parents[2] / "samples" / "dumps"

TWO_KERNELS = """HloModule m

ENTRY main {
  x = f32[512,512]{1,0} parameter(0)
  y = f32[512,512]{1,0} parameter(1)
  tanh.1 = f32[512,512]{1,0} tanh(x)
  ROOT add.1 = f32[512,512]{1,0} add(tanh.1, y)
}
"""

GEMM = """HloModule m

ENTRY main {
  x = f16[2048,2048]{1,0} parameter(0)
  y = f16[2048,2048]{1,0} parameter(1)
  call = (f16[2048,2048]{1,0}, s8[0]{0}) custom-call(x, y), custom_call_target="__cublas$gemm", \
backend_config={"gemm_backend_config":{"dot_dimension_numbers":{\
"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}
  ROOT out = f16[2048,2048]{1,0} get-tuple-element(call), index=0
}
"""

LOOP = """HloModule m

body {
  b = (s32[], f32[8]{0}) parameter(0)
  i = s32[] get-tuple-element(b), index=0
  v = f32[8]{0} get-tuple-element(b), index=1
  w = f32[8]{0} negate(v)
  ROOT t = (s32[], f32[8]{0}) tuple(i, w)
}

condition {
  c = (s32[], f32[8]{0}) parameter(0)
  j = s32[] get-tuple-element(c), index=0
  ROOT less = pred[] compare(j, j), direction=LT
}

ENTRY main {
  x = (s32[], f32[8]{0}) parameter(0)
  ROOT loop = (s32[], f32[8]{0}) while(x), condition=condition, body=body, \
backend_config={"known_trip_count":{"n":"TRIPS"}}
}
"""


def h100() -> GpuTarget:
    gpu_model = load_compiler("gpu-0.12").gpu
    assert gpu_model is not None
    return GpuTarget(device=find_device("h100"), gpu_model=gpu_model)


def test_kernels_of_a_gpu_take_what_the_compiler_estimates() -> None:
    # The compiler records 4.8005 us for this pair as two kernels: us_unfused of tanh.1 -> add.1.
    actual = estimate(parse(TWO_KERNELS), "gpu", h100())
    assert actual is not None
    assert actual.microseconds == 4.8005
    assert actual.floor_launches == 0


def test_what_the_model_does_not_cover_has_a_floor() -> None:
    module, target = parse(GEMM), h100()
    clock = clock_for(module, "gpu", target)
    assert clock is not None
    (kernel,) = find_kernels(Numbering().number(module), "gpu")
    time = clock.time(kernel)
    # Four units for matrices a core, each 512 multiply-adds of f16 a clock.
    (unit,) = [unit for unit in target.device.matrix_units if unit.element_type == "f16"]
    flops = 2 * 2048**3
    assert time.source is TimeSource.FLOOR
    assert time.nanoseconds == pytest.approx(
        1000 + flops / (2 * 132 * 4 * 512 * unit.clock_rate_ghz)
    )
    # The bytes alone would take less.
    assert time.nanoseconds - 1000 > 3 * 2048**2 * 2 / 3352.32


def test_a_cpu_is_a_nominal_one() -> None:
    actual = estimate(parse(TWO_KERNELS), "cpu")
    assert actual is not None
    # The tanh is bound by its computation, the addition by its bytes.
    elements, machine = 512 * 512, NOMINAL_CPU
    tanh = elements * machine.flops_per_transcendental / machine.flops
    assert tanh > 2 * 4 * elements / machine.bandwidth
    adding = 3 * 4 * elements / machine.bandwidth
    assert actual.microseconds * 1000 == pytest.approx(2 * machine.launch + tanh + adding)
    assert actual.floor_launches == 0


def test_nothing_is_said_of_unknown_devices() -> None:
    assert estimate(parse(TWO_KERNELS), "tpu") is None
    assert estimate(parse(TWO_KERNELS), "gpu") is None


def test_a_loop_counts_as_often_as_it_runs() -> None:
    # The body is one kernel of a microsecond or so, and the condition never runs.
    seven, eight = (
        estimate(parse(LOOP.replace("TRIPS", str(trips))), "gpu", h100()) for trips in (7, 8)
    )
    assert seven is not None and eight is not None
    trip = eight.microseconds - seven.microseconds
    assert 1 < trip < 1.05
    assert seven.microseconds == pytest.approx(7 * trip)


SQUARED = """HloModule m

ENTRY main {
  x = f32[2048]{0} parameter(0)
  ROOT y = f32[2048]{0} multiply(x, x)
}
"""

WRAPPED = """HloModule m

wrapped {
  p = f32[2048]{0} parameter(0)
  ROOT m = f32[2048]{0} multiply(p, p)
}

ENTRY main {
  x = f32[2048]{0} parameter(0)
  ROOT y = f32[2048]{0} fusion(x), kind=kLoop, calls=wrapped
}
"""


def test_an_operation_takes_what_it_takes_in_a_fusion_of_its_own() -> None:
    """The compiler wraps it later. The fusion reads a value once that the operation reads twice."""
    assert estimate(parse(SQUARED), "gpu", h100()) == estimate(parse(WRAPPED), "gpu", h100())


SLICED = """HloModule m

part {
  p = f32[64,2048]{1,0} parameter(0)
  i = s32[] parameter(1)
  zero = s32[] constant(0)
  ROOT d = f32[1,2048]{1,0} dynamic-slice(p, i, zero), dynamic_slice_sizes={1,2048}
}

ASYNCHRONOUSENTRY main {
  x = f32[64,2048]{1,0} parameter(0)
  n = s32[] parameter(1)
  STARTED
}
"""
ASYNCHRONOUS = """asynchronous {
  q = f32[64,2048]{1,0} parameter(0)
  j = s32[] parameter(1)
  ROOT f = f32[1,2048]{1,0} fusion(q, j), kind=kLoop, calls=part
}

"""
STARTED = """start = ((f32[64,2048]{1,0}, s32[]), f32[1,2048]{1,0}, u32[]) async-start(x, n), \
calls=asynchronous
  ROOT done = f32[1,2048]{1,0} async-done(start)"""
PLAIN = "ROOT f = f32[1,2048]{1,0} fusion(x, n), kind=kLoop, calls=part"


def test_a_fusion_takes_the_same_if_it_is_waited_for() -> None:
    plain = SLICED.replace("ASYNCHRONOUS", "").replace("STARTED", PLAIN)
    waiting = SLICED.replace("ASYNCHRONOUS", ASYNCHRONOUS).replace("STARTED", STARTED)
    expected = estimate(parse(plain), "gpu", h100())
    assert expected is not None
    assert expected.floor_launches == 0
    assert estimate(parse(waiting), "gpu", h100()) == expected


@pytest.mark.parametrize("name", ["attention", "cartpole", "reductions"])
def test_every_kernel_of_a_final_module_has_a_time(name: str) -> None:
    (module,) = open_dump(DUMPS / "h100" / name).modules
    assert module.final is not None
    final, gpu = module.read(module.final), read_gpu(module)
    clock = clock_for(final, "gpu", gpu)
    assert clock is not None
    kernels = find_kernels(Numbering().number(final), "gpu")
    times = [clock.time(kernel) for kernel in kernels]
    assert all(time.nanoseconds > 1000 for time in times)
    total = sum(k.runs * time.nanoseconds for k, time in zip(kernels, times, strict=True)) / 1000
    actual = estimate_final(module)
    assert actual is not None and actual.microseconds == pytest.approx(total)


def test_a_change_that_makes_kernels_slower_says_so() -> None:
    # Tanh is computed anew for three consumers: the compiler records that they then take 19.95075
    # us more, and refuses it.
    selection = Selection(changes=read_changes((), (), ("tanh -> concatenate",), ()))
    (module,) = explain(open_dump(DUMPS / "h100" / "concatenate"), selection).modules
    attempts = module.what_if
    assert attempts is not None and attempts.final is not None
    for before, after in ((attempts.before, attempts.after), attempts.final):
        assert before.time_us is not None and after.time_us is not None
        assert after.launches < before.launches
        assert after.bytes_moved < before.bytes_moved
        assert after.time_us > before.time_us + 15
    # What is gained and what is lost add up to the difference.
    lost, gained = (
        sum(kernel.time_us or 0 for kernel in kernels) for kernels in (attempts.gone, attempts.made)
    )
    assert gained - lost == pytest.approx(
        (attempts.after.time_us or 0) - (attempts.before.time_us or 0)
    )
    follows = {(pair.producer, pair.consumer): pair.follows for pair in attempts.pairs}
    assert follows.pop(("tanh.1.0", "concatenate.1.0")) is None
    assert set(follows.values()) == {"tanh.1.0 -> concatenate.1.0"}


def test_an_ordered_callback_has_only_a_token_and_no_work() -> None:
    text = """HloModule ordered

ENTRY main {
  given = f32[8] parameter(0)
  before = token[] after-all()
  ROOT called = token[] custom-call(before, given), custom_call_target="xla_ffi_python_cpu_callback"
}
"""
    (callees,) = (
        instruction
        for instruction in MutableModule(parse(text)).entry.instructions
        if instruction.name == "called"
    )
    assert count_work(callees) == Work(0.0, 0.0)
