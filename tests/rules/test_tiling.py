"""The times and tilings of Triton are those that the compiler recorded or logged."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from random import Random

import pytest
from conformance.examples import read_card
from conformance.records import given_tiles, read_kernels, read_tiles
from hypothesis import given, settings
from hypothesis import strategies as st

from fusionscope.dump import DumpedModule, open_dump
from fusionscope.dump.device import CudaCapability, Device
from fusionscope.dump.priority_fusion import Fused, Priority
from fusionscope.gpu.body import FusionBody
from fusionscope.gpu.cost.duration import (
    INFINITE,
    Duration,
    f32,
    from_nanoseconds,
    from_seconds,
    microseconds,
    scaled,
)
from fusionscope.gpu.cost.memory import (
    KERNEL_LAUNCH,
    combine,
    compute_time,
    read_time,
    write_time,
)
from fusionscope.gpu.emitters import is_generic_triton
from fusionscope.gpu.state import is_priority_fusible
from fusionscope.gpu.tiling.computation import Sources, TiledBody
from fusionscope.gpu.tiling.expression import (
    ADD,
    CONSTANT,
    DIVIDE,
    MAXIMUM,
    MINIMUM,
    MODULO,
    MULTIPLY,
    VARIABLE,
    Expression,
    Simplifier,
    add,
    canonical,
    constant,
    divide,
    largest_divisor,
    maximum,
    minimum,
    modulo,
    multiply,
    subtract,
    variable,
)
from fusionscope.gpu.tiling.kernel import TiledKernel, Tiling
from fusionscope.gpu.tiling.propagation import TilePropagation
from fusionscope.gpu.tiling.search import (
    BlockLevelConfig,
    Untileable,
    block_level_config,
    estimate_run_time,
    find_best_tiling,
)
from fusionscope.gpu.tiling.table import TilingTables, grid_of
from fusionscope.gpu.tiling.tile import Collapsed, DimensionTile, Expanded, Grid, OfRoot
from fusionscope.gpu.triton_support import (
    TritonVersion,
    unsupported,
)
from fusionscope.graph.layouts import sizes
from fusionscope.graph.mutable import MutableInstruction, MutableModule
from fusionscope.hlo import parse
from fusionscope.versions.jaxlib_0_10_2.gpu import TRITON_0_10
from fusionscope.versions.jaxlib_0_11_2.gpu import TRITON_0_11
from fusionscope.versions.jaxlib_0_12.gpu import TRITON_0_12
from fusionscope.versions.known import load_compiler

DUMPS = Path(__file__).parents[2] / "samples" / "dumps"
H100 = read_card("h100")
TILES = read_tiles()
MODULES_WITH_TILES = read_kernels()


# Durations and bandwidths


@pytest.mark.parametrize(
    ("seconds", "ticks"),
    [
        (0.0, 0),
        (1e-9, 4),
        (0.124e-9, 0),
        (0.375e-9, 2),  # 1.5 ticks: half away from zero
        (1.5, 6_000_000_000),
        (-0.375e-9, -2),
        (2.0**63, INFINITE),
    ],
)
def test_seconds_become_ticks_of_a_quarter_nanosecond(seconds: float, ticks: Duration) -> None:
    assert from_seconds(seconds) == ticks


def test_other_durations() -> None:
    assert from_nanoseconds(0.375) == 2
    assert from_nanoseconds(math.inf) == INFINITE
    assert from_nanoseconds(1e28) == INFINITE
    assert scaled(from_seconds(2.0**62), 2.0) == INFINITE
    assert scaled(10, 0.25) == 3  # 2.5 ticks
    assert scaled(6_000_000_001, 0.5) == 3_000_000_001  # a second and a half, and half a tick
    assert scaled(INFINITE, 0.95) == INFINITE


def test_microseconds_are_printed_as_32_bit_floats() -> None:
    assert f"{microseconds(47303):.7f}" == "11.8257504"  # 11.82575 in a record


def test_a_pair_that_the_compiler_recorded() -> None:
    """tanh of 512 x 512 f32 elements, read by an add with another array, on an H100: 4.8005 us as
    two kernels and 2.904 us as one."""
    elements, blocks, threads = 512 * 512, 2048, 128
    size = 4 * elements
    once = read_time(H100, blocks, size, size)
    write = write_time(H100, size)

    def time(cycles: int, reads: int) -> Duration:
        compute = compute_time(H100, cycles * elements, blocks, threads)
        return combine(compute, reads * once + write)

    tanh, sum_, both = time(467, 1), time(7, 2), time(474, 2)
    assert microseconds(2 * KERNEL_LAUNCH + tanh + sum_) == f32(4.8005)
    assert microseconds(KERNEL_LAUNCH + both) == f32(2.904)


# What the compiler recorded


RECORDED = {
    "h100/softmax": TRITON_0_12,
    "h100/attention": TRITON_0_12,
    "a100/attention": TRITON_0_12,
    "h100-jaxlib-0.10/softmax": TRITON_0_10,
}


@cache
def only_module(name: str) -> DumpedModule:
    (module,) = open_dump(DUMPS / name).modules
    return module


def stage(module: DumpedModule, label: str) -> MutableModule:
    (actual,) = [item for item in module.stages if item.label.startswith(label)]
    return MutableModule(module.read(actual))


@pytest.mark.parametrize("name", RECORDED)
def test_triton_pairs_take_the_recorded_time(name: str) -> None:
    """Of all producers that would all go into fusions for Triton before anything was fused."""
    module = only_module(name)
    record = module.priority_fusion
    assert record is not None and record.device is not None
    graph = stage(module, "fusion.after_pipeline-start")
    by_name = {instruction.name: instruction for instruction in graph.entry.instructions}
    count = 0
    for step in record.steps:
        if isinstance(step, Fused):
            break
        producer = by_name.get(step.producer)
        if not isinstance(step, Priority) or producer is None:
            continue
        consumers = [by_name[consumer] for consumer in step.consumers]
        if not (is_generic_triton(producer) or all(map(is_generic_triton, consumers))):
            continue
        total: Duration = len(consumers) * KERNEL_LAUNCH
        for consumer in consumers:
            actual = find_best_tiling(
                FusionBody(producer, consumer), record.device, RECORDED[name], TilingTables()
            )
            assert isinstance(actual, Tiling)
            total += actual.total
        assert microseconds(total) == f32(step.fused_us)
        count += 1
    assert count


@pytest.mark.parametrize("name", RECORDED)
def test_triton_fusions_have_the_tiling_that_is_found(name: str) -> None:
    module = only_module(name)
    record = module.priority_fusion
    assert record is not None and record.device is not None
    graph = stage(module, "fusion.after_priority-fusion")
    fusions = [
        instruction for instruction in graph.entry.instructions if is_generic_triton(instruction)
    ]
    assert fusions
    for fusion in fusions:
        actual = find_best_tiling(FusionBody(fusion), record.device, RECORDED[name], TilingTables())
        assert isinstance(actual, Tiling)
        config = BlockLevelConfig(actual.tile_sizes, actual.warps)
        assert config == block_level_config(fusion)
        again = estimate_run_time(fusion, record.device, config, RECORDED[name], TilingTables())
        assert again == actual


# What the compiler logs of its search: modules with a producer and a consumer


@dataclass(frozen=True, slots=True)
class Logged:
    """The best tiling, how many there are, and the sums of their times, in ticks."""

    tile_sizes: tuple[int, ...]
    best: int
    count: int
    sum: int


ADD_F32 = """add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b)
}
"""
KERNEL = 'kind=kCustom, backend_config={"fusion_backend_config":{"kind":"__triton"}}'
MODULES = {
    "normalized": ADD_F32
    + """kernel {
  x = f32[48,200] parameter(0)
  zero = f32[] constant(0)
  total = f32[48] reduce(x, zero), dimensions={1}, to_apply=add
  spread = f32[48,200] broadcast(total), dimensions={0}
  ROOT part = f32[48,200] divide(x, spread)
}
ENTRY main {
  p = f32[48,200] parameter(0)
  producer = f32[48,200] exponential(p)
  ROOT consumer = f32[48,200] fusion(producer), calls=kernel, KERNEL
}
""",
    "merged": """kernel {
  x = f32[12,6,10] parameter(0)
  flat = f32[12,60] bitcast(x)
  ROOT root = f32[12,60] negate(flat)
}
ENTRY main {
  p = f32[12,60] parameter(0)
  producer = f32[12,6,10] bitcast(p)
  ROOT consumer = f32[12,60] fusion(producer), calls=kernel, KERNEL
}
""",
    "split": """kernel {
  x = f32[12,96] parameter(0)
  parts = f32[12,6,16] bitcast(x)
  ROOT root = f32[12,6,16] negate(parts)
}
ENTRY main {
  p = f32[96,12] parameter(0)
  producer = f32[12,96] transpose(p), dimensions={1,0}
  ROOT consumer = f32[12,6,16] fusion(producer), calls=kernel, KERNEL
}
""",
    "sliced": """kernel {
  x = f32[24,40] parameter(0)
  rows = f32[12,40] slice(x), slice={[0:24:2], [0:40]}
  flat = f32[480] bitcast(rows)
  ROOT root = f32[480] negate(flat)
}
ENTRY main {
  p = f32[24,40] parameter(0)
  producer = f32[24,40] tanh(p)
  ROOT consumer = f32[480] fusion(producer), calls=kernel, KERNEL
}
""",
    "concatenated": """kernel {
  x = f32[128] parameter(0)
  y = f32[192] parameter(1)
  both = f32[320] concatenate(x, y), dimensions={0}
  part = f32[288] slice(both), slice={[32:320]}
  ROOT root = f32[288] negate(part)
}
ENTRY main {
  p = f32[128] parameter(0)
  q = f32[192] parameter(1)
  producer = f32[128] abs(p)
  ROOT consumer = f32[288] fusion(producer, q), calls=kernel, KERNEL
}
""",
    "nested": """kernel {
  x = f32[64] parameter(0)
  y = f32[256] parameter(1)
  part = f32[224] slice(y), slice={[32:256]}
  ROOT root = f32[288] concatenate(x, part), dimensions={0}
}
ENTRY main {
  p = f32[64] parameter(0)
  q = f32[128] parameter(1)
  producer = f32[256] concatenate(q, q), dimensions={0}
  ROOT consumer = f32[288] fusion(p, producer), calls=kernel, KERNEL
}
""",
    "turned": ADD_F32
    + """kernel {
  x = f32[64] parameter(0)
  wide = f32[64,256] broadcast(x), dimensions={0}
  turned = f32[256,64] transpose(wide), dimensions={1,0}
  zero = f32[] constant(0)
  ROOT root = f32[256] reduce(turned, zero), dimensions={1}, to_apply=add
}
ENTRY main {
  p = f32[64] parameter(0)
  producer = f32[64] tanh(p)
  ROOT consumer = f32[256] fusion(producer), calls=kernel, KERNEL
}
""",
    "twice": ADD_F32
    + """kernel {
  x = f32[33,65] parameter(0)
  zero = f32[] constant(0)
  rows = f32[33] reduce(x, zero), dimensions={1}, to_apply=add
  wide = f32[33,65] broadcast(rows), dimensions={0}
  less = f32[33,65] subtract(x, wide)
  first = f32[33,1] slice(less), slice={[0:33], [0:1]}
  ROOT root = f32[33] bitcast(first)
}
ENTRY main {
  p = f32[33,65] parameter(0)
  producer = f32[33,65] cosine(p)
  ROOT consumer = f32[33] fusion(producer), calls=kernel, KERNEL
}
""",
    "summed": ADD_F32
    + """kernel {
  x = f32[20,8,48] parameter(0)
  zero = f32[] constant(0)
  ROOT root = f32[8] reduce(x, zero), dimensions={0,2}, to_apply=add
}
ENTRY main {
  p = f32[20,8,48] parameter(0)
  producer = f32[20,8,48] negate(p)
  ROOT consumer = f32[8] fusion(producer), calls=kernel, KERNEL
}
""",
    "equally fast": """kernel {
  x = f32[] parameter(0)
  ROOT root = f32[16] broadcast(x), dimensions={}
}
ENTRY main {
  p = f32[] parameter(0)
  producer = f32[] negate(p)
  ROOT consumer = f32[16] fusion(producer), calls=kernel, KERNEL
}
""",
}
LOGGED = {
    "normalized": (Logged((1, 256), 853, 63, 486_633), ((1, 200), 853)),
    "merged": (Logged((1, 2), 54, 10, 822), ((1, 2), 54)),
    "split": (Logged((4, 1, 16), 27, 55, 5_346), ((4, 1, 16), 27)),
    "sliced": (Logged((2,), 56, 4, 312), ((2,), 56)),
    "concatenated": (Logged((16,), 5, 6, 97), Untileable("No valid tilings found.")),
    "nested": (
        Logged((16,), 5, 6, 85),
        Untileable(
            "Dimension bounds are not divisible by tile size: "
            "(d0) -> (d0 - 160), domain: d0 in [160, 287]",
            True,
        ),
    ),
    "turned": (Logged((32,), 348, 9, 7_564), ((32,), 348)),
    "twice": (Logged((1,), 4019, 7, 148_644), ((1,), 4019)),
    "summed": (Logged((1,), 251, 4, 3_758), ((1,), 251)),
    "equally fast": (Logged((4,), 0, 5, 2), ((4,), 0)),
}


def read_pair(text: str) -> tuple[MutableInstruction, MutableInstruction]:
    graph = MutableModule(parse("HloModule m\n\n" + text))
    by_name = {instruction.name: instruction for instruction in graph.entry.instructions}
    return by_name["producer"], by_name["consumer"]


def body_of(name: str) -> FusionBody:
    return FusionBody(*read_pair(MODULES[name].replace("KERNEL", KERNEL)))


@pytest.mark.parametrize("name", LOGGED)
def test_the_compiler_finds_the_same_tilings(name: str) -> None:
    """Logged by jaxlib 0.12.0.1 for an H100.

    With TF_CPP_VMODULE=gpu_indexing_performance_model=3.
    """
    logged, _ = LOGGED[name]
    body = body_of(name)
    propagation = TilePropagation()
    extents = sizes(body.roots[0].shape)
    tile_sizes = tuple(tuple(propagation.tile_sizes(extent)) for extent in extents)
    table = TilingTables().of(H100, extents, tile_sizes)
    kernel = TiledKernel(body, table, propagation, TRITON_0_12)
    tilings = map(kernel.tiling, range(len(table.grids)))
    times = [actual.total for actual in tilings if actual is not None]
    best = find_best_tiling(body, H100, TRITON_0_12, TilingTables())
    assert isinstance(best, Tiling)
    assert Logged(best.tile_sizes, int(best.total), len(times), int(sum(times))) == logged


def test_the_search_finds_the_fastest_of_all_tilings() -> None:
    for name in LOGGED:
        body = body_of(name)
        extents = sizes(body.roots[0].shape)
        tile_sizes = tuple(tuple(TilePropagation().tile_sizes(extent)) for extent in extents)
        table = TilingTables().of(H100, extents, tile_sizes)
        kernel = TiledKernel(body, table, TilePropagation(), TRITON_0_12)
        actual = [tiling for index in range(len(table.grids)) if (tiling := kernel.tiling(index))]
        assert kernel.best() == min(reversed(actual), key=lambda tiling: tiling.total)


@pytest.mark.parametrize("version", [TRITON_0_12, TRITON_0_11])
def test_tables_of_other_kernels_change_nothing(version: TritonVersion) -> None:
    """Of all pairs of two samples, which Triton computes or not."""
    tables, count = TilingTables(), 0
    for name in ("h100/softmax", "h100/attention"):
        graph = stage(only_module(name), "fusion.after_pipeline-start")
        for consumer in graph.entry.instructions:
            for producer in dict.fromkeys(consumer.operands):
                parts = (producer, consumer)
                if not all(map(is_priority_fusible, parts)) or any(
                    unsupported(part, H100, version) for part in parts
                ):
                    continue
                body = FusionBody(*parts)
                actual = find_best_tiling(body, H100, version, tables)
                assert actual == find_best_tiling(body, H100, version, TilingTables())
                count += isinstance(actual, Tiling)
    assert count > 10


@pytest.mark.parametrize("name", LOGGED)
def test_older_compilers_find_the_same_tiling(name: str) -> None:
    """Logged by jaxlib 0.11.2 for an H100."""
    _, logged = LOGGED[name]
    actual = find_best_tiling(body_of(name), H100, TRITON_0_11, TilingTables())
    if isinstance(logged, Untileable):
        assert actual == logged
    else:
        assert isinstance(actual, Tiling)
        assert (actual.tile_sizes, actual.total) == logged


def test_a_tiling_that_was_given_is_estimated_as_it_is() -> None:
    _, fusion = read_pair(MODULES["normalized"].replace("KERNEL", KERNEL))
    tables = TilingTables()
    small = estimate_run_time(
        fusion, H100, BlockLevelConfig((1, 200), 1), TRITON_0_12, TilingTables()
    )
    large = estimate_run_time(fusion, H100, BlockLevelConfig((48, 200), 8), TRITON_0_12, tables)
    assert small is not None and large is not None
    assert (small.tile_sizes, small.blocks, small.threads) == ((1, 256), 48, 32)
    assert (large.tile_sizes, large.blocks, large.threads) == ((64, 256), 1, 256)
    assert (
        estimate_run_time(fusion, H100, BlockLevelConfig((128, 256), 8), TRITON_0_12, tables)
        is None
    )


@pytest.mark.parametrize("extents", [(0, 40), (20, 0)])
def test_an_array_without_elements_takes_no_time_to_read(extents: tuple[int, int]) -> None:
    rows, columns = extents
    producer, consumer = read_pair(f"""ENTRY main {{
  x = f32[{rows},{columns}] parameter(0)
  producer = f32[{rows},{columns}] negate(x)
  ROOT consumer = f32[{rows},{columns}] exponential(producer)
}}
""")
    table = TilingTables().of_given(H100, extents, (1, 1))
    kernel = TiledKernel(FusionBody(producer, consumer), table, TilePropagation(), TRITON_0_12)
    tiling = kernel.tiling(0)
    assert tiling is not None
    assert tiling.bytes_read == 0


# What Triton supports


@dataclass(frozen=True, slots=True)
class Case:
    """An instruction that reads x, and what the compiler says of it, by version."""

    text: str
    newest: str | None
    older: str | None
    oldest: str | None


_PADS = "Pads are only supported within GEMM fusions."
_HIGH = "Only high padding is supported."
_ROW = "Reduction is not a row-reduction of a single operand."
_UNALIGNED = "Concatenate operand is not aligned for tiling."
_MANY = (
    "Multi-dimension reductions are only supported when experimental tiling propagation is enabled."
)


def always(text: str, message: str | None) -> Case:
    return Case(text, message, message, message)


# Logged by jaxlib 0.12.0.1, 0.11.2 and 0.10.2 for an H100, with TF_CPP_VMODULE=support=2.
SUPPORT = [
    always("f32[64,128] tanh(x)", None),
    always("f32[64,128] sign(x)", "Unsupported elementwise operation."),
    always("f32[64,128] reverse(x), dimensions={0}", "Unsupported instruction opcode reverse"),
    always("f32[64,128] broadcast(c), dimensions={}", None),
    always(
        "f32[8,128] dynamic-slice(x, i, i), dynamic_slice_sizes={8,128}",
        "Unsupported opcode dynamic-slice",
    ),
    always("c64[64,128] convert(x)", "Unsupported output type for conversion: c64"),
    always(
        "u8[64,128] convert(p)",
        "Unsupported conversion in Triton: pred to u8 with message:\n"
        "Unsupported PRED to U8 conversion.",
    ),
    always("c64[64,128] negate(z)", "Unsupported output data type: Unsupported data type: c64"),
    always("f32[64,128] real(z)", "Unsupported input data type: Not allowed"),
    always("f32[64] reduce(x, c), dimensions={1}, to_apply=add", None),
    always("f32[128] reduce(x, c), dimensions={0}, to_apply=add", None),
    Case("f32[] reduce(x, c), dimensions={0,1}, to_apply=add", None, _MANY, _ROW),
    Case("f32[67,128] pad(x, c), padding=0_3x0_0", _PADS, None, None),
    Case("f32[67,128] pad(x, c), padding=3_0x0_0", _PADS, _HIGH, _HIGH),
    Case("f32[127,128] pad(x, c), padding=0_0_1x0_0", _PADS, _HIGH, _HIGH),
    always("f32[128,128] concatenate(x, x), dimensions={0}", None),
    Case("f32[64,200] concatenate(y, y), dimensions={1}", _UNALIGNED, _UNALIGNED, None),
    *(
        Case(
            f"{type}[64,128] negate({type}_x)",
            None,
            None,
            f"Unsupported output data type: Unsupported data type: {type}",
        )
        for type in ("u8", "u16", "u32", "u64")
    ),
]


@pytest.mark.parametrize("case", SUPPORT, ids=lambda case: case.text)
@pytest.mark.parametrize(
    ("version", "field"),
    [(TRITON_0_12, "newest"), (TRITON_0_11, "older"), (TRITON_0_10, "oldest")],
    ids=["0.12", "0.11", "0.10"],
)
def test_support_is_what_the_compiler_says(case: Case, version: TritonVersion, field: str) -> None:
    expected: str | None = getattr(case, field)
    if field == "oldest" and expected is not None and "PRED to U8" in expected:
        expected = "Unsupported output type for conversion: u8"
    assert said_of(case.text, version) == expected


@pytest.mark.parametrize(
    ("release", "text", "message"),
    [
        ("0.4.38", "f32[64,128] copy(x)", "Unsupported opcode."),
        ("0.5.3", "f32[64,128] copy(x)", None),
        ("0.5.3", "f32[67,128] pad(x, c), padding=0_3x0_0", "Unsupported opcode."),
        ("0.6.2", "f32[67,128] pad(x, c), padding=0_3x0_0", None),
        ("0.8", "u32[64,128] negate(u32_x)", "Unsupported output data type."),
        ("0.8", "(f32[64], f32[64]) tuple(y, y)", "Unsupported output data type."),
        ("0.8", "s32[] remainder(i, i)", "Unsupported elementwise operation."),
        ("0.9.2", "s32[] remainder(i, i)", None),
        ("0.9.2", "f32[64,128] round-nearest-even(x)", "Unsupported elementwise operation."),
        ("0.10.0", "f32[64,128] round-nearest-even(x)", None),
    ],
)
def test_older_releases_support_less(release: str, text: str, message: str | None) -> None:
    """As records of these releases say, and the sources of each."""
    gpu = load_compiler(f"gpu-{release}").gpu
    assert gpu is not None
    assert said_of(text, gpu.triton) == message


def test_a_pad_that_adds_nothing() -> None:
    """On its way to jaxlib 0.10 it is lost."""
    text = "f32[64,128] pad(x, c), padding=0_0x0_0"
    assert said_of(text, TRITON_0_12) == _PADS
    assert said_of(text, TRITON_0_11) == "No-op pad ops are not allowed."


def said_of(text: str, version: TritonVersion) -> str | None:
    module = f"""HloModule m
{ADD_F32}
ENTRY main {{
  x = f32[64,128] parameter(0)
  y = f32[64,100] parameter(1)
  z = c64[64,128] parameter(2)
  p = pred[64,128] parameter(3)
  i = s32[] parameter(4)
  c = f32[] parameter(5)
  u8_x = u8[64,128] parameter(6)
  u16_x = u16[64,128] parameter(7)
  u32_x = u32[64,128] parameter(8)
  u64_x = u64[64,128] parameter(9)
  ROOT it = {text}
}}
"""
    return unsupported(MutableModule(parse(module)).entry.root, H100, version)


def test_fp8_needs_ada() -> None:
    text = """HloModule m
ENTRY main {
  x = f32[64] parameter(0)
  ROOT it = f8e4m3fn[64] convert(x)
}
"""
    root = MutableModule(parse(text)).entry.root
    before_ada: Device = read_card("a100")
    for device in (H100, replace(H100, capability=CudaCapability(8, 9, ""))):
        assert unsupported(root, device, TRITON_0_12) is None
    assert unsupported(root, before_ada, TRITON_0_12) == (
        "Unsupported conversion in Triton: f32 to f8e4m3fn with message:\n"
        "F8E4M3FN is not supported before Ada."
    )


# Expressions and tiles, by what they mean


COUNTS = (4, 3)


def value(expression: Expression, indices: tuple[int, ...]) -> int:
    if expression.kind == CONSTANT:
        return int(expression.left)
    if expression.kind == VARIABLE:
        return indices[int(expression.left)]
    left, right = value(expression.left, indices), value(expression.right, indices)
    if expression.kind == ADD:
        return left + right
    if expression.kind == MULTIPLY:
        return left * right
    if expression.kind == MINIMUM:
        return min(left, right)
    if expression.kind == MAXIMUM:
        return max(left, right)
    return left // right if expression.kind == DIVIDE else left % right


small = st.integers(1, 12)
expressions = st.recursive(
    st.one_of(st.sampled_from([variable(0), variable(1)]), st.builds(constant, small)),
    lambda inner: st.one_of(
        st.builds(add, inner, inner),
        st.builds(subtract, inner, inner),
        st.builds(multiply, inner, small),
        st.builds(divide, inner, small),
        st.builds(modulo, inner, small),
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(expressions, st.booleans())
def test_what_is_simplified_has_the_same_values(
    expression: Expression, replaces_points: bool
) -> None:
    ranges = [(0, count - 1) for count in COUNTS]
    simple = Simplifier(ranges, replaces_points=replaces_points).simplify(expression)
    for indices in product(*map(range, COUNTS)):
        expected = value(expression, indices)
        assert value(canonical(expression), indices) == expected
        assert value(simple, indices) == expected


def drawn(random: Random, depth: int) -> Expression:
    """Of those expressions that are likely to be simplified: with few numbers."""
    kind = random.choice(["variable", "constant"] if depth == 0 else OPERATIONS)
    if kind == "variable":
        return variable(random.randrange(len(COUNTS)))
    if kind == "constant":
        return constant(random.randint(-9, 9))
    left = drawn(random, depth - 1)
    if kind in ("multiply", "divide", "modulo"):
        number = random.choice([1, 2, 3, 4, 6, 8, 12])
        if kind == "multiply":
            return multiply(left, random.choice([number, -number]))
        return (divide if kind == "divide" else modulo)(left, number)
    right = drawn(random, depth - 1)
    return {"add": add, "minimum": minimum, "maximum": maximum}[kind](left, right)


OPERATIONS = ["add", "add", "multiply", "divide", "modulo", "minimum", "maximum", "variable"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_what_is_simplified_keeps_its_values(seed: int) -> None:
    """As above, with the same expressions each time."""
    random = Random(seed)
    ranges = [(0, count - 1) for count in COUNTS]
    for _ in range(400):
        expression = drawn(random, random.choice([2, 3, 4]))
        simple = Simplifier(ranges, replaces_points=random.random() < 0.5).simplify(expression)
        divisor = largest_divisor(expression)
        for indices in product(*map(range, COUNTS)):
            expected = value(expression, indices)
            assert value(canonical(expression), indices) == expected
            assert value(simple, indices) == expected
            assert expected % divisor == 0 if divisor else expected == 0


@pytest.mark.parametrize(
    "expression",
    [
        divide(add(divide(multiply(variable(0), -3), 4), multiply(variable(1), 6)), 9),
        divide(add(divide(multiply(variable(0), -1), 4), multiply(variable(1), 6)), 9),
        modulo(add(divide(multiply(variable(0), -1), 4), multiply(variable(1), 6)), 12),
    ],
)
def test_what_is_added_can_be_below_zero(expression: Expression) -> None:
    simple = Simplifier([(0, count - 1) for count in COUNTS]).simplify(expression)
    for indices in product(*map(range, COUNTS)):
        assert value(simple, indices) == value(expression, indices)


# The tiles that the compiler logs


INFIX = {ADD: "+", MULTIPLY: "*", DIVIDE: "/", MODULO: "mod"}


def written(expression: Expression) -> str:
    """As the compiler writes it."""
    kind = expression.kind
    if kind == CONSTANT:
        return str(expression.left)
    if kind == VARIABLE:
        return f"tid_{expression.left}"
    operands = [written(item) for item in (expression.left, expression.right)]
    if kind in (MINIMUM, MAXIMUM):
        return f"{'min' if kind == MINIMUM else 'max'}({', '.join(operands)})"
    if kind != ADD:
        parts = (expression.left, expression.right)
        operands = [
            text if part.kind in (CONSTANT, VARIABLE, MINIMUM, MAXIMUM, kind) else f"({text})"
            for part, text in zip(parts, operands, strict=True)
        ]
    if kind == ADD and operands[1].startswith("-"):
        return f"{operands[0]} - {operands[1][1:]}"
    return f" {INFIX[kind]} ".join(operands)


def tiles_of(text: str) -> list[str]:
    """Those of the instructions of a kernel and of what it reads first, with the tiles that it was
    given."""
    kernel = MutableModule(parse(text)).entry.root
    body = FusionBody(kernel.operands[0], kernel)
    sources = Sources()
    tiled = TiledBody(body, TilePropagation(), sources.register)
    grid = grid_of(sizes(kernel.shape), tuple(given_tiles(text)))
    tiles: list[DimensionTile] = []
    for source in sources:
        output = source.tile([tiles[number] for number in source.inputs], grid)
        assert output is not None
        tiles.append(output)
    actual, regions = set(), [tiled.region]
    for region in regions:
        for numbers, instructions in region.instructions.items():
            tile = [tiles[number] for number in numbers]
            line = " ".join(
                f"{name} [{', '.join(map(str, values))}]"
                for name, values in {
                    "offsets": [written(item.offset) for item in tile],
                    "sizes": [item.size for item in tile],
                    "strides": [item.stride for item in tile],
                    "upper bounds": [written(item.bound) for item in tile],
                }.items()
            )
            for instruction, nested in instructions.items():
                if instruction in body and instruction.operands:
                    actual.add(f"{instruction.name}: {line}")
                regions += [inner.region for inner in nested]
    return sorted(actual)


@pytest.mark.parametrize("name", TILES)
def test_tiles_are_those_that_the_compiler_logged(name: str) -> None:
    assert tiles_of(MODULES_WITH_TILES[name]) == TILES[name]


def elements(tile: DimensionTile, indices: tuple[int, ...], extent: int) -> set[int]:
    first, bound = value(tile.offset, indices), value(tile.bound, indices)
    actual = (first + step * tile.stride for step in range(tile.size))
    return {item for item in actual if item < min(bound, extent)}


@settings(deadline=None)
@given(
    st.lists(st.integers(2, 12), min_size=2, max_size=3),
    st.lists(st.sampled_from([1, 2, 4, 8, 16]), min_size=3, max_size=3),
)
def test_tiles_of_split_dimensions_are_those_of_the_whole(
    extents: list[int], sizes: list[int]
) -> None:
    """One dimension that is read as several."""
    total, size = math.prod(extents), sizes[0] * sizes[1]
    grid = Grid((size,), (-(-total // size),))
    whole = OfRoot(0, total).tile((), grid)
    parts = [
        Expanded((0,), tuple(extents), place).tile([whole], grid) for place in range(len(extents))
    ]
    if any(part is None for part in parts):
        return
    for index in range(grid.counts[0]):
        covered = {
            sum(item * stride for item, stride in zip(actual, _strides(extents), strict=True))
            for actual in product(
                *(
                    elements(part, (index,), extent)
                    for part, extent in zip(parts, extents, strict=True)
                    if part is not None
                )
            )
        }
        assert elements(whole, (index,), total) <= covered


def _strides(extents: list[int]) -> list[int]:
    return [math.prod(extents[place + 1 :]) for place in range(len(extents))]


@settings(deadline=None)
@given(
    st.lists(st.integers(2, 12), min_size=2, max_size=2),
    st.lists(st.sampled_from([1, 2, 4, 8, 16]), min_size=2, max_size=2),
)
def test_tiles_of_merged_dimensions_hold_all_of_their_elements(
    extents: list[int], sizes: list[int]
) -> None:
    """Several dimensions that are read as one."""
    counts = [-(-extent // size) for extent, size in zip(extents, sizes, strict=True)]
    grid = Grid(sizes, counts)
    parts = [OfRoot(place, extent).tile((), grid) for place, extent in enumerate(extents)]
    merged = Collapsed((0, 1), tuple(extents)).tile(parts, grid)
    if merged is None:
        return
    total, strides = math.prod(extents), _strides(extents)
    for indices in product(*map(range, counts)):
        rows, columns = (
            elements(part, indices, extent) for part, extent in zip(parts, extents, strict=True)
        )
        expected = {row * strides[0] + column * strides[1] for row in rows for column in columns}
        first = value(merged.offset, indices)
        actual = {first + step * merged.stride for step in range(merged.size)}
        assert expected <= actual
        assert max(expected) < total
