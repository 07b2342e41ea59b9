"""What a failed capture asks for."""

from __future__ import annotations

import pytest

from fusionscope.capture.capture import mistake
from fusionscope.capture.targets import read_target


@pytest.mark.parametrize(
    ("problem", "package"),
    [
        ("RuntimeError: cuDNN not found.", "nvidia-cudnn-cu13"),
        ("INTERNAL: libdevice is missing", "nvidia-nvvm"),
        ("this Python has no jax", "pip install jax"),
    ],
)
def test_a_missing_package_is_named(problem: str, package: str) -> None:
    error = mistake(problem, {}, read_target("h100"))
    assert error.hint is not None and package in error.hint
