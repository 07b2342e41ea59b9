"""A revision is checked out beside the repository, and leaves nothing behind."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fusionscope import UnusableInput
from fusionscope.check.revisions import checked_out


def git(repository: Path, *arguments: str) -> str:
    local = ("-c", "user.name=n", "-c", "user.email=n@localhost", "-c", "commit.gpgsign=false")
    result = subprocess.run(
        ["git", *local, *arguments], cwd=repository, check=True, capture_output=True, text=True
    )
    return result.stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository" / "models"
    folder.mkdir(parents=True)
    (folder / "nn.py").write_text("old\n")
    git(folder.parent, "init", "--quiet", "--initial-branch", "main")
    git(folder.parent, "add", ".")
    git(folder.parent, "commit", "--quiet", "--message", "one")
    (folder / "nn.py").write_text("new\n")  # not committed
    return folder


def test_a_folder_as_it_was(repository: Path) -> None:
    before = git(repository, "status", "--porcelain")
    with checked_out("main", repository) as there:
        assert (there.folder / "nn.py").read_text() == "old\n"
        assert there.folder == there.top / "models"
        assert there.commit == git(repository, "rev-parse", "main").strip()
    assert not there.top.exists()
    assert (repository / "nn.py").read_text() == "new\n"
    assert git(repository, "status", "--porcelain") == before
    assert git(repository, "worktree", "list").count("\n") == 1


def test_in_a_hook(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git sets variables for it, which would lead elsewhere."""
    monkeypatch.setenv("GIT_DIR", "/nowhere/.git")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere/index")
    with checked_out("main", repository) as there:
        assert (there.folder / "nn.py").read_text() == "old\n"


def test_hooks_of_the_repository_do_not_run(repository: Path, tmp_path: Path) -> None:
    hook = repository.parent / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    with checked_out("main", repository):
        pass
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("revision", ["nowhere", "", "--help", "main:models", "-f", "main; id"])
def test_what_is_no_revision(repository: Path, revision: str) -> None:
    with (
        pytest.raises(UnusableInput, match="is neither a dump nor a revision"),
        checked_out(revision, repository),
    ):
        pass


def test_what_is_no_repository(tmp_path: Path) -> None:
    with (
        pytest.raises(UnusableInput, match="is in no git repository"),
        checked_out("main", tmp_path),
    ):
        pass


def test_a_folder_that_is_new(repository: Path) -> None:
    new = repository.parent / "new"
    new.mkdir()
    with pytest.raises(UnusableInput, match="'main' has no folder new"), checked_out("main", new):
        pass
    assert git(repository, "worktree", "list").count("\n") == 1
