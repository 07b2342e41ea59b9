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
    ended = [pass_time for pass_time in recorded if pass_time.end_us]
    if not ended:
        return None
    own_times: dict[str, int] = {}
    runs: dict[str, int] = {}
    changes: dict[str, int] = {}
    around: list[PassTime] = []
    for pass_time in ended:
        while around and not _runs(around[-1], pass_time):
            around.pop()
        took = pass_time.end_us - pass_time.start_us
        if around:
            own_times[around[-1].name] -= took
        around.append(pass_time)
        own_times[pass_time.name] = own_times.get(pass_time.name, 0) + took
        runs[pass_time.name] = runs.get(pass_time.name, 0) + 1
        changes[pass_time.name] = changes.get(pass_time.name, 0) + pass_time.module_changed
    dump_us = own_times.pop(_WRITES_DUMP, 0)
    passes = (
        PassCost(name=name, runs=runs[name], changes=changes[name], own_us=time)
        for name, time in own_times.items()
    )
    return CompileTime(
        total_us=max(pass_time.end_us for pass_time in ended)
        - min(pass_time.start_us for pass_time in ended),
        dump_us=dump_us,
        passes=tuple(sorted(passes, key=lambda pass_time: -pass_time.own_us)),
    )


def _runs(pipeline: PassTime, pass_time: PassTime) -> bool:
    """Return whether ``pass_time`` was recorded while ``pipeline`` ran, as one of its passes."""
    is_within = pipeline.start_us <= pass_time.start_us and pass_time.end_us <= pipeline.end_us
    return pass_time.pipeline == pipeline.name and is_within
