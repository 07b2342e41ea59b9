"""Which of the passes of older compilers a dump shows."""

from __future__ import annotations

from fusionscope.dump import DumpedModule

_BEFORE_PRIORITIES = frozenset({"fusion", "fusion_merger"})


def has_horizontal_fusion(module: DumpedModule) -> bool:
    """Up to jaxlib 0.6, whether it did anything or not."""
    return any(stage.name.pipeline == "horizontal_fusion" for stage in module.stages)


def is_from_2023(module: DumpedModule) -> bool:
    """Whether it is by a compiler of early 2023, before a pass was renamed."""
    return has_horizontal_fusion(module) and any(
        "bf16-normalization" in (stage.name.before, stage.name.after) for stage in module.stages
    )


def has_older_passes(module: DumpedModule) -> bool:
    """Whether the passes ran that priority fusion replaced, as far as stages show."""
    names = [stage.name for stage in module.stages]
    fusing = {each for n in names if n.pipeline == "fusion" for each in (n.after, n.before)}
    if not _BEFORE_PRIORITIES.isdisjoint(fusing):
        return True
    return has_horizontal_fusion(module) and "priority-fusion" not in fusing
