"""The JSON output of ``fusionscope check``."""

from __future__ import annotations

from typing import Annotated, ClassVar

from fusionscope.dump.agreement import Agreement
from fusionscope.report.documents.form import At, Form


class Growth(Form):
    """A figure that grew.

    figure: ``launches``, ``bytes``, ``time``, ``headroom``, ``peak`` or ``spills``
    before: what it was
    after: what it is
    """

    figure: str
    before: float
    after: float


class Violation(Form):
    """What is not as expected.

    module: the module, empty if none was found
    what: what is not so, in words
    about: the pair, operation or kernel; empty if it concerns all
    source: the user's line, as ``file:line``
    reason: the rule that refused it
    because: what that rule says
    evidence: the source of the reason, as in ``pairs[].evidence`` of ``explain``
    growth: the figure that grew; null if it is not about one
    """

    module: str
    what: str
    about: str
    source: str | None
    reason: str | None
    because: str | None
    evidence: str | None
    growth: Growth | None


class AllowedViolation(Violation):
    """A violation that an exception allows.

    until: the last day of the exception, as ``2026-01-31``
    why: the user's reason
    """

    inherited: ClassVar = At("violation")
    until: Annotated[str, At(lambda allowed: allowed.allowance.until.isoformat())]
    why: Annotated[str, At("allowance.why")]


class Expectation(Form):
    """A line of the file of expectations, and what became of it.

    expectation: what is expected
    message: the user's own words, empty without
    line: line in the file, from 1
    met: whether it is
    modules: the modules that it was asked of
    violations: what is not so
    allowed: violations that an exception allows
    notes: what merely changed
    """

    expectation: str
    message: Annotated[str, At("expectation.message")]
    line: Annotated[int | None, At("expectation.line")]
    met: Annotated[bool, At("is_met")]
    modules: list[str]
    violations: list[Violation]
    allowed: list[AllowedViolation]
    notes: list[str]


class ModuleRules(Form):
    """The rules that gave reasons for one module.

    dump: the dump
    module: the module
    name: the name of the rules, as for ``--rules``
    version: what made the dump, in words
    shown_by: the evidence for the version in the dump; null if there is none
    checked: whether the rules were checked against dumps of that version
    plans: plans of the replay, and how many agree with the dump
    guessed: the passes whose reasons are guesses
    """

    dump: Annotated[str, At("0")]
    module: Annotated[str, At("1")]
    name: Annotated[str, At("2.name")]
    version: Annotated[str, At("2.version")]
    shown_by: Annotated[str | None, At("2.shown_by")]
    checked: Annotated[bool, At("2.are_checked")]
    plans: Annotated[Agreement, At("2.plans")]
    guessed: Annotated[list[str], At("2.guessed")]


class Figures(Form):
    """The cost of one run of a module.

    kernels: kernels, library calls among them
    launches: launches of one run
    bytes: bytes that they move
    time_us: estimated time of one run, microseconds; null if unknown
    headroom_us: by how much it is above its bound; null if unknown
    peak: bytes of memory at the peak; null if unknown
    spills: bytes that kernels spill; null if unknown, or if nothing is expected of them
    """

    kernels: Annotated[int, At("kernel_count")]
    launches: int
    bytes: Annotated[int, At("bytes_moved")]
    time_us: float | None
    headroom_us: float | None
    peak: Annotated[int | None, At("peak_bytes")]
    spills: Annotated[int | None, At("spill_bytes")]


class Module(Form):
    """The figures of a module, before and now.

    module: its name
    program: its program in a matrix, empty without one
    target: its target in a matrix, empty without one
    before: its figures before; null if it did not exist, or was compared with nothing
    now: its figures now; null if it does not exist
    """

    module: Annotated[str, At("name")]
    program: str
    target: str
    before: Figures | None
    now: Figures | None


class Document(Form, tag_field="schema", tag="fusionscope.check/1"):
    """``fusionscope check [DUMP…] --format json``.

    dumps: what was checked: paths, or ``PROGRAM on TARGET`` in a matrix
    met: whether all expectations are
    against: what modules are compared with: ``the baseline``, or a revision or dump; null if with
        nothing
    modules: the modules, also those that only the baseline or revision has
    expectations: what did not compile, then in the order of the file, then the modules of the
        baseline
    rules: the rules that gave reasons, as in ``explain``, one for each module
    problems: files that could not be read; one on operations that no rule covers
    """

    dumps: list[str]
    met: Annotated[bool, At("is_met")]
    against: Annotated[str | None, At("origin")]
    modules: Annotated[list[Module], At("compared")]
    expectations: Annotated[list[Expectation], At("outcomes")]
    rules: list[ModuleRules]
    problems: list[str]
