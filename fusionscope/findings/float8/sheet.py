"""Products of 8-bit floats in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fusionscope.findings.conditions import condition_lines
from fusionscope.findings.float8.facts import Float8Product
from fusionscope.words.section import Entry, Line, Section, Tone, line, ranked, spans, strong
from fusionscope.words.text import plural

if TYPE_CHECKING:
    from fusionscope.facts.result import ModuleFacts

_TITLE = "Products of 8-bit floats"
_TRITON_OFF = "--xla_gpu_enable_triton_gemm=false"


def sheet(module: ModuleFacts, top: int | None) -> Iterator[Section]:
    """Yield the products, those first that are no call of cuBLASLt for 8-bit floats."""
    yield from _section(module, top, shows_edits=True)


def _section(module: ModuleFacts, top: int | None, *, shows_edits: bool) -> Iterator[Section]:
    products = sorted(module.find_all(Float8Product), key=lambda product: product.is_call)
    if not products:
        return
    calls = sum(product.is_call for product in products)
    summary = f"{calls:,} of {plural(len(products), 'product')} read and scaled by one call"
    entries = [
        _entry(rank, product, shows_edits=shows_edits)
        for rank, product in enumerate(products[:top], 1)
    ]
    yield Section(
        title=_TITLE,
        summary=spans(summary),
        blocks=(ranked("product", entries, len(products), ("source",)),),
    )


def brief(module: ModuleFacts) -> Iterator[Section]:
    """Yield the first product that is no such call."""
    if not all(product.is_call for product in module.find_all(Float8Product)):
        yield from _section(module, 1, shows_edits=False)


def _entry(rank: int, product: Float8Product, *, shows_edits: bool) -> Entry:
    return Entry(
        label=f"{rank}.",
        name=strong(product.name),
        figures=(product.source or "",),
        lines=tuple(_lines(product, product.edit if shows_edits else ())),
    )


def _lines(product: Float8Product, edit: tuple[str, ...]) -> Iterator[Line]:
    maker = product.made_by or "an unknown kernel"
    if product.is_call:
        yield line(f"one call of {maker} for 8-bit floats", Tone.GOOD)
    elif product.rule is None:
        yield line(
            f"computed by {maker}; cuBLASLt could compute it in one call for 8-bit floats: with a "
            f"GPU, the compiler measures which is faster, and {_TRITON_OFF} decides"
        )
    else:
        yield line(f"computed by {maker}, not in one call for 8-bit floats", Tone.BAD)
        yield from condition_lines(
            product.rule, product.why, product.at, edit, product.edit_changes
        )
