"""Dumps of releases between those of the samples replay with the rules of their release."""

from pathlib import Path

import pytest

from fusionscope.dump import open_dump
from fusionscope.verify.verification import verify
from fusionscope.versions.choice import choose_compiler

DUMPS = Path(__file__).parent / "dumps"


@pytest.mark.parametrize("release", ["0.10.0", "0.10.1"])
def test_a_dump_replays_with_the_rules_of_its_release(release):
    dump = open_dump(DUMPS / f"cpu-jaxlib-{release}" / "attention")
    (module,) = dump.modules
    choice = choose_compiler(module)
    assert (choice.name, choice.are_checked) == (f"cpu-{release}", True)
    (verified,) = verify(dump, dump.modules).modules
    assert verified.passes and all(run.is_identical for run in verified.passes)
    assert any(run.decisions.compared for run in verified.passes)
    assert all(run.decisions.compared == run.decisions.agreeing for run in verified.passes)


@pytest.mark.parametrize(("release", "dots"), [("0.10.0", 2), ("0.10.1", 0)])
def test_only_newer_library_fusions_hold_single_dots(release, dots):
    (module,) = open_dump(DUMPS / f"cpu-jaxlib-{release}" / "attention").modules
    instructions = module.read(module.last).entry.instructions
    assert sum(instruction.opcode == "dot" for instruction in instructions) == dots
