"""Asks the compiler for TPUs about the examples of its rules.

PYTHON has jax and libtpu. Writes tests/rules/tpu_answers.json: what the compiler does to the pair
of each example, by its rule and title, and by device. The tests compare it with what the examples
say.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator

from conformance.findings import ROOT, Finding, note
from fusionscope.capture.compiler import CompilerProcess
from fusionscope.capture.targets import read_target
from fusionscope.experiments.cut import Cut
from fusionscope.experiments.program import find_answer, program_text
from fusionscope.hlo import parse
from fusionscope.passes.tpu.rules import TPU_RULES
from fusionscope.rules.examples import Example
from fusionscope.rules.pages import read_examples

ANSWERS = ROOT / "tests" / "rules" / "tpu_answers.json"
DEVICES = ("tpu:v4:2x2x1", "tpu:v5e", "tpu:v5p:2x2x1", "tpu:v6e")


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--python", default=sys.executable)


def findings(options: Namespace) -> Iterator[Finding]:
    answers: dict[str, dict[str, str]] = {}
    for device in DEVICES:
        target = read_target(device)
        with CompilerProcess(target, flags=(), python=options.python, limit_s=60) as compiler:
            for rule in TPU_RULES:
                for example in read_examples(rule.id):
                    words = f"{rule.id}: {example.why}"
                    answers.setdefault(words, {})[device] = answer(example, compiler)
    ANSWERS.write_text(json.dumps(answers, indent=1) + "\n", encoding="utf-8")
    yield note(f"{len(answers)} answers are written")


def answer(example: Example, compiler: CompilerProcess) -> str:
    """Return what the compiler does to the pair of an example."""
    assert example.consumer is not None
    cut = Cut(parse(example.text), example.producer, example.consumer)
    compiled = compiler.compile(program_text(cut, has_copies=False))
    return compiled.problem or find_answer(compiled.text, cut, has_copies=False)
