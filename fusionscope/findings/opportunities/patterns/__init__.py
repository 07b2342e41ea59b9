"""Waste with a name: each pattern is a small class."""

from __future__ import annotations

from fusionscope.findings.opportunities.patterns import calls, gradients, loops, products, rows
from fusionscope.findings.opportunities.patterns.program import Pattern

PATTERNS: tuple[Pattern, ...] = (
    loops.Recurrence(),
    loops.SearchLoop(),
    loops.RandomInLoop(),
    loops.Residuals(),
    loops.Sliced(),
    products.AttentionScores(),
    products.WideLogits(),
    products.SplitProduct(),
    products.Dequantized(),
    products.TurnedOperand(),
    gradients.Rematerialized(),
    rows.ScatterGradient(),
    rows.NarrowRows(),
    rows.StridedReduction(),
    rows.Padding(),
    calls.AlikeKernels(),
    calls.CopiedResult(),
    calls.EqualCalls(),
    calls.HostCalls(),
    calls.DoublePrecision(),
)
# Loops that are one of these have short steps for that reason.
LOOPS = frozenset({"recurrence", "search-loop"})
# What the model knows no time of: they are listed however little they take.
UNTIMED = frozenset({"host-calls"})
# Their advice is about the program: all places are one opportunity.
WHOLE = frozenset({"copied-result", "double-precision", "rematerialized", "split-product"})
