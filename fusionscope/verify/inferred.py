"""Counts how often the inferred rules are right about a dump.

They are no replay: they say of single pairs that the compiler refuses them, and nothing of what it
does to others. So they are counted apart.
"""

from __future__ import annotations

from msgspec import Struct

from fusionscope.dump import DumpedModule
from fusionscope.dump.agreement import Agreement
from fusionscope.errors import UnusableInput
from fusionscope.history.following import Route, follow
from fusionscope.history.outcomes import Outcome, find_pairs
from fusionscope.passes.tpu.pair import TpuPairs
from fusionscope.passes.tpu.rules import refusing
from fusionscope.progress import Progress


class InferredVerification(Struct, frozen=True):
    """The pairs of one module.

    number: its number in the dump
    name: name of the module
    folder: where in the dump it lies; ``.`` for the dump itself
    device: the TPU that it was compiled for; null if no file shows it
    pairs: pairs that a rule refuses, and how many the compiler did not fuse
    refused: all pairs that were not fused
    wrong: the first pair that was fused against a rule, and that rule; null if there is none
    """

    number: int
    name: str
    folder: str
    device: str | None
    pairs: Agreement
    refused: int
    wrong: str | None


def verify_inferred(
    module: DumpedModule, folder: str, problems: list[str], progress: Progress
) -> InferredVerification:
    """Count the pairs of a TPU's program. Stages that cannot be read are added to ``problems``.
    Raises ``UnusableInput`` if the one before fusion or the final one is missing.
    """
    if module.pre_fusion is None or module.final is None:
        raise UnusableInput(
            f"{module.name} lacks the stage before fusion or the final one, expected a dump with "
            "--xla_dump_hlo_pass_re=.*",
            file=str(module.stages[0].file),
        )
    visited = TpuPairs()
    pairs = agreeing = refused = 0
    wrong: str | None = None
    before, final = module.pre_fusion, module.final
    followed = follow(Route(module, before, final, before, problems, progress))
    for pair in find_pairs(followed.first, followed.after_passes):
        if pair.outcome is Outcome.GONE:
            continue
        is_refused = pair.outcome is Outcome.NOT_FUSED
        refused += is_refused
        rule = refusing(visited.of(pair))
        if rule is None:
            continue
        pairs += 1
        agreeing += is_refused
        if not is_refused and wrong is None:
            wrong = f"{pair.producer.name} -> {pair.consumer.name}: {pair.outcome}, {rule.id}"
    device = str(module.tpu) if module.tpu is not None else None
    return InferredVerification(
        module.number, module.name, folder, device, Agreement(pairs, agreeing), refused, wrong
    )
