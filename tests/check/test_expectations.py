# ruff: noqa: E501  (tables of cases, a line each)
"""What can be expected, on dumps whose kernels were read by eye.

`h100/attention` has three kernels: the first product with the multiplication behind it, the whole
softmax with its mask, the second product alone.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fusionscope import Selection
from fusionscope.check.checking import check
from fusionscope.check.expectation import Violation
from fusionscope.check.expectations import EXPECTATIONS
from fusionscope.check.subject import Cell
from fusionscope.check.where import Where
from fusionscope.dump import open_dump
from fusionscope.explain import explain as explain_dump
from fusionscope.facts.result import Explanation

DUMPS = Path(__file__).parents[2] / "samples" / "dumps"


@cache
def explained(dump: str) -> Explanation:
    return explain_dump(open_dump(DUMPS / dump), Selection(all_modules=True))


def cells(*explanations: Explanation) -> list[Cell]:
    return [Cell(explanation) for explanation in explanations]


def asked(dump: str, kind: str, value: Any, **where: str) -> tuple[Violation, ...]:
    assert not EXPECTATIONS[kind].expected(value)
    return check(cells(explained(dump)), [EXPECTATIONS[kind](value, Where(**where))]).violations


LIBRARY = "h100-without-triton-gemm/projections"
MET = [
    ("h100/attention", "fused", "exponential -> reduce", {}),
    ("h100/attention", "fused", "dot* -> multiply", {}),
    ("h100/attention", "fused", "*/div -> multiply", {"op_name": "*/div"}),
    ("h100/attention", "never_fused", "divide -> dot", {}),
    ("h100/attention", "not_duplicated", "exponential -> *", {}),
    ("h100/attention", "one_kernel", ["exponential", "reduce", "divide"], {}),
    ("h100/attention", "one_kernel", ["iota", "select", "divide"], {"module": "jit_*"}),
    ("h100/attention", "one_kernel", ["*"], {"source": "attention.py:12"}),
    ("h100/attention", "one_kernel", ["reduce"], {}),
    ("h100/attention", "kernels", 3, {}),
    ("h100/attention", "kernels", 1, {"source": "attention.py:13"}),
    ("h100/attention", "launches", 3, {"device": "h100"}),
    ("h100/attention", "bytes", "1.6 MB", {}),
    ("h100/attention", "bytes", 1_572_864, {}),
    ("h100/dense", "peak", "7868.416 kB", {}),  # what the compiler lists at its peak
    ("h100/dense", "temporaries", 4_194_304, {}),  # the allocation preallocated-temp
    ("h100/attention", "at_best", "28%", {}),  # a launch of 1 us, of 3.6 us for all three
    ("h100/attention", "library_calls", [], {}),
    ("h100/attention", "not_launched", ["copy", "transpose"], {}),
    ("h100/attention", "known_faults", [], {}),
    ("h100/attention", "not_refused", ["budget-params"], {}),
    ("cpu/attention", "library_calls", ["__ynn_fusion"], {}),
    ("cpu/loop", "fused", "abs -> reduce", {"source": "loop.py:smooth"}),
    ("cpu/loop", "fused", "abs -> reduce", {"source": "loop.py:program"}),  # which calls smooth
    ("cpu/loop", "fused", "compare -> and", {"source": "loop.py:program.unsettled"}),
    # The custom calls of the file, and its other kernels, counted by grep.
    (LIBRARY, "contains", ["__cublas$lt$matmul", "custom-call", "pad"], {}),
    (LIBRARY, "contains", ["bf16[{{\\d+,\\d+}}]{1,0} fusion("], {}),
    (LIBRARY, "contains", ['custom_call_target="__cublas$lt$matmul"'], {}),
    (LIBRARY, "not_contains", ["all-*", "sort", "__cudnn*"], {}),
    (LIBRARY, "count", {"__cublas*": 5, "fusion": 5, "all-reduce": 0}, {}),
    (LIBRARY, "order", ["%inputs.1 = ", "__cublas*", "fusion", "%custom-call.9 = "], {}),
    ("h100/attention", "count", {"dot": 1}, {"source": "attention.py:13"}),
    ("h100/attention", "order", ["dot(", "multiply"], {"computation": "*dot_general.2*"}),
    ("cpu/loop", "launches", 504, {"device": "cpu"}),
]
VIOLATED = [
    ("h100/attention", "fused", "divide -> dot", {}, "gf-input-worth", "div.11 -> dot_general.3"),
    ("h100/attention", "never_fused", "dot -> multiply", {}, None, "dot_general.2 -> multiply"),
    (
        "h100/attention",
        "one_kernel",
        ["dot", "exponential"],
        {},
        "gf-other-inputs",
        "dot_general.2",
    ),
    ("h100/attention", "one_kernel", ["dot"], {}, "gf-other-inputs", "dot_general.2"),
    ("cpu/attention", "one_kernel", ["reduce"], {}, "lib-one-user", "reduce_max.7"),
    ("h100/attention", "kernels", 2, {}, None, ""),
    ("h100/attention", "launches", 2, {}, None, ""),
    ("h100/attention", "bytes", "1.5 MB", {}, None, ""),
    ("h100/dense", "peak", "7.8 MB", {}, None, ""),
    ("h100/dense", "temporaries", "4 MB", {}, None, ""),
    ("h200/elementwise", "peak", "1 GB", {}, None, ""),  # no file shows it
    ("h100/dense", "peak", "1 GB", {"source": "dense.py"}, None, ""),  # of whole modules only
    (
        "h100/attention",
        "not_refused",
        ["gf-input-worth"],
        {},
        "gf-input-worth",
        "div.11 -> dot_gener",
    ),
    ("h100/attention", "at_best", "99%", {}, None, ""),  # three kernels, so two launches more
    ("h100/attention", "at_best", "1%", {"source": "attention.py"}, None, ""),
    ("cpu/attention", "at_best", "1%", {}, None, ""),  # there is no bound for a CPU
    ("h100/attention", "not_launched", ["dot"], {}, None, "gemm_fusion_dot_general.3"),
    ("cpu/attention", "library_calls", ["__cublas*"], {}, None, "ynn_fusion"),
    ("h100/reductions", "not_duplicated", "add -> *", {}, None, "add.3.0 -> "),
    (LIBRARY, "contains", ["dot"], {}, None, ""),
    (LIBRARY, "not_contains", ["__cublas*"], {}, None, "cublas-lt-matmul.4"),
    (LIBRARY, "count", {"__cublas*": 4}, {}, None, "custom-call.9"),
    (LIBRARY, "count", {"__cublas*": 6}, {}, None, ""),
    (LIBRARY, "order", ["fusion", "%inputs.1 = "], {}, None, ""),
    # Its two products are in two computations.
    ("h100/attention", "order", ["dot(", "dot("], {}, None, ""),
]


@pytest.mark.parametrize(("dump", "kind", "value", "where"), MET)
def test_what_is_so(dump: str, kind: str, value: Any, where: dict[str, str]) -> None:
    assert asked(dump, kind, value, **where) == ()


@pytest.mark.parametrize(("dump", "kind", "value", "where", "reason", "about"), VIOLATED)
def test_what_is_not_so(
    dump: str, kind: str, value: Any, where: dict[str, str], reason: str | None, about: str
) -> None:
    actual = asked(dump, kind, value, **where)
    assert actual
    assert any(item.reason == reason and item.about.startswith(about) for item in actual)
    assert all(item.module == "jit_program" for item in actual)


@pytest.mark.parametrize(
    ("kind", "value", "where", "what"),
    [
        ("fused", "tanh -> *", {}, "no pair before fusion matches"),
        ("never_fused", "tanh -> *", {}, "no pair before fusion matches"),
        ("not_duplicated", "tanh -> *", {}, "no pair before fusion matches"),
        ("one_kernel", ["exponential", "tanh"], {}, "no operation before fusion matches tanh"),
        ("one_kernel", ["tanh", "exponential"], {}, "no operation before fusion matches tanh"),
        ("fused", "exponential -> reduce", {"source": "other.py"}, "no pair before fusion matches"),
        ("fused", "exponential -> reduce", {"source": "attention.py:1"}, "no pair before fusion"),
        ("kernels", 9, {"op_name": "*/layer_norm/*"}, "no kernel matches op_name"),
        ("library_calls", [], {"computation": "body"}, "no kernel matches computation body"),
        ("not_launched", ["copy"], {"source": "model.py"}, "no kernel matches source model.py"),
        ("not_refused", ["pf-negative"], {"source": "model.py"}, "no pair matches source model"),
        ("kernels", 9, {"module": "jit_other"}, "no module matches module jit_other"),
        ("kernels", 9, {"device": "b200"}, "no module matches device b200"),
    ],
)
def test_what_selects_nothing_is_not_met(
    kind: str, value: Any, where: dict[str, str], what: str
) -> None:
    (actual,) = asked("h100/attention", kind, value, **where)
    assert what in actual.what


@pytest.mark.parametrize(
    ("dump", "kind", "value", "source", "nearest"),
    [
        # The division is in line 12, the second product in line 13.
        ("h100/attention", "fused", "divide -> dot", "attention.py:11", "div.11 -> dot_general.3 is now at attention.py:13"),
        ("h100/attention", "fused", "exponential -> *", "attention.py:30", "is now at attention.py:12"),
        ("h100/attention", "fused", "exponential -> *", "nn.py:12", "is now at attention.py:12"),
        ("h100/attention", "fused", "exponential -> *", "programs/attention.py:softmax", "is now at programs/attention.py:12"),
        ("h100/attention", "one_kernel", ["exponential", "divide"], "attention.py:10", "is now at attention.py:12"),
        ("h100/attention", "kernels", 3, "attention.py:99", "at attention.py:13"),
        ("cpu/loop", "fused", "abs -> reduce", "loop.py:unsettled", "is now at loop.py:17"),
    ],
)  # fmt: skip
def test_the_nearest_is_told_where_nothing_is_selected(
    dump: str, kind: str, value: Any, source: str, nearest: str
) -> None:
    (actual,) = asked(dump, kind, value, source=source)
    assert nearest in actual.what


def test_a_misspelt_pair_is_told_with_one_that_is_there() -> None:
    (actual,) = asked("h100/attention", "fused", "exponental -> reduce", source="attention.py:12")
    assert "; there is exponential -> reduce" in actual.what or "; there are" in actual.what


@pytest.mark.parametrize("value", [{}, {"dot": -1}, {"dot": "2"}, {"{{(}}": 1}, ["dot"]])
def test_counts_that_cannot_be(value: Any) -> None:
    assert EXPECTATIONS["count"].expected(value)


def test_what_is_in_braces_is_a_regular_expression_and_nothing_else() -> None:
    assert not EXPECTATIONS["contains"].expected(["(", "[a", "*("])
    assert "regular expressions" in EXPECTATIONS["contains"].expected(["f32[{{(}}]"])


def test_one_dump_of_several_is_enough_for_an_expectation_of_a_device() -> None:
    expectation = EXPECTATIONS["kernels"](3, Where(device="h100"))
    both = [explained("cpu/attention"), explained("h100/attention")]
    actual = check(cells(*both), [expectation])
    assert actual.is_met
    assert actual.outcomes[0].modules == ("jit_program",)
    assert not check(cells(*both[:1]), [expectation]).is_met


def test_sizes() -> None:
    sizes = {
        "12": 12,
        "1 kB": 1000,
        "1.5MB": 1_500_000,
        "2 GB": 2_000_000_000,
        "3 b": 3,
        "4k": 4000,
    }
    for text, expected in sizes.items():
        bytes_ = EXPECTATIONS["bytes"]
        assert not bytes_.expected(text)
        assert bytes_(text).limit == expected  # type: ignore[attr-defined]
    for text in ("", "MB", "-1", "1 TB", "1,5 MB"):
        assert EXPECTATIONS["bytes"].expected(text)


@pytest.fixture
def faulty(tmp_path: Path) -> Explanation:
    """A module of jaxlib 0.11.0 that shows a fault: tests/explain/advisories."""
    texts = Path(__file__).parents[1] / "explain" / "advisories"
    stages = {
        "-program": "0021.hlo_normalization.after_pipeline-start.before_algsimp",
        "": "sm_9.0_gpu_after_optimizations",
    }
    for part, stage in stages.items():
        text = (texts / f"factor-before-bias{part}.hlo").read_text()
        (tmp_path / f"module_0001.jit_res.{stage}.txt").write_text(text)
    return explain_dump(open_dump(tmp_path), Selection(all_modules=True))


def test_a_known_fault(faulty: Explanation) -> None:
    expectation = EXPECTATIONS["known_faults"]
    checked = check(cells(faulty), [expectation([])])
    (violation,) = checked.violations
    assert violation.about == "cublas-lt-matmul.3"
    assert "has the fault factor-before-bias" in violation.what
    assert check(cells(faulty), [expectation(["factor-*"])]).is_met
    elsewhere = Where(op_name="no-such-operation")
    assert (
        "no kernel matches" in check(cells(faulty), [expectation([], elsewhere)]).violations[0].what
    )


def test_a_wrong_result_is_said_in_any_case(faulty: Explanation) -> None:
    (problem,) = [text for text in check(cells(faulty), []).problems if "factor" in text]
    assert problem.startswith("jit_res: factor-before-bias: ")
