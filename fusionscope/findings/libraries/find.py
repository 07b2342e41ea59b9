"""Library boundaries: nothing is fused into or out of the kernel of a library call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from msgspec import structs

from fusionscope.dump import DumpedModule, Stage
from fusionscope.errors import UnusableInput
from fusionscope.facts.kernel_values import (
    Value,
    ValueUse,
    operands_of,
    origin,
    results_of,
    users_of,
)
from fusionscope.facts.result import KernelFacts
from fusionscope.findings.libraries.facts import Boundary, Neighbour
from fusionscope.history.kernels import Kernel, KernelKind, kind_and_emitter, operations_in
from fusionscope.history.library_calls import (
    ACTIVATIONS,
    HEROES,
    EpilogueStep,
    Library,
    Taken,
    comes_too_late,
    library_of,
    step_of,
    taken_by,
    window_of,
)
from fusionscope.history.workspaces import workspace_bytes
from fusionscope.hlo import Instruction
from fusionscope.hlo.model import Body

if TYPE_CHECKING:
    from fusionscope.findings.epilogues.facts import Epilogue

# A kernel of only these opcodes computes nothing: it rearranges data.
_MOVES = frozenset("broadcast concatenate copy pad reshape reverse slice transpose".split())
_SILENT = frozenset("bitcast broadcast constant get-tuple-element parameter tuple".split())

_CUBLASLT = "cuBLASLt"
_LIBRARY_PASS = "dot-library-rewriter"
_THREADED = "xla_cpu_multi_thread_eigen"
_LT_TARGETS = "__cublas$lt$matmul"
_MANY = "more than one operation reads the result"
_TOO_LATE = "a call applies it before the {}, but here it comes after"
_ACTIVATED = "a call supports one activation"


def find_boundaries(
    module: DumpedModule,
    kernels: Sequence[tuple[Kernel, KernelFacts]],
    stages: Sequence[Stage],
) -> tuple[Boundary, ...]:
    """Return the library calls among the ``kernels`` of the final stage, sorted by the bytes that
    fusion across them could save, the most first. Calls that look alike are listed once.

    ``stages`` are those from the one before fusion to the final one.
    """
    if module.backend not in ("cpu", "gpu"):
        return ()
    calls = [(kernel, facts) for kernel, facts in kernels if _is_call(kernel)]
    if not calls:
        return ()
    library_calls = _Calls(frozenset(kernel.instruction for kernel, _ in calls))
    epilogues = _epilogues(module, calls)
    since = _first_seen(module, stages, {kernel.name for kernel, _ in calls})
    alike: dict[tuple[Boundary, KernelFacts], list[Boundary]] = defaultdict(list)
    for kernel, facts in calls:
        boundary_found = _boundary(kernel, facts, module.backend, library_calls)
        stage = since.get(kernel.name)
        if stage is not None:
            made_by = stage.pass_name if stage is not stages[0] else None
            boundary_found = structs.replace(boundary_found, since=stage.label, made_by=made_by)
        if boundary_found.library == _CUBLASLT:
            epilogue = epilogues.get(kernel.name) or epilogues.get(kernel.name.removesuffix(".0"))
            boundary_found = _with_epilogue(boundary_found, epilogue)
        if module.backend == "cpu" and kernel.instruction.opcode == "dot":
            boundary_found = _with_emitter(boundary_found, kernel.instruction, module)
        alike[_likeness(boundary_found), replace(facts, name="")].append(boundary_found)
    merged = [
        (
            structs.replace(
                boundaries[0],
                names=tuple(name for boundary in boundaries for name in boundary.names),
                saved_at_most=sum(boundary.saved_at_most for boundary in boundaries),
            ),
            kernel.bytes_moved,
        )
        for (_, kernel), boundaries in alike.items()
    ]
    merged.sort(key=lambda row: (-row[0].saved_at_most, -row[1]))
    return tuple(boundary for boundary, _ in merged)


def _epilogues(
    module: DumpedModule, calls: Sequence[tuple[Kernel, KernelFacts]]
) -> dict[str, Epilogue]:
    """Return what calls of cuBLASLt leave out, by their names."""
    if not any(kernel.emitter.startswith(_LT_TARGETS) for kernel, _ in calls):
        return {}
    from fusionscope.findings.epilogues.find import find_epilogues

    with suppress(UnusableInput):  # the dump itself reports a damaged stage
        return {epilogue.name: epilogue for epilogue in find_epilogues(module)}
    return {}


def _with_epilogue(boundary: Boundary, epilogue: Epilogue | None) -> Boundary:
    """Return it with what the call leaves out, as the stage right after it was made shows; what the
    final module shows does not tell why.
    """
    if epilogue is None:
        return structs.replace(boundary, why=None)
    left_out = (epilogue.step,) if epilogue.step is not None else ()
    return structs.replace(
        boundary, left_out=left_out, rule=epilogue.rule, why=epilogue.why or None
    )


def _with_emitter(boundary: Boundary, dot: Instruction, module: DumpedModule) -> Boundary:
    """Return it with who computes a product on a CPU, and why YNN does not."""
    from fusionscope.passes.cpu.products import emitter_of, find_refusal
    from fusionscope.versions.choice import choose_compiler
    from fusionscope.versions.flags import read_flags

    try:
        passes = choose_compiler(module).compiler.passes
        types = read_flags(module).ynn_types
        flags = module.flags.values if module.flags is not None else {}
    except UnusableInput as problem:
        module.note(problem)
        return boundary
    emitter = emitter_of(dot, is_threaded=flags.get(_THREADED) != ("false",))
    books = (fusion_pass.book for fusion_pass in passes if fusion_pass.name == _LIBRARY_PASS)
    refusal = find_refusal(dot, book, types) if (book := next(books, None)) is not None else None
    words = ", ".join(f"{name} {value}" for name, value in refusal.numbers) if refusal else ""
    return structs.replace(
        boundary,
        library=emitter.library,
        computes=" ".join(filter(None, (boundary.computes, emitter.how))),
        rule=refusal.rule if refusal is not None else None,
        why=(refusal.message or words or None) if refusal is not None else None,
    )


def _is_call(kernel: Kernel) -> bool:
    """Return whether a library computes it, or an emitter that accepts no neighbours."""
    if kernel.kind in (KernelKind.LIBRARY, KernelKind.CUSTOM_CALL):
        return True
    if kernel.instruction.opcode == "fusion":
        # A generic Triton fusion is one of the compiler's own
        # (xla/service/gpu/gpu_fusible.cc, IsGenericTritonFusion).
        return kernel.emitter.startswith(("__", "kCustom")) and kernel.emitter != "__triton"
    return kernel.instruction.opcode in HEROES


def _likeness(boundary: Boundary) -> Boundary:
    """Return a key that is the same for calls that differ only in names."""
    return structs.replace(
        boundary,
        names=(),
        why=None,
        before=tuple(structs.replace(side, name="") for side in boundary.before),
        after=tuple(structs.replace(side, name="") for side in boundary.after),
    )


def _first_seen(module: DumpedModule, stages: Sequence[Stage], names: set[str]) -> dict[str, Stage]:
    """The first of ``stages`` that has an instruction of each name.

    Before fusion, many instructions get a name that ends in ``.0``
    (xla/backends/gpu/transforms/add_tracking_suffix_to_instruction_names.cc).
    """
    first_stages: dict[str, Stage] = {}
    earlier = {name.removesuffix(".0"): name for name in names} | {name: name for name in names}
    names_by_body: dict[Body, set[str]] = {}  # stages share what did not change
    for stage in stages:
        try:
            bodies = module.read(stage).bodies
        except UnusableInput as problem:
            module.note(problem)
            continue
        for body in bodies:
            if body not in names_by_body:
                names_by_body[body] = earlier.keys() & {
                    statement.name for statement in body.written
                }
            for name in names_by_body[body]:
                first_stages.setdefault(earlier[name], stage)
    return first_stages


def _boundary(
    kernel: Kernel,
    facts: KernelFacts,
    backend: str,
    calls: _Calls,
) -> Boundary:
    launch = kernel.instruction
    operands, results = operands_of(launch), results_of(launch)
    scratch = workspace_bytes(launch) if kernel.kind is KernelKind.LIBRARY else 0
    if scratch:
        results = results[:-1]
    hero = _hero(launch)
    library = _library(launch, hero, backend)
    taken_by_hero = taken_by(hero) if hero is not None and hero.opcode == "custom-call" else ()
    taken_before, taken_after = _around(launch, hero)
    left_out, why = _left_out(results, library, [*taken_by_hero, *taken_after], calls.launches)
    before, after = _before(operands, calls), _after(results, calls)
    return Boundary(
        names=(kernel.name,),
        computation=facts.computation,
        runs=facts.runs,
        source=facts.source,
        library=library.name,
        computes=library.computes,
        window=window_of(hero) if hero is not None else "",
        operands=tuple(str(operand.shape) for operand in launch.operands),
        results=tuple(str(result.shape) for result in results),
        bytes_read=facts.bytes_read,
        bytes_written=facts.bytes_written,
        scratch=scratch,
        since=None,
        made_by=None,
        taken_before=taken_before,
        taken_after=tuple(step_taken.text for step_taken in (*taken_by_hero, *taken_after)),
        left_out=left_out,
        rule=None,
        why=why,
        before=before,
        after=after,
        saved_at_most=(sum(side.bytes_between for side in before) + _crossing(results))
        * kernel.runs,
    )


def _hero(launch: Instruction) -> Instruction | None:
    """Return the main operation of a call, or None for a fusion without one."""
    if launch.opcode != "fusion":
        return launch
    inside = launch.called[0].instructions if launch.called else ()
    return next((i for i in inside if i.opcode in HEROES or i.opcode == "custom-call"), None)


def _library(launch: Instruction, hero: Instruction | None, backend: str) -> Library:
    if hero is None:
        inside = ", ".join(dict.fromkeys(operations_in(launch)))
        library = library_of(kind_and_emitter(launch, backend)[1], "", backend)
        return library if library.computes else library._replace(computes=inside)
    call = hero if hero.opcode == "custom-call" else launch  # which may be a fusion around it
    return library_of(kind_and_emitter(call, backend)[1], hero.opcode, backend)


def _around(
    launch: Instruction, hero: Instruction | None
) -> tuple[tuple[str, ...], tuple[Taken, ...]]:
    """Return what a fusion computes before its hero, and after it."""
    if launch.opcode != "fusion" or hero is None:
        return (), ()
    upstream: set[Instruction] = set()
    pending = list(hero.operands)
    while pending:
        instruction = pending.pop()
        if instruction not in upstream:
            upstream.add(instruction)
            pending.extend(instruction.operands)
    downstream = {hero}
    is_chain = True  # where it branches, an operation may be part of a larger formula
    before: list[str] = []
    after: list[Taken] = []
    for instruction in hero.computation.instructions:
        if instruction in upstream:
            if instruction.opcode not in _SILENT:
                before.append(instruction.opcode)
            continue
        value = next((o for o in instruction.operands if o in downstream), None)
        if value is not None:
            downstream.add(instruction)
            is_chain = is_chain and len(value.users) == 1
            if instruction.opcode not in _SILENT:
                step = step_of(instruction, value) if is_chain else None
                after.append(Taken(step or instruction.opcode, step))
    return tuple(before), tuple(after)


def _left_out(
    results: Sequence[Value],
    library: Library,
    steps_taken: Sequence[Taken],
    launches: frozenset[Instruction],
) -> tuple[tuple[str, ...], str | None]:
    """Return the steps right after the call that such calls can include, and why this one does not.
    ``_with_epilogue`` replaces both for calls of cuBLASLt.
    """
    readings = [r for result in results for r in result.readings if r.reader not in launches]
    is_shared = not all(result.is_read_once for result in results) or any(
        len({user for user, _ in reading.users}) > 1 for reading in readings
    )
    steps_left: list[EpilogueStep] = []
    for reading in readings:
        steps = _steps(reading)
        if is_shared:  # a step that changes the value for other users too cannot be included
            steps = [
                step for step in steps if step not in (EpilogueStep.SCALING, EpilogueStep.ADDITION)
            ]
        steps_left += [step for step in steps if step in library.takes and step not in steps_left]
    if not steps_left:
        return (), None
    done_steps = [step_taken.step for step_taken in steps_taken if step_taken.step is not None]
    if is_shared:
        return tuple(steps_left), _MANY
    if done_steps and comes_too_late(steps_left[0], done_steps):
        return tuple(steps_left), _ACTIVATED if steps_left[0] in ACTIVATIONS else _TOO_LATE.format(
            done_steps[-1]
        )
    return tuple(steps_left), None


def _steps(reading: ValueUse) -> list[EpilogueStep]:
    """Return the steps with which a user begins."""
    users = list(reading.users)
    if len(users) > 1:
        steps = [step_of(user, value) for user, value in users]
        return [step for step in steps if step is not None]
    steps_found: list[EpilogueStep] = []
    while len(users) == 1:
        user, value = users[0]
        step = step_of(user, value)
        if step is None:
            break
        steps_found.append(step)
        users = list(users_of(user)) if user is not reading.reader else []
    return steps_found


class _Calls:
    """The ``launches`` that are library calls, and what is there only for them."""

    def __init__(self, launches: frozenset[Instruction]) -> None:
        self.launches = launches
        # Very many calls may have one neighbour.
        self.are_all_readers = cache(self._are_all_readers)
        self.are_all_makers = cache(self._are_all_makers)

    def _are_all_readers(self, maker: Instruction) -> bool:
        """Return whether only calls read the results of ``maker``."""
        return all(not r.is_kept and r.readers <= self.launches for r in results_of(maker))

    def _are_all_makers(self, reader: Instruction) -> bool:
        """Return whether ``reader`` reads only results of calls, and constants."""
        makers = {origin(operand)[0] for operand in reader.operands}
        return all(maker in self.launches or maker.opcode == "constant" for maker in makers)


def _before(operands: Sequence[Value], calls: _Calls) -> tuple[Neighbour, ...]:
    by_maker: dict[Instruction, list[Value]] = defaultdict(list)
    for operand in operands:
        by_maker[operand.maker].append(operand)
    boundaries = []
    for maker, values in by_maker.items():
        members = operations_in(maker)
        boundaries.append(
            Neighbour(
                maker.name,
                tuple(dict.fromkeys(value.made_by.opcode for value in values)),
                members,
                sum(v.shape.byte_size * (2 if v.is_read_once else 1) for v in values),
                _only_moves(members) and calls.are_all_readers(maker),
            )
        )
    return tuple(boundaries)


def _after(results: Sequence[Value], calls: _Calls) -> tuple[Neighbour, ...]:
    by_reader: dict[Instruction, list[tuple[ValueUse, int]]] = defaultdict(list)
    for result in results:
        bytes_written = result.shape.byte_size if result.is_read_once else 0
        for reading in result.readings:
            by_reader[reading.reader].append((reading, bytes_written))
    boundaries = []
    for reader, readings in by_reader.items():
        members = operations_in(reader)
        using = dict.fromkeys(user.opcode for r, _ in readings for user, _ in r.users)
        boundaries.append(
            Neighbour(
                reader.name,
                tuple(using) or members,
                members,
                sum(reading.byte_size + bytes_written for reading, bytes_written in readings),
                _only_moves(members) and calls.are_all_makers(reader),
            )
        )
    return tuple(boundaries)


def _only_moves(members: Sequence[str]) -> bool:
    return bool(members) and _MOVES.issuperset(members)


def _crossing(results: Sequence[Value]) -> int:
    """Return the bytes that need not pass through memory if every user were part of the call."""
    crossing = 0
    for result in results:
        crossing += sum(reading.byte_size for reading in result.readings)
        if result.readings and not result.is_kept:
            crossing += result.shape.byte_size
    return crossing
