"""Prints a module as text that the compiler's own parser accepts."""

from __future__ import annotations

from collections.abc import Iterator

from fusionscope.hlo.model import Computation, Instruction, Module


def to_text(module: Module) -> str:
    """Return the module in the compiler's form. Parsing it gives an equal module.

    A negative zero becomes ``-0.0``: the compiler prints ``-0``, and reads that as 0.
    """
    return "".join(_pieces(module))


def _pieces(module: Module) -> Iterator[str]:
    yield f"HloModule {module.name}{module.header}\n\n"
    if module.frames is not None:
        yield f"{module.frames.text}\n\n"
    for computation in module.computations:
        yield from _computation(computation)


def computation_text(computation: Computation) -> str:
    """Return one computation, as the compiler prints it."""
    return "".join(_computation(computation))


def _computation(computation: Computation) -> Iterator[str]:
    entry = "ENTRY " if computation.is_entry else ""
    signature = f" {computation.body.signature}" if computation.body.signature else ""
    yield f"{entry}%{computation.name}{signature} {{\n"
    for instruction in computation.instructions:
        if "#" not in instruction.name:  # written as op#index by its users
            yield f"  {instruction_text(instruction)}\n"
    yield f"}}{computation.body.footer}\n\n"


def instruction_text(instruction: Instruction) -> str:
    """Return one instruction on one line, as the compiler prints it."""
    statement = instruction.statement
    root = "ROOT " if instruction.is_root else ""
    inside = instruction.plain_inside
    if statement.opcode not in ("constant", "parameter"):
        inside = ", ".join(f"%{name}" for name in statement.operands)
    return (
        f"{root}%{statement.name} = {instruction.shape} {statement.opcode}({inside})"
        f"{statement.attributes}"
    )
