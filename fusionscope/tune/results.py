"""What a search makes and finds."""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace

from msgspec import structs

from fusionscope.dump import DumpedModule
from fusionscope.facts.facts import Facts
from fusionscope.hlo import Module
from fusionscope.rerun.measuring import Ratio
from fusionscope.rerun.profiled import MeasuredKernels
from fusionscope.rerun.running import Measurement
from fusionscope.rules.changes import NO_CHANGES, Changes
from fusionscope.tune.journal import Attempt
from fusionscope.tune.moves import Candidate
from fusionscope.verify.agreement import RulesUsed


@dataclass(frozen=True, slots=True)
class Design:
    """Changes together: of the program, as ``program`` with the names of the changes in
    ``rewritings``, and of rules, which apply to ``module``, the dump of that program.
    """

    module: DumpedModule
    program: Module | None = None
    rewritings: tuple[Candidate, ...] = ()
    parts: tuple[Candidate, ...] = ()

    @property
    def changes(self) -> Changes:
        changes_of_parts = NO_CHANGES
        for part in self.parts:
            changes_of_parts |= part.changes
        return changes_of_parts

    def __str__(self) -> str:
        return ", ".join(map(str, (*self.rewritings, *self.parts))) or "the compiler's own plan"

    def __bool__(self) -> bool:
        return bool(self.rewritings or self.parts)

    def without_each(self) -> list[Design]:
        """Return it without each of the changes of its plan, if it has several changes."""
        if len(self.parts) + len(self.rewritings) < 2:
            return []
        return [
            replace(
                self, parts=tuple(part_kept for part_kept in self.parts if part_kept is not part)
            )
            for part in self.parts
        ]


class Ablation(Facts, frozen=True):
    """The best plan without one of its changes.

    change: the change that was left out
    ratio: its time to that of the best plan, estimated like that
    """

    change: str
    ratio: float


class Best(Facts, frozen=True, kw_only=True):
    """The best plan, confirmed on runs in a process of their own. ``program`` is the rewritten
    program, None if it is that of the dump.

    Otherwise they are None.

    words: what was changed, in words
    measurement: of its runs; null for a GPU that is absent
    estimates_us: for a GPU that is absent, microseconds of the final modules before and after, as
        the compiler's cost model expects them
    ablations: the same plan without one of its changes
    compile_s: seconds of compiling the program as it is and with the plan; null for a GPU that is
        absent
    kernels: what profiles of the program as it is and with the plan show, as ``variants[].kernels``
        of ``rerun``; null if there are none
    not_profiled: why there are none; empty if there are, or for a GPU that is absent
    """

    internal = ("changes", "program")

    words: str
    changes: Changes
    program: Module | None = None
    measurement: Measurement | None = None
    estimates_us: tuple[float, float] | None = None
    ablations: tuple[Ablation, ...]
    compile_s: tuple[float, float] | None = None
    kernels: MeasuredKernels | None = None
    not_profiled: str = ""


class Tuning(Facts, frozen=True, tag_field="schema", tag="fusionscope.tune/1"):
    """The result of a search. ``is_measured`` is false if the compiler's cost model decided.

    module: name of the module
    attempts: changes in the order in which they were tried
    left: changes that the time did not last for
    best: the best plan, measured once more in a process of its own, or compiled for an absent GPU;
        null if nothing was faster then
    rules: the rules that were changed and replayed, as in ``explain``
    """

    internal = ("is_measured",)

    module: str
    attempts: tuple[Attempt, ...]
    left: int
    best: Best | None
    rules: RulesUsed | None = None
    is_measured: bool = True


def may_join(first: Design, second: Design) -> bool:
    """Return whether the changes of two plans can be made together: names are those of one module,
    and an operation is in one new kernel.
    """
    if set(first.parts) & set(second.parts):
        return False
    if first.module is not second.module:
        changes = second.changes
        return not (changes.kernels or changes.allowed or changes.forbidden)
    members = [
        {n for kernel in design.changes.kernels for n in kernel} for design in (first, second)
    ]
    return members[0].isdisjoint(members[1])


def beside_faster(plain: Measurement, measurement: Measurement) -> Measurement:
    """Return ``measurement`` relative to ``plain``, the program as jax compiles it, if that is
    faster than the baseline of both. The baseline has the same kernels, but came through the
    compiler's hook, after which instructions may be scheduled in another order: loops then take 0.8
    to 1.1 of the time.
    """
    timing, plain_timing = measurement.timing, plain.timing
    if timing is None or plain_timing is None or plain_timing.ratio.value >= 1:
        return measurement
    ratio = Ratio(*(value / plain_timing.ratio.value for value in astuple(timing.ratio)))
    beside = structs.replace(
        timing,
        baseline_ns=plain_timing.variant_ns,
        baseline_quartiles=plain_timing.variant_quartiles,
        ratio=ratio,
    )
    return structs.replace(measurement, timing=beside)
