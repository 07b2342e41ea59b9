"""The compiler's own parser, where it is installed."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def oracle() -> ModuleType:
    """The check `parser`, which asks jaxlib."""
    hlo = pytest.importorskip("jaxlib._hlo")
    if not hasattr(hlo.HloInstruction, "shape"):
        pytest.skip("this jaxlib does not show what its parser reads")
    return importlib.import_module("conformance.parser")
