"""What follows a library call, and why it is no part of it."""

from __future__ import annotations

from fusionscope.facts.facts import Facts


class Epilogue(Facts, frozen=True, kw_only=True, rename={"at": "instruction"}):
    """A call that computes more than a product or a convolution, or is followed by what one could.

    library: ``cuBLASLt`` or ``cuDNN``
    name: the call in ``stage``
    stage: label of the stage in which it was examined, right after calls were made
    source: the user's line, as ``file:line``
    includes: what it also computes: ``bias``, ``ReLU``, ``scaling by 0.5``, …
    step: what follows next and is no part of it: ``bias``, ``addition of another array``,
        ``ReLU``, ``GELU``, ``scaling``, and after a convolution ``ReLU6``, ``ELU`` or ``leaky
        ReLU``; null if nothing does
    operation: the instruction of ``stage`` that computes this step; null as ``step`` is
    rule: the first condition that it does not meet, from ``rules``; null if it meets all
    at: the instruction of ``stage`` that does not meet it; null if ``rule`` is
    why: what was found there; empty if all conditions are met
    edit: lines of HLO that ``stage`` has more, or in place of others, if it is edited so that it
        meets this condition without another result but for rounding; empty if there is no such
        edit, or an earlier one of the same condition shows it
    """

    finding = "epilogues"

    library: str
    name: str
    stage: str
    source: str | None
    includes: tuple[str, ...]
    step: str | None
    operation: str | None
    rule: str | None
    at: str | None
    why: str
    edit: tuple[str, ...]


class Fields(Facts, frozen=True):
    """
    epilogues: calls of cuBLASLt and cuDNN on NVIDIA GPUs and what follows them
    """

    epilogues: tuple[Epilogue, ...] = ()
