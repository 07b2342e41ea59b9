"""The implementations that the GPU compiler chose, and what it measured.

Source: ``xla/backends/autotuner/config_assigner.cc``, ``AssignConfigs`` and ``GetConfig``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fusionscope.dump.autotuner_log import Candidate, TunedInstruction
from fusionscope.facts.clock import is_near_tie
from fusionscope.findings.autotuned.facts import Autotuned, Basis, GeneratorTime
from fusionscope.hlo import Instruction
from fusionscope.hlo.search import unfold
from fusionscope.hlo.shape import ShapeTable

if TYPE_CHECKING:
    from fusionscope.dump import DumpedModule, Stage
    from fusionscope.facts.result import KernelFacts

_PASSES = frozenset({"config-assigner", "autotuner", "gemm-fusion-autotuner"})
_LEVEL = "xla_gpu_autotune_level"
_LOADED = ("xla_gpu_load_autotune_results_from", "xla_gpu_per_fusion_autotune_cache_dir")
# By the field of a configuration that the pass fills.
_GENERATORS = {
    "triton_gemm_config": "Triton",
    "block_level_fusion_config": "Triton",
    "selected_algorithm": "cuBLAS",
    "cudnn_conv_backend_config": "cuDNN",
    "cudnn_fusion_config": "cuDNN",
    "custom_fusion_config": "custom kernel",
    "native_emitter_backend_config": "XLA",
}
_UNSET = ("", "0", 0, 0.0, False)
_TARGETS = {"__cublas": "cuBLAS", "__cudnn": "cuDNN"}

_OPCODE = re.compile(r" ([a-z][\w\-]*)\(")
_SHAPE = re.compile(r"\w+\[[^\]]*\](?:\{[^}]*\})?")
_Field = tuple[tuple[str, ...], object]


class _Choice(NamedTuple):
    """``name`` is the instruction that has the configuration: another one where the pass replaced a
    fusion by a library call.
    """

    name: str
    generator: str = ""
    configuration: str = ""


def find_autotuned(module: DumpedModule, kernels: Sequence[KernelFacts]) -> tuple[Autotuned, ...]:
    """Return the instructions of ``module`` that got an implementation from the autotuner, or that
    the logs of its dump have, those first that took longest.

    A log is of a process and does not name modules: an instruction is that of the same name and
    shape in the stage before the autotuner. Of equal instructions the compiler times one. Raises
    ``UnusableInput`` if a stage, or a shape in the log, cannot be read.
    """
    logs = {log.name: log for log in module.autotuner_log}  # the last of several compilations
    before, after = _around(module)
    choices = _choices(module, before, after) if after is not None else {}
    if not logs and not choices:
        return ()
    basis = _basis(module)
    results = {_signature(result.hlo): result for result in module.autotuner_results}
    shapes = ShapeTable()
    by_name = {kernel.name: kernel for kernel in kernels}
    autotuned = []
    for instruction in _instructions(module, before):
        log = logs.get(instruction.name)
        if log is not None and log.shape:
            log = log if instruction.shape.compatible(shapes[log.shape]) else None
        if log is not None or instruction.name in choices:
            choice = choices.get(instruction.name, _Choice(instruction.name))
            kernel = by_name.get(choice.name)
            result = results.get(_signature(_text(instruction))) if results else None
            time_us = result.candidate.time_us if result is not None else None
            autotuned.append(_autotuned(instruction, choice, log, time_us, basis, kernel))
    return tuple(sorted(autotuned, key=lambda entry: -_best_time(entry)))


def _best_time(entry: Autotuned) -> float:
    return (entry.generators[0].best_us or 0.0) if entry.generators else 0.0


def _around(module: DumpedModule) -> tuple[Stage, Stage | None]:
    """Return the stages before and after the autotuner, or the final one if that pass left none."""
    for before, after in zip(module.stages, module.stages[1:], strict=False):
        if after.name.after in _PASSES:
            return before, after
    return module.last, None


def _instructions(module: DumpedModule, stage: Stage) -> Iterator[Instruction]:
    for computation in module.read(stage).computations:
        yield from computation.instructions


def _choices(module: DumpedModule, before: Stage, after: Stage) -> dict[str, _Choice]:
    """Return what the pass chose for each instruction that it configured or replaced."""
    configured = {instruction.name: instruction for instruction in _instructions(module, after)}
    old_names = {instruction.name for instruction in _instructions(module, before)}
    by_op_name = {
        instruction.op_name: instruction
        for instruction in configured.values()
        if instruction.name not in old_names and instruction.opcode == "custom-call"
    }
    choices = {}
    for instruction in _instructions(module, before):
        if instruction.opcode not in ("custom-call", "fusion"):
            continue
        successor = configured.get(instruction.name) or by_op_name.get(instruction.op_name)
        if successor is None:
            continue
        old = _settings(instruction)
        new = {path: value for path, value in _settings(successor).items() if path not in old}
        if new:
            choices[instruction.name] = _choice(successor, new)
    return choices


def _settings(instruction: Instruction) -> dict[tuple[str, ...], object]:
    """Return the leaves of the configuration by the names of the fields around them."""
    root: _Field = ((), instruction.attribute("backend_config") or {})
    nodes = unfold([root], _fields)
    return {path: value for path, value in nodes if not isinstance(value, Mapping)}


def _fields(node: _Field) -> Iterator[_Field]:
    path, value = node
    if isinstance(value, Mapping):
        yield from (((*path, name), inner) for name, inner in value.items())


def _choice(successor: Instruction, new: Mapping[tuple[str, ...], object]) -> _Choice:
    """Return who computes ``successor``, and the ``new`` settings that are not zero."""
    target = successor.attributes.get("custom_call_target", "").strip('"')
    generators = [_GENERATORS[name] for path in new for name in path if name in _GENERATORS]
    generators += [words for start, words in _TARGETS.items() if target.startswith(start)]
    settings = (
        f"{'.'.join(path[-2:]) if path[-1].isdigit() else path[-1]}={value}"
        for path, value in new.items()
        if value not in _UNSET and not _GENERATORS.keys().isdisjoint(path)
    )
    return _Choice(successor.name, next(iter(generators), ""), " ".join(settings))


def _text(instruction: Instruction) -> str:
    """Return the text of an instruction without names: of a fusion, that of what it computes."""
    inside = (
        instruction.called[0].instructions if instruction.opcode == "fusion" else (instruction,)
    )
    return "\n".join(
        f"= {i.shape} {i.opcode}({', '.join(str(operand.shape) for operand in i.operands)})"
        for i in inside
    )


def _signature(hlo: str) -> tuple[tuple[str, ...], ...]:
    """Return the shapes and the operation of an instruction, or of those in a fusion, in any order,
    without names. Source: xla/service/gpu/autotuning/autotune_cache_key.cc.
    """
    parts = (line.partition("), ")[0] for line in hlo.splitlines())
    return tuple(
        sorted(
            (match[1], *_SHAPE.findall(part)) for part in parts if (match := _OPCODE.search(part))
        )
    )


def _basis(module: DumpedModule) -> Basis:
    flags = module.flags.values if module.flags is not None else {}
    if any(flags.get(name) for name in _LOADED):
        return Basis.LOADED
    return Basis.FIRST if flags.get(_LEVEL) == ("0",) else Basis.UNKNOWN


def _autotuned(
    instruction: Instruction,
    choice: _Choice,
    log: TunedInstruction | None,
    time_us: float | None,
    basis: Basis,
    kernel: KernelFacts | None,
) -> Autotuned:
    candidates = log.candidates if log is not None else ()
    by_generator: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        by_generator.setdefault(candidate.generator, []).append(candidate)
    generators = [_best(name, tried) for name, tried in by_generator.items()]
    generators.sort(
        key=lambda generator: float("inf") if generator.best_us is None else generator.best_us
    )
    times = [generator.best_us for generator in generators if generator.best_us]
    margin = times[1] / times[0] if len(times) > 1 else None
    return Autotuned(
        instruction=instruction.name,
        shape=str(instruction.shape),
        choice=choice.generator,
        configuration=choice.configuration,
        choice_us=time_us or None,
        basis=Basis.MEASURED if log is not None or time_us else basis,
        kernel=kernel.name if kernel is not None else None,
        emitter=kernel.emitter if kernel is not None else "",
        source=kernel.source if kernel is not None else None,
        generators=tuple(generators),
        margin=margin,
        near_tie=margin is not None and is_near_tie(times[1] - times[0], times[0]),
        candidates=candidates,
    )


def _best(name: str, candidates: Sequence[Candidate]) -> GeneratorTime:
    times = [candidate.time_us for candidate in candidates if candidate.time_us is not None]
    return GeneratorTime(
        generator=name,
        best_us=min(times, default=None),
        candidates=len(candidates),
        failed=len(candidates) - len(times),
    )
