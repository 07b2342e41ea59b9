"""Maps the compiler's own messages, verbatim, to the rules they belong to.

The messages are those of ``FusionDecision`` in the sources of August 2026 and January 2023, and of
the shared objects of jaxlib 0.12.0.1; messages about anything other than fusion are omitted.
``{…}`` is a placeholder for text that the compiler inserts.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import chain

from fusionscope.passes.causes import CAUSES
from fusionscope.passes.tpu.rules import TPU_RULES
from fusionscope.versions import known

UNKNOWN = "unknown"
PASS_OFF = "pass-off"  # a flag disables the fusion pass

# In addition to the messages of the rules themselves.
MESSAGES = (
    # Instruction fusion, every backend.
    ("fusion pass cannot duplicate", "base-expensive-dup"),
    ("multi-output fusion creates a cycle", "base-regular-then-mof"),
    ("multi-output fusion not supported by this pass", "base-regular-then-mof"),
    # PriorityFusion, GPU.
    ("No users to fuse", "pf-all-users"),
    ("not fusing because there are only bitcast users", "pf-all-users"),
    ("the consumer is not fusible", "pf-is-fusible"),
    ("the producer is not fusible", "pf-is-fusible"),
    ("more than one consumer to fuse with", "pf-mof"),
    ("Negative benefit ({…})", "pf-negative"),
    ("Producer uses the in-place operand of a scatter", "pf-scatter"),
    ("do not fuse into the in-place operand of scatter", "pf-scatter"),
    ("do not fuse into the output of scatter", "pf-scatter"),
    # Limits of one GPU kernel.
    ("over {…} unnested reductions in fusion", "budget-reductions"),
    ("shared memory usage would be over the budget of {…}B", "budget-shmem"),
    # Multi-output fusion, GPU; some messages are those of January 2023.
    ("{…} and {…} would be too large of a fusion.", "mof-budget"),
    ("{…} and {…} are connected", "mof-connected"),
    ("multi-output fusion of a nested transpose with an unnested hero op", "mof-heroes"),
    ("multi-output fusion of a transpose and a reduction", "mof-heroes"),
    ("tiled reductions with different shapes", "mof-heroes"),
    ("tiled transpose would become untiled", "mof-heroes"),
    ("tiled transposes with different shapes", "mof-heroes"),
    ("MOF-fusion of a transpose and a reduction", "mof-heroes"),
    ("{…} would introduce a cycle when fused", "mof-pc-cycle"),
    ("{…} would introduce a cycle when fused.", "mof-pc-cycle"),
    ("In-place operations are present", "mof-pc-producer"),
    ("Producer is a multi-output fusion", "mof-pc-producer"),
    ("producer is not loop-fusible", "mof-pc-producer"),
    ("producer is physically transposing", "mof-pc-producer"),
    ("Producer is not a multi-output fusion", "mof-pc-producer"),
    ("not fusible as MOF root", "mof-root"),
    ("consumer is not fusible as multi-output-fusion-root", "mof-root"),
    ("user count is zero", "mof-sibling-cand"),
    ("merging with variadic reductions is not supported yet", "mof-sibling-cand"),
    ("there exists a non-GTE user", "mof-sibling-cand"),
    # Tiling of Triton fusions.
    (
        "Dot operand instruction {…} has a tile size of {…}, "
        "which exceeds the maximum MMA dimension size of {…}.",
        "tri-constraints",
    ),
    (
        "Instruction {…} has a padded tile size product "
        "that exceeds the maximum allowed tensor size of {…} elements.",
        "tri-constraints",
    ),
    ("Number of blocks {…}*{…} exceeds the device grid X limit of {…}.", "tri-constraints"),
    ("Root instruction {…} has a non-array shape.", "tri-constraints"),
    (
        "Root instruction {…} has a tile size of {…} in dimension {…}, "
        "which is neither a power of 2 nor equal to the dimension size {…}.",
        "tri-constraints",
    ),
    (
        "Root instruction {…} has {…} tile sizes, but its HLO shape has {…} dimensions.",
        "tri-constraints",
    ),
    ("No valid tilings found.", "tri-exec"),
    ("Couldn't compose indexing of instruction {…} and operand {…}", "tri-space"),
    ("Tiling constraints are unsatisfiable at HLO {…}", "tri-space"),
    ("Root fusion instruction is not supported.", "tri-space"),
    ("Failed to compute symbolic tile for {…} for HLO {…}", "tri-space"),
    ("Symbolic tile {…} is not satisfiable for {…} for HLO {…}", "tri-space"),
    ("Bailing out on reshape {…} with indexing map {…}", "tri-space"),
    ("Bailing out on {…}", "tri-space"),
    ("Fusion can not be tiled with SymbolicTileAnalysis: {…}", "tri-tiling"),
    ("TiledRunTimeDataOrError return status: {…}", "tri-tiling"),
    # The limits of the Triton emitter.
    ("F8E4M3FN, F8E5M2 and S4 are not supported for iota.", "triton-support"),
    ("Only scalar constants are supported in Triton.", "triton-support"),
    ("{…} for dot algorithm {…}", "triton-support"),
    (
        "Dot operation does not support floating point input and integer result types.",
        "triton-support",
    ),
    ("Dot operation does not support these integer types.", "triton-support"),
    ("Dot operation for F8E4M3FN is not supported before Hopper.", "triton-support"),
    ("Dot operation only supports F64 result type for F64 input type.", "triton-support"),
    ("Unsupported types: input={…}, result={…}", "triton-support"),
    ("F8E4M3FN and F8E5M2 are not supported for reductions.", "triton-support"),
    (
        "Multi-dimension reductions are only supported "
        "when experimental tiling propagation is enabled.",
        "triton-support",
    ),
    ("Reduction is not a reduction of a single operand.", "triton-support"),
    ("Reduction must have at least one dimension.", "triton-support"),
    ("Unsupported reduction computation by Triton.", "triton-support"),
    ("Only single-input, single-carry scans are supported in Triton.", "triton-support"),
    ("Reverse scan is not supported in Triton.", "triton-support"),
    ("Scan must return a tuple.", "triton-support"),
    ("Triton requires the scan combiner to be associative.", "triton-support"),
    ("Unsupported scan computation by Triton.", "triton-support"),
    ("fp8 are not supported for scans.", "triton-support"),
    ("Unsupported dot algorithm: {…}", "triton-support"),
    ("4-bit integer, F8E4M3FN and F8E5M2 are not supported for all-reduces.", "triton-support"),
    ("All-reduce does not have replica groups.", "triton-support"),
    ("Unsupported all-reduce computation by Triton.", "triton-support"),
    ("Concatenate operand is not aligned for tiling.", "triton-support"),
    ("S4 is not supported.", "triton-support"),
    ("Unsupported conversion in Triton: {…} to {…} with message:{…}", "triton-support"),
    ("Unsupported input type for conversion: {…}", "triton-support"),
    ("Unsupported output type for conversion: {…}", "triton-support"),
    ("BF16 is not supported on ROCm.", "triton-support"),
    ("F8E4M3FNUZ/F8E5M2FNUZ is only supported on ROCm.", "triton-support"),
    ("F8E4M3FNUZ/F8E5M2FNUZ not supported on Cuda.", "triton-support"),
    ("Unsupported GPU architecture for BF16.", "triton-support"),
    ("Unsupported GPU architecture for F8E4M3FN.", "triton-support"),
    ("Unsupported data type: {…}", "triton-support"),
    ("4-bit integer is not supported.", "triton-support"),
    ("Dot operation only supports same types for lhs and rhs.", "triton-support"),
    ("Nested fusions are not supported.", "triton-support"),
    ("Nested tuple or token shape is not supported.", "triton-support"),
    ("No-op pad ops are not allowed.", "triton-support"),
    ("Only high padding is supported.", "triton-support"),
    ("Unsupported elementwise operation.", "triton-support"),
    ("Unsupported input data type: {…}", "triton-support"),
    ("Unsupported instruction opcode {…}", "triton-support"),
    ("Unsupported opcode {…}", "triton-support"),
    ("Unsupported output data type: {…}", "triton-support"),
    (
        "bitcasts with different element types are not supported if PRED is involved",
        "triton-support",
    ),
    ("dynamic slice is supported but not enabled yet", "triton-support"),
    ("only bitcasts with the same number of elements are supported", "triton-support"),
    ("{…} is not supported", "triton-support"),
    ("Unsupported LHS operand type: {…}", "triton-support"),
    ("Unsupported LHS scale type: {…}", "triton-support"),
    ("Unsupported RHS operand type: {…}", "triton-support"),
    ("Unsupported RHS scale type: {…}", "triton-support"),
    ("Pads are only supported within GEMM fusions.", "triton-support"),
    # Fusions around a dot, GPU.
    ("Currently, S32 output is only supported for 8-bit integral inputs.", "gf-dot-support"),
    ("Dots between integer and floating-point types are not supported.", "gf-dot-support"),
    ("Non-fp8 input types must be the same.", "gf-dot-support"),
    ("Unsupported input data type for Dot op.", "gf-dot-support"),
    ("Unsupported output data type for Dot op.", "gf-dot-support"),
    ("Having non-default operand precisions for Dot op with unset algorithm.", "gf-dot-support"),
    ("Triton backend is not supported on Intel GPUs.", "gf-dot-support"),
    ("Unsupported algorithm on the current device(s): %s{…}", "gf-dot-support"),
    ("Unsupported input data type.", "gf-operation"),
    ("Unsupported output data type.", "gf-operation"),
    ("Dynamic slice is only supported with S8, S16, or S32 indices.", "gf-operation"),
    ("Unsupported dynamic slice on non-major-most dimension.", "gf-operation"),
    ("Bitcast-convert is not supported", "gf-operation"),
    ("No non-contracting dimensions.", "gf-dimensions"),
    ("Only supports root tuples.", "gf-operation"),
    ("Unsupported opcode.", "gf-operation"),
    (
        "Fusion is not possible because the parameter with the type S4 has minor batch dimension.",
        "gf-operation",
    ),
    ("Conflicting splits of splittable dimension", "gf-dimensions"),
    ("At least one operand of concatenation can not be perfectly tiled.", "gf-dimensions"),
    ("Concatenations on split non-contracting dimensions are unsupported.", "gf-dimensions"),
    ("No fusion into dynamic slice.", "gf-dimensions"),
    ("Non-bitcast reshape.", "gf-dimensions"),
    ("Unimplemented instruction.", "gf-dimensions"),
    ("Unsupported broadcast direction.", "gf-dimensions"),
    ("Unsupported concatenation.", "gf-dimensions"),
    ("Unsupported slice direction.", "gf-dimensions"),
    (
        "Not fusing power with multiple users because it may result in expensive op duplication.",
        "gf-power",
    ),
    ("Pads are not fused yet.", "gf-opcode"),
    ("Reductions are not fused yet.", "gf-opcode"),
    ("Unsupported instruction.", "gf-opcode"),
    ("Unsupported bitcast", "gf-dimensions"),
    ("Unsupported bitcast split alignment", "gf-dimensions"),
    ("Cannot propagate further from trivial sized tensor", "gf-dimensions"),
    ("Function called on a wrong instruction.", "gf-dimensions"),
    ("Only row reductions are supported.", "gf-dimensions"),
    ("Slice to scalar is not implemented yet.", "gf-dimensions"),
    ("Slicing of fragmented dimension.", "gf-dimensions"),
    (
        "Transposing sliced concatenate dimension to non-major-most physical position.",
        "gf-dimensions",
    ),
    ("Unsupported broadcast", "gf-dimensions"),
    ("Unsupported reduction.", "gf-dimensions"),
    ("2nd split of a splittable dimension.", "gf-dimensions"),
    ("Transpose within a dimension.", "gf-dimensions"),
    ("Unsupported split of a dimension.", "gf-dimensions"),
    ("Sliced non-major-most fragment physically.", "gf-dimensions"),
    ("Cannot fuse parameter.", "gf-fusible"),
    ("Consumer is not a user of producer.", "gf-fusible"),
    ("Failed to create tiling space: {…}", "gf-tiling"),
    ("Fusion is not tileable with experimental tiling: {…}", "gf-tiling"),
    ("Cannot tile the dot instruction.", "gf-tiling"),
    ("No shape tracker found for transpose.", "gf-transpose"),
    ("Contracting dimension has non-contiguous section.", "gf-transpose"),
    ("Dot not found in fusion.", "gf-tiling"),
    ("Failed to get dot operand dims.", "gf-transpose"),
    ("Failed to invert shape tracker: {…}", "gf-transpose"),
    ("Failed to prepend transpose: {…}", "gf-transpose"),
    ("Non-contracting RHS dimension has non-contiguous section.", "gf-transpose"),
    ("Not fusing concatenate along contracting dimension.", "gf-concatenate"),
    ("Not fusing concatenate into epilogue.", "gf-concatenate"),
    ("Failed to map concat dimension to dot operand dimension.", "gf-concatenate"),
    (
        "Transpose within a non-contracting dimension can be fused into its user instead.",
        "gf-transpose-behind",
    ),
    # Normalization diamonds, GPU.
    ("Reduction identity is not a constant or a supported convert of a constant.", "sm-reduce-ok"),
    ("SymbolicTileAnalysis failed: {…}", "sm-tiling-search"),
    # Instruction fusion and fusion merger of older GPU compilers.
    ("merged-to-current-bytes-ratio of {…} is not favorable", "leg-fm-bytes"),
    ("if merged with {…} will generate huge IR", "leg-fm-ir"),
    ("Reduction epilogue fusion is not enabled.", "leg-pc-reduction-epilogue"),
    ("Reduction output fusion only works for race free reductions", "leg-pc-reduction-epilogue"),
    ("Reductions from/to continuous dims epilogue not fusible", "leg-pc-reduction-epilogue"),
    ("reduction output fusion only works for single user", "leg-pc-reduction-epilogue"),
)

# Messages that belong to different rules in different passes: the rule in that pass, by the rule
# elsewhere. Passes have their names in the labels of the Fusion Explorer.
_IN_PASS = {
    "PriorityFusion": {"base-root": "pf-root"},
    "InstructionFusion": {"pf-code-dup": "leg-code-dup"},
    "FusionMerger": {"mof-pc-cost": "leg-fm-cost", "mof-heroes": "leg-fm-heroes"},
    "multi-output fusion": {"leg-fm-ir": "mof-pc-size"},
}


@cache
def rule_ids() -> frozenset[str]:
    """Return the ids of all rules, and the reasons that belong to no rule."""
    return frozenset(
        [UNKNOWN, PASS_OFF]
        + [rule for _, rule in MESSAGES]
        + [rule.id for rule in known.all_rules()]
        + [cause.id for cause in CAUSES]
        + [rule.id for rule in TPU_RULES]
        + [rule for meanings in _IN_PASS.values() for rule in meanings.values()]
    )


_WILDCARD = "{…}"
_EXACT = {message: rule for message, rule in MESSAGES if _WILDCARD not in message}
# The others as their literal parts. Those that begin with a literal come first, the longest of
# these first of all.
_PATTERNS = sorted(
    ((message.split(_WILDCARD), rule) for message, rule in MESSAGES if _WILDCARD in message),
    key=lambda row: (not row[0][0], -sum(map(len, row[0]))),
)
# A TPU build ends each reason with its source location, which differs between builds.
_SOURCE_LOCATION = re.compile(r"(?: at: \S+:\d+)+$")


def rule_of(message: str, pass_name: str | None = None) -> str:
    """Return the id of the rule with this message, or ``unknown``.

    Of two reasons joined by `` ; `` the first decides: the second is that of the multi-output path,
    which is tried only after the first refused. ``pass_name`` selects between passes with the same
    message; without it, the newer pass is assumed.
    """
    reason = _SOURCE_LOCATION.sub("", message.partition(" ; ")[0])
    rule = _EXACT.get(reason)
    if rule is None:
        fitting = (rule for literals, rule in _PATTERNS if _fits(reason, literals))
        rule = next(fitting, None) or _rule_with(reason)
    return _IN_PASS.get(pass_name or "", {}).get(rule, rule)


def _rule_with(message: str) -> str:
    """Return the rule with this message. This loads no more compilers than necessary."""
    ids = (_messages_of(compiler).get(message) for compiler in known.COMPILERS)
    return next((id for id in ids if id is not None), UNKNOWN)


@cache
def _messages_of(compiler: str) -> dict[str, str]:
    """Return messages with the ids of their rules, of those that share one the first."""
    rules = tuple(chain(*known.load_compiler(compiler).books))
    return {rule.message: rule.id for rule in reversed(rules) if rule.message}


def _fits(reason: str, literals: list[str]) -> bool:
    """Return whether the literals occur in the reason in order, the outer ones at its ends.

    Time is linear in the reason, which comes from a file and may be of any length.
    """
    first, *inner, last = literals
    if not (reason.startswith(first) and reason.endswith(last)):
        return False
    position, end = len(first), len(reason) - len(last)
    for literal in inner:
        start = reason.find(literal, position, end)
        if start < 0:
            return False
        position = start + len(literal)
    return position <= end
