"""Where two dumps differ: in the lowering, in the passes, or below HLO."""

from __future__ import annotations

from enum import StrEnum

from fusionscope.compare.difference import Difference, ModuleDifference, compare
from fusionscope.progress import Progress
from fusionscope.upgrade.below import CodeChange, compare_code, same_kernels
from fusionscope.upgrade.figures import Side, module_of


class Where(StrEnum):
    """The place of a difference."""

    NOWHERE = "nowhere"
    LOWERING = "lowering"  # jax hands another program to the compiler
    PASSES = "passes"
    BELOW = "below"  # the HLO is the same


def compare_dumps(
    before: Side, after: Side, progress: Progress
) -> tuple[Difference, Where, tuple[CodeChange, ...] | None]:
    """Return what differs between two dumps, where it begins, and in the code of kernels that have
    the same HLO.
    """
    difference = compare(before.dump, after.dump, progress=progress)
    for module in difference.modules:
        if not is_same_program(module):
            divergence = module.first_divergence
            is_lowered = divergence is not None and divergence.last_same is None
            modules = (module_of(side.dump) for side in (before, after))
            kernels = same_kernels(*(module.read(module.last) for module in modules))
            code = compare_code(before.dump, after.dump, kernels)
            return difference, Where.LOWERING if is_lowered else Where.PASSES, code
    code = compare_code(before.dump, after.dump)
    return difference, Where.BELOW if code else Where.NOWHERE, code


def is_same_program(module: ModuleDifference) -> bool:
    """Return whether two modules differ in nothing that is run: fields that one release writes with
    their default and the other leaves out, and notes of the framework.
    """
    return not (module.outcomes or module.fusions or module.lost or module.gained) and all(
        name == "frontend_attributes" or {old or "none", new or "none"} <= _DEFAULTS
        for fields in (module.header, *(edit.fields or _ONE_SIDE for edit in module.edits))
        for name, old, new in fields
    )


# What fields of protos are if nothing sets them, as JSON writes it.
_DEFAULTS = frozenset({"none", "false", "0", '"0"', "[]", '""', "{}"})
_ONE_SIDE = (("instruction", "", "there"),)  # an edit that adds or removes one
