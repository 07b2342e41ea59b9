"""Experiments on refused pairs in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fusionscope.experiments.factors import EMPTY
from fusionscope.experiments.program import Answer
from fusionscope.words.section import Column, Lines, Section, Span, Table, Tone, line, lines
from fusionscope.words.text import duration, plural, size

if TYPE_CHECKING:
    from fusionscope.experiments.experiment import Asked, Experiment
    from fusionscope.experiments.experiments import Examined, Experiments

_EXPENSIVE = "producer's kind"
_CHEAP = "producer's operation"
_SIZE = "size"
_FLAG = "flag"
# What a factor says if the compiler fuses the pair after its change, and without it.
_WORDS = {
    "reads of the consumer": ("the consumer reads the value {before} times", "if it reads it once"),
    "other users": ("other operations read the producer, too ({before})", "without them"),
    "reads of the producer": ("the producer reads {before} arrays", "if it reads one"),
    "producer is a result": ("the program also returns the producer", "if it does not"),
    "other operands": ("{what} are {before}", "if they are parameters"),
    "users of the consumer": ("the consumer is read by {before}", "if it is only returned"),
    "elements of a constant": ("the constant has {before}", "if it has one"),
    "consumer is a single operation": (
        "nothing is fused into the consumer yet",
        "if the consumer is {after}",
    ),
    "number of operands": ("the {what} are {before}", "with {after}"),
    "dimension": ("{what} is {before}", "along {after}"),
    _SIZE: ("a dimension has {before} elements", "with {bound}"),
    "neighbours": ("there are other operations around the pair ({before})", "without them"),
    "element type": ("the element type is {before}", "with {after}"),
    _CHEAP: ("the producer is {before}", "if it is {after}"),
    _EXPENSIVE: ("the producer is {before}", "if it is {after}"),
    "layout": ("{what} is {before}", "with {after}"),
    "rank": ("the arrays have {before} dimensions", "with one"),
    "barrier": ("{what} is {before}", "with it {after}"),
    "donated buffer": ("the result has a buffer of its own", "in that of a donated parameter"),
    _FLAG: ("{what} is {before}", "with {after}"),
    "consumer's operation": ("the consumer is {before}", "if it is {after}"),
}
_QUESTIONS = (Column("answer"), Column("what was changed", wraps=True))
_BOTH = ("{what} are {before}", "if they are {after}")


def sections_of(experiments: Experiments) -> Iterator[Section]:
    """Yield each refused pair with what was found about it; of a single one, all questions."""
    count = len(experiments.pairs)
    share = f" of {experiments.matched}" if experiments.matched > count else ""
    cached = experiments.asked - experiments.compiled
    more = f", {cached} known from before" if cached else ""
    programs = plural(experiments.asked, "program")
    pairs = f"{plural(count, 'refused pair')}{share}"
    yield Section(
        title=f"{experiments.module}: {pairs}, asked of {experiments.compiler}",
        blocks=(lines([f"{programs} in {duration(experiments.seconds * 1e6)}{more}"], Tone.QUIET),),
        is_heading=True,
    )
    yield from (_pair(pair, is_only=count == 1) for pair in experiments.pairs)


def _pair(pair: Examined, *, is_only: bool) -> Section:
    experiment = pair.experiment
    tone = Tone.PLAIN if experiment.flips else Tone.WARNING
    texts = [line(answer_in_words(experiment), tone)]
    if experiment.reproduced:
        texts.append(line(f"cut out: {around_in_words(experiment.around)}", Tone.QUIET))
    if is_only and experiment.reproduced:
        texts.append(line("the programs: --format json", Tone.QUIET))
    rows = map(_question, experiment.questions if is_only and experiment.reproduced else ())
    return Section(
        title=f"{experiment.producer} -> {experiment.consumer}",
        summary=(Span(f"{size(pair.bytes_saved)}, {pair.reason}"),),
        blocks=(Lines(tuple(texts)), Table(columns=_QUESTIONS, rows=tuple(rows), has_head=False)),
    )


def _question(question: Asked) -> tuple[Span, ...]:
    tone = Tone.GOOD if question.answer is Answer.FUSED else Tone.QUIET
    return Span(question.answer, tone), Span(f"{question.what}: {_change(question)}", tone)


def answer_in_words(experiment: Experiment) -> str:
    """Return in one sentence what the experiment found."""
    if experiment.problem:
        return f"no experiment: {experiment.problem}"
    if not experiment.reproduced:
        return (
            f"cut out, the pair is not refused ({plural(experiment.cuts, 'neighbourhood')} tried)"
        )
    if not experiment.flips:
        return "refused, whatever was changed"
    cause = experiment.flips[0]
    because, otherwise = (
        sentence.format(
            what=cause.what, before=cause.before, after=cause.after, bound=_bound(experiment)
        )
        for sentence in _WORDS.get(cause.factor, _BOTH)
    )
    if cause.factor == _CHEAP and _is_expensive(experiment):
        because += ", which is expensive"
    return f"not fused because {because}; {otherwise}, the compiler fuses it"


def _bound(experiment: Experiment) -> str:
    """Return with which sizes the compiler fuses the pair, as far as it was asked."""
    threshold = experiment.threshold
    if threshold is None:
        return ""
    words = (
        f"up to {threshold.fused}"
        if threshold.fused < threshold.size
        else f"{threshold.fused} or more"
    )
    return f"{words}, but not {threshold.refused}" if threshold.refused != threshold.size else words


def _is_expensive(experiment: Experiment) -> bool:
    """Return whether an expensive elementwise producer is refused, too."""
    return any(
        question.factor == _EXPENSIVE and question.answer is Answer.NOT_FUSED
        for question in experiment.questions
    )


def around_in_words(around: str) -> str:
    """Return what a cut has around its pair."""
    return {
        "the pair": "the two alone",
        "other users": "with what else reads the producer",
        "operands": "with operands and users",
        "kernels": "with what is in their kernels",
    }.get(around, f"with {around} around")


def _change(question: Asked) -> str:
    """Return what became of what. Of a flag with several values, only the difference."""
    before, after = question.before.split(","), question.after.split(",")
    if question.factor != _FLAG or len(before) == len(after) == 1:
        return f"{question.before} -> {question.after}"
    without = [f"without {name}" for name in before if name not in (EMPTY, *after)]
    added = [f"with {name}" for name in after if name not in (EMPTY, *before)]
    return ", ".join([*without, *added])
