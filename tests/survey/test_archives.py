"""Archives, which anybody may have made: damaged ones, and ones that are up to something."""

import gzip
import io
import random
import stat
import tarfile
import zipfile
from pathlib import Path

import pyarrow
import pytest

from fusionscope.errors import UnusableInput
from fusionscope.survey import archives
from fusionscope.survey.archives import unpack

STAGE = "module_0001.jit_f.before_optimizations.txt"
KINDS = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.zst")


def pack(path: Path, members: dict[str, bytes]) -> Path:
    """An archive of the kind that the name says."""
    buffer = io.BytesIO()
    if path.suffix == ".zip":
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(name, content)
    else:
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for name, content in members.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    data = buffer.getvalue()
    if path.suffix in (".gz", ".tgz"):
        data = gzip.compress(data)
    if path.suffix == ".zst":
        data = pyarrow.compress(data, "zstd", asbytes=True)
    path.write_bytes(data)
    return path


def below(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", KINDS)
def test_dump_files_of_each_folder_are_unpacked_and_nothing_else(tmp_path: Path, kind: str) -> None:
    archive = pack(
        tmp_path / f"a{kind}",
        {f"x/{STAGE}": b"one", f"y/z/{STAGE}.gz": b"two", "x/README": b"no", STAGE: b"three"},
    )
    into = tmp_path / "into"
    actual = unpack(archive, into)
    assert {name: below(path) for path, name in actual.folders.items()} == {
        "x": {STAGE},
        "y/z": {f"{STAGE}.gz"},
        ".": {STAGE},
    }
    assert below(into) == {f"0/{STAGE}", f"1/{STAGE}.gz", f"2/{STAGE}"}
    assert not actual.problems


@pytest.mark.parametrize("kind", [".zip", ".tar.gz"])
@pytest.mark.parametrize("folder", ["../..", "/tmp", "a/../../..", "..\\..", "C:\\x", "~", "."])
def test_no_member_leaves_the_folder(tmp_path: Path, kind: str, folder: str) -> None:
    archive = pack(tmp_path / f"a{kind}", {f"{folder}/{STAGE}": b"text"})
    into = tmp_path / "deep" / "into"
    unpack(archive, into)
    assert below(tmp_path) == {f"a{kind}", f"deep/into/0/{STAGE}"}


def test_links_and_devices_are_left_out_and_told(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        for number, kind in enumerate((tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE)):
            member = tarfile.TarInfo(f"{number}/{STAGE}")
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
    actual = unpack(path, tmp_path / "into")
    assert len(actual.problems) == 3
    assert not actual.folders


def test_a_link_in_a_zip(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        member = zipfile.ZipInfo(STAGE)
        member.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(member, "/etc/passwd")
    actual = unpack(path, tmp_path / "into")
    assert actual.problems == (f"{STAGE}: no regular file, or its name is too long",)


@pytest.mark.parametrize("kind", KINDS)
def test_an_archive_that_unpacks_to_too_much(tmp_path: Path, kind: str) -> None:
    members = {f"{number}/{STAGE}": bytes(1000) for number in range(20)}
    archive = pack(tmp_path / f"a{kind}", members)
    unpack(archive, tmp_path / "into", largest=20_000)
    with pytest.raises(UnusableInput, match="more than 19,999 bytes"):
        unpack(archive, tmp_path / "less", largest=19_999)


def test_too_many_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_MOST_MEMBERS", 3)
    pack(tmp_path / "a.tar", dict.fromkeys("abcd", b""))
    with pytest.raises(UnusableInput, match="more than 3 members"):
        unpack(tmp_path / "a.tar", tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_archives_are_refused_or_read(tmp_path: Path, kind: str) -> None:
    content = random.Random(1).randbytes(3000)
    whole = pack(tmp_path / f"a{kind}", {f"x/{STAGE}": content}).read_bytes()
    draw = random.Random(2)
    refused = 0
    for number in range(60):
        data = bytearray(whole[: draw.randrange(len(whole))] if number % 2 else whole)
        for _ in range(3 * (number % 2 == 0)):
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        path = tmp_path / f"b{kind}"
        path.write_bytes(data)
        try:
            unpack(path, tmp_path / str(number))
        except UnusableInput as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused >= 15  # what remains of a plain one may be whole
