"""The attributes that each operation takes, as the compiler's parser knows them.

Source: xla/hlo/parser/hlo_parser.cc, CreateInstruction and ParseInstructionRhs. Keys that only
older versions print are kept.
"""

from __future__ import annotations

from typing import NamedTuple


class AttributeKeys(NamedTuple):
    """The keys that an operation takes, and those that it cannot do without."""

    allowed: frozenset[str]
    required: frozenset[str]


_OF_ALL = """backend_config control-predecessors frontend_attributes metadata origin original_value
    parameter_replication sharding statistics"""
_GROUPS = "channel_id constrain_layout replica_groups use_global_device_ids async_group_id"
_DOT = """algorithm block_scaling_config lhs_batch_dims lhs_contracting_dims operand_precision
    rhs_batch_dims rhs_contracting_dims sparsity sparsity_config"""
_CONVOLUTION = "batch_group_count dim_labels feature_group_count operand_precision window"
_ASYNC = "async_execution_thread async_group_id calls"

# Opcodes, and their keys; those with an exclamation mark are required.
_TABLE = (
    ("all-gather all-gather-start", f"{_GROUPS} dimensions!"),
    ("all-reduce all-reduce-start", f"{_GROUPS} mode to_apply!"),
    ("all-to-all", f"{_GROUPS} dimensions"),
    ("async-done", _ASYNC),
    ("async-start", f"{_ASYNC} output_to_operand_aliasing calls!"),
    ("async-update", f"{_ASYNC} output_to_operand_aliasing"),
    ("batch-norm-grad batch-norm-inference batch-norm-training", "epsilon! feature_index!"),
    ("broadcast", "dimensions"),
    ("call", "is_composite to_apply!"),
    ("cholesky", "lower"),
    ("collective-broadcast", "channel_id has_dynamic_root replica_groups"),
    ("collective-permute collective-permute-start", "channel_id slice_sizes source_target_pairs!"),
    ("compare", "direction! order type"),
    ("concatenate get-dimension-size set-dimension-size transpose reverse", "dimensions!"),
    ("conditional", "branch_computations false_computation true_computation"),
    ("convolution", f"{_CONVOLUTION} algorithm block_scaling_config convolution_kind "
     "dim_labels! sparsity_config"),
    ("copy-start", "cross_program_prefetch_index is_cross_program_prefetch"),
    ("custom-call", f"{_CONVOLUTION} api_version called_computations custom_call_has_side_effect "
     "custom_call_target! literal operand_layout_constraints output_to_operand_aliasing "
     "padding_type schedule to_apply"),
    ("domain", "domain!"),
    ("dot scaled-dot", _DOT),
    ("dynamic-slice", "dynamic_slice_sizes!"),
    ("fft", "fft_length! fft_type!"),
    ("fusion", "calls! kind! output_to_operand_aliasing"),
    ("gather", "collapsed_slice_dims! index_vector_dim! indices_are_sorted offset_dims! "
     "operand_batching_dims slice_sizes! start_index_map! start_indices_batching_dims"),
    ("get-tuple-element", "index!"),
    ("infeed", "infeed_config"),
    ("iota", "iota_dimension!"),
    ("map reduce", "dimensions to_apply!"),
    ("outfeed", "outfeed_config outfeed_shape"),
    ("pad", "padding!"),
    ("ragged-all-to-all", "channel_id dimensions replica_groups"),
    ("ragged-dot", f"{_DOT} lhs_ragged_dims rhs_group_dims"),
    ("recv recv-done send send-done", "channel_id is_host_transfer"),
    ("reduce-precision", "exponent_bits! mantissa_bits!"),
    ("reduce-scatter", f"{_GROUPS} dimensions! mode to_apply!"),
    ("reduce-window", "to_apply! window"),
    ("reshape", "inferred_dimension"),
    ("rng", "distribution!"),
    ("rng-bit-generator", "algorithm!"),
    ("rng-get-and-update-state", "delta!"),
    ("scan", "dimensions! is_associative is_reverse num_carries! to_apply!"),
    ("scatter", "index_vector_dim! indices_are_sorted input_batching_dims inserted_window_dims! "
     "scatter_dims_to_operand_dims! scatter_indices_batching_dims to_apply! unique_indices "
     "update_window_dims!"),
    ("select-and-scatter", "scatter! select! window"),
    ("slice", "slice!"),
    ("sort", "dimensions! is_stable to_apply!"),
    ("topk", "is_stable k! largest"),
    ("triangular-solve", "left_side lower transpose_a unit_diagonal"),
    ("while", "body! condition!"),
    ("acos acosh asin asinh atanh cbrt cosh cosine erf exponential exponential-minus-one log "
     "log-plus-one logistic rsqrt sine sinh sqrt tan tanh", "result_accuracy"),
)  # fmt: skip


def _keys(text: str) -> AttributeKeys:
    keys = f"{_OF_ALL} {text}".split()
    required = frozenset(key[:-1] for key in keys if key.endswith("!"))
    return AttributeKeys(frozenset(key.rstrip("!") for key in keys), required)


# The keys of operations that are not listed.
COMMON = _keys("")
ATTRIBUTE_KEYS: dict[str, AttributeKeys] = {
    opcode: _keys(keys) for opcodes, keys in _TABLE for opcode in opcodes.split()
}

HEADER = _keys(
    """alias_passthrough_params allow_spmd_sharding_propagation_to_output
    allow_spmd_sharding_propagation_to_parameters buffer_donor debug_attributes
    entry_computation_layout frontend_attributes input_output_alias is_scheduled num_partitions
    origin_recovery_table original_value_recovery_table replica_count"""
)
ALL_KEYS = frozenset({"execution_thread"}).union(
    HEADER.allowed, COMMON.allowed, *(keys.allowed for keys in ATTRIBUTE_KEYS.values())
)
