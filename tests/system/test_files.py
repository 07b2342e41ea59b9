"""Files are opened and written in one place: regular ones, and as a whole."""

from __future__ import annotations

import gzip
import os
import resource
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from conformance.special_files import make_socket

from fusionscope.errors import UnusableInput
from fusionscope.system import files


def link_to_nowhere(path: Path) -> None:
    path.symlink_to("nowhere")


def link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (os.mkfifo, "a FIFO, expected a regular file"),
        (Path.mkdir, "a directory, expected a regular file"),
        (make_socket, "a socket, expected a regular file"),
        (link_to_a_device, "a device, expected a regular file"),
        (link_to_nowhere, "a link to a file that is not there"),
        (lambda path: None, "no such file"),
    ],
)
def test_what_is_no_regular_file_is_refused(
    tmp_path: Path, make: Callable[[Path], None], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    make(Path("odd"))
    with pytest.raises(UnusableInput) as error:
        files.read_file(Path("odd"))
    assert str(error.value) == f"odd: {words}"


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000, "file/below"])
def test_names_that_no_file_can_have(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnusableInput):
        files.read_file(tmp_path / name)
    with pytest.raises(UnusableInput):
        files.write_file(tmp_path / name, "")
    assert not files.is_there(tmp_path / name)
    assert not files.is_directory(tmp_path / name)


def test_a_file_that_claims_to_be_huge(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(files.LARGEST_BYTES + 1)
    with pytest.raises(UnusableInput, match="holds more than 2,147,483,648 bytes"):
        files.read_file(tmp_path / "sparse")


def test_a_file_that_unpacks_to_much_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_ALWAYS_ACCEPTED_BYTES", 1 << 20)
    packed = gzip.compress(bytes(8 << 20))
    with pytest.raises(UnusableInput, match="holds more than 1,048,576 bytes"):
        files.uncompress(packed, "bomb.gz")
    assert files.uncompress(gzip.compress(bytes(1 << 20)), "file.gz") == bytes(1 << 20)


def limited(write: Callable[[], None]) -> int:
    """The exit code of a child in which no file may become larger than 1000 bytes."""
    child = os.fork()
    if child == 0:
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            write()
        except UnusableInput:
            os._exit(2)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_the_old_file_stays_where_the_new_one_does_not_fit(tmp_path: Path) -> None:
    file = tmp_path / "baseline.json"
    files.write_file(file, "old")
    assert limited(lambda: files.write_file(file, "new" * 1000)) == 2
    assert list(tmp_path.iterdir()) == [file]
    assert file.read_text() == "old"
    assert limited(lambda: files.write_file(file, "new")) == 0
    assert file.read_text() == "new"


def test_a_link_and_the_mode_of_a_file_stay(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "file").chmod(0o640)
    (tmp_path / "link").symlink_to("file")
    files.write_file(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new"
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


def test_a_device_is_written_to_directly() -> None:
    files.write_file(Path("/dev/null"), "text")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    with pytest.raises(UnusableInput, match=r"cannot be written: No space left on device"):
        files.write_file(Path("/dev/full"), "text")


def test_only_what_nobody_else_can_write_is_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "file"
    files.write_file(file, "text", mode=0o600)
    assert files.read_own_file(file) == b"text"
    file.chmod(0o660)
    with pytest.raises(UnusableInput, match="others can write it"):
        files.read_own_file(file)
    if os.geteuid() == 0:
        file.chmod(0o600)
        os.chown(file, 12345, 12345)
        with pytest.raises(UnusableInput, match="others can write it"):
            files.read_own_file(file)
