"""Compiles another program in the place of a dumped one."""

from __future__ import annotations

from pathlib import Path

from fusionscope.capture.capture import CONSTANTS, capture
from fusionscope.capture.targets import Program, ProgramKind
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.errors import UnusableInput
from fusionscope.hlo import Module, parse, to_text
from fusionscope.rerun.programs import disable_flag, find_target, own_flags
from fusionscope.system.files import read_text, write_file


def compile_program(
    module: DumpedModule, program: Module, directory: Path, *, python: str, limit_s: float
) -> DumpedModule:
    """Compile ``program`` with the flags and for the target of ``module``, and dump it into
    ``directory``, which must be empty or new. Raises ``UnusableInput`` if that fails.
    """
    file = directory.with_name("program.hlo")
    write_file(file, to_text(program))
    captured = capture(
        Program(kind=ProgramKind.HLO, file=file),
        find_target(module),
        directory,
        flags=[*own_flags(module), *disable_flag(module), CONSTANTS],
        python=python,
        limit_s=limit_s,
    )
    if captured.problem:
        raise UnusableInput(f"{module.name}: cannot be compiled: {captured.problem}")
    (dump,) = open_dump(captured.directory).modules
    return dump


def compile_file(
    module: DumpedModule, file: Path, directory: Path, *, python: str, limit_s: float
) -> DumpedModule:
    """Compile the program whose HLO text is in ``file``, like ``compile_program``."""
    program = parse(read_text(file), file=str(file))
    return compile_program(module, program, directory, python=python, limit_s=limit_s)
