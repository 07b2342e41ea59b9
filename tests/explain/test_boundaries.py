"""Library boundaries: expected values are read off the final modules of the dumps by hand."""

import gzip
import re
from pathlib import Path

import pytest
from sample_kinds import all_samples

from fusionscope.dump import open_dump
from fusionscope.explain import ModuleFacts, Selection, explain
from fusionscope.findings.libraries.facts import Boundary, Neighbour
from fusionscope.findings.libraries.sheet import sheet
from fusionscope.history.library_calls import library_of, window_of
from fusionscope.hlo import parse
from fusionscope.words.text import size

DUMPS = Path(__file__).resolve().parents[2] / "samples" / "dumps"


def boundaries(module: ModuleFacts) -> dict[str, Boundary]:
    """By the name of the first call."""
    return {boundary.names[0]: boundary for boundary in module.find_all(Boundary)}


def sides(neighbours: tuple[Neighbour, ...]) -> list[tuple[str, tuple[str, ...], int, bool]]:
    return [(n.name, n.operations, n.bytes_between, n.serves) for n in neighbours]


def test_what_stands_around_products_of_cublas(samples):
    calls = boundaries(samples.facts("h100-without-triton-gemm/projections"))
    assert len(calls) == 5
    for call in calls.values():
        assert (call.library, call.computes) == ("cuBLASLt", "matrix product")
        assert call.scratch == 4_194_304  # s8[4194304], which no one reads
        assert call.made_by is None  # there before fusion

    # Epilogue BIAS_RELU; f32[256,128], f32[128,512] and f32[512] give f32[256,512], which only the
    # next call reads.
    first = calls["cublas-lt-matmul.4"]
    assert (first.taken_before, first.taken_after) == ((), ("bias", "ReLU"))
    assert first.operands == ("f32[256,128]{1,0}", "f32[128,512]{1,0}", "f32[512]{0}")
    assert first.results == ("f32[256,512]{1,0}",)
    assert first.bytes_read == 4 * (256 * 128 + 128 * 512 + 512)
    assert first.bytes_written == 4 * 256 * 512
    assert (first.before, first.left_out, first.why) == ((), (), None)
    next_to_it = [("cublas-lt-matmul.5", ("custom-call",), 2 * 4 * 256 * 512, False)]
    assert sides(first.after) == next_to_it
    assert first.saved_at_most == 2 * 4 * 256 * 512

    # GELU by erf: the call adds the bias, and what f32[256,1024] it writes one kernel reads.
    up = calls["cublas-lt-matmul.5"]
    assert (up.taken_after, up.left_out) == (("bias",), ("GELU",))
    assert (up.rule, up.why) == ("lt-gelu", "GELU is by erf, not by tanh")
    between = 2 * 4 * 256 * 1024
    assert sides(up.after) == [("loop_multiply_fusion", ("multiply", "negate"), between, False)]
    assert up.saved_at_most == 2 * 4 * 256 * 512 + between

    # f32[256,256] is read by the ReLU and is a result of the program: it has to be written.
    down = calls["cublas-lt-matmul.6"]
    assert (down.taken_after, down.left_out) == (("bias",), ("ReLU",))
    assert down.rule == "lt-users"
    assert sides(down.before) == [("loop_multiply_fusion", ("multiply",), between, False)]
    assert sides(down.after) == [("loop_exponential_fusion", ("maximum",), 4 * 256 * 256, False)]
    assert down.saved_at_most == between + 4 * 256 * 256

    # exp(relu(x)) @ out: a chain in front of the product, which is a result of the program.
    out = calls["custom-call.8"]
    assert sides(out.before) == [
        ("loop_exponential_fusion", ("exponential",), 2 * 4 * 256 * 256, False)
    ]
    assert (out.after, out.left_out, out.taken_after) == ((), (), ())

    # bf16[101,303] @ bf16[303,205] is padded to [104,304] and [304,208]; [101,205] is cut out.
    odd = calls["custom-call.9"]
    assert sides(odd.before) == [
        ("loop_pad_fusion", ("pad",), 2 * 2 * 104 * 304, True),
        ("loop_pad_fusion.1", ("pad",), 2 * 2 * 304 * 208, True),
    ]
    cut = 2 * (101 * 205 + 104 * 208)
    assert sides(odd.after) == [("wrapped_slice", ("slice",), cut, True)]
    assert odd.saved_at_most == 2 * 2 * (104 * 304 + 304 * 208) + cut

    # Those first that fusing across could save most.
    saved = [call.saved_at_most for call in calls.values()]
    assert saved == sorted(saved, reverse=True)


def test_a_product_that_the_compiler_split(samples):
    """f32[4,256,1024] are four parts of the product, which a reduce over dimension 0 adds up."""
    for device in ("h100", "b200"):
        (call,) = boundaries(samples.facts(f"{device}/dense")).values()
        assert (call.library, call.computes) == ("Triton", "matrix product")
        assert call.made_by == "triton-gemm-rewriter"
        assert (call.taken_before, call.taken_after) == ((), ())
        assert sides(call.after) == [
            ("loop_maximum_fusion", ("reduce",), 2 * 4 * 4 * 256 * 1024, False)
        ]


def test_a_product_that_was_not_split_takes_in_the_rest(samples):
    (call,) = boundaries(samples.facts("a100/dense")).values()
    assert (call.library, call.taken_after) == ("Triton", ("bias", "ReLU"))
    assert call.saved_at_most == 0


def test_two_products_around_a_softmax(samples):
    """The scores, f32[4,128,128], are scaled in the first product; the softmax has its own kernel
    and is no boundary itself."""
    for device in ("h100", "a100"):
        first, second = boundaries(samples.facts(f"{device}/attention")).values()
        between = 2 * 4 * 4 * 128 * 128
        assert (first.library, first.taken_after) == ("Triton", ("scaling",))
        assert sides(first.after) == [("triton_softmax.2", ("select",), between, False)]
        assert sides(second.before) == [("triton_softmax.2", ("divide",), between, False)]
        assert (first.before, second.after) == ((), ())


@pytest.mark.parametrize(
    ("device", "before", "after"),
    [
        # cuDNN is given OHWI: f32[3,3,16,32] is transposed.
        ("h100", [3 * 3 * 16 * 32], []),
        # cuDNN is given NCHW: images, kernel and result are transposed.
        ("a100", [8 * 32 * 32 * 16, 3 * 3 * 16 * 32], [8 * 32**3]),
    ],
)
def test_transposes_around_a_convolution(device, before, after, samples):
    (call,) = boundaries(samples.facts(f"{device}/convolution")).values()
    assert (call.library, call.computes) == ("cuDNN", "convolution")
    assert call.taken_after == ("bias", "ReLU")
    neighbours = [*call.before, *call.after]
    assert all(n.serves and n.operations == ("transpose",) for n in neighbours)
    assert [n.bytes_between for n in call.before] == [2 * 4 * count for count in before]
    assert [n.bytes_between for n in call.after] == [2 * 4 * count for count in after]
    assert call.saved_at_most == 2 * 4 * sum(before + after)
    assert call.window == "3x3 kernel, padding 1+1 x 1+1"


def test_the_ledger_says_what_the_layout_of_a_call_costs():
    dump = open_dump(DUMPS / "a100" / "convolution")
    (module,) = explain(dump, Selection(movements=True)).modules
    text = str(list(sheet(module, None)))
    moved = 2 * 4 * (8 * 32 * 32 * 16 + 3 * 3 * 16 * 32 + 8 * 32**3)
    assert f"its layout costs 3 copies, {size(moved)}" in text


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ("window={}, dim_labels=bf_io->bf", "1 kernel"),
        (
            "window={size=3x3 stride=2x1 pad=0_1x0_0 rhs_dilate=1x2}, dim_labels=b01f_01io->b01f, "
            "feature_group_count=4",
            "3x3 kernel, stride 2x1, kernel dilated 1x2, padding 0+1 x 0+0, "
            "4 groups of the features",
        ),
        ("", ""),
    ],
)
def test_the_window_of_a_convolution_in_words(attributes, words):
    text = "HloModule m\n\nENTRY e {\n  x = f32[8] parameter(0)\n  ROOT c = f32[8] custom-call(x), "
    module = parse(f'{text}custom_call_target="conv"{", " * bool(attributes)}{attributes}\n}}\n')
    assert window_of(module.entry.root) == words


def test_calls_that_compute_something_else(samples):
    calls = boundaries(samples.facts("h100/libraries"))
    assert {name: (call.library, call.computes) for name, call in calls.items()} == {
        "fft.0.0": ("cuFFT", "Fourier transform"),
        "cholesky.0": ("cuSOLVER", "Cholesky decomposition"),
        "gemm_fusion_dot_general.1": ("Triton", "matrix product"),
    }
    # Real parts in, complex ones out: f32[64,4096] to c64[64,2049].
    transform = calls["fft.0.0"]
    assert sides(transform.before) == [
        ("loop_multiply_fusion", ("multiply",), 2 * 4 * 64 * 4096, False)
    ]
    assert sides(transform.after) == [
        ("loop_select_fusion", ("real", "imag"), 2 * 8 * 64 * 2049, False)
    ]
    assert transform.saved_at_most == 2 * 4 * 64 * 4096 + 2 * 8 * 64 * 2049

    # Its second result, s32[], is read: it is no memory to work in.
    factor = calls["cholesky.0"]
    assert (factor.results, factor.scratch) == (("f32[64,64]{0,1}", "s32[]"), 0)
    assert factor.saved_at_most == 2 * 4 * (64 * 64 + 64 * 64 + 1)
    assert (transform.made_by, factor.made_by) == (None, None)
    assert calls["gemm_fusion_dot_general.1"].made_by == "triton-gemm-rewriter"


def test_libraries_of_the_cpu(samples):
    """Two dots and the two halves of the softmax are YNN's: f32[4,128,128] is written by one half
    and read by the other and by the rest of the softmax."""
    calls = boundaries(samples.facts("cpu/attention"))
    assert {call.library for call in calls.values()} == {"YNN"}
    products = [call for call in calls.values() if call.computes == "matrix product"]
    assert len(calls) == 4 and len(products) == 2
    size = 4 * 4 * 128 * 128
    half = calls["ynn_fusion.2"]
    assert sides(half.before) == [("broadcast_select_fusion", ("select",), 2 * size, False)]
    assert sides(half.after) == [
        ("ynn_fusion.1", ("reduce",), size, False),
        ("broadcast_multiply_fusion", ("multiply",), size, False),
    ]
    assert half.saved_at_most == (2 + 3) * size


def final_text(dump: Path) -> str:
    (file,) = [f for f in dump.iterdir() if re.search(r"[cg]pu_after_optimizations\.txt", f.name)]
    content = file.read_bytes()
    return (gzip.decompress(content) if file.suffix == ".gz" else content).decode()


@pytest.mark.slow
@pytest.mark.parametrize("dump", all_samples(lambda dump: not dump.parent.name.startswith("tpu")))
def test_each_call_of_the_final_module_is_there(dump, samples):
    expected = set()
    for line in final_text(dump).splitlines():
        name = line.partition(" = ")[0].replace("ROOT", "").strip(" %")
        is_fusion = "kind=kCustom" in line and '"kind":"__triton"' not in line
        if is_fusion or " custom-call(" in line:
            expected.add(name)
    launched_as_they_are = {"dot", "sort", "fft", "convolution"}
    emitters = {kernel.name: kernel.emitter for kernel in samples.facts(dump).kernels}
    actual = {
        name
        for boundary in boundaries(samples.facts(dump)).values()
        if emitters[boundary.names[0]] not in launched_as_they_are
        for name in boundary.names
    }
    assert actual == expected


# What follows are lines of programs compiled by jaxlib 0.12.0.1 for an H100, without what says
# nothing here.
PRODUCT = (
    '%call = ({type}[64,64]{{1,0}}, s8[4194304]{{0}}) custom-call({operands}), custom_call_target='
    '"__cublas$lt$matmul", backend_config={{"gemm_backend_config":{{"alpha_imag":0,"alpha_real":'
    '{alpha},"beta":{beta},"dot_dimension_numbers":{{"lhs_batch_dimensions":[{batch}],'
    '"lhs_contracting_dimensions":["1"]}},"epilogue":"{epilogue}"}}}}'
)  # fmt: skip


def product(operands="%x, %w", type="f32", alpha="1", beta="0", epilogue="DEFAULT", batch=""):
    return PRODUCT.format(
        operands=operands, type=type, alpha=alpha, beta=beta, epilogue=epilogue, batch=batch
    )


X = "%x = f32[64,64]{1,0} parameter(0)"
W = "%w = f32[64,64]{1,0} parameter(1)"
B = "%b = f32[64]{0} parameter(2)"
GET = "%y = f32[64,64]{1,0} get-tuple-element(%call), index=0"
BIASED = (
    "%loop = f32[64,64]{1,0} fusion(%y, %b), kind=kLoop, calls=%fused",
    """%fused (p0: f32[64,64], p1: f32[64]) -> f32[64,64] {
  %p0 = f32[64,64]{1,0} parameter(0)
  %p1 = f32[64]{0} parameter(1)
  %broadcast = f32[64,64]{1,0} broadcast(%p1), dimensions={1}
  ROOT %add = f32[64,64]{1,0} add(%p0, %broadcast)
}""",
)


def written(
    directory: Path,
    *lines: str,
    callees: tuple[str, ...] = (),
    flags: str = "",
    final: str = "sm_9.0a_gpu",
) -> dict[str, Boundary]:
    """The boundaries of a final module with these lines, the last of which is its result."""
    entry = [*lines[:-1], f"ROOT {lines[-1]}"]
    body = "\n  ".join(["ENTRY %main {", *entry])
    text = "\n\n".join(["HloModule m, is_scheduled=true", *callees, f"{body}\n}}", ""])
    (directory / f"module_0001.m.{final}_after_optimizations.txt").write_text(text)
    (directory / "module_0001.m.debug_options").write_text(flags)
    (module,) = explain(open_dump(directory), Selection(all_modules=True)).modules
    return boundaries(module)


@pytest.mark.parametrize(
    ("settings", "resources"),
    [
        ({}, ()),
        ({"alpha": "0.5"}, ("scaling by 0.5",)),
        ({"beta": "1"}, ("addition of another array",)),
        ({"beta": "2"}, ("addition of another array times 2",)),
        ({"epilogue": "BIAS_GELU"}, ("bias", "GELU")),
        ({"epilogue": "GELU_AUX"}, ("GELU", "values that its gradient needs")),
        ({"alpha": "3", "epilogue": "BIAS_RELU"}, ("scaling by 3", "bias", "ReLU")),
        ({"epilogue": "NEW_ONE"}, ("NEW", "ONE")),
        # What no compiler writes is no reason to fail.
        ({"alpha": '"x"', "beta": "[1]"}, ()),
        ({"alpha": "NaN", "beta": "null"}, ()),
        ({"alpha": "{}", "beta": "true", "epilogue": ""}, ()),
    ],
)
def test_what_a_product_takes_in(tmp_path, settings, resources):
    calls = written(tmp_path, X, W, product(**settings), GET)
    assert calls["call"].taken_after == resources


CONVOLUTION = (
    "%call = (f32[64,64]{{1,0}}, u8[1024]{{0}}) custom-call(%x, %w), custom_call_target="
    '"__cudnn$convForward", backend_config={{"cudnn_conv_backend_config":{{"activation_mode":'
    '"{activation}","conv_result_scale":1,"side_input_scale":0}}}}'
)


@pytest.mark.parametrize(
    ("activation", "results", "why"),
    [
        ("kNone", "", None),
        ("kRelu", "", "a call applies it before the ReLU, but here it comes after"),
        ("kNone", ", %y", "more than one operation reads the result"),
    ],
)
def test_why_a_convolution_leaves_out_a_bias(tmp_path, activation, results, why):
    lines = [X, W, B, CONVOLUTION.format(activation=activation), GET, BIASED[0]]
    if results:
        lines.append("%t = (f32[64,64]{1,0}, f32[64,64]{1,0}) tuple(%loop, %y)")
    (call,) = written(tmp_path, *lines, callees=(BIASED[1],)).values()
    assert (call.left_out, call.rule, call.why) == (("bias",), None, why)


def test_a_final_module_alone_does_not_tell_why_a_product_leaves_out_a_bias(tmp_path):
    lines = [X, W, B, product(epilogue="RELU"), GET, BIASED[0]]
    (call,) = written(tmp_path, *lines, callees=(BIASED[1],)).values()
    assert (call.left_out, call.rule, call.why) == (("bias",), None, None)


@pytest.mark.parametrize(
    ("kind", "sizes", "flags", "library", "computes", "rule", "why"),
    [
        ("f16", (64, 64, 64), "", "Eigen", "matrix product", "ynn-dot", "types f16 f16 f16"),
        ("s16", (64, 64, 64), "", "XLA", "matrix product by plain loops", "ynn-dot",
         "types s16 s16 s16"),
        ("f32", (1, 64, 64), "", "XLA", "matrix product by loops in tiles", "ynn-dot",
         "rows 1, columns 64"),
        ("f32", (4, 4, 4), "", "Eigen", "matrix product", "ynn-dot",
         "rows 4, columns 4, contracted 4, min_extent 8"),
        ("f32", (4, 4, 4), "xla_cpu_multi_thread_eigen: false", "XLA",
         "matrix product by loops in tiles", "ynn-dot",
         "rows 4, columns 4, contracted 4, min_extent 8"),
        ("f32", (64, 64, 64), "xla_cpu_experimental_ynn_fusion_type: LIBRARY_FUSION_TYPE_REDUCE",
         "Eigen", "matrix product", "lib-starters", "no fusion of YNN may begin with a product"),
    ],
)  # fmt: skip
def test_who_computes_a_product_on_a_cpu(
    tmp_path, kind, sizes, flags, library, computes, rule, why
):
    """The compiler agrees: tools/conformance/cpu_products.py."""
    rows, depth, columns = sizes
    lines = (
        f"%x = {kind}[{rows},{depth}]{{1,0}} parameter(0)",
        f"%w = {kind}[{depth},{columns}]{{1,0}} parameter(1)",
        f"%product = {kind}[{rows},{columns}]{{1,0}} dot(%x, %w), lhs_contracting_dims={{1}}, "
        "rhs_contracting_dims={0}",
    )
    (call,) = written(tmp_path, *lines, flags=flags, final="cpu").values()
    assert (call.library, call.computes, call.rule, call.why) == (library, computes, rule, why)


SLICED = """%fused_slice (p0: f32[512,64], p1: s32[]) -> f32[64,64] {
  %p0 = f32[512,64]{1,0} parameter(0)
  %p1 = s32[] parameter(1)
  %zero = s32[] constant(0)
  ROOT %inner = f32[64,64]{1,0} dynamic-slice(%p0, %p1, %zero), dynamic_slice_sizes={64,64}
}"""


def convolution(activation: str = "kNone", scale: str = "1", second: str = "0") -> str:
    return (
        "%call = (f32[8,4,4,8]{3,2,1,0}, u8[0]{0}) custom-call(%x, %k, %b), window={size=3x3 "
        "pad=1_1x1_1}, dim_labels=b01f_o01i->b01f, "
        'custom_call_target="__cudnn$convBiasActivationForward", backend_config={'
        f'"cudnn_conv_backend_config":{{"activation_mode":"{activation}",'
        f'"conv_result_scale":{scale},"leakyrelu_alpha":0,"side_input_scale":{second}}}}}'
    )


IMAGES = "%x = f32[8,4,4,8]{3,2,1,0} parameter(0)"
KERNEL = "%k = f32[8,3,3,8]{3,2,1,0} parameter(1)"
VECTOR = "%b = f32[8]{0} parameter(2)"
FEATURES = "%y = f32[8,4,4,8]{3,2,1,0} get-tuple-element(%call), index=0"
MADE_UP = (
    "%b = f32[8]{0} fusion(), kind=kLoop, calls=%zeros",
    """%zeros () -> f32[8] {
  %zero = f32[] constant(0)
  ROOT %inner = f32[8]{0} broadcast(%zero), dimensions={}
}""",
)


@pytest.mark.parametrize(
    ("settings", "resources"),
    [
        (("kNone", "1", "0"), ("bias",)),
        (("kRelu", "1", "0"), ("bias", "ReLU")),
        (("kRelu6", "0.5", "1"), ("scaling by 0.5", "bias", "addition of another array", "ReLU6")),
    ],
)
def test_what_a_convolution_takes_in(tmp_path, settings, resources):
    (call,) = written(tmp_path, IMAGES, KERNEL, VECTOR, convolution(*settings), FEATURES).values()
    assert call.taken_after == resources


def test_what_the_graph_of_a_convolution_takes_in(tmp_path):
    graph = '"serialized_graph":"7:[f32]conv();9:[f32]scale(7);11:[f32]relu(9);"'
    call = convolution().replace('"conv_result_scale":1', f'"conv_result_scale":1,{graph}')
    call = call.replace("BiasActivationForward", "ForwardGraph")
    (actual,) = written(tmp_path, IMAGES, KERNEL, VECTOR, call, FEATURES).values()
    assert actual.taken_after == ("scaling", "ReLU")


def test_zeros_are_no_bias(tmp_path):
    lines = [IMAGES, KERNEL, MADE_UP[0], convolution("kRelu"), FEATURES]
    (call,) = written(tmp_path, *lines, callees=(MADE_UP[1],)).values()
    assert call.taken_after == ("ReLU",)
    assert sides(call.before) == [("b", ("broadcast",), 2 * 4 * 8, True)]


SORTED = (
    "%sorted = (f32[64,64]{1,0}, s32[64,64]{1,0}) fusion(%x), kind=kCustom, calls=%fused_sort",
    "%best = f32[64,{width}]{{1,0}} slice(%values), slice={{[0:64], [{start}:{end}]}}",
    """%gt (a: f32[], b: f32[], i: s32[], j: s32[]) -> pred[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  %i = s32[] parameter(2)
  %j = s32[] parameter(3)
  ROOT %above = pred[] compare(%a, %b), direction=GT
}

%fused_sort (p0: f32[64,64]) -> (f32[64,64], s32[64,64]) {
  %p0 = f32[64,64]{1,0} parameter(0)
  %places = s32[64,64]{1,0} iota(), iota_dimension=1
  ROOT %inner = (f32[64,64]{1,0}, s32[64,64]{1,0}) sort(%p0, %places), dimensions={1}, to_apply=%gt
}""",
)


@pytest.mark.parametrize(("start", "width"), [(0, 1), (0, 5), (3, 1)])
def test_a_sort_of_which_little_is_kept(tmp_path, start, width):
    call, cut, callees = SORTED
    cut = cut.format(width=width, start=start, end=start + width)
    values = "%values = f32[64,64]{1,0} get-tuple-element(%sorted), index=0"
    (actual,) = written(tmp_path, X, call, values, cut, callees=(callees,)).values()
    assert (actual.library, actual.computes) == ("XLA", "sort")
    assert actual.taken_before == ("iota",)
    assert sides(actual.after) == [("best", ("slice",), 4 * (64 * 64 + 64 * width), True)]


def test_a_top_k(tmp_path):
    call = (
        "%call = (f32[64,5]{1,0}, s32[64,5]{1,0}) custom-call(%x), "
        'custom_call_target="__gpu$TopK", api_version=API_VERSION_TYPED_FFI, '
        'backend_config={is_stable = true, order = "TOTAL"}'
    )
    (actual,) = written(tmp_path, X, call).values()
    assert (actual.library, actual.computes) == ("XLA", "top-k")
    assert actual.results == ("f32[64,5]{1,0}", "s32[64,5]{1,0}")
    assert (actual.taken_after, actual.saved_at_most) == ((), 0)


CUDNN_FUSION = (
    "%call = f32[8,4,4,8]{3,2,1,0} fusion(%x, %k, %b), kind=kCustom, calls=%fused, "
    'backend_config={"fusion_backend_config":{"kind":"__cudnn$fusion"}}',
    """%fused (p0: f32[8,4,4,8], p1: f32[8,3,3,8], p2: f32[8]) -> f32[8,4,4,8] {
  %p0 = f32[8,4,4,8]{3,2,1,0} parameter(0)
  %p1 = f32[8,3,3,8]{3,2,1,0} parameter(1)
  %p2 = f32[8]{0} parameter(2)
  %inner = f32[8,4,4,8]{3,2,1,0} convolution(%p0, %p1), dim_labels=b01f_o01i->b01f
  %wide = f32[8,4,4,8]{3,2,1,0} broadcast(%p2), dimensions={3}
  %sum = f32[8,4,4,8]{3,2,1,0} add(%inner, %wide)
  %minus = f32[8,4,4,8]{3,2,1,0} negate(%sum)
  %power = f32[8,4,4,8]{3,2,1,0} exponential(%minus)
  %one = f32[] constant(1)
  %ones = f32[8,4,4,8]{3,2,1,0} broadcast(%one), dimensions={}
  %below = f32[8,4,4,8]{3,2,1,0} add(%power, %ones)
  %share = f32[8,4,4,8]{3,2,1,0} divide(%ones, %below)
  ROOT %outer = f32[8,4,4,8]{3,2,1,0} multiply(%sum, %share)
}""",
)


def test_a_cudnn_fusion(tmp_path):
    """With SiLU, as --xla_gpu_experimental_enable_conv_fusion=true makes it. Behind the bias the
    formula branches: its operations are told one by one."""
    call, callees = CUDNN_FUSION
    (actual,) = written(tmp_path, IMAGES, KERNEL, VECTOR, call, callees=(callees,)).values()
    assert (actual.library, actual.computes) == ("cuDNN", "convolution")
    assert actual.taken_after == ("bias", "negate", "exponential", "add", "divide", "multiply")


def test_a_call_that_no_one_knows_is_told_by_its_target(tmp_path):
    line = '%call = f32[64,64]{1,0} custom-call(%x), custom_call_target="my_kernel"'
    (call,) = written(tmp_path, X, line).values()
    assert (call.library, call.computes) == ("custom call", "my_kernel")


def test_calls_that_look_alike_are_told_once(tmp_path):
    lines = [X, W]
    for number in (1, 2):
        lines.append(product().replace("%call", f"%call.{number}"))
        lines.append(GET.replace("%y", f"%y.{number}").replace("%call", f"%call.{number}"))
        lines.append(f"%tanh.{number} = f32[64,64]{{1,0}} tanh(%y.{number})")
    lines.append("%t = (f32[64,64]{1,0}, f32[64,64]{1,0}) tuple(%tanh.1, %tanh.2)")
    (call,) = written(tmp_path, *lines).values()
    assert call.names == ("call.1", "call.2")
    assert call.saved_at_most == 2 * (2 * 4 * 64 * 64)


def test_what_is_waited_for_is_looked_through(tmp_path):
    """A slice is copied while something else runs, as jaxlib 0.12 does in loops."""
    lines = [
        "%x = f32[512,64]{1,0} parameter(0)", W, "%i = s32[] parameter(2)",
        "%start = ((f32[512,64]{1,0}, s32[]), f32[64,64]{1,0}, u32[]) async-start(%x, %i), "
        "calls=%asynchronous",
        "%done = f32[64,64]{1,0} async-done(%start)",
        product("%done, %w"),
        GET,
    ]  # fmt: skip
    outer = """%asynchronous (a: f32[512,64], b: s32[]) -> f32[64,64] {
  %a = f32[512,64]{1,0} parameter(0)
  %b = s32[] parameter(1)
  ROOT %part = f32[64,64]{1,0} fusion(%a, %b), kind=kLoop, calls=%fused_slice
}"""
    (call,) = written(tmp_path, *lines, callees=(SLICED, outer)).values()
    assert sides(call.before) == [("start", ("dynamic-slice",), 2 * 4 * 64 * 64, False)]


def test_the_longest_prefix_counts():
    assert library_of("__cublas$lt$matmul$f8", "custom-call", "gpu").computes.endswith("floats")
    assert library_of("__triton_collective", "all-reduce", "gpu").computes.startswith("collective")


def test_other_backends_have_none():
    (module,) = explain(open_dump(DUMPS / "tpu-v5e" / "attention")).modules
    assert module.find_all(Boundary) == ()
