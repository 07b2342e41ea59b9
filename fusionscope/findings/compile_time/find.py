"""How long the passes of the compiler took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fusionscope.findings.compile_time.facts import CompileTime, PassCost

if TYPE_CHECKING:
    from fusionscope.dump.pass_times import PassTime

_WRITES_DUMP = "pipeline-start"  # what a pipeline records while it writes its first stage


def sum_up_passes(recorded: Sequence[PassTime]) -> CompileTime | None:
    """Return the time that the passes took; None if none of them ended.

    A pipeline is recorded as a pass too, around those that it runs. Source:
    ``xla/hlo/pass/hlo_pass_pipeline.cc``, ``HloPassPipeline::RunPassesInternal``.
    """
    ended = [each for each in recorded if each.end_us]
    if not ended:
        return None
    own: dict[str, int] = {}
    runs: dict[str, int] = {}
    changes: dict[str, int] = {}
    around: list[PassTime] = []
    for each in ended:
        while around and not _runs(around[-1], each):
            around.pop()
        took = each.end_us - each.start_us
        if around:
            own[around[-1].name] -= took
        around.append(each)
        own[each.name] = own.get(each.name, 0) + took
        runs[each.name] = runs.get(each.name, 0) + 1
        changes[each.name] = changes.get(each.name, 0) + each.module_changed
    dump_us = own.pop(_WRITES_DUMP, 0)
    passes = (
        PassCost(name=name, runs=runs[name], changes=changes[name], own_us=time)
        for name, time in own.items()
    )
    return CompileTime(
        total_us=max(each.end_us for each in ended) - min(each.start_us for each in ended),
        dump_us=dump_us,
        passes=tuple(sorted(passes, key=lambda each: -each.own_us)),
    )


def _runs(pipeline: PassTime, each: PassTime) -> bool:
    """Return whether ``each`` was recorded while ``pipeline`` ran, as one of its passes."""
    is_within = pipeline.start_us <= each.start_us and each.end_us <= pipeline.end_us
    return each.pipeline == pipeline.name and is_within
