"""Caches data derived from the grammar between runs, in the user's own cache directory."""

from __future__ import annotations

import hashlib

from fusionscope.system.cache import find_cache


def _entry(name: str, source: str) -> str:
    return f"{name}-{hashlib.sha256(source.encode()).hexdigest()[:32]}.json"


def read_kept(name: str, source: str) -> bytes | None:
    """Return the data that was cached under ``name`` for this ``source``.

    Return None if there is none, it is damaged, or somebody else could have written it.
    """
    cache = find_cache()
    return cache.read(_entry(name, source)) if cache is not None else None


def keep(name: str, source: str, data: bytes) -> None:
    """Cache ``data`` for ``read_kept``. Does nothing if that is not possible."""
    cache = find_cache()
    if cache is not None:
        cache.write(_entry(name, source), data)
