"""Compares fusionscope's parser with the compiler's own on the HLO texts of XLA's test sources.

    python tools/conformance/conformance.py XLA

Needs a Python with jaxlib 0.12. XLA is a checkout of XLA's sources. It is searched for, each text
once:

- the raw strings of C++ files that hold `HloModule` or `ENTRY`;
- the parts of `.hlo` files (which `// -----` separates).

Each text goes to both parsers, in a child process, as some texts end the process in the compiler's
library: such a text counts as refused. What is compared is told in `oracle.py`. Prints every
difference with the place of the text, then counts. Exits with 1 where there is a difference.
"""

import argparse
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from oracle import differences, oracle

_RAW_STRING = re.compile(r'R"([^()\\\s"]{0,16})\((.*?)\)\1"', re.DOTALL)
_HLO = re.compile(r"\b(?:HloModule|ENTRY)\b")
_SEPARATOR = re.compile(r"^// -----.*\n", re.MULTILINE)
# Texts given to one child; the more, the less time is spent on starting them.
_BATCH = 500

VERDICTS = ("both read it", "both refuse it", "only fusionscope refuses", "only fusionscope reads",
            "both read it, differently")  # fmt: skip


def texts(root: Path) -> dict[str, str]:
    """Each different HLO text under ``root``, with the place (file:line) where it first stands."""
    found: dict[str, str] = {}
    for file in sorted(root.rglob("*")):
        if file.suffix in (".cc", ".h", ".hlo") and file.is_file():
            content = file.read_text(errors="replace")
            for start, text in _cut(content, file.suffix):
                if _HLO.search(text):
                    line = content.count("\n", 0, start) + 1
                    found.setdefault(text, f"{file.relative_to(root)}:{line}")
    return found


def _cut(content: str, suffix: str) -> Iterator[tuple[int, str]]:
    if suffix != ".hlo":
        yield from ((string.start(2), string[2]) for string in _RAW_STRING.finditer(content))
        return
    start = 0
    for separator in _SEPARATOR.finditer(content):
        yield start, content[start : separator.start()]
        start = separator.end()
    yield start, content[start:]


def verdict(text: str) -> tuple[str, list[str]]:
    """One of VERDICTS, and the differences."""
    try:
        found = list(differences(text))
    except Exception as error:
        return VERDICTS[4], [f"comparing fails: {error!r}"]
    if not found:
        return VERDICTS[oracle(text) is None], []
    if found[0].startswith("only fusionscope refuses"):
        return VERDICTS[2], found
    return VERDICTS[3 if found[0].startswith("only the compiler refuses") else 4], found


def answer() -> None:
    """The child: reads JSON texts, one a line, and prints a verdict for each."""
    for line in sys.stdin:
        print(json.dumps(verdict(json.loads(line))), flush=True)


def verdicts(pending: list[str]) -> Iterator[tuple[str, str, list[str]]]:
    """Every text with its verdict."""
    pending = list(pending)
    while pending:
        batch = pending[:_BATCH]
        child = subprocess.run(
            [sys.executable, __file__, "--child"],
            input="".join(f"{json.dumps(text)}\n" for text in batch),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        answers = child.stdout.splitlines()
        for text, line in zip(batch, answers, strict=False):
            yield text, *json.loads(line)
        if len(answers) < len(batch):
            yield batch[len(answers)], *_without_compiler(batch[len(answers)])
            answers.append("")
        pending = pending[len(answers) :]


def _without_compiler(text: str) -> tuple[str, list[str]]:
    """The verdict on a text that ends the compiler's process."""
    from fusionscope.errors import UnusableInput
    from fusionscope.hlo import parse

    try:
        parse(text)
    except UnusableInput:
        return VERDICTS[1], []
    return VERDICTS[3], ["only the compiler refuses: the process ends"]


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("xla", type=Path, metavar="XLA")
    found = texts(arguments.parse_args().xla)
    counts: Counter[str] = Counter()
    for text, kind, problems in verdicts(list(found)):
        counts[kind] += 1
        for problem in problems:
            print(f"{found[text]}: {problem}", flush=True)
    print(f"{len(found)} texts: {', '.join(f'{kind} {counts[kind]}' for kind in VERDICTS)}")
    return 1 if any(counts[kind] for kind in VERDICTS[2:]) else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--child"]:
        answer()
    else:
        sys.exit(main())
