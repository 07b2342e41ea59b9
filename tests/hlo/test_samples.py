"""Every stage of every sample: read, printed, read again, and held against its plain lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sample_kinds import SAMPLES, all_samples

from fusionscope.dump import open_dump
from fusionscope.hlo import ParseTable, parse, read, to_text

# What a line of a compiler's dump looks like at its beginning: written without the parser's eyes.
_LINE = re.compile(r"^  (?:ROOT )?%?([\w.\-]+) = ", re.MULTILINE)
_OPENING = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) .*\{$", re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("sample", all_samples())
def test_every_stage_says_what_its_lines_say(sample: Path) -> None:
    (module,) = open_dump(sample).modules
    for stage in module.stages:
        assert stage.text is not None or stage.proto is not None
        if stage.text is None:
            continue
        text = stage.text.text()
        actual = read(text, module.table(), file=str(stage.text))
        actual.check()
        output = [i.name for i in actual.walk() if "#" not in i.name]
        assert output == _LINE.findall(text)
        assert [computation.name for computation in actual.computations] == _OPENING.findall(text)
        for instruction in actual.walk():
            if "#" not in instruction.name:
                line = text.split("\n", instruction.line)[instruction.line - 1]
                assert re.match(rf"  (ROOT )?%?{re.escape(instruction.name)} = ", line)
                break


@pytest.mark.parametrize("sample", SAMPLES[::3], ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_is_printed_reads_the_same(sample: Path) -> None:
    for module in open_dump(sample).modules:
        assert module.final is not None
        assert module.final.text is not None
        actual = parse(module.final.text.text())
        printed = to_text(actual)
        assert parse(printed) == actual
        assert to_text(parse(printed)) == printed


def test_equal_lines_are_read_once() -> None:
    (module,) = open_dump(SAMPLES[0]).modules
    stages = [s for s in module.stages if s.text is not None]
    table = ParseTable()
    first, second = (read(stages[0].text.text(), table) for _ in range(2))  # type: ignore[union-attr]
    assert all(a is b for a, b in zip(first.bodies, second.bodies, strict=True))


def test_operands_and_users_are_two_sides_of_one_edge() -> None:
    (module,) = open_dump(SAMPLES[0]).modules
    assert module.final is not None
    for computation in module.read(module.final).computations:
        for instruction in computation.instructions:
            for operand in instruction.operands:
                assert instruction in operand.users
                assert operand.index < instruction.index
            for user in instruction.users:
                assert instruction in user.operands
