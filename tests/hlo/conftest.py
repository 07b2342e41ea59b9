"""The compiler's own parser, where it is installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def oracle() -> ModuleType:
    """tests/fleet/oracle.py, which asks jaxlib."""
    hlo = pytest.importorskip("jaxlib._hlo")
    if not hasattr(hlo.HloInstruction, "shape"):
        pytest.skip("this jaxlib does not show what its parser reads")
    file = Path(__file__).parents[1] / "fleet" / "oracle.py"
    spec = importlib.util.spec_from_file_location("oracle", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
