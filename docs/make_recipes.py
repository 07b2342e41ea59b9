"""Writes docs/recipes.md, and docs/recipes/ with one page a recipe.

python docs/make_recipes.py
"""

from collections.abc import Iterator
from pathlib import Path

from fusionscope.advise.recipes.catalogue import RecipePage, all_pages
from fusionscope.advise.recipes.proofs import Proofs, read_proofs
from fusionscope.report.recipes import figures, list_to_markdown, page_to_markdown

DOCS = Path(__file__).parent
REJECTED = DOCS / "rejected_recipes.json"
INTRODUCTION = """# Edits of a program that help

**Which edit of my program saves launches, bytes or time?**

```sh
fusionscope explain dump            # names the recipes that match; for GPUs and TPUs, tries them
fusionscope explain dump --compile  # compiles the edited HLO; on a CPU, also times it
fusionscope recipes unroll-loop     # one page: what it replaces, and when it backfires
```

[Recipes on whole programs](advice.md#recipes-edited-by-hand) shows what they save there.

"""
MEASURED = """
## Measurements

Each recipe has an example: a JAX function before and after the edit. Both are compiled for a CPU,
for an absent H100 and for an absent TPU v5e. The HLO of the first function as rewritten by the
recipe is compiled as well, and has to save as much as the edit. All of them run on the CPU, on the
same random inputs, and their results have to agree. `python -m conformance recipe_proofs` does this
for one version of jaxlib; the page of a recipe has the figures of the rewritten HLO, too.

Times for a CPU are ratios to the time before the edit, of alternating runs: the median, and its
95 % confidence interval. Times for an H100 and a v5e are the compiler's own estimates; where it
has none, for sorts and library calls, at least the time to move their bytes.

"""
TRIED = """
## Tried, does not help

These edits are often advised, or look as if they should help, and were measured in the same way
with `tools/conformance/recipe_proofs.py rejected` (times on 2026-11-22, launches and bytes on
2026-11-27, at commit 891d88b2).
None is a recipe: it saves nothing, it saves time on one of the two and costs time on the other, or
it computes something else, as other random number generators do.

The results of attention by `jax.nn.dot_product_attention(..., implementation="cudnn")` cannot be
compared without a GPU. With `nvidia-cudnn-cu13` 9.28 installed, jaxlib 0.12.0.1 compiled it over
`bf16[2,512,8,64]` for an H100 into one launch that moves 4.19 MB, while two products and a
`softmax` need 7 launches and move 46.14 MB.

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
