"""The edit that meets a condition of cuBLASLt's epilogues restores the step, in mutants.

The modules are those of ``epilogues``: XLA's own tests, with one condition broken in each where a
call computes more than a product. Where the first condition that is not met has an edit, the stage
after products became calls is edited and compiled again, and as it is for comparison: the call has
to include one step more. Edits that keep the result, but for rounding, and those that change it are
counted apart.
"""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from conformance import rewriter_tests
from conformance.compiling import scheduled
from conformance.epilogues import MUTATIONS as EPILOGUES
from conformance.findings import Finding, counted, problem
from conformance.float8 import MUTATIONS as FLOAT8
from conformance.rewriter_tests import FLAGS, compiled, mutants, named_modules
from fusionscope.dump import DumpedModule
from fusionscope.findings.float8.find import products_of
from fusionscope.graph.mutable import (
    MutableInstruction,
    MutableModule,
    remove_unused,
    to_module,
)
from fusionscope.history.library_calls import taken_by
from fusionscope.hlo import Instruction, parse, to_text
from fusionscope.hlo.shape import Shape
from fusionscope.passes.gpu.gemm_rewriter import (
    FLOAT8_TARGET,
    TARGET,
    float8,
    float8_remedies,
    remedies,
    stage_after,
    stage_before,
)
from fusionscope.passes.gpu.gemm_rewriter.epilogues import (
    find_follower,
    find_refusal,
    is_product_call,
)

add_options = rewriter_tests.add_options
_LAYOUT = re.compile(r", entry_computation_layout=\{.*\}(?=,|$)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Edit:
    """What was made of a mutant for the condition ``rule``: ``before`` without the edit, ``after``
    with it, empty if there is none. ``product`` is the framework's name of the product, ``changes``
    how the edit changes the result, empty if only by rounding.
    """

    mutant: str
    product: str
    rule: str
    before: str
    after: str
    changes: str = ""


def findings(options: Namespace) -> Iterator[Finding]:
    edits: list[Edit] = []
    mutated = list(_mutants(options))
    with _compiled([text for _, text in mutated], options) as dumps:
        for (name, _), dump in zip(mutated, dumps, strict=True):
            if dump is not None:
                edits += _epilogue_edits(name, dump)
                edits += _float8_edits(name, dump)
    for edit in edits:
        if not edit.after:
            yield counted(f"without an edit: {edit.rule}", edit.mutant)
    edits = [edit for edit in edits if edit.after]
    with _compiled(
        [text for edit in edits for text in (edit.before, edit.after)], options
    ) as dumps:
        for edit, before, after in zip(edits, dumps[::2], dumps[1::2], strict=True):
            if before is None or after is None:
                yield problem("do not compile", f"{edit.mutant}, {edit.rule}: does not compile")
                continue
            most = _most_steps if edit.rule.startswith("lt-") else _float8_calls
            is_restored = most(after, edit.product) > most(before, edit.product)
            kind = "restored" if is_restored else "not restored"
            kind += f" with {'another' if edit.changes else 'the same'} result: {edit.rule}"
            line = f"{edit.mutant}, {kind}, {edit.changes}"
            yield (counted if is_restored else problem)(kind, line)


def _compiled(
    texts: Sequence[str], options: Namespace
) -> AbstractContextManager[list[DumpedModule | None]]:
    return scheduled(options.python, texts, FLAGS, options.device)


def _mutants(options: Namespace) -> Iterator[tuple[str, str]]:
    """Yield names and texts of the mutants of modules with a call that does more than a product."""
    sources = named_modules(options)
    with compiled((module for _, module in sources), options) as dumps:
        steps = [dump is not None and _most_steps(dump) + _float8_calls(dump) for dump in dumps]
    for (name, module), count in zip(sources, steps, strict=True):
        is_float8 = any(map(float8.is_float8, module.walk()))
        if count:
            for _, change, mutant in mutants(module, FLOAT8 if is_float8 else EPILOGUES):
                yield f"{name}, {change}", to_text(mutant)


def _epilogue_edits(name: str, dump: DumpedModule) -> Iterator[Edit]:
    stage = stage_after(dump)
    if stage is None:
        return
    module = dump.read(stage)
    for call in filter(is_product_call, module.walk()):
        follower = find_follower(call)
        refusal = find_refusal(follower) if follower is not None else None
        if follower is not None and refusal is not None and not follower.is_float8:
            before, after = (MutableModule(parse(to_text(module))) for _ in range(2))
            is_met = remedies.meet(refusal.rule, after, follower)
            texts = [to_text(to_module(_without_calls(graph))) for graph in (before, after)]
            text = texts[1] if is_met else ""
            yield Edit(name, call.op_name or "", refusal.rule, texts[0], text)


def _float8_edits(name: str, dump: DumpedModule) -> Iterator[Edit]:
    stage = stage_before(dump)
    if stage is None:
        return
    text = to_text(dump.read(stage))
    graph = MutableModule(parse(text))
    for product in products_of(graph, None):
        refusal = float8.find_refusal(product)
        if refusal is not None:
            changes = float8_remedies.meet(refusal.rule, product)
            edited = to_text(to_module(graph)) if changes is not None else ""
            edited = _LAYOUT.sub("", edited)  # it lacks what the edit made an argument
            dot = product.dot.op_name or ""
            yield Edit(name, dot, refusal.rule, text, edited, changes or "")
            return  # the graph is changed


def _without_calls(graph: MutableModule) -> MutableModule:
    """Write calls as products again: the compiler takes no calls before it assigns layouts."""
    for call in list(graph.walk()):
        if call.opcode == "bitcast":  # which the way to the compiler does not know
            call.opcode = "reshape"
        target = call.attributes.get("custom_call_target", "").strip('"')
        if target == TARGET:
            result = call
            if not call.shape.is_array:
                (result,) = (u for u in call.users if u.attribute("index") == 0)
            result.computation.replace_uses(result, _as_product(call, result))
            remove_unused(result)
    return graph


def _as_product(call: MutableInstruction, result: MutableInstruction) -> MutableInstruction:
    """Return the product and the steps that a call computes, but for GELU."""
    config = call.attribute("backend_config")["gemm_backend_config"]
    make, shape = call.computation.make, result.shape
    dimensions = ", ".join(
        f"{side}_{kind}_dims={{{','.join(config['dot_dimension_numbers'][f'{side}_{long}_dimensions'])}}}"
        for side in ("lhs", "rhs")
        for kind, long in (("batch", "batch"), ("contracting", "contracting"))
        if config["dot_dimension_numbers"][f"{side}_{long}_dimensions"]
    )
    metadata = f', metadata={{op_name="{call.op_name}"}}'
    value = make("dot", shape, call.operands[:2], f", {dimensions}{metadata}")
    extra = list(call.operands[2:])
    if config["alpha_real"] != 1:
        value = make("multiply", shape, [value, _number(call, shape, config["alpha_real"])])
    if config["beta"]:
        value = make("add", shape, [value, extra.pop(0)])
    steps = config["epilogue"].split("_")
    if "BIAS" in steps:
        minor = shape.layout.minor_to_major[0] if shape.layout else shape.rank - 1
        bias = make("broadcast", shape, [extra.pop(0)], f", dimensions={{{minor}}}")
        value = make("add", shape, [value, bias])
    if "RELU" in steps:
        value = make("maximum", shape, [value, _number(call, shape, 0)])
    return value


def _number(call: MutableInstruction, shape: Shape, number: float) -> MutableInstruction:
    constant = call.computation.make("constant", Shape(shape.element_type, ()), [])
    constant.inside = f"{number:g}"
    return call.computation.make("broadcast", shape, [constant], ", dimensions={}")


def _most_steps(dump: DumpedModule, name: str | None = None) -> int:
    return max((len(taken_by(call)) for call in _calls(dump, name)), default=0)


def _float8_calls(dump: DumpedModule, name: str | None = None) -> int:
    return sum(FLOAT8_TARGET in i.attributes["custom_call_target"] for i in _calls(dump, name))


def _calls(dump: DumpedModule, name: str | None) -> Iterator[Instruction]:
    stage = stage_after(dump)
    for instruction in dump.read(stage).walk() if stage is not None else ():
        if is_product_call(instruction) and name in (None, instruction.op_name):
            yield instruction
