"""Writes calls of cuDNN, whose window a program cannot keep, as what they compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusionscope.graph.mutable import (
    MutableComputation,
    MutableInstruction,
    MutableModule,
    replace_operand,
)
from fusionscope.hlo.shape import Shape
from fusionscope.hlo.window import WindowDimension, read_window

_PREFIX = '"__cudnn$conv'
_KINDS = ("Forward", "BackwardInput", "BackwardFilter")


def write_convolutions(graph: MutableModule) -> dict[MutableInstruction, MutableInstruction]:
    """Replace the calls of ``graph`` that compute a convolution or a gradient of one, and nothing
    else. Return the convolution of each.

    Source: xla/service/gpu/transforms/conv_rewriter.cc, MatchBackwardFilter, MatchBackwardInput.
    """
    convolutions: dict[MutableInstruction, MutableInstruction] = {}
    for computation in graph.post_order():
        for instruction in computation.post_order():
            target = instruction.attributes.get("custom_call_target", "")
            kind = target.removeprefix(_PREFIX).rstrip('"')
            if kind in _KINDS and "feature_group_count" not in instruction.attributes:
                convolutions[instruction] = _replace(computation, instruction, kind)
    return convolutions


def _replace(
    computation: MutableComputation, call: MutableInstruction, kind: str
) -> MutableInstruction:
    convolution = _convolution(computation, call, kind)
    for user in list(call.users):
        if user.opcode == "get-tuple-element" and user.attribute("index") == 0:
            computation.replace(user, convolution)
        elif user.opcode == "tuple":  # of results
            replace_operand(user, call, convolution)
            user.shape = Shape("tuple", elements=tuple(operand.shape for operand in user.operands))
    if not call.users:
        computation.remove(call)
    return convolution


def _convolution(
    computation: MutableComputation, call: MutableInstruction, kind: str
) -> MutableInstruction:
    labels, _, results = call.attributes["dim_labels"].partition("->")
    images, _, filters = labels.partition("_")
    first, second = call.operands
    shape = call.shape.elements[0]
    window = list(read_window(call.attributes["window"]))
    if kind == "BackwardInput":
        # The gradient of what is read, from that of what was made and the filter turned round.
        if any(dimension.size > 1 for dimension in window):
            spatial = [place for place, label in enumerate(filters) if label.isdigit()]
            text = f", dimensions={{{','.join(map(str, spatial))}}}"
            second = computation.make("reverse", second.shape, [second], text)
        sizes = _spatial(shape, images), _spatial(first.shape, results)
        window = list(map(_for_input, window, *sizes))
        images, filters, results = results, _swapped(filters, "io"), images
    elif kind == "BackwardFilter":
        # The gradient of the filter: what is made is the filter of what is read, and batches are
        # its features.
        sizes = _spatial(first.shape, images), _spatial(second.shape, results)
        window = list(map(_for_filter, window, *sizes))
        images, filters, results = (
            _swapped(images, "bf"),
            _renamed(results, {"b": "i", "f": "o"}),
            _renamed(filters, {"i": "b", "o": "f"}),
        )
    text = f", window={_text(window)}, dim_labels={images}_{filters}->{results}"
    return computation.make("convolution", shape, [first, second], text)


def _for_input(forward: WindowDimension, size: int, result_size: int) -> WindowDimension:
    """Return the window of the gradient of ``size`` elements, which ``result_size`` come from."""
    reach = (forward.size - 1) * forward.window_dilation
    low = reach - forward.low
    high = size - ((result_size - 1) * forward.stride + 1) - low + reach
    return WindowDimension(
        forward.size, 1, low, high, forward.stride, forward.window_dilation, False
    )


def _for_filter(forward: WindowDimension, size: int, result_size: int) -> WindowDimension:
    """Return the window of the gradient of the filter by which ``forward`` makes ``result_size``
    elements of ``size``.
    """
    reach = (forward.size - 1) * forward.window_dilation
    high = reach + (result_size - 1) * forward.stride + 1 - size - forward.low
    return WindowDimension(
        result_size, forward.window_dilation, forward.low, high, 1, forward.stride, False
    )


def _spatial(shape: Shape, labels: str) -> list[int]:
    """Return the sizes of the dimensions that are numbered in ``labels``, by their numbers."""
    places = {label: place for place, label in enumerate(labels) if label.isdigit()}
    return [shape.dimensions[places[label]] or 0 for label in sorted(places)]


def _swapped(labels: str, two: str) -> str:
    return _renamed(labels, {two[0]: two[1], two[1]: two[0]})


def _renamed(labels: str, names: Mapping[str, str]) -> str:
    return "".join(names.get(label, label) for label in labels)


def _text(window: Sequence[WindowDimension]) -> str:
    fields = {
        "size": [str(dimension.size) for dimension in window],
        "stride": [str(dimension.stride) for dimension in window],
        "pad": [f"{dimension.low}_{dimension.high}" for dimension in window],
        "lhs_dilate": [str(dimension.base_dilation) for dimension in window],
        "rhs_dilate": [str(dimension.window_dilation) for dimension in window],
    }
    parts = [f"{name}={'x'.join(values)}" for name, values in fields.items()]
    return f"{{{' '.join(parts)}}}"
