"""Which operations of a GPU module are to be fused: plans that the compiler is given as it stands.

A plan is the module as it shall be behind the pipeline ``fusion``, which is what a replay of that
pipeline's passes makes.
"""

from __future__ import annotations

from dataclasses import dataclass

from fusionscope.dump import DumpedModule, Stage
from fusionscope.errors import UnusableInput
from fusionscope.hlo import Module
from fusionscope.replay.passes import find_runs, pick_books, read_settings, replay
from fusionscope.replay.user_history import arrange, find_user_order
from fusionscope.rules.changes import Changes

# The passes of the pipeline that fuse; those between them clean up.
FUSING = ("variadic-op-splitter", "sort-iota-fusion", "priority-fusion", "multi_output_fusion")
_PIPELINE = "fusion"


@dataclass(frozen=True, slots=True)
class Plan:
    """``before`` is the module on which the first pass of the pipeline works, ``after`` what it
    shall be behind the last one; ``words`` say what the plan is."""

    words: str
    before: Module
    after: Module


def own_plan(module: DumpedModule) -> Plan:
    """What the compiler itself made. Raises ``UnusableInput`` where the dump does not show it."""
    start, end = _ends(module)
    return Plan("the compiler's own plan", module.read(start), module.read(end))


def no_plan(module: DumpedModule) -> Plan:
    """Nothing is fused. Raises ``UnusableInput`` where the dump does not show the start."""
    start, _ = _ends(module)
    return Plan("no fusion", module.read(start), module.read(start))


def changed_plan(module: DumpedModule, changes: Changes) -> Plan:
    """What the compiler's rules make where a user changed some. Raises ``UnusableInput`` where they
    cannot be replayed."""
    start, end = _ends(module)
    books = changes.apply(pick_books(module))
    settings = read_settings(module)
    first, last = module.stages.index(start), module.stages.index(end)
    runs = [run for run in find_runs(module) if first <= module.stages.index(run.before) < last]
    before = current = module.read(start)
    graph = arrange(before, find_user_order(module, start))
    for run in runs:
        plan = replay(run.pass_name, current, settings, books, graph)
        current, graph = plan.module, plan.graph
    return Plan(str(changes), before, current)


def _ends(module: DumpedModule) -> tuple[Stage, Stage]:
    """The first stage of the pipeline, and the first one behind it."""
    if module.backend != "gpu":
        raise UnusableInput(
            f"{module.name}: was not compiled for a GPU, and nothing else is compiled again"
        )
    inside = [
        index for index, stage in enumerate(module.stages) if stage.name.pipeline == _PIPELINE
    ]
    if not inside or inside[-1] + 1 == len(module.stages):
        raise UnusableInput(
            f"{module.name}: the dump does not show the pipeline {_PIPELINE!r} from end to end",
            hint="dump with --xla_dump_hlo_pass_re=.*",
        )
    return module.stages[inside[0]], module.stages[inside[-1] + 1]
