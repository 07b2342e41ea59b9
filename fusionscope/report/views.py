"""What a notebook shows as a figure, or as a page of its own."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

from fusionscope.findings.kernels.page import sheets
from fusionscope.report.figures import to_svg
from fusionscope.words.html import to_html
from fusionscope.words.markdown import to_markdown

if TYPE_CHECKING:
    from fusionscope.facts.result import KernelPage
    from fusionscope.page.kernel_pictures import KernelPicture

_TOP = 10  # entries of a list
_HEIGHT = 800  # pixels of a page in a cell


@dataclass(frozen=True, slots=True)
class KernelView:
    """Kernels with a figure of them and their neighbours, as SVG."""

    pages: tuple[KernelPage, ...]
    svg: str = field(repr=False)

    def _repr_html_(self) -> str:
        words = to_html(section for page in self.pages for section in sheets(page, _TOP))
        # As an image, it keeps its style to itself.
        image = f"data:image/svg+xml;base64,{b64encode(self.svg.encode()).decode('ascii')}"
        names = ", ".join(page.kernel.name for page in self.pages)
        style = "max-width: 100%; height: auto"
        return f'<img src="{image}" alt="{escape(names)}" style="{style}"/>\n{words}'

    def _repr_markdown_(self) -> str:
        return "\n".join(line for page in self.pages for line in to_markdown(sheets(page, _TOP)))


def kernel_view(picture: KernelPicture) -> KernelView:
    return KernelView(picture.pages, to_svg(picture.neighbourhood))


@dataclass(frozen=True, slots=True)
class PageView:
    """The page of ``fusionscope report``: one file that needs nothing else."""

    html: str = field(repr=False)

    def _repr_html_(self) -> str:
        style = "border: 0; background: #fff"
        return (
            f'<iframe srcdoc="{escape(self.html)}" width="100%" height="{_HEIGHT}" '
            f'style="{style}"></iframe>'
        )
