"""What a search tries: changes of the fusion plan, and rewritten programs."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from fusionscope.advise.recipes.catalogue import RECIPES
from fusionscope.advise.recipes.loops import count_steps
from fusionscope.advise.recipes.multiply_thin_dots import MultiplyThinDots
from fusionscope.advise.recipes.recipe import Recipe, apply_recipe, prepare
from fusionscope.advise.recipes.unroll_loop import UnrollLoop
from fusionscope.dump import DumpedModule
from fusionscope.errors import UnusableInput
from fusionscope.history.outcomes import Outcome, Pair, pairs_after
from fusionscope.hlo import Module
from fusionscope.passes.overrides import PairPattern
from fusionscope.passes.plan import FusionPlan
from fusionscope.passes.rule import Rule
from fusionscope.reasons.replayed import ReplayedReasons
from fusionscope.rerun.plans import WRAPPER, Plan, find_fusing_runs
from fusionscope.rules.changes import NO_CHANGES, Changes
from fusionscope.tune.joins import find_joins
from fusionscope.tune.regions import find_regions
from fusionscope.versions.choice import choose_compiler
from fusionscope.versions.context import read_context
from fusionscope.versions.runs import replay

_FACTORS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 25, 32, 40, 50, 64)
_APART = 1.4  # the ratio of one factor to the next
_TIMES_LARGER = (0, 8)
# Recipes beyond the limits within which they usually help: what follows is measured.
_FURTHER = (MultiplyThinDots(most=4_096, thinnest=1),)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A change to try: its kind, what it does, and what it acts on.

    It changes rules (``changes``) or the program (``recipe``).
    """

    kind: str
    change: str
    acts_on: str = ""
    changes: Changes = NO_CHANGES
    recipe: Recipe | None = None

    def __str__(self) -> str:
        return f"{self.change} {self.acts_on}".rstrip()


class Move:
    """A kind of change of the plan."""

    kind: ClassVar[str]

    @abstractmethod
    def candidates(self, start: Start) -> Iterator[Candidate]:
        """Yield the candidates of this kind, the most promising first."""


@dataclass(frozen=True, slots=True)
class Start:
    """What moves start from: a module, the compiler's own plan, its pairs, the most bytes first,
    and the refusing rules that correctness does not depend on, the most frequent first. ``refused``
    are the pairs that only such a rule keeps apart. ``names`` are those before fusion, by which
    changes name operations, of the operations before the plan.
    """

    module: DumpedModule
    own: Plan
    pairs: Sequence[Pair] = field(default_factory=tuple)
    rules: Sequence[Rule] = field(default_factory=tuple)
    refused: Sequence[Pair] = field(default_factory=tuple)
    names: Mapping[str, str] = field(default_factory=dict)

    def name(self, name: str) -> str:
        return self.names.get(name, name)


def start_from(module: DumpedModule, own_plan: Plan) -> Start:
    pairs = sorted(
        pairs_after(own_plan.before, own_plan.after), key=lambda pair: -pair.bytes_between
    )
    compiler, context = choose_compiler(module).compiler, read_context(module)
    rules = {rule.id: rule for book in compiler.books for rule in book}
    refusals: Counter[str] = Counter()
    plans: dict[str, tuple[FusionPlan, ...]] = {}
    current = own_plan.before
    for run in find_fusing_runs(module):
        plan = replay(run.pass_name, current, context, compiler)
        refusals.update(
            decision.decision.rule for decision in plan.decisions if not decision.decision.allow
        )
        plans[run.pass_name] = (plan,)
        current = plan.module
    optional = [rules[id] for id, _ in refusals.most_common() if id in rules]
    optional = [rule for rule in optional if not rule.is_legality]
    reasons = ReplayedReasons.of_plans(plans, compiler.main_pass)
    refused = [
        pair
        for pair in pairs
        if pair.outcome is Outcome.NOT_FUSED
        and (why := reasons.reason(compiler.main_pass, pair.producer.name, pair.consumer.name))
        and any(rule.id == why.rule for rule in optional)
    ]
    names = {later: name for name, later in own_plan.passes.names.later.items()}
    return Start(module, own_plan, pairs, optional, refused, names)


class WithoutPass(Move):
    """A pass that fuses is left out."""

    kind = "pass"

    def candidates(self, start: Start) -> Iterator[Candidate]:
        for name in dict.fromkeys(run.pass_name for run in find_fusing_runs(start.module)):
            if name != WRAPPER:
                yield Candidate(self.kind, "without", name, Changes(disabled=(name,)))


class WithoutRule(Move):
    """A refusing rule is left out."""

    kind = "rule"

    def candidates(self, start: Start) -> Iterator[Candidate]:
        for rule in start.rules:
            yield Candidate(self.kind, "without", rule.id, Changes(disabled=(rule.id,)))


class Threshold(Move):
    """A threshold of a refusing rule is changed."""

    kind = "threshold"

    def candidates(self, start: Start) -> Iterator[Candidate]:
        for rule in start.rules:
            for name, value in rule.thresholds.items():
                for times in _TIMES_LARGER:
                    changes = Changes(thresholds=((rule.id, name, value * times),))
                    yield Candidate(self.kind, "set", f"{rule.id}.{name}={value * times}", changes)


class OneKernel(Move):
    """Operations become one kernel, with a result for each that others read."""

    kind = "one kernel"

    def candidates(self, start: Start) -> Iterator[Candidate]:
        for region in find_regions(start.own.before):
            changes = Changes(kernels=(tuple(map(start.name, region.members)),))
            yield Candidate(self.kind, "one kernel of", region.what, changes)


class JoinedKernels(Move):
    """Kernels that the compiler keeps apart become one, with the results of each."""

    kind = "joined kernels"

    def candidates(self, start: Start) -> Iterator[Candidate]:
        for join in find_joins(start.own, start.module.backend):
            changes = Changes(kernels=(tuple(map(start.name, join.members)),))
            yield Candidate(self.kind, "join", join.what, changes)


class FusedPair(Move):
    """A pair is fused that a rule refuses without which the result is right."""

    kind = "pair"

    def candidates(self, start: Start) -> Iterator[Candidate]:
        for pair in start.refused:
            ends = (pair.producer.name, pair.consumer.name)
            if all(end in start.names for end in ends):  # others have no name
                pattern = PairPattern(*map(start.name, ends))
                yield Candidate(self.kind, "allow", str(pattern), Changes(allowed=(pattern,)))


class KeptValue(Move):
    """A value that several kernels compute is computed once, and kept."""

    kind = "kept value"

    def candidates(self, start: Start) -> Iterator[Candidate]:
        duplicated = [
            pair.producer
            for pair in start.pairs
            if pair.outcome is Outcome.DUPLICATED and pair.producer.opcode not in _CHEAP
        ]
        for producer in dict.fromkeys(duplicated):
            name = start.name(producer.name)
            changes = Changes(forbidden=(PairPattern(name, "*"),))
            yield Candidate(self.kind, "keep", name, changes)


_CHEAP = frozenset({"bitcast", "broadcast", "constant", "iota", "reshape", "slice"})

MOVES: tuple[Move, ...] = (
    WithoutPass(),
    OneKernel(),
    JoinedKernels(),
    WithoutRule(),
    KeptValue(),
    FusedPair(),
    Threshold(),
)


@dataclass(frozen=True, slots=True)
class Rewriting:
    """A candidate that changes the program, and its result."""

    candidate: Candidate
    program: Module


def find_rewritings(program: Module, backend: str) -> Iterator[Rewriting]:
    """Yield what recipes make of ``program``: loops unrolled by several factors, and the others
    wherever they match, whether or not they usually help on this device.
    """
    for factor in _factors(program):
        recipe = UnrollLoop(times=factor, is_whole=True)
        yield from _rewritten(recipe, program, backend, "unroll", f"by {factor}")
    for rewriting in (*_FURTHER, *RECIPES):
        if rewriting.keeps_arguments and not isinstance(rewriting, UnrollLoop):
            yield from _rewritten(rewriting, program, backend, "recipe", rewriting.id)


def _factors(program: Module) -> list[int]:
    """Return the numbers of steps of a loop that may become one, all of a short loop included."""
    try:
        loops = [
            instruction for instruction in prepare(program).walk() if instruction.opcode == "while"
        ]
    except UnusableInput:
        return []
    counts = {count for count in map(count_steps, loops) if count is not None and count > 1}
    whole = {count for count in counts if count <= _FACTORS[-1]}
    factors: list[int] = []
    for factor in sorted({*_FACTORS, *whole}):
        is_apart = not factors or factor >= factors[-1] * _APART or factor in whole
        if is_apart and any(count % factor == 0 for count in counts):
            factors.append(factor)
    return factors


def _rewritten(
    recipe: Recipe, program: Module, backend: str, change: str, acts_on: str
) -> Iterator[Rewriting]:
    try:
        rewritten = apply_recipe(recipe, program, backend)
    except UnusableInput:
        return
    if rewritten is not None and _aliases(rewritten.module) == _aliases(program):
        where = f"{acts_on} at {', '.join(rewritten.places[:3])}"
        yield Rewriting(Candidate("program", change, where, recipe=recipe), rewritten.module)


def _aliases(module: Module) -> tuple[bool, bool]:
    """Return whether buffers are donated: a plan cannot change that."""
    return "input_output_alias" in module.header, "buffer_donor" in module.header
