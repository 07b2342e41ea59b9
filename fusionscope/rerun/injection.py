"""Prepares a plan for the compiler: the module for its hook, and the passes that must not run."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from fusionscope.capture.capture import capture
from fusionscope.capture.targets import Program, ProgramKind
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.errors import UnusableInput
from fusionscope.graph.buffers import walk_control_flow
from fusionscope.graph.mutable import MutableModule, to_module
from fusionscope.hlo import Module, to_text
from fusionscope.rerun.loop_hoisting import hoist_loops
from fusionscope.rerun.placeholders import (
    fill,
    hide,
    put_placeholders,
    remove_barriers,
    replace_placeholders,
)
from fusionscope.rerun.plans import SCHEDULED, Plan, Rest
from fusionscope.rerun.programs import constants_flag, disable_flag, find_target, own_flags
from fusionscope.system.files import write_file
from fusionscope.versions.choice import choose_compiler

# Passes that would change a module for GPUs between the hook and fusion, by pipeline.
_GPU_BEFORE = (
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
# Passes that would change instructions between placeholders.
_CPU_BEFORE = (
    "simplification",
    "post_scatter_expansion_simplification",
    "simplification after layout assignment",
    "cse",
    "call-inliner",
    "conditional-to-select",
)
_REMOVES_BARRIERS = "cse_barrier_expander"
_HOISTING = (0, 12)  # the jaxlib from which on loops of any size become calls
_STACK_FRAME = re.compile(r" ?stack_frame_id=\d+")


@dataclass(frozen=True, slots=True)
class Injection:
    """A prepared plan, or another program. ``module`` is what the compiler receives at its hook. It
    is None if the compiler continues by itself, or did not get there; ``problem`` then says why.
    ``flags`` are needed beside those of the dump. ``program`` is compiled instead of that of the
    dump, None if it is the same; the types of its arguments may differ.
    """

    module: Module | None = None
    flags: tuple[str, ...] = ()
    problem: str = ""
    program: Module | None = None


@dataclass(frozen=True, slots=True)
class Received:
    """``module`` is what the CPU compiler passes to its hook, None if it does not get there;
    ``problem`` then says why. ``jaxlib`` is its version.
    """

    module: Module | None
    jaxlib: str
    problem: str = ""


# Compiles a module with additional flags, up to the hook.
Receiver = Callable[[Module, Sequence[str]], Received]


def inject(
    module: DumpedModule,
    plan: Plan,
    *,
    python: str,
    limit_s: float,
    receive: Receiver | None = None,
) -> Injection:
    """Prepare ``plan``. For CPUs this runs the compiler, which inserts copies of buffers that the
    plan's kernels would overwrite too early: in a process of its own, or with ``receive``. Raises
    ``UnusableInput`` if there is no compiler, or that of a TPU, which takes no plans.
    """
    if module.backend == "tpu":
        raise UnusableInput(f"{module.name}: a program for a TPU cannot be compiled with a plan")
    if module.backend == "cpu":
        return _inject_cpu(module, plan, receive or partial(_receive, module, python, limit_s))
    fusing = choose_compiler(module).compiler.chains[0]
    if plan.rest is Rest.XLA:
        fusing = plan.changes.disabled
    return Injection(plan.after, tuple(disable_flag(module, *_GPU_BEFORE, *fusing)))


def _inject_cpu(module: DumpedModule, plan: Plan, receive: Receiver) -> Injection:
    if plan.rest is Rest.XLA:
        carrier, disabled = _hide_new(plan), plan.changes.disabled
    else:
        carrier, disabled = hide(plan.after), _CPU_BEFORE
    received = receive(carrier, tuple(disable_flag(module, _REMOVES_BARRIERS, *disabled)))
    if received.module is None:
        return Injection(problem=received.problem)
    is_xla = plan.rest is Rest.XLA
    filled = _fill_new(received.module, plan) if is_xla else fill(received.module, plan.after)
    graph = MutableModule(filled)
    if _numbers(received.jaxlib) >= _HOISTING:
        hoist_loops(graph)
    return Injection(to_module(graph))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _receive(
    module: DumpedModule, python: str, limit_s: float, carrier: Module, flags: Sequence[str]
) -> Received:
    with TemporaryDirectory() as scratch:
        file = Path(scratch) / "program.hlo"
        write_file(file, to_text(carrier))
        captured = capture(
            Program(kind=ProgramKind.HLO, file=file),
            find_target(module),
            Path(scratch) / "dump",
            flags=[*own_flags(module), *constants_flag(module), *flags],
            python=python,
            limit_s=limit_s,
            takes_plan=True,
        )
        jaxlib = captured.versions.get("jaxlib", "")
        if not captured.has_stages:
            return Received(None, jaxlib, captured.problem)
        (dump,) = open_dump(captured.directory).modules
        return Received(find_received(dump), jaxlib, captured.problem)


def find_received(dump: DumpedModule) -> Module | None:
    """Return the module at the hook of the CPU compiler, or None if it did not get there."""
    numbered = [stage for stage in dump.stages if stage.name.counter is not None]
    before = [stage for stage in numbered if stage.name.pipeline != SCHEDULED]
    return dump.read(before[-1]) if len(before) < len(numbered) else None


def _hide_new(plan: Plan) -> Module:
    """Return the kernels as placeholders, between operations that the compiler is to fuse."""
    graph = MutableModule(plan.after)
    put_placeholders(graph, lambda instruction: instruction.opcode == "fusion")
    for computation in walk_control_flow(graph):
        for instruction in computation.instructions:
            if (
                instruction.opcode == "bitcast"
            ):  # no program contains one before layouts are assigned
                instruction.opcode = "reshape"
    return to_module(graph)


def _fill_new(received: Module, plan: Plan) -> Module:
    graph, planned = MutableModule(received), MutableModule(plan.after)
    for instruction in planned.walk():  # the stack frames are those of another program
        instruction.attributes_text = _STACK_FRAME.sub("", instruction.attributes_text)
    remove_barriers(graph)
    replace_placeholders(graph, planned)
    return to_module(graph)
