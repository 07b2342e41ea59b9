"""What the compiler's rules, evaluated again, say of a pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusionscope.dump import DumpedModule
from fusionscope.dump.device import Device
from fusionscope.explain.evidence import AroundDots, Evidence, Reason
from fusionscope.replay.older_passes import has_older_passes
from fusionscope.replay.passes import Settings, find_runs, pick_books, read_settings, replay
from fusionscope.replay.plan import FusionPlan
from fusionscope.rules.books import Books
from fusionscope.rules.graph import MutableModule
from fusionscope.rules.legacy_gpu.fusion import DUPLICATING
from fusionscope.rules.messages import PASS_OFF

# The passes that decide about pairs, the main one last, by backend.
_DECIDING = {
    "cpu": ("dot-library-rewriter", "fusion"),
    "gpu": ("triton-gemm-rewriter", "priority-fusion"),
}
# Before priority fusion.
_OLDER = ("fusion", DUPLICATING, "fusion_merger")


class Replayed:
    """The reasons of replayed passes, by the names that instructions had before each.

    ``main_pass`` is the one that decides about most pairs. Plans of passes that go on with the
    graph of the one before count as one.
    """

    def __init__(
        self, plans: Mapping[str, Sequence[FusionPlan]], main_pass: str, *, is_off: bool = False
    ) -> None:
        self.main_pass = main_pass
        self._is_off = is_off
        self._evidence: dict[str, Evidence] = {}
        for name, chain in plans.items():
            evidence = self._evidence[name] = Evidence()
            for plan in chain:
                evidence.add_plan(plan)
        gemm = plans.get("triton-gemm-rewriter")
        self._around_dots = AroundDots(*gemm) if gemm is not None else None

    def reason(self, pass_name: str, producer: str, consumer: str) -> Reason | None:
        if self._is_off:
            return Reason(PASS_OFF, "")
        evidence = self._evidence.get(pass_name)
        return evidence.reason(producer, consumer) if evidence is not None else None

    def reason_around_dot(self, producer: str, consumer: str) -> Reason | None:
        """Why a fusion of a matrix multiplication took no more in, names before that pass."""
        if self._around_dots is None:
            return None
        return self._around_dots.reason(producer, consumer)

    def rules_of(self, producer: str) -> frozenset[str]:
        """The rules by which the main pass refused any of the producer's consumers."""
        evidence = self._evidence.get(self.main_pass)
        return evidence.rules_of(producer) if evidence is not None else frozenset()


def replay_passes(
    module: DumpedModule, books: Books | None = None, device: Device | None = None
) -> Replayed | None:
    """Replays the passes that decide about pairs; None where they cannot be. ``device`` is the GPU
    to take, the dump's own where None. Raises ``UnusableInput``."""
    passes = _DECIDING.get(module.backend or "")
    if passes is None:
        return None
    settings, books = read_settings(module, device), books or pick_books(module)
    if module.backend == "gpu" and has_older_passes(module):
        return _replay_older(module, settings, books)
    if not module.lets_run(passes[-1]):
        return Replayed({}, passes[-1], is_off=True)
    plans = {
        run.pass_name: (replay(run.pass_name, module.read(run.before), settings, books),)
        for run in find_runs(module)
        if run.pass_name in passes
    }
    return Replayed(plans, passes[-1]) if plans else None


def _replay_older(module: DumpedModule, settings: Settings, books: Books) -> Replayed | None:
    """One after the other, so that the last one that looked at a pair is heard last."""
    chain: list[FusionPlan] = []
    graph: MutableModule | None = None
    for run in find_runs(module):
        if run.pass_name in _OLDER:
            before = module.read(run.before)
            graph = graph or MutableModule(before)
            chain.append(replay(run.pass_name, before, settings, books, graph))
    return Replayed({_OLDER[0]: chain}, _OLDER[0]) if chain else None
