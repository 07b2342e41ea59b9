"""What `diff` says of the peaks of memory, against the compiler's own reports."""

from __future__ import annotations

import gzip
import re
import shutil
from pathlib import Path

import pytest

from fusionscope.compare.difference import ModuleDifference, compare
from fusionscope.compare.memory_difference import Cause

DUMPS = Path(__file__).parents[2] / "samples" / "dumps"
DONATED = Path(__file__).parent / "data/donated"
PROGRAMS = sorted(dump.name for dump in (DUMPS / "cpu").iterdir())


def differing(before: Path, after: Path) -> ModuleDifference:
    (actual,) = compare(before, after).modules
    return actual


def reported_total(dump: Path) -> int:
    """The total of the compiler's own report."""
    (report,) = dump.glob("*memory-usage-report.txt*")
    text = gzip.decompress(report.read_bytes()) if report.suffix == ".gz" else report.read_bytes()
    match = re.search(rb"^Total bytes(?: used)?: (\d+)", text, re.MULTILINE)
    assert match is not None
    return int(match[1])


def test_results_that_are_no_longer_fused_are_what_the_peak_grows_by() -> None:
    # Without the softmax kernel the maximum and the sum of each of the 256 rows are in memory.
    dumps = DUMPS / "h100/softmax", DUMPS / "h100-without-triton-softmax/softmax"
    memory = differing(*dumps).memory
    assert memory is not None
    assert memory.before.total_bytes == reported_total(dumps[0])
    assert memory.after.total_bytes == reported_total(dumps[1])
    assert memory.after.peak_bytes - memory.before.peak_bytes == 2 * 256 * 4
    assert [(buffer.growth, buffer.cause) for buffer in memory.buffers] == [
        (256 * 4, Cause.LOST_FUSION),
        (256 * 4, Cause.LOST_FUSION),
    ]
    names = {str(buffer.producer).partition(".")[0] for buffer in memory.buffers}
    assert names == {"reduce_max", "reduce_sum"}


def test_fusions_that_are_new_are_what_the_peak_falls_by() -> None:
    dumps = DUMPS / "h100-without-triton-softmax/softmax", DUMPS / "h100/softmax"
    memory = differing(*dumps).memory
    assert memory is not None
    assert {buffer.cause for buffer in memory.buffers} == {Cause.GAINED_FUSION}
    assert {buffer.reason for buffer in memory.buffers} == {"pf-two-reduces", "pf-reduce-to-loop"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("cpu/elementwise", "cpu-without-fusion/elementwise"),
        ("h100/reductions", "h100-without-multi-output-fusion/reductions"),
        *((f"cpu/{name}", f"h100/{name}") for name in PROGRAMS),
        (DONATED / "0.6.2", DONATED / "0.7.2"),
    ],
)
def test_the_values_add_up_to_the_difference_of_the_peaks(
    before: str | Path, after: str | Path
) -> None:
    memory = differing(DUMPS / before, DUMPS / after).memory
    totals = reported_total(DUMPS / before), reported_total(DUMPS / after)
    if memory is None:
        assert totals[0] == totals[1]
        return
    assert (memory.before.total_bytes, memory.after.total_bytes) == totals
    growth = memory.after.peak_bytes - memory.before.peak_bytes
    assert sum(buffer.growth for buffer in memory.buffers) == growth


def test_older_compilers_list_live_values_in_the_buffer_assignment() -> None:
    # A result of 4,194,304 numbers no longer has the memory of the donated argument.
    memory = differing(DONATED / "0.6.2", DONATED / "0.7.2").memory
    assert memory is not None
    size = 4 * 4_194_304
    assert memory.before.peak_bytes < size + 200 and memory.after.peak_bytes > 2 * size
    growths = [buffer.growth for buffer in memory.buffers]
    assert sorted(growths[:3]) == [-size, size, size]
    assert [abs(growth) for growth in growths] == sorted(map(abs, growths), reverse=True)


def test_one_dump_has_no_difference_to_itself() -> None:
    assert compare(DUMPS / "h100/softmax", DUMPS / "h100/softmax").is_same


def test_the_same_instructions_with_more_memory_differ(tmp_path: Path) -> None:
    dump = shutil.copytree(DUMPS / "h100/softmax", tmp_path / "more")
    for pattern, old, new in (
        ("*buffer-assignment.txt", "allocation 2: size 4,", "allocation 2: size 64,"),
        ("*usage-report.txt", "Total bytes: 1048600 ", "Total bytes: 1048660 "),
    ):
        (file,) = dump.glob(pattern)
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))
    actual = differing(DUMPS / "h100/softmax", dump)
    assert not (actual.outcomes or actual.fusions or actual.edits)
    assert actual.memory is not None
    assert actual.memory.after.total_bytes == actual.memory.before.total_bytes + 60
    assert actual.memory.buffers == ()
