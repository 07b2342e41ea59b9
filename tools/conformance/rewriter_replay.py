"""What each product's call of cuBLASLt includes is predicted from the stage before there are calls.

PATHS are dumps, or files with XLA's own tests, such as
``xla/backends/gpu/transforms/gemm_rewriter_test.cc``, which are compiled together with mutants. The
dumps, such as those of a fleet compiled with ``--xla_gpu_enable_triton_gemm=false``, need all
stages. Each dot becomes a call if the conditions of the pass allow that; then each step after it
becomes part of it if it meets all conditions, until one does not. What comes of it is compared with
the calls of the stage after the pass: products of equal shapes and of one name in the program are
one group, of which as many have to include the same steps.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from sys import executable
from typing import Any, cast

from conformance.compiling import scheduled
from conformance.epilogues import MUTATIONS
from conformance.findings import Finding, counted, problem
from conformance.rewriter_tests import FLAGS, modules, mutants
from fusionscope.dump import DumpedModule, Stage, open_dump
from fusionscope.errors import UnusableInput
from fusionscope.graph.mutable import MutableInstruction, MutableModule, replace_operand
from fusionscope.history.library_calls import EpilogueStep, taken_by
from fusionscope.hlo import Instruction, to_text
from fusionscope.hlo.shape import Shape
from fusionscope.passes.gpu.gemm_rewriter import PASS_NAME, TARGET, stage_before
from fusionscope.passes.gpu.gemm_rewriter.epilogues import (
    EPILOGUES,
    Follower,
    find_follower,
    find_refusal,
)
from fusionscope.passes.rule import first_decision

_CALLS = ("__cublas$lt$matmul", "__cublas$gemm")
_RESULTS = frozenset("f8e4m3fn f8e5m2 f16 bf16 f32 f64 c64 c128 s32".split())
_LEAST = 100  # elements of the operands, per batch, or other emitters compute a product of these:
_EMITTED = frozenset({"f16", "bf16", "f32"})
_SIDES = ("lhs", "rhs")
_Group = tuple[str, str]  # the framework's name, and the element type and number of elements


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    parser.add_argument("--device", default="h100")
    parser.add_argument("--python", default=executable, help="one that compiles for the device")


def findings(options: Namespace) -> Iterator[Finding]:
    for path in options.paths:
        if path.suffix == ".cc":
            with scheduled(options.python, _texts(path), FLAGS, options.device) as dumps:
                yield from _all_compared(filter(None, dumps))
        else:
            yield from _all_compared(open_dump(path).modules)


def _texts(file: Path) -> list[str]:
    texts = []
    for module in modules(file):
        texts.append(to_text(module))
        for _, _, mutant in mutants(module, MUTATIONS):
            with suppress(UnusableInput):  # the mutation does not fit
                texts.append(to_text(mutant))
    return texts


def _all_compared(dumps: Iterable[DumpedModule]) -> Iterator[Finding]:
    for module in dumps:
        stages = _around(module)
        if stages is not None:
            yield from _compared(module, *stages)


def _around(module: DumpedModule) -> tuple[Stage, Stage] | None:
    """Return the stages before the pass first changed the module, and after it did last: twice one
    stage if it changed nothing.
    """
    places = [n for n, stage in enumerate(module.stages) if stage.name.after == PASS_NAME]
    if not places:
        stage = stage_before(module)
        return (stage, stage) if stage is not None else None
    return module.stages[places[0] - 1], module.stages[places[-1]]


def _compared(module: DumpedModule, before: Stage, after: Stage) -> Iterator[Finding]:
    predicted = Counter(replay(MutableModule(module.read(before))))
    actual = Counter(
        (_group(instruction), _steps(instruction))
        for instruction in module.read(after).walk()
        if _is_call(instruction)
    )
    if predicted or actual:
        yield counted("modules", module.name)
    for (group, steps), count in actual.items():
        agreeing = min(count, predicted[group, steps])
        words = f"{module.name}: {group[0]} {group[1]}: {', '.join(steps) or 'a product alone'}"
        if agreeing:
            yield counted(f"agree: {', '.join(steps) or 'a product alone'}", words, agreeing)
        for _ in range(count - agreeing):
            predictions = [", ".join(part) for name, part in predicted if name == group]
            yield problem("differ", f"{words}, predicted {predictions}")
    for (group, steps), count in (predicted - actual).items():
        if group not in {name for name, _ in actual}:
            yield problem("no calls", f"{module.name}: {group}: {steps}, predicted {count}")


def _is_call(instruction: Instruction) -> bool:
    target = instruction.attributes.get("custom_call_target", "").strip('"')
    return instruction.opcode == "custom-call" and target.startswith(_CALLS)


def _group(call: Instruction | MutableInstruction) -> _Group:
    shape = call.shape if call.shape.is_array else call.shape.elements[0]
    return call.op_name or "", f"{call.operands[0].shape.element_type} {shape.element_count}"


def _steps(call: Instruction | MutableInstruction) -> tuple[str, ...]:
    return tuple(step.text for step in taken_by(cast(Instruction, call)))


def replay(graph: MutableModule) -> Iterator[tuple[_Group, tuple[str, ...]]]:
    """Yield the calls that the pass makes of a module, and what each includes."""
    for computation in graph.post_order():
        calls = [
            _call_for(dot)
            for dot in computation.post_order()
            if dot.opcode == "dot" and _becomes_call(dot)
        ]
        for call in calls:
            yield _group(call), _steps(_with_steps(call))


def _becomes_call(dot: MutableInstruction) -> bool:
    """Source: IsCublasSupportedMatMul in xla/service/gpu/ir_emission_utils.cc, and
    IsMatrixMultiplicationTooSmallForRewriting and IsDotSupportedByClassicalEmitters in
    xla/service/gpu/matmul_utils.cc.
    """
    matrices, size, contracted = 0, 0, 1
    for side, operand in zip(_SIDES, dot.operands, strict=True):
        batch = dot.attribute(f"{side}_batch_dims") or ()
        summed = dot.attribute(f"{side}_contracting_dims") or ()
        free = [d for d in range(operand.shape.rank) if d not in batch and d not in summed]
        if len(summed) != 1 or len(free) > 1 or operand.shape.rank - 1 in batch:
            return False
        sizes = [operand.shape.dimensions[d] or 1 for d in free]
        matrices += any(count != 1 for count in sizes)
        size += sizes[0] if sizes else 1
        contracted = operand.shape.dimensions[summed[0]] or 1
    kinds = {operand.shape.element_type for operand in dot.operands}
    kind = dot.shape.element_type
    is_typed = kind in _RESULTS and (kind != "s32" or kinds == {"s8"})
    is_large = size * contracted >= _LEAST or kind not in _EMITTED
    return matrices > 0 and is_typed and is_large


def _call_for(dot: MutableInstruction) -> MutableInstruction:
    """Replace a dot by a call; several batch dimensions are one for it."""
    dimensions = {
        f"{side}_{long}_dimensions": [str(d) for d in dot.attribute(f"{side}_{short}_dims") or ()]
        for side in _SIDES
        for short, long in (("batch", "batch"), ("contracting", "contracting"))
    }
    config = {"alpha_real": 1, "beta": 0, "dot_dimension_numbers": dimensions}
    batch = len(dot.attribute("lhs_batch_dims") or ())
    shape = dot.shape
    if batch > 1:
        count = 1
        for size in shape.dimensions[:batch]:
            count *= size or 1
        shape = Shape(shape.element_type, (count, *shape.dimensions[batch:]))
    call = dot.computation.make("custom-call", shape, list(dot.operands))
    _configure(call, config | {"epilogue": "DEFAULT"}, dot.op_name)
    value = dot.computation.make("reshape", dot.shape, [call]) if batch > 1 else call
    dot.computation.replace(dot, value)
    return call


def _configure(call: MutableInstruction, config: dict[str, Any], op_name: str | None) -> None:
    text = json.dumps({"gemm_backend_config": config})
    name = json.dumps(op_name or "")
    call.set_attributes(
        f', custom_call_target="{TARGET}", metadata={{op_name={name}}}, backend_config={text}'
    )


def _with_steps(call: MutableInstruction) -> MutableInstruction:
    """Return the call with all that follows and meets the conditions."""
    while (follower := find_follower(cast(Instruction, call))) is not None:
        if find_refusal(follower) is not None:
            break
        call = _absorb(call, follower)
    return call


def _absorb(call: MutableInstruction, follower: Follower) -> MutableInstruction:
    config = dict(call.attribute("backend_config")["gemm_backend_config"])
    operation, operand, *path = (
        cast(MutableInstruction, part)
        for part in (follower.operation, follower.operand, *follower.path)
    )
    step, extra = follower.step, [operand]
    if step is EpilogueStep.BIAS and first_decision(
        rule.check(follower) for rule in EPILOGUES if step in rule.steps
    ):
        step = EpilogueStep.ADDITION
    parts = [part for part in config["epilogue"].split("_") if part != "DEFAULT"]
    match step:
        case EpilogueStep.SCALING:
            config["alpha_real"] *= _real_part(operand.operands[0].literal)
            extra = []
        case EpilogueStep.ADDITION:
            config["beta"] = 1
        case EpilogueStep.BIAS:
            parts.append("BIAS")
            extra = list(operand.operands)
        case EpilogueStep.RELU:
            parts.append("RELU")
            extra = []
        case EpilogueStep.GELU:
            parts.append("GELU")
            extra = []
            if len(path[-1].users) > 4:  # those of the formula
                parts.append("AUX")
    config["epilogue"] = "_".join(parts) or "DEFAULT"
    kind = operation.shape.element_type
    make = call.computation.make
    new_call = make(
        "custom-call",
        Shape(kind, call.shape.dimensions, call.shape.layout),
        [*call.operands, *extra],
    )
    _configure(new_call, config, call.op_name)
    value = new_call
    for moved in path[1:]:
        if moved.opcode != "convert":
            shape = Shape(kind, moved.shape.dimensions, moved.shape.layout)
            value = make(moved.opcode, shape, [value], moved.attributes_text)
    for user in list(operation.users):
        replace_operand(user, operation, value)
    if operation.is_root:
        operation.computation.root = value
    return new_call


def _real_part(literal: str) -> float:
    """Return the number that a constant is, of a complex one, such as ``(3, 0)``, the real part."""
    return float(literal.strip("()").partition(",")[0])
