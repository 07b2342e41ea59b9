"""What is said of products of 8-bit floats is what the compiler makes of them, mutants included.

The modules are those in FILES: HLO, or C++ with HLO in raw strings, such as
``xla/backends/gpu/transforms/gemm_rewriter_fp8_test.cc``. Each is compiled without Triton as it is,
and with one condition broken where all were met. A product that meets all conditions has to become
a call for 8-bit floats, and no other one; where a condition was broken, that one has to be named.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence, Set

from conformance import rewriter_tests
from conformance.findings import Finding, counted, problem
from conformance.rewriter_tests import Mutation, compiled, heroes, mutants, named_modules
from fusionscope.dump import DumpedModule
from fusionscope.findings.float8.facts import Float8Product
from fusionscope.findings.float8.find import find_products
from fusionscope.graph.mutable import MutableInstruction, MutableModule, replace_operand
from fusionscope.hlo import Module
from fusionscope.hlo.shape import Shape
from fusionscope.passes.gpu.gemm_rewriter import stage_after

add_options = rewriter_tests.add_options


def findings(options: Namespace) -> Iterator[Finding]:
    sources = named_modules(options)
    compiled_sources = _compile([module for _, module in sources], options)
    mutated: list[tuple[str, Set[str], Module]] = []
    for (name, module), products in zip(sources, compiled_sources, strict=True):
        yield from _compared(name, products)
        if products and not any(product.rule for product in products):
            mutated += [
                (f"{name}, {change}", expected, mutant)
                for expected, change, mutant in mutants(module, MUTATIONS)
            ]
    compiled_mutants = _compile([mutant for *_, mutant in mutated], options)
    for (name, expected, _), products in zip(mutated, compiled_mutants, strict=True):
        yield from _compared(name, products)
        rules = {product.rule for product in products or ()}
        if rules and not rules & expected:
            yield problem("other conditions", f"{name}: {rules}, expected {expected}")
        elif rules:
            yield counted("conditions named", f"{name}: {rules}")


def _compared(name: str, products: tuple[Float8Product, ...] | None) -> Iterator[Finding]:
    if products is None:
        yield counted("modules that do not compile", name)
    for product in products or ():
        words = f"{name}: {product.rule or 'all met'}, {product.made_by}"
        is_right = product.is_call == (product.rule is None)
        yield (counted if is_right else problem)("products" if is_right else "differences", words)


def _compile(
    modules: Sequence[Module], options: Namespace
) -> list[tuple[Float8Product, ...] | None]:
    with compiled(modules, options) as dumps:
        return [_find(dump) if dump is not None else None for dump in dumps]


def _find(dump: DumpedModule) -> tuple[Float8Product, ...] | None:
    stage = stage_after(dump)  # without Triton's products, it has the calls of the final module
    return find_products(dump, dump.read(stage)) if stage is not None else None


def _new_parameter(graph: MutableModule, shape: Shape) -> MutableInstruction:
    return graph.entry.make_parameter(shape)


def _wide_operands(graph: MutableModule) -> Iterator[tuple[MutableInstruction, MutableInstruction]]:
    """Yield dots with their operands that are no 8-bit floats themselves."""
    for dot in heroes(graph):
        for operand in dict.fromkeys(dot.operands):
            if dot.computation is graph.entry and operand.shape.element_type[:2] != "f8":
                yield dot, operand


def _both_in_e5m2(graph: MutableModule) -> bool:
    for instruction in graph.walk():
        if instruction.shape.is_array and instruction.shape.element_type == "f8e4m3fn":
            instruction.shape = Shape("f8e5m2", instruction.shape.dimensions)
    return True


def _scale_by_vector(graph: MutableModule) -> bool:
    for instruction in graph.entry.post_order():
        if instruction.opcode != "broadcast" or instruction.operands[0].shape.dimensions:
            continue
        if instruction.shape.rank == 1:  # a vector for it would be no broadcast
            continue
        readers = [user for user in instruction.users if user.opcode in ("multiply", "divide")]
        scaled = [user for user in readers if _converts_float8(user.operands[0])]
        if scaled and instruction.operands[0].opcode == "parameter":
            *_, size = instruction.shape.dimensions
            vector = _new_parameter(graph, Shape(instruction.shape.element_type, (size,)))
            text = f", dimensions={{{instruction.shape.rank - 1}}}"
            wide = graph.entry.make("broadcast", instruction.shape, [vector], text)
            replace_operand(scaled[0], instruction, wide)
            return True
    return False


def _scale_by_channel(graph: MutableModule) -> bool:
    """Scale by a vector along a dimension that the product keeps."""
    for dot in heroes(graph):
        for side, operand in zip(("lhs", "rhs"), dot.operands, strict=True):
            summed = dot.attribute(f"{side}_contracting_dims") or ()
            free = [d for d in range(operand.shape.rank) if d not in summed]
            if (
                operand.opcode != "multiply"
                or not _converts_float8(operand.operands[0])
                or not free
            ):
                continue
            size = operand.shape.dimensions[free[-1]]
            vector = _new_parameter(graph, Shape(operand.shape.element_type, (size,)))
            text = f", dimensions={{{free[-1]}}}"
            wide = graph.entry.make("broadcast", operand.shape, [vector], text)
            replace_operand(operand, operand.operands[1], wide)
            return True
    return False


def _converts_float8(value: MutableInstruction) -> bool:
    return value.opcode == "convert" and value.operands[0].shape.element_type.startswith("f8")


def _negate_operand(graph: MutableModule) -> bool:
    for dot, operand in _wide_operands(graph):
        negated = graph.entry.make("negate", operand.shape, [operand])
        replace_operand(dot, operand, negated)
        return True
    return False


def _scale_again(graph: MutableModule) -> bool:
    for dot, operand in _wide_operands(graph):
        scalar = _new_parameter(graph, Shape(operand.shape.element_type, ()))
        wide = graph.entry.make("broadcast", operand.shape, [scalar], ", dimensions={}")
        tripled = graph.entry.make("tanh", operand.shape, [wide])
        scaled = graph.entry.make("multiply", operand.shape, [operand, tripled])
        again = graph.entry.make("multiply", operand.shape, [scaled, wide])
        replace_operand(dot, operand, again)
        return True
    return False


def _read_a_wide_parameter(graph: MutableModule) -> bool:
    for dot, operand in _wide_operands(graph):
        replace_operand(dot, operand, _new_parameter(graph, operand.shape))
        return True
    return False


def _select_ones(graph: MutableModule) -> bool:
    for dot, operand in _wide_operands(graph):
        kind, sizes = operand.shape.element_type, operand.shape.dimensions
        mask = _new_parameter(graph, Shape("pred", sizes))
        number = _new_parameter(graph, Shape(kind, ()))
        wide = graph.entry.make("broadcast", operand.shape, [number], ", dimensions={}")
        choice = graph.entry.make("select", operand.shape, [mask, operand, wide])
        replace_operand(dot, operand, choice)
        return True
    return False


# The conditions that each breaks. The types of what a dot itself reads are asked first.
MUTATIONS: tuple[Mutation, ...] = (
    ({"f8-formats", "f8-types"}, _both_in_e5m2),
    ({"f8-scale"}, _scale_by_vector),
    ({"f8-scale"}, _scale_by_channel),
    ({"f8-between"}, _negate_operand),
    ({"f8-between"}, _scale_again),
    ({"f8-source"}, _read_a_wide_parameter),
    ({"f8-between"}, _select_ones),
)
