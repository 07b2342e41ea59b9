"""Writes docs/recipes.md, and docs/recipes/ with one page a recipe.

python docs/make_recipes.py
"""

from collections.abc import Iterator
from pathlib import Path

from fusionscope.advise.recipes.catalogue import RecipePage, all_pages
from fusionscope.advise.recipes.proofs import Proofs, read_proofs
from fusionscope.report.recipes import figures, list_to_markdown, page_to_markdown

DOCS = Path(__file__).parent
REJECTED = DOCS.parent / "tools" / "conformance" / "rejected_recipes.json"
INTRODUCTION = """# Edits of a program that help

A recipe is an edit of a program that saves launches, bytes or time. Each has a page that explains
which operations it is for, what becomes of them, and when it makes a program slower.
`fusionscope recipes` lists them, and `fusionscope recipes ID` prints one page.

`fusionscope explain DUMP` recognises them in the program of a dump, and names the lines of the
program under *What to try*. With `--compile` the recipe is applied to the program's HLO and
compiled, for the device of the dump; on a CPU the result is also run beside the program as it is.
[Recipes on whole programs](recipes-on-programs.md) shows what came of that, and of the same edits
by hand.

"""
MEASURED = """
## What was measured

Each recipe has an example: a function of JAX before and after the edit. Both are compiled for a
CPU and for an absent H100. What the recipe makes of the HLO of the first function is compiled as
well, and has to save what the edit saves. All of them run on the CPU, on the same random inputs,
and their results have to agree. `python tools/conformance/recipe_proofs.py` does this for one
version of jaxlib; the page of a recipe has the figures of the rewritten HLO, too.

Times for a CPU are ratios to the time before the edit, of runs in turns: the median, and an
interval that holds it with 95 %. Times for an H100 are the compiler's own estimates; where it has
none, for sorts and library calls, at least the time to move their bytes.

"""
TRIED = """
## Tried, does not help

These edits are often advised, or look as if they should help, and were measured in the same way.
None is a recipe: it saves nothing, it saves time on one of the two and costs it on the other, or,
as random numbers by other means, it computes something else. A recurrence as `associative_scan`
saves launches on a GPU, but nothing recognises such recurrences so far.

Attention by `jax.nn.dot_product_attention(..., implementation="cudnn")` is no recipe either, as its
results cannot be compared without a GPU. With `nvidia-cudnn-cu13` 9.28 installed, jaxlib 0.12.0.1
compiled attention over `bf16[2,512,8,64]` for an H100 into one launch that moves 4.19 MB, where the
same written as two products and a `softmax` has 7 launches and moves 46.14 MB.

"""


def pages() -> dict[str, str]:
    """File names below docs/ and their text."""
    recipes = all_pages()
    proofs = {page.recipe.id: page.proofs for page in recipes}
    index = INTRODUCTION + list_to_markdown(recipes) + MEASURED + _table(proofs)
    rejected = read_proofs(REJECTED)
    if rejected:
        index += TRIED + _table(rejected)
    return {"recipes.md": index} | {_name(page): page_to_markdown(page) for page in recipes}


def _name(page: RecipePage) -> str:
    return f"recipes/{page.recipe.id}.md"


def _table(proofs: Proofs) -> str:
    return "\n".join(_rows(proofs)) + "\n"


def _rows(proofs: Proofs) -> Iterator[str]:
    yield "| edit | jaxlib | for | launches | MB | time |\n|---|---|---|--:|--:|--:|"
    for id, own in proofs.items():
        for proof in own:
            cells = (id, proof.jaxlib, proof.target, *figures(proof.before, proof.after))
            yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    folder = DOCS / "recipes"
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.md"):
        old.unlink()
    for name, text in pages().items():
        (DOCS / name).write_text(text, encoding="utf-8")
