"""Lets the real compiler take a plan, and looks what it made of it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from fusionscope.capture.capture import Captured, capture
from fusionscope.capture.description import describe_target
from fusionscope.capture.targets import Program, ProgramKind, Target
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.dump.device import CudaCapability
from fusionscope.errors import UnusableInput
from fusionscope.history.kernels import Totals, total_kernels
from fusionscope.history.outcomes import TOGETHER, Outcome, pairs_after
from fusionscope.hlo import Module, to_text
from fusionscope.replay.comparison import Divergence, find_divergence, has_same_kernels
from fusionscope.rerun.plans import FUSING, Plan

# What would change the module between the place of the hook and fusion, by the names of pipelines.
_PIPELINES_BEFORE = (
    "collective-optimizations",
    "conv_canonicalization",
    "reshape_mover_after_conv_canonicalization",
    "simplify_after_conv_canonicalization",
    "layout assignment",
    "layout normalization",
    "nvptx post-layout_assignment part 1",
    "hlo normalization",
    "post-layout_assignment",
    "nvptx post-layout_assignment part 2",
    "dynamic-slice",
    "pre-fusion",
)
_DISABLING = "xla_disable_hlo_passes"
_OWN_FLAG = re.compile(r"xla_gpu_(?!cuda_data_dir).*|xla_allow_excess_precision")
_PLAIN = re.compile(r"[\w.+-]*")


@dataclass(frozen=True, slots=True)
class RerunPair:
    """A pair of which something else became than in the plan, or than in the dump."""

    producer: str
    consumer: str
    before: Outcome
    after: Outcome


@dataclass(frozen=True, slots=True)
class Rerun:
    """What came of ``plan``.

    ``baseline`` is the final module of the dump, ``variant`` that of the new one, None where the
    compiler did not get there. ``changed`` are pairs that are together in one of the two alone;
    ``unplanned`` those of which something else became than was planned. ``divergence`` is where the
    compiler took another module than the plan. ``is_same`` is whether both final modules have the
    same kernels.
    """

    module: str
    plan: str
    captured: Captured
    baseline: Totals
    variant: Totals | None
    changed: tuple[RerunPair, ...]
    unplanned: tuple[RerunPair, ...]
    divergence: Divergence | None
    is_same: bool

    @property
    def holds(self) -> bool:
        """Whether the final module is what was planned."""
        return self.variant is not None and not self.unplanned and self.divergence is None


def rerun(
    module: DumpedModule,
    plan: Plan,
    directory: Path,
    *,
    flags: Sequence[str] = (),
    python: str = sys.executable,
    limit_s: float = 600.0,
) -> Rerun:
    """Compiles the program of ``module`` again, with ``plan`` in the place of the compiler's own
    fusions, and dumps that into ``directory``, which has to be empty or new.

    A compiler that dies of the plan is told in the result. Raises ``UnusableInput`` where the dump
    lacks the program or its device, or there is nothing to compile it with.
    """
    if module.final is None:
        raise UnusableInput(f"{module.name}: the dump has no final stage to compare with")
    final = module.read(module.final)
    with TemporaryDirectory() as scratch:
        file = Path(scratch) / "program.hlo"
        file.write_text(to_text(_program(module)), encoding="utf-8")
        captured = capture(
            Program(ProgramKind.HLO, file),
            _target(module),
            directory,
            flags=[*_own_flags(module), *_disabled(module), *flags],
            python=python,
            limit_s=limit_s,
            put=to_text(plan.after),
        )
    made = _made(captured)
    divergence = None
    if made is not None:
        taken = next((s for s in made.stages if s.name.after.startswith("apply-xla-")), None)
        if taken is not None:
            divergence = find_divergence(plan.after, made.read(taken))
    ends = made.read(made.final) if made is not None and made.final is not None else None
    return Rerun(
        module.name,
        plan.words,
        captured,
        total_kernels(final, "gpu"),
        None if ends is None else total_kernels(ends, "gpu"),
        () if ends is None else tuple(_differing(plan.before, final, ends)),
        () if ends is None else tuple(_differing(plan.before, plan.after, ends)),
        divergence,
        ends is not None and has_same_kernels(final, ends),
    )


def _program(module: DumpedModule) -> Module:
    for stage in module.stages:
        if stage.label == "before_optimizations":
            return module.read(stage)
    raise UnusableInput(f"{module.name}: the dump lacks the program, before_optimizations.txt")


def _target(module: DumpedModule) -> Target:
    device = module.device
    if device is None or not isinstance(device.capability, CudaCapability):
        raise UnusableInput(
            f"{module.name}: the dump does not describe an NVIDIA GPU to compile for again",
            hint="it lacks its *.gpu_target_config.pbtxt",
        )
    return Target(str(device.capability), "cuda", description=describe_target(device))


def _own_flags(module: DumpedModule) -> Iterator[str]:
    """Those of the dump that change what is compiled."""
    flags = module.flags
    if flags is not None and not flags.complete:
        for name, values in flags.values.items():
            if _OWN_FLAG.fullmatch(name) and all(map(_PLAIN.fullmatch, values)):
                yield f"--{name}={','.join(values)}"


def _disabled(module: DumpedModule) -> Iterator[str]:
    already = module.flags.values.get(_DISABLING, ()) if module.flags is not None else ()
    yield f"--{_DISABLING}={','.join([*already, *_PIPELINES_BEFORE, *FUSING])}"


def _made(captured: Captured) -> DumpedModule | None:
    if not captured.has_stages:
        return None
    (module,) = open_dump(captured.directory).modules
    return module


def _differing(before: Module, one: Module, other: Module) -> Iterator[RerunPair]:
    """Pairs of ``before`` that are together in one of two modules alone."""
    for first, second in zip(pairs_after(before, one), pairs_after(before, other), strict=True):
        outcomes = first.outcome, second.outcome
        if Outcome.GONE not in outcomes and len({each in TOGETHER for each in outcomes}) > 1:
            yield RerunPair(first.producer.name, first.consumer.name, first.outcome, second.outcome)
