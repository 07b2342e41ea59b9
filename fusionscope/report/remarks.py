"""Pairs as LLVM's optimization remarks, which its tools and editors read: one document each.

The form is that of LLVM's ``-fsave-optimization-record`` (llvm/lib/Remarks, YAMLRemarkSerializer).
"""

from __future__ import annotations

from collections.abc import Iterator

from fusionscope.facts.result import Explanation, ModuleFacts, PairFacts
from fusionscope.reasons.why import why
from fusionscope.words.text import safe

_KINDS = {"fused": "Passed", "duplicated": "Passed", "not-fused": "Missed", "gone": "Analysis"}
_PASS = "fusion"  # where the dump does not tell which


def to_remarks(explanation: Explanation) -> str:
    """Return the pairs of all explained modules. A name is the reason, or else the outcome; the
    place is that of the producer, or else of the consumer.
    """
    return "".join(
        f"{line}\n"
        for module in explanation.modules
        for pair in module.pairs
        for line in _remark(module, pair)
    )


def _remark(module: ModuleFacts, pair: PairFacts) -> Iterator[str]:
    yield f"--- !{_KINDS[pair.outcome]}"
    yield f"Pass:            {_quoted(pair.decided_by or _PASS)}"
    yield f"Name:            {_quoted(pair.reason or pair.outcome)}"
    file, _, line = (pair.producer.source or pair.consumer.source or "").rpartition(":")
    if file and line.isdigit():
        yield f"DebugLoc:        {{ File: {_quoted(file)}, Line: {line}, Column: 0 }}"
    yield f"Function:        {_quoted(module.name)}"
    yield "Args:"
    for key, value in _arguments(pair):
        yield f"  - {key + ':':<16}{_quoted(value)}"
    yield "..."


def _arguments(pair: PairFacts) -> Iterator[tuple[str, str]]:
    """Yield the parts of a message that reads as one sentence."""
    yield "Producer", pair.producer.name
    yield "String", " -> "
    yield "Consumer", pair.consumer.name
    yield "String", f": {why(pair)}, bytes between: "
    yield "Bytes", str(pair.bytes_saved)


def _quoted(text: str) -> str:
    """Return a text as a scalar of YAML."""
    return "'" + safe(text).replace("'", "''") + "'"
