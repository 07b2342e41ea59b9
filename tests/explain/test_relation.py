"""Which dumps are versions of one program for one device, and what is said of others."""

import re
from functools import cache
from itertools import combinations
from pathlib import Path

import pytest

from fusionscope.compare.difference import compare
from fusionscope.compare.relation import Doubt, different_programs
from fusionscope.dump import open_dump
from fusionscope.history.matching import match
from fusionscope.hlo import parse, to_text

DUMPS = Path(__file__).resolve().parents[2] / "samples" / "dumps"
SAMPLES = [str(path.relative_to(DUMPS)) for path in sorted(DUMPS.glob("*/*"))]
# The program is the folder's name; some were written anew for older versions.
VERSIONS = [
    pair for pair in combinations(SAMPLES, 2) if len({name.split("/")[1] for name in pair}) == 1
]


@cache
def first(name):
    """The program before optimization."""
    (module,) = open_dump(DUMPS / name).modules
    return module.read(module.stages[0])


@pytest.mark.slow
def test_versions_of_a_program_are_not_called_unrelated():
    assert len(VERSIONS) > 100
    pairs = [pair for pair in VERSIONS if different_programs(match(first(pair[0]), first(pair[1])))]
    assert pairs == []


@pytest.mark.parametrize("name", [name for name in SAMPLES if name.startswith(("h100/", "cpu/"))])
def test_other_sizes_are_versions(name):
    """Every dimension of at least two digits doubled: no shape is as it was."""
    before = first(name)
    text = re.sub(r"(?<=[\[,])(\d{2,})(?=[\],])", lambda n: str(2 * int(n[0])), to_text(before))
    after = parse(text)
    assert after.entry.parameters[0].shape != before.entry.parameters[0].shape or "loop" in name
    assert different_programs(match(before, after)) is None


@pytest.mark.parametrize(
    ("before", "after", "kinds"),
    [
        ("h100/softmax", "h100/cartpole", [Doubt.PROGRAMS]),
        ("cpu/dense", "cpu/loop", [Doubt.PROGRAMS]),
        ("cpu/cartpole", "h100/softmax", [Doubt.PROGRAMS, Doubt.BACKENDS]),
        ("cpu/reductions", "h100/reductions", [Doubt.BACKENDS]),
        ("a100/dense", "b200/dense", [Doubt.DEVICES]),
        ("h100/softmax", "h100-without-triton-softmax/softmax", []),
        ("cpu/elementwise", "cpu-without-fusion/elementwise", []),
    ],
)
def test_what_is_said(before, after, kinds):
    (module,) = compare(DUMPS / before, DUMPS / after).modules
    assert [item.kind for item in module.unrelated] == kinds
    assert all("\n" not in item.text for item in module.unrelated)
    # Times and bytes of a CPU and of a GPU are not set against each other.
    assert module.is_incomparable is (Doubt.BACKENDS in kinds)
    if Doubt.BACKENDS in kinds:
        assert module.costs is None
