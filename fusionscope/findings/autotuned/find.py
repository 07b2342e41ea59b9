"""The instructions that the compiler's autotuner timed, beside the kernels of the final module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fusionscope.dump.autotuner_log import Candidate, TunedInstruction
from fusionscope.facts.clock import is_near_tie
from fusionscope.findings.autotuned.facts import Autotuned, GeneratorTime

if TYPE_CHECKING:
    from fusionscope.dump import DumpedModule, Stage
    from fusionscope.facts.result import KernelFacts

_PASSES = frozenset({"config-assigner", "autotuner", "gemm-fusion-autotuner"})


def find_autotuned(module: DumpedModule, kernels: Sequence[KernelFacts]) -> tuple[Autotuned, ...]:
    """Return the instructions of ``module`` that the logs of its dump have, the slowest first.

    A log is of a process and does not name modules: an instruction is that of the same name and
    shape in the stage before the autotuner. Of equal instructions the compiler times one. Raises
    ``UnusableInput`` if that stage or a shape in the log cannot be read.
    """
    tuned = {log.name: log for log in module.autotuner_log}  # the last of several compilations
    if not tuned:
        return ()
    from fusionscope.hlo.shape import ShapeTable  # to read a result again takes no parser

    shapes = ShapeTable()
    own_shapes = {
        instruction.name: instruction
        for computation in module.read(_tuned_stage(module)).computations
        for instruction in computation.instructions
        if instruction.name in tuned
    }
    by_name = {kernel.name: kernel for kernel in kernels}
    autotuned = [
        _autotuned(log, by_name.get(name))
        for name, log in tuned.items()
        if name in own_shapes
        and (not log.shape or own_shapes[name].shape.compatible(shapes[log.shape]))
    ]
    return tuple(sorted(autotuned, key=lambda log: -(log.generators[0].best_us or 0.0)))


def _tuned_stage(module: DumpedModule) -> Stage:
    """Return the stage before the autotuner, or the final one if that pass left none."""
    for before, after in zip(module.stages, module.stages[1:], strict=False):
        if after.name.after in _PASSES:
            return before
    return module.last


def _autotuned(tuned: TunedInstruction, kernel: KernelFacts | None) -> Autotuned:
    by_generator: dict[str, list[Candidate]] = {}
    for candidate in tuned.candidates:
        by_generator.setdefault(candidate.generator, []).append(candidate)
    generators = [_best(name, candidates) for name, candidates in by_generator.items()]
    generators.sort(
        key=lambda generator: float("inf") if generator.best_us is None else generator.best_us
    )
    times = [generator.best_us for generator in generators if generator.best_us]
    margin = times[1] / times[0] if len(times) > 1 else None
    return Autotuned(
        instruction=tuned.name,
        shape=tuned.shape,
        kernel=kernel.name if kernel is not None else None,
        emitter=kernel.emitter if kernel is not None else "",
        source=kernel.source if kernel is not None else None,
        generators=tuple(generators),
        margin=margin,
        near_tie=margin is not None and is_near_tie(times[1] - times[0], times[0]),
        candidates=tuned.candidates,
    )


def _best(generator: str, candidates: Sequence[Candidate]) -> GeneratorTime:
    times = [candidate.time_us for candidate in candidates if candidate.time_us is not None]
    return GeneratorTime(
        generator=generator,
        best_us=min(times, default=None),
        candidates=len(candidates),
        failed=len(candidates) - len(times),
    )
