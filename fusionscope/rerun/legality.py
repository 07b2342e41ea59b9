"""Finds plans that would crash the compiler or give a wrong program, before it sees them."""

from __future__ import annotations

from collections.abc import Iterator

from fusionscope.errors import UnusableInput
from fusionscope.gpu.emitters import is_intermediate
from fusionscope.graph.aliasing import in_place_operands
from fusionscope.graph.buffers import walk_control_flow
from fusionscope.graph.layouts import same_elements_in_memory
from fusionscope.graph.mutable import MutableInstruction, MutableModule
from fusionscope.graph.properties import is_elementwise
from fusionscope.hlo import Module
from fusionscope.hlo.shape import Shape

_FUSIBLE = frozenset(
    """bitcast broadcast concatenate constant dot dynamic-slice dynamic-update-slice gather
    get-tuple-element iota map pad parameter reduce reduce-window reshape reverse slice
    transpose""".split()
)
_UPDATES = frozenset({"dynamic-update-slice", "scatter"})
_ONLY_LAST = frozenset({"scatter", "tuple"})


def require_legal(
    after: Module,
    original: Module,
    program: Module,
    backend: str | None,
    kernels: frozenset[str] | None = None,
) -> None:
    """Raises ``UnusableInput`` if ``after`` has a kernel that no compiler accepts, or is not the
    module of ``program``. Of the kernels that ``original``, which the compiler made, does not have,
    those named ``kernels`` are checked; all if that is None.
    """
    _require_signature(after, program)
    original_contents = {_contents(fusion) for fusion in _fusions(MutableModule(original))}
    for fusion in _fusions(MutableModule(after)):
        if kernels is not None and fusion.name not in kernels:
            continue
        if fusion.fusion_kind != "kCustom" and _contents(fusion) not in original_contents:
            for problem in find_problems(fusion, backend):
                raise UnusableInput(f"{fusion.name} cannot be a kernel: {problem}")


def _require_signature(after: Module, program: Module) -> None:
    for what, ours, theirs in (
        ("parameters", _parameters(after), _parameters(program)),
        ("result", [str(after.entry.root.shape)], [str(program.entry.root.shape)]),
    ):
        if [_bare(shape) for shape in ours] != [_bare(shape) for shape in theirs]:
            raise UnusableInput(
                f"the plan is for another module: its {what} {', '.join(ours)[:80]}, expected "
                f"{', '.join(theirs)[:80]}"
            )


def _parameters(module: Module) -> list[str]:
    return [str(parameter.shape) for parameter in module.entry.parameters]


def _bare(shape: str) -> str:
    """Return a shape without layouts."""
    return "".join(
        piece.partition("}")[2] if i else piece for i, piece in enumerate(shape.split("{"))
    )


def _fusions(graph: MutableModule) -> Iterator[MutableInstruction]:
    for computation in walk_control_flow(graph):
        for instruction in computation.instructions:
            if instruction.opcode == "fusion":
                yield instruction


def _contents(fusion: MutableInstruction) -> tuple[object, ...]:
    """Return a key of the contents of a fusion and its operands, without names."""
    order = fusion.fused.post_order()
    places = {instruction: place for place, instruction in enumerate(order)}
    return (
        fusion.fusion_kind,
        *(
            (
                instruction.opcode,
                str(instruction.shape),
                instruction.inside,
                *(places[o] for o in instruction.operands),
            )
            for instruction in order
        ),
    )


def find_problems(fusion: MutableInstruction, backend: str | None) -> Iterator[str]:
    """Yield why ``fusion`` cannot be a kernel of ``backend``, in words."""
    root = fusion.fused.root
    for inner in fusion.fused.instructions:
        if inner.opcode == "fusion":
            yield f"{inner.name} in it is a fusion itself"
        elif inner.opcode in _ONLY_LAST:
            if inner is not root:
                yield f"{inner.opcode} {inner.name} can only be its last operation"
        elif inner.opcode not in _FUSIBLE and not is_elementwise(inner):
            yield f"a kernel of several operations cannot contain {inner.opcode} ({inner.name})"
    yield from _differing_results(fusion, backend)
    yield from _hazards(fusion)


def _differing_results(fusion: MutableInstruction, backend: str | None) -> Iterator[str]:
    """Yield results that one loop cannot compute. The loop of a reduction is over its input. On
    GPUs, shapes of the same memory with other dimensions are compatible (XLA, gpu_fusible.cc,
    ShapesCompatibleForMultiOutputFusion).
    """
    root = fusion.fused.root
    if root.opcode != "tuple":
        return
    looped = [looped_shape(operand, fusion) for operand in root.operands]
    for leaf, shape in zip(root.operands, looped, strict=True):
        is_same = not shape.is_tuple and (
            shape.dimensions == looped[0].dimensions
            or (backend == "gpu" and same_elements_in_memory(shape, looped[0]))
        )
        if not is_same:
            first = root.operands[0]
            yield (
                f"its results {first.name} {first.shape} and {leaf.name} {leaf.shape} are not of "
                "one shape"
            )


def looped_shape(result: MutableInstruction, fusion: MutableInstruction) -> Shape:
    """Return the shape of the loop that computes ``result``. Behind a reduction, a kernel may have
    operations on single elements (XLA, ir_emission_utils.cc, FindNonTrivialHero).
    """
    hero = result
    while is_intermediate(hero, 1):
        hero = hero.operands[0]
    is_reduction = hero.opcode == "reduce" and fusion.fusion_kind == "kInput"
    return hero.operands[0].shape if is_reduction else result.shape


def _hazards(fusion: MutableInstruction) -> Iterator[str]:
    """Yield buffers that the fusion overwrites and reads elsewhere than where it updates them."""
    for slot, *_ in in_place_operands(fusion):
        pending = [(fusion.fused.parameters[slot], False)]
        visited: set[MutableInstruction] = set()
        while pending:
            value, is_part = pending.pop()
            for user in value.users:
                if user.opcode in _UPDATES:
                    places = [n for n, operand in enumerate(user.operands) if operand is value]
                    if places == [1 if is_part else 0]:
                        continue
                reads_part = not is_part and _is_updated_part(user, value)
                if not (reads_part or is_elementwise(user) or user.opcode in ("bitcast", "tuple")):
                    yield (
                        f"it overwrites {fusion.operands[slot].name}, and {user.name} in it reads "
                        "that in other places"
                    )
                elif user not in visited:
                    visited.add(user)
                    pending.append((user, is_part or reads_part))


def _is_updated_part(reader: MutableInstruction, value: MutableInstruction) -> bool:
    """Return whether ``reader`` slices exactly what an update of ``value`` in the kernel writes."""
    return reader.opcode == "dynamic-slice" and any(
        update.opcode == "dynamic-update-slice"
        and update.operands[0] is value
        and update.operands[1].shape.dimensions == reader.shape.dimensions
        and update.operands[2:] == reader.operands[1:]
        for update in value.users
    )
