"""Gives a running program the fusions of a plan."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import ContextDecorator, ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import distributions, version
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fusionscope.capture.hook import bindings, hooked, read_module, serialized
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.dump.cache import user_cache
from fusionscope.errors import UnusableInput, quoted
from fusionscope.graph.comparison import find_divergence
from fusionscope.hlo import Module, parse, to_text
from fusionscope.rerun.injection import Injection, find_received, inject
from fusionscope.rerun.plans import make_plan, own_plan
from fusionscope.rerun.rewritten import compile_file
from fusionscope.rerun.running import why_not_run
from fusionscope.rules.plan_files import PlanFile, read_plan
from fusionscope.system.files import read_file
from fusionscope.system.kept import code_digest

_KEY = "jax_xla_profile_version"  # a part of the keys of all of jax's caches
_NUMBERS = count(1_000_000)  # of plans, as that part
_HOOKS = count()  # several may be active at once


class NotApplied(RuntimeError):
    """A program was compiled without the plan that was to be applied to it."""


@dataclass(slots=True)
class Applied:
    """``programs`` counts the compilations that used the plan, ``others`` those of a different
    module with the same name, which were left unchanged."""

    programs: int = 0
    others: int = 0


def apply(plan: str | Path, dump: str | Path | None = None, *, strict: bool = False) -> Application:
    """Apply a plan file, such as ``tune`` writes: inside the block, or in a function that this
    decorates, the program that the plan is for gets the plan's fusions when jax compiles it for the
    CPU. Programs that were compiled before are compiled once more inside; what jax compiled outside
    stays, and counts again after the block. jax's persistent compilation cache is neither read nor
    written inside. Executables that the caller holds (``lower().compile()``) do not change.

    ``dump`` is a dump of that program, made by the same jaxlib; it is needed if the file names
    none. A program is recognised by its module at the compiler's hook. Warns if none was.
    The block raises ``UnusableInput`` if the plan cannot be used, as on GPUs: their compiler also
    needs flags for the whole process (``rerun`` sets them).
    """
    return Application(Path(plan), Path(dump) if dump is not None else None, strict)


class Application(ContextDecorator):
    """A plan to apply, as a context or a decorator. It is prepared when it is first used."""

    def __init__(self, plan: Path, dump: Path | None, is_strict: bool) -> None:
        self._plan, self._dump, self._is_strict = plan, dump, is_strict
        self._applied = Applied()
        self._prepared: _Prepared | None = None
        self._active: list[tuple[ExitStack, int]] = []

    def __enter__(self) -> Applied:
        if self._prepared is None:
            self._prepared = _prepare(self._plan, self._dump)
        stack = ExitStack()
        stack.enter_context(_hooked(self._prepared, self._applied))
        self._active.append((stack, self._applied.others))
        return self._applied

    def __exit__(self, *error: Any) -> None:
        stack, others_before = self._active.pop()
        stack.__exit__(*error)
        assert self._prepared is not None
        name, applied = self._prepared.expected.name, self._applied
        if error[0] is not None:
            return
        if self._is_strict and applied.others > others_before:
            raise NotApplied(f"{applied.others - others_before} other programs are called {name}")
        if not applied.programs:
            problem = f"{name} of {self._prepared.dump} was not compiled"
            if self._is_strict:
                raise NotApplied(problem)
            if not applied.others:
                warnings.warn(f"fusionscope: {problem}", stacklevel=2)


@dataclass(frozen=True, slots=True)
class _Prepared:
    """``proto``, a serialized module, is injected where the compiler's hook gets ``expected``,
    which ``dump`` shows. ``number`` tells jax's caches what was compiled with it.
    """

    dump: Path
    expected: Module
    proto: bytes
    number: int


def _prepare(file: Path, dump: Path | None) -> _Prepared:
    """Raises ``UnusableInput`` if the plan cannot be used."""
    plan_file = read_plan(file, takes_program=True)
    place = dump or plan_file.dump
    if place is None:
        raise UnusableInput("names no dump, so its program is unknown", file=str(file))
    module = _pick(open_dump(place).modules, plan_file.module, file)
    expected = find_received(module)
    if problem := why_not_run(module):
        raise UnusableInput(f"{module.name}: {problem}")
    if expected is None:
        raise UnusableInput(f"{module.name}: the dump does not show all passes")
    if "input_output_alias" in expected.attributes and version("jaxlib").startswith("0.10."):
        _warn(
            f"fusionscope: the hook of jaxlib 0.10 drops the donated arguments of {module.name}, "
            "which then takes more memory; jaxlib 0.11 keeps them"
        )
    injected = to_text(_find_module(module, plan_file, file))
    return _Prepared(place, expected, serialized(injected), next(_NUMBERS))


def _find_module(module: DumpedModule, plan_file: PlanFile, file: Path) -> Module:
    """Return what to inject, from an earlier run if plan, dump and compiler are the same. Raises
    ``UnusableInput`` if the plan cannot be used.
    """
    cache = user_cache()
    name = f"apply-{_digest(module, plan_file, file)}"
    saved_text = cache.read(name) if cache is not None else None
    if saved_text is not None:
        return parse(saved_text.decode())
    injection = _inject(module, plan_file)
    if injection.module is None:
        raise UnusableInput(f"{module.name}: the plan was rejected: {injection.problem}")
    if cache is not None:
        cache.write(name, to_text(injection.module).encode())
    return injection.module


def _digest(module: DumpedModule, plan_file: PlanFile, file: Path) -> str:
    """Return a name of everything that a prepared plan depends on."""
    digest = hashlib.sha256()
    jaxlib = [distribution.version for distribution in distributions(name="jaxlib")]
    for part in (code_digest(), jaxlib, sys.version, os.cpu_count(), module.number):
        digest.update(f"{part}\n".encode())
    files = [stage.text.path for stage in module.stages if stage.text is not None]
    for path in (file, *([plan_file.program] if plan_file.program else ()), *files):
        digest.update(hashlib.sha256(read_file(path)).digest())
    return digest.hexdigest()


def _inject(module: DumpedModule, plan_file: PlanFile) -> Injection:
    """Prepare the plan for the program of ``module``, or for the one that computes the same."""
    options: Any = {"python": sys.executable, "limit_s": 600.0}
    if plan_file.program is None:
        return inject(module, make_plan(module, plan_file.changes), **options)
    with TemporaryDirectory() as scratch:
        compiled = compile_file(module, plan_file.program, Path(scratch) / "dump", **options)
        plan = make_plan(compiled, plan_file.changes) if plan_file.changes else own_plan(compiled)
        return inject(compiled, plan, **options)


def _pick(modules: tuple[DumpedModule, ...], name: str | None, file: Path) -> DumpedModule:
    matches = [module for module in modules if name in (None, module.name)]
    if len(matches) != 1:
        raise UnusableInput(
            f"is for the module {quoted(name)}, of which the dump has {len(matches)}",
            file=str(file),
        )
    if matches[0].backend != "cpu":
        raise UnusableInput(f"{matches[0].name}: only plans for CPUs can be applied in a program")
    return matches[0]


@contextmanager
def _hooked(prepared: _Prepared, applied: Applied) -> Iterator[None]:
    expected = prepared.expected
    options = bindings().HloPrintOptions()
    options.print_large_constants = True

    def transform(proto: bytes) -> bytes:
        program = read_module(proto)
        if program.name != expected.name:
            return proto
        try:
            is_same = find_divergence(expected, parse(program.to_string(options))) is None
        except UnusableInput:
            is_same = False
        if is_same:
            applied.programs += 1
            return prepared.proto
        applied.others += 1
        _warn(f"fusionscope: another program called {expected.name} is compiled without the plan")
        return proto

    with _own_caches(prepared.number), hooked(transform, "cpu", f"fusionscope-{next(_HOOKS)}"):
        yield


def _warn(words: str) -> None:
    try:
        warnings.warn(words, stacklevel=2)
    except Warning:  # as an error, it would end the compilation
        logging.getLogger("fusionscope").warning("%s", words)


@contextmanager
def _own_caches(number: int) -> Iterator[None]:
    """Keep what is compiled in the block apart from what is compiled outside of it: jax's caches do
    not know about hooks. ``number`` is part of their keys, and nothing else reads it on a CPU. jax
    checks only once whether its persistent cache is on, so that state is reset as well, which
    leaves the files alone.
    """
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    def update(is_enabled: bool, key: int) -> None:
        jax.config.update("jax_enable_compilation_cache", is_enabled)
        compilation_cache.reset_cache()
        jax.config.update(_KEY, key)

    before = jax.config.jax_enable_compilation_cache, getattr(jax.config, _KEY)
    update(False, number)
    try:
        yield
    finally:
        update(*before)
