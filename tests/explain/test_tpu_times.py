"""Times of TPUs, by arithmetic with what the final modules of the samples say."""

from __future__ import annotations

import gzip
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from fusionscope import parse
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.dump.tpu_chips import CHIPS
from fusionscope.dump.tpu_target import TpuTarget
from fusionscope.explain import Selection, explain
from fusionscope.facts.clock import limits_of
from fusionscope.facts.limits import Limits
from fusionscope.facts.result import Limit, TimeSource
from fusionscope.facts.times import clock_for, estimate, estimate_final
from fusionscope.facts.window_config import WindowConfig, read_window_config, window_config_of
from fusionscope.graph.work import count_work
from fusionscope.history.kernels import launches_of
from fusionscope.hlo import Module

DUMPS = Path(__file__).parents[2] / "samples" / "dumps" / "tpu-v5e"
V5E = TpuTarget("v5e", (1, 1, 1))
V6E = TpuTarget("v6e", (1, 1, 1))
CYCLES = r'"estimated_cycles":"(\d+)"'


def dumped(name: str) -> DumpedModule:
    (module,) = open_dump(DUMPS / name).modules
    return module


def final(name: str) -> Module:
    module = dumped(name)
    assert module.final is not None
    return module.read(module.final)


def with_cycles(cycles: object) -> dict[str, Any]:
    return {"window_config": {"estimated_cycles": cycles}}


def test_a_window_config_is_read_as_the_compiler_writes_it() -> None:
    product = next(i for i in final("attention").walk() if i.name == "fusion")
    assert window_config_of(product) == WindowConfig(
        cycles=2450,
        iterations=(1, 1, 1, 1, 1),
        input_window=(4, 8, 1),
        kernel_window=(4, 8, 1),
        output_window=(4, 16, 1),
    )


def test_a_copy_has_none() -> None:
    copy = next(i for i in final("attention").walk() if i.name == "copy-start")
    assert window_config_of(copy) is None


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "0",
        0,
        -1,
        "-1",
        "1.5",
        1.5,
        True,
        [],
        {},
        "9223372036854775807",
        2**63,
        "9" * 30,
        "²",
    ],
)
def test_what_is_no_number_of_cycles_is_absent(value: object) -> None:
    config = read_window_config(with_cycles(value))
    assert config is not None
    assert config.cycles is None


@pytest.mark.parametrize("value", ["3980", 3980])
def test_cycles_are_a_number_or_its_text(value: object) -> None:
    config = read_window_config(with_cycles(value))
    assert config is not None
    assert config.cycles == 3980


@pytest.mark.parametrize("config", [None, "text", 7, [], {}, {"window_config": []}])
def test_another_form_is_no_window_config(config: object) -> None:
    assert read_window_config(config) is None


def test_a_list_with_anything_else_is_absent() -> None:
    config = read_window_config(
        {"window_config": {"iteration_bounds": ["4", None], "output_window_bounds": "12"}}
    )
    assert config == WindowConfig()


def test_what_a_learned_model_estimates_is_read() -> None:
    config = read_window_config({"window_config": {"ml_estimated_microseconds": 12.5}})
    assert config is not None
    assert config.microseconds == 12.5


@pytest.mark.parametrize(
    ("name", "cycles", "floors"),
    [
        # The sums of what the files say: every copy passes while these kernels run, and the custom
        # call of attention reads and writes vector memory only.
        ("softmax", 3980 + 4396 + 4716, 1),
        ("concatenate", 2397 + 2966 + 2946 + 100 + 2978 + 11640 + 4601, 2),
        ("attention", 1969 + 2450 + 100 + 2166, 3),
    ],
)
def test_a_module_takes_the_cycles_of_its_kernels(name: str, cycles: int, floors: int) -> None:
    time = estimate_final(dumped(name))
    assert time is not None
    assert time.microseconds == pytest.approx(cycles / 1_500)
    assert time.floor_launches == floors


COPY = """HloModule m, is_scheduled=true

ENTRY main {
  x = f32[1024,1024]{1,0:T(8,128)} parameter(0)
  start = (f32[1024,1024]{1,0:T(8,128)S(1)}, f32[1024,1024]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(x)
  beside = f32[1024,1024]{1,0:T(8,128)} tanh(x), backend_config={"window_config":{"estimated_cycles":"1500"}}
  done = f32[1024,1024]{1,0:T(8,128)S(1)} copy-done(start)
  ROOT add = f32[1024,1024]{1,0:T(8,128)} add(done, beside), backend_config={"window_config":{"estimated_cycles":"30000"}}
}
"""  # noqa: E501
MEGABYTES_4_NS = 4 * 1024 * 1024 / 820


def test_a_copy_takes_what_is_left_after_the_kernels_beside_it() -> None:
    time = estimate(parse(COPY), "tpu", V5E)
    assert time is not None
    # Only its read passes through HBM, for 5,115 ns, during 1,000 of which another kernel runs.
    assert time.microseconds == pytest.approx((MEGABYTES_4_NS - 1_000 + 1_000 + 20_000) / 1_000)
    assert time.floor_launches == 1


def test_a_copy_beside_a_kernel_that_takes_longer_takes_nothing() -> None:
    time = estimate(parse(COPY.replace('"1500"', '"15000"')), "tpu", V5E)
    assert time is not None
    assert time.microseconds == pytest.approx((10_000 + 20_000) / 1_000)


def test_only_bytes_that_pass_through_hbm_limit_a_kernel() -> None:
    module = parse(COPY)
    clock = clock_for(module, "tpu", V5E)
    assert clock is not None
    (add,) = (k for k in launches_of(module, "tpu") if k.name == "add")
    time = clock.time(add)
    assert time.source is TimeSource.MODEL
    assert (time.nanoseconds, time.launch) == (20_000, 0)
    assert (time.read, time.write) == pytest.approx((MEGABYTES_4_NS, MEGABYTES_4_NS))
    # 10,230 of 20,000 ns are over half of it.
    assert limits_of(add, time) == Limits(memory=20.0)


def test_a_kernel_that_neither_bytes_nor_products_explain() -> None:
    module = parse(COPY.replace('"30000"', '"31000"'))
    clock = clock_for(module, "tpu", V5E)
    assert clock is not None
    (add,) = (k for k in launches_of(module, "tpu") if k.name == "add")
    limits = limits_of(add, clock.time(add))
    assert limits is not None
    assert (limits.total, limits.unexplained) == pytest.approx((31_000 / 1_500,) * 2)
    assert limits.limited_by is Limit.UNEXPLAINED


ALL_REDUCE = """HloModule m, is_scheduled=true

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT add = f32[] add(a, b)
}

ENTRY main {
  x = f32[1024,1024]{1,0:T(8,128)} parameter(0)
  reduced = f32[1024,1024]{1,0:T(8,128)} all-reduce(x), replica_groups={{0,1}}, to_apply=sum
  ROOT tanh = f32[1024,1024]{1,0:T(8,128)} tanh(reduced), backend_config={"window_config":{"estimated_cycles":"30000"}}
}
"""  # noqa: E501


def test_a_collective_reads_and_writes_at_least() -> None:
    time = estimate(parse(ALL_REDUCE), "tpu", V5E)
    assert time is not None
    assert time.microseconds == pytest.approx(2 * MEGABYTES_4_NS / 1_000 + 20.0)
    assert time.floor_launches == 1


LOOP = """
  state = (f32[]) tuple(zero)
  loop = (f32[]) while(state), condition=never, body=same
"""


def test_a_copy_beside_a_loop_may_be_hidden_whole() -> None:
    computations = """never {
  p = (f32[]) parameter(0)
  ROOT no = pred[] constant(false)
}

same {
  ROOT p = (f32[]) parameter(0)
}

ENTRY main {
  zero = f32[] constant(0)"""
    text = COPY.replace("ENTRY main {", computations).replace("  beside =", f"{LOOP}  beside =")
    module = parse(text)
    clock = clock_for(module, "tpu", V5E)
    assert clock is not None
    (copy,) = (k for k in launches_of(module, "tpu") if k.name == "start")
    assert clock.time(copy).nanoseconds == 0


def test_a_faster_clock_takes_less() -> None:
    old, new = (estimate(final("softmax"), "tpu", target) for target in (V5E, V6E))
    assert old is not None
    assert new is not None
    assert old.microseconds / new.microseconds == pytest.approx(1.75 / 1.5)


@pytest.mark.parametrize("target", [None, TpuTarget("v3", (1, 1, 1))])
def test_an_unknown_device_has_no_times(target: TpuTarget | None) -> None:
    assert estimate(final("softmax"), "tpu", target) is None


def test_a_stage_without_estimates_has_no_times() -> None:
    module = dumped("softmax")
    assert module.pre_fusion is not None
    assert estimate(module.read(module.pre_fusion), "tpu", V5E) is None


@pytest.mark.parametrize("has_code", [False, True])
def test_what_has_code_and_no_estimate_takes_at_least_its_bytes(has_code: bool) -> None:
    retry = '"retry_config":{"retry_count":"0"}' if has_code else ""
    module = parse(
        "HloModule f\n\nENTRY e {\n  x = f32[32,201088] parameter(0)\n"
        "  ROOT y = (f32[32,64], s32[32,64]) custom-call(x), "
        f'custom_call_target="TopK", backend_config={{{retry}}}\n}}\n'
    )
    time = estimate(module, "tpu", V5E)
    size = 4 * 32 * 201_088 + 2 * 4 * 32 * 64
    assert (time and time.microseconds) == (pytest.approx(size / 820e3) if has_code else None)


def test_a_dump_that_does_not_show_its_device_has_no_times(tmp_path: Path) -> None:
    shutil.copytree(DUMPS / "softmax", tmp_path / "dump")
    (target,) = (tmp_path / "dump").glob("*.target_arguments.txt")
    target.unlink()
    (module,) = explain(open_dump(tmp_path / "dump"), Selection()).modules
    assert module.summary.time is None
    assert module.summary.at_best_us is None


@pytest.mark.parametrize("name", ["attention", "concatenate", "softmax"])
def test_kernels_have_the_cycles_of_the_text(name: str) -> None:
    (module,) = explain(open_dump(DUMPS / name), Selection()).modules
    (file,) = (DUMPS / name).glob("*after_codegen.txt.gz")
    text = gzip.decompress(file.read_bytes()).decode()
    lines = dict(re.findall(rf"^  (?:ROOT )?%([\w.\-]+) = .*{CYCLES}", text, re.MULTILINE))
    priced = [kernel for kernel in module.kernels if kernel.time_source is TimeSource.MODEL]
    assert {kernel.name: kernel.time_ns for kernel in priced} == {
        name: pytest.approx(int(cycles) / 1.5) for name, cycles in lines.items()
    }
    for kernel in module.kernels:
        assert kernel.at_best_us is not None
        assert kernel.at_best_us <= kernel.time_us + 1e-9


def test_a_batch_of_products_has_no_more_flops_than_it_computes() -> None:
    product = next(i for i in final("attention").walk() if i.opcode == "convolution")
    assert product.attributes["window"] == "{size=4 stride=3 lhs_dilate=4}"
    assert count_work(product).flops == 2 * 4 * 128 * 128 * 64


@pytest.mark.parametrize(
    ("name", "units"), [("v4", 8), ("v5e", 4), ("v5p", 8), ("v6e", 16), ("tpu7x", 16)]
)
def test_clocks_and_peak_rates_agree(name: str, units: int) -> None:
    chip = CHIPS[name]
    assert 2 * chip.clock_ghz * units * 128 * 128 == pytest.approx(chip.flops, rel=0.005)
