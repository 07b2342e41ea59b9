"""A loop of many short steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from fusionscope.advise.recipes.example import Example
from fusionscope.advise.recipes.loops import (
    callee,
    count_steps,
    counter_of,
    element_of,
    index_of,
)
from fusionscope.advise.recipes.patterns import calling, is_zero, scalar
from fusionscope.advise.recipes.recipe import Recipe, Site
from fusionscope.graph.fusing import clone_into
from fusionscope.graph.mutable import MutableComputation, MutableInstruction, MutableModule
from fusionscope.hlo.shape import Shape

_LEFT_ALONE = frozenset(
    """all-gather all-reduce all-to-all collective-permute recv reduce-scatter send while""".split()
)
ALL = 0  # steps become one
_FACTORS = (4, 8, 16, 10, ALL, 5, 2)  # in the order in which they are tried


@dataclass(frozen=True, slots=True)
class UnrollLoop(Recipe):
    """``times`` is the number of steps that become one, 0 of loops of at most ``most`` steps all of
    them. ``is_whole`` is whether a loop of so many steps is unrolled, too.
    """

    times: int = 4
    is_whole: bool = False
    most: int = 32
    id: ClassVar = "unroll-loop"
    title: ClassVar = "several steps of a loop in one (`unroll`)"
    what: ClassVar = (
        "A `scan` or `fori_loop` of a known number of steps. Several steps become one, as with "
        "`unroll=4`. The numbers 4, 8, 16 and 10, all of at most 32 steps, 5 and 2 are tried if "
        "they divide that of the steps, until one saves no more than the one before."
    )
    why: ClassVar = (
        "On a GPU each step launches the kernels of its body, and one that counts. After "
        "unrolling, the latter is launched once for four steps, and consecutive elementwise steps "
        "become one kernel. Without a loop, an array for each step, such as the weights of its "
        "layer, is read where it is, and not copied out of the stack of all."
    )
    backfires: ClassVar = (
        "Compilation takes longer with each unrolled step: for an H100, 64 such steps took 0.4 s "
        "unchanged, 0.5 s with four steps in one and 1.3 s with all in one. On a CPU, a scan "
        "of very short steps took up to twice as long to run. Steps of long kernels gain nothing."
    )
    backends: ClassVar = frozenset({"gpu", "tpu"})
    tolerance: ClassVar = 1e-6
    example: ClassVar = Example(
        ("f32[65536]", "f32[65536]"),
        """
def program(start, force):
    def step(_, state):
        return state - 0.01 * (jnp.sin(state) + force)

    return lax.fori_loop(0, 8, step, start)
""",
        """
def program(start, force):
    def step(_, state):
        return state - 0.01 * (jnp.sin(state) + force)

    return lax.fori_loop(0, 8, step, start, unroll=4)
""",
    )

    @property
    def variants(self) -> tuple[Recipe, ...]:
        return tuple(replace(self, times=times) for times in _FACTORS)

    @property
    def words(self) -> str:
        if self.times == ALL:
            return "all steps of a loop in one (`unroll=True`)"
        return f"{self.times} steps of a loop in one (`unroll={self.times}`)"

    def find(self, graph: MutableModule, backend: str) -> Iterator[Site]:
        for instruction in list(graph.walk()):
            if instruction.opcode != "while":
                continue
            steps = count_steps(instruction)
            recipe = self._for(steps or 0)
            inside = callee(instruction, "body").opcodes
            if (
                steps
                and recipe.times > 1
                and steps >= recipe.times + (not recipe.is_whole)
                and steps % recipe.times == 0
                and not any(inside[opcode] for opcode in _LEFT_ALONE)
                and all(
                    element_of(user) is not None
                    for user in callee(instruction, "body").parameters[0].users
                )
            ):
                yield Site(instruction, partial(recipe.unroll, instruction))

    def _for(self, steps: int) -> UnrollLoop:
        """Return the recipe for a loop of ``steps`` steps."""
        if self.times != ALL:
            return self
        return replace(self, times=steps if steps <= self.most else 1, is_whole=True)

    def unroll(self, loop: MutableInstruction) -> None:
        """Replace the body by ``times`` copies of it. Elements of arrays that successive steps
        read or write are read and written together, as ``scan`` does.
        """
        body = callee(loop, "body")
        arrays = _find_arrays(loop, body)
        longer = loop.computation.module.add_computation(f"{body.name}_unrolled")
        parameter = longer.make_parameter(body.parameters[0].shape)
        elements = [
            longer.make("get-tuple-element", shape, [parameter], f", index={index}")
            for index, shape in enumerate(parameter.shape.elements)
        ]
        blocks: dict[MutableInstruction, MutableInstruction] = {}
        for read in arrays.reads:
            array = elements[index_of(read.operands[0])]
            starts = _starts(read.operands[1:], elements, longer)
            shape = self._block(read.shape)
            sizes = ",".join(map(str, shape.dimensions))
            text = f", dynamic_slice_sizes={{{sizes}}}"
            blocks[read] = longer.make("dynamic-slice", shape, [array, *starts], text)
        parts_written: dict[int, list[MutableInstruction]] = {index: [] for index in arrays.writes}
        state = list(elements)
        for step in range(self.times):
            clones: dict[MutableInstruction, MutableInstruction] = {}
            for instruction in body.post_order():
                if element_of(instruction) is not None:
                    clones[instruction] = state[index_of(instruction)]
                elif instruction in blocks:
                    later_bounds = (f"[0:{size}]" for size in instruction.shape.dimensions[1:])
                    text = f", slice={{{', '.join([f'[{step}:{step + 1}]', *later_bounds])}}}"
                    clones[instruction] = longer.make(
                        "slice", instruction.shape, [blocks[instruction]], text
                    )
                elif instruction in arrays.writes.values():
                    clones[instruction] = clones[instruction.operands[0]]
                elif instruction.opcode != "parameter" and instruction is not body.root:
                    clones[instruction] = clone_into(
                        instruction, longer, [clones[o] for o in instruction.operands]
                    )
            for index, update in arrays.writes.items():
                parts_written[index].append(clones[update.operands[1]])
            state = [clones[operand] for operand in body.root.operands]
        for index, update in arrays.writes.items():
            parts = parts_written[index]
            block = self._block(parts[0].shape)
            joined = longer.make("concatenate", block, parts, ", dimensions={0}")
            starts = _starts(update.operands[2:], elements, longer)
            operands = [elements[index], joined, *starts]
            state[index] = longer.make("dynamic-update-slice", update.shape, operands)
        longer.root = longer.make("tuple", body.root.shape, state)
        del body.callers[loop]
        longer.callers[loop] = None
        loop.called = [
            longer if computation is body else computation for computation in loop.called
        ]
        loop.set_attributes(calling(loop.attributes_text, body, longer))

    def _block(self, element: Shape) -> Shape:
        """Return the shape of as many elements of an array as there are steps in one."""
        return Shape(element.element_type, (self.times, *element.dimensions[1:]))


@dataclass(frozen=True, slots=True)
class _Arrays:
    """The slices of one element that a step reads, and those that it writes, by the index of their
    array in the state: of each array at the number of the step.
    """

    reads: list[MutableInstruction]
    writes: dict[int, MutableInstruction]


def _find_arrays(loop: MutableInstruction, body: MutableComputation) -> _Arrays:
    (start,), results = loop.operands, body.root.operands
    counter = counter_of(loop)
    if counter is None or scalar(start.operands[counter]) != "0":
        return _Arrays([], {})
    steps = count_steps(loop) or 0

    def is_at_step(array: MutableInstruction, starts: list[MutableInstruction]) -> bool:
        place, *later_starts = starts
        length = array.shape.dimensions[0]
        return (
            element_of(array) is not None
            and element_of(place) == counter
            and all(start.opcode == "constant" and is_zero(start) for start in later_starts)
            and length is not None
            and length >= steps
        )

    reads: list[MutableInstruction] = []
    writes: dict[int, MutableInstruction] = {}
    for instruction in body.instructions:
        if instruction.opcode == "dynamic-slice" and is_at_step(
            instruction.operands[0], instruction.operands[1:]
        ):
            index = index_of(instruction.operands[0])
            if instruction.shape.dimensions[0] == 1 and element_of(results[index]) == index:
                reads.append(instruction)
    for index, result in enumerate(results):
        if result.opcode == "dynamic-update-slice" and is_at_step(
            result.operands[0], result.operands[2:]
        ):
            array, update = result.operands[:2]
            other_elements = [
                element
                for element in body.instructions
                if element is not result and element_of(element) == index and element.users
            ]
            is_only = list(array.users) == [result] and list(result.users) == [body.root]
            if (
                index_of(array) == index
                and update.shape.dimensions[0] == 1
                and results.count(result) == 1
                and is_only
                and other_elements in ([], [array])
            ):
                writes[index] = result
    return _Arrays(reads, writes)


def _starts(
    starts: list[MutableInstruction],
    elements: list[MutableInstruction],
    target: MutableComputation,
) -> list[MutableInstruction]:
    """Return the indices of a block in ``target``: the number of the step, and zeros."""
    place, *zeros = starts
    return [elements[index_of(place)], *(clone_into(zero, target, []) for zero in zeros)]
