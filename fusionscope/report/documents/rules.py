"""The JSON output of ``fusionscope rules``; the result is a list of pages."""

from __future__ import annotations

from typing import Annotated

from fusionscope.report.documents.form import At, Form


class Example(Form):
    """A module on which a rule decides, or does not.

    decided: whether it decides
    allowed: whether it allows; false if it refuses or leaves the decision to another rule
    producer: the instruction that the example is about
    consumer: the one that reads it; null if the rule is about single operations
    instead: the rule that decides instead
    why: what the example shows
    text: the module, as HLO text
    """

    decided: Annotated[bool, At("is_decided")]
    allowed: Annotated[bool, At("is_allowed")]
    producer: str
    consumer: str | None
    instead: str | None
    why: str
    text: str


class Rule(Form):
    """A rule of the compiler.

    id: its id
    title: what it is about, in a few words
    pass_: the pass that asks it, as files name it
    backend: ``cpu``
    versions: versions of jaxlib that it was compared with
    what: exactly what it refuses or allows
    why: why the compiler has it, as a clause after *because*
    message: the compiler's own words
    try_: what a user can do about it, as a phrase after *you can*
    source: file and function in XLA
    accuracy: how often a rule was right that was found by experiment; null for others
    legality: whether the result would be wrong, or could not be compiled, without it
    thresholds: its thresholds
    older_thresholds: the thresholds of older versions, by version, where they were others
    examples: small modules that it decides or leaves to other rules
    """

    id: str
    title: Annotated[str, At("page.title")]
    pass_: Annotated[str, At("pass_name")]
    backend: str
    versions: list[str]
    what: Annotated[str, At("page.what")]
    why: Annotated[str | None, At("page.why")]
    message: str | None
    try_: Annotated[str | None, At("page.lever")]
    source: Annotated[str, At("page.source")]
    accuracy: str | None
    legality: Annotated[bool, At("is_legality")]
    thresholds: dict[str, int]
    older_thresholds: dict[str, dict[str, int]]
    examples: Annotated[list[Example], At("page.examples")]


class Document(Form, tag_field="schema", tag="fusionscope.rules/1"):
    """``fusionscope rules [ID] --format json``.

    rules: the rules, or the requested one
    """

    rules: Annotated[list[Rule], At()]
