"""The packages that only a survey needs."""

from __future__ import annotations

import importlib
from typing import Any

from fusionscope.errors import UnusableInput


def needed(package: str, extra: str = "survey") -> Any:
    """Import a package. Raises ``UnusableInput`` if it is not installed."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise UnusableInput(
            f"a survey needs the package {package.partition('.')[0]}: "
            f"pip install 'fusionscope[{extra}]'"
        ) from None
