"""The region of a program that a sketch computes."""

from __future__ import annotations

from collections.abc import Collection

from fusionscope.errors import UnusableInput
from fusionscope.experiments.bitcasts import write_bitcasts
from fusionscope.experiments.kernels import take_apart
from fusionscope.graph.cleanup import clean_up
from fusionscope.graph.cutting import keep_only, with_elements
from fusionscope.graph.mutable import MutableComputation, MutableInstruction, MutableModule
from fusionscope.hlo import Module
from fusionscope.hlo.search import reachable
from fusionscope.sketch.expressions import is_scalar_constant


def cut_kernels(final: Module, names: Collection[str]) -> MutableModule:
    """Return a module that computes what the kernels ``names`` of ``final`` compute, and those
    between them, as operations. Arrays of constants are parameters.

    Raises ``UnusableInput`` if the kernels are not in one computation.
    """
    graph = MutableModule(final)
    for instruction in graph.walk():
        instruction.origin = instruction.name
    kernels = [
        instruction
        for computation in graph.post_order()
        if not computation.is_fused
        for instruction in computation.instructions
        if instruction.name in names
    ]
    computations = {kernel.computation for kernel in kernels}
    if len(computations) != 1:
        raise UnusableInput(
            f"no sketch: these kernels are in {len(computations)} computations, "
            "expected one computation"
        )
    members = _with_between(set(kernels))
    keep_only(graph, with_elements(members), computations.pop())
    take_apart(graph)
    write_bitcasts(graph)
    clean_up(graph, "cpu")
    _pass_constants(graph.entry)
    return graph


def _with_between(kernels: set[MutableInstruction]) -> set[MutableInstruction]:
    """Return ``kernels`` with all that lies on ways from one to another."""
    after = {*reachable(kernels, lambda step: step.users)}
    before = {*reachable(kernels, lambda step: step.operands)}
    return kernels | (after & before)


def _pass_constants(entry: MutableComputation) -> None:
    """Make parameters of constants that an expression cannot hold."""
    for instruction in entry.post_order():
        if instruction.opcode == "constant" and not is_scalar_constant(instruction):
            parameter = entry.make_parameter(instruction.shape)
            parameter.origin = instruction.origin
            entry.replace(instruction, parameter)
