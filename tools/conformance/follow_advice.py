"""Runs every command line that `explain` prints, as printed, and compares what comes of it.

Each of DUMPS is a dump of a program, or a directory with dumps in it. `explain --all` prints its
text for 80 and for 100 columns, with the same command lines. A shell reads each of them, and it
runs in this process, with the compiler of this Python, in an empty directory. It is right if it
exits with 0 and prints the launches and bytes that `explain` printed, and for an absent GPU the
estimated time. If the device is present, the program is timed with and without the change.

Prints a line for each command, and how many were right. What is not worth it is followed with
--rejected. `--seconds N` is appended to each command and limits its timing. Exits with 1 if a
command is not right, or the program is slower with a change that `explain` calls helpful.
"""

import contextlib
import re
import shlex
import subprocess
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from math import isclose
from pathlib import Path
from typing import NamedTuple

from click.testing import CliRunner

from conformance.findings import Finding, add_dumps, counted
from conformance.findings import problem as wrong
from conformance.outcomes import dumps
from fusionscope.cli.main import cli

WIDTHS = (80, 100)
_PARTS = {
    "What to try": "helpful",
    "Recipes that": "recipe",
    "Not timed": "not timed",
    "Tried, not": "rejected",
}
_NUMBERED = re.compile(r" *\d+\. (.*)")
_LAUNCHES = re.compile(r"launches (\S+) → (\S*\w)")
_BYTES = re.compile(r"bytes (\S+ \S+) → (\S+ [kMGT]?B)")
_MADE = re.compile(r"launches (\S+) → (\S+) +bytes moved (\S+ \S+) → (\S+ [kMGT]?B)")
_EXPECTED_TIME = re.compile(r"time (\S+) (µs|ms|s) → (\S+) (µs|ms|s)")
_ESTIMATED = re.compile(r"cost model (\S+) → (\S+) µs")
_TIMED = re.compile(r"time .*?, (\S+) \[.*?\] of it .*?\): (.*)")
_ROUGH = "estimated times of replayed changes are rough"  # and so not compared
_IN_US = {"µs": 1.0, "ms": 1e3, "s": 1e6}


class Advice(NamedTuple):
    """A command line as printed, in which part, and what is printed below it."""

    part: str
    command: str
    outcome: str

    @property
    def words(self) -> list[str]:
        """The words as a shell reads them."""
        return shlex.split(self.command.replace("\\\n", ""))


class Followed(NamedTuple):
    """What came of a command line. ``problem`` is empty if it did what was predicted."""

    advice: Advice
    made: str
    ratio: str
    verdict: str
    problem: str


def printed_advice(text: str) -> Iterator[Advice]:
    """Yield the command lines in a text of `explain`."""
    part, command, below = "", "", ""
    lines = iter(text.splitlines())
    for line in lines:
        numbered = _NUMBERED.fullmatch(line)
        words = numbered[1] if numbered is not None else line.strip()
        if numbered is not None or any(line.strip().startswith(title) for title in _PARTS):
            if command:
                yield Advice(part, command, below)
            command, below = "", ""
        part = next((name for title, name in _PARTS.items() if words.startswith(title)), part)
        if words.startswith("fusionscope "):
            command = words
            while command.endswith("\\"):
                command += f"\n{next(lines)}"
        else:
            below += f"{words} "
    if command:
        yield Advice(part, command, below)


def printed_commands(text: str) -> list[list[str]]:
    """Return the words of the command lines in a text of `explain`."""
    return [advice.words for advice in printed_advice(text)]


def words_in_shell(command: str) -> list[str]:
    """Return the words of a command line as a shell passes them on."""
    shell = f"fusionscope() {{ printf '%s\\0' fusionscope \"$@\"; }}\n{command}"
    return subprocess.check_output(["bash", "-c", shell], text=True).split("\0")[:-1]


def run(words: Sequence[str], columns: int) -> tuple[int, str, str]:
    ended = CliRunner().invoke(cli, words, env={"COLUMNS": str(columns)}, standalone_mode=False)
    problem = "" if ended.exception is None else repr(ended.exception)
    return ended.exit_code or ended.return_value or 0, ended.stdout, ended.stderr + problem


def advice_on(dump: Path) -> tuple[list[Advice], str]:
    """Return what `explain` advises, and what is wrong with how it prints that."""
    printed: list[list[Advice]] = []
    for width in WIDTHS:
        code, text, errors = run(["explain", str(dump.resolve()), "--all"], width)
        if code:
            return [], errors.strip()
        pieces = list(printed_advice(text))
        if _ROUGH in " ".join(text.split()):
            pieces = [
                piece._replace(outcome=_EXPECTED_TIME.sub("", piece.outcome)) for piece in pieces
            ]
        printed.append(pieces)
    narrow, wide = ([advice.words for advice in pieces] for pieces in printed)
    return printed[0], "" if narrow == wide else f"other commands at {WIDTHS[0]} columns"


def follow(advice: Advice, seconds: float | None) -> Followed:
    words = words_in_shell(advice.command)
    if words != advice.words:
        return Followed(advice, "", "", "", f"a shell reads {words}")
    is_rerun = words[1] == "rerun"
    limit = ["--seconds", str(seconds)] if is_rerun and seconds is not None else []
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        code, text, errors = run([*words[1:], *limit], 10_000)
    problem = f"exit {code}: {' '.join(errors.split())}" if code else ""
    if not is_rerun:
        return Followed(advice, "", "", "", problem)
    made_figures = _MADE.search(text)
    if made_figures is None or not has_same_figures(advice.outcome, made_figures):
        problem += " other figures"
    elif not has_same_time(advice.outcome, text):
        problem += " another time"
    timed = _TIMED.search(text)
    ratio, verdict = timed.groups() if timed is not None else ("", "")
    return Followed(
        advice, made_figures[0] if made_figures is not None else "", ratio, verdict, problem.strip()
    )


def has_same_figures(outcome: str, made_figures: re.Match[str]) -> bool:
    """Return whether launches and bytes are those predicted: what is not printed stays."""
    before_launches, after_launches, *moved = made_figures.groups()
    return all(
        actual[0] == actual[1] if expected is None else expected.groups() == actual
        for expected, actual in (
            (_LAUNCHES.search(outcome), (before_launches, after_launches)),
            (_BYTES.search(outcome), tuple(moved)),
        )
    )


def has_same_time(outcome: str, text: str) -> bool:
    expected, made_times = _EXPECTED_TIME.search(outcome), _ESTIMATED.search(text)
    if expected is None or made_times is None:
        return True
    figures = (expected[1], expected[2]), (expected[3], expected[4])
    return all(
        isclose(_number(figure) * _IN_US[unit], _number(made_time), rel_tol=0.006)  # three digits
        for (figure, unit), made_time in zip(figures, made_times.groups(), strict=True)
    )


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def row(dump: Path, followed: Followed) -> str:
    advice = followed.advice
    figures = (figure.search(advice.outcome) for figure in (_LAUNCHES, _BYTES))
    predicted = ", ".join(figure[0] for figure in figures if figure is not None)
    command = shlex.join(advice.words).replace(str(dump.resolve()), "DUMP").replace("|", "/")
    return (
        f"| {dump.parent.name}/{dump.name} | `{command}` "
        f"| {predicted or '-'} | {followed.made or '-'} "
        f"| {followed.ratio or '-'} | {followed.problem or followed.verdict or 'as predicted'} |"
    )


def add_options(parser: ArgumentParser) -> None:
    add_dumps(parser)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--rejected", action="store_true", help="follow the rejected ones, too")


def findings(options: Namespace) -> Iterator[Finding]:
    for dump in (dump for root in options.dumps for dump in dumps(root)):
        advice_of_dump, problem = advice_on(dump)
        yield counted(f"dumps with{'' if advice_of_dump else 'out'} a command")
        if problem:
            yield wrong("wrong texts", f"{dump}: {problem}")
        for advice in advice_of_dump:
            if advice.part == "rejected" and not options.rejected:
                continue
            followed = follow(advice, options.seconds)
            line = f"{advice.part}: {row(dump, followed)}"
            yield (wrong if followed.problem else counted)(
                "commands not right" if followed.problem else "commands right", line
            )
            if followed.verdict == "slower":
                is_wrong = advice.part == "helpful"
                yield (wrong if is_wrong else counted)(f"{advice.part} and slower", line)
