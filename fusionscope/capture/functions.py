"""Dumps functions of the running process, compiled in another one: XLA reads its flags only once
per process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fusionscope.capture import child
from fusionscope.capture.capture import CONSTANTS, DUMP, INPUTS, Captured, capture
from fusionscope.capture.targets import Target, read_program, read_target
from fusionscope.errors import UnusableInput
from fusionscope.system.files import free_directory, write_file

# jax's names of the platforms for which it lowers.
_LOWERED_FOR = {"gpu": "cuda"}


def capture_dump(
    function: Callable[..., Any],
    *arguments: Any,
    device: str = "cpu",
    directory: str | Path,
    flags: Sequence[str] = (),
    record_inputs: bool = False,
) -> Captured:
    """Compile a jax function for ``device``, which need not be present, and dump every stage into
    ``directory``, which must be empty or new.

    ``arguments`` are arrays, anything with a shape and a dtype, or trees of these; ``device`` and
    ``flags`` are as on the command line. ``record_inputs`` keeps the arrays beside the dump, for
    ``rerun``, and large constants in it. Raises ``UnusableInput``, and whatever jax raises if it
    cannot trace the function.
    """
    import jax

    target = read_target(device)
    jitted: Any = function if hasattr(function, "trace") else jax.jit(function)
    platform = _LOWERED_FOR.get(target.platform, target.platform)
    lowered = jitted.trace(*arguments).lower(lowering_platforms=(platform,))
    module = lowered.compiler_ir("stablehlo").operation
    with TemporaryDirectory() as scratch:
        file = Path(scratch) / "function.mlir"
        write_file(file, module.get_asm(enable_debug_info=True))
        if record_inputs:
            flags = [*flags, CONSTANTS]
        captured = capture(read_program(str(file)), target, Path(directory), flags=flags)
    if record_inputs:
        try:
            child.record_inputs(arguments, lowered, captured.directory / INPUTS)
        except child.Unusable as problem:
            raise UnusableInput(str(problem)) from None
    return captured


@contextmanager
def capturing(
    directory: str | Path | None = None, *, device: str = "cpu", flags: Sequence[str] = ()
) -> Iterator[list[Captured]]:
    """At the end of the block, recompile for ``device`` each program that jax compiled inside, and
    dump it into its own folder in ``directory``, by default the first of ``fusionscope-dump``,
    ``fusionscope-dump-2``, … that is new or empty. The yielded list is filled then.

    A program was lowered for the device on which it ran, and may call libraries that another
    device lacks: its result reports that. Raises ``UnusableInput``.
    """
    import jax

    target = read_target(device)
    captured: list[Captured] = []
    with TemporaryDirectory() as scratch:
        jax.clear_caches()  # earlier compilations are repeated
        jax.config.update("jax_dump_ir_to", scratch)
        try:
            yield captured
        finally:
            jax.config.update("jax_dump_ir_to", "")
        files = sorted(Path(scratch).glob("*_compile.mlir"))
        place = free_directory(Path(DUMP)) if directory is None else Path(directory)
        captured += _capture_all(files, target, place, flags)


def _capture_all(
    files: Sequence[Path], target: Target, directory: Path, flags: Sequence[str]
) -> Iterator[Captured]:
    if not files:
        raise UnusableInput("jax compiled nothing in this block")
    for file in files:
        program = read_program(str(file))
        yield capture(program, target, directory / file.stem, flags=flags)
