"""One kernel by itself: its code, its inputs and readers, and what kept it from growing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from fusionscope.explain.result import (
    KernelFacts,
    KernelInput,
    KernelOutput,
    KernelPage,
    PairFacts,
)
from fusionscope.explain.source_lines import user_line
from fusionscope.history.kernels import Kernel
from fusionscope.history.outcomes import Outcome, Pair, is_looked_through
from fusionscope.history.traffic import traffic
from fusionscope.hlo import Instruction
from fusionscope.hlo.attributes import split_attributes

_NEAR = 4
# They do not affect what is computed.
_NOT_SHOWN = frozenset({"backend_config", "frontend_attributes", "metadata", "sharding"})


def kernel_pages(
    kernels: Sequence[tuple[Kernel, KernelFacts]],
    pairs: Sequence[tuple[Pair, PairFacts]],
    name: str,
) -> tuple[KernelPage, ...]:
    """Return the kernels whose name matches ``name``, a shell glob."""
    refused = [each for each in pairs if each[0].outcome is Outcome.NOT_FUSED]
    return tuple(
        _page(kernel, facts, refused)
        for kernel, facts in kernels
        if fnmatchcase(kernel.name, name.lstrip("%"))
    )


def near_kernels(kernels: Sequence[tuple[Kernel, KernelFacts]], name: str) -> tuple[str, ...]:
    """Return the names nearest to ``name``."""
    names = [kernel.name for kernel, _ in kernels]
    return tuple(get_close_matches(name.strip("*%"), names, _NEAR, 0.4) or names[:_NEAR])


def _page(
    kernel: Kernel, facts: KernelFacts, refused: Sequence[tuple[Pair, PairFacts]]
) -> KernelPage:
    launch = kernel.instruction
    read = traffic(launch).operands
    inside = [each for called in launch.called for each in called.instructions] or [launch]
    places = (user_line(each.stack) for each in inside)
    return KernelPage(
        kernel=facts,
        inputs=tuple(
            KernelInput(operand.name, operand.opcode, str(operand.shape), read.get(operand, 0))
            for operand in dict.fromkeys(launch.operands)
        ),
        outputs=tuple(_outputs(launch)),
        hlo=tuple(_lines(launch)),
        sources=tuple(dict.fromkeys(str(place) for place in places if place)),
        began=_costliest(facts for pair, facts in refused if _is_in(pair.readers, kernel)),
        ended=_costliest(facts for pair, facts in refused if _is_in(pair.chain[:1], kernel)),
    )


def _is_in(numbers: Sequence[int], kernel: Kernel) -> bool:
    return any(number in kernel.values for number in numbers)


def _costliest(facts: Iterator[PairFacts]) -> tuple[PairFacts, ...]:
    return tuple(sorted(facts, key=lambda each: -each.bytes_saved))


def _outputs(launch: Instruction) -> Iterator[KernelOutput]:
    """Yield each array of the result, with its readers."""
    if not launch.shape.is_tuple:
        yield KernelOutput(str(launch.shape), tuple(_readers(launch)))
        return
    elements: dict[str, list[Instruction]] = {}
    for user in launch.users:
        if user.opcode == "get-tuple-element":
            elements.setdefault(user.attributes.get("index", "0"), []).append(user)
    for index, shape in enumerate(launch.shape.elements):
        readers = (name for each in elements.get(str(index), ()) for name in _readers(each))
        yield KernelOutput(str(shape), tuple(dict.fromkeys(readers)))


def _readers(instruction: Instruction) -> Iterator[str]:
    """Yield the readers of a value, without views; the caller reads a result of the program."""
    pending = [instruction]
    seen = {instruction}
    while pending:
        current = pending.pop()
        if current.is_root and current.computation.is_entry:
            yield "the caller"
        for user in current.users:
            if user in seen:
                continue
            seen.add(user)
            if is_looked_through(user):
                pending.append(user)
            else:
                yield user.name


def _lines(launch: Instruction) -> Iterator[str]:
    """Yield the launch and the content of a fusion: one line each, with the line of the program."""
    yield _line(launch)
    for called in launch.called:
        yield ""
        yield f"{called.name}:"
        for each in called.instructions:
            if "#" not in each.name:  # written as op#index by its users
                yield f"  {_line(each)}"


def _line(instruction: Instruction) -> str:
    statement = instruction.statement
    inside = statement.inside
    if instruction.opcode not in ("constant", "parameter"):
        inside = ", ".join(statement.operands)
    kept = "".join(
        f", {key}={value}"
        for key, value in split_attributes(statement.attributes).items()
        if key not in _NOT_SHOWN
    )
    place = user_line(instruction.stack)
    comment = f"  # {place}" if place else ""
    root = "ROOT " if instruction.is_root else ""
    return (
        f"{root}{statement.name} = {instruction.shape} {statement.opcode}({inside}){kept}{comment}"
    )
