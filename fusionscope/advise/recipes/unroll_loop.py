"""A loop of many short steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from fusionscope.advise.recipes.example import Example
from fusionscope.advise.recipes.patterns import scalar
from fusionscope.advise.recipes.recipe import Recipe, Site
from fusionscope.graph.mutable import MutableComputation, MutableInstruction, MutableModule

_LEFT_ALONE = frozenset(
    """all-gather all-reduce all-to-all collective-permute conditional convolution custom-call
    recv reduce-scatter send sort while""".split()
)
_COMPUTES_NOTHING = frozenset(
    {"broadcast", "constant", "get-tuple-element", "parameter", "reshape", "tuple"}
)


@dataclass(frozen=True, slots=True)
class UnrollLoop(Recipe):
    """``times`` is the number of steps that become one, ``longest`` the largest number of
    operations in a step. ``is_whole`` is whether a loop of so many steps is unrolled, too.
    """

    times: int = 4
    longest: int = 12
    is_whole: bool = False
    id: ClassVar = "unroll-loop"
    title: ClassVar = "several steps of a loop in one (`unroll`)"
    what: ClassVar = (
        "A `scan` or `fori_loop` whose number of steps is known and a multiple of four, with a "
        "short step. Four steps become one, as with `unroll=4`."
    )
    why: ClassVar = (
        "On a GPU each step launches the kernels of its body, one that counts, and one that "
        "compares the count. After unrolling, the latter two are launched once for four steps, and "
        "consecutive elementwise steps become one kernel."
    )
    backfires: ClassVar = (
        "Compilation takes longer with each unrolled step: for an H100, the example took 0.4 s "
        "unchanged, 0.5 s with four steps in one and 1.3 s with all 64. On a CPU, a scan "
        "of very short steps took up to twice as long to run. Long steps gain nothing."
    )
    backends: ClassVar = frozenset({"gpu"})
    tolerance: ClassVar = 1e-6
    example: ClassVar = Example(
        ("f32[65536]", "f32[65536]"),
        """
def program(start, force):
    def step(_, state):
        return state - 0.01 * (jnp.sin(state) + force)

    return lax.fori_loop(0, 64, step, start)
""",
        """
def program(start, force):
    def step(_, state):
        return state - 0.01 * (jnp.sin(state) + force)

    return lax.fori_loop(0, 64, step, start, unroll=4)
""",
    )

    def find(self, graph: MutableModule, backend: str) -> Iterator[Site]:
        for each in list(graph.walk()):
            if each.opcode != "while":
                continue
            steps = count_steps(each)
            inside = _called(each, "body").opcodes
            operations = sum(inside[opcode] for opcode in inside.keys() - _COMPUTES_NOTHING)
            if (
                steps is not None
                and steps >= self.times + (not self.is_whole)
                and steps % self.times == 0
                and operations <= self.longest
                and not any(inside[opcode] for opcode in _LEFT_ALONE)
            ):
                yield Site(each, partial(self._rewrite, each))

    def _rewrite(self, loop: MutableInstruction) -> None:
        body = _called(loop, "body")
        longer = loop.computation.module.add_computation(f"{body.name}_unrolled")
        state = longer.make_parameter(body.parameters[0].shape)
        for _ in range(self.times):
            name = loop.computation.module.instruction_name("step")
            text = f", to_apply=%{body.name}"
            step = MutableInstruction(name, "call", body.root.shape, [state], text)
            step.called = [body]
            state = longer.add(step)
        longer.root = state
        del body.callers[loop]
        longer.callers[loop] = None
        loop.called = [longer if each is body else each for each in loop.called]
        loop.attributes_text = loop.attributes_text.replace(
            f"body=%{body.name}", f"body=%{longer.name}", 1
        )


def _called(loop: MutableInstruction, role: str) -> MutableComputation:
    name = loop.attributes[role].lstrip("%")
    return next(each for each in loop.called if each.name == name)


def count_steps(loop: MutableInstruction) -> int | None:
    """Return the number of steps, if a counter that is incremented by one between constants shows
    it.
    """
    condition, body = _called(loop, "condition").root, _called(loop, "body")
    (start,) = loop.operands
    if (
        condition.opcode != "compare"
        or condition.attributes.get("direction") != "LT"
        or start.opcode != "tuple"
        or body.root.opcode != "tuple"
    ):
        return None
    index = _element(condition.operands[0])
    end = scalar(condition.operands[1])
    if index is None or end is None:
        return None
    counter = body.root.operands[index]
    first = scalar(start.operands[index])
    if first is None or counter.opcode != "add" or _element(counter.operands[0]) != index:
        return None
    return int(end) - int(first) if scalar(counter.operands[1]) == "1" else None


def _element(value: MutableInstruction) -> int | None:
    """Return the index of the element of the parameter that it is."""
    if value.opcode != "get-tuple-element" or value.operands[0].opcode != "parameter":
        return None
    return int(value.attribute("index"))
