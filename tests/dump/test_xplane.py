"""Profiles as the profiler's own protocol buffer: they say what its JSON says."""

import shutil
from pathlib import Path

import pytest

from fusionscope.dump.profile import read_profile
from fusionscope.dump.xplane import read_xplane
from fusionscope.errors import UnusableInput

DATA = Path(__file__).parent / "data" / "profile"
XPLANE = DATA / "host.xplane.pb"


def test_both_files_of_a_profile_have_the_same_runs():
    """The profiler made the JSON of the other file."""
    by_file = [read_profile(DATA / f"host.{name}").runs for name in ("trace.json.gz", "xplane.pb")]
    assert len(by_file[0]) == len(by_file[1]) == 5
    for run, twin_run in zip(*by_file, strict=True):
        assert (
            (run.module, run.backend)
            == (twin_run.module, twin_run.backend)
            == ("jit_program", "cpu")
        )
        assert [span.instruction for span in run.spans] == [
            span.instruction for span in twin_run.spans
        ]
        for span, twin in zip(run.spans, twin_run.spans, strict=True):
            assert twin.end_us - twin.start_us == pytest.approx(
                span.end_us - span.start_us, abs=1e-6
            )


def test_of_a_directory_the_newest_run_counts_whatever_file_it_has(tmp_path):
    for run, name in (("1", "host.trace.json.gz"), ("2", "host.xplane.pb")):
        folder = tmp_path / "plugins" / "profile" / run
        folder.mkdir(parents=True)
        shutil.copy(DATA / name, folder)
    assert len(read_profile(tmp_path).runs) == 5  # not those of both
    (tmp_path / "plugins" / "profile" / "1" / "host.trace.json.gz").write_bytes(b"not read")
    assert len(read_profile(tmp_path).runs) == 5


@pytest.mark.parametrize("data", [b"", XPLANE.read_bytes()[:-7], b"\x0a\x05ab", b"text", b"\xff"])
def test_what_is_no_whole_profile_is_said(data):
    with pytest.raises(UnusableInput, match="not a"):
        read_xplane(data, "host.xplane.pb")


def test_any_part_of_one_is_read_or_refused():
    data = XPLANE.read_bytes()
    for end in range(0, len(data), 997):
        try:
            read_xplane(data[:end], "host.xplane.pb")
        except UnusableInput as problem:
            assert "host.xplane.pb: not a" in str(problem)
