"""The operations of HLO and the number of operands of each.

Source: xla/hlo/ir/hlo_opcode.h; names of older versions are kept. An operation that is not listed
(of a newer XLA) is read with any number of operands.
"""

from __future__ import annotations

_FIXED = {
    0: "constant iota parameter partition-id replica-id rng-get-and-update-state",
    1: """abs acos acosh asin asinh all-gather-done all-reduce-done atanh bitcast bitcast-convert
    broadcast cbrt ceil cholesky collective-permute-done convert copy copy-done copy-start cosine
    cosh count-leading-zeros domain erf exponential exponential-minus-one fft floor
    get-dimension-size get-tuple-element imag is-finite log log-plus-one logistic negate not
    opt-barrier popcnt real recv-done reduce-precision reshape reverse rng-bit-generator
    round-nearest-afz round-nearest-even rsqrt send-done sign sine sinh slice sqrt tan tanh topk
    transpose while""",
    2: """add add-dependency and atan2 compare complex divide maximum minimum mulhi multiply or pad
    power remainder set-dimension-size shift-left shift-right-arithmetic shift-right-logical
    stochastic-convert subtract triangular-solve xor""",
    3: "batch-norm-training clamp ragged-dot select select-and-scatter tuple-select",
    5: "batch-norm-grad batch-norm-inference",
    6: "ragged-all-to-all",
}

# Operations whose number of operands is fixed.
OPERAND_COUNT: dict[str, int] = {
    opcode: count for count, opcodes in _FIXED.items() for opcode in opcodes.split()
}

# Operations that take any number, or a number that changed between versions of XLA.
VARIADIC = frozenset(
    """after-all all-gather all-gather-start all-reduce all-reduce-start all-to-all async-done
    async-start async-update call collective-broadcast collective-permute
    collective-permute-start concatenate conditional convolution custom-call dot dynamic-reshape
    dynamic-slice dynamic-update-slice fusion gather infeed map outfeed recv reduce reduce-scatter
    reduce-window rng scaled-dot scan scatter send sort trace tuple""".split()
)

# The least that some of them take.
LEAST_OPERANDS = {
    "async-done": 1,
    "async-update": 1,
    "conditional": 1,
    "convolution": 2,
    "dot": 2,
    "dynamic-reshape": 1,
    "dynamic-slice": 1,
    "dynamic-update-slice": 2,
    "gather": 2,
    "reduce": 2,
    "reduce-window": 2,
    "scaled-dot": 2,
    "scatter": 3,
}

OPCODES = frozenset(OPERAND_COUNT) | VARIADIC

# Elementwise operations of one operand, and of two.
UNARY = frozenset(
    """abs acos acosh asin asinh atanh bitcast-convert cbrt ceil convert copy cosine cosh
    count-leading-zeros erf exponential exponential-minus-one floor imag is-finite log log-plus-one
    logistic negate not popcnt real reduce-precision round-nearest-afz round-nearest-even rsqrt sign
    sine sinh sqrt tan tanh""".split()
)
BINARY = frozenset(
    """add and atan2 compare complex divide maximum minimum mulhi multiply or power remainder
    shift-left shift-right-arithmetic shift-right-logical stochastic-convert subtract xor""".split()
)
