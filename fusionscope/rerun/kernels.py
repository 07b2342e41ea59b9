"""Fuses operations that a user wants in one kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain

from fusionscope.errors import UnusableInput, quoted
from fusionscope.graph.buffers import CONTROL_FLOW, walk_control_flow
from fusionscope.graph.fusing import add_output, create_fusion, fuse_instruction
from fusionscope.graph.mutable import (
    MutableComputation,
    MutableInstruction,
    MutableModule,
    remove_unused,
)

_NO_OPERATION = CONTROL_FLOW | {"get-tuple-element", "parameter", "tuple"}


def place_kernels(
    graph: MutableModule,
    kernels: Sequence[Sequence[str]],
    choose_kind: Callable[[MutableInstruction], str],
) -> list[str]:
    """Fuse the operations that each of ``kernels`` names. Return the names of the fusions.

    An operation that several kernels have, or a constant, is computed in each of them, and once
    more if anything else reads it. Any other operation that is read outside of its kernel becomes
    a result of the kernel. ``choose_kind`` returns the kind of a fusion that is complete.
    Raises ``UnusableInput`` if a name is unknown or not an operation, or if the operations cannot
    be one kernel.
    """
    by_name = {
        instruction.name: instruction
        for computation in walk_control_flow(graph)
        for instruction in computation.instructions
    }
    members = [[_find(name, by_name) for name in dict.fromkeys(kernel)] for kernel in kernels]
    copies = Counter(member for kernel in members for member in kernel)
    shared = {member for member, count in copies.items() if count > 1 or is_constant(member)}
    names = [_make_kernel(kernel, shared, choose_kind).name for kernel in members]
    for member in shared:
        remove_unused(member)
    return names


def is_constant(value: MutableInstruction) -> bool:
    """Return whether ``value`` is a constant or an iota, or a broadcast of one: computing it again
    reads nothing.
    """
    while value.opcode == "broadcast":
        (value,) = value.operands
    return value.opcode in ("constant", "iota")


def _find(name: str, by_name: dict[str, MutableInstruction]) -> MutableInstruction:
    operation = by_name.get(name.lstrip("%"))
    if operation is None:
        raise UnusableInput(
            f"no operation before fusion is called {quoted(name)}",
            hint="`fusionscope explain` shows their names, and a plan fits one dump",
        )
    if operation.opcode in _NO_OPERATION:
        raise UnusableInput(
            f"{operation.name} is a {operation.opcode}, which cannot be part of a kernel"
        )
    return operation


def _make_kernel(
    members: list[MutableInstruction],
    shared: set[MutableInstruction],
    choose_kind: Callable[[MutableInstruction], str],
) -> MutableInstruction:
    """Return the fusion of ``members``. Those that are ``shared`` stay where they are, too."""
    computation = _common_computation(members)
    inside = set(members)
    order = [instruction for instruction in computation.post_order() if instruction in inside]
    results = [
        operation
        for operation in order
        if operation not in shared
        and (operation.is_root or any(user not in inside for user in operation.users))
    ]
    if not results:
        raise UnusableInput(f"nothing but the kernels of {order[-1].name} reads what they compute")
    _require_order(computation, inside, results)
    root = results[-1]
    fusion = create_fusion(root, "kLoop", f"{root.opcode}_fusion")
    computation.replace(root, fusion)
    for operation in reversed(order):  # users before what they read
        if operation is root:
            continue
        if operation in results:
            add_output(fusion, operation)
        elif operation in fusion.operands:
            fuse_instruction(fusion, operation)
        else:
            raise UnusableInput(
                f"{operation.name} cannot be part of a kernel with {root.name}: nothing in it "
                "reads that"
            )
        if not operation.users and not operation.is_root and operation not in shared:
            computation.remove(operation)
    fusion.fusion_kind = choose_kind(fusion)
    return fusion


def _common_computation(members: Sequence[MutableInstruction]) -> MutableComputation:
    """Return the computation of all ``members``. Raises ``UnusableInput`` if they have several."""
    first = members[0]
    for member in members:
        if member.computation is not first.computation:
            where = f"{first.name} is in {first.computation.name}, {member.name} in"
            raise UnusableInput(f"no kernel for both: {where} {member.computation.name}")
    return first.computation


def _require_order(
    computation: MutableComputation,
    inside: set[MutableInstruction],
    results: Sequence[MutableInstruction],
) -> None:
    """Raise ``UnusableInput`` if another operation must run in the middle of the kernel: one that
    depends on a result, and that an operation ``inside`` depends on.
    """
    import networkx  # imported here so that plans without kernels do not wait for it

    order = computation.post_order()
    edges: networkx.DiGraph[MutableInstruction] = networkx.DiGraph()  # from what runs first
    edges.add_nodes_from(order)
    edges.add_edges_from(
        (dependency, operation)
        for operation in order
        for dependency in (*operation.operands, *operation.predecessors)
    )
    after = set(chain.from_iterable(networkx.bfs_layers(edges, results)))
    before = set(chain.from_iterable(networkx.bfs_layers(edges.reverse(copy=False), inside)))
    for between in order:
        if between not in inside and between in after and between in before:
            start = next(result for result in results if networkx.has_path(edges, result, between))
            end = next(
                operation
                for operation in order
                if operation in inside and networkx.has_path(edges, between, operation)
            )
            raise UnusableInput(
                f"{start.name} and {end.name} cannot be in one kernel: {between.name} "
                "depends on the first, and the second depends on it"
            )
