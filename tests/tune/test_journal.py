"""What a search remembers of an earlier one."""

from __future__ import annotations

from pathlib import Path

from fusionscope.dump import open_dump
from fusionscope.rerun.measuring import Ratio, Speed
from fusionscope.rerun.running import Numbers
from fusionscope.tune.journal import Attempt, Journal

CPU = Path(__file__).parents[2] / "samples" / "dumps" / "cpu"
TRIED = (
    Attempt(kind="pass", changes="without fusion", problem="its results differ"),
    Attempt(
        kind="rule",
        changes="without cpu-concat",
        numbers=Numbers.EQUAL,
        ratio=Ratio(1.1, 1.0, 1.2),
        verdict=Speed.SAME,
        compile_s=0.5,
    ),
)


def test_the_same_program_goes_on(tmp_path: Path) -> None:
    (module,) = open_dump(CPU / "concatenate").modules
    (second,) = open_dump(CPU / "softmax").modules
    plan, inputs = tmp_path / "best.toml", tmp_path / "inputs.npz"
    inputs.write_bytes(b"1")
    first = Journal(plan, module, inputs)
    assert not first.known
    for item in TRIED:
        first.add(item)
    again = Journal(plan, module, inputs)
    assert tuple(again.known.values()) == TRIED
    assert not Journal(plan, second, inputs).known
    inputs.write_bytes(b"2")
    assert not Journal(plan, module, inputs).known


def test_a_damaged_file_is_written_anew(tmp_path: Path) -> None:
    (module,) = open_dump(CPU / "concatenate").modules
    plan = tmp_path / "best.toml"
    Journal(plan, module, None).add(TRIED[0])
    (tmp_path / "best.tried.json").write_text("{")
    damaged = Journal(plan, module, None)
    assert not damaged.known
    damaged.add(TRIED[1])
    assert list(Journal(plan, module, None).known) == [TRIED[1].changes]


def test_what_may_be_faster_is_tried_again() -> None:
    failed, slower = TRIED
    assert failed.is_above(0.97)
    assert slower.is_above(0.97)
    unclear = Attempt(kind="rule", changes="", ratio=Ratio(1.1, 0.8, 1.4))
    assert not unclear.is_above(0.97)  # a busy moment
