"""Changes drawn from what `explain` shows are carried out as predicted, or refused."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from conformance.changes import KINDS, Source, follow

DUMPS = Path(__file__).parents[2] / "samples" / "dumps"
PYTHON = __import__("sys").executable
with_jax = pytest.mark.skipif(find_spec("jax") is None, reason="needs jax")


@with_jax
@pytest.mark.parametrize("option", KINDS)
@pytest.mark.parametrize(
    ("backend", "names"),
    [
        ("cpu", ("concatenate", "elementwise", "reductions", "softmax")),
        pytest.param(
            "gpu",
            ("concatenate", "elementwise", "reductions", "softmax"),
            marks=pytest.mark.skipif(find_spec("jax_cuda13_plugin") is None, reason="needs CUDA"),
        ),
    ],
)
def test_a_drawn_change_is_done_as_predicted(
    backend: str, names: tuple[str, ...], option: str
) -> None:
    import jaxlib

    folder = DUMPS / ("cpu" if backend == "cpu" else "h100")
    source = Source([folder / name for name in names], backend, [jaxlib.__version__], seed=1)
    verdict, details = follow(source.draw(option), PYTHON)
    assert verdict in ("as predicted", "refused"), details
    if verdict == "refused":
        assert f"cannot {option} " in details
