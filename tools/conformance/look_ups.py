"""Replays passes for GPUs with and without look-ups, and compares everything that they decide.

The cost model and the search for tilings look up what they have computed of others that are alike,
in this replay and in those before it. Without, each kernel, pair and tiling is computed for itself:
decisions, figures and modules must be the same. Priority fusion is also replayed with Triton for
all fusions, which asks for most tilings. Exits with 1 if anything differs.
"""

from __future__ import annotations

import itertools
from argparse import ArgumentParser, Namespace
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

from conformance.findings import Finding, add_dumps, counted, problem
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.dump.device import Device
from fusionscope.dump.fusion_passes import PRIORITY_FUSION
from fusionscope.errors import UnusableInput
from fusionscope.gpu.structure import Structures
from fusionscope.gpu.tiling.table import TilingTable, TilingTables
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.passes.context import PassContext
from fusionscope.passes.plan import FusionPlan, PassRun
from fusionscope.versions.choice import choose_compiler
from fusionscope.versions.context import read_context
from fusionscope.versions.runs import find_runs, replay


@contextmanager
def without_look_ups() -> Iterator[None]:
    """Make all instructions different, and each search for a tiling the first one."""
    numbers = itertools.count()
    of = TilingTables.of

    def unique(self: Structures, instruction: MutableInstruction, *details: Hashable) -> int:
        return next(numbers)

    def fresh(
        self: TilingTables,
        device: Device,
        extents: tuple[int, ...],
        tile_sizes: tuple[tuple[int, ...], ...],
    ) -> TilingTable:
        return of(TilingTables(), device, extents, tile_sizes)

    with patch.object(Structures, "of", unique), patch.object(TilingTables, "of", fresh):
        yield


def contexts(context: PassContext, run: PassRun) -> Iterator[PassContext]:
    """Yield the contexts to replay a run in."""
    yield context
    if run.pass_name == PRIORITY_FUSION:
        target = context.target
        changed = not target.gpu_model.has_heroless_triton
        model = replace(target.gpu_model, has_heroless_triton=changed)
        yield replace(context, gpu=replace(target, gpu_model=model, lookups=None))


def decided(plan: FusionPlan) -> tuple[object, ...]:
    """Return everything that a replay decides."""
    return plan.decisions, plan.events, str(plan.module)


def differing_passes(module: DumpedModule) -> Iterator[tuple[str, bool]]:
    """Yield each replayed pass with whether its replay without look-ups differs. Raises
    ``UnusableInput``.
    """
    compiler = choose_compiler(module).compiler
    target = read_context(module)
    for run in find_runs(module):
        before = module.read(run.before)
        for context in contexts(target, run):
            with_look_ups = decided(replay(run.pass_name, before, context, compiler))
            with without_look_ups():
                alone = replace(context, gpu=replace(context.target, lookups=None))
                expected = decided(replay(run.pass_name, before, alone, compiler))
            yield run.pass_name, with_look_ups != expected


def add_options(parser: ArgumentParser) -> None:
    add_dumps(parser)


def findings(options: Namespace) -> Iterator[Finding]:
    for path in options.dumps:
        for module in open_dump(path).modules:
            if module.backend != "gpu":
                continue
            try:
                for name, differs in differing_passes(module):
                    if differs:
                        yield problem("replays that differ", f"{path}: {name} differs")
                    else:
                        yield counted("replays alike")
            except UnusableInput as error:
                yield counted("unusable", f"{path}: {error}")
