"""What a git revision, or another dump, says about the modules of a check."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from fusionscope.check.as_before import Origin, Tolerance
from fusionscope.check.baseline import Baseline, record_all
from fusionscope.check.expectation_files import read_expected
from fusionscope.check.matrix import Compiler, Matrix, NotCompiled
from fusionscope.check.record import key_of
from fusionscope.check.revisions import CheckedOut, checked_out
from fusionscope.check.subject import Cell
from fusionscope.errors import UnusableInput, quoted
from fusionscope.progress import Progress, about
from fusionscope.system.files import is_directory, is_there

_COMMIT_LENGTH = 40
_SHOWN = 10  # characters of a commit


def read_base(
    compiler: Compiler,
    against: str,
    matrix: Matrix | None,
    cells: Sequence[Cell],
    tolerance: Tolerance,
    progress: Progress,
) -> tuple[Baseline, list[str]]:
    """Return the records of the modules in ``against``, a dump or a revision, and a line for each
    that it does not have. A dump has to have one of the modules of ``cells``; of a revision, the
    programs of ``matrix`` are compiled. Raises ``UnusableInput``.
    """
    progress = about(against, progress)
    problems: list[str] = []
    if is_there(Path(against)):
        name = against
        base = _from_dumps(compiler, Path(against), matrix, progress)
        modules = record_all(base)
        identities = {key.identity for key, _ in modules}
        if identities.isdisjoint(
            key_of(subject).identity for cell in cells for subject in cell.subjects
        ):
            names = ", ".join(str(key) for key, _ in modules[:4]) or "no dump of these programs"
            raise UnusableInput(f"none of the modules is in it, it has {names}", file=against)
    else:
        if matrix is None:
            raise UnusableInput(
                f"--against {quoted(against)}: no such dump, and only the programs of a matrix can "
                "be compiled as they were in a revision",
                hint="list programs and targets in fusionscope.toml",
            )
        name = against[:_SHOWN] if _is_commit(against) else against
        compiled = {(cell.program, cell.target) for cell in cells}
        base, problems = _from_revision(compiler, against, name, matrix, compiled, progress)
        modules = record_all(base)
    return Baseline(modules, tolerance, Origin(name, is_base=True)), problems


def _is_commit(name: str) -> bool:
    return len(name) == _COMMIT_LENGTH and set(name) <= set("0123456789abcdef")


def _from_dumps(
    compiler: Compiler, path: Path, matrix: Matrix | None, progress: Progress
) -> list[Cell]:
    """Explain a dump, or the dumps of a matrix that an earlier check kept."""
    dumps_kept = [
        (program.name, target.name, path / program.name / target.name)
        for program, target in (matrix.cells if matrix is not None else ())
        if is_directory(path / program.name / target.name)
    ]
    if dumps_kept or matrix is not None:
        return [
            Cell(compiler.explain(dump, progress), program, target)
            for program, target, dump in dumps_kept
        ]
    return [Cell(compiler.explain(path, progress))]


def _from_revision(
    compiler: Compiler,
    revision: str,
    name: str,
    matrix: Matrix,
    compiled: set[tuple[str, str]],
    progress: Progress,
) -> tuple[list[Cell], list[str]]:
    with checked_out(revision, matrix.folder) as there, TemporaryDirectory() as output:
        own_matrix = _matrix_in(there, matrix)
        results = compiler.compile(own_matrix, Path(output), only=compiled, progress=progress)
        cells = [result for result in results if isinstance(result, Cell)]
        for cell in cells:
            _require_from(cell, own_matrix, there, name)
    return cells, [
        f"{name}: {result.program} on {result.target}: {result.problem.problem}"
        for result in results
        if isinstance(result, NotCompiled)
    ]


def _matrix_in(there: CheckedOut, matrix: Matrix) -> Matrix:
    """Return the matrix that the revision lists, with the interpreters of ``matrix``; if it lists
    none that can be read, the programs of ``matrix`` as they are there.
    """
    own_matrix = None
    with suppress(UnusableInput):
        own_matrix = read_expected(there.folder / matrix.file).matrix
    if own_matrix is None:
        return replace(matrix, folder=there.folder)
    pythons = {target.name: target.python for target in matrix.targets}
    targets = (replace(target, python=pythons.get(target.name)) for target in own_matrix.targets)
    return replace(own_matrix, targets=tuple(targets))


def _require_from(cell: Cell, matrix: Matrix, there: CheckedOut, name: str) -> None:
    """Raises ``UnusableInput`` if the program was not imported from the revision: it would be
    compared with itself.
    """
    (program,) = (program for program in matrix.programs if program.name == cell.program)
    if ".py:" in program.function:
        return
    files = {
        place.file
        for subject in cell.subjects
        if subject.final.frames is not None
        for place in subject.final.frames.locations()
    }
    if files and not any(Path(file).is_relative_to(there.top) for file in files):
        raise UnusableInput(
            f"{program.function} was not imported from {name}, but from an installed package",
            hint="name its file instead, such as src/package/module.py:function",
        )
