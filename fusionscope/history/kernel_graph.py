"""The launches of a module as a graph, with the values that pass between them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fusionscope.history.kernels import KernelKind, find_kernels, is_launched
from fusionscope.history.thunks import NOT_LAUNCHED
from fusionscope.history.traffic import traffic
from fusionscope.history.values import Numbering
from fusionscope.hlo import Computation, Instruction, Module
from fusionscope.hlo.search import reachable

if TYPE_CHECKING:
    import networkx

_CALLERS = frozenset({"call", "conditional", "while"})

_Path = tuple[int, ...]  # Indices of a tuple element, the outermost first.
_Result = tuple[Instruction, _Path]


def kernel_graph(module: Module, backend: str | None) -> networkx.MultiDiGraph[Instruction]:
    """Return the launches of ``module`` and the values that pass between them.

    Nodes are the instructions that launch, those of the entry first, with ``name``,
    ``computation``, ``kind`` (a ``KernelKind``), ``emitter``, ``runs`` (how often the program
    launches it), ``bytes_read`` and ``bytes_written`` (of one launch). An edge leads from the
    launch that makes a value to one that reads it; ``operand`` is the index of the first operand
    that is the value, ``bytes`` what one launch of the reader reads of it. A reader in a loop has
    an edge from what makes the first value and one from what makes that of the next iteration, so
    the graph can have cycles. Parameters and constants of the program are not nodes.

    Raises ``UnusableInput`` where the module contradicts itself.
    """
    import networkx  # imported here so that commands do not wait for it

    graph: networkx.MultiDiGraph[Instruction] = networkx.MultiDiGraph()
    for kernel in find_kernels(Numbering().number(module), backend):
        if kernel.kind is KernelKind.FUNCTION:
            continue  # the kernels in it read and make values
        if kernel.instruction in graph:  # several calls reach it
            graph.nodes[kernel.instruction]["runs"] += kernel.runs
        else:
            graph.add_node(
                kernel.instruction,
                name=kernel.name,
                computation=kernel.computation,
                kind=kernel.kind,
                emitter=kernel.emitter,
                runs=kernel.runs,
                bytes_read=kernel.bytes_read,
                bytes_written=kernel.bytes_written,
            )
    makers = _Makers(module)
    for reader in tuple(graph):
        bytes_read = traffic(reader).operands
        for operand in dict.fromkeys(reader.operands):
            index = reader.operands.index(operand)
            for path, part in operand.shape.parts():
                if part.is_tuple:
                    continue
                # A launch that reads a tuple reads all its elements.
                size = part.byte_size if path else bytes_read[operand]
                for maker in makers.find(operand, path):
                    if maker in graph:
                        graph.add_edge(maker, reader, operand=index, bytes=size)
    return graph


class _Makers:
    """Finds what makes a value, through tuples, views, waits, calls, loops and branches."""

    def __init__(self, module: Module) -> None:
        self._callers: dict[Computation, list[Instruction]] = defaultdict(list)
        for computation in module.reachable():
            for instruction in computation.instructions:
                if instruction.opcode in _CALLERS:
                    for callee in dict.fromkeys(instruction.called):
                        self._callers[callee].append(instruction)

    def find(self, value: Instruction, path: _Path) -> list[Instruction]:
        """Return the instructions that may have made the part of ``value`` at ``path``."""
        places = reachable([(value, path)], lambda place: self._sources(*place))
        return list(dict.fromkeys(maker for maker, _ in places if is_launched(maker)))

    def _sources(self, instruction: Instruction, path: _Path) -> Iterator[_Result]:
        """Yield the sources of a result that ``instruction`` only passes on."""
        operands = instruction.operands
        match instruction.opcode:
            case "parameter":
                for caller in self._callers[instruction.computation]:
                    yield from _arguments(caller, instruction, path)
            case "call" | "conditional":
                yield from ((callee.root, path) for callee in instruction.called)
            case "while":
                yield operands[0], path
                yield _body(instruction).root, path
            case "tuple":
                if path:
                    yield operands[path[0]], path[1:]
            case "get-tuple-element":
                yield operands[0], (int(instruction.attributes["index"]), *path)
            case opcode if opcode in NOT_LAUNCHED and operands:
                yield operands[0], path


def _arguments(caller: Instruction, parameter: Instruction, path: _Path) -> Iterator[_Result]:
    """Yield the arguments that ``caller`` passes for ``parameter``."""
    number = parameter.parameter_number or 0
    if caller.opcode == "call":
        yield caller.operands[number], path
    elif caller.opcode == "while":
        yield caller.operands[0], path
        yield _body(caller).root, path
    else:  # the first operand of a conditional selects the branch
        for branch, operand in zip(caller.called, caller.operands[1:], strict=True):
            if branch is parameter.computation:
                yield operand, path


def _body(loop: Instruction) -> Computation:
    name = loop.attributes["body"].lstrip("%")
    return next(computation for computation in loop.called if computation.name == name)
