"""The meaning of an instruction's text, independent of notation.

Each attribute has one kind of meaning (``AttributeMeaning``). An attribute that is not listed
counts as part of the computation, so a new one of another compiler version is never overlooked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from enum import Enum, auto

from fusionscope.hlo import Module
from fusionscope.hlo.attributes import CALLS, split_attributes, unescape
from fusionscope.hlo.devices import explicit_groups
from fusionscope.hlo.literals import normal_literal
from fusionscope.hlo.model import Statement
from fusionscope.hlo.shardings import normal_sharding
from fusionscope.hlo.text import STRING, cut_at_commas, strip_comments


class AttributeMeaning(Enum):
    VALUE = auto()  # determines the value
    EXECUTION = auto()  # determines where or how: a difference in execution, but not in the value
    CALLS = auto()  # names of computations: their contents count
    ORDER = auto()  # names of instructions to wait for
    CHANNEL = auto()  # a number: only its presence and the instructions that share it count
    NOTHING = auto()  # notes for people and tools


_VALUE = """algorithm api_version batch_group_count collapsed_slice_dims comparison_type
    constrain_layout custom_call_has_side_effect custom_call_target delta dim_labels
    dimensions direction distribution dynamic_slice_sizes exponent_bits
    feature_group_count feature_index fft_length fft_type has_dynamic_root index
    index_vector_dim indices_are_sorted infeed_config inferred_dimension
    input_batching_dims inserted_window_dims iota_dimension is_associative is_reverse
    is_stable k largest left_side lhs_batch_dims lhs_contracting_dims lhs_ragged_dims
    lower mantissa_bits num_carries offset_dims
    operand_batching_dims operand_precision outfeed_config padding replica_groups
    rhs_batch_dims rhs_contracting_dims rhs_group_dims scatter_dims_to_operand_dims
    scatter_indices_batching_dims slice slice_sizes source_target_pairs split_dimension
    start_index_map start_indices_batching_dims transpose_a unique_indices unit_diagonal
    update_window_dims use_global_device_ids window"""
_EXECUTION = """alias_passthrough_params allow_spmd_sharding_propagation_to_output
    allow_spmd_sharding_propagation_to_parameters async_execution_thread backend_config
    buffer_donor cross_program_prefetch_index entry_computation_layout execution_thread
    frontend_attributes input_output_alias is_composite is_cross_program_prefetch is_host_transfer
    is_scheduled kind num_partitions
    operand_layout_constraints output_to_operand_aliasing parameter_replication
    replica_count sharding"""

# Attributes of instructions, of module headers, and of computation footers.
ATTRIBUTES: dict[str, AttributeMeaning] = {
    **dict.fromkeys(_VALUE.split(), AttributeMeaning.VALUE),
    **dict.fromkeys(_EXECUTION.split(), AttributeMeaning.EXECUTION),
    **dict.fromkeys(CALLS, AttributeMeaning.CALLS),
    "control-predecessors": AttributeMeaning.ORDER,
    "channel_id": AttributeMeaning.CHANNEL,
    "metadata": AttributeMeaning.NOTHING,  # the user's line and name
    "origin": AttributeMeaning.NOTHING,  # the user's array that this was
    "statistics": AttributeMeaning.NOTHING,  # for visualizers
}

# The values that mean the same as a missing attribute: the compiler's parser takes them for one.
USUAL = {
    "alias_passthrough_params": "false",
    "allow_spmd_sharding_propagation_to_output": "{false}",
    "allow_spmd_sharding_propagation_to_parameters": "{false}",
    "api_version": "API_VERSION_ORIGINAL",
    "async_execution_thread": '"main"',
    "backend_config": '""',
    "batch_group_count": "1",
    "buffer_donor": "{}",
    "called_computations": "{}",
    "constrain_layout": "false",
    "control-predecessors": "{}",
    "custom_call_has_side_effect": "false",
    "execution_thread": '"main"',
    "feature_group_count": "1",
    "frontend_attributes": "{}",
    "has_dynamic_root": "false",
    "indices_are_sorted": "false",
    "infeed_config": '""',
    "input_batching_dims": "{}",
    "input_output_alias": "{}",
    "is_associative": "false",
    "is_composite": "false",
    "is_host_transfer": "false",
    "is_reverse": "false",
    "is_scheduled": "false",
    "is_stable": "false",
    "largest": "true",
    "left_side": "false",
    "lhs_batch_dims": "{}",
    "lower": "false",
    "mode": "cross_replica",
    "num_partitions": "1",
    "operand_batching_dims": "{}",
    "outfeed_config": '""',
    "output_to_operand_aliasing": "{}",
    "padding_type": "PADDING_INVALID",
    "replica_count": "1",
    "replica_groups": "{}",
    "result_accuracy": "{mode=default}",
    "rhs_batch_dims": "{}",
    "scatter_indices_batching_dims": "{}",
    "schedule": "SCHEDULE_NONE",
    "start_indices_batching_dims": "{}",
    "unique_indices": "false",
    "unit_diagonal": "false",
    "use_global_device_ids": "false",
}
# The older notation of a comparison's order.
_ORDERS = {"FLOAT": "PARTIAL", "SIGNED": "TOTAL", "TOTALORDER": "TOTAL", "UNSIGNED": "TOTAL"}

_MARKS = r"[{}()\[\],=:<]"
_SPACES = re.compile(rf"({STRING})|\s*({_MARKS})\s*|\s+", re.DOTALL)
_ARRAY = re.compile(r"([a-z]\w*)\[([^\[\]]*)\](\{[^{}]*\})?")
# A digest of the module before a pass, names included.
_FINGERPRINT = re.compile(r"fingerprint_before_\w+=\"[^\"]*\",?")


def says(key: str) -> AttributeMeaning:
    return ATTRIBUTES.get(key, AttributeMeaning.VALUE)


def is_commutative(statement: Statement) -> bool:
    """Return whether swapping the two operands of an operation keeps its result.

    Source: XLA's ``HloOpcodeIsBinaryCommutative``; and comparisons for equality.
    """
    opcode = statement[3]
    return opcode in _COMMUTATIVE or (
        opcode == "compare"
        and split_attributes(statement[5]).get("direction", "").strip() in ("EQ", "NE")
    )


_COMMUTATIVE = frozenset({"add", "and", "maximum", "minimum", "multiply", "or", "xor"})


def normal_attributes(attributes: str) -> dict[str, str]:
    """Return the meaningful attributes in a canonical notation, without defaults."""
    found = split_attributes(attributes)
    if "device_ids" in found and found.get("replica_groups", "").startswith("mesh"):
        found["replica_groups"] += f",device_ids={found.pop('device_ids')}"
    if "true_computation" in found and "false_computation" in found:
        branches = found.pop("true_computation"), found.pop("false_computation")
        found["branch_computations"] = "{" + ", ".join(branches) + "}"
    if "type" in found:
        order_text = found.pop("type").strip()
        found["order"] = _ORDERS.get(order_text, order_text)
    normal: dict[str, str] = {}
    for key, value in found.items():
        if says(key) is not AttributeMeaning.NOTHING:
            text = normal_value(key, value)
            if USUAL.get(key) != text and not (key == "operand_precision" and _is_usual(text)):
                normal[key] = text
    return normal


def _is_usual(precision: str) -> bool:
    return set(precision.strip("{}").split(",")) == {"default"}


def normal_value(key: str, value: str) -> str:
    """Return the value of an attribute in a canonical notation: no spaces and comments, device
    lists, default layouts, strides and paddings written out, JSON fields sorted.
    """
    if key == "backend_config":
        return _normal_json(value)
    if key == "sharding":
        return normal_sharding(value)
    text = without_spaces(value)
    notation = _NOTATIONS.get(key)
    return notation(text) if notation is not None else text


def _normal_json(text: str) -> str:
    """Return JSON with its fields sorted, also where a string quotes it; other text unchanged."""
    quoted = unescape(text) if text.startswith('"') else text
    if not quoted.lstrip().startswith("{"):
        return text
    try:
        return json.dumps(json.loads(quoted), sort_keys=True)
    except ValueError:
        return text


def _sorted_items(text: str) -> str:
    items = cut_at_commas(text[1:-1]) if text.startswith("{") else None
    return f"{{{','.join(sorted(items))}}}" if items is not None else text


def _aliases(text: str) -> str:
    """Return aliases in the order of the outputs. An alias is optional unless it says ``must``."""
    return _sorted_items(text.replace(",may-alias)", ")"))


def _paddings(text: str) -> str:
    """Return paddings without interior ones of 0: ``1_2_0x0_0_0`` as ``1_2x0_0``."""
    return re.sub(r"(-?\d+_-?\d+)_0(?!\d)", r"\1", text)


def _slices(text: str) -> str:
    """Return slices without strides of 1."""
    return re.sub(r"(\[\d+:\d+):1\]", r"\1]", text)


_WINDOW_FIELD = re.compile(r"(\w+)=([\w\-]+)")
_USUAL_OF_WINDOW = {
    "stride": "1", "pad": "0_0", "lhs_dilate": "1", "rhs_dilate": "1", "rhs_reversal": "0"
}  # fmt: skip


def _window(text: str) -> str:
    """Return the fields of a window sorted, without those that are usual in every dimension."""
    fields = sorted(
        f"{key}={value}"
        for key, value in _WINDOW_FIELD.findall(text)
        if {*value.split("x")} != {_USUAL_OF_WINDOW.get(key)}
    )
    return f"{{{' '.join(fields)}}}"


_TOLERANCE = re.compile(r"(\w+)=([\w.+\-]+)")


def _accuracy(text: str) -> str:
    """Return the tolerances of a result as numbers, with those that are 0 written out."""
    if "tolerance={" not in text:
        return text
    fields = dict(_TOLERANCE.findall(text.partition("tolerance={")[2]))
    try:
        numbers = [float(fields.get(key, 0)) for key in ("atol", "rtol", "ulps")]
    except ValueError:
        return text
    return "{{tolerance={}}}".format(",".join(map(repr, numbers)))


_NOTATIONS: dict[str, Callable[[str], str]] = {
    "buffer_donor": _sorted_items,
    "entry_computation_layout": lambda text: normal_shape(text),
    "frontend_attributes": _sorted_items,
    "input_output_alias": _aliases,
    "operand_layout_constraints": lambda text: normal_shape(text),
    "operand_precision": str.lower,
    "padding": _paddings,
    "replica_groups": explicit_groups,
    "result_accuracy": _accuracy,
    "slice": _slices,
    "window": _window,
}


def normal_constant(statement: Statement) -> str:
    """Return the value of a constant in a canonical notation."""
    literal = without_spaces(statement[4])
    return normal_literal(literal, without_spaces(statement[2]))


def without_spaces(text: str) -> str:
    """Return ``text`` without comments and, outside of strings, only with spaces between words."""
    if "/*" in text:
        text = strip_comments(text)
    if " " not in text and "\n" not in text:
        return text
    return _SPACES.sub(lambda piece: piece[1] or piece[2] or " ", text).strip()


def normal_shape(text: str) -> str:
    """Return a shape with the default layout (the last dimension is minor-most) written out, and
    without properties of layouts that have their default value.
    """
    return _ARRAY.sub(_with_layout, without_spaces(text))


# Properties of a layout with the values that the compiler does not print: dense dimensions, an
# alignment of one element, and the sizes and the memory space 0.
_USUAL_PROPERTIES = re.compile(r"D\(D(?:,D)*\)|L\(1\)|[ESM]\(0\)")


def _with_layout(array: re.Match[str]) -> str:
    element_type, dimensions, layout = array.groups()
    order, _, properties = (layout or "{}")[1:-1].partition(":")
    if properties:
        properties = _USUAL_PROPERTIES.sub("", properties)
    if not order:
        rank = dimensions.count(",") + 1 if dimensions else 0
        order = ",".join(map(str, reversed(range(rank))))
    inside = f"{order}:{properties}" if properties else order
    return (
        f"{element_type}[{dimensions}]{{{inside}}}" if inside else f"{element_type}[{dimensions}]"
    )


def normal_header(module: Module) -> dict[str, str]:
    """Return what the header of a module says about its execution, in a canonical notation."""
    header = normal_attributes(module.header)
    if "frontend_attributes" in header:
        left = _FINGERPRINT.sub("", header["frontend_attributes"])
        header["frontend_attributes"] = re.sub(r",\}", "}", left)
        if header["frontend_attributes"] == "{}":
            del header["frontend_attributes"]
    if "entry_computation_layout" not in header:  # the layout of the entry applies
        header["entry_computation_layout"] = entry_layout(module)
    return header


def entry_layout(module: Module) -> str:
    """Return the parameters and result of the entry, as its own instructions have them."""
    shapes = ",".join(
        normal_shape(parameter.statement.shape) for parameter in module.entry.parameters
    )
    return f"{{({shapes})->{normal_shape(module.entry.root.statement.shape)}}}"
