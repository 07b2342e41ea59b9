"""The compiler's hook, through which a module is replaced before it is scheduled.

jax has a public function for it since 0.10.2 (jax/extend/xla.py). Where in the compiler it is, and
what the compiler does to the new module, is promised nowhere: ``find_problem`` tries it out on a
small program. Like ``child.py``, which loads this file, it runs under any Python that has jax, and
imports nothing of fusionscope.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

Transform = Callable[[bytes], bytes | None]

MISSING = "it has no hook (jax.extend.xla); 0.10.2 and later have one, for GPUs 0.11 and later"
_NAME = "fusionscope_test"
_PROGRAM = f"""HloModule {_NAME}, entry_computation_layout={{(f32[8]{{0}})->f32[8]{{0}}}}

ENTRY main {{
  x = f32[8]{{0}} parameter(0)
  y = f32[8]{{0}} negate(x)
  ROOT z = f32[8]{{0}} multiply(y, x)
}}
"""
# With bitcasts, as there are only after layouts are assigned.
_INJECTED = f"""HloModule {_NAME}, entry_computation_layout={{(f32[8]{{0}})->f32[8]{{0}}}}

kernel {{
  x = f32[2,4]{{1,0}} parameter(0)
  y = f32[2,4]{{1,0}} add(x, x)
  ROOT z = f32[2,4]{{1,0}} multiply(y, x)
}}

ENTRY main {{
  x = f32[8]{{0}} parameter(0)
  y = f32[2,4]{{1,0}} bitcast(x)
  z = f32[2,4]{{1,0}} fusion(y), kind=kLoop, calls=kernel
  ROOT w = f32[8]{{0}} bitcast(z)
}}
"""
_GIVEN, _RESULT = 3.0, 18.0  # of the injected program
# The hook of a CPU compiler comes after fusion, that of a GPU compiler before.
_RECEIVED = {"cpu": ["fusion"], "cuda": ["negate", "multiply"]}
_INSTRUCTION = re.compile(r"^ +(?:ROOT )?\S+ = \S+ ([\w-]+)\(", re.MULTILINE)


@contextmanager
def hooked(
    transform: Transform,
    platform: str,
    name: str = "fusionscope",
    *,
    after_scheduling: bool = False,
) -> Iterator[None]:
    """Give ``transform`` each module that is compiled for ``platform`` inside the block, as a
    serialized proto. It returns the one to compile instead, or None. ``name`` must differ from
    those of other hooks that are active. Raises ``ImportError`` if jax has no hook.
    """
    from jax.extend import xla

    place: dict[str, Any] = {"name": name, "platforms": platform}
    if after_scheduling:
        place["stage"] = xla.PipelineStage.POST_SCHEDULER
    xla.register_hlo_module_transformation(transform, **place)
    try:
        yield
    finally:
        xla.clear_hlo_module_transformation(**place)


def end_with(name: str, texts: list[str]) -> Transform:
    """Return a transformation that adds the text of the module of that name to ``texts``, and ends
    its compilation. The autotuner compiles parts of a module, under other names.
    """

    def end(proto: bytes) -> None:
        module = read_module(proto)
        if module.name == name:
            texts.append(module.to_string())
            raise InterruptedError("no code is needed")

    return end


def replace_module(name: str, text: str) -> Transform:
    """Return a transformation of the module of that name into ``text``. Others keep theirs: the
    autotuner compiles parts of a module, under other names.
    """
    proto = serialized(text)
    return lambda module: proto if read_module(module).name == name else None


def bindings() -> Any:
    """Return the part of jaxlib that reads and writes HLO."""
    return _part("_hlo", "_jax", "xla_extension")  # since 0.10.1, since 0.6.0, and before


def runtime() -> Any:
    """Return the part of jaxlib that compiles."""
    return _part("_jax", "xla_extension")


def _part(*names: str) -> Any:
    """Return the first part of jaxlib that there is."""
    name = next(name for name in names if find_spec(f"jaxlib.{name}"))
    return import_module(f"jaxlib.{name}")


def is_there() -> bool:
    """Return whether jax has a hook."""
    try:
        from jax.extend import xla  # noqa: F401
    except ImportError:
        return False
    return True


def has_post_scheduler() -> bool:
    """Return whether jax has a hook after scheduling, too."""
    try:
        from jax.extend.xla import PipelineStage  # noqa: F401
    except ImportError:
        return False
    return True


def read_module(proto: bytes) -> Any:
    return bindings().HloModule.from_serialized_hlo_module_proto(proto)


def serialized(text: str) -> bytes:
    """Return the proto of HLO text."""
    return bytes(bindings().hlo_module_from_text(text).as_serialized_hlo_module_proto())


def find_problem(platform: str, compile_text: Callable[[str], Any], device: Any) -> str:
    """Inject a fusion into a small program, and return how the compiler's hook differs from what
    plans rely on, or "" if it does not. ``compile_text`` compiles HLO. ``device`` is where to run
    the result, or None.
    """
    if not is_there():
        return MISSING
    received: list[str] = []
    proto = serialized(_INJECTED)

    def transform(module: bytes) -> bytes | None:
        program = read_module(module)
        if program.name != _NAME:
            return None
        received.append(program.to_string())
        return proto

    try:
        with hooked(transform, platform):
            executable = compile_text(_PROGRAM)
        if not received:
            return "the compiler does not call its hook"
        kernels, expected = _kernels(received[0]), _RECEIVED[platform]
        if set(kernels) != set(expected):
            return (
                f"the hook is elsewhere in the compiler, for it is given {', '.join(kernels)} "
                f"instead of {', '.join(expected)}"
            )
        (final,) = (module.to_string() for module in executable.hlo_modules())
        if _kernels(final) != ["fusion"] or final.count(" add(") != 1:
            return f"an injected fusion is compiled to {', '.join(_kernels(final))}"
        if device is not None and (result := _run(executable, device)) != [_RESULT] * 8:
            return f"an injected fusion computes {result[0]:g} instead of {_RESULT:g}"
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    return ""


def _kernels(text: str) -> list[str]:
    """Return the opcodes of what the entry computes."""
    entry = text[text.index("\nENTRY ") :]
    return [match for match in _INSTRUCTION.findall(entry) if match not in ("bitcast", "parameter")]


def _run(executable: Any, device: Any) -> list[float]:
    import jax
    import numpy

    argument = jax.device_put(numpy.full(8, _GIVEN, "float32"), device)
    (shards,) = executable.execute_sharded([argument]).disassemble_into_single_device_arrays()
    return [float(value) for value in numpy.asarray(shards[0])]
