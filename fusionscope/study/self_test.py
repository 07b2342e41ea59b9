"""Tries everything that reruns need on one device, with small programs of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from fusionscope.bisect.bisect import bisect
from fusionscope.bisect.reference import Reference
from fusionscope.capture.capture import capture, require_empty
from fusionscope.capture.targets import Target, read_program
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.errors import UnusableInput
from fusionscope.explain.explain import explain_module
from fusionscope.facts.facts import Facts
from fusionscope.graph.mutable import MutableModule, to_module
from fusionscope.history.outcomes import TOGETHER, Outcome
from fusionscope.hlo import Module
from fusionscope.progress import Progress, each_of, silent
from fusionscope.rerun.measuring import Speed
from fusionscope.rerun.plans import Rest, own_plan
from fusionscope.rerun.running import Numbers
from fusionscope.rerun.trial import Trial, Tried, Variant, make_variant, try_variants
from fusionscope.rules.changes import NO_CHANGES, read_changes
from fusionscope.study.study import run_study
from fusionscope.study.study_files import read_study
from fusionscope.system.files import write_file

_PROGRAMS = """import jax
from jax import lax
from jax import numpy as jnp

X = jnp.ones((256, 128))
Q = jnp.ones((2, 64, 32))


def elementwise(x):
    wide = jnp.concatenate([jnp.tanh(x), x * 2, jnp.log(x)], axis=1)
    return jnp.exp(-wide), wide.sum(axis=1), wide.max(axis=0)


def attention(q, k, v):
    return jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", q, k) / 8, axis=-1) @ v


def loop(x):
    def body(i, state):
        buffer, total = state
        row = jnp.tanh(buffer[i]) * 0.5 + total
        return buffer.at[i].set(row), total + row * 0.1

    return lax.fori_loop(0, 16, body, (x, x[0]))


def table(x, i):
    return jnp.take(x, i, axis=0).sum(axis=1), x.at[i].add(1.0) * 2


def gradient(x, w):
    return jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w) * 0.1 + w


elementwise.example_args = (X,)
attention.example_args = (Q, Q, Q)
loop.example_args = (X,)
table.example_args = (X, jnp.arange(64))
gradient.example_args = (X, jnp.ones((128, 64)))
"""
_NAMES = ("elementwise", "attention", "loop", "table", "gradient")
_FAULT = ("exponential", "negate")  # one reads the other in the first program
_STUDY = """work = 1
[[steps]]
name = "fused"
program = "programs.py:elementwise"
[[steps]]
name = "apart"
of = "fused"
forbid = ["* -> *"]
"""


class Check(Facts, frozen=True):
    """One thing that reruns need.

    name: ``hook``, ``replay``, ``changed plans``, ``numbers``, ``times``, ``profiles``, ``bisect``
        or ``study``
    holds: whether it holds; null if it could not be tried
    details: counts, or what went wrong, in one line each
    """

    name: str
    holds: bool | None
    details: tuple[str, ...]


class SelfTest(Facts, frozen=True, tag_field="schema", tag="fusionscope.self-test/1"):
    """What works on a device.

    device: the device
    checks: what was tried
    holds: whether nothing failed
    """

    computed = ("holds",)

    device: str
    checks: tuple[Check, ...]

    @property
    def holds(self) -> bool:
        """Whether nothing failed."""
        return all(check.holds is not False for check in self.checks)


def self_test(
    target: Target,
    output: Path,
    *,
    python: str = sys.executable,
    limit_s: float = 600.0,
    seconds: float = 2.0,
    progress: Progress = silent,
) -> SelfTest:
    """Compile small programs for ``target`` into ``output``, which must be empty or new, replay and
    change their fusions, and run them if the device is present: time and profile them, find a
    planted fault, and make a study. Raises ``UnusableInput`` if nothing can be compiled.
    """
    require_empty(output)
    file = output / "programs.py"
    write_file(file, _PROGRAMS)
    trials: dict[str, Trial] = {}
    refused: list[str] = []
    for name, _ in each_of(_NAMES, lambda name: f"trying {name}", progress):
        program = read_program(f"{file}:{name}")
        captured = capture(program, target, output / name, python=python, limit_s=limit_s)
        if captured.problem:
            raise UnusableInput(f"{name}: {captured.problem}")
        (module,) = open_dump(captured.directory).modules
        variants = list(_variants(module, refused))
        try:
            trials[name] = try_variants(
                module,
                variants,
                output / f"{name}-again",
                baseline=None,
                seconds=seconds,
                python=python,
                limit_s=limit_s,
            )
        except UnusableInput as problem:
            return SelfTest(target.name, (Check("hook", False, (str(problem),)),))
    attempts = [(name, variant) for name, trial in trials.items() for variant in trial.variants]
    replays = [(name, attempt) for name, attempt in attempts if attempt.name == "replay"]
    changed = [(name, attempt) for name, attempt in attempts if attempt.name != "replay"]
    not_run = next((trial.not_run for trial in trials.values() if trial.not_run), "")
    took = all(attempt.rerun.divergence is None for _, attempt in attempts)
    checks = (
        Check("hook", took, ("takes modules" if took else "the compiler took other modules",)),
        _check("replay", replays, lambda attempt: attempt.rerun.holds and attempt.rerun.is_same),
        _check("changed plans", changed, lambda attempt: attempt.rerun.holds, refused),
        _numbers(attempts, not_run),
        _times(replays, changed, not_run),
        _profiles(attempts, not_run),
        _bisect(output / _NAMES[0], not_run, python, limit_s, progress),
        _study(target, output, python, limit_s, seconds, progress),
    )
    return SelfTest(target.name, checks)


def _variants(module: DumpedModule, refused: list[str]) -> Iterator[Variant]:
    """Yield the compiler's own plan, none, and changes of a pair each that can be made."""
    yield Variant("replay", own_plan(module))
    yield make_variant(module, "no-fusion", NO_CHANGES, Rest.OFF, ())
    pairs = explain_module(module).pairs
    fused = [pair for pair in pairs if pair.outcome in TOGETHER]
    apart = [pair for pair in pairs if pair.outcome is Outcome.NOT_FUSED]
    for name, candidates in (("forbid", fused), ("allow", apart)):
        for number, pair in enumerate(candidates[:: max(1, len(candidates) // 3)][:3]):
            words = f"{pair.producer.name} -> {pair.consumer.name}"
            patterns = {"allow": (), "forbid": (), name: (words,)}
            changes = read_changes((), (), patterns["allow"], patterns["forbid"])
            try:
                yield make_variant(module, f"{name}-{number}", changes, Rest.RULES, ())
            except UnusableInput as problem:
                refused.append(str(problem))


def _check(
    name: str,
    attempts: Sequence[tuple[str, Tried]],
    holds: Callable[[Tried], bool],
    refused: Sequence[str] = (),
) -> Check:
    failed = [
        f"{program}, {attempt.rerun.plan}" for program, attempt in attempts if not holds(attempt)
    ]
    words = f"{len(attempts) - len(failed)} of {len(attempts)} as planned and predicted"
    if refused:
        words += f", {len(refused)} refused before compiling"
    return Check(name, not failed, (words, *failed))


def _numbers(attempts: Sequence[tuple[str, Tried]], not_run: str) -> Check:
    if not_run:
        return Check("numbers", None, (not_run,))
    numbered = [
        (attempt.measurement.numbers if attempt.measurement is not None else None, program, attempt)
        for program, attempt in attempts
    ]
    equal, rounded = (
        sum(numbers is kind for numbers, _, _ in numbered)
        for kind in (Numbers.EQUAL, Numbers.ROUNDED)
    )
    wrong = [
        f"{program}, {attempt.rerun.plan}: {numbers or 'did not run'}"
        for numbers, program, attempt in numbered
        if numbers not in (Numbers.EQUAL, Numbers.ROUNDED)
    ]
    return Check("numbers", not wrong, (f"{equal} equal, {rounded} rounded differently", *wrong))


def _times(
    replays: Sequence[tuple[str, Tried]], changed: Sequence[tuple[str, Tried]], not_run: str
) -> Check:
    """Equal programs must take equal times."""
    if not_run:
        return Check("times", None, (not_run,))
    wrong = []
    for program, attempt in replays:
        timing = attempt.measurement.timing if attempt.measurement is not None else None
        if timing is None or timing.verdict is not Speed.SAME:
            wrong.append(f"{program}: the replay is {timing.verdict if timing else 'not timed'}")
    verdicts = [
        attempt.measurement.timing.verdict
        for _, attempt in changed
        if attempt.measurement is not None and attempt.measurement.timing is not None
    ]
    kinds = [kind for kind in Speed if kind is not Speed.UNCLEAR or kind in verdicts]
    counts = ", ".join(f"{verdicts.count(kind)} {kind}" for kind in kinds)
    return Check(
        "times", not wrong, (f"{len(replays)} replays equal; changed plans: {counts}", *wrong)
    )


def _profiles(attempts: Sequence[tuple[str, Tried]], not_run: str) -> Check:
    """The profile of each program must show its kernels."""
    if not_run:
        return Check("profiles", None, (not_run,))
    wrong = [
        f"{program}, {attempt.rerun.plan}: {attempt.not_profiled or 'no kernel was measured'}"
        for program, attempt in attempts
        if attempt.kernels is None or not attempt.kernels.after_us
    ]
    words = f"{len(attempts) - len(wrong)} of {len(attempts)} show the kernels of their program"
    return Check("profiles", not wrong, (words, *wrong))


def _bisect(dump: Path, not_run: str, python: str, limit_s: float, progress: Progress) -> Check:
    """A fault that shows only where two operations are fused must be found."""
    if not_run:
        return Check("bisect", None, (not_run,))
    (module,) = open_dump(dump).modules
    try:
        bisection = bisect(
            module,
            Reference(),
            python=python,
            limit_s=limit_s,
            alter=_plant_fault,
            progress=progress,
        )
    except UnusableInput as problem:
        return Check("bisect", False, (str(problem),))
    kernels = [", ".join(op.opcode for op in kernel.operations) for kernel in bisection.found]
    if kernels == [", ".join(reversed(_FAULT))]:
        return Check("bisect", True, (f"found a planted fault in {bisection.tried} trials",))
    words = bisection.problem or f"found {'; '.join(kernels)}"
    return Check("bisect", False, (f"planted a fault in {' of '.join(_FAULT)}: {words}",))


def _plant_fault(module: Module) -> Module:
    """Leave out the inner operation wherever the two are in one kernel."""
    graph = MutableModule(module)
    outer, inner = _FAULT
    for inside in graph.post_order():
        if inside.is_fused:
            for instruction in list(inside.instructions):
                if instruction.opcode == outer and instruction.operands[0].opcode == inner:
                    inside.replace_uses(
                        instruction.operands[0], instruction.operands[0].operands[0]
                    )
    return to_module(graph)


def _study(
    target: Target,
    output: Path,
    python: str,
    limit_s: float,
    seconds: float,
    progress: Progress,
) -> Check:
    write_file(output / "study.toml", _STUDY)
    try:
        result = run_study(
            read_study(output),
            [target],
            [1],
            output / "study",
            python=python,
            limit_s=limit_s,
            seconds=seconds,
            progress=progress,
        )
    except UnusableInput as problem:
        return Check("study", False, (str(problem),))
    (table,) = result.tables
    problems = [f"{row.step}: {row.problem}" for row in table.rows if row.problem]
    launches = ", ".join(
        f"{row.step} {row.launches} {'launch' if row.launches == 1 else 'launches'}"
        for row in table.rows
    )
    if table.not_run:
        launches += f"; not run: {table.not_run}"
    return Check("study", not problems, (launches, *problems))
