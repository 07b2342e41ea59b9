"""What limits a module, and lower bounds of its time: sound, and tight where the truth is known."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fusionscope.dump import open_dump
from fusionscope.dump.device import find_device
from fusionscope.explain import ModuleFacts, Selection, explain
from fusionscope.facts.clock import KernelTime, limits_of
from fusionscope.facts.limits import Limits
from fusionscope.facts.result import Branch, Limit, Operation, TimeSource
from fusionscope.findings.headroom.facts import Headroom
from fusionscope.findings.opportunities.facts import Opportunity, OpportunityKind
from fusionscope.findings.opportunities.twice import with_values_of_gradients
from fusionscope.findings.recomputed.facts import Recomputation, RecomputedValue, RunCosts
from fusionscope.history.kernels import KernelKind, launches_of

DUMPS = Path(__file__).parents[2] / "samples" / "dumps"
GPUS = sorted(
    str(path.relative_to(DUMPS))
    for path in DUMPS.glob("*/*")
    if path.is_dir() and not path.parent.name.startswith(("cpu", "tpu"))
)
BANDWIDTH = 3.35e6  # of an H100, in bytes per microsecond
LAUNCH = 1.0
HEADER = "HloModule jit_step, is_scheduled=true{header}\n\n"


def facts_of(tmp_path: Path, text: str, header: str = "") -> ModuleFacts:
    """The facts about the computations of a final module for an H100."""
    return facts_of_module(tmp_path, HEADER.format(header=header) + text)


def facts_of_module(tmp_path: Path, text: str) -> ModuleFacts:
    path = tmp_path / "module_0001.jit_step.sm_9.0_gpu_after_optimizations.txt"
    path.write_text(text)
    (module,) = explain(open_dump(path), Selection(device=find_device("h100"))).modules
    return module


def headroom_of(module: ModuleFacts) -> Headroom:
    headroom = module.find(Headroom)
    assert headroom is not None
    return headroom


def opportunities_of(module: ModuleFacts) -> list[Opportunity]:
    """Those that are not just parts of the program."""
    rows = module.find_all(Opportunity)
    return [row for row in rows if row.id is not OpportunityKind.ONE_KERNEL]


def branches(branch: Branch) -> Iterator[Branch]:
    rows = [branch]
    for row in rows:
        rows += row.children
    yield from rows


def assert_sound(module: ModuleFacts) -> None:
    """No bound is above the time of what was compiled, but for the rounding of ticks."""
    time = module.summary.time
    assert time is not None and module.breakdown is not None
    headroom = headroom_of(module)
    rows = [("module", headroom.at_best_us, time.microseconds)]
    rows += [(k.name, k.at_best_us or 0.0, k.time_us) for k in module.kernels]
    rows += [(b.name, b.at_best_us or 0.0, b.time_us) for b in branches(module.breakdown.tree)]
    rows += [(b.name, b.at_best_us or 0.0, b.time_us) for b in module.breakdown.lines]
    for loop in headroom.loops:
        rows.append((loop.name, loop.at_best_by_step_us, loop.time_us))
        rows.append((loop.name, loop.at_best_us, loop.at_best_by_step_us))
    assert [row for row in rows if row[1] > row[2] * 1.0002] == []


@pytest.mark.parametrize("dump", GPUS)
def test_no_bound_is_above_what_was_compiled(samples, dump):
    for module in samples.explanation(dump).modules:
        assert_sound(module)


# The same programs with a pass switched off.
WITHOUT = [
    name
    for name in GPUS
    if name.startswith("h100-without") and f"h100/{name.partition('/')[2]}" in GPUS
]


@pytest.mark.parametrize("changed", WITHOUT)
def test_no_bound_is_above_another_compilation_of_the_program(samples, changed):
    name = changed.partition("/")[2]
    modules = [samples.facts(f"h100/{name}"), samples.facts(changed)]
    times = [module.summary.time.microseconds for module in modules]
    bounds = [headroom_of(module).at_best_us for module in modules]
    assert max(bounds) <= min(times) * 1.0002


def test_there_is_no_bound_for_a_cpu(samples):
    module = samples.facts("cpu/softmax")
    assert module.find(Headroom) is None
    assert module.summary.at_best_us is None is module.summary.limited_by
    assert {kernel.at_best_us for kernel in module.kernels} == {None}


def test_limits_are_launches_and_the_longer_of_the_rest(samples):
    module = samples.facts("h100/concatenate")
    headroom = headroom_of(module)
    launches = module.summary.launches * LAUNCH
    beyond = headroom.memory_us + headroom.compute_us + headroom.library_us
    assert headroom.launches_us == pytest.approx(launches)
    assert beyond == pytest.approx(module.summary.time.microseconds - launches)


@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        (Limits(3, 1, 1), Limit.LAUNCHES),
        (Limits(1, 3, 1), Limit.MEMORY),
        (Limits(1, 1, 3), Limit.COMPUTE),
        (Limits(1, 1, 0, 3), Limit.LIBRARY),
        (Limits(2, 2), Limit.MIXED),  # half is not over half
        (Limits(), Limit.MIXED),
    ],
)
def test_one_word_says_what_takes_over_half(limits, limit):
    assert limits.limited_by is limit


ELEMENTWISE = """
fused {
  p0 = f32[1024,1024]{1,0} parameter(0)
  p1 = f32[1024,1024]{1,0} parameter(1)
  sum = f32[1024,1024]{1,0} add(p0, p1)
  ROOT double = f32[1024,1024]{1,0} add(sum, sum)
}

ENTRY main {
  a = f32[1024,1024]{1,0} parameter(0)
  b = f32[1024,1024]{1,0} parameter(1)
  ROOT fusion = f32[1024,1024]{1,0} fusion(a, b), kind=kLoop, calls=fused
}
"""


def test_a_chain_in_one_kernel_has_its_own_bytes_as_the_bound(tmp_path):
    module = facts_of(tmp_path, ELEMENTWISE)
    headroom = headroom_of(module)
    size = 3 * 4 * 1024 * 1024
    assert headroom.at_best_bytes == pytest.approx(size)
    assert headroom.at_best_us == pytest.approx(LAUNCH + size / BANDWIDTH, rel=0.01)
    assert headroom.decided_by == "bytes"
    assert module.summary.limited_by is Limit.MEMORY


@pytest.mark.parametrize("dump", ["h100/softmax", "h100/elementwise", "h100/reductions"])
def test_bytes_of_kernels_without_neighbours_are_their_bound(samples, dump):
    """One kernel moves what it must; several, what enters and leaves them together."""
    module = samples.facts(dump)
    headroom = headroom_of(module)
    if len(module.kernels) == 1:
        assert headroom.at_best_bytes == pytest.approx(module.summary.bytes_moved, rel=0.05)
    else:
        assert headroom.at_best_bytes < module.summary.bytes_moved


FUSED = Path(__file__).parent / "fused"
BF16 = 2


def compiled(tmp_path: Path, name: str) -> ModuleFacts:
    return facts_of_module(
        tmp_path, gzip.decompress((FUSED / f"{name}.txt.gz").read_bytes()).decode()
    )


HEADS = 4 * 2048 * 16 * 64 * BF16  # of queries, and of keys and values unless they are grouped
FEWER = HEADS // 4


@pytest.mark.parametrize(
    ("name", "kernel", "size"),
    [
        ("attention", "cudnn", 4 * HEADS),  # queries, keys, values, result
        ("attention", "pallas", 4 * HEADS),
        ("grouped", "cudnn", 2 * HEADS + 2 * FEWER),
        ("normal", "pallas", 2 * 8192 * 1024 * BF16 + 1024 * 4),
    ],
)
def test_a_hand_written_kernel_moves_what_the_bound_of_several_has(tmp_path, name, kernel, size):
    fused, several = (compiled(tmp_path, file) for file in (f"{name}-{kernel}", name))
    assert fused.summary.launches == 1 < several.summary.launches
    assert headroom_of(several).at_best_bytes == pytest.approx(size, rel=0.05)
    for figure in (fused.summary.bytes_moved, headroom_of(fused).at_best_bytes):
        assert figure == pytest.approx(size, rel=0.05)


def test_attention_and_its_gradient_have_one_bound_whoever_computes_them(tmp_path):
    library, compiler = (compiled(tmp_path, name) for name in ("gradient-cudnn", "gradient"))
    for module in (library, compiler):  # three operands, and the gradient of each
        assert headroom_of(module).at_best_bytes == pytest.approx(6 * HEADS, rel=0.05)
    backward = next(k for k in library.kernels if k.emitter.endswith("Backward"))
    statistics = 4 * 16 * 2048 * 4  # in f32, of each row of the scores
    assert backward.bytes_moved == pytest.approx(8 * HEADS + statistics, rel=0.05)


def test_a_softmax_that_a_flag_makes_one_kernel_moves_the_bound_of_three(samples):
    fused = samples.facts("h100/softmax")
    several = samples.facts("h100-without-triton-softmax/softmax")
    assert (fused.summary.launches, several.summary.launches) == (1, 3)
    assert fused.summary.bytes_moved == pytest.approx(headroom_of(several).at_best_bytes, rel=0.05)


TWO_KERNELS = """
add_f32 {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT sum = f32[] add(x, y)
}

scale {
  p0 = f32[1024,1024]{1,0} parameter(0)
  ROOT negated = f32[1024,1024]{1,0} negate(p0)
}

rows {
  p0 = f32[1024,1024]{1,0} parameter(0)
  zero = f32[] constant(0)
  ROOT total = f32[1024]{0} reduce(p0, zero), dimensions={1}, to_apply=add_f32
}

ENTRY main {
  a = f32[1024,1024]{1,0} parameter(0)
  first = f32[1024,1024]{1,0} fusion(a), kind=kLoop, calls=scale
  ROOT second = f32[1024]{0} fusion(first), kind=kInput, calls=rows
}
"""


def test_what_passes_between_two_kernels_is_not_in_the_bound_of_both(tmp_path):
    module = facts_of(tmp_path, TWO_KERNELS)
    whole, row = 4 * 1024 * 1024, 4 * 1024
    assert module.summary.bytes_moved == 3 * whole + row
    assert headroom_of(module).at_best_bytes == pytest.approx(whole + row)
    first = next(kernel for kernel in module.kernels if kernel.name == "first")
    assert first.at_best_us == pytest.approx(LAUNCH + 2 * whole / BANDWIDTH, rel=0.01)


PARTS = """
cut {
  p0 = f32[1024,1024]{1,0} parameter(0)
  part = f32[256,1024]{1,0} slice(p0), slice={[0:256], [0:1024]}
  ROOT negated = f32[256,1024]{1,0} negate(part)
}

narrow {
  p0 = f32[1024,1024]{1,0} parameter(0)
  turned = f32[1024,1024]{1,0} transpose(p0), dimensions={1,0}
  half = bf16[1024,1024]{1,0} convert(turned)
  ROOT negated = bf16[1024,1024]{1,0} negate(half)
}

ENTRY main {
  a = f32[1024,1024]{1,0} parameter(0)
  b = f32[1024,1024]{1,0} parameter(1)
  first = f32[256,1024]{1,0} fusion(a), kind=kLoop, calls=cut
  second = bf16[1024,1024]{1,0} fusion(b), kind=kLoop, calls=narrow
  ROOT both = (f32[256,1024]{1,0}, bf16[1024,1024]{1,0}) tuple(first, second)
}
"""


def test_a_part_counts_as_a_part_and_a_converted_value_with_its_type(tmp_path):
    module = facts_of(tmp_path, PARTS)
    quarter, half = 4 * 256 * 1024, 2 * 1024 * 1024
    assert headroom_of(module).at_best_bytes == pytest.approx(2 * quarter + 2 * half, rel=0.001)


LOOP = """
step {
  p0 = f32[4096]{0} parameter(0)
  p1 = f32[16,4096]{1,0} parameter(1)
  p2 = s32[] parameter(2)
  p3 = f32[4096]{0} parameter(3)
  zero = s32[] constant(0)
  row = f32[1,4096]{1,0} dynamic-slice(p1, p2, zero), dynamic_slice_sizes={1,4096}
  flat = f32[4096]{0} bitcast(row)
  scaled = f32[4096]{0} multiply(p0, p3)
  ROOT next = f32[4096]{0} add(scaled, flat)
}

body {
  state = (s32[], f32[4096]{0}, f32[16,4096]{1,0}, f32[4096]{0}) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  h = f32[4096]{0} get-tuple-element(state), index=1
  xs = f32[16,4096]{1,0} get-tuple-element(state), index=2
  w = f32[4096]{0} get-tuple-element(state), index=3
  one = s32[] constant(1)
  j = s32[] add(i, one)
  fusion = f32[4096]{0} fusion(h, xs, i, w), kind=kLoop, calls=step
  ROOT result = (s32[], f32[4096]{0}, f32[16,4096]{1,0}, f32[4096]{0}) tuple(j, fusion, xs, w)
}

condition {
  state = (s32[], f32[4096]{0}, f32[16,4096]{1,0}, f32[4096]{0}) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  end = s32[] constant(16)
  ROOT less = pred[] compare(i, end), direction=LT
}

ENTRY main {
  h = f32[4096]{0} parameter(0)
  xs = f32[16,4096]{1,0} parameter(1)
  w = f32[4096]{0} parameter(2)
  zero = s32[] constant(0)
  init = (s32[], f32[4096]{0}, f32[16,4096]{1,0}, f32[4096]{0}) tuple(zero, h, xs, w)
  loop = (s32[], f32[4096]{0}, f32[16,4096]{1,0}, f32[4096]{0}) while(init), condition=condition,
    body=body, backend_config={"known_trip_count":{"n":"16"}}
  ROOT last = f32[4096]{0} get-tuple-element(loop), index=1
}
"""


def test_a_loop_has_a_bound_for_all_steps_and_one_by_step(tmp_path):
    module = facts_of(tmp_path, LOOP.replace(",\n    body", ", body"))
    assert_sound(module)
    headroom = headroom_of(module)
    row = 4 * 4096
    # Once: the first state, sixteen rows, what no step changes, and the last state.
    assert headroom.at_best_bytes == pytest.approx((1 + 16 + 1 + 1) * row, rel=0.001)
    (loop,) = headroom.loops
    # In each step: the state, a row, what no step changes, and the next state.
    step = LAUNCH + 4 * row / BANDWIDTH
    assert loop.at_best_by_step_us == pytest.approx(16 * step, rel=0.001)
    assert loop.state_bytes == pytest.approx(16 * 2 * row, rel=0.001)
    assert loop.limited_by is Limit.LAUNCHES
    (opportunity,) = opportunities_of(module)
    assert (opportunity.id, opportunity.where) == ("recurrence", "loop")  # h = w * h + row


def test_a_part_of_two_kernels_could_be_one(tmp_path):
    (opportunity,) = facts_of(tmp_path, TWO_KERNELS).find_all(Opportunity)
    assert opportunity.id is OpportunityKind.ONE_KERNEL
    size = 4 * 1024 * 1024 + 4 * 1024
    assert opportunity.at_best_us == pytest.approx(LAUNCH + size / BANDWIDTH, rel=0.01)


WEIGHTS = """
narrow {
  p0 = f32[2048,2048]{1,0} parameter(0)
  ROOT half = bf16[2048,2048]{1,0} convert(p0)
}

use {
  p0 = bf16[2048,2048]{1,0} parameter(0)
  p1 = bf16[2048,2048]{1,0} parameter(1)
  ROOT sum = bf16[2048,2048]{1,0} add(p0, p1)
}

ENTRY main {
  w = f32[2048,2048]{1,0} parameter(0), metadata={op_name="params['w']"}
  v = f32[128,2048]{1,0} parameter(1), metadata={op_name="params['v']"}
  x = bf16[2048,2048]{1,0} parameter(2), metadata={op_name="x"}
  half = bf16[2048,2048]{1,0} fusion(w), kind=kLoop, calls=narrow
  ROOT sum = bf16[2048,2048]{1,0} fusion(half, x), kind=kLoop, calls=use
}
"""


def test_weights_that_are_converted_each_time_are_an_opportunity(tmp_path):
    (opportunity,) = opportunities_of(facts_of(tmp_path, WEIGHTS))
    elements = 2048 * 2048
    assert opportunity.id == "converted"
    assert opportunity.parameters == ("params['w']",)
    assert opportunity.bytes == (4 + 2) * elements
    assert opportunity.time_us == pytest.approx(LAUNCH + 6 * elements / BANDWIDTH, rel=0.01)
    assert opportunity.advice == "store as bf16"


REPEATED = """
repeat {
  p0 = f32[2048]{0} parameter(0)
  ROOT rows = f32[512,2048]{1,0} broadcast(p0), dimensions={1}
}

ENTRY main {
  b = f32[2048]{0} parameter(0), metadata={op_name="params['b']"}
  w = f32[2048,2048]{1,0} parameter(1), metadata={op_name="params['w']"}
  x = f32[512,2048]{1,0} parameter(2), metadata={op_name="x"}
  rows = f32[512,2048]{1,0} fusion(b), kind=kLoop, calls=repeat
  ROOT sum = f32[512,2048]{1,0} add(rows, x)
}
"""


def test_a_bias_that_is_repeated_is_not_to_be_stored_so(tmp_path):
    assert opportunities_of(facts_of(tmp_path, REPEATED)) == []


@pytest.mark.parametrize(
    ("changed", "header"),
    [
        (WEIGHTS, ", input_output_alias={ {}: (0, {}, may-alias) }"),  # donated
        (WEIGHTS.replace("f32[128,2048]", "bf16[2048,2048]"), ""),  # a result has its shape
        (WEIGHTS.replace("params['v']", "v"), ""),  # an argument of one array is data
        (WEIGHTS.replace("params['w']", "x['w']"), ""),
        (WEIGHTS.replace("params", "batch"), ""),
        (WEIGHTS.replace("params", "model_inputs"), ""),
        (WEIGHTS.replace("f32[128,2048]", "f32[2048,128]"), ""),  # a batch of 2048 rows
    ],
)
def test_parameters_that_a_call_may_change_are_none(tmp_path, changed, header):
    assert opportunities_of(facts_of(tmp_path, changed, header)) == []


def test_a_library_call_is_limited_by_the_library(samples):
    module = samples.module("h100/libraries")
    kernels = launches_of(module.read(module.last), "gpu")
    (call, *_) = (kernel for kernel in kernels if kernel.kind is KernelKind.LIBRARY)
    time = KernelTime(3_000.0, TimeSource.FLOOR, 1_000.0, 2_000.0, 0.0, 0.0)
    assert limits_of(call, time) == Limits(1.0 * call.runs, library=2.0 * call.runs)
    assert limits_of(call, None) is None


def recomputed_in(*names: str, saved_us: float, module: ModuleFacts) -> ModuleFacts:
    """The facts with one value that the first two kernels compute, which have these names in JAX;
    storing it saves so much time.
    """
    pairs = zip(module.kernels, names, strict=False)
    kernels = [replace(kernel, op_name=name) for kernel, name in pairs]
    costs = [RunCosts(2, 1_000_000, 5_000.0), RunCosts(2, 400_000, 5_000.0 - 1_000 * saved_us)]
    value = RecomputedValue(
        value=Operation("exp.1", "exponential", "f32[1024]{0}", None, "model.py:4"),
        source="model.py:4",
        operations=("exponential",),
        kernels=tuple(kernel.name for kernel in kernels),
        launches=2,
        instructions=1,
        flops_again=1024,
        bytes_again=4096,
        time_again_ns=1.0,
        written_by=None,
        is_written=False,
        before=costs[0],
        after=costs[1],
    )
    recomputation = Recomputation(values=(value,), kept=None, free=0, unpriced=0)
    module = replace(module, kernels=(*kernels, *module.kernels[len(names) :]))
    return with_values_of_gradients(module.with_finding(Recomputation, recomputation))


FORWARD, GRADIENT = "jit(step)/jvp(f)/exp", "jit(step)/transpose(jvp(f))/mul"


@pytest.mark.parametrize(
    ("names", "saved_us", "is_listed"),
    [
        ((FORWARD, GRADIENT), 2.0, True),
        ((FORWARD, FORWARD), 2.0, False),
        ((GRADIENT, GRADIENT), 2.0, False),
        ((FORWARD, GRADIENT), 0.0, False),  # computing it again takes no more
    ],
)
def test_a_value_of_both_passes_is_an_opportunity_if_storing_it_saves_time(
    samples, names, saved_us, is_listed
):
    module = recomputed_in(*names, saved_us=saved_us, module=samples.facts("h100/reductions"))
    rows = [row for row in module.find_all(Opportunity) if row.id is OpportunityKind.TWICE]
    assert len(rows) == is_listed
    for row in rows:
        assert (row.where, row.source) == ("exp.1", "model.py:4")
        assert (row.time_us, row.at_best_us, row.bytes) == (5.0, 3.0, 600_000)


def test_the_only_argument_is_taken_apart(tmp_path):
    """As that of a function of ``*a``, whose weights are in ``a[0]``."""
    only = WEIGHTS.replace("params['", "a[0]['").replace('"x"', '"a[1]"')
    (opportunity,) = opportunities_of(facts_of(tmp_path, only))
    assert opportunity.parameters == ("a[0]['w']",)
    state = WEIGHTS.replace("params['", "state['cache']['").replace('"x"', "\"state['x']\"")
    assert opportunities_of(facts_of(tmp_path, state)) == []


FILL = """
fill {
  zero = bf16[] constant(0)
  zeros = bf16[2048,2048]{1,0} broadcast(zero), dimensions={}
  copy = bf16[2048,2048]{1,0} copy(zeros)
  ROOT both = (bf16[2048,2048]{1,0}, bf16[2048,2048]{1,0}) tuple(zeros, copy)
}

ENTRY main {"""


def test_zeros_are_no_table(tmp_path):
    text = WEIGHTS.replace("\nENTRY main {", FILL).replace(
        "  half = bf16[2048,2048]{1,0} fusion(w)",
        "  zeros = (bf16[2048,2048]{1,0}, bf16[2048,2048]{1,0}) fusion(), kind=kLoop, calls=fill\n"
        "  half = bf16[2048,2048]{1,0} fusion(w)",
    )
    (opportunity,) = opportunities_of(facts_of(tmp_path, text))
    assert opportunity.id == "converted"


def test_a_loop_that_a_test_ends_is_not_to_be_unrolled(tmp_path):
    text = LOOP.replace(",\n    body", ", body").replace("multiply(p0, p3)", "maximum(p0, p3)")
    (opportunity,) = opportunities_of(facts_of(tmp_path, text))
    assert opportunity.advice.startswith("unroll")
    count = ', backend_config={"known_trip_count":{"n":"16"}}'
    by_test = text.replace(count, "").replace(
        "  ROOT less = pred[] compare(i, end), direction=LT",
        "  h = f32[4096]{0} get-tuple-element(state), index=1\n"
        "  part = f32[1]{0} slice(h), slice={[0:1]}\n"
        "  first = f32[] bitcast(part)\n"
        "  limit = f32[] constant(1)\n"
        "  is_far = pred[] compare(first, limit), direction=GT\n"
        "  is_short = pred[] compare(i, end), direction=LT\n"
        "  ROOT less = pred[] and(is_far, is_short)",
    )
    (opportunity,) = opportunities_of(facts_of(tmp_path, by_test))
    assert "tests of its end" in opportunity.advice


SORTED = """
less {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  ROOT is_greater = pred[] compare(a, b), direction=GT
}}

rows {{
  p0 = f32[16,4096]{{1,0}} parameter(0)
  places = s32[16,4096]{{1,0}} iota(), iota_dimension=1
  ROOT both = (f32[16,4096]{{1,0}}, s32[16,4096]{{1,0}}) \
sort(p0, places), dimensions={{1}}, to_apply=less
}}

cut {{
  p0 = f32[16,4096]{{1,0}} parameter(0)
  part = f32[{shape}]{{1,0}} slice(p0), slice={{{slice}}}
  ROOT negated = f32[{shape}]{{1,0}} negate(part)
}}

ENTRY main {{
  a = f32[16,4096]{{1,0}} parameter(0)
  first = (f32[16,4096]{{1,0}}, s32[16,4096]{{1,0}}) fusion(a), kind=kInput, calls=rows
  values = f32[16,4096]{{1,0}} get-tuple-element(first), index=0
  ROOT second = f32[{shape}]{{1,0}} fusion(values), kind=kLoop, calls=cut
}}
"""


@pytest.mark.parametrize(
    ("shape", "rows", "read"),
    [
        ("16,50", "[0:16], [0:50]", 16 * 4096),  # the largest of a row depend on all of it
        ("4,50", "[0:4], [0:50]", 4 * 4096),
        ("4,4096", "[0:4], [0:4096]", 4 * 4096),
    ],
)
def test_a_part_of_sorted_rows_needs_these_rows(tmp_path, shape, rows, read):
    module = facts_of(tmp_path, SORTED.format(shape=shape, slice=rows))
    first, second = map(int, shape.split(","))
    least = headroom_of(module).at_best_bytes
    assert least == pytest.approx(4 * (read + first * second), rel=0.005)
    assert_sound(module)


COPIED = """
decay {
  p0 = f32[1024,1024]{1,0} parameter(0)
  ROOT square = f32[1024,1024]{1,0} multiply(p0, p0)
}

ENTRY main {
  a = f32[1024,1024]{1,0} parameter(0), metadata={op_name="state['a']"}
  b = f32[1024,1024]{1,0} parameter(1), metadata={op_name="state['b']"}
  old_a = f32[1024,1024]{1,0} copy(a)
  old_b = f32[1024,1024]{1,0} copy(b)
  first = f32[1024,1024]{1,0} fusion(old_a), kind=kLoop, calls=decay
  second = f32[1024,1024]{1,0} fusion(old_b), kind=kLoop, calls=decay
  ROOT both = (f32[1024,1024]{1,0}, f32[1024,1024]{1,0}) tuple(first, second)
}
"""


@pytest.mark.parametrize(("places", "is_displaced"), [((1, 0), True), ((0, 1), False)])
def test_copies_of_donated_arguments_are_explained_where_results_change_places(
    tmp_path, places, is_displaced
):
    aliasing = ", ".join(f"{{{n}}}: ({place}, {{}}, may-alias)" for n, place in enumerate(places))
    module = facts_of(tmp_path, COPIED, f", input_output_alias={{ {aliasing} }}")
    ids = [row.id for row in opportunities_of(module)]
    assert ("copied-result" in ids) is is_displaced
