"""What the calls of cuBLASLt include, and the first condition that keeps the next step out."""

from __future__ import annotations

from collections.abc import Iterator

from fusionscope.dump import DumpedModule, Stage
from fusionscope.dump.device import CudaCapability
from fusionscope.facts.source_lines import user_line
from fusionscope.findings.conditions import edited_lines
from fusionscope.findings.epilogues.facts import Epilogue
from fusionscope.graph.mutable import MutableModule
from fusionscope.history.library_calls import taken_by
from fusionscope.hlo import Module
from fusionscope.hlo.source import source_stack
from fusionscope.passes.gpu.gemm_rewriter import stage_after
from fusionscope.passes.gpu.gemm_rewriter.epilogues import (
    Follower,
    find_follower,
    find_refusal,
    is_product_call,
)
from fusionscope.passes.gpu.gemm_rewriter.remedies import meet


def find_epilogues(module: DumpedModule) -> tuple[Epilogue, ...]:
    """Return the calls that include a step, or that one follows, in the order of the text; none if
    the dump lacks the stage after they were made, or is not for an NVIDIA GPU.

    Raises ``UnusableInput`` if that stage cannot be read.
    """
    capability = module.device.capability if module.device is not None else None
    stage = stage_after(module)
    if stage is None or not (capability is None or isinstance(capability, CudaCapability)):
        return ()
    return tuple(_epilogues(module.read(stage), stage))


def _epilogues(after: Module, stage: Stage) -> Iterator[Epilogue]:
    rules_seen: set[str] = set()
    for call in after.walk():
        if not is_product_call(call):
            continue
        includes = tuple(step.text for step in taken_by(call))
        follower = find_follower(call)
        if follower is None and not includes:
            continue
        refusal = find_refusal(follower) if follower is not None else None
        edit: tuple[str, ...] = ()
        if follower is not None and refusal is not None and refusal.rule not in rules_seen:
            rules_seen.add(refusal.rule)
            edit = _edit(after, refusal.rule, follower)
        line = user_line(source_stack(call.metadata, after.frames))
        yield Epilogue(
            name=call.name,
            stage=stage.label,
            source=str(line) if line is not None else None,
            includes=includes,
            step=follower.step if follower is not None else None,
            operation=follower.operation.name if follower is not None else None,
            rule=refusal.rule if refusal is not None else None,
            at=str(dict(refusal.numbers)["at"])
            if refusal is not None and refusal.numbers
            else None,
            why=refusal.message if refusal is not None else "",
            edit=edit,
        )


def _edit(module: Module, rule: str, follower: Follower) -> tuple[str, ...]:
    graph = MutableModule(module)
    return edited_lines(module, graph) if meet(rule, graph, follower) else ()
