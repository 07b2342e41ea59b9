"""Programs and the targets that they are compiled for."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from fusionscope.capture.capture import capture
from fusionscope.capture.targets import read_program, read_target
from fusionscope.check.subject import Cell
from fusionscope.dump import open_dump
from fusionscope.dump.cache import DumpCache
from fusionscope.dump.names import CAPTURE_RECORD
from fusionscope.errors import UnusableInput, expected_one_of, quoted
from fusionscope.explain import Explanation, Selection, explain
from fusionscope.progress import Progress, silent
from fusionscope.system.cache import Cache
from fusionscope.system.files import is_there
from fusionscope.system.workers import in_order

_FOR_RESOURCES = ("--xla_dump_emitter_re=.*",)  # registers and spills are read from PTX


@dataclass(frozen=True, slots=True)
class MatrixProgram:
    """A function as ``capture`` takes it, with the shapes of its ``arguments`` (those of its
    example if there are none), and the names of its ``targets``.
    """

    name: str
    function: str
    arguments: tuple[str, ...]
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MatrixTarget:
    """A device as ``capture`` takes it, with XLA flags, and the Python whose jax compiles for it,
    None for any.
    """

    name: str
    device: str
    flags: tuple[str, ...] = ()
    python: str | None = None


@dataclass(frozen=True, slots=True)
class Matrix:
    """``folder`` is the one that names of files are relative to, ``file`` the name of the file in
    it that lists the rest.
    """

    folder: Path
    file: str
    programs: tuple[MatrixProgram, ...]
    targets: tuple[MatrixTarget, ...]

    @property
    def cells(self) -> list[tuple[MatrixProgram, MatrixTarget]]:
        return [
            (program, target)
            for program in self.programs
            for target in self.targets
            if target.name in program.targets
        ]

    def only(self, pattern: str) -> Matrix:
        """Return the matrix with the programs that a glob selects. Raises ``UnusableInput``."""
        programs = tuple(program for program in self.programs if fnmatchcase(program.name, pattern))
        if not programs:
            names = ", ".join(program.name for program in self.programs)
            raise UnusableInput(f"no program is called {quoted(pattern)}, there are {names}")
        return replace(self, programs=programs)

    def with_pythons(self, pythons: Mapping[str | None, str]) -> Matrix:
        """Return the matrix with these interpreters, by the names of targets; that of None is for
        all targets without one. Raises ``UnusableInput`` if there is no such target.
        """
        names = [target.name for target in self.targets]
        for name in pythons:
            if name is not None and name not in names:
                raise UnusableInput(
                    f"--python: no target is called {quoted(name)}, {expected_one_of(name, names)}"
                )
        default = pythons.get(None)
        return replace(
            self,
            targets=tuple(
                replace(target, python=pythons.get(target.name, target.python or default))
                for target in self.targets
            ),
        )


@dataclass(frozen=True, slots=True)
class NotCompiled:
    """A cell that has no dump, and why."""

    program: str
    target: str
    problem: UnusableInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """How the cells of a matrix are compiled and explained: what to find out, where results are
    kept (None for nowhere), the time limit of each compilation in seconds, and how many cells at
    once.
    """

    selection: Selection
    cache: Cache | None = None
    limit_s: float = 600.0
    jobs: int = 1

    def compile(
        self,
        matrix: Matrix,
        output: Path,
        *,
        only: set[tuple[str, str]] | None = None,
        progress: Progress = silent,
    ) -> list[Cell | NotCompiled]:
        """Compile each cell into ``output/PROGRAM/TARGET`` and explain its dump. A dump that is
        there already is explained as it is. ``only`` are names of programs and targets, by default
        all.
        """
        work = partial(self._compile, matrix.folder, output)
        cells = [
            (program, target)
            for program, target in matrix.cells
            if only is None or (program.name, target.name) in only
        ]
        results = in_order(work, cells, _name_of, jobs=self.jobs, progress=progress)
        return [
            NotCompiled(program.name, target.name, result)
            if isinstance(result, UnusableInput)
            else result
            for (program, target), result in zip(cells, results, strict=True)
        ]

    def explain(self, dump: Path, progress: Progress = silent) -> Explanation:
        """Explain a dump. Raises ``UnusableInput``."""
        opened = open_dump(dump)
        return explain(
            opened, self.selection, progress=progress, cache=DumpCache(opened, self.cache)
        )

    def _compile(
        self,
        folder: Path,
        output: Path,
        cell: tuple[MatrixProgram, MatrixTarget],
        progress: Progress,
    ) -> Cell:
        program, target = cell
        begin = time.perf_counter()
        dump = output / program.name / target.name
        if not is_there(dump / CAPTURE_RECORD):
            progress("compiling")
            more_flags = _FOR_RESOURCES if self.selection.resources else ()
            captured = capture(
                read_program(program.function, program.arguments, folder=folder),
                read_target(target.device),
                dump,
                flags=(*target.flags, *more_flags),
                python=target.python or sys.executable,
                limit_s=self.limit_s,
                folder=folder,
            )
            if captured.problem:
                shutil.rmtree(dump)  # the next check would take it for a whole one
                raise UnusableInput(captured.problem)
        explanation = self.explain(dump, progress)
        return Cell(explanation, program.name, target.name, time.perf_counter() - begin)


def _name_of(cell: tuple[MatrixProgram, MatrixTarget]) -> str:
    program, target = cell
    return f"{program.name} on {target.name}"
