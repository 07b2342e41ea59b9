"""Known defects of the compiler, in dumps of compilers that have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusionscope.dump import open_dump
from fusionscope.explain.explain import explain_module

DATA = Path(__file__).parent / "data/square_bias"
SAMPLES = Path(__file__).parents[2] / "samples/dumps"


def notes_of(dump: Path) -> list[str]:
    (module,) = open_dump(dump).modules
    return [note for note in explain_module(module).notes if "computed wrongly" in note]


def test_a_bias_for_each_row_became_an_epilogue_for_each_column() -> None:
    # openxla/xla#46897: 8 x 8 is wrong.
    (note,) = notes_of(DATA / "rows")
    assert note.startswith("sum.1 is computed wrongly: it adds an element of bias.1 to each row")
    assert "the epilogue of cublas-lt-matmul.1 one to each column" in note


@pytest.mark.parametrize(
    "dump", [DATA / "columns", SAMPLES / "h100-without-triton-gemm/projections"]
)
def test_a_bias_for_each_column_is_right(dump: Path) -> None:
    assert notes_of(dump) == []


def test_the_product_and_its_bias_move_800_bytes() -> None:
    (module,) = open_dump(DATA / "rows").modules
    (kernel,) = explain_module(module).kernels
    assert kernel.bytes_moved == 2 * 256 + 32 + 256  # not the workspace of 33.6 MB
