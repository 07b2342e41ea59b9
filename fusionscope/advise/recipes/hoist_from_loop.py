"""Work in a loop that does not depend on its state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from fusionscope.advise.recipes.example import Example
from fusionscope.advise.recipes.independence import Chain, Independence, move_out
from fusionscope.advise.recipes.loops import Loop, find_loops
from fusionscope.advise.recipes.recipe import Recipe, Site
from fusionscope.graph.mutable import MutableInstruction, MutableModule


@dataclass(frozen=True, slots=True)
class HoistFromLoop(Recipe):
    """The values of all steps may have ``most_bytes``. Of what depends on itself alone, up to
    ``longest_chain`` integers are computed in a loop of their own.
    """

    most_bytes: int = 1 << 28
    longest_chain: int = 16
    id: ClassVar = "hoist-from-loop"
    title: ClassVar = "what does not depend on a loop's state, for all steps before it"
    what: ClassVar = (
        "A `scan`, `fori_loop` or `map` in whose steps a product, a sum, a look-up, or twenty "
        "operations or more, such as those of random numbers, depend on the number of the step, on "
        "the rows of arrays or on arrays from outside of it, but not on what the loop carries. "
        "They are computed for all steps at once, and a step reads its row. Keys of random numbers "
        "that each step splits are split by a loop of their own first, so the numbers are the same "
        "ones. A loop with nothing else in it disappears."
    )
    why: ClassVar = (
        "On a GPU each step launches the kernels of its body, on one row each. One kernel for all "
        "rows is one launch, and occupies the device. Products read their weights once. On a CPU "
        "the rounds of JAX's random numbers are a loop of their own in each step: afterwards they "
        "run once, over the numbers of all steps."
    )
    backfires: ClassVar = (
        "The values of all steps are stored, at most 256 MiB here: more would take longer to write "
        "and read than the launches that it saves, and a `map` may be there in order to save "
        "memory. What one kernel of the step computes with the rest saves no launch. A product of "
        "all rows may be summed in another order than one of a few."
    )
    backends: ClassVar = frozenset({"cpu", "gpu", "tpu"})
    tolerance: ClassVar = 1e-5
    example: ClassVar = Example(
        ("f32[64,64,16]", "f32[16,128]", "f32[64,128]"),
        """
def program(inputs, weights, state):
    def step(state, row_and_key):
        row, key = row_and_key
        noise = jax.random.normal(key, state.shape)
        state = jnp.tanh(0.5 * state + row @ weights + noise)
        return state, state.sum()

    keys = jax.random.split(jax.random.key(7), 64)
    return lax.scan(step, state, (inputs, keys))
""",
        """
def program(inputs, weights, state):
    def step(state, product_and_noise):
        product, noise = product_and_noise
        state = jnp.tanh(0.5 * state + product + noise)
        return state, state.sum()

    keys = jax.random.split(jax.random.key(7), 64)
    noise = jax.vmap(lambda key: jax.random.normal(key, state.shape))(keys)
    return lax.scan(step, state, (inputs @ weights, noise))
""",
    )

    def find(self, graph: MutableModule, backend: str) -> Iterator[Site]:
        for loop in find_loops(graph):
            independence = self._choose(loop)
            if _moved(independence) and independence.bytes_stacked() <= self.most_bytes:
                yield Site(loop.instruction, partial(move_out, independence))

    def _choose(self, loop: Loop) -> Independence:
        """Return what is independent, with a loop of its own for what depends on itself alone if
        something that is worth it reads that.
        """
        chained = Independence(loop, has_recurrences=False, longest_chain=self.longest_chain)
        if any(chained.reads_chain(result) for result in _moved(chained)):
            return chained
        return Independence(loop, has_recurrences=False)


def _moved(independence: Independence) -> set[MutableInstruction]:
    """Return what is worth computing outside."""
    states = independence.states.values()
    results = independence.results()
    if independence.is_complete and not any(isinstance(state, Chain) for state in states):
        return set(results)
    return {result for result in results if independence.is_work(result)}
