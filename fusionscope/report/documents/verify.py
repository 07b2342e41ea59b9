"""The JSON output of ``fusionscope verify``."""

from __future__ import annotations

from typing import Annotated

from fusionscope.report.documents.form import At, Form
from fusionscope.report.documents.rules_used import Agreement, RulesUsed


class Divergence(Form):
    """The first difference of a plan."""

    computation: str
    what: str
    replay: Annotated[str, At("ours")]
    compiler: Annotated[str, At("theirs")]


class Disagreement(Form):
    """The first decision that only one of the two has."""

    replay: Annotated[str, At("ours")]
    compiler: Annotated[str, At("theirs")]


class Steps(Form):
    """How many decisions of the GPU's priority fusion agree."""

    priorities: Annotated[Agreement, At("native")]
    priorities_with_triton: Annotated[Agreement, At("with_triton")]
    reasons: Agreement
    reasons_of_another_consumer: Annotated[int, At("reasons_of_another")]
    fusions: Agreement


class Pass(Form):
    """One run of a pass that was replayed."""

    pass_: Annotated[str, At("pass_name")]
    rules: Annotated[str, At("book")]
    before: str
    after: str | None
    identical: Annotated[bool, At("is_identical")]
    same_kernels: Annotated[bool, At("has_same_kernels")]
    divergence: Divergence | None
    pairs: Annotated[Agreement, At(lambda run: (run.pairs, run.pairs_agreeing))]
    decisions: Annotated[Agreement, At(lambda run: (run.decisions, run.decisions_agreeing))]
    disagreement: Disagreement | None
    steps: Steps | None


class Module(Form):
    name: str
    folder: str
    number: int
    rules: RulesUsed
    passes: list[Pass]


class Inferred(Form):
    """A module of which no pass can be replayed."""

    name: str
    folder: str
    number: int
    device: str | None
    pairs: Annotated[Agreement, At(lambda found: (found.pairs, found.agreeing))]
    refused: int
    wrong: str | None


class Document(Form, tag_field="schema", tag="fusionscope.verify/1"):
    path: str
    agreement: float | None
    identical: Annotated[bool, At("is_identical")]
    modules: list[Module]
    inferred: list[Inferred]
    problems: Annotated[list[str], At(lambda found: (*found.problems, *found.notes))]
