"""What the compiler would fuse under rules that a user changed."""

from __future__ import annotations

from fusionscope.dump import DumpedModule
from fusionscope.errors import UnusableInput
from fusionscope.explain.replayed import Replayed
from fusionscope.explain.result import ChangedPair, WhatIf
from fusionscope.history.kernels import find_kernels
from fusionscope.history.outcomes import Outcome, Pair, find_pairs
from fusionscope.history.values import Numbering
from fusionscope.hlo import Module
from fusionscope.replay.comparison import find_divergence
from fusionscope.replay.passes import find_runs, pick_books, read_settings, replay
from fusionscope.replay.plan import FusionPlan
from fusionscope.rules.books import Books
from fusionscope.rules.changes import Changes

_TOGETHER = (Outcome.FUSED, Outcome.DUPLICATED)
_PASSES_BETWEEN = (
    "what other passes do to the module between two fusion passes is not replayed, as the changed "
    "rules changed the first of the two"
)


def what_if(module: DumpedModule, changes: Changes, books: Books | None = None) -> WhatIf:
    """Replays the fusion passes of ``module`` with the rules as they are and as changed.

    Raises ``UnusableInput`` where they cannot be replayed.
    """
    books = books or pick_books(module)
    changed = changes.apply(books)
    settings = read_settings(module)
    runs = list(find_runs(module))
    while runs and runs[-1].pass_name == "fusion-wrapper":  # it adds no fusion of two operations
        runs.pop()
    if not runs:
        raise UnusableInput(
            f"{module.name}: no fusion pass can be replayed, so no changed rule can be tried"
        )
    inputs = [module.read(run.before) for run in runs]
    old: dict[str, FusionPlan] = {}
    new: dict[str, FusionPlan] = {}
    current: Module | None = None
    notes: list[str] = []
    for index, run in enumerate(runs):
        as_is = old[run.pass_name] = replay(run.pass_name, inputs[index], settings, books)
        start = inputs[index] if current is None else current
        plan = new[run.pass_name] = replay(run.pass_name, start, settings, changed)
        if current is not None or find_divergence(plan.module, as_is.module) is not None:
            current = plan.module
            following = inputs[index + 1 : index + 2]
            if following and find_divergence(as_is.module, following[0]) is not None:
                notes.append(_PASSES_BETWEEN)
    pairs = [_pairs(inputs[0], plan.module) for plan in (as_is, plan)]
    refused = Replayed(old), Replayed(new)
    totals = [_totals(each.module, module.backend) for each in (as_is, plan)]
    return WhatIf(
        str(changes),
        *totals[0],
        *totals[1],
        tuple(
            ChangedPair(
                before.producer.name,
                before.consumer.name,
                before.outcome,
                after.outcome,
                _refusal(refused[after.outcome not in _TOGETHER], before),
                before.bytes_between,
            )
            for before, after in zip(*pairs, strict=True)
            if (before.outcome in _TOGETHER) != (after.outcome in _TOGETHER)
        ),
        tuple(dict.fromkeys(notes)),
    )


def _pairs(before: Module, after: Module) -> tuple[Pair, ...]:
    numbering = Numbering()
    numbered = numbering.number(before)
    return find_pairs(numbered, [("after", numbering.number(after))])


def _refusal(replayed: Replayed, pair: Pair) -> str | None:
    """The rule that keeps the pair apart, where it is kept apart."""
    for pass_name in ("fusion", "dot-library-rewriter"):
        reason = replayed.reason(pass_name, pair.producer.name, pair.consumer.name)
        if reason is not None:
            return reason.rule
    return None


def _totals(module: Module, backend: str | None) -> tuple[int, int]:
    """Launches, and bytes moved, of a run."""
    kernels = find_kernels(Numbering().number(module), backend)
    return sum(kernel.runs for kernel in kernels), sum(kernel.bytes_moved for kernel in kernels)
