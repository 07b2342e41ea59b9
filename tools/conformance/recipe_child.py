"""Lowers JAX programs, and runs HLO on a CPU, in a process of its own.

    PYTHON recipe_child.py

Reads one JSON request per line and answers each with a line. It runs under any Python that has jax.
"""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

_IMPORTS = "import jax\nimport jax.numpy as jnp\nfrom jax import lax\n"


# It runs under a Python without fusionscope, too.
sys.path.append(str(Path(__file__).parents[2] / "fusionscope" / "rerun"))
runner: Any = import_module("runner")


def _open(_: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    return {}, lambda request: globals()[request.pop("do")](**request)


def lower(source: str, arguments: list[str]) -> dict[str, str]:
    """Answer with the HLO of ``program`` in ``source``, with arguments of these types."""
    import jax

    namespace: dict[str, Any] = {}
    exec(compile(_IMPORTS + source, "program.py", "exec"), namespace)
    program = namespace["program"]
    program = program if hasattr(program, "lower") else jax.jit(program, keep_unused=True)
    lowered = program.lower(*map(_described, arguments))
    return {"text": lowered.compiler_ir("hlo").as_hlo_text(print_large_constants=True)}


def compare(programs: list[str], bounds: list[int | None], seed: int) -> dict[str, Any]:
    """Run two programs on the same random inputs: integers below their bounds, others normal. The
    answer is the largest difference, as a share of the largest magnitude of a result; None if the
    results have other shapes or types, or differ where they are no floating point numbers.
    """
    import jax
    import numpy

    generator = numpy.random.default_rng(seed)
    results = []
    place = jax.devices("cpu")[0]
    inputs = [
        _drawn(generator, shape, bound)
        for shape, bound in zip(runner._parameter_shapes(programs[0]), bounds, strict=True)
    ]
    for text in programs:
        shapes = runner._parameter_shapes(text)
        arrays = [
            source.astype(shape.numpy_dtype()) for source, shape in zip(inputs, shapes, strict=True)
        ]
        results.append(runner.Executable(text, place, arrays).run())
    pairs = list(zip(*results, strict=True))
    return {"differences": [_difference(*map(numpy.asarray, pair)) for pair in pairs]}


def _described(argument: str) -> Any:
    import jax
    from jax.numpy import dtype

    name, _, sizes = argument.rstrip("]").partition("[")
    names = {"f": "float", "bf": "bfloat", "s": "int", "u": "uint"}
    kind, bits = name.rstrip("0123456789"), name.lstrip("abcdefghijklmnopqrstuvwxyz")
    shape = tuple(int(size) for size in sizes.split(",") if size)
    return jax.ShapeDtypeStruct(shape, dtype(names[kind] + bits))


def _drawn(generator: Any, shape: Any, bound: int | None) -> Any:
    sizes, dtype = shape.dimensions(), shape.numpy_dtype()
    if bound is not None:
        return generator.integers(0, bound, sizes).astype(dtype)
    return generator.standard_normal(sizes).astype(dtype)


def _difference(expected: Any, result: Any) -> float | None:
    import numpy

    if (expected.shape, expected.dtype) != (result.shape, result.dtype):
        return None
    if expected.dtype.kind in "biu":
        return 0.0 if numpy.array_equal(expected, result) else None
    wide = complex if expected.dtype.kind == "c" else float
    expected, result = expected.astype(wide), result.astype(wide)
    is_finite = numpy.isfinite(expected)
    if not numpy.array_equal(expected[~is_finite], result[~is_finite], equal_nan=True):
        return None
    largest = numpy.abs(expected[is_finite]).max(initial=0.0)
    distance = numpy.abs(expected[is_finite] - result[is_finite]).max(initial=0.0)
    return float(distance / largest) if largest else float(distance)


if __name__ == "__main__":
    runner.child.serve(_open)
