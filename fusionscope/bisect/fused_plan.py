"""The compiler's own plan, of which any part can be left unfused."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fusionscope.dump import DumpedModule
from fusionscope.errors import UnusableInput
from fusionscope.graph.buffers import walk_control_flow
from fusionscope.graph.cleanup import clean_up
from fusionscope.graph.fusing import clone_into, unpack
from fusionscope.graph.mutable import (
    MutableInstruction,
    MutableModule,
    replace_operand,
    to_module,
)
from fusionscope.hlo import Module
from fusionscope.hlo.model import Instruction
from fusionscope.hlo.search import unfold
from fusionscope.rerun.kernels import is_constant, place_kernels
from fusionscope.rerun.legality import find_problems
from fusionscope.rerun.parallel_tasks import assign_tasks
from fusionscope.rerun.plans import WRAPPER, Plan, kind_of, threads_here
from fusionscope.versions.choice import choose_compiler
from fusionscope.versions.context import read_context

_LIBRARY = "kCustom"
_NO_OPERATION = frozenset({"parameter", "tuple"})


@dataclass(frozen=True, slots=True)
class Part:
    """The smallest thing that a plan can fuse or not: ``producer`` into ``consumer``, by their
    names inside of ``kernel``, or two ``siblings`` beside each other. Both names are empty for a
    kernel that is not divided.
    """

    kernel: str
    producer: str = ""
    consumer: str = ""
    are_siblings: bool = False

    def __str__(self) -> str:
        if not self.producer:
            return self.kernel
        return f"{self.producer} {'beside' if self.are_siblings else '->'} {self.consumer}"


@dataclass(frozen=True, slots=True)
class Kernel:
    """A fusion of the plan in ``computation``. ``operations`` are those inside of it in the order
    in which the compiler emits them, without constants. Its ``parts`` are in the order of
    consumers.
    """

    name: str
    computation: str
    operations: tuple[Instruction, ...]
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class FusedKernel:
    """The fusion ``name`` of all or some ``operations`` of a kernel of the plan."""

    name: str
    kernel: Kernel
    operations: tuple[Instruction, ...]


@dataclass(frozen=True, slots=True)
class FusedModule:
    """A module in which a part of a plan is fused: ``kernels``."""

    module: Module
    kernels: tuple[FusedKernel, ...]


class FusedPlan:
    """The plan of ``module``. ``kernels`` are its fusions of several operations, in the order in
    which they run.

    A fusion for a library is one part. So is a kernel with one operation besides constants. All
    others consist of the pairs in them. Constants stay with the operations that read them.
    """

    def __init__(self, module: DumpedModule, plan: Plan) -> None:
        self.plan = plan
        self._backend = module.backend
        self._kind_of = kind_of(module)
        self._context = read_context(module)
        self._wrapper = None
        if module.backend == "cpu":
            passes = choose_compiler(module).compiler.passes
            self._wrapper = next(
                (fusion_pass for fusion_pass in passes if fusion_pass.name == WRAPPER), None
            )
        self.kernels = tuple(_find_kernels(plan.after))

    @property
    def parts(self) -> tuple[Part, ...]:
        return tuple(part for kernel in self.kernels for part in kernel.parts)

    def fuse(self, parts: Collection[Part]) -> FusedModule:
        """Return the module in which only ``parts`` of the plan are fused. Operations that must run
        between two of a kernel join it.

        Raises ``UnusableInput`` if no compiler accepts the resulting kernels.
        """
        graph = MutableModule(self.plan.after)
        fusions = {
            instruction.name: instruction
            for c in walk_control_flow(graph)
            for instruction in c.instructions
        }
        whole: list[FusedKernel] = []
        divided: list[tuple[Kernel, tuple[Instruction, ...]]] = []
        members: list[list[str]] = []
        for kernel in self.kernels:
            parts_fused = [part for part in kernel.parts if part in parts]
            if len(parts_fused) == len(kernel.parts):
                whole.append(FusedKernel(kernel.name, kernel, kernel.operations))
                continue
            clones = unfuse(fusions[kernel.name])
            for group in _groups(kernel, parts_fused):
                operations = tuple(
                    operation for operation in kernel.operations if operation.name in group
                )
                inside = _without_results([clones[operation.name] for operation in operations])
                members.append([constant.name for constant in _with_constants(inside)])
                divided.append((kernel, operations))
        names = place_kernels(graph, members, self._kind_of)
        kernels = [FusedKernel(name, *piece) for name, piece in zip(names, divided, strict=True)]
        graph = self.wrap(graph)
        for instruction in graph.walk():
            if instruction.name in names:
                for problem in find_problems(instruction, self._backend):
                    raise UnusableInput(f"{instruction.name} cannot be a kernel: {problem}")
        return FusedModule(to_module(graph), (*whole, *kernels))

    def wrap(self, graph: MutableModule) -> MutableModule:
        """Return the graph as the compiler's last passes leave it, with wrapped operations."""
        if self._wrapper is not None:
            graph = self._wrapper.run(graph, self._context).graph
        clean_up(graph, self._backend)
        if self._backend == "cpu":
            assign_tasks(graph, threads_here())
        return graph


def _find_kernels(plan: Module) -> Iterator[Kernel]:
    graph = MutableModule(plan)
    order = {computation: place for place, computation in enumerate(walk_control_flow(graph))}
    for computation in sorted(order, key=order.__getitem__, reverse=True):
        for fusion in computation.post_order():
            if fusion.opcode == "fusion":
                kernel = _kernel(fusion, plan)
                if kernel is not None:
                    yield kernel


def _kernel(fusion: MutableInstruction, plan: Module) -> Kernel | None:
    """Return None for a fusion of one operation."""
    inside = [e for e in fusion.fused.post_order() if e.opcode not in _NO_OPERATION]
    if len(inside) < 2:
        return None
    operations = [operation for operation in inside if not is_constant(operation)]
    parts = [
        Part(fusion.name, producer.name, consumer.name)
        for consumer in operations
        for producer in dict.fromkeys(consumer.operands)
        if producer in operations
    ]
    names = [operation.name for operation in operations]
    roots = [max(component, key=names.index) for component in _components(names, parts)]
    parts += [Part(fusion.name, *two, are_siblings=True) for two in pairwise(roots)]
    if fusion.fusion_kind == _LIBRARY or not parts:
        parts = [Part(fusion.name)]
    computation = plan.by_name[fusion.fused.name]
    return Kernel(
        fusion.name,
        fusion.computation.name,
        tuple(computation.instruction(operation.name) for operation in operations or inside),
        tuple(parts),
    )


def _components(names: Iterable[str], parts: Iterable[Part]) -> list[set[str]]:
    """Return the groups of operations that ``parts`` join, also those of one operation."""
    import networkx

    pairs: networkx.Graph[str] = networkx.Graph()
    pairs.add_nodes_from(names)
    pairs.add_edges_from((part.producer, part.consumer) for part in parts)
    return list(networkx.connected_components(pairs))


def _groups(kernel: Kernel, parts: Sequence[Part]) -> list[frozenset[str]]:
    """Return the operations, by name, of each kernel into which ``kernel`` falls; no lone ones."""
    import networkx

    components = _components((operation.name for operation in kernel.operations), parts)
    group_of = {name: number for number, names in enumerate(components) for name in names}
    # What depends on a group and is read by it must be computed in it.
    reads: networkx.DiGraph[int] = networkx.DiGraph()
    reads.add_nodes_from(group_of.values())
    reads.add_edges_from(
        (group_of[part.producer], group_of[part.consumer])
        for part in kernel.parts
        if part.producer and not part.are_siblings
    )
    joined = {
        number: place
        for place, numbers in enumerate(networkx.strongly_connected_components(reads))
        for number in numbers
    }
    groups: dict[int, set[str]] = {}
    for name, number in group_of.items():
        groups.setdefault(joined[number], set()).add(name)
    return [frozenset(group) for group in groups.values() if len(group) > 1]


def unfuse(fusion: MutableInstruction) -> dict[str, MutableInstruction]:
    """Replace ``fusion`` by its contents. Return them by their names inside of it."""
    computation, root = fusion.computation, fusion.fused.root
    clones = unpack(fusion)
    by_origin = {clone.origin: clone for clone in clones}
    if root.opcode == "parameter":
        computation.replace(fusion, fusion.operands[root.parameter_number])
        return by_origin
    if root.opcode == "tuple":
        for element in [user for user in fusion.users if user.opcode == "get-tuple-element"]:
            index = int(element.attributes["index"])
            computation.replace(element, clones[-1].operands[index])
    computation.replace(fusion, clones[-1])
    if root.opcode == "tuple" and not clones[-1].users and not clones[-1].is_root:
        computation.remove(clones[-1])
    return by_origin


def _without_results(group: Sequence[MutableInstruction]) -> list[MutableInstruction]:
    """Return what of ``group`` can be one kernel. An operation that others read cannot be a result
    of it if it has another shape than the last one. They read a clone of it, or the operation
    itself if nothing in the kernel needs it.
    """
    inside, root = dict.fromkeys(group), group[-1]
    for operation in reversed(group):
        outside_users = [user for user in operation.users if user not in inside]
        if operation.shape.dimensions == root.shape.dimensions or not (
            outside_users or operation.is_root
        ):
            continue
        if len(outside_users) == len(operation.users):
            del inside[operation]
            continue
        clone = clone_into(operation, operation.computation)
        for user in outside_users:
            replace_operand(user, operation, clone)
        if operation.is_root:
            operation.computation.root = clone
    return list(inside)


def _with_constants(group: Sequence[MutableInstruction]) -> list[MutableInstruction]:
    """Return the operations of a group with the constants that they read."""

    def constants(operation: MutableInstruction) -> list[MutableInstruction]:
        return [operand for operand in reversed(operation.operands) if is_constant(operand)]

    return list(dict.fromkeys(unfold(group, constants)))
