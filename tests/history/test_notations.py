"""Texts that the compiler's parser reads as one module, and texts that it tells apart.

Each pair was read by the parser of jaxlib 0.12.0.1; ``test_the_parser_agrees`` repeats it where
jaxlib is installed. The parser keeps the notation of a sharding or of JSON and compares what it
means (``HloSharding::operator==``), so such pairs are not printed as one text.
"""

import pytest

from fusionscope.compare.difference import compare_headers
from fusionscope.history.changes import find_changes, is_incidental
from fusionscope.hlo import parse, to_text

SUM = "sum {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  ROOT z = f32[] add(x, y)\n}\n"
LESS = SUM.replace("ROOT z = f32[] add(x, y)", "ROOT z = pred[] compare(x, y), direction=LT")
LESS = LESS.replace("sum", "less")
SQUARE = "p = f32[8,8]{1,0} parameter(0)"
IMAGES = "p = f32[1,8,8,1] parameter(0)\n  k = f32[3,3,1,1] parameter(1)"


def module(*lines, header="", computations=""):
    body = "\n  ".join(lines)
    return f"HloModule m{header}\n\n{computations}ENTRY e {{\n  {body}\n}}\n"


def of_header(first, second):
    lines = SQUARE, "ROOT r = f32[8,8]{1,0} add(p, p)"
    return tuple(module(*lines, header=f", {item}" if item else "") for item in (first, second))


def of_shape(first, second):
    return tuple(
        module(f"p = {s} parameter(0)", f"ROOT r = {s} negate(p)") for s in (first, second)
    )


def of_literal(shape, first, second):
    return tuple(module(f"ROOT r = {shape} constant({literal})") for literal in (first, second))


def of_sharding(first, second, shape="f32[8,8]{1,0}"):
    return tuple(
        module(f"p = {shape} parameter(0), sharding={item}", f"ROOT r = {shape} copy(p)")
        for item in (first, second)
    )


def of_attribute(operation, first, second, parameters=SQUARE, computations=""):
    return tuple(
        module(parameters, f"ROOT r = {operation}{item and ', '}{item}", computations=computations)
        for item in (first, second)
    )


ADD = "f32[8,8] add(p, p)"
DOT = "f32[8,8] dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
CALL = 'f32[8,8] custom-call(p), custom_call_target="x"'
REDUCE = "f32[8,8] all-reduce(p), to_apply=sum"
CONVOLUTION = "f32[1,6,6,1] convolution(p, k), dim_labels=b01f_01io->b01f"
INDICES = f"{SQUARE}\n  i = s32[2] parameter(1)"
GATHER = (
    "f32[2,8] gather(p, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
    "index_vector_dim=1, slice_sizes={1,8}"
)
GREATER = "pred[8,8] compare(p, p), direction=GT"
ZERO = f"{SQUARE}\n  o = f32[] constant(0)"

# The parser prints both alike.
SAME = [
    of_header("input_output_alias={ {}: (0, {}, may-alias) }", "input_output_alias={{}: (0, {})}"),
    of_header("allow_spmd_sharding_propagation_to_parameters={false}", ""),
    of_header("allow_spmd_sharding_propagation_to_output={false}", ""),
    of_header('frontend_attributes={a="1",b="2"}', 'frontend_attributes={b="2", a="1"}'),
    of_header("num_partitions=1, replica_count=1, is_scheduled=false", ""),
    *(
        of_shape("f32[8,8]{1,0}", each)
        for each in (
            "f32[8,8]", "f32[8, 8]{1, 0}", "f32[8,8]{1,0:}", "f32[8,8]{1,0:S(0)}",
            "f32[8,8]{1,0:L(1)}", "f32[8,8]{1,0:E(0)}", "f32[8,8]{1,0:M(0)}",
            "f32[8,8]{1,0:D(D,D)}",
        )
    ),
    of_shape("f32[8,8]{1,0:T(8,128)}", "f32[8,8]{1,0:T(8,128)S(0)}"),
    of_shape("f32[]", "f32[]{:S(0)}"),
    *(
        of_literal(shape, one, other)
        for shape, one, other in (
            ("f32[]", "1", "1.0"), ("f32[]", "1e3", "1000"), ("f32[]", "0.1", "0.100000001"),
            ("f32[]", "nan(0x400000)", "nan"), ("f32[]", "-1.50e+00", "-1.5"),
            ("f32[]", "16777217", "16777216"), ("bf16[]", "0.1", "0.1001"),
            ("bf16[]", "1.00390625", "1.0"), ("f16[]", "1e-8", "0"), ("f16[]", "0.1", "0.09998"),
            ("f8e4m3fn[]", "0.1", "0.1016"), ("f8e4m3fn[]", "0.001", "0.00195"),
            ("f64[]", "0.1", "0.10000000000000001"), ("pred[]", "true", "1"),
            ("pred[2]", "{true,false}", "{1,0}"), ("pred[]", "2", "1"), ("s32[]", "-0", "0"),
            ("s32[]", "007", "7"), ("u64[]", "-1", "18446744073709551615"),
            ("s32[2]", "{1,2}", "{1 2}"), ("s32[2]", "{1,2,}", "{ 1, 2 }"),
            ("s32[2,2]", "{ { /*i0=0*/ 1, 2 }, { 3, 4 } }", "{{1,2},{3,4}}"),
            ("c64[]", "(1,2)", "(1.0, 2)"), ("f32[3]", "5", "{5,0,0}"),
        )
    ),
    of_attribute(ADD, 'backend_config={"a":"1"}', 'backend_config="{\\"a\\":\\"1\\"}"'),
    of_attribute(ADD, 'backend_config=""', ""),
    of_attribute(ADD, 'frontend_attributes={a="1",b="2"}', 'frontend_attributes={b="2", a="1"}'),
    of_attribute("f32[8,8] exponential(p)", "result_accuracy={mode=default}", ""),
    of_attribute(
        "f32[8,8] exponential(p)",
        "result_accuracy={tolerance={atol=0.5,rtol=0,ulps=0}}",
        "result_accuracy={tolerance={atol=0.50}}",
    ),
    of_attribute(GREATER, "type=FLOAT", ""),
    of_attribute(GREATER, "order=PARTIAL", ""),
    of_attribute(GREATER, "type=TOTALORDER", "order=TOTAL"),
    of_attribute(GREATER, "type=SIGNED", "order=TOTAL"),
    *(
        of_attribute(
            "pred[4] compare(q, q), direction=EQ", order, "", f"q = {element}[4] parameter(0)"
        )
        for element, order in (
            ("s32", "type=SIGNED"), ("s32", "order=TOTAL"), ("u8", "order=TOTAL"),
            ("pred", "order=TOTAL"), ("pred", "type=TOTALORDER"), ("c64", "order=PARTIAL"),
        )
    ),
    of_attribute("f32[4,8] slice(p)", "slice={[0:4], [0:8]}", "slice={[0:4:1], [0:8:1]}"),
    of_attribute("f32[10,8] pad(p, o)", "padding=1_1x0_0", "padding=1_1_0x0_0_0", ZERO),
    of_attribute(REDUCE, "replica_groups={}", "", computations=SUM),
    of_attribute(
        f"{REDUCE}, replica_groups={{{{0,1}}}}, channel_id=1",
        "use_global_device_ids=false, constrain_layout=false, mode=cross_replica",
        "",
        computations=SUM,
    ),
    of_attribute(DOT, "operand_precision={DEFAULT,default}", ""),
    of_attribute(DOT, "lhs_batch_dims={}, rhs_batch_dims={}", ""),
    of_attribute(
        CONVOLUTION,
        "window={size=3x3}",
        "window={stride=1x1 size=3x3 pad=0_0x0_0 lhs_dilate=1x1 rhs_dilate=1x1 rhs_reversal=0x0}",
        IMAGES,
    ),
    of_attribute(
        "f32[8,8] reduce-window(p, o), to_apply=sum",
        "window={size=3x1 pad=1_1x0_0}",
        "window={size=3x1 stride=1x1 pad=1_1x0_0}",
        ZERO,
        SUM,
    ),
    of_attribute(
        GATHER,
        "indices_are_sorted=false, operand_batching_dims={}, start_indices_batching_dims={}",
        "",
        INDICES,
    ),
    of_attribute(
        CALL,
        "api_version=API_VERSION_ORIGINAL, schedule=SCHEDULE_NONE, padding_type=PADDING_INVALID, "
        "output_to_operand_aliasing={}, called_computations={}, custom_call_has_side_effect=false",
        "",
    ),
    of_attribute(
        "((f32[8]), token[]) infeed(t)", 'infeed_config=""', "", "t = token[] after-all()"
    ),
    of_attribute(
        "(f32[2], s32[2]) topk(v), k=2", "largest=true", "", "v = f32[8] parameter(0)"
    ),
    of_attribute(
        "f32[8,8] triangular-solve(p, p), lower=true", "left_side=false, unit_diagonal=false", ""
    ),
    of_attribute("f32[8,8] cholesky(p)", "lower=false", ""),
    of_attribute(
        "f32[8] sort(v), dimensions={0}, to_apply=less",
        "is_stable=false",
        "",
        "v = f32[8] parameter(0)",
        LESS,
    ),
    *(
        of_sharding(one, other)
        for one, other in (
            ("{devices=[2,1,4]<=[8] last_tile_dim_replicate}",
             "{devices=[2,1,4]<=[8] last_tile_dims={replicated}}"),
            ("{replicated}", "{devices=[1,1,8]<=[8] last_tile_dim_replicate}"),
            ("{manual}", "{devices=[1,1,8]<=[8] last_tile_dims={manual}}"),
            ("{devices=[2,1,2,2]<=[8] last_tile_dims={manual, replicated}}",
             "{devices=[2,1,2,2]<=[2,2,2]T(0,2,1) last_tile_dims={replicated,manual}}"),
            ("{devices=[2,1,4]0,1,2,3,4,5,6,7 last_tile_dim_replicate}",
             "{devices=[2,1,4]3,2,1,0,4,5,6,7 last_tile_dim_replicate}"),
            ("{devices=[2,1,1]0,1 last_tile_dim_replicate}", "{devices=[2,1]0,1}"),
            ("{devices=[2,4]<=[8] shard_as 1}", "{shard_as 1 devices=[2,4]<=[8]}"),
            ("{mesh['x'=2,'y'=4], [{'0'}, {'1'}]}", "{mesh['x'=2,'y'=4], [{'x'}, {'y'}]}"),
            ("{maximal_mesh[device_id=3]}", "{single_device[device_id=3]}"),
        )
    ),
]  # fmt: skip

# The parser prints each as it was written, and they mean the same.
SAME_MEANING = [
    *(
        of_sharding(one, other)
        for one, other in (
            ("{replicated}", '{replicated metadata={op_name="x"}}'),
            ("{devices=[2,4]<=[8]}", "{mesh['x'=2,'y'=4], [{'x'}, {'y'}]}"),
            ("{devices=[2,4]<=[8]}", "{devices=[2,4]0,1,2,3,4,5,6,7}"),
            ("{devices=[2,1,4]<=[8] last_tile_dim_replicate}", "{mesh['x'=2,'y'=4], [{'x'}, {}]}"),
            ("{replicated}", "{mesh['x'=2], [{}, {}]}"),
            ("{maximal device=3}", "{maximal_mesh[device_id=3]}"),
            ("{manual}", "{mesh['x'=2], manual}"),
            ("{unreduced}", "{mesh['x'=2], unreduced}"),
            ('{unreduced metadata={op_type="sdy::reduction_op" op_name="MAX"}}',
             "{mesh['x'=2], unreduced=max}"),
            ('{unreduced metadata={op_type="sdy::reduction_op" op_name="SUM"}}', "{unreduced}"),
            ('{unreduced metadata={{op_name="a"}, {op_type="sdy::reduction_op" op_name="MIN"}}}',
             '{unreduced metadata={op_type="sdy::reduction_op" op_name="MIN"}}'),
            ("{mesh['x'=2,'y'=4], [{'x'}, {'y'}]}", "{mesh['a'=2,'b'=4], [{'a'}, {'b'}]}"),
            ("{mesh['x'=2,'y'=4], [{'y'}, {'x'}]}", "{devices=[4,2]<=[2,4]T(1,0)}"),
            ("{mesh['x'=8], [{'x':(1)2}, {'x':(2)4}]}", "{devices=[2,4]<=[8]}"),
            ("{mesh['x'=8], [{'x':(1)2}, {}]}", "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"),
            ("{mesh['x'=2,'y'=4], [{'x'}, {}], replicated={'y'}}",
             "{mesh['x'=2,'y'=4], [{'x'}, {}]}"),
            ("{mesh['x'=2,'y'=4], device_ids=([4,2]T(1,0)), [{'x'}, {'y'}]}",
             "{devices=[2,4]<=[4,2]T(1,0)}"),
            ("{mesh['x'=2,'y'=4], [{'x'}, {}], unreduced={'y'}}",
             "{devices=[2,1,4]<=[8] last_tile_dims={unreduced}}"),
            ("{mesh['x'=2,'y'=4,'z'=2], [{'x'}, {}], manual={'y'}}",
             "{devices=[2,1,4,2]<=[16] last_tile_dims={manual, replicated}}"),
            ("{mesh['x'=2,'y'=4], [{'x'}, {'y'}], metadata={{op_name=\"q\"}}}",
             "{mesh['x'=2,'y'=4], [{'x'}, {'y'}]}"),
        )
    ),
    of_sharding(
        "{{replicated}, {devices=[2,4]<=[8]}}",
        "{{replicated}, {mesh['x'=2,'y'=4], [{'x'}, {'y'}]}}",
        "(f32[8], f32[8,8])",
    ),
    of_attribute(
        ADD,
        'backend_config={"a":{"x":1,"y":[1,2]},"b":"2"}',
        'backend_config={ "b":"2", "a":{"y":[1, 2], "x":1} }',
    ),
    # The compiler prints a negative zero as -0, and reads that as 0; it is a negative zero here.
    of_literal("f32[]", "-0", "-0.0"),
]  # fmt: skip

DIFFERENT = [
    of_header("input_output_alias={ {}: (0, {}, must-alias) }", "input_output_alias={{}: (0, {})}"),
    of_header("allow_spmd_sharding_propagation_to_output={true}", ""),
    *(
        of_shape("f32[8,8]{1,0}", each)
        for each in (
            "f32[8,8]{0,1}", "f32[8,8]{1,0:S(1)}", "f32[8,8]{1,0:E(32)}", "f32[8,8]{1,0:T(8,128)}",
            "f32[8,8]{1,0:L(2)}",
        )
    ),
    *(
        of_literal(shape, one, other)
        for shape, one, other in (
            ("f32[]", "1", "1.0000001"), ("f32[]", "0.1", "0.1000001"), ("f32[]", "-0.0", "0"),
            ("f32[]", "nan", "-nan"), ("f32[]", "nan(0x1)", "nan"),
            ("c64[]", "(1, -0.0)", "(1, 0)"),
            ("f32[2]", "{1,2}", "{1,3}"), ("f32[2]", "1", "{1,1}"), ("pred[]", "true", "0"),
            ("f8e4m3fn[]", "0.001", "0.003"), ("f64[]", "0.1", "0.1000000000000001"),
        )
    ),
    of_attribute(ADD, 'backend_config={"a":[1,2]}', 'backend_config={"a":[2,1]}'),
    of_attribute(ADD, 'frontend_attributes={a="1"}', 'frontend_attributes={a="2"}'),
    of_attribute("f32[8,8] exponential(p)", "result_accuracy={mode=highest}", ""),
    of_attribute(GREATER, "type=TOTALORDER", ""),
    of_attribute(GREATER, "order=TOTAL", ""),
    of_attribute(GREATER, "type=SIGNED", ""),
    of_attribute("f32[4,8] slice(p)", "slice={[0:4], [0:8]}", "slice={[0:8:2], [0:8:1]}"),
    of_attribute("f32[15,8] pad(p, o)", "padding=0_0_1x0_0", "padding=4_3x0_0", ZERO),
    of_attribute(
        CONVOLUTION, "window={size=3x3 rhs_reversal=1x0}", "window={size=3x3}", IMAGES
    ),
    of_attribute(f"{REDUCE}, replica_groups={{}}", "channel_id=1", "", computations=SUM),
    of_attribute(DOT, "operand_precision={high,default}", ""),
    of_attribute(CALL, "schedule=SCHEDULE_LATEST", ""),
    *(
        of_sharding(one, other)
        for one, other in (
            ('{unreduced metadata={op_type="sdy::reduction_op" op_name="SUM"}}',
             '{unreduced metadata={op_type="sdy::reduction_op" op_name="MAX"}}'),
            ("{mesh['x'=2,'y'=4], [{'x'}, {}], unreduced=max{'y'}}",
             "{mesh['x'=2,'y'=4], [{'x'}, {}], unreduced={'y'}}"),
            ("{mesh['x'=2,'y'=4], [{'x', ?}, {'y'}]}", "{mesh['x'=2,'y'=4], [{'x'}, {'y'}]}"),
            ("{devices=[2,4]<=[8] shard_as 1}", "{devices=[2,4]<=[8]}"),
            ("{devices=[4,2]<=[8]}", "{devices=[2,4]<=[8]}"),
            ("{devices=[2,4]<=[4,2]T(1,0)}", "{devices=[2,4]<=[8]}"),
            ("{maximal device=3}", "{maximal device=2}"),
        )
    ),
]  # fmt: skip


def differs(first, second):
    before, after = parse(first), parse(second)
    actual = find_changes(before, after, None)
    visible = [edit for edit in actual.edits if not is_incidental(edit)]
    return bool(visible or actual.fusions or compare_headers(before, after))


@pytest.mark.parametrize(("first", "second"), [*SAME, *SAME_MEANING])
def test_same(first, second):
    assert not differs(first, second)
    assert not differs(second, first)


@pytest.mark.parametrize(("first", "second"), DIFFERENT)
def test_different(first, second):
    assert differs(first, second)
    assert differs(second, first)


@pytest.mark.parametrize("pair", [*SAME, *SAME_MEANING, *DIFFERENT])
def test_printed_again(pair):
    for text in pair:
        assert not differs(text, to_text(parse(text)))


TABLE = """HloModule m

ENTRY e {{
  p = f32[12] parameter(0)
  {table} = f32[12] constant({literal})
  s = f32[] constant({scalar})
  b = f32[12] broadcast(s), dimensions={{}}
  q = f32[12] multiply(p, {table})
  ROOT a = f32[12] add(q, b)
}}
"""
PRINTED = TABLE.format(table="t", literal=f"{{{','.join(map(str, range(12)))}}}", scalar=2)


@pytest.mark.parametrize("name", ["t", "constant.7"])
def test_a_constant_that_one_side_omits(name):
    """The compiler prints no more than ten elements, unless a flag says so."""
    omitted = TABLE.format(table=name, literal="{...}", scalar=2)
    assert not differs(PRINTED, omitted)
    assert not differs(omitted, PRINTED)
    for pair in (
        (PRINTED, omitted.replace("(2)", "(3)")),
        (omitted.replace("(2)", "(3)"), PRINTED),
    ):
        (edit,) = find_changes(*map(parse, pair), None).edits
        assert edit.before.name == "s"
        assert [field for field, _, _ in edit.fields] == ["literal"]
    # Where both print it, it counts.
    assert differs(PRINTED, PRINTED.replace("7,", "70,"))


def test_the_parser_agrees():
    pytest.importorskip("jaxlib")
    from fusionscope.capture.hook import bindings

    def printed(text):
        return bindings().hlo_module_from_text(text).to_string()

    assert [pair for pair in SAME if printed(pair[0]) != printed(pair[1])] == []
    assert [pair for pair in DIFFERENT if printed(pair[0]) == printed(pair[1])] == []
