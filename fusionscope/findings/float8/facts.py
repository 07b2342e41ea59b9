"""Products of 8-bit floats, and why they are no call of the library for them."""

from __future__ import annotations

from fusionscope.facts.facts import Facts


class Float8Product(Facts, frozen=True, kw_only=True, rename={"at": "instruction"}):
    """A product of which at least one operand is computed from 8-bit floats.

    name: the dot in ``stage``
    stage: label of the stage in which it was examined, before products become calls
    source: the user's line, as ``file:line``
    made_by: who computes it in the final module: ``cuBLASLt``, ``Triton``, …; null if unknown
    is_call: whether that is a call of cuBLASLt that reads 8-bit floats and scales them
    rule: the first condition for such a call that is not met, from ``rules``; null if all are
    at: the instruction of ``stage`` that does not meet it; null if it is the dot
    why: what it found; empty if all conditions are met
    edit: lines of HLO that ``stage`` has more, or in place of others, if it is edited so that it
        meets this condition; empty if there is no such edit, or an earlier one of the same
        condition shows it
    edit_changes: how the edit changes the result, such as ``the left operand is rounded to
        f8e4m3fn``; empty if only by rounding
    """

    finding = "float8"

    name: str
    stage: str
    source: str | None
    made_by: str | None
    is_call: bool
    rule: str | None
    at: str | None
    why: str
    edit: tuple[str, ...]
    edit_changes: str


class Fields(Facts, frozen=True):
    """
    float8: products of 8-bit floats on NVIDIA GPUs
    """

    float8: tuple[Float8Product, ...] = ()
