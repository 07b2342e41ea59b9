"""Work that no call needs: what depends only on parameters that stay the same from call to call.

A call may change what it donates, and what it returns an array of the same shape for, with all
other arrays of that argument. Data, taken to differ, is an argument of one array, or of integers,
one that is named like data, and a batch: an argument whose arrays all have the same first
dimension, unless that is the number of steps of a loop, as it is of weights stacked by layer. All
others are taken to stay the same, as the weights of a model do while it makes predictions.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from fusionscope.facts.needed_bytes import Needs
from fusionscope.graph.aliasing import read_aliasing
from fusionscope.grouping import grouped
from fusionscope.history.handoffs import OUTSIDE
from fusionscope.history.operations import argument_name
from fusionscope.hlo import Instruction, Module
from fusionscope.hlo.search import reachable

_DATA = frozenset(
    """batch batches cache caches carry carries data example examples feature features image images
    input inputs key keys label labels observation observations rng sample samples target targets
    token tokens x xs y ys""".split()
)
_WORDS = re.compile(r"[a-z]+")
_ELEMENT = re.compile(r"\w+(\[[^\]]*\]|\.\w+)")


def settled_parameters(module: Module, steps: Collection[float]) -> dict[str, str]:
    """Return the parameters that are taken to stay the same, each with the framework's name.
    ``steps`` are the numbers of steps that loops have.
    """
    arguments = _arguments(module)
    aliasing = read_aliasing(module.attributes.get("input_output_alias", ""))
    donated = {slot for slot, _, _ in aliasing}
    results = {_plain(part) for part in module.entry.results}

    def may_change(parameter: Instruction) -> bool:
        return (parameter.parameter_number or 0) in donated or _plain(parameter) in results

    return {
        parameter.name: parameter.op_name or parameter.name
        for name, parameters in arguments.items()
        if not _is_data(name, parameters, steps) and not any(map(may_change, parameters))
        for parameter in parameters
        if parameter.shape.is_floating or parameter.shape.bits < 16
    }


def _arguments(module: Module) -> dict[str, list[Instruction]]:
    """Return the parameters of each argument that the framework names. If there is but one, such as
    that of a function of ``*args``, its elements are taken for arguments.
    """
    names = {p: name for p in module.entry.parameters if (name := argument_name(p))}
    if len(set(names.values())) == 1:
        names = {p: match[0] for p in names if (match := _ELEMENT.match(p.op_name or ""))}
    return grouped((name, parameter) for parameter, name in names.items())


def _is_data(name: str, parameters: Sequence[Instruction], steps: Collection[float]) -> bool:
    """Return whether an argument is taken for data by its name and its arrays."""
    if len(parameters) < 2 or not _DATA.isdisjoint(_WORDS.findall(name.lower())):
        return True
    first = {parameter.shape.dimensions[:1] for parameter in parameters}
    sizes = [size for dimensions in first for size in dimensions]
    return len(first) == 1 and not set(sizes) <= set(steps)


def _plain(instruction: Instruction) -> tuple[object, ...]:
    return instruction.shape.element_type, instruction.shape.dimensions


class Settled:
    """What does not differ from call to call if ``parameters`` stay the same: the framework's names
    by those of the instructions.
    """

    def __init__(self, needs: Needs, parameters: Mapping[str, str], entry: Module) -> None:
        self._handoffs = needs.handoffs
        self._parameters = parameters
        names = {parameter.name for parameter in entry.entry.parameters}
        self._changing = names - parameters.keys()
        self._differing: set[int] = set()
        while sum(map(self._spread, range(len(self._handoffs.places)))):
            pass

    def _spread(self, number: int) -> bool:
        """Add a place whose value differs, as something does that it comes from."""
        place = self._handoffs.places[number]
        if number in self._differing:
            return False
        if place.maker == OUTSIDE:
            sources = [source.place for source in place.sources]
            differs = not sources and place.name in self._changing
        else:
            reads = self._handoffs.reads[place.maker]
            sources = [operand for _, operands in reads for operand in operands]
            differs = place.maker in self._handoffs.acting
        if differs or not self._differing.isdisjoint(sources):
            self._differing.add(number)
            return True
        return False

    def is_settled(self, place: int) -> bool:
        """Return whether the value of a place is the same in each call."""
        return place not in self._differing

    def computes(self, kernel: int) -> bool:
        """Return whether a kernel computes the same in each call."""
        outputs = self._handoffs.outputs[kernel]
        return bool(outputs) and all(map(self.is_settled, outputs))

    def read_by(self, kernel: int) -> tuple[str, ...]:
        """Return the parameters that a kernel depends on and that stay the same."""
        reads = self._handoffs.reads[kernel]
        return self.names_of(*(place for _, places in reads for place in places))

    def names_of(self, *places: int) -> tuple[str, ...]:
        """Return the parameters that places have their values from and that stay the same."""
        names: dict[str, None] = {}
        for place in reachable(places, self._earlier):
            name = self._handoffs.places[place].name
            if self._handoffs.places[place].maker == OUTSIDE and name in self._parameters:
                names[self._parameters[name]] = None
        return tuple(names)

    def _earlier(self, place: int) -> Iterator[int]:
        sources = self._handoffs.places[place].sources
        yield from (source.place for source in sources)
        maker = self._handoffs.places[place].maker
        if maker != OUTSIDE:
            for _, places in self._handoffs.reads[maker]:
                yield from places
