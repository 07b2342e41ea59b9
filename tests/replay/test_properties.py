"""Whatever rules are changed, a replay gives a module that is one, and computes the same."""

import random
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from fusionscope.dump import open_dump
from fusionscope.history.values import Numbering
from fusionscope.hlo import parse, to_text
from fusionscope.passes.overrides import PairPattern
from fusionscope.rules.changes import Changes
from fusionscope.versions.choice import choose_compiler
from fusionscope.versions.compiler import Compiler
from fusionscope.versions.context import read_context
from fusionscope.versions.known import all_rules
from fusionscope.versions.runs import find_runs, replay

pytestmark = pytest.mark.slow

DUMPS = Path(__file__).parent.parent.parent / "samples" / "dumps"
PATHS = sorted(path for folder in DUMPS.glob("cpu*") for path in folder.iterdir())
THRESHOLDS = [(rule.id, name) for rule in all_rules() for name in rule.thresholds]
# Rules without which loops, calls and tuples would go into kernels: no value is theirs there.
BREAKING = {
    "base-eligible",
    "cpu-loop-fusible-producer",
    "cpu-mof-fusible",
    "cpu-no-case",
    "ynn-elementwise",
}
DISABLED = tuple(rule.id for rule in all_rules() if rule.id not in BREAKING)
NAMES = "* *fusion* add broadcast concatenate constant dot fusion multiply reduce while".split()
CHANGES = [
    Changes(disabled=DISABLED),
    Changes(allowed=(PairPattern("*", "*"),)),
    Changes(forbidden=(PairPattern("*", "*"),)),
    *(
        Changes(tuple((id, name, value) for id, name in THRESHOLDS))
        for value in (0, 1, 1_000_000_000)
    ),
]


def drawn(seed: int) -> Changes:
    """Some changes of rules, by chance."""
    chance = random.Random(seed)
    patterns = [
        tuple(
            PairPattern(chance.choice(NAMES), chance.choice(NAMES))
            for _ in range(chance.choice((0, 1, 2)))
        )
        for _ in range(2)
    ]
    return Changes(
        tuple(
            (*chance.choice(THRESHOLDS), chance.choice((0, 1, 2, 8, 20, 10**6)))
            for _ in range(chance.choice((0, 1, 4)))
        ),
        tuple(chance.sample(DISABLED, chance.choice((0, 1, 5, 20)))),
        *patterns,
    )


def values(numbering: Numbering, module):
    """What the entry and the bodies of loops return, by the way they are reached."""
    executions = numbering.number(module, contents=False).executions
    return {
        execution.path: execution.values[execution.computation.root] for execution in executions
    }


def fitting(changes: Changes, compiler: Compiler) -> Changes:
    """Without thresholds that the rules of this version do not have."""
    names = {
        (rule.id, name) for book in compiler.books for rule in book for name in rule.thresholds
    }
    return replace(changes, thresholds=tuple(t for t in changes.thresholds if t[:2] in names))


def plans(path: Path, changes: Changes):
    for module in open_dump(path).modules:
        compiler, context = choose_compiler(module).compiler, read_context(module)
        compiler = fitting(changes, compiler).apply(compiler)
        for run in find_runs(module):
            before = module.read(run.before)
            yield before, replay(run.pass_name, before, context, compiler).module


@pytest.mark.parametrize("path", PATHS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_changed_rules_never_change_what_is_computed(path):
    seed = PATHS.index(path)
    for changes in (*CHANGES, *(drawn(100 * seed + index) for index in range(4))):
        for before, after in plans(path, changes):
            after.check()
            assert parse(to_text(after)) == after, str(changes)
            numbering = Numbering()
            assert values(numbering, before) == values(numbering, after), str(changes)


def test_rules_that_keep_a_module_compilable_can_be_left_out_and_it_stays_a_module():
    paths = [path for path in PATHS if path.name in ("concatenate", "loop", "reductions")]
    for path, id in product(paths, (*sorted(BREAKING), "cpu-mof-legal", None)):
        disabled = (id,) if id else tuple(rule.id for rule in all_rules())
        for _, after in plans(path, Changes(disabled=disabled)):
            after.check()
            assert parse(to_text(after)) == after, id


def test_the_changes_do_something():
    """Else the tests above say nothing."""
    (before, fused), *_ = [
        (before, after)
        for before, after in plans(DUMPS / "cpu/concatenate", CHANGES[1])
        if before != after
    ]
    counts = {
        len(after.bodies) for changes in CHANGES for _, after in plans(DUMPS / "cpu/loop", changes)
    }
    assert len(fused.bodies) > len(before.bodies)
    assert len(counts) > 3
