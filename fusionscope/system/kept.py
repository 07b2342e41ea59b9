"""Caches data derived from the code, such as its grammar, in the user's own cache directory."""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path

from fusionscope import __version__
from fusionscope.system.cache import find_cache


def _entry(name: str, source: str) -> str:
    return f"{name}-{hashlib.sha256(source.encode()).hexdigest()[:32]}.json"


def read_kept(name: str, source: str) -> bytes | None:
    """Return the data that was cached under ``name`` for this ``source``.

    Return None if there is none, it is damaged, or somebody else could have written it.
    """
    entries = find_cache()
    return entries.read(_entry(name, source)) if entries is not None else None


def keep(name: str, source: str, data: bytes) -> None:
    """Cache ``data`` for ``read_kept``. Does nothing if that is not possible."""
    entries = find_cache()
    if entries is not None:
        entries.write(_entry(name, source), data)


@cache
def code_digest() -> str:
    """Return what changes with the code and the data of fusionscope, installed or in a checkout."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256(__version__.encode())
    for folder in (package, package.parent / "grammars"):
        for place, folders, names in os.walk(folder):
            folders[:] = sorted(folder for folder in folders if folder != "__pycache__")
            for name in sorted(names):
                status = Path(place, name).stat()
                digest.update(repr((name, status.st_size, status.st_mtime_ns)).encode())
    return digest.hexdigest()
