"""The JSON output of ``fusionscope recipes``; the result is a list of pages."""

from __future__ import annotations

from typing import Annotated

from fusionscope.report.documents.form import At, Form


class Side(Form):
    """The cost of one run of the example.

    launches: kernels that a run launches
    bytes_moved: bytes that a run reads and writes
    time_us: microseconds of a run: the median of measured times on a CPU, the compiler's estimate
        for a GPU
    ratio: on a CPU, measured times as ratios to those before the edit, run in turns: the median,
        between the ends of an interval that holds it with 95 %
    difference: on a CPU, the largest difference between its results and those before the edit, as a
        share of the largest magnitude
    """

    launches: int
    bytes_moved: int
    time_us: float | None
    ratio: list[float] | None
    difference: float | None


class Proof(Form):
    """What the example of a recipe costs, before the edit and after it.

    jaxlib: the version that compiled it
    target: ``cpu``, or the GPU that it was compiled for
    before: the example before and after the edit
    after: the example before and after the edit
    rewritten: what the recipe makes of the HLO of the example before the edit
    """

    jaxlib: str
    target: str
    before: Side
    after: Side
    rewritten: Side | None


class Recipe(Form):
    """An edit of a program.

    id: its id
    title: what the edit is, in a few words
    what: which operations it replaces, and with what
    why: what that saves
    backfires: when it is slower, or computes something else
    backends: where it helps: ``cpu``, ``gpu``
    arguments: shapes of the example's arguments
    before: the example, as a function of JAX
    after: the example after the edit
    proofs: what the example costs, one entry for each version and target
    """

    id: Annotated[str, At("recipe.id")]
    title: Annotated[str, At("recipe.title")]
    what: Annotated[str, At("recipe.what")]
    why: Annotated[str, At("recipe.why")]
    backfires: Annotated[str, At("recipe.backfires")]
    backends: list[str]
    arguments: Annotated[list[str], At("recipe.example.arguments")]
    before: Annotated[str, At("recipe.example.before")]
    after: Annotated[str, At("recipe.example.after")]
    proofs: list[Proof]


class Document(Form, tag_field="schema", tag="fusionscope.recipes/1"):
    """``fusionscope recipes [ID] --format json``.

    recipes: the recipes, or the requested one
    """

    recipes: Annotated[list[Recipe], At()]
