"""What the cost model of a GPU takes from before is what it would find anew."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fusionscope.dump import open_dump
from fusionscope.gpu.body import FusionBody
from fusionscope.gpu.cost.fusion_walk import FusionWalk
from fusionscope.gpu.cost.launch import Launch
from fusionscope.gpu.cost.model import CostModel, SharedReads
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.verify.verification import verify

DUMPS = Path(__file__).parents[2] / "samples" / "dumps"


@dataclass
class Counts:
    """How often each was compared, and how often something could be taken from before."""

    walks: int = 0
    continued: int = 0
    pairs: int = 0


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counts]:
    """While it is there, all that is taken from before is compared with what is found anew."""
    actual = Counts()
    update, pair_reads = FusionWalk.update, CostModel._pair_reads

    def compared_update(walk: FusionWalk, in_place: Collection[MutableInstruction]) -> None:
        actual.walks += 1
        actual.continued += bool(walk._steps)
        update(walk, in_place)
        anew = FusionWalk(
            walk._fused,
            walk._costs_of,
            walk._passes_elements_on,
            rounds_products=walk._rounds_products,
        )
        update(anew, in_place)
        assert walk._order == anew._order
        assert (walk.flops, walk.ir_size) == (anew.flops, anew.ir_size)
        for item in anew._order:
            assert walk.used[item] == anew.used[item]
            assert walk.emitted[item] == anew.emitted[item]
            assert list(walk._reads[item].roots) == list(anew._reads[item].roots)

    def compared_reads(
        model: CostModel,
        producer: MutableInstruction,
        consumer: MutableInstruction,
        launch: Launch,
        *,
        coalesced: bool,
    ) -> tuple[int, float]:
        result = pair_reads(model, producer, consumer, launch, coalesced=coalesced)
        shared = SharedReads(model.costs, producer, consumer)
        parameters = FusionBody(producer, consumer).parameters()
        totals = [shared.bytes_of(operand) for operand in parameters]
        times = [
            model._read(operand, total, launch, coalesced=coalesced)
            for operand, total in zip(parameters, totals, strict=True)
        ]
        assert result == (sum(totals), sum(times))
        actual.pairs += 1
        return result

    monkeypatch.setattr(FusionWalk, "update", compared_update)
    monkeypatch.setattr(CostModel, "_pair_reads", compared_reads)
    yield actual


@pytest.mark.parametrize(
    "dump",
    [
        "h100/attention",
        "h100/elementwise",
        pytest.param("h100/cartpole", marks=pytest.mark.slow),
    ],
)
def test_what_is_taken_from_before_is_what_would_be_found_anew(dump: str, counts: Counts) -> None:
    opened = open_dump(DUMPS / dump)
    verify(opened, opened.modules)
    assert counts.walks
    assert counts.continued
    assert counts.pairs
