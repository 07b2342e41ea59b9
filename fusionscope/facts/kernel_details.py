"""One kernel by itself: its code, its inputs and readers, and what kept it from growing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fusionscope.facts.module_analysis import KernelDetails
from fusionscope.facts.origins import Origins
from fusionscope.facts.result import KernelInput, KernelOutput
from fusionscope.facts.source_lines import user_line
from fusionscope.grouping import grouped
from fusionscope.history.kernels import Kernel
from fusionscope.history.outcomes import Outcome, Pair, is_looked_through
from fusionscope.history.traffic import traffic
from fusionscope.hlo import Instruction
from fusionscope.hlo.attributes import split_attributes
from fusionscope.hlo.search import reachable

# They do not affect what is computed.
_NOT_SHOWN = frozenset({"backend_config", "frontend_attributes", "metadata", "sharding"})


def kernel_details(
    kernels: Sequence[Kernel], pairs: Sequence[Pair], origins: Origins
) -> tuple[KernelDetails, ...]:
    """Return the details of each kernel. ``pairs`` are those that the numbers of pairs mean."""
    computing = grouped(
        (value, number) for number, kernel in enumerate(kernels) for value in kernel.values
    )
    began: list[list[int]] = [[] for _ in kernels]
    ended: list[list[int]] = [[] for _ in kernels]
    for number, pair in enumerate(pairs):
        if pair.outcome is Outcome.NOT_FUSED:
            for borders, values in ((began, pair.readers), (ended, pair.chain[:1])):
                for holder in {
                    computing_kernel
                    for value in values
                    for computing_kernel in computing.get(value, ())
                }:
                    borders[holder].append(number)
    return tuple(
        _details(kernel, origins, tuple(first), tuple(last))
        for kernel, first, last in zip(kernels, began, ended, strict=True)
    )


def _details(
    kernel: Kernel, origins: Origins, began: tuple[int, ...], ended: tuple[int, ...]
) -> KernelDetails:
    launch = kernel.instruction
    read = traffic(launch).operands
    inside = [instruction for callee in launch.called for instruction in callee.instructions] or [
        launch
    ]
    places = (user_line(inner.stack) for inner in inside)
    return KernelDetails(
        origin=origins.of(launch),
        inputs=tuple(
            KernelInput(operand.name, operand.opcode, str(operand.shape), read.get(operand, 0))
            for operand in dict.fromkeys(launch.operands)
        ),
        outputs=tuple(_outputs(launch)),
        hlo=tuple(_lines(launch)),
        sources=tuple(dict.fromkeys(str(place) for place in places if place)),
        began=began,
        ended=ended,
    )


def _outputs(launch: Instruction) -> Iterator[KernelOutput]:
    """Yield each array of the result, with its readers."""
    if not launch.shape.is_tuple:
        yield KernelOutput(str(launch.shape), tuple(dict.fromkeys(_readers(launch))))
        return
    elements = grouped(
        (user.attributes.get("index", "0"), user)
        for user in launch.users
        if user.opcode == "get-tuple-element"
    )
    for index, shape in enumerate(launch.shape.elements):
        readers = (name for element in elements.get(str(index), ()) for name in _readers(element))
        yield KernelOutput(str(shape), tuple(dict.fromkeys(readers)))


def _readers(instruction: Instruction) -> Iterator[str]:
    """Yield the readers of a value, without views; the caller reads a result of the program."""
    for value in reachable([instruction], lambda value: filter(is_looked_through, value.users)):
        if value.is_root and value.computation.is_entry:
            yield "the caller"
        yield from (user.name for user in value.users if not is_looked_through(user))


def _lines(launch: Instruction) -> Iterator[str]:
    """Yield the launch and the content of a fusion: one line each, with the line of the program."""
    yield _line(launch)
    for callee in launch.called:
        yield ""
        yield f"{callee.name}:"
        for instruction in callee.instructions:
            if "#" not in instruction.name:  # written as op#index by its users
                yield f"  {_line(instruction)}"


def _line(instruction: Instruction) -> str:
    statement = instruction.statement
    inside = statement.inside
    if instruction.opcode not in ("constant", "parameter"):
        inside = ", ".join(statement.operands)
    details = "".join(
        f", {key}={value}"
        for key, value in split_attributes(statement.attributes).items()
        if key not in _NOT_SHOWN
    )
    place = user_line(instruction.stack)
    comment = f"  # {place}" if place else ""
    root = "ROOT " if instruction.is_root else ""
    value = f"{instruction.shape} {statement.opcode}({inside})"
    return f"{root}{statement.name} = {value}{details}{comment}"
