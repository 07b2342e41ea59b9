"""Delta debugging, against every small case."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from fusionscope.bisect.delta import minimize


@given(st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)))))
def test_what_is_needed_is_found_and_nothing_else(case: tuple[int, set[int]]) -> None:
    count, needed = case
    needed = needed or {0}
    assert minimize(range(count), lambda items: needed <= set(items)) == sorted(needed)


@given(st.integers(1, 12), st.sets(st.frozensets(st.integers(0, 11)), min_size=1), st.data())
def test_nothing_of_the_result_can_be_left_out(
    count: int, passing: set[frozenset[int]], data: st.DataObject
) -> None:
    """Also if the test is not monotonic."""
    passing.add(frozenset(range(count)))
    passing.discard(frozenset())

    def test(items: Sequence[int]) -> bool:
        return frozenset(items) in passing

    actual = minimize(range(count), test)
    assert test(actual)
    assert len(actual) == 1 or not any(test([e for e in actual if e != item]) for item in actual)


def test_one_of_many_takes_few_tests() -> None:
    attempts: list[Sequence[int]] = []

    def test(items: Sequence[int]) -> bool:
        attempts.append(items)
        return 700 in items

    assert minimize(range(1000), test) == [700]
    assert len(attempts) <= 20
