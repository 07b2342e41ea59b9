"""Results that a notebook shows as their commands print them."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fusionscope.words.section import Section

_WORDS = "fusionscope.report.notebook"  # imports all kinds of results


class Shown:
    """A result with the representations that IPython, and what displays like it, asks for."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        from fusionscope.words.html import to_html

        return to_html(self._sections())

    def _repr_markdown_(self) -> str:
        from fusionscope.words.markdown import to_markdown

        return "\n".join(to_markdown(self._sections()))

    def _sections(self) -> Iterable[Section]:
        sections: Iterable[Section] = import_module(_WORDS).sections_of(self)
        return sections
