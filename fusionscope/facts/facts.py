"""What facts are made of."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct


class Facts(Struct, frozen=True):
    """A part of a result. JSON has the same fields.

    The last paragraph of the docstring says what each field means, in which unit: one ``name:
    meaning`` each, as it is published. ``finding`` is the name of what this is for a module, empty
    if it is only a part of that.
    """

    finding: ClassVar[str] = ""
