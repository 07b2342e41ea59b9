"""What the results of a plan are compared with, and when they count as wrong."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from msgspec.structs import replace

from fusionscope.rerun.running import Numbers, ResultDifference
from fusionscope.rerun.workbench import Made


class Against(StrEnum):
    """Where the right results come from."""

    NO_FUSION = "none"  # the program without any fusion
    FLOAT64 = "float64"  # the program in 64 bits
    FLAGS = "flags"  # the program compiled with other flags
    DUMP = "dump"  # the program of another dump, with the plan of that dump
    ARRAYS = "arrays"  # an .npz
    PREDICATE = "predicate"  # a function of the user


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What is right. ``flags``, or the ``place`` of a dump or an .npz, belong to their kinds;
    ``predicate`` is ``FILE:FUNCTION``. ``tolerance`` is the largest difference that is not wrong,
    as a share of the largest magnitude; without it, rounding is not wrong, as ``rerun`` judges it.
    """

    against: Against = Against.NO_FUSION
    flags: tuple[str, ...] = ()
    place: Path | None = None
    predicate: str = ""
    tolerance: float | None = None

    def __str__(self) -> str:
        if self.against is Against.NO_FUSION:
            return "the program without fusion"
        if self.against is Against.FLOAT64:
            return "the program in 64 bits"
        if self.against is Against.PREDICATE:
            return self.predicate
        return " ".join(self.flags) or str(self.place)

    def is_wrong(self, executable: Made) -> bool:
        """Return whether the results are wrong."""
        if self.against is Against.PREDICATE:
            return bool(executable.is_wrong)
        return any(map(self._is_wrong, executable.results))

    def amplifies_rounding(self, executable: Made) -> bool:
        """Return whether the reference of a wrong result is itself far from a run in 64 bits."""
        return any(
            self._is_wrong(result) and _baseline(result).verdict is Numbers.DIFFERENT
            for result in executable.results
            if result.baseline_error is not None
        )

    def _is_wrong(self, result: ResultDifference) -> bool:
        if self.tolerance is None:
            return result.verdict is Numbers.DIFFERENT
        return not result.is_equal and (
            result.difference is None or result.difference > self.tolerance
        )


def _baseline(result: ResultDifference) -> ResultDifference:
    """Return the difference of the reference from the run in 64 bits."""
    return replace(result, difference=result.baseline_error, baseline_error=None)
