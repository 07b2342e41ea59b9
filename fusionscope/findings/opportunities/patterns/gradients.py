"""What gradients compute again."""

from __future__ import annotations

from collections.abc import Iterator

from fusionscope.findings.opportunities.patterns.program import Match, Program

_AGAIN = "rematted_computation"  # JAX's name of what a gradient computes again


class Rematerialized:
    """A gradient computes again what ``jax.checkpoint`` did not store in the forward pass."""

    id = "rematerialized"
    title = "the forward pass again, for the gradient, {}"
    advice = "without jax.checkpoint there, or with a policy that stores more, if memory allows"

    def matches(self, program: Program) -> Iterator[Match]:
        for number in program.running:
            if _AGAIN in (program.kernels[number].instruction.op_name or ""):
                yield program.without(number)
