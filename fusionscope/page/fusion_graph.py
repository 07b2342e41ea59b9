"""The operations of a module as a graph, and the kernel that computes each in every stage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from fusionscope.dump import DumpedModule, Stage
from fusionscope.errors import UnusableInput
from fusionscope.facts.result import Operation, PairFacts
from fusionscope.facts.source_lines import operation_of
from fusionscope.history.lineage import stages_in_order
from fusionscope.history.operations import flatten
from fusionscope.history.outcomes import is_looked_through
from fusionscope.history.values import Execution, NumberedModule, Numbering
from fusionscope.hlo import Instruction
from fusionscope.progress import Progress, counted, silent


class Place(NamedTuple):
    """An operation in a kernel, by their numbers; ``is_output`` is whether the kernel writes it."""

    node: int
    kernel: int
    is_output: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphStage:
    """What one stage has that the stage before it has not, and the reverse.

    Edges lead from an operation to one that reads it. ``names`` are those of kernels, by their
    numbers, that are new or changed, as of the last stage before the next that changed the graph.
    """

    label: str
    pass_name: str
    added: tuple[Place, ...]
    removed: tuple[Place, ...]
    edges_added: tuple[tuple[int, int], ...]
    edges_removed: tuple[tuple[int, int], ...]
    names: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionGraph:
    """The operations of all stages, and what each stage changed.

    An operation is one value: stages that compute the same value have the same node, whatever names
    they use. ``nodes`` says what the first stage says that has it, and ``computations`` are the
    names of their computations. A kernel keeps its number while its first result is the same value.
    ``stages`` are the first stage and those that changed the graph, ``quiet`` counts the others.
    ``by_name`` finds nodes by the names of instructions in the stage before fusion, ``halves`` the
    first halves of reductions that a pass split, ``kernels`` the final kernels by name. ``apart``
    are edges with the number of a final kernel that computes both operations, but the first for
    something else: the second reads the equal value of another kernel.
    """

    nodes: tuple[Operation, ...]
    computations: tuple[str, ...]
    stages: tuple[GraphStage, ...]
    quiet: int
    by_name: dict[str, int]
    halves: dict[int, tuple[int, ...]]
    kernels: dict[str, int]
    apart: frozenset[tuple[int, int, int]]
    notes: tuple[str, ...]

    def final_places(self) -> set[Place]:
        """Return the places of the final stage."""
        places: set[Place] = set()
        for stage in self.stages:
            places.difference_update(stage.removed)
            places.update(stage.added)
        return places

    def final_edges(self) -> set[tuple[int, int]]:
        """Return the edges of the final stage."""
        edges: set[tuple[int, int]] = set()
        for stage in self.stages:
            edges.difference_update(stage.edges_removed)
            edges.update(stage.edges_added)
        return edges

    def all_edges(self) -> set[tuple[int, int]]:
        """Return the edges of all stages."""
        return {edge for stage in self.stages for edge in stage.edges_added}


_Key = tuple[Hashable, int]  # the path of an execution, and the number of a value


@dataclass(slots=True)
class _Contents:
    """What one stage has."""

    places: set[Place] = field(default_factory=set)
    edges: set[tuple[int, int]] = field(default_factory=set)
    apart: set[tuple[int, int, int]] = field(default_factory=set)
    names: dict[int, str] = field(default_factory=dict)


class _Builder:
    def __init__(self) -> None:
        self.nodes: list[Operation] = []
        self.computations: list[str] = []
        self._number: dict[_Key, int] = {}
        self._kernels: dict[Hashable, int] = {}
        self.halves: dict[int, tuple[int, ...]] = {}

    def contents(self, numbered: NumberedModule) -> _Contents:
        contents = _Contents()
        for execution in numbered.executions:
            self._add(execution, contents)
            for whole, halves in numbered.parts.items():
                for node in self._nodes_of(execution.path, (whole,)):
                    nodes = (*self.halves.get(node, ()), *self._nodes_of(execution.path, halves))
                    self.halves[node] = tuple(dict.fromkeys(nodes))
        return contents

    def names_in(self, numbered: NumberedModule) -> dict[str, int]:
        """Return the nodes of unfused instructions by name."""
        return {
            instruction.name: node
            for execution in numbered.executions
            for instruction, value in execution.values.items()
            for node in self._nodes_of(execution.path, flatten(value))
        }

    def _nodes_of(self, path: Hashable, numbers: Iterable[int]) -> Iterator[int]:
        """Yield the first node that one of ``numbers`` has, if there is one."""
        for number in numbers:
            if (path, number) in self._number:
                yield self._number[path, number]
                return

    def _add(self, execution: Execution, contents: _Contents) -> None:
        path = execution.path
        self._describe(execution)
        results: dict[Hashable, int] = defaultdict(int)  # how many kernels have this first result
        for kernel, computed in execution.computed.items():
            if is_looked_through(kernel):
                continue
            results_written = list(self._written(execution, kernel))
            key = (path, next(iter(results_written), kernel.name))
            number = self._kernels.setdefault((key, results[key]), len(self._kernels))
            results[key] += 1
            contents.names[number] = kernel.name
            nodes = {
                node for value_number in computed for node in self._nodes_of(path, (value_number,))
            }
            outputs = {
                node
                for value_number in results_written
                for node in self._nodes_of(path, (value_number,))
            }
            contents.places.update(Place(node, number, node in outputs) for node in nodes)
            edges = set(self._edges(path, execution.edges.get(kernel, ())))
            inside = set(self._edges(path, execution.joined.get(kernel, ())))
            contents.edges |= edges
            contents.apart.update((*edge, number) for edge in edges - inside if edge[0] in nodes)

    def _edges(self, path: Hashable, edges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        for edge in edges:
            ends = [node for number in edge for node in self._nodes_of(path, (number,))]
            if len(ends) == 2 and ends[0] != ends[1]:
                yield ends[0], ends[1]

    def _written(self, execution: Execution, kernel: Instruction) -> Iterator[int]:
        value = execution.values.get(kernel)
        return flatten(value) if value is not None else iter(())

    def _describe(self, execution: Execution) -> None:
        """Add nodes for the values that no stage before had. All results of one operation are one
        node: a library call that replaced an operation is that operation, if one of them is.
        """
        path = execution.path
        parts: dict[Instruction, list[int]] = defaultdict(list)
        for instruction, value in execution.steps:
            if instruction.opcode == "get-tuple-element":
                parts[instruction.operands[0]] += flatten(value)
        for instruction, value in execution.steps:
            if instruction.opcode == "fusion" or is_looked_through(instruction):
                continue
            numbers = [*flatten(value), *parts.get(instruction, ())]
            node = next(self._nodes_of(path, numbers), None)
            if node is None:
                node = len(self.nodes)
                self.nodes.append(operation_of(instruction))
                self.computations.append(execution.computation.name)
            for number in numbers:
                self._number.setdefault((path, number), node)


def fusion_graph(module: DumpedModule, *, progress: Progress = silent) -> FusionGraph:
    """Return the operations of a module and how its kernels form. Raises ``UnusableInput`` if no
    stage can be read.
    """
    (graph,) = fusion_graphs((module,), progress=progress)
    return graph


def fusion_graphs(
    modules: Sequence[DumpedModule], *, progress: Progress = silent
) -> tuple[FusionGraph, ...]:
    """Return a graph for each of several modules. They have the same nodes and numbers of kernels:
    what two modules compute alike is one node, and a kernel with the same first result one kernel.
    """
    builder, numbering = _Builder(), Numbering()
    graphs = [_follow(module, builder, numbering, progress) for module in modules]
    return tuple(
        replace(
            graph,
            nodes=tuple(builder.nodes),
            computations=tuple(builder.computations),
            halves=builder.halves,
        )
        for graph in graphs
    )


def _follow(
    module: DumpedModule, builder: _Builder, numbering: Numbering, progress: Progress
) -> FusionGraph:
    stages: list[GraphStage] = []
    notes: list[str] = []
    by_name: dict[str, int] = {}
    quiet = 0
    before = _Contents()
    for stage in counted(stages_in_order(module), "following values in stage", progress):
        try:
            numbered = numbering.number(module.read(stage))
        except UnusableInput as error:
            notes.append(str(error))
            continue
        now = builder.contents(numbered)
        if stage is module.pre_fusion:
            by_name = builder.names_in(numbered)
        changed = _difference(stage, before, now)
        if stages and (now.places, now.edges) == (before.places, before.edges):
            quiet += 1
            names = dict(stages[-1].names) | dict(changed.names)
            stages[-1] = replace(stages[-1], names=tuple(names.items()))
        else:
            stages.append(changed)
        before = now
    if not stages:
        raise UnusableInput(notes[0])
    return FusionGraph(
        nodes=(),
        computations=(),
        stages=tuple(stages),
        quiet=quiet,
        by_name=by_name,
        halves={},
        kernels={name: number for number, name in before.names.items()},
        apart=frozenset(before.apart),
        notes=tuple(notes),
    )


def ends_of(graph: FusionGraph, pairs: Iterable[PairFacts]) -> Iterator[tuple[int, int] | None]:
    """Yield the nodes of each pair, None if it has none. Where a pass split the consumer, a
    reduction, the half that reads the producer in the end represents it.
    """
    edges = graph.final_edges()
    for pair in pairs:
        read = graph.by_name.get(pair.producer.name)
        reader = graph.by_name.get(pair.consumer.name)
        if read is None or reader is None:
            yield None
        else:
            halves = (half for half in graph.halves.get(reader, ()) if (read, half) in edges)
            yield read, next(halves, reader)


def _difference(stage: Stage, before: _Contents, now: _Contents) -> GraphStage:
    return GraphStage(
        label=stage.label,
        pass_name=stage.pass_name,
        added=tuple(sorted(now.places - before.places)),
        removed=tuple(sorted(before.places - now.places)),
        edges_added=tuple(sorted(now.edges - before.edges)),
        edges_removed=tuple(sorted(before.edges - now.edges)),
        names=tuple(
            (number, name) for number, name in now.names.items() if before.names.get(number) != name
        ),
    )
