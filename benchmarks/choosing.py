"""Which of its programs a benchmark runs."""

import argparse
import fnmatch
from collections.abc import Sequence


def chosen(
    parser: argparse.ArgumentParser, names: Sequence[str], globs: list[str] | None
) -> list[str]:
    """Return the names that one of the globs of ``--only`` matches, all without any. Ends with an
    error if none is matched.
    """
    if globs is None:
        return list(names)
    matches = [name for name in names if any(fnmatch.fnmatchcase(name, glob) for glob in globs)]
    if not matches:
        parser.error(f"--only: there are {', '.join(names)}")
    return matches
