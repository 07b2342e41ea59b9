"""Revisions of a git repository, checked out beside it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from fusionscope.errors import UnusableInput, quoted
from fusionscope.system.files import is_directory
from fusionscope.system.processes import run_for_output

_LIMIT_S = 600.0
_OF_A_HOOK = frozenset(
    "GIT_COMMON_DIR GIT_DIR GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_PREFIX GIT_WORK_TREE".split()
)
_WITHOUT_HOOKS = ("-c", "core.hooksPath=/dev/null")


@dataclass(frozen=True, slots=True)
class CheckedOut:
    """``folder`` is what a folder of the repository was in that revision, ``top`` the whole."""

    folder: Path
    top: Path
    commit: str


@contextmanager
def checked_out(revision: str, folder: Path) -> Iterator[CheckedOut]:
    """Check out ``revision`` of the repository of ``folder`` into a temporary worktree, and remove
    it at the end of the block. Raises ``UnusableInput`` if it has none, or no such revision.
    """
    top = _git(folder, "rev-parse", "--show-toplevel", problem=f"{folder} is in no git repository")
    commit = _git(
        folder,
        "rev-parse",
        "--verify",
        "--quiet",
        "--end-of-options",
        f"{revision}^{{commit}}",
        problem=f"{quoted(revision)} is neither a dump nor a revision of {top}",
    )
    with TemporaryDirectory() as scratch:
        tree = Path(scratch).resolve() / "tree"
        _git(folder, *_WITHOUT_HOOKS, "worktree", "add", "--detach", str(tree), commit)
        try:
            inside = tree / folder.resolve().relative_to(Path(top).resolve())
            if not is_directory(inside):
                raise UnusableInput(f"{quoted(revision)} has no folder {inside.relative_to(tree)}")
            yield CheckedOut(inside, tree, commit)
        finally:
            _git(folder, "worktree", "remove", "--force", str(tree))


def _git(folder: Path, *arguments: str, problem: str = "") -> str:
    # For a hook, git sets these to the repository and the files of a commit.
    environment = {key: value for key, value in os.environ.items() if key not in _OF_A_HOOK}
    ended, output = run_for_output(["git", *arguments], environment, _LIMIT_S, folder)
    if ended.code:
        lines = ended.errors.strip().splitlines() or ["no more is known"]
        raise UnusableInput(problem or f"git {arguments[0]}: {lines[-1]}")
    return output.strip()
