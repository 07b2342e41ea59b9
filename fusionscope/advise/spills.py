"""Finds changes with which the kernels of a module spill less, by compiling it with them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from fusionscope.advise.recipes.trying import Compilation
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.dump.device import Device
from fusionscope.errors import UnusableInput
from fusionscope.explain.view import with_resources
from fusionscope.facts.result import KernelFacts, KernelResources, ModuleFacts, PairFacts
from fusionscope.findings.resources.facts import (
    ABOUT,
    OverFused,
    Resources,
    SpillCost,
    SpillTrial,
    over_fused,
)
from fusionscope.findings.resources.find import find_resources
from fusionscope.findings.resources.ptxas import find_ptxas
from fusionscope.history.kernels import launches_of
from fusionscope.hlo.search import post_order
from fusionscope.progress import Progress
from fusionscope.rerun.plans import make_plan
from fusionscope.rerun.rerun import Rerun, rerun
from fusionscope.rules.changes import NO_CHANGES, Changes, read_changes
from fusionscope.system.cache import Cache
from fusionscope.versions.choice import choose_compiler

_DUMPS_PTX = "--xla_dump_emitter_re=.*"
# Fewer registers for the same code, at the expense of its speed.
_FEW_REGISTERS = "--register-usage-level=0"
_PASSES_ON = "--xla_gpu_ptx_compiler_extra_flags="
_CODE_SIZE = "pf-code-dup", "limit"
_OPERANDS = "budget-params", "limit"
_MOST_FORBIDDEN = 8  # values at which a suggestion cuts a kernel
_MOST_CHEAP = 4  # operations with which a value is computed again rather than stored
_PIECES = (2, 4)
_MOST_HALVED = 4  # times that a threshold is halved


@dataclass(frozen=True, slots=True)
class _Change:
    """A change to try: options of ``rerun`` in ``words``. One of the other two is empty."""

    words: str
    changes: Changes = NO_CHANGES
    flags: tuple[str, ...] = ()


def compile_resources(
    compilation: Compilation,
    cache: Cache | None,
    device: Device | None,
    tries: bool,
    module: DumpedModule,
    facts: ModuleFacts,
    resources: Resources,
    progress: Progress,
) -> Resources:
    """Return what the kernels of ``module`` take and, if some spill and it ``tries``, what came of
    changes.

    ``resources`` is what the dump shows; if it lacks the PTX, the program is compiled again.
    Answers of ptxas are looked up in ``cache``. ``device`` is the GPU if the dump describes none.
    """
    ptxas = find_ptxas()
    if ptxas is None:
        return resources
    attempts = _Attempts(
        module, facts, module.device or device, ptxas, compilation, cache, progress
    )
    try:
        if not resources.found:
            resources = attempts.compile_unchanged()
        return (
            replace(resources, over_fused=attempts.try_changes(resources)) if tries else resources
        )
    except UnusableInput as error:
        return replace(
            resources, notes=(*resources.notes, f"{ABOUT}: nothing can be compiled: {error}")
        )


@dataclass(frozen=True, slots=True)
class _Attempts:
    """The program of a module, compiled with changes."""

    module: DumpedModule
    facts: ModuleFacts
    device: Device | None
    ptxas: Path
    compilation: Compilation
    kept: Cache | None
    progress: Progress

    def compile_unchanged(self) -> Resources:
        """Return what the kernels take, from the PTX of the program compiled again.

        Raises ``UnusableInput`` if it cannot be compiled, or has other kernels then.
        """
        self.progress("compiling for PTX")
        with TemporaryDirectory() as scratch:
            again = self._compile(_Change(""), Path(scratch) / "unchanged")
            if not again.is_same:
                raise UnusableInput(f"{self.module.name}: compiled here, it has other kernels")
            return self._resources(_only_module(again))

    def try_changes(self, resources: Resources) -> OverFused | None:
        """Return what came of changes, or None if no fusion spills."""
        facts = with_resources(self.facts, resources)
        spilling = [
            kernel
            for kernel in facts.kernels
            if kernel.resources is not None
            and kernel.resources.spill_bytes
            and len(kernel.members) > 1
        ]
        if not spilling:
            return None
        time = facts.summary.time
        before = self._cost(
            facts.summary.launches,
            facts.summary.bytes_moved,
            time.microseconds if time is not None else None,
            resources.found,
            {kernel.name: kernel.runs for kernel in facts.kernels},
        )
        trials: list[SpillTrial] = []
        for alike in self._candidates(spilling):
            last = before
            for change in alike:
                trial = self._try(change, resources)
                trials.append(trial)
                if trial.after is not None:
                    is_better, last = trial.after.is_better_than(last), trial.after
                    if not (last.spilling and is_better):
                        break
            if not last.spilling and last.is_better_than(before):
                break
        return over_fused(tuple(kernel.name for kernel in spilling), before, tuple(trials))

    def _candidates(self, spilling: Sequence[KernelFacts]) -> Iterator[Iterable[_Change]]:
        """Yield changes in groups: each next one of a group changes more."""
        flag = _PASSES_ON + _FEW_REGISTERS
        yield [_Change(f"--flag {flag.removeprefix('--')}", flags=(flag,))]
        yield [
            _forbidding(cuts)
            for pieces in _PIECES
            if (cuts := _cut_each(self.facts.pairs, spilling, pieces))
        ]
        compiler = choose_compiler(self.module).compiler
        names = {kernel.name for kernel in spilling}
        assert self.module.final is not None
        launches = launches_of(self.module.read(self.module.final), self.module.backend)
        buffers = [
            len(launch.instruction.operands) + 1 for launch in launches if launch.name in names
        ]
        sizes = [len(kernel.members) for kernel in spilling]
        for (rule, name), limits in ((_CODE_SIZE, sizes), (_OPERANDS, buffers)):
            if compiler.find_rule(rule) is not None:
                values = (max(limits) >> number for number in range(1, _MOST_HALVED + 1))
                yield [_setting(f"{rule}.{name}={value}") for value in values if value > 1]

    def _try(self, change: _Change, resources: Resources) -> SpillTrial:
        self.progress(f"compiling with {change.words}")
        try:
            with TemporaryDirectory() as scratch:
                again = self._compile(change, Path(scratch) / "changed")
                dump = _only_module(again)
                new_resources = self._resources(dump)
                assert dump.final is not None and again.variant is not None
                launches = launches_of(dump.read(dump.final), dump.backend)
        except UnusableInput as error:
            return SpillTrial(change.words, None, str(error))
        if new_resources.notes and not resources.notes:
            return SpillTrial(change.words, None, new_resources.notes[0])
        after = self._cost(
            again.variant.launches,
            again.variant.bytes_moved,
            again.estimates[1].microseconds if again.estimates is not None else None,
            new_resources.found,
            {kernel.name: kernel.runs for kernel in launches},
        )
        return SpillTrial(change.words, after)

    def _compile(self, change: _Change, directory: Path) -> Rerun:
        """Raises ``UnusableInput`` if there is no result."""
        plan = make_plan(self.module, change.changes) if change.changes else None
        again = rerun(
            self.module,
            plan,
            directory,
            flags=(_DUMPS_PTX, *change.flags),
            python=self.compilation.python,
            limit_s=self.compilation.limit_s,
        )
        if again.variant is None:
            raise UnusableInput(again.problem or "the compiler did not finish")
        return again

    def _resources(self, dump: DumpedModule) -> Resources:
        return find_resources(
            dump, self.device, self.ptxas, cache=self.kept, progress=self.progress
        )

    def _cost(
        self,
        launches: int,
        bytes_moved: int,
        time_us: float | None,
        resources: Mapping[str, KernelResources],
        runs: Mapping[str, int],
    ) -> SpillCost:
        spilled = {
            name: kernel.spill_bytes * runs.get(name, 0) for name, kernel in resources.items()
        }
        total = sum(spilled.values())
        bandwidth = self.device.memory_bandwidth if self.device is not None else 0
        return SpillCost(
            launches=launches,
            bytes_moved=bytes_moved,
            time_us=time_us,
            spilling=sum(kernel > 0 for kernel in spilled.values()),
            spill_bytes=total,
            spill_us=total / bandwidth * 1e6 if bandwidth else None,
        )


def _only_module(again: Rerun) -> DumpedModule:
    assert again.captured is not None
    (dump,) = open_dump(again.captured.directory).modules
    return dump


def _setting(threshold: str) -> _Change:
    return _Change(f"--set {threshold}", read_changes(set_=[threshold]))


def _forbidding(producers: Iterable[str]) -> _Change:
    patterns = [f"{producer} -> *" for producer in producers]
    words = " ".join(f"--forbid {shlex.quote(pattern)}" for pattern in patterns)
    return _Change(words, read_changes(forbid=patterns))


def _cut_each(pairs: Sequence[PairFacts], kernels: Sequence[KernelFacts], pieces: int) -> list[str]:
    """Return the producers at which each of ``kernels`` falls into ``pieces``; none if one of them
    has too many.
    """
    cuts: list[str] = []
    for kernel in kernels:
        cut = _cut([pair for pair in pairs if pair.kernel == kernel.name], pieces)
        if not 0 < len(cut) <= _MOST_FORBIDDEN:
            return []
        cuts += cut
    return cuts


def _cut(pairs: Iterable[PairFacts], pieces: int) -> list[str]:
    """Return the producers of ``pairs``, those in one kernel, whose values lead from each piece to
    later ones: where the fewest do, in an order of the kernel that keeps few alive.

    Values that are cheap to compute again do not count.
    """
    operands: dict[str, list[str]] = {}
    readers: dict[str, list[str]] = {}
    for pair in pairs:
        producer, consumer = pair.producer.name, pair.consumer.name
        operands.setdefault(consumer, []).append(producer)
        readers.setdefault(producer, []).append(consumer)
    order = _in_order(operands, [operand for operand in operands if operand not in readers])
    place = {name: number for number, name in enumerate(order)}
    cheap = _cheap(order, operands)
    spans = [
        (place[name], max(place[reader] for reader in readers[name]), name)
        for name in order
        if name in readers and name not in cheap
    ]
    crossing = [0] * (len(order) + 1)
    for first, last, _ in spans:
        crossing[first] += 1
        crossing[last] -= 1
    for number in range(1, len(order)):
        crossing[number] += crossing[number - 1]
    names: dict[str, None] = {}
    half = len(order) // (2 * pieces)
    for number in range(1, pieces):
        middle = len(order) * number // pieces
        window = range(max(0, middle - half), min(len(order), middle + half + 1))
        where = min(window, key=lambda place: (crossing[place], abs(place - middle)), default=0)
        names |= {name: None for first, last, name in spans if first <= where < last}
    return list(names)


def _in_order(operands: Mapping[str, Sequence[str]], roots: Iterable[str]) -> list[str]:
    """Return all names that ``roots`` are computed from, each after its operands."""
    return list(post_order(reversed([*roots]), lambda name: reversed(operands.get(name, ()))))


def _cheap(order: Iterable[str], operands: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the names that few operations compute; ``order`` has operands first."""
    makers: dict[str, frozenset[str]] = {}
    for name in order:
        own_operands = operands.get(name, ())
        if all(operand in makers for operand in own_operands):
            all_makers = frozenset({name}).union(*(makers[operand] for operand in own_operands))
            if len(all_makers) <= _MOST_CHEAP:
                makers[name] = all_makers
    return set(makers)
