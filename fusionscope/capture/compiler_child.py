"""Compiles one program after another for one target, in a process of its own.

    PYTHON compiler_child.py

Reads one JSON request per line and answers each with a line. The first names the device. Like
``child.py``, whose functions it uses, it runs under any Python that has jax, and imports nothing of
fusionscope.
"""

from __future__ import annotations

import importlib.util
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any


def _load_child() -> Any:
    path = Path(__file__).with_name("child.py")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


child = _load_child()


def _open(request: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    return {"versions": child._versions()}, Compiler(request["device"]).compile


class Compiler:
    """The compiler for one device."""

    def __init__(self, device: dict[str, Any]) -> None:
        try:
            import jax  # noqa: F401
        except ImportError as error:
            raise child.Unusable(f"{sys.executable} has no jax: {error}") from None
        self._device = device
        self._places = child.find_devices(device, 1)
        self._ends_early = device["platform"] == "cuda" and child.hook.has_post_scheduler()

    def compile(self, request: dict[str, Any]) -> dict[str, str]:
        """Return the optimized module of the HLO ``text``, compiled with ``options``, as text. If
        it is wanted as it is when it is ``scheduled``, no code is generated where jax has the hook.
        """
        from jax._src.interpreters import mlir

        with mlir.make_ir_context(), ExitStack() as hooks:
            module = child.parse_module(request["text"].encode(), "hlo")
            scheduled: list[str] = []
            if request["scheduled"] and self._ends_early:
                end = child.hook.end_with(child.module_name(module), scheduled)
                hooks.enter_context(child.hook.hooked(end, "cuda", after_scheduling=True))
            try:
                executable = child.compile_module(
                    module, self._device, self._places, options=request["options"]
                )
            except Exception:
                if not scheduled:
                    raise
                return {"final": scheduled[0]}
            (final,) = executable.hlo_modules()
            return {"final": str(final.to_string())}


if __name__ == "__main__":
    child.serve(_open)
