"""Caches data derived from the grammar between runs, in the user's own cache directory."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

from fusionscope.errors import UnusableInput
from fusionscope.system.cache import cache_directory
from fusionscope.system.files import make_directory, read_own_file, write_file


def _file(name: str, source: str) -> Path | None:
    """Return the cache file, or None for a user without a home."""
    directory = cache_directory()
    digest = hashlib.sha256(source.encode()).hexdigest()
    return directory / f"{name}-{digest[:32]}.json" if directory is not None else None


def read_kept(name: str, source: str) -> bytes | None:
    """Return the data that was cached under ``name`` for this ``source``.

    Return None if there is none, it is damaged, or somebody else could have written it.
    """
    file = _file(name, source)
    try:
        content = read_own_file(file) if file is not None else b""
    except (UnusableInput, ValueError):
        return None
    digest, data = content[:64], content[64:]
    return data if hashlib.sha256(data).hexdigest().encode() == digest else None


def keep(name: str, source: str, data: bytes) -> None:
    """Cache ``data`` for ``read_kept``. Does nothing if that is not possible."""
    file = _file(name, source)
    if file is None:
        return
    with contextlib.suppress(UnusableInput):
        make_directory(file.parent)
        write_file(file, hashlib.sha256(data).hexdigest().encode() + data, mode=0o600)
