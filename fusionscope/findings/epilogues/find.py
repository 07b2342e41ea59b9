"""What library calls include, and the first condition that keeps the next step out."""

from __future__ import annotations

from collections.abc import Iterator

from fusionscope.dump import DumpedModule, Stage
from fusionscope.dump.device import CudaCapability
from fusionscope.facts.source_lines import user_line
from fusionscope.findings.conditions import edited_lines
from fusionscope.findings.epilogues.facts import Epilogue
from fusionscope.graph.mutable import MutableModule
from fusionscope.history.library_calls import taken_by
from fusionscope.hlo import Instruction, Module
from fusionscope.hlo.source import source_stack
from fusionscope.passes.gpu import conv_rewriter
from fusionscope.passes.gpu.conv_rewriter import epilogues as convolutions
from fusionscope.passes.gpu.gemm_rewriter import stage_after
from fusionscope.passes.gpu.gemm_rewriter.epilogues import (
    Follower,
    find_follower,
    find_refusal,
    is_product_call,
)
from fusionscope.passes.gpu.gemm_rewriter.remedies import meet
from fusionscope.passes.rule import Decision

_ENGINE = "xla_gpu_use_runtime_fusion"


def find_epilogues(module: DumpedModule) -> tuple[Epilogue, ...]:
    """Return the calls that include a step, or that one follows, those of cuBLASLt first, in the
    order of the text; none if the dump lacks the stages after they were made, or is not for an
    NVIDIA GPU.

    Raises ``UnusableInput`` if such a stage cannot be read.
    """
    capability = module.device.capability if module.device is not None else None
    if not (capability is None or isinstance(capability, CudaCapability)):
        return ()
    return (*_after_products(module), *_after_convolutions(module))


def _after_products(module: DumpedModule) -> Iterator[Epilogue]:
    stage = stage_after(module)
    if stage is None:
        return
    after = module.read(stage)
    rules_seen: set[str] = set()
    for call in filter(is_product_call, after.walk()):
        follower = find_follower(call)
        refusal = find_refusal(follower) if follower is not None else None
        edit: tuple[str, ...] = ()
        if follower is not None and refusal is not None and refusal.rule not in rules_seen:
            rules_seen.add(refusal.rule)
            edit = _edit(after, refusal.rule, follower)
        yield from _epilogue("cuBLASLt", stage, call, follower, refusal, edit)


def _after_convolutions(module: DumpedModule) -> Iterator[Epilogue]:
    stage = conv_rewriter.stage_after(module)
    if stage is None:
        return
    flags = module.flags.values if module.flags is not None else {}
    for call in filter(convolutions.is_convolution_call, module.read(stage).walk()):
        follower = convolutions.find_follower(call, has_engine=flags.get(_ENGINE) == ("true",))
        refusal = convolutions.find_refusal(follower) if follower is not None else None
        yield from _epilogue("cuDNN", stage, call, follower, refusal)


def _epilogue(
    library: str,
    stage: Stage,
    call: Instruction,
    follower: Follower | convolutions.Follower | None,
    refusal: Decision | None,
    edit: tuple[str, ...] = (),
) -> Iterator[Epilogue]:
    """Yield the call, unless it includes nothing and nothing follows it."""
    includes = tuple(step.text for step in taken_by(call))
    if follower is None and not includes:
        return
    line = user_line(source_stack(call.metadata, call.computation.module.frames))
    yield Epilogue(
        library=library,
        name=call.name,
        stage=stage.label,
        source=str(line) if line is not None else None,
        includes=includes,
        step=follower.step if follower is not None else None,
        operation=follower.operation.name if follower is not None else None,
        rule=refusal.rule if refusal is not None else None,
        at=str(dict(refusal.numbers)["at"]) if refusal is not None and refusal.numbers else None,
        why=refusal.message if refusal is not None else "",
        edit=edit,
    )


def _edit(module: Module, rule: str, follower: Follower) -> tuple[str, ...]:
    graph = MutableModule(module)
    return edited_lines(module, graph) if meet(rule, graph, follower) else ()
