"""A module becomes text that the compiler's own parser accepts."""

from __future__ import annotations

from collections.abc import Iterator

from fusionscope.hlo.model import Body, Module, Statement


def to_text(module: Module) -> str:
    """The module in the compiler's form; parsing it gives an equal module."""
    return "".join(_pieces(module))


def _pieces(module: Module) -> Iterator[str]:
    yield f"HloModule {module.name}{module.header}\n\n"
    if module.frames is not None:
        yield f"{module.frames.text}\n\n"
    for index, body in enumerate(module.bodies):
        yield from _computation(body, index == module.entry_index)


def _computation(body: Body, is_entry: bool) -> Iterator[str]:
    entry = "ENTRY " if is_entry else ""
    signature = f" {body.signature}" if body.signature else ""
    yield f"{entry}%{body.name}{signature} {{\n"
    for statement in body.statements:
        if "#" not in statement.name:
            yield f"  {statement_text(statement)}\n"
    yield f"}}{body.footer}\n\n"


def statement_text(statement: Statement) -> str:
    """One instruction on one line, as the compiler prints it."""
    root = "ROOT " if statement.is_root else ""
    if statement.literal is not None:
        inner = statement.literal
    elif statement.typed is not None:
        inner = ", ".join(
            f"{shape} %{name}" if shape is not None else f"%{name}"
            for shape, name in zip(statement.typed, statement.operands, strict=True)
        )
    else:
        inner = ", ".join(f"%{name}" for name in statement.operands)
    return (
        f"{root}%{statement.name} = {statement.shape} {statement.opcode}({inner})"
        f"{statement.attributes}"
    )
