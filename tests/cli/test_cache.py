"""Results that are kept between runs: the same answers, whatever is in the cache."""

import gzip
import hashlib
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from fusionscope.cli.cache import command as cache_command
from fusionscope.cli.explain import command
from fusionscope.dump import cache as dump_cache
from fusionscope.dump import open_dump, uses
from fusionscope.dump.cache import DumpCache
from fusionscope.explain import Selection, explain
from fusionscope.explain.analyze_module import analyze_module
from fusionscope.explain.cached_analysis import cached_type, from_cache, to_cache
from fusionscope.explain.view import view
from fusionscope.facts.result import Explanation, Grouping, SortedBy
from fusionscope.report.documents import to_json
from fusionscope.system.cache import Cache

ROOT = Path(__file__).resolve().parents[2]
DUMPS = ROOT / "samples" / "dumps"
SMALL = DUMPS / "cpu" / "elementwise"
# The smallest program of each compiler and device.
EACH = sorted(
    min(folder.iterdir(), key=lambda dump: sum(file.stat().st_size for file in dump.iterdir()))
    for folder in DUMPS.iterdir()
)
SELECTIONS = (
    Selection(),
    Selection(by=Grouping.STACK, sorted_by=SortedBy.BYTES),
    Selection(by=Grouping.FILE, op_name="*a*"),
    Selection(outcome="not-fused"),
    Selection(producer="*", consumer="add*"),
    Selection(source="nowhere.py:1"),
    Selection(kernel="*fusion*"),
    Selection(kernel="nothing"),
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test alone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """Uncompressed files."""
    copy = tmp_path / "dump"
    copy.mkdir()
    for file in SMALL.iterdir():
        content = file.read_bytes()
        if file.suffix == ".gz":
            content = gzip.decompress(content)
        (copy / file.name.removesuffix(".gz")).write_bytes(content)
    return copy


def results(home: Path) -> list[Path]:
    return sorted((home / "fusionscope" / "results").iterdir())


def ask(dump: Path, *options: str) -> tuple[int, str, str]:
    """The exit code of a command, what it prints, and what it reports as an error."""
    result = CliRunner().invoke(command, [str(dump), *options])
    return result.exit_code, result.stdout, result.stderr


def explained(dump: Path, selection: Selection = SELECTIONS[0]) -> Explanation:
    """The explanation by way of the cache, in this process."""
    opened = open_dump(dump)
    return explain(opened, selection, cache=DumpCache(opened, dump_cache.user_cache()))


@pytest.fixture
def analyses(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The modules that were analyzed, in order."""
    names: list[str] = []

    def record(module, **options):
        names.append(module.name)
        return analyze_module(module, **options)

    monkeypatch.setattr("fusionscope.explain.analyze_module.analyze_module", record)
    return names


@pytest.mark.parametrize("path", EACH, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_is_kept_shows_the_same(path):
    (module, *_) = open_dump(path).modules
    fresh = analyze_module(module)
    encoded = msgspec.msgpack.encode(to_cache(fresh))
    saved = from_cache(msgspec.msgpack.decode(encoded, type=cached_type()))
    for selection in SELECTIONS:
        first, second = (
            to_json("explain", Explanation("", (view(item, selection),), (), ()))
            for item in (fresh, saved)
        )
        assert first == second
        assert repr(first) == repr(second)  # 1 is not 1.0


@pytest.mark.parametrize("path", [SMALL, DUMPS / "h100" / "concatenate"], ids=str)
def test_another_question_reads_nothing(home, path, analyses):
    for selection in SELECTIONS:
        expected = explain(open_dump(path), selection)
        analyses.clear()
        assert explained(path, selection) == expected
        assert len(analyses) == (selection is SELECTIONS[0])


@pytest.mark.slow
def test_every_output_is_the_same(home):
    path = DUMPS / "h100" / "concatenate"
    for request in ("", "--top 3", "--format json", "--movements", "--disable pf-negative"):
        options = request.split()
        expected = ask(path, *options, "--no-cache")
        assert ask(path, *options) == expected
        assert ask(path, *options) == expected
    assert len(results(home)) == 4  # the analysis, suggestions, movements, changes


def test_no_cache_keeps_nothing(home):
    ask(SMALL, "--no-try", "--no-cache")
    assert not (home / "fusionscope" / "results").exists()


def test_only_the_user_reads_and_writes(home):
    explained(SMALL)
    files = results(home)
    assert files
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)
    assert stat.S_IMODE(files[0].parent.stat().st_mode) == 0o700


def test_a_changed_file_is_read_again(home, dump, analyses):
    """Though its size and the time of its last change are the same."""
    (final,) = dump.glob("*cpu_after_optimizations.txt")
    name = explained(dump).modules[0].kernels[0].name
    second = name[:-1] + "Z"
    times = final.stat()
    final.write_text(final.read_text().replace(name, second))
    os.utime(final, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert final.stat().st_size == times.st_size
    assert explained(dump).modules[0].kernels[0].name == second
    assert len(analyses) == 2


def test_the_same_content_is_not_analyzed_again(home, dump, analyses):
    expected = explained(dump)
    for file in dump.iterdir():
        content = file.read_bytes()
        file.unlink()
        file.write_bytes(content)
    assert explained(dump) == expected
    assert len(analyses) == 1


def test_a_file_that_has_settled_is_not_read_again(home, dump, analyses, monkeypatch):
    monkeypatch.setattr(uses, "_SETTLED_NS", 0)
    expected = explained(dump)
    monkeypatch.setattr(dump_cache, "digest_of", None)
    assert explained(dump) == expected
    assert len(analyses) == 1


def test_an_added_file_is_seen(home, dump, analyses):
    explained(dump)
    (dump / "module_0009.jit_f.before_optimizations.txt").write_text("HloModule f\n")
    explained(dump, Selection(module="jit_program"))
    assert len(analyses) == 2


def test_a_file_that_cannot_be_read_is_reported_each_time(home, dump, analyses):
    (flags,) = dump.glob("*debug_options")
    flags.write_text("{")
    first, second = explained(dump), explained(dump)
    assert first == second == explain(open_dump(dump))
    assert str(flags) in " ".join((*first.problems, *first.modules[0].notes))


def test_unknown_operations_are_reported_each_time(home, dump, analyses):
    (final,) = dump.glob("*cpu_after_optimizations.txt")
    root = "ROOT new = f32[8]{0} from-the-future(x)"
    final.write_text(
        f"HloModule f\n\nENTRY main {{\n  x = f32[8]{{0}} parameter(0)\n  {root}\n}}\n"
    )
    first, second = explained(final), explained(final)
    assert first == second
    assert "from-the-future" in " ".join(first.problems)
    assert len(analyses) == 1


def empty(file: Path) -> None:
    file.write_bytes(b"")


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-10])


def flipped(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def with_digest(file: Path, content: bytes) -> None:
    file.write_bytes(hashlib.sha256(content).digest() + content)


def nested(file: Path) -> None:
    with_digest(file, b"\x91" * 1_000_000)


def nested_inside(file: Path) -> None:
    entry = msgspec.msgpack.decode(file.read_bytes()[32:])
    with_digest(file, msgspec.msgpack.encode(entry | {"value": b"\x81\xa1x" * 1_000_000}))


def of_another_form(file: Path) -> None:
    entry = msgspec.msgpack.decode(file.read_bytes()[32:])
    value = msgspec.msgpack.decode(entry["value"])
    del value["whole"]["origins"]
    with_digest(file, msgspec.msgpack.encode(entry | {"value": msgspec.msgpack.encode(value)}))


def of_no_such_file(file: Path) -> None:
    entry = msgspec.msgpack.decode(file.read_bytes()[32:])
    entry["files"][0]["number"] = 1_000_000
    with_digest(file, msgspec.msgpack.encode(entry))


def of_other_content(file: Path) -> None:
    entry = msgspec.msgpack.decode(file.read_bytes()[32:])
    entry["files"][0] |= {"stamp": None, "digest": bytes(32)}
    with_digest(file, msgspec.msgpack.encode(entry))


def pickled(file: Path) -> None:
    with_digest(file, b"\x80\x04\x95" * 100)


def huge(file: Path) -> None:
    os.truncate(file, 1 << 40)


def written_by_others(file: Path) -> None:
    file.chmod(0o666)


def a_link(file: Path) -> None:
    file.rename(file.with_name("elsewhere"))
    file.symlink_to("/etc/passwd")


def a_loop(file: Path) -> None:
    file.unlink()
    file.symlink_to(file)


def a_fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def a_directory(file: Path) -> None:
    file.unlink()
    (file / "below").mkdir(parents=True)


@pytest.mark.parametrize(
    "damage",
    [
        empty, cut, flipped, nested, nested_inside, of_another_form, of_no_such_file,
        of_other_content, pickled, huge, written_by_others, a_link, a_loop, a_fifo, a_directory,
    ],
)  # fmt: skip
def test_a_damaged_entry_does_no_harm(
    home: Path, damage: Callable[[Path], None], analyses: list[str], capfd: pytest.CaptureFixture
) -> None:
    expected = explained(SMALL)
    for file in results(home):
        damage(file)
    assert explained(SMALL) == expected
    assert len(analyses) == 2
    assert explained(SMALL) == expected
    assert len(analyses) == 2 + (damage is a_directory)  # which stays
    assert capfd.readouterr() == ("", "")


def not_a_directory(place: Path) -> None:
    shutil.rmtree(place)
    place.write_text("")


def open_to_others(place: Path) -> None:
    place.chmod(0o777)


def another_place(place: Path) -> None:
    place.rename(place.with_name("elsewhere"))
    place.symlink_to("elsewhere")


@pytest.mark.parametrize("damage", [not_a_directory, open_to_others, another_place])
def test_a_place_that_is_not_the_users_is_not_used(home, damage, analyses):
    expected = explained(SMALL)
    damage(home / "fusionscope" / "results")
    for options in (2, 3):
        assert explained(SMALL) == expected
        assert len(analyses) == options


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_read_only_directory(home, analyses):
    home.mkdir()
    home.chmod(0o500)
    expected = explain(open_dump(SMALL))
    assert explained(SMALL) == explained(SMALL) == expected


def test_a_place_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file" / "below"))
    assert explained(SMALL) == explained(SMALL) == explain(open_dump(SMALL))


def test_a_user_without_a_home(monkeypatch):
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    assert dump_cache.user_cache() is None
    assert explained(SMALL) == explain(open_dump(SMALL))


def test_a_full_disk(home):
    """No file may grow over 1024 bytes, as on a disk without more room. Python 3.11 would leave
    bytecode that is cut, for all that runs later: hence -B."""
    options = ["--no-try", "--format", "json"]
    python = f"{sys.executable} -B"
    line = f"ulimit -f 1; exec {python} -m fusionscope explain {SMALL} {' '.join(options)}"
    result = subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, text=True)
    expected = ask(SMALL, *options, "--no-cache")
    assert (result.returncode, result.stdout, result.stderr) == expected
    assert not results(home)


def test_other_code_does_not_read_it(home, analyses, monkeypatch):
    explained(SMALL)
    monkeypatch.setattr(dump_cache, "code_digest", lambda: "another version")
    explained(SMALL)
    assert len(analyses) == 2
    explained(SMALL)
    assert len(analyses) == 2


@pytest.mark.slow
def test_many_processes_at_once(home):
    options = ["--no-try", "--format", "json"]
    expected = ask(SMALL, *options, "--no-cache")
    line = [sys.executable, "-m", "fusionscope", "explain", str(SMALL), *options]
    for _ in range(2):
        processes = [
            subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for _ in range(4)
        ]
        for process in processes:
            out, errors = process.communicate()
            assert (process.returncode, out.decode(), errors.decode()) == expected
    assert len(results(home)) == 1
    assert ask(SMALL, *options) == expected


def test_the_least_recently_used_is_removed(tmp_path):
    cache = Cache(tmp_path / "results", largest=1000)
    for name in "abc":
        cache.write(name, bytes(250))
        os.utime(tmp_path / "results" / name, (1_000_000 + ord(name),) * 2)
    assert cache.read("a") == bytes(250)  # used now
    cache.write("d", bytes(250))
    assert [name for name in "abcd" if cache.read(name)] == ["a", "c", "d"]
    cache.write("e", bytes(2000))
    assert cache.read("e") is None
    assert cache.measure()[1] <= 1000


def test_the_command_shows_and_removes(home):
    def run(*options: str) -> str:
        return CliRunner().invoke(cache_command, options, catch_exceptions=False).stdout

    place = home / "fusionscope"
    assert run() == f"0 files, 0 B, in {place}\n"
    explained(SMALL)
    assert run().startswith("1 file, ")
    assert run("--clear").endswith(f", removed from {place}\n")
    assert not results(home)
    assert run().startswith("0 files, ")
