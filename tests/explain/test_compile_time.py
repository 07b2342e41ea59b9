"""The time of the compiler's passes, from what real dumps record."""

from pathlib import Path

import pytest

from fusionscope.dump import open_dump
from fusionscope.dump.pass_times import PassTime
from fusionscope.findings.compile_time.find import sum_up_passes

SAMPLES = Path(__file__).resolve().parents[2] / "samples" / "dumps"
RECORDED = sorted(path.parent for path in SAMPLES.glob("*/*/*.metadata.textproto*"))


def busy(recorded: tuple[PassTime, ...]) -> int:
    """The microseconds in which at least one pass ran, by sweeping over begins and ends."""
    total, until = 0, 0
    for begin, end in sorted((item.start_us, item.end_us) for item in recorded):
        total += max(end - max(begin, until), 0)
        until = max(until, end)
    return total


@pytest.mark.parametrize("dump", RECORDED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_times_of_passes_add_up_to_the_time_in_which_one_ran(dump):
    for module in open_dump(dump).modules:
        recorded = module.pass_times
        actual = sum_up_passes(recorded)
        assert actual.dump_us + sum(fusion_pass.own_us for fusion_pass in actual.passes) == busy(
            recorded
        )
        assert busy(recorded) <= actual.total_us
        assert all(fusion_pass.own_us >= 0 for fusion_pass in actual.passes)
        starts = sum(item.name == "pipeline-start" for item in recorded)
        assert sum(fusion_pass.runs for fusion_pass in actual.passes) == len(recorded) - starts
        assert sum(fusion_pass.changes for fusion_pass in actual.passes) == sum(
            item.module_changed for item in recorded
        )


def test_there_are_recorded_times_of_gpus_and_tpus():
    assert {path.parent.name for path in RECORDED} >= {"h100", "mi300x", "tpu-v5e"}


def entry(pipeline: str, name: str, start_us: int, end_us: int, changed: bool = False) -> PassTime:
    return PassTime(
        pass_id=0,
        pipeline=pipeline,
        name=name,
        start_us=start_us,
        end_us=end_us,
        module_changed=changed,
        dump_files=(),
    )


def test_a_pipeline_has_its_time_without_that_of_its_passes():
    actual = sum_up_passes(
        (
            entry("all", "pipeline-start", 100, 110),
            entry("all", "simplification", 110, 200, changed=True),
            entry("simplification", "pipeline-start", 111, 115),
            entry("simplification", "algsimp", 120, 150, changed=True),
            entry("simplification", "algsimp", 150, 190),
            entry("all", "dce", 210, 260),
        )
    )
    assert (actual.total_us, actual.dump_us) == (160, 14)
    assert [
        (fusion_pass.name, fusion_pass.runs, fusion_pass.changes, fusion_pass.own_us)
        for fusion_pass in actual.passes
    ] == [
        ("algsimp", 2, 1, 70),
        ("dce", 1, 0, 50),
        ("simplification", 1, 1, 16),
    ]


def test_a_pass_that_did_not_end_is_left_out():
    assert sum_up_passes((entry("all", "fusion", 100, 0),)) is None
    actual = sum_up_passes((entry("all", "cse", 90, 95), entry("all", "fusion", 100, 0)))
    assert [fusion_pass.name for fusion_pass in actual.passes] == ["cse"]


def test_a_dump_without_recorded_times_has_none():
    assert sum_up_passes(open_dump(SAMPLES / "cpu" / "elementwise").modules[0].pass_times) is None
