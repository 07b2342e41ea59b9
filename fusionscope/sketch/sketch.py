"""Writes a region as a function in JAX, and as a kernel in Pallas that computes the same."""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import gcd

from fusionscope.errors import UnusableInput
from fusionscope.graph.mutable import (
    MutableComputation,
    MutableInstruction,
    MutableModule,
    to_module,
)
from fusionscope.hlo import Module
from fusionscope.sketch.blocks import NotShared, operand_blocks
from fusionscope.sketch.expressions import (
    BROADCASTING,
    STEP,
    STEPS,
    WHOLE,
    Block,
    is_scalar_constant,
    simple_reducer,
    tuple_text,
    type_name,
    write,
)
from fusionscope.sketch.region import cut_kernels

_FEWEST_ELEMENTS = 1024  # of the largest value in one program
_FREE = frozenset({"broadcast", "constant", "iota", "parameter", "reshape", "tuple"})
_TAKEN = frozenset({"results", "jax", "jnp", "lax", "np", "pl", STEP, STEPS})
_COMPLEX = frozenset({"c64", "c128"})
_INDENT = "    "

Demands = dict[MutableInstruction, list[Block]]
_Part = tuple[MutableInstruction, Block, str]


@dataclass(frozen=True, slots=True)
class Sketch:
    """A program in JAX: ``reference`` computes ``module``, and ``one_kernel`` the same in Pallas.

    ``steps`` programs share the work, or one does all of it. ``inputs`` and ``outputs`` are their
    names and shapes, as written.
    """

    module: Module
    kernels: tuple[str, ...]
    steps: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    operations: int
    code: str


def sketch(final: Module, kernels: Collection[str]) -> Sketch:
    """Return a sketch of one kernel in the place of ``kernels`` of ``final``.

    Raises ``UnusableInput`` if they are not in one computation, or hold an operation that has no
    expression in JAX.
    """
    return _Writer(cut_kernels(final, kernels), tuple(kernels)).sketch()


class _Writer:
    def __init__(self, graph: MutableModule, kernels: tuple[str, ...]) -> None:
        self.graph = graph
        self.kernels = kernels
        self.order = graph.entry.post_order()
        self.parameters = graph.entry.parameters
        self.results = list(_results(graph.entry))
        if any(value.shape.element_type in _COMPLEX for value in (*self.parameters, *self.results)):
            raise UnusableInput("no sketch: Pallas takes no complex numbers")
        self.functions: dict[MutableComputation, str] = {}
        self.definitions: list[str] = []
        self.names = _names(self.order, graph.entry)

    def sketch(self) -> Sketch:
        demands, steps = self._share()
        parts = self._parts(demands)
        region = self._region(demands, parts)
        return Sketch(
            module=to_module(self.graph),
            kernels=self.kernels,
            steps=steps,
            inputs=tuple(self._described(self.parameters)),
            outputs=tuple(self._described(self.results)),
            operations=sum(1 for instruction in self.order if instruction.opcode not in _FREE),
            code="\n\n\n".join(
                [*self.definitions, region, self._reference(parts), *self._kernel(parts, demands)]
            ),
        )

    def _parts(self, demands: Demands) -> list[_Part]:
        """Return the parts of parameters that a program reads, with their names."""
        return [
            (parameter, block, self._part(parameter, block, demands))
            for parameter in self.parameters
            for block in demands[parameter]
        ]

    def _described(self, values: Iterable[MutableInstruction]) -> Iterator[str]:
        for value in values:
            sizes = ", ".join(map(str, value.shape.dimensions))
            origin = f", {value.origin}" if value.origin else ""
            yield f"{self.names[value]}: {value.shape.element_type}[{sizes}]{origin}"

    # How the work is shared

    def _share(self) -> tuple[Demands, int]:
        """Return the parts of each value that one program needs, and the number of programs."""
        first, *later = self.results
        for dimension in range(first.shape.rank):
            blocks = {first: Block(dimension)}
            demands = self._demands(blocks)
            for result in later:
                if demands is not None:
                    blocks[result], demands = self._choose(result, blocks, demands)
            steps = _steps(demands) if demands is not None else 1
            if demands is not None and steps > 1:
                return demands, steps
        return self._whole(), 1

    def _choose(
        self, result: MutableInstruction, blocks: dict[MutableInstruction, Block], demands: Demands
    ) -> tuple[Block, Demands | None]:
        """Return a part of ``result`` that goes with the others, and the demands then."""
        demanded = [block for block in demands[result] if block != WHOLE]
        for block in demanded or map(Block, range(result.shape.rank)):
            extended = self._demands({**blocks, result: block})
            if extended is not None and _steps(extended) > 1:
                return block, extended
        return WHOLE, None

    def _whole(self) -> Demands:
        return {instruction: [WHOLE] for instruction in self.order}

    def _demands(self, blocks: dict[MutableInstruction, Block]) -> Demands | None:
        """Return the parts that are needed of each value for ``blocks`` of results; None if a
        program would have to compute what others compute.
        """
        demands: Demands = {instruction: [] for instruction in self.order}
        for result, block in blocks.items():
            demands[result].append(block)
        for instruction in reversed(self.order):
            if len(demands[instruction]) > 1 and instruction.opcode not in _FREE:
                return None
            if WHOLE in demands[instruction] and _depends(instruction):
                return None
            for block in demands[instruction]:
                try:
                    parts = operand_blocks(instruction, block)
                except NotShared:
                    return None
                for operand, part in zip(instruction.operands, parts, strict=True):
                    if part not in demands[operand]:
                        demands[operand].append(part)
        return demands

    # What is written

    def _region(self, demands: Demands, parts: Sequence[_Part]) -> str:
        lines = list(self._lines(demands))
        names = [name for _, _, name in parts]
        results = [self._part(result, demands[result][0], demands) for result in self.results]
        return "\n".join(
            [
                f"def region({', '.join([*names, f'{STEPS}=1', f'{STEP}=0'])}):",
                f'{_INDENT}"""What part ``{STEP}`` of ``{STEPS}`` computes."""',
                *lines,
                f"{_INDENT}return {tuple_text(results)}",
            ]
        )

    def _reference(self, parts: Sequence[_Part]) -> str:
        parameters = ", ".join(self.names[parameter] for parameter in self.parameters)
        arguments = ", ".join(self.names[parameter] for parameter, _, _ in parts)
        return f"def reference({parameters}):\n{_INDENT}return region({arguments})"

    def _kernel(self, parts: Sequence[_Part], demands: Demands) -> Iterator[str]:
        """Yield the kernel and the function that calls it."""
        refs = [f"{name}_ref" for _, _, name in parts]
        results = [f"result_{number}_ref" for number in range(len(self.results))]
        arguments = ", ".join([*(f"{ref}[...]" for ref in refs), "STEPS", "pl.program_id(0)"])
        yield "\n".join(
            [
                f"def kernel({', '.join([*refs, *results])}):",
                f"{_INDENT}results = region({arguments})",
                *(f"{_INDENT}{ref}[...] = results[{number}]" for number, ref in enumerate(results)),
            ]
        )
        parameters = [self.names[parameter] for parameter in self.parameters]
        arguments = ", ".join(self.names[parameter] for parameter, _, _ in parts)
        yield "\n".join(
            [
                f"def one_kernel({', '.join([*parameters, '*', 'interpret=False'])}):",
                f"{_INDENT}return pl.pallas_call(",
                f"{_INDENT * 2}kernel,",
                f"{_INDENT * 2}out_shape=(",
                *(f"{_INDENT * 3}{_struct(result)}," for result in self.results),
                f"{_INDENT * 2}),",
                f"{_INDENT * 2}grid=(STEPS,),",
                f"{_INDENT * 2}in_specs=[",
                *(f"{_INDENT * 3}{_spec(value, block)}," for value, block, _ in parts),
                f"{_INDENT * 2}],",
                f"{_INDENT * 2}out_specs=(",
                *(f"{_INDENT * 3}{_spec(r, demands[r][0])}," for r in self.results),
                f"{_INDENT * 2}),",
                f"{_INDENT * 2}interpret=interpret,",
                f"{_INDENT})({arguments})",
            ]
        )

    def _lines(self, demands: Demands) -> Iterator[str]:
        """Yield a line for each part of a value that is not written where it is read."""
        for instruction in self.order:
            if instruction.opcode in ("parameter", "tuple") or self._is_inlined(instruction):
                continue
            for block in demands[instruction]:
                parts = operand_blocks(instruction, block)
                operands = [
                    self._operand(instruction, operand, part, demands)
                    for operand, part in zip(instruction.operands, parts, strict=True)
                ]
                expression = write(instruction, operands, block, self._reducer)
                yield f"{_INDENT}{self._part(instruction, block, demands)} = {expression}"

    def _is_inlined(self, instruction: MutableInstruction) -> bool:
        return is_scalar_constant(instruction) or (
            _is_number(instruction) and all(_takes_number(user) for user in instruction.users)
        )

    def _operand(
        self, user: MutableInstruction, value: MutableInstruction, block: Block, demands: Demands
    ) -> str:
        if is_scalar_constant(value) or (_is_number(value) and _takes_number(user)):
            constant = value.operands[0] if value.operands else value
            return write(constant, (), WHOLE, self._reducer)
        return self._part(value, block, demands)

    def _part(self, value: MutableInstruction, block: Block, demands: Demands) -> str:
        """Return the name of a part of ``value``."""
        name = self.names[value]
        is_one_of_several = len(demands[value]) > 1
        return f"{name}_{_suffix(block)}" if is_one_of_several else name

    def _reducer(self, reduction: MutableInstruction) -> str:
        """Return the name of its function of scalars, defined where JAX has none."""
        (computation,) = reduction.called
        name = simple_reducer(reduction)
        if name is None:
            name = self.functions.get(computation)
        if name is None:
            name = self.functions[computation] = f"reducer_{len(self.functions)}"
            self.definitions.append(self._defined(name, computation))
        return name

    def _defined(self, name: str, computation: MutableComputation) -> str:
        order = computation.post_order()
        names = _names(order, computation)
        parameters = [names[parameter] for parameter in computation.parameters]
        half = len(parameters) // 2
        lines = [f"def {name}(left, right):"]
        for side, arguments in (("left", parameters[:half]), ("right", parameters[half:])):
            target = arguments[0] if half == 1 else tuple_text(arguments)
            lines.append(f"{_INDENT}{target} = {side}")
        for instruction in order:
            if instruction.opcode == "parameter" or is_scalar_constant(instruction):
                continue
            operands = [
                write(operand, (), WHOLE, self._reducer)
                if is_scalar_constant(operand)
                else names[operand]
                for operand in instruction.operands
            ]
            expression = write(instruction, operands, WHOLE, self._reducer)
            lines.append(f"{_INDENT}{names[instruction]} = {expression}")
        return "\n".join([*lines, f"{_INDENT}return {names[computation.root]}"])


def _results(entry: MutableComputation) -> Iterator[MutableInstruction]:
    """Yield the arrays that ``entry`` returns. The last kernel of a program may return a tuple."""
    for result in entry.root.operands:
        yield from result.operands if result.opcode == "tuple" else (result,)


def _is_number(value: MutableInstruction) -> bool:
    """Return whether all its elements are one number that the text shows."""
    return value.opcode == "broadcast" and is_scalar_constant(value.operands[0])


def _takes_number(user: MutableInstruction) -> bool:
    """Return whether Python's operators let it read a number in the place of an array."""
    return user.opcode in BROADCASTING and not all(map(_is_number, user.operands))


def _depends(instruction: MutableInstruction) -> bool:
    """Return whether it computes with what it reads; all programs may read the same."""
    return instruction.opcode not in _FREE


def _steps(demands: Demands) -> int:
    """Return among how many programs the work is shared: equal shares, and not too small ones. A
    tuple is shared as its elements are.
    """
    sizes, largest = [], 1
    for instruction, blocks in demands.items():
        largest = max(largest, instruction.shape.element_count if blocks else 1)
        sizes += [
            instruction.shape.dimensions[block.dimension] or 1
            for block in blocks
            if block.dimension is not None and instruction.shape.is_array
        ]
    common = gcd(*sizes)
    most = max(2, largest // _FEWEST_ELEMENTS)
    return next(steps for steps in range(min(common, most), 0, -1) if common % steps == 0)


def _suffix(block: Block) -> str:
    return "whole" if block == WHOLE else f"by_{block.dimension}"


def _struct(value: MutableInstruction) -> str:
    sizes = tuple_text(map(str, value.shape.dimensions))
    return f"jax.ShapeDtypeStruct({sizes}, {type_name(value.shape)})"


def _spec(value: MutableInstruction, block: Block) -> str:
    places = ["0"] * value.shape.rank
    if block.dimension is not None:
        places[block.dimension] = "step"
    sizes = tuple_text(block.sizes(value.shape, "STEPS"))
    return f"pl.BlockSpec({sizes}, lambda step: {tuple_text(places)})"


def _names(
    order: Iterable[MutableInstruction], computation: MutableComputation
) -> dict[MutableInstruction, str]:
    """Return names that Python takes."""
    names: dict[MutableInstruction, str] = {}
    used_names = set(_TAKEN)
    for number, parameter in enumerate(computation.parameters):
        names[parameter] = f"x{number}"
        used_names.add(names[parameter])
    for instruction in order:
        if instruction not in names:
            stem = re.sub(r"\W", "_", instruction.name)
            if keyword.iskeyword(stem) or not stem.isidentifier():
                stem = f"_{stem}"
            while stem in used_names:
                stem += "_"
            names[instruction] = stem
            used_names.add(stem)
    return names
