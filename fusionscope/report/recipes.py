"""The list of recipes and the page of one, in words and as the pages of the site."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fusionscope.words.section import Column, Line, Lines, Section, Table, Tone, lines, spans
from fusionscope.words.text import cell

if TYPE_CHECKING:
    from fusionscope.advise.recipes.catalogue import RecipePage
    from fusionscope.advise.recipes.proofs import Proof, Side

_LIST = (Column("recipe"), Column("edit", wraps=True))
_FIGURES = ("jaxlib", "for", "launches", "MB", "time", "rewritten: launches", "MB", "time")


def list_to_markdown(pages: Sequence[RecipePage]) -> str:
    """Return a table, each recipe with a link to its page in recipes/."""
    return "\n".join(_markdown_list(pages)) + "\n"


def _markdown_list(pages: Sequence[RecipePage]) -> Iterator[str]:
    yield "| recipe | edit | helps on |\n|---|---|---|"
    for page in pages:
        recipe = page.recipe
        yield (
            f"| [{recipe.id}](recipes/{recipe.id}.md) | {cell(recipe.title)} "
            f"| {', '.join(page.backends)} |"
        )


def page_to_markdown(page: RecipePage) -> str:
    return "\n".join(_markdown_page(page)) + "\n"


def _markdown_page(page: RecipePage) -> Iterator[str]:
    recipe = page.recipe
    yield f"# {recipe.id}\n"
    yield f"{_sentence(recipe.title)}\n"
    for heading, text in _paragraphs(page):
        yield f"**{heading}** {text}\n"
    for heading, code in _programs(page):
        yield f"{heading}:\n\n```python\n{code}\n```\n"
    yield f"Arguments: {_shapes(recipe.example.arguments)}.\n"
    if recipe.example.arguments_after:
        yield f"After the edit: {_shapes(recipe.example.arguments_after)}.\n"
    yield from proofs_to_markdown(page.proofs)


def _shapes(arguments: Sequence[str]) -> str:
    return ", ".join(f"`{argument}`" for argument in arguments)


def _sentence(title: str) -> str:
    return f"{title[0].upper()}{title[1:]}."


def _paragraphs(page: RecipePage) -> Iterator[tuple[str, str]]:
    recipe = page.recipe
    yield "What", recipe.what
    yield "Why", recipe.why
    yield "When it backfires", recipe.backfires
    yield "Helps on", ", ".join(page.backends)


def _programs(page: RecipePage) -> Iterator[tuple[str, str]]:
    yield "Before", page.recipe.example.before.strip()
    yield "After", page.recipe.example.after.strip()


def proofs_to_markdown(proofs: Sequence[Proof]) -> Iterator[str]:
    """Yield the figures of an example, one row for each version and target."""
    yield f"| {' | '.join(_FIGURES)} |\n|---|---|{'--:|' * (len(_FIGURES) - 2)}"
    for proof in proofs:
        yield f"| {' | '.join(_cells(proof))} |"


def _cells(proof: Proof) -> Iterator[str]:
    yield proof.jaxlib
    yield proof.target
    yield from figures(proof.before, proof.after)
    rewritten = proof.rewritten
    yield from figures(proof.before, rewritten) if rewritten is not None else ("", "", "")


def figures(before: Side, after: Side) -> Iterator[str]:
    """Yield launches, megabytes and time before and after an edit."""
    yield f"{before.launches} → {after.launches}"
    yield f"{before.bytes_moved / 1e6:.3f} → {after.bytes_moved / 1e6:.3f}"
    if after.ratio is not None:
        low, median, high = after.ratio
        yield f"x {median:.2f} ({low:.2f} to {high:.2f})"
    elif before.time_us is not None and after.time_us is not None:
        yield f"{before.time_us:.1f} → {after.time_us:.1f} us"
    else:
        yield "-"


def list_sections(pages: Sequence[RecipePage]) -> Iterator[Section]:
    rows = tuple(
        (page.recipe.id, f"{page.recipe.title} ({', '.join(page.backends)})") for page in pages
    )
    hint = lines(["fusionscope recipes ID prints the page of one recipe"])
    table = Table(columns=_LIST, rows=rows, noun="recipe", has_head=False)
    yield Section(blocks=(table, hint), is_heading=True)


def page_sections(page: RecipePage) -> Iterator[Section]:
    """Yield the page of a recipe, with the programs of its example and what became of them."""
    texts = (
        Line(spans=spans((f"{heading}:", Tone.QUIET), f" {text.replace('`', '')}"))
        for heading, text in _paragraphs(page)
    )
    title = f"{page.recipe.id}: {page.recipe.title}"
    yield Section(title=title, blocks=(Lines(tuple(texts)),), is_heading=True)
    for heading, code in _programs(page):
        text = lines(code.splitlines())
        yield Section(title=heading, blocks=(text,), is_heading=True)
    yield Section(blocks=(lines(map(_proof, page.proofs)),))


def _proof(proof: Proof) -> str:
    launches, size, time = figures(proof.before, proof.after)
    return f"jaxlib {proof.jaxlib}, {proof.target}: {launches} launches, {size} MB, {time}"
