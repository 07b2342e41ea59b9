"""A condition of the compiler that is not met, in words."""

from __future__ import annotations

from collections.abc import Iterator

from fusionscope.graph.mutable import MutableModule, to_module
from fusionscope.hlo import Module
from fusionscope.rules.pages import read_page
from fusionscope.words.section import Line, Tone, line


def condition_lines(
    rule: str, why: str, at: str | None, edit: tuple[str, ...] = (), edit_changes: str = ""
) -> Iterator[Line]:
    """Yield what was found ``at`` an instruction, what the page of ``rule`` advises, and an edit of
    the stage, which changes the result as ``edit_changes`` says.
    """
    yield line(f"{rule}: {why}{f' ({at})' if at else ''}")
    if lever := read_page(rule).lever:
        yield line(f"you can {lever}", Tone.HINT)
    if edit:
        changes = f" (changes the result: {edit_changes})" if edit_changes else ""
        yield line(f"or, as HLO{changes}:", Tone.HINT)
        yield from (line(f"  {statement}", Tone.QUIET, is_cut=True) for statement in edit)


def edited_lines(before: Module, graph: MutableModule) -> tuple[str, ...]:
    """Return the instructions that ``graph``, which ``before`` was, has in place of others, or
    more, without metadata and configurations.
    """
    texts = set(_statements(to_module(MutableModule(before))))
    return tuple(text for text in _statements(to_module(graph)) if text not in texts)


def _statements(module: Module) -> Iterator[str]:
    for instruction in module.walk():
        attributes = "".join(
            f", {key}={value}"
            for key, value in instruction.attributes.items()
            if key not in ("backend_config", "metadata")
        )
        operands = ", ".join(operand.name for operand in instruction.operands)
        result = f"{'ROOT ' if instruction.is_root else ''}{instruction.name} = {instruction.shape}"
        inside = operands or instruction.plain_inside
        yield f"{result} {instruction.opcode}({inside}){attributes}"
