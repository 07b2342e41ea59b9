"""How far a replay agrees with what a dump shows."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct


class Agreement(Struct, frozen=True):
    """A number of things that were compared, and of how many of them both sides say the same.

    compared: how many were compared
    agreeing: on how many both agree
    """

    compared: int
    agreeing: int

    @property
    def is_full(self) -> bool:
        return self.agreeing == self.compared


def total(parts: Iterable[Agreement]) -> Agreement:
    compared, agreeing = 0, 0
    for part in parts:
        compared, agreeing = compared + part.compared, agreeing + part.agreeing
    return Agreement(compared, agreeing)
