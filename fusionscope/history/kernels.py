"""The launches of the final module."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple, TypeVar

from fusionscope.history.loops import NOTHING_MORE, LoopFacts, describe_loop, functions_of
from fusionscope.history.operations import flatten
from fusionscope.history.thunks import NOT_LAUNCHED, TARGETS_NOT_LAUNCHED
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
    FUNCTION = "function"  # a loop that a CPU runs as one function, with the kernels in it


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Kernel:
    """One kernel. Bytes are those of one run; ``runs`` is how often the program runs it.

    ``runs`` multiplies the trip counts of the surrounding loops. A loop whose steps are not known
    counts the most that its condition allows, or once; a branch of a conditional counts once;
    ``runs_known`` is false then. What ``is_inside`` a function is launched with it. ``emitter``
    names the source of the code: a fusion kind, a backend's own kind of fusion, or a library
    function. ``operations`` counts the user's operations: no parameters, constants, tuples or
    bitcasts. Bytes of a function are those of the kernels in it, and it has none itself.
    """

    instruction: Instruction
    kind: KernelKind
    emitter: str
    operations: tuple[str, ...]
    bytes_read: int
    bytes_written: int
    runs: int
    runs_known: bool
    is_inside: bool = False
    path: Hashable
    values: frozenset[int]

    @property
    def launches(self) -> int:
        return 0 if self.is_inside else self.runs

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


_LAUNCHES_OF_OTHERS = ("async-start", "fusion")  # a launch executes what they call

_BACKEND_KIND = re.compile(r'"kind":\s*"(__[^"]+)"')
_TARGET = re.compile(r'custom_call_target="([^"]*)"')
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
        return call_target(instruction.statement.attributes) not in TARGETS_NOT_LAUNCHED
    return instruction.opcode not in NOT_LAUNCHED


def is_library(target: str) -> bool:
    """Return whether a custom call of ``target`` calls a library."""
    return _LIBRARY_TARGETS.match(target) is not None


def call_target(attributes: str) -> str:
    """Return what a custom call with these attributes calls."""
    match = _TARGET.search(attributes)
    return match[1] if match else ""


def total_kernels(module: Module, backend: str | None, loops: LoopFacts = NOTHING_MORE) -> Totals:
    kernels = launches_of(module, backend, loops)
    return Totals(
        sum(kernel.launches for kernel in kernels), sum(kernel.bytes_moved for kernel in kernels)
    )


def launches_of(
    module: Module, backend: str | None, loops: LoopFacts = NOTHING_MORE
) -> tuple[Kernel, ...]:
    """Return the launches of ``module`` like ``find_kernels``, but without the values that they
    compute inside, which take as long as all else. Raises ``UnusableInput`` like ``Module.check``.
    """
    module.check()
    return find_kernels(Numbering().number(module, contents=False), backend, loops)


def find_kernels(
    numbered: NumberedModule, backend: str | None, loops: LoopFacts = NOTHING_MORE
) -> tuple[Kernel, ...]:
    """Return the kernels of a module in its order. ``numbered`` must include contents."""
    runs = count_runs(numbered, loops)
    functions = functions_of(numbered.module, loops)
    kernels = []
    for execution in numbered.executions:
        counts, are_exact, is_inside = runs[execution.path]
        for block in execution.blocks:
            if block.inside is not None:
                continue
            for instruction in block.computation.instructions:
                if not is_inside and instruction in functions:
                    kernels.append(_function(instruction, (counts, are_exact), execution.path))
                elif is_launched(instruction):
                    computed = execution.computed.get(instruction, ())
                    results = flatten(execution.values.get(instruction, ()))
                    kernel = kernel_of(
                        instruction,
                        backend,
                        runs=(counts, are_exact),
                        path=execution.path,
                        values=frozenset(computed) | frozenset(results),
                    )
                    kernels.append(replace(kernel, is_inside=True) if is_inside else kernel)
    return tuple(kernels)


def _function(loop: Instruction, runs: tuple[int, bool], path: Hashable) -> Kernel:
    """Return the launch of a loop that is one function."""
    return Kernel(
        instruction=loop,
        kind=KernelKind.FUNCTION,
        emitter="",
        operations=(),
        bytes_read=0,
        bytes_written=0,
        runs=runs[0],
        runs_known=runs[1],
        path=path,
        values=frozenset(),
    )


def without_equals(
    ours: Iterable[T], theirs: Iterable[T], form: Callable[[T], Hashable]
) -> list[T]:
    """Return those of ``ours`` that have no equal among ``theirs``, one for one."""
    left = Counter(map(form, theirs))
    remaining = []
    for item in ours:
        item_form = form(item)
        if left[item_form]:
            left[item_form] -= 1
        else:
            remaining.append(item)
    return remaining


def form_of(kernel: Kernel) -> Hashable:
    """Return what kernels that do the same have in common, whatever their names."""
    operations = tuple(sorted(kernel.operations))
    return kernel.kind, operations, kernel.bytes_read, kernel.bytes_written, kernel.runs


class Runs(NamedTuple):
    """How often a computation runs, whether that is known, and whether that is in a function."""

    times: int
    is_known: bool
    is_inside: bool


def count_runs(numbered: NumberedModule, loops: LoopFacts = NOTHING_MORE) -> dict[Hashable, Runs]:
    """Return how often each execution runs, by its path."""
    runs: dict[Hashable, Runs] = {"entry": Runs(1, True, False)}
    functions = functions_of(numbered.module, loops)
    for execution in numbered.executions:
        around = runs.setdefault(execution.path, Runs(1, False, False))
        for block in execution.blocks:
            if block.inside is not None:
                continue
            callers = numbered.module.callers.get(block.computation, ())
            is_inside = around.is_inside or not functions.isdisjoint(callers)
            for index, statement in enumerate(block.computation.graph.statements):
                if statement.opcode not in ("while", "conditional"):
                    continue
                instruction = block.computation.instructions[index]
                control = control_of(block.values[index], numbered.controls)
                for number, (inner, is_exact) in enumerate(_inner_runs(instruction, loops)):
                    runs[execution.path, control, number] = Runs(
                        around.times * inner,
                        around.is_known and is_exact,
                        is_inside or instruction in functions,
                    )
    return runs


def _inner_runs(instruction: Instruction, loops: LoopFacts) -> Iterator[tuple[int, bool]]:
    """Yield how often each computation of a loop or conditional runs, and whether that is known."""
    if instruction.opcode == "conditional":
        for _ in instruction.called:
            yield 1, False
        return
    loop = describe_loop(instruction, loops)
    condition = instruction.attributes.get("condition", "").lstrip("%")
    for callee in instruction.called:
        yield loop.tests if callee.name == condition else loop.steps, loop.is_exact


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
    callees = instruction.called
    cache: dict[tuple[Computation, ...], tuple[str, ...]]
    cache = callees[0].shared_cache("operations") if callees else {}
    if callees[1:] not in cache:
        opcodes = [inner.statement.opcode for inner in instructions_in(instruction)]
        cache[callees[1:]] = tuple([opcode for opcode in opcodes if opcode not in NOT_LAUNCHED])
    return cache[callees[1:]]


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
    match = _BACKEND_KIND.search(attributes)
    return match[1] if match else split_attributes(attributes).get("kind", "")


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
