"""The JSON output of ``fusionscope recipes``; the result is a list of pages."""

from __future__ import annotations

from typing import Annotated

from fusionscope.report.documents.form import At, Form


class Side(Form):
    launches: int
    bytes_moved: int
    time_us: float | None
    ratio: list[float] | None
    difference: float | None


class Proof(Form):
    jaxlib: str
    target: str
    before: Side
    after: Side
    rewritten: Side | None


class Recipe(Form):
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
    recipes: Annotated[list[Recipe], At()]
