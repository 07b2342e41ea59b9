"""Finds the smallest set of fusions that makes the results of a program wrong."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from fusionscope.bisect.delta import minimize
from fusionscope.bisect.fused_plan import FusedPlan, Kernel, Part
from fusionscope.bisect.reference import Against, Reference
from fusionscope.bisect.reproducer import write_reproducer
from fusionscope.bisect.result import Bisection, By, Culprit, FusedPair, Operation
from fusionscope.bisect.speed import Speeds
from fusionscope.bisect.trials import Alter, Trials
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.errors import UnusableInput
from fusionscope.explain.modules import pick_module
from fusionscope.history.outcomes import names_by_value
from fusionscope.history.values import Numbering
from fusionscope.progress import Progress, silent
from fusionscope.rerun.injection import Injection, inject
from fusionscope.rerun.plans import own_plan
from fusionscope.rerun.programs import disable_flag, find_program
from fusionscope.rerun.running import why_not_run
from fusionscope.rerun.workbench import BASELINE, Made, Variant, Workbench
from fusionscope.system.files import make_directory

_NOT_FASTER = {
    By.TIME: "leaving fusions out does not make it faster",
    By.COMPILE_TIME: "leaving fusions out does not make it compile faster",
}


def bisect(
    module: DumpedModule,
    reference: Reference,
    *,
    by: By = By.NUMBERS,
    inputs: Path | None = None,
    seed: int = 0,
    directory: Path | None = None,
    python: str = sys.executable,
    limit_s: float = 600.0,
    alter: Alter = lambda module: module,
    progress: Progress = silent,
) -> Bisection:
    """Find the smallest set of fusions of ``module`` with which its results are wrong: of kernels,
    then of the pairs in them, then of operations. By time, find the smallest set without which the
    program is faster, or compiles faster. It runs on ``inputs`` (an .npz), else on those that were
    recorded with the dump, or random ones.

    If there is a ``directory``, each kernel of the result is written there so that it runs alone:
    in folders if there are several.

    Raises ``UnusableInput`` if nothing can be run, or if the reference differs between two runs.
    """
    problem = why_not_run(module)
    if problem:
        raise UnusableInput(f"{module.name}: {problem}, and bisecting has to run it")
    if directory is not None:
        make_directory(directory)  # before the work, not after it
    progress("compiling the program without fusion")
    plan = FusedPlan(module, own_plan(module))
    with ExitStack() as stack:
        bench = stack.enter_context(
            Workbench(
                module,
                _without_fusion(module, plan, python, limit_s),
                inputs=inputs,
                seed=seed,
                python=python,
                limit_s=limit_s,
                predicate=reference.predicate,
            )
        )
        scratch = Path(stack.enter_context(TemporaryDirectory()))
        trials = Trials(module, plan, bench, reference, alter, limit_s, progress)
        if by is not By.NUMBERS:
            parts, cost = Speeds(trials, by).find()
            return Bisection(
                module=module.name,
                by=by,
                reference=None,
                kernels=len(plan.kernels),
                problem="" if parts else _NOT_FASTER[by],
                tried=trials.tried,
                failed=trials.failed,
                cost=cost,
                found=tuple(_culprits(trials, parts, directory, python)),
            )
        progress("running the reference")
        _expect(reference, bench, module, scratch, python, limit_s)
        return _search(trials, directory, python)


def _without_fusion(
    module: DumpedModule, plan: FusedPlan, python: str, limit_s: float
) -> Injection:
    without = replace(plan.plan, after=plan.fuse(()).module)
    injection = inject(module, without, python=python, limit_s=limit_s)
    if injection.problem:
        raise UnusableInput(f"{module.name}: cannot run without fusion: {injection.problem}")
    return injection


def _expect(
    reference: Reference,
    bench: Workbench,
    module: DumpedModule,
    scratch: Path,
    python: str,
    limit_s: float,
) -> None:
    """Make ``bench`` compare results with the reference."""
    file = reference.place if reference.against is Against.ARRAYS else scratch / "expected.npz"
    assert file is not None
    if reference.against is Against.FLOAT64:
        bench.save_64_bits(file)
    elif reference.against in (Against.DUMP, Against.FLAGS):
        inputs = scratch / "inputs.npz"
        bench.save_inputs(inputs)
        reference_module, injection = (
            module,
            Injection(flags=(*disable_flag(module), *reference.flags)),
        )
        if reference.against is Against.DUMP:
            assert reference.place is not None
            reference_module = pick_module(open_dump(reference.place), None)
            _require_same_signature(module, reference_module)
            injection = inject(
                reference_module, own_plan(reference_module), python=python, limit_s=limit_s
            )
        with Workbench(
            reference_module, injection, inputs=inputs, seed=0, python=python, limit_s=limit_s
        ) as another:
            _require_steady(another, reference, limit_s)
            another.run(Variant(injection), file)
    if reference.against in (Against.NO_FUSION, Against.PREDICATE):
        _require_steady(bench, reference, limit_s)
    else:
        bench.expect(file)


def _require_same_signature(module: DumpedModule, base: DumpedModule) -> None:
    """Raises ``UnusableInput`` if ``base`` is a program with other parameters or results."""
    theirs, ours = (
        [
            re.sub(r"\{[^{}]*\}", "", str(parameter.shape))
            for parameter in (*entry.parameters, entry.root)
        ]
        for entry in (find_program(program).entry for program in (base, module))
    )
    if theirs != ours:
        raise UnusableInput(
            f"the reference {base.name} is another program: its parameters and result are "
            f"{', '.join(theirs)}, expected {', '.join(ours)}"
        )


def _require_steady(bench: Workbench, reference: Reference, limit_s: float) -> None:
    """Raises ``UnusableInput`` if the reference is wrong by its own measure in a second run."""
    again = bench.repeat(BASELINE, limit_s)
    if again.problem:
        raise UnusableInput(f"the reference cannot be run: {again.problem}")
    if reference.against is not Against.PREDICATE and reference.is_wrong(again):
        raise UnusableInput(
            "two runs of the reference have different results, so there is no right one",
            hint="allow for that with --tolerance, or say what is wrong with --predicate",
        )


def _search(trials: Trials, directory: Path | None, python: str) -> Bisection:
    plan, reference = trials.plan, trials.reference

    def end(executable: Made, problem: str, parts: Sequence[Part] = ()) -> Bisection:
        alone = trials.make(parts) if parts else None
        return Bisection(
            module=trials.module.name,
            by=By.NUMBERS,
            reference=str(reference) or None,
            kernels=len(plan.kernels),
            problem=problem,
            tried=trials.tried,
            failed=trials.failed,
            shows_in=trials.shows_in,
            crash=executable.problem,
            results=executable.results,
            alone=alone.results if alone is not None else (),
            amplifies=bool(parts) and reference.amplifies_rounding(executable),
            found=tuple(_culprits(trials, parts, directory, python)),
        )

    bare = trials.bench.repeat(BASELINE, trials.limit_s)
    if bare.problem:
        raise UnusableInput(f"{trials.module.name}: cannot run without fusion: {bare.problem}")
    trials.progress("running the whole plan")
    executable = trials.try_all()
    if executable.problem and not trials.crashes:
        raise UnusableInput(
            f"{trials.module.name}: its own plan was rejected: {executable.problem}"
        )
    if not trials.crashes and reference.is_wrong(bare):
        return end(bare, "the results are wrong without any fusion, too")
    if not trials.crashes and not trials.shows_in:
        return end(executable, "the results are not wrong")
    return end(executable, "", _minimize(trials))


def _minimize(trials: Trials) -> list[Part]:
    """Return the parts of the plan that are needed."""
    plan = trials.plan

    def progress(what: str, count: int) -> None:
        trials.progress(f"{trials.tried} tried: which of {count} {what}")

    def kernels_are_wrong(kernels: Sequence[Kernel]) -> bool:
        progress("kernels", len(kernels))
        return trials.is_wrong([part for kernel in kernels for part in kernel.parts])

    def pairs_are_wrong(parts: Sequence[Part]) -> bool:
        progress("pairs", len(parts))
        return trials.is_wrong(parts)

    kernels = minimize(plan.kernels, kernels_are_wrong)
    parts = minimize([part for kernel in kernels for part in kernel.parts], pairs_are_wrong)

    def joined(operations: Sequence[tuple[str, str]]) -> list[Part]:
        inside = set(operations)
        return [
            part
            for part in parts
            if not part.producer
            or {(part.kernel, part.producer), (part.kernel, part.consumer)} <= inside
        ]

    def operations_are_wrong(operations: Sequence[tuple[str, str]]) -> bool:
        progress("operations", len(operations))
        return trials.is_wrong(joined(operations))

    operations = dict.fromkeys(
        (part.kernel, name) for part in parts for name in (part.producer, part.consumer) if name
    )
    return joined(minimize(list(operations), operations_are_wrong))


def _culprits(
    trials: Trials, parts: Sequence[Part], directory: Path | None, python: str
) -> Iterator[Culprit]:
    fused, names = trials.plan.fuse(parts), _names_before_fusion(trials)
    for number, kernel in enumerate(fused.kernels if parts else (), 1):
        reproducer = None
        if directory is not None:
            place = directory if len(fused.kernels) == 1 else directory / f"kernel-{number}"
            trials.progress("writing the reproducer")
            reproducer = write_reproducer(trials, fused, kernel, place, python)
        inside = {operation.name for operation in kernel.operations}
        yield Culprit(
            kernel=kernel.kernel.name,
            of=len(kernel.kernel.operations),
            pairs=tuple(
                FusedPair(
                    names.get(part.producer, part.producer),
                    names.get(part.consumer, part.consumer),
                    part.are_siblings,
                )
                for part in parts
                if part.kernel == kernel.kernel.name and part.producer in inside
            ),
            operations=tuple(
                Operation(
                    names.get(operation.name, operation.name),
                    operation.opcode,
                    str(operation.shape),
                    str(operation.source) if operation.source is not None else None,
                )
                for operation in kernel.operations
            ),
            reproducer=reproducer,
        )


def _names_before_fusion(trials: Trials) -> dict[str, str]:
    """Return the names that ``explain`` shows, by those inside of kernels."""
    plan, numbering = trials.plan.plan, Numbering()
    names = names_by_value(numbering.number(trials.module.read(plan.passes.before)))
    return {
        instruction.name: names[value]
        for execution in numbering.number(plan.after).executions
        for block in execution.blocks
        for instruction, value in zip(block.computation.instructions, block.values, strict=True)
        if value in names
    }
