"""What two dumps of one program have in common is read, followed and replayed once."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from fusionscope.compare.difference import compare
from fusionscope.dump import Dump, open_dump
from fusionscope.dump.priority_fusion import digest_of_record
from fusionscope.errors import UnusableInput
from fusionscope.reasons import replayed

DUMPS = Path(__file__).parents[2] / "samples" / "dumps"
PAIRS = [
    ("h100/reductions", "h100-without-multi-output-fusion/reductions"),
    ("h100/softmax", "h100-without-triton-softmax/softmax"),
    ("cpu/cartpole", "cpu-multi-output/cartpole"),
    ("cpu/attention", "cpu-elementwise-library/attention"),
    ("cpu/elementwise", "cpu-without-fusion/elementwise"),
    ("h100/concatenate", "h200/concatenate"),
    ("h100/cartpole", "h100/cartpole"),
]


def dumps(names: tuple[str, str]) -> tuple[Path, Path]:
    return DUMPS / names[0], DUMPS / names[1]


def shared(first: Dump, second: Dump) -> int:
    """Return how many stages of ``second`` are those of ``first``."""
    actual = {id(module.read(stage)) for module in first.modules for stage in module.stages}
    return sum(
        id(module.read(stage)) in actual for module in second.modules for stage in module.stages
    )


@pytest.mark.parametrize(
    "names",
    [pytest.param(pair, marks=[pytest.mark.slow] * ("cartpole" in pair[0])) for pair in PAIRS],
    ids=" ".join,
)
def test_a_difference_is_that_of_two_dumps_that_share_nothing(names: tuple[str, str]) -> None:
    one, other = dumps(names)
    apart = open_dump(one), open_dump(other)
    assert shared(*apart) == 0
    first = open_dump(one)
    second = open_dump(other, like=first)
    assert shared(first, second) > 0
    assert compare(one, other) == compare(*apart)


def test_equal_runs_of_passes_are_replayed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    replays: list[list[str]] = []
    replay = replayed._replay_group

    def counted(module, group, *remaining, **options):  # type: ignore[no-untyped-def]
        replays.append([run.pass_name for run in group])
        return replay(module, group, *remaining, **options)

    monkeypatch.setattr(replayed, "_replay_group", counted)
    compare(*dumps(PAIRS[0]))
    assert replays.count(["priority-fusion"]) == 1
    replays.clear()
    compare(*map(open_dump, dumps(PAIRS[0])))
    assert replays.count(["priority-fusion"]) == 2


def test_an_equal_stage_that_contradicts_itself_is_reported_of_both(tmp_path: Path) -> None:
    for name in ("one", "other"):
        shutil.copytree(DUMPS / "h100" / "reductions", tmp_path / name)
        (file,) = (tmp_path / name).glob("*.0000.*.txt")
        text = file.read_text()
        file.write_text(re.sub(r"(  ROOT %?[\w.-]+ = [^(]*\()[^()]*\)", r"\1nothing)", text))
    first = open_dump(tmp_path / "one")
    second = open_dump(tmp_path / "other", like=first)
    for dump, name in ((first, "one"), (second, "other")):
        (module,) = dump.modules
        (stage,) = (stage for stage in module.stages if ".0000." in stage.file.name)
        with pytest.raises(UnusableInput) as caught:
            module.read(stage).check()
        assert str(tmp_path / name) in str(caught.value)


def step(kind: str, producer: str) -> bytes:
    return f'fusion_steps {{\n  {kind} {{\n    producer_name: "{producer}"\n  }}\n}}\n'.encode()


def test_the_order_of_scores_between_two_fusions_is_not_the_records() -> None:
    end = b'gpu_device_info {\n}\nhlo_module_before_fusion: "HloModule m"\n'
    a, b, c = (step("update_priority", name) for name in "abc")
    fused = step("fusion", "a")
    digest = digest_of_record(a + b + fused + c + end)
    assert digest_of_record(b + a + fused + c + end) == digest
    assert digest_of_record(a + fused + b + c + end) != digest
    assert digest_of_record(a + b + fused + c + c + end) != digest
    assert digest_of_record(a + b + fused + c + end + b" ") != digest
