"""Known faults of the compiler that concern a module."""

from __future__ import annotations

from fusionscope.facts.facts import Facts


class Advisory(Facts, frozen=True, kw_only=True):
    """A fault of the compiler, published or fixed, and where the module may show it.

    id: its name in this list
    title: what goes wrong
    thread: where it was reported, a URL
    since: the first release of jaxlib with it
    fixed_in: the first release without it
    workaround: what avoids it
    is_certain: whether the module shows the fault itself; else it has what the fault needs, and
        may be of such a release
    instructions: the kernels of the final module that are concerned
    source: the user's line of the first of them, as ``file:line``
    """

    finding = "advisories"

    id: str
    title: str
    thread: str
    since: str
    fixed_in: str
    workaround: str
    is_certain: bool
    instructions: tuple[str, ...]
    source: str | None


class Fields(Facts, frozen=True):
    """
    advisories: known faults of the compiler that the module shows, or may show
    """

    advisories: tuple[Advisory, ...] = ()
