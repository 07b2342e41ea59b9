"""What the compiler's rules, evaluated again, say of a pair."""

from __future__ import annotations

from fusionscope.dump import DumpedModule
from fusionscope.explain.evidence import Evidence, Reason
from fusionscope.replay.passes import find_runs, pick_books, read_settings, replay
from fusionscope.replay.plan import FusionPlan
from fusionscope.rules.books import Books
from fusionscope.rules.messages import PASS_OFF


class Replayed:
    """The reasons of replayed passes, by the names that instructions had before each."""

    def __init__(self, plans: dict[str, FusionPlan], *, is_off: bool = False) -> None:
        self._is_off = is_off
        self._evidence: dict[str, Evidence] = {}
        for name, plan in plans.items():
            evidence = self._evidence[name] = Evidence()
            evidence.add_plan(plan)

    def reason(self, pass_name: str, producer: str, consumer: str) -> Reason | None:
        if self._is_off:
            return Reason(PASS_OFF, "")
        evidence = self._evidence.get(pass_name)
        return evidence.reason(producer, consumer) if evidence is not None else None


def replay_passes(module: DumpedModule, books: Books | None = None) -> Replayed | None:
    """Replays the passes that decide about pairs; None where they cannot be. Raises
    ``UnusableInput``."""
    if module.backend != "cpu":
        return None
    settings, books = read_settings(module), books or pick_books(module)
    if not settings.runs("fusion"):
        return Replayed({}, is_off=True)
    plans = {
        run.pass_name: replay(run.pass_name, module.read(run.before), settings, books)
        for run in find_runs(module)
        if run.pass_name in ("dot-library-rewriter", "fusion")
    }
    return Replayed(plans) if plans else None
