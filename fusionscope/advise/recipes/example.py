"""A program before and after an edit, as JAX code."""

from __future__ import annotations

from dataclasses import dataclass

_IMPORTS = "import jax\nimport jax.numpy as jnp\nfrom jax import lax\n"


@dataclass(frozen=True, slots=True)
class Example:
    """``before`` and ``after`` each define ``program``, whose arguments have the shapes
    ``arguments``, in HLO's notation; after the edit ``arguments_after``, if these are others.
    """

    arguments: tuple[str, ...]
    before: str
    after: str
    arguments_after: tuple[str, ...] = ()

    def module_of(self, text: str) -> str:
        """Return one of the two as a Python file."""
        return f"{_IMPORTS}\n{text.strip()}\n"
