"""Whether two modules say the same: pairs of small modules, and the check that backs `diff`."""

from pathlib import Path

import pytest

from fusionscope.explain.difference import compare

PAIRS = Path(__file__).parent / "pairs"

# What differs is named by the files' contents alone; the compiler's parser accepts all of them.
DIFFERENT = [
    # Another element of a tuple: of a while, in a loop's body, of a custom call, a parameter, a
    # fusion.
    ("w1", "w2", ("r", "index")),
    ("w3", "w4", ("r", "index")),
    ("live1", "live4", ("y", "index")),
    ("c1", "c2", ("r", "index")),
    ("g1", "g2", ("r", "index")),
    ("fu1", "fu2", ("g", "index")),
    # Another instruction is ROOT.
    ("pr1", "pr2", ("b", "root")),
    ("root1", "root2", ("y", "root")),
    ("sh1", "sh2", ("a", "sharding")),
]
SAME = [
    ("lay1", "lay2"),  # a default layout left out
    ("rg1", "rg2"),  # the same replica groups in three notations
    ("rg1", "rg3"),
    ("rg2", "rg3"),
]


@pytest.mark.parametrize(("one", "other", "expected"), DIFFERENT)
def test_different(one, other, expected):
    (module,) = compare(PAIRS / f"{one}.txt", PAIRS / f"{other}.txt").modules
    (edit,) = module.edits
    assert (edit.before.name, *(name for name, _, _ in edit.fields)) == expected
    assert compare(PAIRS / f"{other}.txt", PAIRS / f"{one}.txt").modules


@pytest.mark.parametrize(("one", "other"), SAME)
def test_same(one, other):
    for pair in ((one, other), (other, one)):
        found = compare(*(PAIRS / f"{name}.txt" for name in pair))
        assert found.is_same
        assert [(each.module, each.swapped, each.flags) for each in found.same] == [("m", (), ())]
