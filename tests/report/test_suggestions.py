"""What is said about changes that were tried."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from fusionscope.explain import suggestion
from fusionscope.explain.suggestion import Figures, HowTried, Suggestions
from fusionscope.report.suggestions import for_pair, print_suggestions, to_markdown

PAIR = ("a", "b")


def rejected(after: Figures, how: HowTried = HowTried.REPLAYED) -> Suggestions:
    return Suggestions(
        answers=(suggestion.Answer(pairs=(PAIR,)),),
        rejected=(
            suggestion.Suggestion(
                number=1,
                kind=suggestion.SuggestionKind.FLAG,
                change="--xla_disable_hlo_passes=multi_output_fusion",
                evidence=how,
                pairs=(PAIR,),
                before=Figures(57, 1000, 111.0),
                after=after,
            ),
        ),
    )


@pytest.mark.parametrize(
    ("launches", "bytes_moved", "time_us", "more"),
    [
        (85, 1200, 98.4, "launches and bytes"),
        (85, 1000, 98.4, "launches"),
        (57, 1200, 98.4, "bytes"),
        (85, 900, 98.4, None),  # each of these has figures that say why, or one that is less
        (57, 1000, 111.0, None),
        (85, 1200, 120.0, None),
        (85, 1200, None, None),
    ],
)
def test_a_time_that_is_estimated_to_be_less_and_not_trusted(
    launches: int, bytes_moved: int, time_us: float | None, more: str | None
) -> None:
    tried = rejected(Figures(launches, bytes_moved, time_us))
    screen = io.StringIO()
    print_suggestions(tried, Console(file=screen, width=200), top=None)
    for text in (screen.getvalue(), "\n".join(to_markdown(tried, None)), for_pair(tried, *PAIR)):
        assert ("not trusted" in text) == (more is not None)
        assert more is None or f"replayed; more {more}, so the estimated time" in text


@pytest.mark.parametrize("how", [HowTried.MEASURED, HowTried.EXAMPLE])
def test_a_measured_time_is_a_fact(how: HowTried) -> None:
    tried = rejected(Figures(85, 1200, 98.4), how)
    assert not any("not trusted" in line for line in to_markdown(tried, None))
    assert "not trusted" not in for_pair(tried, *PAIR)
