"""The compiler's hook: what differs from what plans rely on is found and named."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fusionscope import UnusableInput
from fusionscope.capture import child, hook
from fusionscope.capture.capture import capture
from fusionscope.capture.hook import find_problem, hooked, read_module
from fusionscope.capture.targets import read_program, read_target
from fusionscope.dump import open_dump
from fusionscope.rerun.plans import own_plan
from fusionscope.rerun.rerun import rerun

pytestmark = pytest.mark.skipif(find_spec("jax") is None, reason="needs jax")
with_cuda = pytest.mark.skipif(
    find_spec("jax_cuda13_plugin") is None, reason="needs jax's plugin for CUDA"
)
DUMPS = Path(__file__).parents[2] / "samples" / "dumps" / "cpu"
CPU: dict[str, Any] = {"name": "cpu", "platform": "cpu", "is_here": True, "description": None}


def compiled(text: str, flags: Sequence[str] = ()) -> Any:
    from jax._src.interpreters import mlir

    (place,) = child.find_devices(CPU, 1)
    with mlir.make_ir_context():
        module = child.parse_module(text.encode(), "hlo")
        return child.compile_module(module, CPU, [place], flags=flags)


def test_bindings_of_earlier_releases_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {"jaxlib.xla_extension"}
    monkeypatch.setattr(hook, "find_spec", lambda name: name if name in parts else None)
    monkeypatch.setattr(hook, "import_module", str)
    assert (hook.bindings(), hook.runtime()) == ("jaxlib.xla_extension",) * 2
    parts |= {"jaxlib._hlo", "jaxlib._jax"}
    assert (hook.bindings(), hook.runtime()) == ("jaxlib._hlo", "jaxlib._jax")


def test_a_client_of_jaxlib_0_5_takes_bytes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from jax._src.interpreters import mlir

    class Client:
        def compile(self, module: bytes, options: object) -> tuple[bytes, object]:
            if not isinstance(module, bytes):
                raise TypeError
            return module, options

    mlir_of_05 = SimpleNamespace(xla_computation_to_mlir_module=lambda computation: computation)
    runtime = SimpleNamespace(mlir=mlir_of_05, XlaComputation=bytes.decode, DeviceList=tuple)
    monkeypatch.setattr(child.hook, "runtime", lambda: runtime)
    assert child._stablehlo(b"module {}") == "module {}"
    with mlir.make_ir_context():
        module = child.parse_module(b"module {}", "stablehlo")
        data, _ = child.compile_module(module, CPU, [SimpleNamespace(client=Client())])
    assert data == mlir.module_to_bytecode(module)


def found(compile_text: Callable[[str], Any]) -> str:
    return find_problem("cpu", compile_text, child.find_devices(CPU, 1)[0])


def changed_behind(old: str, new: str) -> Callable[[str], Any]:
    """Compile with a second hook that changes what the first one returns."""
    from jaxlib import _hlo

    def transform(module: bytes) -> bytes:
        text = read_module(module).to_string().replace(old, new)
        return bytes(_hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto())

    def compile_text(text: str) -> Any:
        with hooked(transform, "cpu", "another"):
            return compiled(text)

    return compile_text


def test_the_hook_is_as_plans_need_it() -> None:
    assert found(compiled) == ""


def test_a_hook_that_is_not_called() -> None:
    assert "does not call its hook" in found(lambda _: None)


def test_a_hook_before_fusion() -> None:
    flags = ["--xla_disable_hlo_passes=fusion,cpu_multi_output_fusion,fusion-wrapper"]
    problem = found(lambda text: compiled(text, flags))
    assert "is given negate, multiply instead of fusion" in problem


def test_an_injected_fusion_that_is_changed() -> None:
    assert "computes 3 instead of 18" in found(changed_behind(" multiply(", " subtract("))
    assert "is compiled to fusion" in found(changed_behind(" add(", " subtract("))


def test_a_compiler_that_fails() -> None:
    def failing(text: str) -> Any:
        raise RuntimeError("two\nlines")

    assert found(failing) == "RuntimeError: two lines"


@with_cuda
def test_a_gpu_compiler_that_assigns_layouts_behind_the_hook(tmp_path: Path) -> None:
    """As it happens if the pipelines that a plan turns off have new names."""
    text = (
        "HloModule m\n\nENTRY e {\n  x = f32[4]{0} parameter(0)\n  ROOT y = f32[4]{0} NEW(x)\n}\n"
    )
    (tmp_path / "program.hlo").write_text(text.replace("NEW", "tanh"))
    program, target = read_program(str(tmp_path / "program.hlo")), read_target("h100")
    put = text.replace("NEW", "exponential")
    with pytest.raises(UnusableInput, match=r"jaxlib .* does not take plans: .*layout"):
        capture(program, target, tmp_path / "refused", replacement=put)
    flags = ["--xla_disable_hlo_passes=layout assignment,fusion"]
    assert capture(program, target, tmp_path / "taken", flags=flags, replacement=put).problem == ""


WITHOUT = """import sys

sys.modules["jax.extend.xla"] = None
"""


def test_a_jaxlib_without_a_hook_is_refused_before_it_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(WITHOUT)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    (module,) = open_dump(DUMPS / "elementwise").modules
    with pytest.raises(UnusableInput, match=r"has no hook .*; 0\.10\.2 and later have one"):
        rerun(module, own_plan(module), tmp_path / "again")
    assert not (tmp_path / "again").exists()
