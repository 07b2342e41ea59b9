"""A stage that contradicts itself is left out and named. It does not spoil the others."""

from __future__ import annotations

import gzip
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from fusionscope.compare.difference import compare
from fusionscope.dump import open_dump
from fusionscope.explain.explain import explain

DUMPS = Path(__file__).parents[2] / "samples" / "dumps"
BEFORE = DUMPS / "h100" / "reductions"
AFTER = DUMPS / "h100-without-multi-output-fusion" / "reductions"
STAGES = {
    "after fusions formed": "after_priority-fusion",
    "between other passes": "post-fusion-simplification-pipeline_optimization.after_pipeline-start",
}


@pytest.fixture(params=STAGES.values(), ids=STAGES)
def contradictory(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path]:
    """A dump, and the file of a stage in it whose root reads what is not there."""
    dump = tmp_path / "dump"
    shutil.copytree(AFTER, dump)
    (file,) = dump.glob(f"*.{request.param}.*.txt.gz")
    for proto in dump.glob(f"*.{request.param}.*.pb"):
        proto.write_bytes(b"junk")  # with jaxlib, a proto would take the place of the text
    text = gzip.decompress(file.read_bytes()).decode()
    before, entry, remaining = text.partition("\nENTRY ")
    wrong = re.sub(r"(\n  ROOT .*? [a-z-]+\()%[\w.-]+", r"\1%nothing", remaining)
    file.write_bytes(gzip.compress((before + entry + wrong).encode()))
    return dump, file


def test_pairs_are_those_of_a_dump_without_it(contradictory: tuple[Path, Path]) -> None:
    dump, file = contradictory
    (with_it,) = explain(open_dump(dump)).modules
    assert any(f"{file}:" in note and "reads 'nothing'" in note for note in with_it.notes)
    file.unlink()
    (without,) = explain(open_dump(dump)).modules
    assert with_it.pairs == without.pairs
    assert with_it.kernels == without.kernels


def test_a_difference_is_that_of_a_dump_without_it(contradictory: tuple[Path, Path]) -> None:
    dump, file = contradictory
    with_it = compare(BEFORE, dump)
    (module,) = with_it.modules
    assert any(f"{file}:" in note and "reads 'nothing'" in note for note in module.notes)
    file.unlink()
    (without,) = compare(BEFORE, dump).modules
    assert replace(module, notes=()) == replace(without, notes=())
