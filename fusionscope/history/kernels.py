"""The launches of the final module."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeVar

from fusionscope.history.operations import flatten
from fusionscope.history.traffic import traffic
from fusionscope.history.values import NumberedModule, Numbering, control_of
from fusionscope.history.workspaces import workspace_bytes
from fusionscope.hlo import Computation, Instruction, Module
from fusionscope.hlo.attributes import split_attributes

T = TypeVar("T")


class KernelKind(StrEnum):
    FUSION = "fusion"  # at least two operations
    WRAPPED = "wrapped"  # one operation, put into a fusion to be emitted
    LIBRARY = "library"
    CUSTOM_CALL = "custom-call"
    OPERATION = "operation"  # unfused


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Kernel:
    """One launch. Bytes are those of one launch; ``runs`` is how often the program launches it.

    ``runs`` multiplies the trip counts of the surrounding loops. A loop with an unknown trip count
    and a branch of a conditional count once; ``runs_known`` is false then. ``emitter`` names the
    source of the code: a fusion kind, a backend's own kind of fusion, or a library function.
    ``operations`` counts the user's operations: no parameters, constants, tuples or bitcasts.
    """

    instruction: Instruction
    kind: KernelKind
    emitter: str
    operations: tuple[str, ...]
    bytes_read: int
    bytes_written: int
    runs: int
    runs_known: bool
    path: Hashable
    values: frozenset[int]

    @property
    def name(self) -> str:
        return self.instruction.name

    @property
    def computation(self) -> str:
        return self.instruction.computation.name

    @property
    def bytes_moved(self) -> int:
        """The bytes read and written over all runs."""
        return (self.bytes_read + self.bytes_written) * self.runs


# Instructions that need no launch: they name, order or wait for values.
NOT_LAUNCHED = frozenset(
    """add-dependency after-all all-gather-done all-reduce-done async-done async-update bitcast call
    collective-permute-done conditional constant copy-done domain get-dimension-size
    get-tuple-element opt-barrier parameter partition-id recv-done replica-id send-done tuple
    while""".split()
)
# A custom call that reserves memory whose content does not matter.
# Source: IrEmitterUnnested, xla/service/gpu/thunk_emitter.cc: it has no thunk.
_ALLOCATION = "AllocateBuffer"
_LAUNCHES_OF_OTHERS = ("async-start", "fusion")  # a launch executes what they call

_BACKEND_KIND = re.compile(r'"kind":\s*"(__[^"]+)"')
_TARGET = re.compile(r'custom_call_target="([^"]*)"')
# Older texts quote it.
_TRIP_COUNT = re.compile(r'\\?"known_trip_count\\?":\s*\{\s*\\?"n\\?":\s*\\?"(\d+)\\?"')

# Custom fusions that a library implements.
_LIBRARY_FUSIONS = ("__ynn", "__onednn", "__cudnn", "__cublas")
_LIBRARY_TARGETS = re.compile(
    r"__cublas|__cudnn|__onednn|__cusolver|__hipblas|cublas|cudnn|cusolver|cufft|hipsolver|miopen|"
    r"rocsolver|lapack_|blas_|cu_|mhlo_cu|__\$?ynn|EigenMatMul|__cub\$|cub|xla\.gpu\.ext\.cub_"
)
# Operations that CPUs and GPUs leave to a library if they are unfused.
_LIBRARY_OPERATIONS = frozenset({"cholesky", "convolution", "dot", "fft", "triangular-solve"})


class Totals(NamedTuple):
    """The totals of one run: ``launches``, and ``bytes_moved`` as counted from shapes."""

    launches: int
    bytes_moved: int


def is_launched(instruction: Instruction) -> bool:
    """Return whether the program launches something for an instruction outside of fusions."""
    if instruction.opcode == "custom-call":
        return call_target(instruction.statement.attributes) != _ALLOCATION
    return instruction.opcode not in NOT_LAUNCHED


def is_library(target: str) -> bool:
    """Return whether a custom call of ``target`` calls a library."""
    return _LIBRARY_TARGETS.match(target) is not None


def call_target(attributes: str) -> str:
    """Return what a custom call with these attributes calls."""
    found = _TARGET.search(attributes)
    return found[1] if found else ""


def total_kernels(module: Module, backend: str | None) -> Totals:
    kernels = launches_of(module, backend)
    return Totals(
        sum(kernel.runs for kernel in kernels), sum(kernel.bytes_moved for kernel in kernels)
    )


def launches_of(module: Module, backend: str | None) -> tuple[Kernel, ...]:
    """Return the launches of ``module`` like ``find_kernels``, but without the values that they
    compute inside, which take as long as all else. Raises ``UnusableInput`` like ``Module.check``.
    """
    module.check()
    return find_kernels(Numbering().number(module, contents=False), backend)


def find_kernels(numbered: NumberedModule, backend: str | None) -> tuple[Kernel, ...]:
    """Return the launches of a module, in the order of its text. ``numbered`` must include
    contents.
    """
    runs = count_runs(numbered)
    return tuple(
        kernel_of(
            instruction,
            backend,
            runs=runs[execution.path],
            path=execution.path,
            values=frozenset(execution.computed.get(instruction, ()))
            | frozenset(flatten(execution.values.get(instruction, ()))),
        )
        for execution in numbered.executions
        for block in execution.blocks
        if block.inside is None
        for instruction in block.computation.instructions
        if is_launched(instruction)
    )


def without_equals(
    ours: Iterable[T], theirs: Iterable[T], form: Callable[[T], Hashable]
) -> list[T]:
    """Return those of ``ours`` that have no equal among ``theirs``, one for one."""
    left = Counter(map(form, theirs))
    found = []
    for each in ours:
        own = form(each)
        if left[own]:
            left[own] -= 1
        else:
            found.append(each)
    return found


def form_of(kernel: Kernel) -> Hashable:
    """Return what kernels of two modules have in common if they do the same, whatever their
    names.
    """
    operations = tuple(sorted(kernel.operations))
    return kernel.kind, operations, kernel.bytes_read, kernel.bytes_written, kernel.runs


def count_runs(numbered: NumberedModule) -> dict[Hashable, tuple[int, bool]]:
    """Return how often each execution runs, by its path, and whether that is known."""
    runs: dict[Hashable, tuple[int, bool]] = {"entry": (1, True)}
    for execution in numbered.executions:
        count, known = runs.setdefault(execution.path, (1, False))
        for block in execution.blocks:
            if block.inside is not None:
                continue
            for index, statement in enumerate(block.computation.graph.statements):
                if statement.opcode not in ("while", "conditional"):
                    continue
                instruction = block.computation.instructions[index]
                control = control_of(block.values[index], numbered.controls)
                trips = _TRIP_COUNT.search(statement.attributes)
                condition = instruction.attributes.get("condition", "").lstrip("%")
                for number, inner in enumerate(instruction.called):
                    if trips:  # the condition runs once more, when it ends the loop
                        times = int(trips[1]) + (inner.name == condition)
                        runs[execution.path, control, number] = count * times, known
                    else:  # the trip count or the branch is unknown
                        runs[execution.path, control, number] = count, False
    return runs


def kernel_of(
    instruction: Instruction,
    backend: str | None,
    *,
    runs: tuple[int, bool] = (1, True),
    path: Hashable = "entry",
    values: frozenset[int] = frozenset(),
) -> Kernel:
    """Return the launch of an instruction outside of fusions. ``runs`` is as in ``count_runs``."""
    operations = operations_in(instruction)
    kind, emitter = kind_and_emitter(instruction, backend)
    moved = traffic(instruction)
    workspace = workspace_bytes(instruction) if kind is KernelKind.LIBRARY else 0
    return Kernel(
        instruction=instruction,
        kind=kind,
        emitter=emitter,
        operations=operations,
        bytes_read=moved.read,
        bytes_written=moved.written - workspace,
        runs=runs[0],
        runs_known=runs[1],
        path=path,
        values=values,
    )


def operations_in(instruction: Instruction) -> tuple[str, ...]:
    """Return the opcodes of the operations that one launch computes."""
    if instruction.opcode not in _LAUNCHES_OF_OTHERS:
        return (instruction.opcode,)
    called = instruction.called
    known: dict[tuple[Computation, ...], tuple[str, ...]]
    known = called[0].found_alike("operations") if called else {}
    if called[1:] not in known:
        opcodes = [inner.statement.opcode for inner in instructions_in(instruction)]
        known[called[1:]] = tuple([each for each in opcodes if each not in NOT_LAUNCHED])
    return known[called[1:]]


def instructions_in(launch: Instruction) -> Iterator[Instruction]:
    """Yield the instructions that one launch executes. Fusions inside it are transparent."""
    if launch.opcode not in _LAUNCHES_OF_OTHERS:
        yield launch
        return
    pending = list(launch.called)
    while pending:
        for inner in pending.pop().instructions:
            if inner.opcode == "fusion":
                pending.extend(inner.called)
            else:
                yield inner


def fusion_emitter(attributes: str) -> str:
    """Return the emitter of a fusion: the backend's own kind of fusion, or else the plain kind."""
    own = _BACKEND_KIND.search(attributes)
    return own[1] if own else split_attributes(attributes).get("kind", "")


def kind_and_emitter(instruction: Instruction, backend: str | None) -> tuple[KernelKind, str]:
    """Return the kind of a launch and its emitter."""
    attributes = instruction.statement.attributes
    if instruction.opcode == "fusion":
        emitter = fusion_emitter(attributes)
        if emitter.startswith(_LIBRARY_FUSIONS):
            return KernelKind.LIBRARY, emitter
        wrapped = len(operations_in(instruction)) < 2
        return KernelKind.WRAPPED if wrapped else KernelKind.FUSION, emitter
    if instruction.opcode == "custom-call":
        name = call_target(attributes)
        if is_library(name):
            return KernelKind.LIBRARY, name
        return KernelKind.CUSTOM_CALL, name
    if instruction.opcode in _LIBRARY_OPERATIONS and backend in ("cpu", "gpu"):
        return KernelKind.LIBRARY, instruction.opcode
    return KernelKind.OPERATION, instruction.opcode
