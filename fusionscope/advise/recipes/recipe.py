"""The interface of a recipe, and its application to a module."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import ClassVar

from fusionscope.advise.recipes.example import Example
from fusionscope.errors import UnusableInput
from fusionscope.graph.cleanup import remove_dead
from fusionscope.graph.mutable import (
    MutableInstruction,
    MutableModule,
    replace_and_prune,
    to_module,
)
from fusionscope.hlo import Module
from fusionscope.hlo.attributes import split_attributes
from fusionscope.user_order.call_inliner import inline_calls

_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_PLACE = re.compile(r"\b(?:stack_frame_id|source_file)=")


@dataclass(frozen=True, slots=True)
class Site:
    """One match of a recipe: ``at`` is the instruction whose source line has to change, ``also``
    are others that change with it, ``rewrite`` changes the module in which they were found.
    """

    at: MutableInstruction
    rewrite: Callable[[], None]
    also: tuple[MutableInstruction, ...] = ()


@dataclass(frozen=True, slots=True)
class Recipe:
    """An edit of a program. Its limits are fields; its texts are constants.

    ``title`` is a few words on the edit, ``what`` describes the pattern and its replacement,
    ``why`` the savings, ``backfires`` when it is slower or computes something else. The results of
    its ``example`` may differ by ``tolerance``, as a share of the largest magnitude. ``backends``
    are those on which the example takes less time after the edit. ``keeps_arguments`` is whether
    the program has arguments of the same types after it.
    """

    id: ClassVar[str]
    title: ClassVar[str]
    what: ClassVar[str]
    why: ClassVar[str]
    backfires: ClassVar[str]
    example: ClassVar[Example]
    tolerance: ClassVar[float] = 0.0
    backends: ClassVar[frozenset[str]]
    keeps_arguments: ClassVar[bool] = True

    @property
    def variants(self) -> tuple[Recipe, ...]:
        """The recipe with each of the limits to try, those first that are likely to help."""
        return (self,)

    @property
    def spelling(self) -> str:
        """The id, with the limits that are not the usual ones, as ``rerun --recipe`` takes it."""
        usual = type(self)()
        limits = {field.name: getattr(self, field.name) for field in fields(self)}
        changed = [name for name, limit in limits.items() if limit != getattr(usual, name)]
        return ",".join([self.id, *(f"{name}={int(limits[name])}" for name in changed)])

    @property
    def words(self) -> str:
        """The title, with what the limits decide."""
        return self.title

    @abstractmethod
    def find(self, graph: MutableModule, backend: str) -> Iterator[Site]:
        """Yield the places of a program where it helps on ``backend``.

        ``graph`` is the result of ``prepare`` for the module that the compiler receives.
        """


@dataclass(frozen=True, slots=True)
class Rewritten:
    """``module`` is the result of a recipe at ``places``, by name the instructions of the original
    module.
    """

    module: Module
    places: tuple[str, ...]


def prepare(program: Module) -> MutableModule:
    """Return the module in the form that recipes read: without calls, and without tuples except
    those that a loop, a branch or the result needs.

    Raises ``UnusableInput`` as ``apply_recipe`` does.
    """
    graph = MutableModule(program)
    for call in graph.walk():
        if call.opcode == "call" and len(call.operands) != len(call.called[0].parameters):
            raise UnusableInput(
                f"call {call.name} has {len(call.operands)} operands, expected as many as "
                f"{call.called[0].name} has parameters, {len(call.called[0].parameters)}",
                file=program.file,
            )
    inline_calls(graph, _name_in_full)
    for element in list(graph.walk()):
        is_element = element.opcode == "get-tuple-element" and element.parent is not None
        if is_element and element.operands[0].opcode == "tuple":
            whole, index = element.operands[0], element.attribute("index")
            replace_and_prune(element, whole.operands[index])
    return graph


def _name_in_full(call: MutableInstruction, clone: MutableInstruction) -> None:
    """Give inlined instructions the names that the compiler gives them, and the line of the call if
    their own is unknown.
    """
    outer = split_attributes(call.attributes_text).get("metadata", "{}")
    own_metadata = split_attributes(clone.attributes_text).get("metadata")
    metadata = outer
    if own_metadata is not None:
        names = [name[1] for name in map(_NAME.search, (outer, own_metadata)) if name is not None]
        parts = [f'op_name="{"/".join(names)}"'] if names else []
        parts.append(
            _NAME.sub("", own_metadata if _PLACE.search(own_metadata) else outer).strip("{} ")
        )
        metadata = f"{{{' '.join(filter(None, parts))}}}"
        clone.attributes_text = clone.attributes_text.replace(f", metadata={own_metadata}", "")
    clone.attributes_text += f", metadata={metadata}"


def apply_recipe(recipe: Recipe, program: Module, backend: str) -> Rewritten | None:
    """Apply ``recipe`` wherever it helps to ``program``; None if it helps nowhere.

    ``program`` is the module as the compiler for ``backend`` receives it
    (``before_optimizations``). Raises ``UnusableInput`` if the module contradicts itself.
    """
    graph = prepare(program)
    places = []
    for site in list(recipe.find(graph, backend)):
        if site.at.parent is not None:  # otherwise an earlier rewrite removed it
            places.append(site.at.origin)
            site.rewrite()
    if not places:
        return None
    remove_dead(graph)
    return Rewritten(to_module(graph), tuple(places))
