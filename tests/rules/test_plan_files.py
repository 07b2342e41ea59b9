"""Plan files: what is written is read again."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusionscope import Changes, PairPattern, UnusableInput
from fusionscope.rules.plan_files import PlanFile, read_plan, write_plan

names = st.from_regex(r"[a-z][a-z0-9._\-*?]{0,12}", fullmatch=True)
patterns = st.lists(st.builds(PairPattern, names, names), max_size=3).map(tuple)
changes = st.builds(
    Changes,
    thresholds=st.lists(
        st.tuples(st.just("cpu-concat"), st.just("max_operands"), st.integers(0, 99)), max_size=1
    ).map(tuple),
    disabled=st.lists(st.sampled_from(["cpu-code-dup", "fusion"]), max_size=2).map(tuple),
    allowed=patterns,
    forbidden=patterns,
    kernels=st.lists(st.lists(names, min_size=1, max_size=3).map(tuple), max_size=2).map(tuple),
)


@given(changes, st.none() | names)
def test_what_is_written_is_read_again(some: Changes, module: str | None) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder).resolve() / "plan.toml"
        plan = PlanFile(some, module, file.parent / "dump")
        file.write_text(write_plan(plan, file))
        assert read_plan(file) == plan


def test_a_pass_can_be_left_out_but_one() -> None:
    from fusionscope.rules.changes import read_changes

    assert read_changes((), ("dot-library-rewriter",), (), ()).disabled == ("dot-library-rewriter",)
    with pytest.raises(UnusableInput, match="without this pass results are wrong"):
        read_changes((), ("fusion-wrapper",), (), ())
