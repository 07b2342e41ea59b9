"""What a call of cuBLASLt or cuDNN leaves out does not meet a condition, in XLA's own tests and in
mutants.

The modules are those in FILES: HLO, or C++ with HLO in raw strings, such as
``gemm_rewriter_test.cc`` and ``cudnn_fused_conv_rewriter_test.cc`` in
``xla/backends/gpu/transforms``. Each is compiled without Triton as it is, and where a call computes
more than a product or a convolution, with one condition broken. What the compiler leaves out has to
break a condition; where breaking one made it leave out a step, that one has to be named.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence, Set

from conformance import rewriter_tests
from conformance.findings import Finding, counted, problem
from conformance.rewriter_tests import Mutation, compiled, heroes, mutants, named_modules
from fusionscope.findings.epilogues.facts import Epilogue
from fusionscope.findings.epilogues.find import find_epilogues
from fusionscope.graph.mutable import MutableInstruction, MutableModule, replace_operand
from fusionscope.hlo import Module
from fusionscope.hlo.shape import TUPLE, Shape

add_options = rewriter_tests.add_options
_TRANSPARENT = frozenset("bitcast convert copy reshape slice transpose".split())


def findings(options: Namespace) -> Iterator[Finding]:
    sources = named_modules(options)
    compiled_sources = _compile([module for _, module in sources], options)
    mutated: list[tuple[str, int, Set[str], Module]] = []
    for (name, module), epilogues in zip(sources, compiled_sources, strict=True):
        yield from _compared(name, epilogues)
        if steps := _steps(epilogues):
            mutated += [
                (f"{name}, {change}", steps, expected, mutant)
                for expected, change, mutant in mutants(module, MUTATIONS)
            ]
    compiled_mutants = _compile([mutant for *_, mutant in mutated], options)
    for (name, steps, expected, _), epilogues in zip(mutated, compiled_mutants, strict=True):
        yield from _compared(name, epilogues)
        if epilogues is None or _steps(epilogues) >= steps:
            yield counted("mutants without effect", name)
            continue
        rules = {epilogue.rule for epilogue in epilogues if epilogue.rule}
        is_right = bool(rules & expected)
        yield (counted if is_right else problem)(
            "conditions named" if is_right else "other conditions",
            f"{name}: {rules}, expected {expected}",
        )


def _compile(modules: Sequence[Module], options: Namespace) -> list[tuple[Epilogue, ...] | None]:
    with compiled(modules, options) as dumps:
        return [find_epilogues(dump) if dump is not None else None for dump in dumps]


def _steps(epilogues: tuple[Epilogue, ...] | None) -> int:
    return sum(len(epilogue.includes) for epilogue in epilogues or ())


def _compared(name: str, epilogues: tuple[Epilogue, ...] | None) -> Iterator[Finding]:
    if epilogues is None:
        yield counted("modules that do not compile", name)
    for epilogue in epilogues or ():
        includes = ", ".join(epilogue.includes) or "nothing"
        words = f"{name}: {includes}; {epilogue.step or 'all'}, {epilogue.rule}: {epilogue.why}"
        is_right = epilogue.step is None or epilogue.rule is not None
        yield (counted if is_right else problem)("calls" if is_right else "differences", words)


def _followers(graph: MutableModule) -> Iterator[tuple[MutableInstruction, MutableInstruction]]:
    """Yield what reads the products of the entry computation, with the value that it reads."""
    for product in heroes(graph):
        value = product
        while len(value.users) == 1 and value.users[0].opcode in _TRANSPARENT:
            value = value.users[0]
        if product.computation is graph.entry:
            yield from ((user, value) for user in value.users)


def _spread(
    graph: MutableModule, value: MutableInstruction, like: Shape, text: str = "{}"
) -> MutableInstruction:
    return graph.entry.make("broadcast", like, [value], f", dimensions={text}")


def _return_product(graph: MutableModule) -> bool:
    root = graph.entry.root
    results = [product for product in heroes(graph) if product.computation is graph.entry]
    if not results or root.opcode == "tuple":
        return False
    _return_too(graph, results[0])
    return True


def _return_too(graph: MutableModule, value: MutableInstruction) -> None:
    root = graph.entry.root
    shape = Shape(TUPLE, elements=(root.shape, value.shape))
    graph.entry.root = graph.entry.make("tuple", shape, [root, value])


def _convert_between(graph: MutableModule) -> bool:
    for user, value in _followers(graph):
        kind = value.shape.element_type
        if user.opcode not in ("add", "maximum", "multiply") or kind not in ("f32", "bf16", "f16"):
            continue
        if len(set(user.operands)) < 2 or len(value.users) > 1:
            continue
        other_kind = "f16" if kind != "f16" else "bf16"
        between = Shape(other_kind, user.shape.dimensions)
        operands = [graph.entry.make("convert", between, [operand]) for operand in user.operands]
        changed = graph.entry.make(user.opcode, between, operands)
        back = graph.entry.make("convert", user.shape, [changed])
        graph.entry.replace_uses(user, back)
        if graph.entry.root is user:
            graph.entry.root = back
        return True
    return False


def _maximum_with_parameter(graph: MutableModule) -> bool:
    for instruction in graph.entry.post_order():
        if instruction.opcode == "maximum":
            for operand in list(instruction.operands):
                if operand.opcode == "broadcast" and operand.operands[0].opcode == "constant":
                    number = graph.entry.make_parameter(operand.operands[0].shape)
                    replace_operand(instruction, operand, _spread(graph, number, operand.shape))
                    return True
    return False


def _multiply_by_parameter(graph: MutableModule) -> bool:
    for user, _ in _followers(graph):
        for operand in list(user.operands):
            is_constant = operand.opcode == "broadcast" and operand.operands[0].opcode == "constant"
            if user.opcode == "multiply" and is_constant:
                factor = graph.entry.make_parameter(operand.operands[0].shape)
                replace_operand(user, operand, _spread(graph, factor, operand.shape))
                return True
    return False


def _biases(graph: MutableModule) -> Iterator[tuple[MutableInstruction, MutableInstruction]]:
    for instruction in graph.entry.post_order():
        if instruction.opcode == "add":
            for operand in instruction.operands:
                is_vector = operand.opcode == "broadcast" and operand.operands[0].shape.rank == 1
                if is_vector and operand.shape.rank >= 2:
                    yield instruction, operand


def _bias_of_rows(graph: MutableModule) -> bool:
    for total, bias in _biases(graph):
        rows = graph.entry.make_parameter(
            Shape(bias.shape.element_type, (bias.shape.dimensions[0],))
        )
        replace_operand(total, bias, _spread(graph, rows, bias.shape, "{0}"))
        return True
    return False


def _scalar_bias(graph: MutableModule) -> bool:
    for total, bias in _biases(graph):
        number = graph.entry.make_parameter(Shape(bias.shape.element_type, ()))
        replace_operand(total, bias, _spread(graph, number, bias.shape))
        return True
    return False


def _maximum_first(graph: MutableModule) -> bool:
    for user, value in _followers(graph):
        if user.opcode == "add" and len(set(user.operands)) == 2 and len(value.users) == 1:
            scalar = Shape(value.shape.element_type, ())
            zero = graph.entry.make("constant", scalar, [])
            zero.inside = "0"
            zeros = _spread(graph, zero, value.shape)
            positive = graph.entry.make("maximum", value.shape, [value, zeros])
            replace_operand(user, value, positive)
            return True
    return False


def _return_tangent(graph: MutableModule) -> bool:
    root = graph.entry.root
    tangent = next((i for i in graph.entry.post_order() if i.opcode == "tanh"), None)
    if tangent is None or root.opcode == "tuple":
        return False
    _return_too(graph, tangent)
    return True


def _quarter(graph: MutableModule) -> bool:
    for instruction in graph.entry.post_order():
        is_half = instruction.opcode == "constant" and instruction.literal == "0.5"
        if is_half and any(i.opcode == "tanh" for i in graph.entry.post_order()):
            instruction.inside = "0.25"
            return True
    return False


def _complex(graph: MutableModule) -> bool:
    instructions = graph.entry.post_order()
    if any(i.opcode in ("constant", "maximum", "tanh", "convert") for i in instructions):
        return False
    for instruction in instructions:
        instruction.shape = Shape("c64", instruction.shape.dimensions)
    return True


def _depthwise(graph: MutableModule) -> bool:
    for product in heroes(graph):
        if product.opcode == "convolution" and product.operands[1].opcode == "parameter":
            kernel = product.operands[1]
            labels = product.attributes["dim_labels"].partition("_")[2].partition("->")[0]
            sizes = list(kernel.shape.dimensions)
            channels = sizes[labels.index("i")]
            if channels == sizes[labels.index("o")] and "group" not in product.attributes_text:
                sizes[labels.index("i")] = 1
                kernel.shape = Shape(kernel.shape.element_type, tuple(sizes))
                product.attributes_text += f", feature_group_count={channels}"
                return True
    return False


def _bfloat16(graph: MutableModule) -> bool:
    is_changed = False
    for instruction in graph.entry.post_order():
        if instruction.shape.element_type == "f16" and instruction.opcode != "constant":
            is_changed = True
        if instruction.shape.element_type == "f16":
            instruction.shape = Shape("bf16", instruction.shape.dimensions)
    return is_changed and any(p.opcode == "convolution" for p in heroes(graph))


def _bounds(graph: MutableModule) -> bool:
    for instruction in graph.entry.post_order():
        if instruction.opcode == "constant" and instruction.literal == "6":
            instruction.inside = "7"
            return True
    return False


def _not_below(graph: MutableModule) -> bool:
    for instruction in graph.entry.post_order():
        if instruction.opcode == "compare" and "direction=GT" in instruction.attributes_text:
            text = instruction.attributes_text.replace("direction=GT", "direction=GE")
            instruction.attributes_text = text
            return True
    return False


# The conditions that each may break.
MUTATIONS: tuple[Mutation, ...] = (
    ({"lt-users", "conv-users"}, _return_product),
    ({"lt-between", "lt-wider", "conv-between"}, _convert_between),
    ({"lt-zero", "conv-formula"}, _maximum_with_parameter),
    ({"lt-factor", "conv-factor"}, _multiply_by_parameter),
    ({"lt-minor", "lt-columns"}, _bias_of_rows),
    ({"lt-columns"}, _scalar_bias),
    ({"lt-epilogue", "lt-first", "conv-order"}, _maximum_first),
    ({"conv-depthwise"}, _depthwise),
    ({"conv-half"}, _bfloat16),
    ({"conv-formula"}, _bounds),
    ({"conv-formula"}, _not_below),
    ({"lt-gelu"}, _return_tangent),
    ({"lt-gelu"}, _quarter),
    ({"lt-type"}, _complex),
)
