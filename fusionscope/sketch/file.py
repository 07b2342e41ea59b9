"""The file of a sketch, which runs by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from fusionscope.facts.result import KernelFacts, ModuleFacts
from fusionscope.sketch.sketch import Sketch
from fusionscope.words.text import duration, plural, safe, size

if TYPE_CHECKING:
    from fusionscope.sketch.checking import Comparison

_WIDTH = 98
_IMPORTS = """\
import jax
import numpy as np
from jax import lax
from jax import numpy as jnp
from jax.experimental import pallas as pl"""
_64_BITS = ("jnp.float64", "jnp.int64", "jnp.uint64", "jnp.complex128")


def file_text(sketch: Sketch, module: ModuleFacts, checked: str) -> str:
    """Return the file. ``checked`` says in a sentence how its numbers are like the program's."""
    return "\n".join(_lines(sketch, module, checked)) + "\n"


def describe_comparison(comparison: Comparison) -> str:
    """Return in a sentence how far the numbers of a sketch are from the program's."""
    parts = []
    for name, results in (
        ("reference", comparison.reference),
        ("one_kernel, interpreted,", comparison.kernel),
    ):
        differences = [result.difference or 0.0 for result in results]
        same = all(result.is_equal for result in results)
        worst = f"differs by {max(differences):.1e} of the largest number at most"
        parts.append(f"{name} {'is equal' if same else worst}")
    return f"Checked against the compiler's code on random inputs: {'; '.join(parts)}."


def _lines(sketch: Sketch, module: ModuleFacts, checked: str) -> Iterator[str]:
    kernels = [kernel for kernel in module.kernels if kernel.name in sketch.kernels]
    replaced = plural(len(sketch.kernels), "kernel")
    yield f'"""A start for one kernel in the place of {replaced} of {safe(module.name)}.'
    yield ""
    for paragraph in (_costs(sketch, kernels), checked, _advice(sketch)):
        yield from wrap(paragraph, _WIDTH)
    yield ""
    yield f"Replaces: {', '.join(map(safe, sketch.kernels))}"
    for title, values in (("Inputs", sketch.inputs), ("Outputs", sketch.outputs)):
        yield f"{title}:"
        yield from (f"    {safe(value)}" for value in values)
    yield '"""'
    yield ""
    yield _IMPORTS
    yield ""
    if any(name in sketch.code for name in _64_BITS):
        yield 'jax.config.update("jax_enable_x64", True)'
    yield f"STEPS = {sketch.steps}"
    yield ""
    yield ""
    yield sketch.code


def _costs(sketch: Sketch, kernels: Sequence[KernelFacts]) -> str:
    """Return what the kernels cost now, and what one kernel has to move."""
    moved = sum(kernel.bytes_read + kernel.bytes_written for kernel in kernels)
    root = sketch.module.entry.root
    least = sum(value.shape.byte_size for value in (*sketch.module.entry.parameters, root))
    times = [kernel.time_ns for kernel in kernels if kernel.time_ns is not None]
    time = f"{duration(sum(times) / 1000)}, " if len(times) == len(kernels) else ""
    return (
        f"Now: {time}{plural(len(kernels), 'launch', 'launches')}, {size(moved)} moved; as one "
        f"kernel: 1 launch, {size(min(moved, least))} if it reads and writes everything once "
        f"(one run). {plural(sketch.operations, 'operation')}."
    )


def _advice(sketch: Sketch) -> str:
    if sketch.steps == 1:
        return (
            "No dimension of the results was found by which programs could share the work: one "
            "program has all of it, as a reference for a kernel that you divide yourself."
        )
    return (
        "STEPS programs share the work, each with an equal part. This is a start and no promise "
        "of speed: choose STEPS for your device, measure, and go on."
    )
