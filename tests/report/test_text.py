"""Numbers and nouns in words."""

from __future__ import annotations

import pytest

from fusionscope.words.text import duration, percent_change, plural, program


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (100, 91.7, "-8.3%"),
        (100, 360, "+260%"),
        (1, 13.6, "+1,260%"),
        (100, 110.04, "+10%"),
        (100, 100.2, "+0.2%"),
        (100, 100.000001, "±0%"),
        (0, 1, ""),
    ],
)
def test_a_change_in_percent_has_no_exponent(before: float, after: float, words: str) -> None:
    assert percent_change(before, after) == words


@pytest.mark.parametrize(
    ("microseconds", "words"),
    [
        (0, "0 µs"),
        (1.92e-05, "0 µs"),
        (0.0123, "0.0123 µs"),
        (999.6, "1 ms"),
        (2e9, "2,000 s"),
    ],
)
def test_a_duration_has_no_exponent(microseconds: float, words: str) -> None:
    assert duration(microseconds) == words


@pytest.mark.parametrize(
    ("count", "noun", "words"),
    [
        (1, "pair", "1 pair"),
        (2, "launch", "2 launches"),
        (1200, "pass", "1,200 passes"),
        (0, "box", "0 boxes"),
        (3, "day", "3 days"),
        (5, "more opportunity", "5 more opportunities"),
    ],
)
def test_plurals(count: int, noun: str, words: str) -> None:
    assert plural(count, noun) == words


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("a_inference_step_160__XlaMustCompile_true_config_proto_1_.10", "a_inference_step_160"),
        ("jit_step", "jit_step"),
    ],
)
def test_a_module_of_tensorflow_has_the_name_of_its_function(module: str, expected: str) -> None:
    assert program(module) == expected
