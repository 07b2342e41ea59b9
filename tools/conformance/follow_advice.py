"""Runs every command line that `explain` prints, as printed, and compares what comes of it.

Each of DUMPS is a dump of a program, or a directory with dumps in it. `explain --all` prints its
text for 80 and for 100 columns, with the same command lines. A shell runs each of them, with the
compiler of this Python, in an empty directory. It is right if it exits with 0 and prints the
launches and bytes that `explain` printed, and for an absent GPU the estimated time. If the device
is present, the program is timed with and without the change.

Prints a line for each command, and how many were right. What is not worth it is followed with
--rejected. `--seconds N` is appended to each command and limits its timing. Exits with 1 if a
command is not right, or the program is slower with a change that `explain` calls helpful.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from math import isclose
from pathlib import Path
from typing import NamedTuple

from conformance.findings import ROOT, Finding, add_dumps, counted
from conformance.findings import problem as wrong
from conformance.outcomes import dumps

PACKAGE = ROOT
WIDTHS = (80, 100)
HEAD = "| dump | command | predicted | made | ratio | |\n|---|---|---|---|--:|---|"
_PARTS = {
    "What to try": "helpful",
    "Recipes that": "recipe",
    "Not timed": "not timed",
    "Tried, not": "rejected",
}
_NUMBERED = re.compile(r" *\d+\. (.*)")
_PREDICTED = re.compile(r"launches (\S+) → (\S+), bytes (\S+ \S+) → (\S+ [kMGT]?B)")
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


def run(words: list[str], columns: int, folder: Path | None = None) -> tuple[int, str, str]:
    environment = os.environ | {"COLUMNS": str(columns)}
    process = subprocess.run(
        words, capture_output=True, text=True, env=environment, cwd=folder, check=False
    )
    return process.returncode, process.stdout, process.stderr


def advice_on(dump: Path) -> tuple[list[Advice], str]:
    """Return what `explain` advises, and what is wrong with how it prints that."""
    words = [sys.executable, "-m", "fusionscope", "explain", str(dump.resolve()), "--all"]
    printed: list[list[Advice]] = []
    for width in WIDTHS:
        code, text, errors = run(words, width)
        if code:
            return [], errors.strip()
        found = list(printed_advice(text))
        if _ROUGH in " ".join(text.split()):
            found = [
                piece._replace(outcome=_EXPECTED_TIME.sub("", piece.outcome)) for piece in found
            ]
        printed.append(found)
    words_of = [[advice.words for advice in found] for found in printed]
    is_same = words_of[0] == words_of[1]
    return printed[0], "" if is_same else f"other commands at {WIDTHS[0]} columns"


def write_tool(tools: Path) -> None:
    """Write a `fusionscope` for a shell, that of this checkout."""
    script = tools / "fusionscope"
    script.write_text(
        f"#!/bin/sh\nPYTHONPATH={shlex.quote(str(PACKAGE))} "
        f'exec {shlex.quote(sys.executable)} -m fusionscope "$@"\n',
        encoding="utf-8",
    )
    script.chmod(0o755)


def follow(advice: Advice, seconds: float | None, tools: Path) -> Followed:
    is_rerun = advice.words[1] == "rerun"
    command = advice.command
    if seconds is not None and is_rerun:
        command += f" --seconds {seconds}"
    with tempfile.TemporaryDirectory() as folder:
        shell = ["bash", "-c", f"PATH={shlex.quote(str(tools))}:$PATH\n{command}"]
        code, text, errors = run(shell, 10_000, Path(folder))
    problem = f"exit {code}: {' '.join(errors.split())}" if code else ""
    if not is_rerun:
        return Followed(advice, "", "", "", problem)
    predicted, made_figures = _PREDICTED.search(advice.outcome), _MADE.search(text)
    if predicted is None or made_figures is None or predicted.groups() != made_figures.groups():
        problem += " other figures"
    elif not has_same_time(advice.outcome, text):
        problem += " another time"
    timed = _TIMED.search(text)
    ratio, verdict = timed.groups() if timed is not None else ("", "")
    return Followed(
        advice, made_figures[0] if made_figures is not None else "", ratio, verdict, problem.strip()
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
    predicted = _PREDICTED.search(advice.outcome)
    command = shlex.join(advice.words).replace(str(dump.resolve()), "DUMP").replace("|", "/")
    return (
        f"| {dump.parent.name}/{dump.name} | `{command}` "
        f"| {predicted[0] if predicted is not None else '-'} | {followed.made or '-'} "
        f"| {followed.ratio or '-'} | {followed.problem or followed.verdict or 'as predicted'} |"
    )


def add_options(parser: ArgumentParser) -> None:
    add_dumps(parser)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--rejected", action="store_true", help="follow the rejected ones, too")
    parser.add_argument("--markdown", type=Path, help="write the table to this file")


def findings(options: Namespace) -> Iterator[Finding]:
    rows: list[str] = []
    with tempfile.TemporaryDirectory() as scratch:
        tools = Path(scratch)
        write_tool(tools)
        for dump in (dump for root in options.dumps for dump in dumps(root)):
            advice_of_dump, problem = advice_on(dump)
            yield counted(f"dumps with{'' if advice_of_dump else 'out'} a command")
            if problem:
                yield wrong("wrong texts", f"{dump}: {problem}")
            for advice in advice_of_dump:
                if advice.part == "rejected" and not options.rejected:
                    continue
                followed = follow(advice, options.seconds, tools)
                rows.append(row(dump, followed))
                line = f"{advice.part}: {rows[-1]}"
                yield (wrong if followed.problem else counted)(
                    "commands not right" if followed.problem else "commands right", line
                )
                if followed.verdict == "slower":
                    is_wrong = advice.part == "helpful"
                    yield (wrong if is_wrong else counted)(f"{advice.part} and slower", line)
    if options.markdown is not None:
        options.markdown.write_text("\n".join([HEAD, *rows]) + "\n", encoding="utf-8")
