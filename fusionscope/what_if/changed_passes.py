"""Replays the fusion passes of a module under changed rules.

A change acts on every pass that fuses, so the replay starts at the first pass that the changes
concern. ``explain`` predicts from it what changes do, and ``rerun`` makes the compiler do it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from fusionscope.dump import DumpedModule, Stage
from fusionscope.dump.device import Device
from fusionscope.dump.fusion_passes import Purpose
from fusionscope.errors import UnusableInput
from fusionscope.facts.pair_names import hint_at_pair, names_end
from fusionscope.graph.cleanup import clean_up
from fusionscope.graph.comparison import find_divergence, is_same
from fusionscope.graph.mutable import MutableModule
from fusionscope.history.outcomes import TOGETHER, Pair, find_pairs
from fusionscope.history.values import Numbering
from fusionscope.hlo import Module
from fusionscope.passes.context import PassContext
from fusionscope.passes.fusion_pass import FusionPass
from fusionscope.passes.overrides import PairPattern, join_again, set_apart
from fusionscope.passes.plan import FusionPlan, PassRun
from fusionscope.rules.changes import Changes
from fusionscope.user_order.infer_user_order import UserOrder
from fusionscope.user_order.user_history import arrange, find_user_order
from fusionscope.verify.rules_used import with_ages
from fusionscope.versions.choice import choose_compiler, find_rewriters
from fusionscope.versions.compiler import Compiler
from fusionscope.versions.context import read_context
from fusionscope.versions.runs import find_runs, replay
from fusionscope.what_if.first_names import FirstNames

_UNKNOWN_BETWEEN = (
    "{passes} ran after {before}, changed the module and cannot be replayed, so what {after} would "
    "do under the changes is unknown"
)
_LATER = "{names} ran after fusion, and other passes between the two cannot be replayed"


# By consecutive passes: the order of users before them, the context with that of instructions, and
# whether their replay makes what the compiler made.
Orders: TypeAlias = dict[tuple[PassRun, ...], tuple[UserOrder, PassContext, bool]]


@dataclass(frozen=True, slots=True)
class ReplayedPlans:
    """The plans of consecutive passes. ``module`` is the result of the last."""

    steps: tuple[FusionPlan, ...]
    module: Module


class ChangedPasses:
    """The consecutive fusion passes that ``changes`` concern, from the first of them to the end of
    fusion.

    ``runs`` are these passes. ``obstacle`` is empty, or says in one sentence why a pass that the
    changes concern, or that follows one, is not among them. ``is_late`` is whether the passes ran
    after fusion, and after the compiler inserted copies.
    """

    def __init__(
        self,
        module: DumpedModule,
        changes: Changes,
        compiler: Compiler | None = None,
        device: Device | None = None,
        *,
        from_first: bool = False,
    ) -> None:
        """``compiler`` and ``device`` are those to replay, None for those of the dump. If
        ``from_first`` is set, the replay includes all passes of the main group.

        Raises ``UnusableInput`` if no pass can be replayed, or a rule has no such threshold.
        """
        self.chosen = choose_compiler(module, compiler)
        self.context = read_context(module, device)
        self._module = module
        self._changes = changes
        self._from_first = from_first or bool(changes.kernels)
        self.compiler = self.chosen.compiler
        self._changed = changes.apply(self.compiler)
        self._all = _fusing_runs(module)
        if not self._all:
            raise UnusableInput(
                f"{module.name}: no fusion pass can be replayed, so no changes can be tried",
                file=str(module.stages[0].file),
            )
        self.runs, self.obstacle = self._select()
        main = self._main_runs()
        self.is_late = self._all.index(self.runs[0]) > self._all.index(main[-1])
        self._orders: UserOrder = {}

    @property
    def replayed_passes(self) -> tuple[FusionPass, ...]:
        names = {run.pass_name for run in self.runs}
        return tuple(
            fusion_pass for fusion_pass in self.compiler.passes if fusion_pass.name in names
        )

    @cached_property
    def names(self) -> FirstNames:
        """The names before fusion, in the first stage of the replay."""
        return FirstNames(self._module, self.start)

    def later_name(self, name: str) -> str:
        """Return the name in the first stage of the replay of an instruction before fusion."""
        return self.names.later.get(name, name)

    @property
    def start(self) -> Stage:
        """The stage that the first pass works on."""
        return self.runs[0].before

    @property
    def before(self) -> Stage:
        """The stage before fusion, whose pairs ``explain`` lists."""
        return self._module.pre_fusion or self.start

    @cached_property
    def after(self) -> Module:
        """The compiler's own module after the last pass."""
        last = self.runs[-1]
        return self._module.read(last.after or last.before)

    def _select(self) -> tuple[tuple[PassRun, ...], str]:
        runs = self._all
        main = self._main_runs()
        concerned = {run for run in runs if run.pass_name in self.concerned}
        deciding = next((run for run in main if run.pass_name == self.compiler.main_pass), main[0])
        concerned.update(self._fusing_forbidden(runs[: runs.index(deciding)]))
        if self._changes.allowed or self._changes.forbidden or not concerned:
            concerned.add(deciding)
        if self._from_first:
            concerned.add(main[0])
        places = sorted(map(runs.index, concerned))
        end = runs.index(main[-1])
        if places[0] > end:
            _, *later = dict.fromkeys(runs[place].pass_name for place in places)
            return (runs[places[0]],), _LATER.format(names=", ".join(later)) if later else ""
        chain = [runs[places[0]]]
        for run in runs[places[0] + 1 : end + 1]:
            if not (chain[-1] in main and run in main) and self._differs(chain[-1], run):
                return tuple(chain), self._unknown(chain[-1], run)
            chain.append(run)
        behind = self._only_concerned(runs[end + 1 :])
        return tuple(chain), _LATER.format(names=", ".join(behind)) if behind else ""

    def _only_concerned(self, runs: Sequence[PassRun]) -> list[str]:
        """Return the passes of ``runs`` that a change concerns which concerns none before them."""
        late = {run.pass_name for run in runs}
        pass_names: dict[str, None] = {}
        for id in (*(id for id, _, _ in self._changes.thresholds), *self._changes.disabled):
            asking = [e.name for e in self.compiler.passes if id == e.name or e.book.find(id)]
            if asking and late.issuperset(asking):
                pass_names.update(dict.fromkeys(asking))
        return list(pass_names)

    @cached_property
    def concerned(self) -> frozenset[str]:
        """The passes whose rules are changed, and those that are left out."""
        pairs = zip(self.compiler.passes, self._rules_changed.passes, strict=True)
        return frozenset(old.name for old, new in pairs if old != new) | {
            name for name in self._changes.disabled if any(r.pass_name == name for r in self._all)
        }

    @property
    def _rules_changed(self) -> Compiler:
        rules_only = replace(self._changes, allowed=(), forbidden=())
        return rules_only.apply(self.compiler)

    def _main_runs(self) -> list[PassRun]:
        """Return the consecutive runs around that of the main pass."""
        chains = self.compiler.chains
        if self._module.backend == "gpu" and chains:
            main = [run for run in self._all if run.pass_name in chains[0]]
            return main or list(self._all)
        return list(self._all)

    def _differs(self, earlier: PassRun, later: PassRun) -> bool:
        """Return whether other passes changed the module between two runs."""
        before = self._module.read(earlier.after or earlier.before)
        after = self._module.read(later.before)
        return before.bodies != after.bodies and find_divergence(before, after) is not None

    def _unknown(self, earlier: PassRun, later: PassRun) -> str:
        stages = self._module.stages
        between = stages[
            stages.index(earlier.after or earlier.before) + 1 : stages.index(later.before) + 1
        ]
        passes = [
            name
            for name in dict.fromkeys(stage.name.after for stage in between)
            if name != "pipeline-start"
        ]
        return _UNKNOWN_BETWEEN.format(
            passes=", ".join(passes) or "passes without a stage",
            before=earlier.pass_name,
            after=later.pass_name,
        )

    def _fusing_forbidden(self, runs: Sequence[PassRun]) -> Iterator[PassRun]:
        """Yield those of ``runs`` that put a forbidden pair into one kernel."""
        changed = [run for run in runs if run.after is not None]
        if not (changed and self._changes.forbidden):
            return
        numbering = Numbering()
        before = numbering.number(self._module.read(self.before))
        stages = [
            (run.after.label, numbering.number(self._module.read(run.after)))
            for run in changed
            if run.after is not None
        ]
        pairs = [pair for pair in find_pairs(before, stages) if pair.outcome in TOGETHER]
        first = {
            pair.stage
            for pattern in self._changes.forbidden
            for pair in pairs
            if names_pair(pattern, pair)
        }
        yield from (run for run in changed if run.after is not None and run.after.label in first)

    def unchanged(self) -> tuple[ReplayedPlans, bool]:
        """Return the result by the unchanged rules, and whether it is that of the compiler.

        If it is not, the order of users and instructions, which no text shows, is reconstructed
        from all earlier stages, for this replay and later ones.
        """
        replayed = self.replay(self.compiler, (), ())
        is_own = is_same(replayed.module, self.after)
        if is_own or self._module.backend != "gpu" or self._orders:
            return replayed, is_own
        rewriters = find_rewriters(self._module)
        self._orders = find_user_order(self._module, self.start, rewriters)
        for run in self.runs:
            self.context = with_ages(self.context, self._module, run)
        replayed = self.replay(self.compiler, (), ())
        return replayed, is_same(replayed.module, self.after)

    def find_orders(self, orders: Orders) -> bool:
        """Reconstruct the orders that no text shows, as ``unchanged`` does, and return whether the
        replay makes what the compiler made. ``orders`` are those of other changes of the same
        module.
        """
        if self.runs not in orders:
            _, is_own = self.unchanged()
            orders[self.runs] = (self._orders, self.context, is_own)
        self._orders, self.context, is_own = orders[self.runs]
        return is_own

    def changed(self, context: PassContext | None = None) -> ReplayedPlans:
        """Return the result by the changed rules, in another ``context`` if one is given."""
        disabled, forbidden = self._changes.disabled, self._changes.forbidden
        return self.replay(self._changed, disabled, forbidden, context=context)

    def replay(
        self,
        compiler: Compiler,
        disabled: Sequence[str],
        forbidden: Sequence[PairPattern],
        *,
        context: PassContext | None = None,
        start: Module | None = None,
        passes: frozenset[str] | None = None,
    ) -> ReplayedPlans:
        """Return the result of the passes, without the ``disabled`` ones, and of ``passes`` only if
        they are given. They start with ``start``, if the module before them was edited.
        """
        context = context or self.context
        stage_before = start or self._module.read(self.start)
        graph = arrange(stage_before, self._orders) if self._orders else MutableModule(stage_before)
        self.names.set_origins(graph)
        steps: list[FusionPlan] = []
        for run in self.runs:
            if run.pass_name in disabled or (passes is not None and run.pass_name not in passes):
                continue
            known_pass = compiler.find(run.pass_name).known
            parted = () if known_pass.keeps_apart else forbidden
            set_apart(graph, parted)
            plan = replay(run.pass_name, stage_before, context, compiler, graph)
            if parted:
                join_again(plan.graph)
            if run is not self.runs[-1] and run.pass_name in compiler.cleaned:
                clean_up(plan.graph, self._module.backend)
            steps.append(plan)
            stage_before, graph = plan.module, self._next_graph(plan)
        return ReplayedPlans(tuple(steps), stage_before)

    def _next_graph(self, plan: FusionPlan) -> MutableModule:
        """Return the graph for the next pass. On a CPU, users have the order of the text."""
        if self._module.backend == "gpu":
            return plan.graph
        graph = MutableModule(plan.module)
        origins = {instruction.name: instruction.origin for instruction in plan.graph.walk()}
        for instruction in graph.walk():
            instruction.origin = origins[instruction.name]
        return graph

    def pairs_in(self, *modules: tuple[str, Module]) -> tuple[Pair, ...]:
        """Return each pair before fusion with its outcome in the last of ``modules``, which follow
        the first stage of the replay, with their labels.
        """
        return self.names.pairs_in(*modules)

    def unmatched_patterns(self) -> list[tuple[PairPattern, str | None]]:
        """Return the user's patterns that name no pair, each with a hint at what may be meant."""
        patterns = (*self._changes.allowed, *self._changes.forbidden)
        if not patterns:
            return []
        pairs = self.pairs_in(("before fusion", self._module.read(self.start)))
        return [
            (pattern, hint_at_pair(*pattern, pairs))
            for pattern in patterns
            if not any(names_pair(pattern, pair) for pair in pairs)
        ]


def names_pair(pattern: PairPattern, pair: Pair) -> bool:
    """Return whether a user's pattern names the pair, by names or opcodes."""
    return all(map(names_end, pattern, (pair.producer, pair.consumer)))


def _fusing_runs(module: DumpedModule) -> tuple[PassRun, ...]:
    """Return the runs of the passes that fuse, without those that wrap operations on GPUs, where
    they do so several times.
    """
    runs = find_runs(module)
    if module.backend != "gpu":
        return runs
    passes = choose_compiler(module).compiler
    return tuple(
        run for run in runs if passes.find(run.pass_name).known.purpose is not Purpose.WRAPS
    )
