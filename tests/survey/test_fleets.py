"""Surveys: the same rows however they come about, and those of `explain`."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import pytest
from click.testing import CliRunner
from surveying import DUMPS, FEW, copies, everything, rows, run
from test_archives import pack

from fusionscope.cli.main import cli
from fusionscope.errors import UnusableInput
from fusionscope.survey import survey as surveys
from fusionscope.survey.engines import Processes, cluster
from fusionscope.survey.sources import find_sources
from fusionscope.survey.store import Store
from fusionscope.survey.survey import Options, survey
from fusionscope.system.memory import limited_memory

UNDATED = 1_763_000_000  # the time of the files that no path dates: 2025-11-13


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Dumps as folders and in archives, three hosts with one program, and damaged ones."""
    fleet = tmp_path_factory.mktemp("fleet")
    for number, name in enumerate(FEW):
        dump = DUMPS / name
        target = fleet / "2026-11-24" / name.replace("/", "-")
        if number % 2:
            target.parent.mkdir(exist_ok=True)
            files = {file.name: file.read_bytes() for file in dump.iterdir() if file.is_file()}
            pack(target.with_name(f"{target.name}.tar.zst"), files)
        else:
            shutil.copytree(dump, target)
    assert len(list(copies(DUMPS / "cpu" / "reductions", fleet / "2026-11-25", 3))) == 3
    shutil.copytree(DUMPS / "cpu" / "dense", fleet / "cut")
    (final,) = (fleet / "cut").glob("*cpu_after_optimizations.txt")
    final.write_bytes(final.read_bytes()[:1000])
    for file in (fleet / "cut").iterdir():
        os.utime(file, (UNDATED, UNDATED))
    os.utime(fleet / "cut", (UNDATED, UNDATED))
    (fleet / "noise.tar.gz").write_bytes(b"no archive")
    return fleet


@pytest.fixture(scope="module")
def tables(fleet: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    into = tmp_path_factory.mktemp("tables") / "once"
    result = run([fleet], into)
    assert (result.dumps, result.earlier, result.modules, result.analysed) == (10, 0, 9, 7)
    return into


@pytest.mark.slow
def test_rows_are_what_explain_says(tables: Path) -> None:
    for number, name in enumerate(FEW):
        command = ["explain", str(DUMPS / name), "--no-try", "--all", "--format", "json"]
        (module,) = json.loads(CliRunner().invoke(cli, command).stdout)["modules"]
        file = f"%{name.replace('/', '-')}{'.tar.zst' if number % 2 else ''}"
        ((content, launches, moved),) = rows(
            tables, "SELECT content, launches, bytes_moved FROM modules WHERE dump LIKE ?", file
        )
        summary = module["summary"]
        assert (launches, moved) == (summary["launches"], summary["bytes_moved"])
        actual = rows(
            tables,
            "SELECT producer, consumer, outcome, reason, evidence, bytes_saved FROM once.pairs "
            "WHERE content = ?",
            content,
        )
        keys = ("outcome", "reason", "evidence", "bytes_saved")
        expected = [
            (pair["producer"]["name"], pair["consumer"]["name"], *(pair[key] for key in keys))
            for pair in module["pairs"]
        ]
        assert sorted(map(repr, actual)) == sorted(map(repr, expected))
        question = "SELECT coalesce(sum(pairs), 0) FROM once.refusals WHERE content = ?"
        assert rows(tables, question, content)[0][0] == sum(
            pair[3] is not None for pair in expected
        )


def test_equal_modules_are_analysed_once_and_count_for_each_dump(tables: Path) -> None:
    """The three hosts differ in what their flags say of the place."""
    hosts = "dump LIKE '%host-_'"
    assert rows(tables, f"SELECT count(*), count(DISTINCT content) FROM dumps WHERE {hosts}") == [
        (3, 1)
    ]
    ((stored, counts),) = rows(
        tables,
        f"SELECT (SELECT count(*) FROM once.pairs WHERE content = (SELECT any_value(content) FROM "
        f"dumps WHERE {hosts})), (SELECT count(*) FROM pairs WHERE {hosts})",
    )
    assert counts == 3 * stored > 0


def test_what_cannot_be_read_is_a_row(tables: Path) -> None:
    actual = rows(tables, "SELECT dump, module, reason FROM unreadable ORDER BY dump, reason")
    assert {Path(dump).name for dump, _, _ in actual} == {"cut", "noise.tar.gz"}
    (cut,) = (reason for dump, _, reason in actual if dump.endswith("cut"))
    assert cut.startswith("module_0000.jit_program.cpu_after_optimizations.txt:")  # line, column
    # The content of the dump that is cut counts as done, and has no other rows.
    assert rows(tables, "SELECT count(*) FROM modules WHERE dump LIKE '%cut'") == [(0,)]


def test_days_versions_and_devices_are_those_of_the_dumps(tables: Path) -> None:
    actual = rows(tables, "SELECT DISTINCT day::VARCHAR, jaxlib, device FROM dumps")
    assert {
        ("2026-11-24", "0.12", "cpu"),
        ("2026-11-24", "0.12", "NVIDIA H100 80GB HBM3"),
        ("2026-11-24", "0.10.2", "NVIDIA H100 80GB HBM3"),
        ("2026-11-24", "libtpu build 1003875606", "TPU v5e"),
        ("2026-11-25", "0.12", "cpu"),
        ("2025-11-13", "0.12", "cpu"),
    } == set(actual)


def test_other_readers_find_the_partitions(tables: Path) -> None:
    import pyarrow.dataset

    actual = pyarrow.dataset.dataset(tables / "pairs", partitioning="hive").to_table()
    assert set(actual["device"].to_pylist()) == {"cpu", "NVIDIA H100 80GB HBM3", "TPU v5e"}
    assert actual.num_rows == rows(tables, "SELECT count(*) FROM once.pairs")[0][0]


@pytest.mark.slow
def test_two_processes_leave_the_same_rows(fleet: Path, tables: Path, tmp_path: Path) -> None:
    run([fleet], tmp_path / "two", jobs=2)
    assert everything(tmp_path / "two") == everything(tables)


@dataclass
class Interrupted:
    """Works as one process does, and ends as Ctrl-C does after so many results."""

    left: int

    def map(self, work: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        for actual in Processes(1).map(work, items):
            if self.left == 0:
                raise KeyboardInterrupt
            self.left -= 1
            yield actual


@pytest.mark.slow
@pytest.mark.parametrize(
    "results", [1, 12, *(pytest.param(count, marks=pytest.mark.repeats) for count in (5, 9))]
)
def test_what_is_written_is_not_done_again(
    fleet: Path, tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, results: int
) -> None:
    """Each result is written at once, so that a run that ends anywhere leaves some."""
    monkeypatch.setattr(surveys, "_LONGEST_S", 0.0)
    monkeypatch.setattr(surveys, "_STEP", 4)
    into = tmp_path / "tables"
    with pytest.raises(KeyboardInterrupt):
        survey([str(fleet)], into, Interrupted(results), Options())
    saved = {path: path.read_bytes() for path in into.rglob("*.parquet")}
    torn = into / "pairs" / "jaxlib=0.12" / "device=cpu" / "day=2026-11-24" / "torn.parquet"
    torn.parent.mkdir(parents=True, exist_ok=True)
    torn.write_bytes(b"of a batch that was not written to its end")
    part = torn.with_name(".a.parquet.1.part")
    part.touch()
    run([fleet], into, resumes=True)
    assert everything(into) == everything(tables)
    assert not torn.exists() and not part.exists()
    assert all(path.read_bytes() == data for path, data in saved.items())
    again = run([fleet], into, resumes=True)
    assert (again.earlier, again.modules, again.analysed) == (10, 0, 0)
    assert everything(into) == everything(tables)


@pytest.mark.slow
def test_a_killed_run_goes_on(fleet: Path, tables: Path, tmp_path: Path) -> None:
    into = tmp_path / "tables"
    command = [sys.executable, "-m", "fusionscope", "survey", str(fleet), "-o", str(into)]
    for seconds in (0.5, 1.0, 1.5):
        child = subprocess.Popen([*command, "--resume"], stdout=subprocess.DEVNULL)
        time.sleep(seconds)
        child.send_signal(signal.SIGKILL)
        child.wait()
    subprocess.run([*command, "--resume"], check=True, stdout=subprocess.DEVNULL)
    assert everything(into) == everything(tables)


@pytest.mark.slow
def test_workers_of_dask_leave_the_same_rows(fleet: Path, tables: Path, tmp_path: Path) -> None:
    import distributed

    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as workers,
        cluster(workers.scheduler_address) as engine,
    ):
        survey([str(fleet)], tmp_path / "dask", engine, Options())
    assert everything(tmp_path / "dask") == everything(tables)


def test_a_dump_that_changed_is_another_dump(tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    shutil.copytree(DUMPS / "cpu" / "loop", dump)
    run([dump], tmp_path / "tables")
    shutil.rmtree(dump)
    shutil.copytree(DUMPS / "cpu" / "softmax", dump)
    result = run([dump], tmp_path / "tables", resumes=True)
    assert (result.earlier, result.analysed) == (0, 1)
    assert rows(tmp_path / "tables", "SELECT count(DISTINCT stamp) FROM dumps") == [(2,)]


def test_a_survey_is_not_overwritten(fleet: Path, tables: Path) -> None:
    with pytest.raises(UnusableInput, match="there is a survey in it; go on with it by --resume"):
        run([fleet], tables)


def test_two_runs_do_not_write_the_same_tables(tables: Path) -> None:
    with (
        Store(tables).locked(),
        pytest.raises(UnusableInput, match="another survey writes it"),
        Store(tables).locked(),
    ):
        pass
    with Store(tables).locked():
        pass


def test_a_part_of_the_dumps(fleet: Path, tmp_path: Path) -> None:
    assert run([fleet], tmp_path / "limited", limit=2).dumps == 2
    actual, _ = find_sources([str(fleet)])
    choice: list[set[str]] = []
    for share in (0.3, 0.7, 1.0):
        selected = surveys._selected(actual, Options(sample=share))
        choice.append({item.address for item in selected})
    assert choice[0] <= choice[1] <= choice[2] == {item.address for item in actual}


def test_suggestions_are_tried_if_that_is_wanted(tmp_path: Path) -> None:
    run([DUMPS / "h100" / "concatenate"], tmp_path / "tables", tries=True)
    actual = rows(tmp_path / "tables", "SELECT change, launches_saved FROM suggestions WHERE helps")
    # What README shows: from 5 launches to 3.
    flag = "--xla_gpu_experimental_enable_triton_heroless_priority_fusion=true"
    assert (flag, 2) in actual


def test_an_address_of_another_file_system(tmp_path: Path) -> None:
    store = fsspec.filesystem("memory")
    files = {file.name: file.read_bytes() for file in (DUMPS / "cpu" / "loop").iterdir()}
    store.pipe({f"/fleet/20261101/loop/{name}": data for name, data in files.items()})
    archive = pack(tmp_path / "a.zip", files)
    store.pipe("/fleet/20261102/loop.zip", archive.read_bytes())
    run(["memory://fleet"], tmp_path / "tables")
    actual = rows(
        tmp_path / "tables", "SELECT dump, day::VARCHAR, launches FROM modules ORDER BY dump"
    )
    launches = actual[0][2]
    assert actual == [
        ("memory:///fleet/20261101/loop", "2026-11-01", launches),
        ("memory:///fleet/20261102/loop.zip", "2026-11-02", launches),
    ]
    assert rows(tmp_path / "tables", "SELECT count(*) FROM once.modules") == [(1,)]


def test_links_are_not_followed_in_circles(tmp_path: Path) -> None:
    shutil.copytree(DUMPS / "cpu" / "loop", tmp_path / "dumps" / "loop")
    (tmp_path / "dumps" / "loop" / "again").symlink_to(tmp_path / "dumps")
    actual, problems = find_sources([str(tmp_path / "dumps")])
    assert [item.address for item in actual] == [str(tmp_path / "dumps" / "loop")]
    assert not problems


def test_files_of_one_folder_are_one_dump() -> None:
    folder = DUMPS / "cpu" / "loop"
    assert find_sources([f"{folder}/*"]) == find_sources([str(folder)])


def test_a_glob_and_an_address_without_dumps(tmp_path: Path) -> None:
    result = run([DUMPS / "cpu" / "l*", tmp_path, "nothing/there"], tmp_path / "tables")
    assert result.analysed == len(list((DUMPS / "cpu").glob("l*")))
    assert rows(tmp_path / "tables", "SELECT dump, reason FROM unreadable ORDER BY reason") == [
        ("nothing/there", "cannot be listed: no such file or directory"),
        (str(tmp_path), "no dump there"),
    ]
    with pytest.raises(UnusableInput, match="no dump there"):
        run([tmp_path / "tables" / "pairs"], tmp_path / "other")


HOSTILE = "<script>alert(1)</script>\x1b[31m\udcff'\" | `x`"


def test_hostile_names(tmp_path: Path) -> None:
    target = tmp_path / "dumps" / HOSTILE.replace("/", "")
    shutil.copytree(DUMPS / "cpu" / "loop", target)
    for file in list(target.iterdir()):
        file.rename(target / file.name.replace("jit_program", HOSTILE.replace("/", "")))
    result = run([tmp_path / "dumps"], tmp_path / "tables")
    assert (result.analysed, result.unreadable) == (1, ())
    assert rows(tmp_path / "tables", "SELECT count(*) FROM modules")[0] == (1,)
    assert run([tmp_path / "dumps"], tmp_path / "tables", resumes=True).earlier == 1


@pytest.mark.skipif(sys.platform != "linux", reason="a limit of Linux")
def test_memory_is_limited(tmp_path: Path) -> None:
    with limited_memory(1 << 30), pytest.raises(MemoryError):
        bytearray(2 << 30)


def test_a_dump_that_takes_too_much_is_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("fusionscope.survey.work.explain_module", exhausted)
    run([DUMPS / "cpu" / "loop"], tmp_path / "tables", memory=2 << 30)
    assert rows(tmp_path / "tables", "SELECT reason FROM unreadable") == [
        ("takes more than 2,048 MB of memory: --memory sets the limit",)
    ]
