"""Compares fusionscope's parser with the compiler's own on HLO texts made of XLA's sources.

Needs a Python with jaxlib 0.12. XLA is a checkout of XLA's sources, or a part of one. The texts,
each once (``corpus.py``):

- written: the strings of C++ and Python files that hold `HloModule` or `ENTRY`, `.hlo` files (at
  `// -----` in parts), and what tests of MLIR expect;
- filled: those with holes (`$0`, `%s`), with plausible values in them;
- printed: each that the compiler reads, printed by it with some of all options;
- mutated: short ones that it reads, with one token inserted, deleted, exchanged, split, …

Each text goes to both parsers, in a child process, as some texts end the process in the compiler's
library: such a text counts as refused. `parser.py` says what is compared. What fusionscope alone
refuses is compiled for a CPU: most of it contradicts itself, which the compiler's parser leaves to
its verifier. Prints every difference with the place of the text, then counts. Exits with 1 where
there is a difference.
"""

import json
import subprocess
import sys
import tempfile
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from conformance.compiling import compile_all
from conformance.corpus import Text, filled, mutated, printed, written
from conformance.findings import Finding, counted, problem
from conformance.parser import differences, oracle

# Texts given to one child; the more, the less time is spent on starting them.
_BATCH = 300
_FILLS = 4  # of each template
_OPTIONS = 2  # with which a module is printed
_MUTABLE = 4000  # characters

VERDICTS = ("both read it", "both refuse it", "only fusionscope refuses", "only fusionscope reads",
            "both read it, differently", "fusionscope fails",
           "the compiler refuses it when it compiles")  # fmt: skip
_READ_BY_COMPILER = {VERDICTS[0], VERDICTS[2], VERDICTS[4]}


class Verdict(NamedTuple):
    """One of VERDICTS on a text, the differences, and the text as the compiler prints it."""

    text: Text
    verdict: str
    problems: list[str]
    printed: list[Text]


def verdict(text: str) -> tuple[str, list[str]]:
    """One of VERDICTS, and the differences."""
    try:
        problems = list(differences(text))
    except Exception as error:
        return VERDICTS[5], [f"fails: {error!r}"]
    if not problems:
        return VERDICTS[oracle(text) is None], []
    if problems[0].startswith("only fusionscope refuses"):
        return VERDICTS[2], problems
    return VERDICTS[3 if problems[0].startswith("only the compiler refuses") else 4], problems


def answer() -> None:
    """The child: reads texts as JSON, one a line, and prints what to say of each."""
    for line in sys.stdin:
        text = Text(*json.loads(line))
        kind, problems = verdict(text.text)
        again = []
        if text.kind in ("written", "filled") and kind in _READ_BY_COMPILER:
            again = list(printed(text, oracle(text.text), _OPTIONS))
        print(json.dumps((kind, problems, again)), flush=True)


def verdicts(pending: list[Text]) -> Iterator[Verdict]:
    """Every text with its verdict."""
    while pending:
        batch = pending[:_BATCH]
        child = subprocess.run(
            [sys.executable, "-m", "conformance", "conformance", "--child"],
            input="".join(f"{json.dumps(text)}\n" for text in batch),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        answers = child.stdout.splitlines()
        for text, line in zip(batch, answers, strict=False):
            kind, problems, again = json.loads(line)
            yield Verdict(text, kind, problems, [Text(*fields) for fields in again])
        if len(answers) < len(batch):
            text = batch[len(answers)]
            yield Verdict(text, *_without_compiler(text.text), [])
        pending = pending[len(answers) + (len(answers) < len(batch)) :]


def _without_compiler(text: str) -> tuple[str, list[str]]:
    """The verdict on a text that ends the compiler's process."""
    from fusionscope.errors import UnusableInput
    from fusionscope.hlo import parse

    try:
        parse(text)
    except UnusableInput:
        return VERDICTS[1], []
    except Exception as error:
        return VERDICTS[5], [f"fails: {error!r}"]
    return VERDICTS[3], ["only the compiler refuses: the process ends"]


def corpus(root: Path, mutants: int) -> Iterator[Verdict]:
    """All texts made of the sources under ``root``, each once, with their verdicts."""
    texts_seen: set[str] = set()

    def new(texts: Iterator[Text]) -> list[Text]:
        unseen = [text for text in texts if text.text not in texts_seen]
        texts_seen.update(text.text for text in unseen)
        return list({text.text: text for text in reversed(unseen)}.values())[::-1]

    sources = new(written(root))
    fills = new(text for source in sources for text in filled(source, _FILLS))
    again: list[Text] = []
    readable: list[Text] = []
    for result in verdicts(sources + fills):
        yield result
        again += result.printed
        if result.verdict in _READ_BY_COMPILER and len(result.text.text) < _MUTABLE:
            readable.append(result.text)
    yield from verdicts(new(iter(again)))
    count, remainder = divmod(mutants, max(1, len(readable)))
    yield from verdicts(
        new(
            text
            for number, source in enumerate(readable)
            for text in mutated(source, count + (number < remainder))
        )
    )


# Errors that say nothing of the text: a call that this process has no implementation of.
_OF_OTHER_CAUSES = ("NOT_FOUND", "INTERNAL", "UNIMPLEMENTED", "the compiler crashed")


def compiled(refused: list[Verdict]) -> Iterator[Verdict]:
    """What fusionscope alone refuses, with another verdict if the compiler cannot compile it."""
    with tempfile.TemporaryDirectory() as directory:
        texts = [result.text.text for result in refused]
        errors = compile_all(sys.executable, "", texts, Path(directory))
    for result, error in zip(refused, errors, strict=True):
        if error and not error.startswith(_OF_OTHER_CAUSES):
            yield result._replace(verdict=VERDICTS[6], problems=[])
        else:
            yield result


def results(root: Path, mutants: int) -> Iterator[Verdict]:
    """The verdicts on all texts."""
    refused = []
    for result in corpus(root, mutants):
        if result.verdict == VERDICTS[2]:
            refused.append(result)
        else:
            yield result
    yield from compiled(refused)


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("xla", type=Path, metavar="XLA", nargs="?")
    parser.add_argument("--mutants", type=int, default=10_000, metavar="N", help="default: 10000")
    parser.add_argument("--save", type=Path, metavar="FILE", help="save the texts that differ")
    parser.add_argument("--child", action="store_true", help=SUPPRESS)


def findings(options: Namespace) -> Iterator[Finding]:
    if options.child:
        answer()
        sys.exit(0)
    different = []
    for text, kind, problems, _ in results(options.xla, options.mutants):
        yield counted(f"{text.kind}: {kind}")
        if problems:
            different.append((*text, kind, problems))
        yield from (
            problem("differences", f"{text.place}: {difference}") for difference in problems
        )
    if options.save:
        options.save.write_text("".join(f"{json.dumps(entry)}\n" for entry in different))
