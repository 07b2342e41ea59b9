"""The meaning of an instruction's text, independent of notation.

Each attribute has one kind of meaning (``Says``). An attribute that is not listed counts as part of
the computation, so a new one of another compiler version is never overlooked.
"""

from __future__ import annotations

import json
import re
from enum import Enum, auto

from fusionscope.hlo import Module
from fusionscope.hlo.attributes import CALLS, read_value, split_attributes
from fusionscope.hlo.devices import explicit_groups, explicit_sharding
from fusionscope.hlo.model import Statement
from fusionscope.hlo.text import STRING, strip_comments


class Says(Enum):
    VALUE = auto()  # determines the value
    EXECUTION = auto()  # determines where or how: a difference in execution, but not in the value
    CALLS = auto()  # names of computations: their contents count
    ORDER = auto()  # names of instructions to wait for
    CHANNEL = auto()  # a number: only its presence and the instructions that share it count
    NOTHING = auto()  # notes for people and tools


_VALUE = """algorithm api_version batch_group_count collapsed_slice_dims comparison_type
    constrain_layout custom_call_has_side_effect custom_call_target delta dim_labels
    dimensions direction distribution dynamic_slice_sizes exponent_bits
    feature_group_count feature_index fft_length fft_type index index_vector_dim
    indices_are_sorted infeed_config input_batching_dims inserted_window_dims
    iota_dimension is_reverse is_stable k largest left_side lhs_batch_dims
    lhs_contracting_dims lhs_ragged_dims lower mantissa_bits offset_dims
    operand_batching_dims operand_precision outfeed_config padding replica_groups
    rhs_batch_dims rhs_contracting_dims rhs_group_dims scatter_dims_to_operand_dims
    scatter_indices_batching_dims slice slice_sizes source_target_pairs split_dimension
    start_index_map start_indices_batching_dims transpose_a unique_indices unit_diagonal
    update_window_dims use_global_device_ids window"""
_EXECUTION = """alias_passthrough_params allow_spmd_sharding_propagation_to_output
    allow_spmd_sharding_propagation_to_parameters async_execution_thread backend_config
    buffer_donor entry_computation_layout execution_thread frontend_attributes
    input_output_alias is_host_transfer is_scheduled kind num_partitions
    operand_layout_constraints output_to_operand_aliasing parameter_replication
    replica_count sharding"""

# Attributes of instructions, of module headers, and of computation footers.
ATTRIBUTES: dict[str, Says] = {
    **dict.fromkeys(_VALUE.split(), Says.VALUE),
    **dict.fromkeys(_EXECUTION.split(), Says.EXECUTION),
    **dict.fromkeys(CALLS, Says.CALLS),
    "control-predecessors": Says.ORDER,
    "channel_id": Says.CHANNEL,
    "metadata": Says.NOTHING,  # the user's line and name
    "origin": Says.NOTHING,  # the user's array that this was
    "statistics": Says.NOTHING,  # for visualizers
}

# The values that mean the same as a missing attribute.
USUAL = {
    "alias_passthrough_params": "false",
    "async_execution_thread": '"main"',
    "api_version": "API_VERSION_ORIGINAL",
    "batch_group_count": "1",
    "buffer_donor": "{}",
    "constrain_layout": "false",
    "control-predecessors": "{}",
    "custom_call_has_side_effect": "false",
    "execution_thread": '"main"',
    "feature_group_count": "1",
    "frontend_attributes": "{}",
    "indices_are_sorted": "false",
    "input_output_alias": "{}",
    "is_host_transfer": "false",
    "is_reverse": "false",
    "is_scheduled": "false",
    "is_stable": "false",
    "num_partitions": "1",
    "replica_count": "1",
    "unique_indices": "false",
    "use_global_device_ids": "false",
}

_MARKS = r"[{}()\[\],=:<]"
_SPACES = re.compile(rf"({STRING})|\s*({_MARKS})\s*|\s+", re.DOTALL)
_ARRAY = re.compile(r"([a-z]\w*)\[([^\[\]]*)\](\{[^{}]*\})?")
# A digest of the module before a pass, names included.
_FINGERPRINT = re.compile(r"fingerprint_before_\w+=\"[^\"]*\",?")


def says(key: str) -> Says:
    return ATTRIBUTES.get(key, Says.VALUE)


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
    normal: dict[str, str] = {}
    for key, value in found.items():
        if says(key) is not Says.NOTHING:
            text = normal_value(key, value)
            if USUAL.get(key) != text and not (key == "operand_precision" and _is_usual(text)):
                normal[key] = text
    return normal


def _is_usual(precision: str) -> bool:
    return set(precision.strip("{}").split(",")) == {"default"}


def normal_value(key: str, value: str) -> str:
    """Return the value of an attribute in a canonical notation: no spaces and comments, device
    lists and default layouts written out, JSON fields sorted.
    """
    if value.startswith('{"'):
        read = read_value(key, value)
        return json.dumps(read, sort_keys=True) if isinstance(read, dict) else value
    text = without_spaces(value)
    if key == "replica_groups":
        return explicit_groups(text)
    if key == "sharding":
        return explicit_sharding(text)
    if key == "entry_computation_layout" or key == "operand_layout_constraints":
        return normal_shape(text)
    return text


def without_spaces(text: str) -> str:
    """Return ``text`` without comments and, outside of strings, only with spaces between words."""
    if "/*" in text:
        text = strip_comments(text)
    if " " not in text and "\n" not in text:
        return text
    return _SPACES.sub(lambda found: found[1] or found[2] or " ", text).strip()


def normal_shape(text: str) -> str:
    """Return a shape with the default layout (the last dimension is minor-most) written out."""
    return _ARRAY.sub(_with_layout, without_spaces(text))


def _with_layout(array: re.Match[str]) -> str:
    element_type, dimensions, layout = array.groups()
    if layout is None or layout == "{}":
        rank = dimensions.count(",") + 1 if dimensions else 0
        layout = f"{{{','.join(map(str, reversed(range(rank))))}}}" if rank else ""
    return f"{element_type}[{dimensions}]{layout}"


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
    shapes = ",".join(normal_shape(each.statement.shape) for each in module.entry.parameters)
    return f"{{({shapes})->{normal_shape(module.entry.root.statement.shape)}}}"
