"""Products of 8-bit floats, and the first condition that keeps each from being one call."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from fusionscope.dump import DumpedModule, Stage
from fusionscope.dump.device import CudaCapability
from fusionscope.facts.source_lines import user_line
from fusionscope.findings.conditions import edited_lines
from fusionscope.findings.float8.facts import Float8Product
from fusionscope.graph.mutable import MutableModule
from fusionscope.history.library_calls import library_of
from fusionscope.hlo import Instruction, Module
from fusionscope.hlo.source import source_stack
from fusionscope.passes.gpu.gemm_rewriter import FLOAT8_TARGET, stage_before
from fusionscope.passes.gpu.gemm_rewriter.float8 import (
    Product,
    find_refusal,
    is_float8,
    read_operand,
)
from fusionscope.passes.gpu.gemm_rewriter.float8_remedies import meet


def find_products(module: DumpedModule, final: Module) -> tuple[Float8Product, ...]:
    """Return the products with an operand of 8-bit floats, in the order of the text; none if the
    dump lacks the stage before they become calls, or is not for an NVIDIA GPU.

    Raises ``UnusableInput`` if that stage cannot be read.
    """
    device = module.device
    capability = device.capability if device is not None else None
    stage = stage_before(module)
    if stage is None or not (capability is None or isinstance(capability, CudaCapability)):
        return ()
    before = module.read(stage)
    if not any(map(is_float8, before.walk())):
        return ()
    makers = dict(_makers(final))
    rules_seen: set[str] = set()
    products = []
    for product in products_of(MutableModule(before), capability):
        facts = _facts(product, stage, before, makers)
        if facts.rule is not None and facts.rule not in rules_seen:
            rules_seen.add(facts.rule)
            edit, changes = _edit(before, facts.rule, product)
            facts = structs.replace(facts, edit=edit, edit_changes=changes)
        products.append(facts)
    return tuple(products)


def _edit(module: Module, rule: str, product: Product) -> tuple[tuple[str, ...], str]:
    """Return the edit, empty if there is none, and how it changes the result."""
    graph = MutableModule(module)
    copies = products_of(graph, product.capability)
    copy = next(copy for copy in copies if copy.dot.name == product.dot.name)
    changes = meet(rule, copy)
    return ((), "") if changes is None else (edited_lines(module, graph), changes)


def products_of(graph: MutableModule, capability: CudaCapability | None) -> Iterator[Product]:
    """Yield the products with an operand of 8-bit floats."""
    for dot in graph.walk():
        if dot.opcode == "dot":
            lhs, rhs = read_operand(dot, 0), read_operand(dot, 1)
            if lhs.path or rhs.path:
                yield Product(dot, (lhs, rhs), capability)


def _facts(
    product: Product, stage: Stage, before: Module, makers: dict[str, Instruction]
) -> Float8Product:
    dot, refusal = product.dot, find_refusal(product)
    line = user_line(source_stack(dot.attribute("metadata") or {}, before.frames))
    maker = makers.get(dot.op_name or "")
    target = "" if maker is None else _target(maker)
    return Float8Product(
        name=dot.origin,
        stage=stage.label,
        source=str(line) if line is not None else None,
        made_by=library_of(target, "dot", "gpu").name if maker is not None else None,
        is_call=target == FLOAT8_TARGET,
        rule=refusal.rule if refusal is not None else None,
        at=str(dict(refusal.numbers).get("at", "")) or None if refusal is not None else None,
        why=refusal.message if refusal is not None else "",
        edit=(),
        edit_changes="",
    )


def _makers(final: Module) -> Iterator[tuple[str, Instruction]]:
    """Yield the kernels with a product, by the framework's names of the products."""
    callers = {
        callee.name: instruction
        for instruction in final.walk()
        if instruction.opcode == "fusion"
        for callee in instruction.called
    }
    for instruction in final.walk():
        is_call = instruction.opcode == "custom-call"
        if instruction.op_name and (is_call or instruction.opcode == "dot"):
            maker = instruction
            while maker.computation.name in callers:
                maker = callers[maker.computation.name]
            yield instruction.op_name, maker


def _target(maker: Instruction) -> str:
    """Return the target of a call, or the kind of a fusion."""
    if maker.opcode == "custom-call":
        return maker.attributes.get("custom_call_target", "").strip('"')
    config = (maker.attribute("backend_config") or {}).get("fusion_backend_config") or {}
    return str(config.get("kind", ""))
