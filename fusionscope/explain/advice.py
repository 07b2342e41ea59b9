"""Each rule with its title, and what to try if it is an obstacle.

Advice names one lever that is known to act: a compiler flag or a change of the program. Rules that
keep results right have none.
"""

from __future__ import annotations

from typing import NamedTuple

from fusionscope.passes.causes import CAUSES, LibraryCall
from fusionscope.passes.rule import Rule
from fusionscope.versions import known


class RuleText(NamedTuple):
    """``title`` completes "not fused:"; ``advice`` is None where no lever is known."""

    title: str
    advice: str | None = None


_NO_SOFTMAX_FUSION = (
    "XLA_FLAGS=--xla_disable_hlo_passes=triton-softmax-rewriter forms no Triton normalization "
    "fusion and leaves the decision to the ordinary emitters"
)
_OTHER_GEMM_FUSION = (
    "XLA_FLAGS=--xla_gpu_experimental_gemm_fusion_v2={} selects the other algorithm for fusing "
    "around a dot"
)
_PRIORITY_FUSION = (
    "PriorityFusion decides by other rules: it is the default from jaxlib 0.4.34 on, unless "
    "disabled with --xla_gpu_enable_priority_fusion=false"
)


def _lever(rule: Rule) -> str | None:
    """What the rule itself says, and how to see what other thresholds would do."""
    levers = [rule.lever] if rule.lever else []
    limits = [f"{name}={value}" for name, value in rule.thresholds.items()]
    if len(limits) == 1:
        (name,) = rule.thresholds
        levers.append(f"explain --set {rule.id}.{name}=N shows the plan with another {limits[0]}")
    elif limits:
        shown = ", ".join(limits)
        levers.append(f"explain --set {rule.id}.NAME=N shows the plan with another {shown}")
    return "; ".join(levers) or None


# Of reasons that are no rules.
_TEXTS = {
    **{cause.id: RuleText(cause.title, cause.lever) for cause in CAUSES},
    "unknown": RuleText("reason not known"),
    "pass-off": RuleText(
        "a flag keeps the fusion pass from running",
        "see --xla_disable_hlo_passes and --xla_enable_hlo_passes_only",
    ),
    "base-regular-then-mof": RuleText("multi-output fusion is not possible either"),
    "pf-mof": RuleText("several consumers, but only one could be fused"),
    "mof-budget": RuleText("exceeds the limits of one kernel"),
    "mof-pc-consumer": RuleText("a cycle, or too much code"),
    "tri-constraints": RuleText("tile sizes that Triton does not support"),
    "tri-exec": RuleText("no tiling fits", _NO_SOFTMAX_FUSION),
    "tri-space": RuleText("no tiling can be derived"),
    "gf-lone": RuleText("nothing to fuse with the dot"),
    "leg-fm-bytes": RuleText("merging would move more bytes", _PRIORITY_FUSION),
}

# What keeps its neighbours out by being a kernel of its own: opcode, start of the custom call's
# target, and what to try.
_BOUNDARIES = (
    (
        "custom-call",
        "__cudnn$conv",
        "cuDNN fuses only a scaling, a bias, a side input and ReLU into the call; "
        "XLA_FLAGS=--xla_gpu_experimental_enable_conv_fusion=true builds cuDNN fusions with more",
    ),
    (
        "custom-call",
        "__cublas",
        "cuBLASLt fuses only a scaling, the addition of a bias or another array, and ReLU or GELU "
        "by tanh into the call; XLA_FLAGS=--xla_gpu_enable_triton_gemm=true lets Triton emit the "
        "dot",
    ),
    ("dot", "", "the dot has a kernel of its own; " + _OTHER_GEMM_FUSION.format("false|true")),
)
_NEVER_FUSIBLE = frozenset({LibraryCall.id})
_CONTROL_FLOW = frozenset({"call", "conditional", "tuple", "while"})  # nothing can be done about it


# Advice about a value with several consumers.
_SHARED = frozenset({"pf-negative", "base-expensive-dup", "base-globally-unfusible"})


def advice_for(rule: str, ends: tuple[tuple[str, str], ...], *, shared: bool) -> str | None:
    """What to try where ``rule`` refused a pair.

    ``ends`` are opcode and custom-call target of the producer and the consumer; ``shared`` says
    whether the producer has other consumers.
    """
    if rule in _SHARED and not shared:
        return None
    if rule in _NEVER_FUSIBLE:
        for opcode, target, text in _BOUNDARIES:
            if any(opcode == own and found.startswith(target) for own, found in ends):
                return text
        if any(opcode in _CONTROL_FLOW for opcode, _ in ends):
            return None
    known_text = text_of(rule)
    return known_text.advice if known_text else None


def text_of(reason: str) -> RuleText | None:
    """None where ``reason`` is the id of no rule, and of nothing else that is known."""
    rule = known.find_rule(reason) if reason not in _TEXTS else None
    return _TEXTS.get(reason) if rule is None else RuleText(rule.title, _lever(rule))
