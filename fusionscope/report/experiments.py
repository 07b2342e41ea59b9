"""Experiments on refused pairs, on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusionscope.experiments.factors import EMPTY
from fusionscope.experiments.program import Answer
from fusionscope.words.text import duration, plural, safe, size

if TYPE_CHECKING:
    from rich.console import Console

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
_BOTH = ("{what} are {before}", "if they are {after}")


def print_experiments(found: Experiments, console: Console) -> None:
    from rich.text import Text

    shown = len(found.pairs)
    words = f"{safe(found.module)}: {plural(shown, 'refused pair')}"
    if found.matched > shown:
        words += f" of {found.matched}"
    console.print(Text(f"{words}, asked of {safe(found.compiler)}", "bold"))
    kept = (
        f", {found.asked - found.compiled} known from before"
        if found.compiled < found.asked
        else ""
    )
    taken = duration(found.seconds * 1e6)
    console.print(Text(f"  {plural(found.asked, 'program')} in {taken}{kept}", "dim"))
    for pair in found.pairs:
        console.print()
        _print_pair(pair, console, is_only=shown == 1)


def _print_pair(pair: Examined, console: Console, *, is_only: bool) -> None:
    from rich.padding import Padding
    from rich.text import Text

    one = pair.experiment
    names = f"{safe(one.producer)} -> {safe(one.consumer)}"
    console.print(
        Text.assemble((f"{size(pair.bytes_saved)}  ", ""), (names, "bold"), f"  {pair.reason}")
    )
    words = Text(answer_in_words(one), "" if one.flips else "yellow")
    console.print(Padding(words, (0, 0, 0, 2)))
    if not one.reproduced:
        return
    console.print(Text(f"  cut out: {around_in_words(one.around)}", "dim"))
    if is_only:
        for question in one.questions:
            _print_question(question, console)
        console.print(Text("  the programs: --format json", "dim"))


def answer_in_words(one: Experiment) -> str:
    """Return in one sentence what the experiment found."""
    if one.problem:
        return f"no experiment: {safe(one.problem)}"
    if not one.reproduced:
        return f"cut out, the pair is not refused ({plural(one.cuts, 'neighbourhood')} tried)"
    if not one.flips:
        return "refused, whatever was changed"
    cause = one.flips[0]
    because, otherwise = (
        each.format(what=cause.what, before=cause.before, after=cause.after, bound=_bound(one))
        for each in _WORDS.get(cause.factor, _BOTH)
    )
    if cause.factor == _CHEAP and _is_expensive(one):
        because += ", which is expensive"
    return f"not fused because {because}; {otherwise}, the compiler fuses it"


def _bound(one: Experiment) -> str:
    """Return with which sizes the compiler fuses the pair, as far as it was asked."""
    found = one.threshold
    if found is None:
        return ""
    words = f"up to {found.fused}" if found.fused < found.size else f"{found.fused} or more"
    return f"{words}, but not {found.refused}" if found.refused != found.size else words


def _is_expensive(one: Experiment) -> bool:
    """Return whether an expensive elementwise producer is refused, too."""
    return any(
        each.factor == _EXPENSIVE and each.answer is Answer.NOT_FUSED for each in one.questions
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
    without = [f"without {each}" for each in before if each not in (EMPTY, *after)]
    added = [f"with {each}" for each in after if each not in (EMPTY, *before)]
    return ", ".join([*without, *added])


def _print_question(question: Asked, console: Console) -> None:
    from rich.text import Text

    change = f"{question.what}: {_change(question)}"
    style = "green" if question.answer is Answer.FUSED else "dim"
    console.print(Text(f"    {question.answer:<10}{safe(change)}", style))
