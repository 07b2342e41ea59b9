"""Imports a Python file from anywhere, as the scripts of this folder need now and then."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def load(file: Path) -> ModuleType:
    """The module of a file, by the name of the file. Raises what the file raises."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
