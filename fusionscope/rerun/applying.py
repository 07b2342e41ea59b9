"""Gives a running program the fusions of a plan."""

from __future__ import annotations

import hashlib
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import distributions
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fusionscope.capture.hook import hooked, read_module
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.dump.cache import code_digest, user_cache
from fusionscope.errors import UnusableInput, quoted
from fusionscope.graph.comparison import find_divergence
from fusionscope.hlo import Module, parse, to_text
from fusionscope.rerun.injection import Injection, find_received, inject
from fusionscope.rerun.plans import make_plan, own_plan
from fusionscope.rerun.rewritten import compile_program
from fusionscope.rerun.running import why_not_run
from fusionscope.rules.plan_files import PlanFile, read_plan
from fusionscope.system.files import read_file, read_text

_NUMBERS = count()  # of hooks: several plans may be active at once


class NotApplied(RuntimeError):
    """A program was compiled without the plan that was to be applied to it."""


@dataclass(slots=True)
class Applied:
    """``programs`` counts the compilations that used the plan, ``others`` those of a different
    module with the same name, which were left unchanged."""

    programs: int = 0
    others: int = 0


@contextmanager
def apply(
    plan: str | Path, dump: str | Path | None = None, *, strict: bool = False
) -> Iterator[Applied]:
    """Apply a plan file, such as ``tune`` writes: inside the block, the program that the plan is
    for gets the plan's fusions when jax compiles it for the CPU. Earlier compilations are repeated
    inside, and again after the block, without the plan. jax's persistent compilation cache is
    neither read nor written inside. Executables that the caller holds (``lower().compile()``) do
    not change.

    ``dump`` is a dump of that program, made by the same jaxlib; it is needed if the file names
    none. A program is recognised by its module at the compiler's hook. Warns if none was.
    Raises ``UnusableInput`` if the plan cannot be used, as on GPUs: their compiler also needs flags
    for the whole process (``rerun`` sets them).
    """
    file = Path(plan)
    written = read_plan(file, takes_program=True)
    place = Path(dump) if dump is not None else written.dump
    if place is None:
        raise UnusableInput("names no dump, so its program is unknown", file=str(file))
    module = _pick(open_dump(place).modules, written.module, file)
    expected = find_received(module)
    if problem := why_not_run(module):
        raise UnusableInput(f"{module.name}: {problem}")
    if expected is None:
        raise UnusableInput(f"{module.name}: the dump does not show all passes")
    injected = _prepare(module, written, file)
    applied = Applied()
    with _hooked(expected, injected, applied):
        yield applied
    if strict and applied.others:
        raise NotApplied(f"{applied.others} other programs are called {module.name}")
    if not applied.programs:
        problem = f"{module.name} of {place} was not compiled"
        if strict:
            raise NotApplied(problem)
        if not applied.others:
            warnings.warn(f"fusionscope: {problem}", stacklevel=3)


def _prepare(module: DumpedModule, written: PlanFile, file: Path) -> Module:
    """Return what to inject, from an earlier run if plan, dump and compiler are the same. Raises
    ``UnusableInput`` if the plan cannot be used.
    """
    cache = user_cache()
    name = f"apply-{_digest(module, written, file)}"
    kept = cache.read(name) if cache is not None else None
    if kept is not None:
        return parse(kept.decode())
    injection = _inject(module, written)
    if injection.module is None:
        raise UnusableInput(f"{module.name}: the plan was rejected: {injection.problem}")
    if cache is not None:
        cache.write(name, to_text(injection.module).encode())
    return injection.module


def _digest(module: DumpedModule, written: PlanFile, file: Path) -> str:
    """Return a name of everything that a prepared plan depends on."""
    found = hashlib.sha256()
    jaxlib = [each.version for each in distributions(name="jaxlib")]
    for each in (code_digest(), jaxlib, sys.version, os.cpu_count(), module.number):
        found.update(f"{each}\n".encode())
    files = [stage.text.path for stage in module.stages if stage.text is not None]
    for path in (file, *([written.program] if written.program else ()), *files):
        found.update(hashlib.sha256(read_file(path)).digest())
    return found.hexdigest()


def _inject(module: DumpedModule, written: PlanFile) -> Injection:
    """Prepare the plan for the program of ``module``, or for the one that computes the same."""
    options: Any = {"python": sys.executable, "limit_s": 600.0}
    if written.program is None:
        return inject(module, make_plan(module, written.changes), **options)
    program = parse(read_text(written.program), file=str(written.program))
    with TemporaryDirectory() as scratch:
        made = compile_program(module, program, Path(scratch) / "dump", **options)
        plan = make_plan(made, written.changes) if written.changes else own_plan(made)
        return inject(made, plan, **options)


def _pick(modules: tuple[DumpedModule, ...], name: str | None, file: Path) -> DumpedModule:
    found = [each for each in modules if name in (None, each.name)]
    if len(found) != 1:
        raise UnusableInput(
            f"is for the module {quoted(name)}, of which the dump has {len(found)}", file=str(file)
        )
    if found[0].backend != "cpu":
        raise UnusableInput(f"{found[0].name}: only plans for CPUs can be applied in a program")
    return found[0]


@contextmanager
def _hooked(expected: Module, module: Module, applied: Applied) -> Iterator[None]:
    from jaxlib import _hlo

    proto = _hlo.hlo_module_from_text(to_text(module)).as_serialized_hlo_module_proto()
    options = _hlo.HloPrintOptions()
    options.print_large_constants = True

    def transform(given: bytes) -> bytes:
        found = read_module(given)
        if found.name != expected.name:
            return given
        try:
            is_same = find_divergence(expected, parse(found.to_string(options))) is None
        except UnusableInput:
            is_same = False
        if is_same:
            applied.programs += 1
            return bytes(proto)
        applied.others += 1
        _warn(f"fusionscope: another program called {expected.name} is compiled without the plan")
        return given

    hook = f"fusionscope-{next(_NUMBERS)}"
    with _without_caches(), hooked(transform, "cpu", hook):
        yield


def _warn(words: str) -> None:
    try:
        warnings.warn(words, stacklevel=2)
    except Warning:  # as an error, it would end the compilation
        print(words, file=sys.stderr)


@contextmanager
def _without_caches() -> Iterator[None]:
    """Isolate the block from executables compiled outside of it, and the other way round: jax's
    caches do not know about hooks. jax checks only once whether its persistent cache is on, so that
    state is reset as well, which leaves the files alone.
    """
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    def enable(is_enabled: bool) -> None:
        jax.config.update("jax_enable_compilation_cache", is_enabled)
        compilation_cache.reset_cache()

    was_enabled = jax.config.jax_enable_compilation_cache
    enable(False)
    jax.clear_caches()
    try:
        yield
    finally:
        jax.clear_caches()
        enable(was_enabled)
