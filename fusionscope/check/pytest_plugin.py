"""The fixture ``fusionscope`` of pytest: a function's fusions, for a device that need not be here.

def test_softmax_is_one_kernel(fusionscope):
    fusions = fusionscope(softmax, jnp.ones((512, 384)), device="h100")
    fusions.assert_one_kernel("exponential", "reduce", "divide")
    fusions.assert_matches_baseline()

@pytest.mark.fusionscope("cpu", "h100")
def test_on_each(fusionscope):
    fusionscope(softmax, jnp.ones((512, 384))).assert_launches(at_most=2)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from fusionscope.check.fusions import Fusions

_BASELINES = "fusionscope_baselines"
_NAME = "fusionscope"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup(_NAME).addoption(
        "--fusionscope-update",
        action="store_true",
        help="write the baselines of fusions that tests ask for",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{_NAME}(*devices): run the test for each device, which its functions are for"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marker = metafunc.definition.get_closest_marker(_NAME)
    if marker is not None and marker.args and _NAME in metafunc.fixturenames:
        metafunc.parametrize(_NAME, marker.args, indirect=True)


@pytest.fixture
def fusionscope(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Fusions]:
    """Call it with a function of jax, its arguments (arrays, or anything with shape and dtype), and
    ``device`` and ``flags`` as ``fusionscope capture`` has them. Without ``device``, it is that of
    the marker ``fusionscope``, or else the CPU. Baselines lie in a folder beside the test."""
    from fusionscope.capture.functions import capture_dump
    from fusionscope.check.fusions import Fusions
    from fusionscope.dump import open_dump
    from fusionscope.explain import Selection, explain

    numbers = count(1)
    marked: str | None = getattr(request, "param", None)

    def capture(
        function: Callable[..., Any],
        *arguments: Any,
        device: str = marked or "cpu",
        flags: Sequence[str] = (),
    ) -> Fusions:
        number = next(numbers)
        captured = capture_dump(
            function, *arguments, device=device, directory=tmp_path / f"dump-{number}", flags=flags
        )
        explanation = explain(open_dump(captured.directory), Selection(all_modules=True))
        test = request.node.name
        if marked is not None and len(request.node.callspec.params) == 1:
            test = request.node.originalname  # the device follows
        name = re.sub(r"[^\w.-]+", "-", f"{test}-{device}").strip("-")
        name = name if number == 1 else f"{name}-{number}"
        file = request.path.parent / _BASELINES / f"{request.path.stem}-{name}.json"
        return Fusions(explanation, file, request.config.getoption("--fusionscope-update"))

    return capture
