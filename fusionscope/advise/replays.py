"""Tries changes by replaying the fusion passes of a module."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import inf

from fusionscope.advise.candidates import Candidate
from fusionscope.advise.copies import TOO_LONG, Copies, Result
from fusionscope.advise.library_work import changes_code
from fusionscope.advise.removed import removed_movements
from fusionscope.dump import DumpedModule, Stage
from fusionscope.dump.device import Device
from fusionscope.dump.fusion_passes import PRIORITY_FUSION
from fusionscope.facts.suggestions import Figures
from fusionscope.facts.times import count_figures
from fusionscope.graph.cleanup import clean_up
from fusionscope.graph.comparison import is_same
from fusionscope.graph.mutable import MutableModule, to_module
from fusionscope.history.kernels import total_kernels
from fusionscope.history.loops import read_loop_facts
from fusionscope.history.outcomes import TOGETHER
from fusionscope.hlo import Module
from fusionscope.passes.context import OutOfTime, PassContext, Work
from fusionscope.passes.gpu.priority_fusion.computation import Step
from fusionscope.passes.plan import PassRun
from fusionscope.system.forks import can_fork
from fusionscope.system.memory import working_memory
from fusionscope.user_order.infer_user_order import UserOrder
from fusionscope.user_order.user_history import arrange, find_user_order
from fusionscope.verify.rules_used import with_ages
from fusionscope.versions.choice import choose_compiler, find_rewriters
from fusionscope.versions.compiler import Compiler
from fusionscope.versions.context import read_context, with_flags_of
from fusionscope.versions.runs import find_runs, replay
from fusionscope.what_if.final_figures import FinalFigures, Predicted
from fusionscope.what_if.first_names import FirstNames

_MOST_STEPS = 5  # units of work for an operation: 1 to 4 are common
# How often a pass asks its cost model about an operation, roughly.
_SCORINGS = {PRIORITY_FUSION: 8}


@dataclass(frozen=True, slots=True)
class ReplayedChange:
    """``module`` is the result of the passes; ``figures`` are those of the final module.

    ``is_certain`` and ``is_time_certain`` are as in ``explain.final_figures.Predicted``.
    """

    module: Module
    figures: Figures
    is_certain: bool
    is_time_certain: bool


@dataclass(frozen=True, slots=True)
class _Chain:
    """Consecutive passes by the rules of ``compiler``, in a ``context``. ``concerned`` are those
    that a change is about.
    """

    runs: Sequence[PassRun]
    module: DumpedModule
    compiler: Compiler
    context: PassContext
    concerned: frozenset[str] = frozenset()

    def lets_run(self, run: PassRun) -> bool:
        return self.module.lets_run(self.compiler.find(run.pass_name).known.in_files)

    def is_last_concerned(self, place: int) -> bool:
        """Return whether a pass is the last one that is concerned."""
        first, *later = (run.pass_name in self.concerned for run in self.runs[place:])
        return first and not any(later)


class Replays:
    """The consecutive fusion passes of one module, replayed with changes.

    Later passes are assumed to do the same as without the changes, except for copies, which depend
    on what was fused: the figures of the final module change by as much as those after fusion and
    the insertion of copies.
    """

    def __init__(
        self,
        module: DumpedModule,
        final: Module,
        compiler: Compiler | None = None,
        device: Device | None = None,
        figures: Figures | None = None,
    ) -> None:
        """``final`` is the final module, with its ``figures`` if they are known; ``compiler`` and
        ``device`` are those to use, None for those of the dump. Raises ``UnusableInput`` if the
        dump lacks what the passes depend on.
        """
        self._module = module
        self._asked = compiler
        self.context = _without_reasons(read_context(module, device))
        self.runs = chained_runs(module)
        self._orders: dict[Stage, UserOrder] = {}
        self._first_names: dict[Stage, FirstNames] = {}
        self._aged: set[PassRun] = set()
        self._jobs = 1
        self._most_work: int | None = None
        self._expected: list[Candidate] = []
        self._followed: list[Candidate] = []
        self._together: dict[str, Module | str | None] = {}
        self._work = Work()  # of all that was tried together, and parts of that
        self._common_work = 0
        self._steps: dict[str, Sequence[Step]] = {}  # by the unchanged rules
        self._computations: dict[str, frozenset[str]] = {}  # those that a change changes
        self._unchanged: dict[tuple[PassRun, ...], Module | None] = {}
        self._agreeing: dict[tuple[PassRun, ...], bool] = {}
        self.compiler = choose_compiler(module, compiler).compiler
        self._final = final
        self._loops = read_loop_facts(module)
        self.final = figures or count_figures(final, module.backend, self.context.gpu, self._loops)

    def replays_all(self, passes: Iterable[str]) -> bool:
        """Return whether all of these passes are among those that are replayed."""
        return {run.pass_name for run in self.runs}.issuperset(passes)

    def names(self) -> frozenset[str]:
        """Return the names before fusion of the instructions that are there, outside of kernels,
        when the first of the passes runs.
        """
        return frozenset(self._names(self.runs[0].before).later) if self.runs else frozenset()

    def _names(self, start: Stage) -> FirstNames:
        return self._first_names.setdefault(start, FirstNames(self._module, start))

    def can_try(self, candidate: Candidate) -> bool:
        """Return whether all passes that the change concerns are replayed, to the end of fusion."""
        if not candidate.passes:
            return False
        names = {run.pass_name for run in self.runs}
        if candidate.flags:
            changed = self._module.with_flags(candidate.flags)
            names |= {run.pass_name for run in chained_runs(changed)}
        return bool(self.runs) and candidate.passes <= names

    def count_operations(self, candidate: Candidate) -> int:
        """Return how many operations the passes go over when the change is tried, each as often as
        they ask a cost model about one.
        """
        module = self._changed(candidate)
        return _count_operations(module, self._runs_from(candidate, module))

    @cached_property
    def operations(self) -> int:
        """How many operations all of the passes go over, counted in the same way."""
        return _count_operations(self._module, self.runs)

    def _changed(self, candidate: Candidate) -> DumpedModule:
        return self._module.with_flags(candidate.flags) if candidate.flags else self._module

    def try_out(
        self, candidate: Candidate, wider: Candidate | None = None
    ) -> ReplayedChange | None:
        """Return the result of the passes with a change; None if it equals that without the change.
        It may be a part of a ``wider`` one, which was tried before: what that leaves unchanged is
        unchanged.

        Raises ``UnusableInput``, and ``OutOfTime`` where it takes too long to tell.
        """
        if candidate.change in self._tried_together():
            result = self._together.pop(candidate.change)
            if isinstance(result, str):
                raise OutOfTime
            return ReplayedChange(result, *self.predict(result)) if result is not None else None
        module, context = self._changed(candidate), self.context
        compiler = self.compiler
        if candidate.flags:
            context = with_flags_of(module, context)
            compiler = choose_compiler(module, self._asked).compiler
            if not self._acts(module, compiler, context):
                return None
        compiler = candidate.changes.apply(compiler)
        runs = self._runs_from(candidate, module)
        if self._most_work is not None:
            most = max(self._most_work, _MOST_STEPS * _count_operations(module, runs))
            context = replace(context, work=Work(most=most))
        if wider is not None:
            given_steps = self._steps_beside(wider)
            context = replace(context, given_steps=given_steps, work=self._begin_part())
        chain = _Chain(runs, module, compiler, context, candidate.passes)
        current = self._replay(chain, by_name=bool(candidate.changes.allowed))
        if current is None:
            return None
        return ReplayedChange(current, *self.predict(current))

    def _begin_part(self) -> Work:
        """Return the work of all that was tried together, and of parts of it. Raises ``OutOfTime``
        if one more replay of all may be more than what is allowed to them.
        """
        if self._work.amount + self._common_work > self._work.most:
            raise OutOfTime
        return self._work

    def _steps_beside(self, change: Candidate) -> Mapping[str, Sequence[Step]]:
        """Return the steps of priority fusion in the computations that ``change`` leaves unchanged,
        as far as that is known.
        """
        computations = self._computations.get(change.change, frozenset({""}))
        steps = {} if "" in computations else self._steps
        return {name: steps[name] for name in steps.keys() - computations}

    def predict(self, changed: Module) -> Predicted:
        """Return the figures of the final module if ``changed`` is the result of the passes."""
        return self._figures.predict(changed)

    @property
    def can_predict(self) -> bool:
        """Whether the figures of the final module are known for any change: where copies are not as
        predicted and depend on the order of kernels, they never are.
        """
        return self._figures.can_be_certain

    def _acts(self, module: DumpedModule, compiler: Compiler, context: PassContext) -> bool:
        """Return whether the flags of ``module`` decide anything that the passes depend on."""
        runs = chained_runs(module)
        is_same = (
            runs == self.runs
            and compiler == self.compiler
            and _read_part(context) == _read_part(self.context)
            and all(module.lets_run(compiler.find(run.pass_name).known.in_files) for run in runs)
        )
        return not is_same

    def _runs_from(self, candidate: Candidate, changed: DumpedModule) -> list[PassRun]:
        """Return the runs from the first pass on that the change concerns. Earlier ones do the same
        as in the dump.
        """
        runs = list(self.runs)
        if candidate.flags:
            names = {run.pass_name for run in runs}
            runs += [run for run in chained_runs(changed) if run.pass_name not in names]
        concerned = [run.pass_name in candidate.passes for run in runs]
        return runs[concerned.index(True) :] if any(concerned) else []

    def expect(
        self, candidates: Iterable[Candidate], jobs: int = 1, most_work: int | None = None
    ) -> None:
        """Try ``candidates``, which have to follow the unchanged rules, together once the first is
        tried, in up to ``jobs`` processes at once. Beyond ``most_work`` they may take together what
        they have in common, and the last one that begins as much again; None means no limit.
        """
        self._expected = list(candidates)
        self._jobs, self._most_work = jobs, most_work

    def follows(self, candidate: Candidate) -> bool:
        """Return whether a change can follow priority fusion by the unchanged rules."""
        runs = self._runs_from(candidate, self._module)
        if candidate.flags or not runs or runs[0].pass_name != PRIORITY_FUSION or not can_fork():
            return False
        from fusionscope.passes.gpu.priority_fusion.branches import can_follow

        compilers = self.compiler, candidate.changes.apply(self.compiler)
        return can_follow(*(compiler.find(PRIORITY_FUSION).book for compiler in compilers))

    def _tried_together(self) -> Mapping[str, Module | str | None]:
        """Return the results of the expected changes that were not asked for yet."""
        if self._expected:
            results = self._follow(self._expected)
            self._together = {
                candidate.change: results[number]
                for number, candidate in enumerate(self._expected)
                if number in results
            }
            self._followed, self._expected = self._expected, []
        return self._together

    @working_memory()
    def _follow(self, candidates: Sequence[Candidate]) -> dict[int, Module | str | None]:
        """Return the results of ``candidates``, by their numbers, as ``_replay`` does; for what
        takes too long, ``TOO_LONG``.
        """
        from fusionscope.passes.gpu.priority_fusion.branches import Branch

        copies = Copies(self._jobs, self._most_work)
        runs = self._runs_from(candidates[0], self._module)
        compilers = [candidate.changes.apply(self.compiler) for candidate in candidates]
        branches = tuple(
            Branch(compiler.find(PRIORITY_FUSION).book, partial(copies.split, number), copies.end)
            for number, compiler in enumerate(compilers)
        )
        self._steps = {}
        context = replace(self.context, branches=branches, steps=self._steps, work=copies.work)
        chain = _Chain(runs, self._module, self.compiler, self.context)
        chains = [
            replace(chain, compiler=compiler, concerned=candidate.passes)
            for candidate, compiler in zip(candidates, compilers, strict=True)
        ]
        graph = self._start(chain, by_name=True)
        later = {run.pass_name for run in runs[1:]}
        try:
            module = self._module.read(runs[0].before)
            context = self._aged_context(context, runs[0])
            replay(PRIORITY_FUSION, module, context, self.compiler, graph)
            for branch, candidate in zip(branches, candidates, strict=True):
                acts_later = branch.is_open and not candidate.passes.isdisjoint(later)
                if acts_later and branch.part():
                    break
            if copies.current is not None:
                copies.end(self._go_on(chains[copies.current], graph, start=1))
        except OutOfTime:
            copies.end(TOO_LONG)
        except BaseException:
            if copies.current is not None:
                copies.fail()
            raise
        is_dumped = is_same(graph, self._module.read(runs[0].after or runs[0].before))
        unchanged = self._unchanged[tuple(runs)] = self._go_on(chain, graph, start=1)
        graph.dissolve()
        result = None if is_dumped else unchanged
        results: dict[int, Module | str | None] = {
            number: result for number, branch in enumerate(branches) if branch.is_open
        }
        endings_by_number = copies.results()
        self._work = Work(copies.taken, inf if copies.most is None else copies.most)
        self._common_work = copies.work.amount
        for number, endings in endings_by_number.items():
            results[number] = self._ended(chains[number], endings)
            self._computations[candidates[number].change] = frozenset(endings)
        return results

    def _ended(self, chain: _Chain, endings: Mapping[str, Result]) -> Module | str | None:
        """Return the result of a change. ``endings`` are what its copies ended with: the result, or
        the steps of computations, where others have the steps of the unchanged rules.
        """
        changed_steps: dict[str, Sequence[Step]] = {}
        for computation, ending in endings.items():
            if ending is None or isinstance(ending, Module | str):
                return ending
            changed_steps[computation] = ending
        given_steps = {**self._steps, **changed_steps}
        context = replace(chain.context, given_steps=given_steps)
        return self._replay(replace(chain, context=context), by_name=True)

    @working_memory()
    def _replay(self, chain: _Chain, *, by_name: bool = False) -> Module | None:
        """Return the result of ``chain``, each pass on the graph that the one before it leaves. If
        ``by_name`` is set, rules name instructions as they are named before fusion.

        None if all passes that are concerned do the same as in the dump.
        """
        graph = self._start(chain, by_name=by_name)
        result = self._go_on(chain, graph)
        graph.dissolve()
        return result

    def _start(self, chain: _Chain, *, by_name: bool) -> MutableModule:
        start = chain.runs[0].before
        graph = arrange(chain.module.read(start), self._orders.get(start, {}))
        if by_name:
            self._names(start).set_origins(graph)
        return graph

    def _go_on(self, chain: _Chain, graph: MutableModule, start: int = 0) -> Module | None:
        """Return the result as ``_replay`` does, from the pass at ``start`` on."""
        if start and self._leave(chain, start - 1, graph):
            return None
        for place, run in enumerate(chain.runs[start:], start):
            if chain.lets_run(run):
                context = self._aged_context(chain.context, run)
                module = chain.module.read(run.before)
                graph = replay(run.pass_name, module, context, chain.compiler, graph).graph
            if self._leave(chain, place, graph):
                return None
        return to_module(graph)

    def _aged_context(self, context: PassContext, run: PassRun) -> PassContext:
        return with_ages(context, self._module, run) if run in self._aged else context

    def _leave(self, chain: _Chain, place: int, graph: MutableModule) -> bool:
        """Return whether the last pass that is concerned has left what is in the dump. If not,
        clean up before the next pass.
        """
        run = chain.runs[place]
        after = chain.module.read(run.after or run.before)
        if chain.is_last_concerned(place) and is_same(graph, after):
            return True
        if run is not chain.runs[-1] and run.pass_name in chain.compiler.cleaned:
            clean_up(graph, chain.module.backend)
        return False

    def agrees(self, candidate: Candidate) -> bool | None:
        """Return whether the replay of these passes without the change agrees with the dump.

        None if it agrees only with an order of users and instructions that no text shows and that
        was not used so far: the change has to be tried again. Raises ``UnusableInput``.
        """
        aged_before = len(self._aged)
        runs = tuple(run for run in self._runs_from(candidate, self._module) if run in self.runs)
        if runs not in self._agreeing:
            self._agreeing[runs] = self._lead_to_dump(runs)
            first = runs[0]
            if not self._agreeing[runs] and first not in self._aged:
                rewriters = find_rewriters(self._module)
                self._orders[first.before] = find_user_order(self._module, first.before, rewriters)
                self._aged.update(runs)
                self._unchanged.clear()
                self._steps, self._computations = {}, {}
                self._expected = [
                    candidate for candidate in self._followed if candidate.change in self._together
                ]
                self._together = {}
                self._agreeing[runs] = self._lead_to_dump(runs)
        return (
            None if self._agreeing[runs] and len(self._aged) > aged_before else self._agreeing[runs]
        )

    def makes_dump(self, runs: Sequence[PassRun]) -> bool:
        """Return whether ``runs`` by the unchanged rules are known to make what is in the dump,
        without an order that no text shows.
        """
        unchanged = self._unchanged.get(tuple(runs))
        return unchanged is not None and not self._aged and is_same(unchanged, self._after_fusion())

    def _lead_to_dump(self, runs: Sequence[PassRun]) -> bool:
        """Return whether the result has as many launches and bytes as the compiler's. Passes
        between them, which only tidy up, are not replayed.
        """
        result = self._unchanged.get(tuple(runs))
        if result is None:
            result = self._replay(_Chain(runs, self._module, self.compiler, self.context))
        assert result is not None, "no pass is concerned"
        backend = self._module.backend
        return total_kernels(result, backend) == total_kernels(self._after_fusion(), backend)

    def fused_pairs(self, change: ReplayedChange) -> frozenset[tuple[str, str]]:
        """Return the producers and consumers before fusion, by name, that are in one kernel after
        it.
        """
        pairs = self._names(self.runs[0].before).pairs_in(("after", change.module))
        return frozenset(
            (pair.producer.name, pair.consumer.name) for pair in pairs if pair.outcome in TOGETHER
        )

    def changes_code(self, change: ReplayedChange) -> bool:
        """Return whether other code computes what the library of a CPU computes now."""
        return changes_code(self._after_fusion(), change.module, self._module.backend)

    def removed_movements(self, change: ReplayedChange) -> tuple[str, ...]:
        """Return the names of kernels of the final module that only move data and that the change
        removes.
        """
        return removed_movements(
            self._final, self._after_fusion(), change.module, self._module.backend
        )

    @cached_property
    def _figures(self) -> FinalFigures:
        gpu = self.context.gpu
        after = self._after_fusion()
        return FinalFigures(
            self._final,
            after,
            self._module.backend,
            gpu,
            figures=self.final,
            loops=self._loops,
            makes_functions=self.compiler.makes_functions,
        )

    def _after_fusion(self) -> Module:
        last = self.runs[-1]
        return self._module.read(last.after or last.before)


def _without_reasons(context: PassContext) -> PassContext:
    """Nothing is compared with a record here, and nobody asks why."""
    context = replace(context, tells_decisions=False)
    if context.gpu is None:
        return context
    return replace(context, gpu=replace(context.gpu, has_record=False))


def _read_part(context: PassContext) -> PassContext:
    """Return what passes read of the context."""
    gpu = context.gpu
    if gpu is None:
        return context
    return replace(context, gpu=replace(gpu, gpu_model=gpu.gpu_model.on(gpu.device)))


def _count_operations(module: DumpedModule, runs: Iterable[PassRun]) -> int:
    return sum(
        _SCORINGS.get(run.pass_name, 1) * module.read(run.before).instruction_count for run in runs
    )


def chained_runs(module: DumpedModule) -> tuple[PassRun, ...]:
    """Return the consecutive runs of passes that fuse: for GPUs those of the main chain."""
    runs = find_runs(module)
    if module.backend != "gpu":
        return runs
    chain = choose_compiler(module).compiler.chains[0]
    return tuple(run for run in runs if run.pass_name in chain)
