"""Calls of cuDNN become convolutions that compute the same: the gradients by jax.vjp."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from fusionscope.experiments.convolutions import write_convolutions
from fusionscope.graph.mutable import MutableModule, to_module
from fusionscope.hlo import Module, parse
from fusionscope.hlo.window import read_window


def shape_of(sizes):
    order = ",".join(map(str, reversed(range(len(sizes)))))
    return f"f32[{','.join(map(str, sizes))}]{{{order}}}"


def converted(kind, operands, result, window) -> Module:
    first, second = map(shape_of, operands)
    output = shape_of(result)
    text = f"""HloModule m

ENTRY e {{
  x = {first} parameter(0)
  y = {second} parameter(1)
  call = ({output}, u8[0]{{0}}) custom-call(x, y), window={{{window}}}, \
dim_labels=b01f_o01i->b01f, custom_call_target="__cudnn$conv{kind}"
  one = {output} get-tuple-element(call), index=0
  ROOT result = ({output}) tuple(one)
}}
"""
    graph = MutableModule(parse(text))
    ((call, convolution),) = write_convolutions(graph).items()
    assert (call.opcode, convolution.opcode) == ("custom-call", "convolution")
    module = to_module(graph)
    module.check()
    return module


def run(module: Module, first, second):
    """Compute it as its attributes say."""
    import jax

    entry = {instruction.opcode: instruction for instruction in module.entry.instructions}
    convolution = entry["convolution"]
    if "reverse" in entry:
        second = jax.numpy.flip(second, entry["reverse"].attribute("dimensions"))
    left, results = convolution.attributes["dim_labels"].split("->")
    images, filters = left.split("_")
    window = read_window(convolution.attributes["window"])
    return jax.lax.conv_general_dilated(
        first,
        second,
        window_strides=[item.stride for item in window],
        padding=[(item.low, item.high) for item in window],
        lhs_dilation=[item.base_dilation for item in window],
        rhs_dilation=[item.window_dilation for item in window],
        dimension_numbers=[
            item.upper().translate(str.maketrans("BF", "NC" if place != 1 else "BF"))
            for place, item in enumerate((images, filters, results))
        ],
    )


@pytest.mark.skipif(find_spec("jax") is None, reason="needs jax")
@pytest.mark.parametrize(
    ("size", "stride", "pads", "dilation"),
    [(3, 1, (1, 1), 1), (3, 2, (0, 1), 1), (1, 2, (0, 0), 1), (3, 1, (2, 2), 2), (4, 3, (2, 0), 1)],
)
@pytest.mark.parametrize("kind", ["Forward", "BackwardInput", "BackwardFilter"])
def test_a_call_becomes_a_convolution_that_computes_the_same(kind, size, stride, pads, dilation):
    import jax

    keys = jax.random.split(jax.random.key(0), 3)
    images = jax.random.normal(keys[0], (2, 12, 9, 3))
    filters = jax.random.normal(keys[1], (5, size, size, 3))

    def forward(images, filters):
        return jax.lax.conv_general_dilated(
            images,
            filters,
            (stride, stride),
            [pads, pads],
            rhs_dilation=(dilation, dilation),
            dimension_numbers=("NHWC", "OHWI", "NHWC"),
        )

    output, pull = jax.vjp(forward, images, filters)
    change = jax.random.normal(keys[2], output.shape)
    operands, expected = {
        "Forward": ((images, filters), output),
        "BackwardInput": ((change, filters), pull(change)[0]),
        "BackwardFilter": ((images, change), pull(change)[1]),
    }[kind]
    low, high = pads
    window = (
        f"size={size}x{size} stride={stride}x{stride} pad={low}_{high}x{low}_{high} "
        f"rhs_dilate={dilation}x{dilation}"
    )
    module = converted(kind, [operand.shape for operand in operands], expected.shape, window)
    actual = run(module, *operands)
    assert actual.shape == expected.shape
    assert jax.numpy.allclose(actual, expected, atol=1e-4)


def test_a_call_that_does_more_stays():
    text = """HloModule m

ENTRY e {
  x = f32[2,8,8,3]{3,2,1,0} parameter(0)
  y = f32[5,1,1,3]{3,2,1,0} parameter(1)
  z = f32[5]{0} parameter(2)
  call = (f32[2,8,8,5]{3,2,1,0}, u8[0]{0}) custom-call(x, y, z), window={size=1x1}, \
dim_labels=b01f_o01i->b01f, custom_call_target="__cudnn$convBiasActivationForward"
  ROOT one = f32[2,8,8,5]{3,2,1,0} get-tuple-element(call), index=0
}
"""
    assert not write_convolutions(MutableModule(parse(text)))
