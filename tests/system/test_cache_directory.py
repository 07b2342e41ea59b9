"""The user's cache directory: whatever lies there, nothing is read or written that is not the
user's own."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from conformance.special_files import make_socket

from fusionscope.cli.cache import command
from fusionscope.system.cache import Cache, cache_directory, find_cache
from fusionscope.system.kept import keep, read_kept

NOBODY = 65534
is_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other users")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "fusionscope"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of the user that links point to."""
    file = tmp_path / "victim"
    file.write_text("precious")
    return file


def kept(content: bytes = b"content") -> bool:
    """Whether both kinds of entries are kept from now on."""
    results = find_cache("results")
    assert results is not None
    results.write("entry", content)
    keep("forms", "source", content)
    return (results.read("entry"), read_kept("forms", "source")) == (content, content)


def entries(home: Path) -> list[Path]:
    return [*home.glob("forms-*"), home / "results" / "entry"]


# --------------------------------------------------------------------------- in place of an entry


def a_link(path: Path) -> None:
    path.symlink_to(path.parents[2 + (path.parent.name == "results")] / "victim")


def a_link_to_an_entry(path: Path) -> None:
    """Whole, and where links are not followed of no use."""
    second = path.with_name("other")
    path.rename(second) if path.exists() else second.touch()
    path.symlink_to(second)


def a_link_to_nothing(path: Path) -> None:
    path.symlink_to("nowhere")


def a_link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def a_file_for_others(path: Path) -> None:
    path.write_bytes(b"")
    path.chmod(0o666)


def a_huge_file(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(3 << 30)


def junk(path: Path) -> None:
    path.write_bytes(bytes(range(256)))


@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,
        make_socket,
        a_link,
        a_link_to_an_entry,
        a_link_to_nothing,
        a_link_to_a_device,
        a_file_for_others,
        a_huge_file,
        junk,
    ],
)
def test_an_entry_that_is_something_else_is_replaced(
    home: Path, victim: Path, make: Callable[[Path], None]
) -> None:
    assert kept(b"old")
    for entry in entries(home):
        if make is not a_link_to_an_entry:
            entry.unlink()
        make(entry)
    results = find_cache("results")
    assert results is not None
    assert (results.read("entry"), read_kept("forms", "source")) == (None, None)
    assert kept()
    assert all(stat.S_IMODE(entry.lstat().st_mode) == 0o600 for entry in entries(home))
    assert not any(entry.is_symlink() for entry in entries(home))
    assert victim.read_text() == "precious"


def test_a_directory_in_the_place_of_an_entry_stays(home: Path) -> None:
    assert kept()
    for entry in entries(home):
        entry.unlink()
        entry.mkdir()
    assert not kept()
    assert all(entry.is_dir() for entry in entries(home))


@is_root
def test_an_entry_of_another_user_is_replaced(home: Path) -> None:
    assert kept(b"old")
    for entry in entries(home):
        os.chown(entry, NOBODY, -1)
    results = find_cache("results")
    assert results is not None
    assert (results.read("entry"), read_kept("forms", "source")) == (None, None)
    assert kept()


# ------------------------------------------------------------------------------------ directories


def others_write(home: Path) -> None:
    home.chmod(0o777)


def others_write_with_the_sticky_bit(home: Path) -> None:
    home.chmod(0o1777)


def a_group_writes(home: Path) -> None:
    home.chmod(0o770)


def others_write_above(home: Path) -> None:
    home.parent.chmod(0o777)


def a_link_to_a_directory(home: Path) -> None:
    home.rename(home.with_name("elsewhere"))
    home.symlink_to("elsewhere")


def a_file(home: Path) -> None:
    home.rename(home.with_name("elsewhere"))
    home.write_text("")


def of_another_user(home: Path) -> None:
    os.chown(home, NOBODY, -1)


def below_one_of_another_user(home: Path) -> None:
    os.chown(home.parent, NOBODY, -1)


def by_a_link_of_another_user(home: Path) -> None:
    home.parent.rename(home.parent.with_name("elsewhere"))
    home.parent.symlink_to("elsewhere")
    os.chown(home.parent, NOBODY, -1, follow_symlinks=False)


@pytest.mark.parametrize(
    "change",
    [
        others_write,
        others_write_with_the_sticky_bit,
        a_group_writes,
        others_write_above,
        a_link_to_a_directory,
        a_file,
        pytest.param(of_another_user, marks=is_root),
        pytest.param(below_one_of_another_user, marks=is_root),
        pytest.param(by_a_link_of_another_user, marks=is_root),
    ],
)
def test_a_directory_that_is_not_the_users_is_not_used(
    home: Path, change: Callable[[Path], None]
) -> None:
    assert kept(b"old")
    before = {path: path.stat().st_mtime_ns for path in entries(home)}
    change(home)
    assert not kept()
    results = find_cache("results")
    assert results is not None and results.read("entry") is None
    assert results.find_problem() != ""
    results.clear()
    if change not in (a_link_to_a_directory, a_file):
        assert {path: path.stat().st_mtime_ns for path in entries(home)} == before
    visible = CliRunner().invoke(command, catch_exceptions=False).stdout
    assert visible.startswith("0 files") and "not used: " in visible and visible.count("\n") == 2


def test_results_in_a_directory_that_is_a_link(home: Path) -> None:
    assert kept()
    (home / "results").rename(home.with_name("elsewhere"))
    (home / "results").symlink_to(home.with_name("elsewhere"))
    assert not kept(b"new")
    assert (home.with_name("elsewhere") / "entry").read_bytes().endswith(b"content")


def test_below_a_directory_for_all_with_the_sticky_bit(home: Path) -> None:
    home.parent.mkdir()
    home.parent.chmod(0o1777)
    assert kept()


def test_a_cache_home_that_is_a_link_of_the_user(home: Path) -> None:
    home.parent.with_name("scratch").mkdir()
    home.parent.symlink_to("scratch")
    assert kept()


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022])
def test_directories_are_the_users_alone_whatever_the_umask(home: Path, umask: int) -> None:
    home.parent.mkdir()
    old = os.umask(umask)
    try:
        assert kept()
    finally:
        os.umask(old)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (home, home / "results")] == [0o700] * 2


# ------------------------------------------------------------------------------------ its place


@pytest.mark.parametrize("value", ["", "cache", "./cache", "../cache", "~/cache", None])
def test_a_cache_home_that_is_not_absolute_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    if value is None:
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", value)
    assert cache_directory() == tmp_path / "me" / ".cache" / "fusionscope"
    assert kept()
    assert [path.name for path in tmp_path.iterdir()] == ["me"]


def test_a_home_that_is_not_absolute_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "me")
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    assert cache_directory() is None and find_cache() is None
    keep("forms", "source", b"content")
    assert list(tmp_path.iterdir()) == []


# --------------------------------------------------------------------------------------- its size


@pytest.mark.parametrize("name", ["forms-0.json", ".entry.17.part", "tried-17", "old/left-over"])
def test_everything_counts_and_is_removed_the_oldest_first(tmp_path: Path, name: str) -> None:
    cache = Cache(tmp_path / "fusionscope", "results", largest=1000)
    cache.write("a", bytes(100))
    file = cache.root / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(bytes(800))
    os.utime(file, (1_000_000, 1_000_000))
    assert cache.measure() == (2, 932)
    cache.write("b", bytes(100))
    assert not file.exists()
    assert cache.measure() == (2, 264)


def test_one_limit_for_all_folders(tmp_path: Path) -> None:
    forms = Cache(tmp_path / "fusionscope", largest=1000)
    results = Cache(tmp_path / "fusionscope", "results", largest=1000)
    forms.write("a", bytes(500))
    os.utime(forms.root / "a", (1_000_000, 1_000_000))
    results.write("b", bytes(600))
    assert (forms.read("a"), results.read("b")) == (None, bytes(600))


def test_clearing_removes_whatever_is_no_directory(home: Path, victim: Path) -> None:
    assert kept()
    os.mkfifo(home / "fifo")
    (home / "link").symlink_to(victim)
    (home / "results" / "link").symlink_to(victim.parent)
    CliRunner().invoke(command, ["--clear"], catch_exceptions=False)
    assert sorted(path.name for path in home.rglob("*")) == ["results"]
    assert victim.read_text() == "precious"
