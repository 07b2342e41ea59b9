"""Values by what they have in common."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Return the values of each key, keys and values in their order. A key without values has an
    empty list.
    """
    groups: dict[Key, list[Value]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return groups


class Numbers(dict[Hashable, int]):
    """Numbers of keys, counted from 0 in the order in which the keys were first asked for."""

    def __missing__(self, key: Hashable) -> int:
        number = self[key] = len(self)
        return number
