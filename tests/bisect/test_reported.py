"""Differences on CPUs that users reported to the compiler's developers, found and reduced."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from fusionscope.bisect.bisect import bisect
from fusionscope.bisect.reference import Reference
from fusionscope.bisect.result import Bisection
from fusionscope.dump import open_dump

pytestmark = pytest.mark.skipif(importlib.util.find_spec("jaxlib") is None, reason="needs jax")


def bisected(function: Any, inputs: list[Any], reference: Reference, directory: Path) -> Bisection:
    import numpy

    from fusionscope.capture.functions import capture_dump

    file = directory / "inputs.npz"
    numpy.savez(file, *inputs)
    captured = capture_dump(function, *inputs, directory=directory / "dump")
    (module,) = open_dump(captured.directory).modules
    return bisect(module, reference, inputs=file, directory=directory / "wrong")


def printed(found: Bisection) -> list[str]:
    """What the script prints that runs the only kernel that is needed."""
    (culprit,) = found.found
    assert culprit.reproducer is not None
    assert not culprit.reproducer.problem
    return list(culprit.reproducer.output)


def test_products_that_cancel(tmp_path: Path) -> None:
    """openxla/xla#41579: a product and a sum in one kernel become one instruction, which rounds
    only one of two equal products.
    """
    import numpy

    inputs = [numpy.float32(1e20), numpy.float32(-1e20), numpy.float32(1e10)]
    actual = bisected(lambda a, b, x: a * x + b * x, inputs, Reference(), tmp_path)
    assert [operation.opcode for operation in actual.found[0].operations] == ["multiply", "add"]
    assert printed(actual)[1] == "  fused 4.993411122843311e+21, unfused 0.0"


def test_equal_squares(tmp_path: Path) -> None:
    """openxla/xla#22116: the difference of two equal squares is the rounding of one of them."""
    import numpy

    inputs = [numpy.full(1, 0.1, numpy.float32)] * 2
    reference = Reference(tolerance=0.0)
    actual = bisected(lambda x, y: x**2 - y**2, inputs, reference, tmp_path)
    assert [operation.opcode for operation in actual.found[0].operations] == [
        "multiply",
        "subtract",
    ]
    assert printed(actual)[1].startswith("  fused -4.09781")


@pytest.mark.parametrize("dtype", [pytest.param("int32", marks=pytest.mark.long), "float32"])
def test_an_update_that_overwrites_what_it_reads(dtype: str, tmp_path: Path) -> None:
    """openxla/xla#49176: rows move down by one in the buffer that they are read from. The update
    and the slice that is read are both needed. In 64 bits, the compiler's own kernel is as wrong.
    """
    import numpy

    def shifted(x: Any) -> Any:
        base = x + numpy.ones((), dtype)
        return base.at[1:].set(base[:-1]).reshape((1, *base.shape))

    rows = numpy.arange(128, dtype=dtype).reshape(8, 16)
    actual = bisected(shifted, [rows], Reference(), tmp_path)
    opcodes = [operation.opcode for operation in actual.found[0].operations]
    assert {"slice", "dynamic-update-slice"} <= set(opcodes)
    assert printed(actual)[0].startswith("96 of 128 elements differ")
