"""Values that several kernels compute: counts are made in the text of the final modules, and prices
compared with a replay of the passes that keeps the value."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from sample_kinds import all_samples

from fusionscope.cli.main import cli
from fusionscope.dump import open_dump
from fusionscope.explain import Selection, explain
from fusionscope.facts.clock import NOMINAL_CPU
from fusionscope.facts.result import ModuleFacts
from fusionscope.findings.recomputed import find as recomputed
from fusionscope.findings.recomputed.facts import Recomputation, RecomputedValue
from fusionscope.rules.changes import read_changes

DUMPS = Path(__file__).resolve().parents[2] / "samples" / "dumps"
DATA = Path(__file__).parent / "data"


@cache
def module_of(dump: str, **selection: object) -> ModuleFacts:
    (module,) = explain(open_dump(DUMPS / dump), Selection(**selection)).modules  # type: ignore[arg-type]
    return module


def values(dump: str) -> dict[str, RecomputedValue]:
    recomputed = module_of(dump).find(Recomputation)
    assert recomputed is not None
    return {value.value.name: value for value in recomputed.values}


def test_a_concatenate_that_three_fusions_compute():
    # The final module computes tanh and product into arrays of their own. fused_reduce,
    # fused_concatenate and fused_add read both and right.1, add 1 to that, and concatenate the
    # three. fused_add goes on with every second column.
    (actual,) = values("h100/concatenate").values()
    kernels = {"input_reduce_fusion", "input_concatenate_fusion", "loop_add_fusion"}
    value = 4 * 1024 * 320  # as many bytes as its operands
    assert set(actual.kernels) == kernels and actual.instructions == 1
    assert actual.operations == ("broadcast", "add", "concatenate")
    assert actual.flops_again == 2 * 1024 * 64
    assert actual.bytes_again == value + value // 2
    # Writing it takes a read of the operands and a write; all others read as much as before.
    assert (actual.written_by, actual.is_written) == (None, False)
    assert actual.after.bytes_moved - actual.before.bytes_moved == 2 * value
    assert (actual.before.launches, actual.after.launches) == (3, 4)


def test_the_values_of_a_chain_are_one():
    # Both fusions of the final module compute wrap_sub, mul and add from the same slices.
    module = module_of("cpu/cartpole")
    assert module.find(Recomputation) is not None
    names = {item.value.name for item in module.find(Recomputation).values}
    assert "add.48" in names
    producers = {p.producer.name for p in module.pairs if p.consumer.name == "add.48"}
    assert producers and not producers & names


def residual(**selection: object) -> ModuleFacts:
    (module,) = explain(open_dump(DATA / "residual"), Selection(**selection)).modules  # type: ignore[arg-type]
    return module


def test_keeping_several_values_is_priced_at_once():
    # Kernel i of ten reads the inputs and i changes, and writes one half. The sums of the first
    # one to nine changes are computed by more than one of them.
    array = 4 * 64 * 128
    recomputation = residual().find(Recomputation)
    assert recomputation is not None
    values = recomputation.values
    assert sorted(len(value.kernels) for value in values) == [*range(2, 11)]
    assert all(value.saved_ns for value in values)
    kept = recomputation.kept
    assert kept is not None and (kept.values, kept.kernels) == (9, 10)
    before = sum(2 + item for item in range(1, 11))
    assert kept.before == replace(kept.before, launches=10, bytes_moved=before * array)
    # Nine launches read two arrays and write a sum. Nine kernels read a sum and write its half,
    # the last reads the ninth sum and a change.
    assert kept.after == replace(kept.after, launches=19, bytes_moved=(9 * 3 + 9 * 2 + 3) * array)
    assert kept.before.time_ns is not None and kept.after.time_ns is not None
    saved = kept.before.time_ns - kept.after.time_ns
    moving = array / NOMINAL_CPU.bandwidth
    assert saved == pytest.approx((before - 48) * moving - 9 * NOMINAL_CPU.launch)
    # That is more than the best one saves alone, and far less than the sum.
    alone = [value.saved_ns or 0.0 for value in values]
    assert max(alone) < saved < sum(alone) / 3
    text = CliRunner().invoke(cli, ["explain", str(DATA / "residual"), "--no-try"]).output
    assert "keeping" not in text.lower()  # was not replayed


def test_a_replay_that_keeps_several_values_moves_as_many_bytes():
    first = residual().find(Recomputation)
    assert first is not None and first.kept is not None
    forbidden = tuple(f"{value.value.name} -> *" for value in first.values)
    attempts = residual(changes=read_changes((), (), (), forbidden)).what_if
    assert attempts is not None
    launches = first.kept.after.launches - first.kept.before.launches
    assert launches == attempts.after.launches - attempts.before.launches == 9
    moved = first.kept.after.bytes_moved - first.kept.before.bytes_moved
    assert moved == attempts.after.bytes_moved - attempts.before.bytes_moved


def test_values_of_different_kernels_add_up():
    # Each program is one of the sample's library; they share no kernel.
    for dump in ("cpu/cartpole", "h100/cartpole", "a100-xla-2023/library_random"):
        actual = module_of(dump).find(Recomputation)
        assert actual is not None
        saving = [value for value in actual.values if value.saved_ns]
        kernels = [kernel for item in saving for kernel in item.kernels]
        assert (actual.kept is None) == (not saving)
        if actual.kept is not None and len(set(kernels)) == len(kernels):
            assert actual.kept.values == len(saving)
            costs = [(item.before.bytes_moved, item.after.bytes_moved) for item in saving]
            assert actual.kept.before.bytes_moved == sum(before for before, _ in costs)
            assert actual.kept.after.bytes_moved == sum(after for _, after in costs)


def test_large_kernels_limit_how_many_values_are_priced(monkeypatch: pytest.MonkeyPatch):
    everything = module_of("cpu/cartpole").find(Recomputation)
    assert everything is not None and len(everything.values) > 1
    monkeypatch.setattr(recomputed, "_MOST_OPERATIONS", 1)
    limited = module_of.__wrapped__("cpu/cartpole").find(Recomputation)
    assert limited is not None and len(limited.values) == 1 <= limited.unpriced
    assert limited.values[0] in everything.values
    assert module_of("cpu/cartpole", in_full=True).find(Recomputation) == everything


def test_nothing_is_computed_again_without_fusion():
    assert module_of("cpu-without-fusion/elementwise").find(Recomputation) is None


@pytest.mark.parametrize(
    ("dump", "name", "reader"),
    [
        ("cpu/cartpole", "add.48", "*"),
        ("cpu/cartpole", "add.72", "*"),
        # The kernel of the other reader writes it, too.
        pytest.param("h100/cartpole", "add.120.0", "stack.9.0", marks=pytest.mark.slow),
    ],
)
def test_a_replay_that_keeps_the_value_moves_as_many_bytes(dump: str, name: str, reader: str):
    module = module_of(dump, changes=read_changes((), (), (), (f"{name} -> {reader}",)))
    assert module.find(Recomputation) is not None and module.what_if is not None
    (actual,) = (item for item in module.find(Recomputation).values if item.value.name == name)
    before, after = module.what_if.before, module.what_if.after
    assert actual.after.launches - actual.before.launches == after.launches - before.launches
    moved = after.bytes_moved - before.bytes_moved
    assert actual.after.bytes_moved - actual.before.bytes_moved == moved != 0


def computed_in(text: str, kernel: str) -> Iterator[tuple[str, str]]:
    """Yield shape and opcode of what a kernel of a module computes."""
    (calls,) = re.findall(rf"^ *(?:ROOT )?%?{re.escape(kernel)} = .*calls=%?([\w.-]+)", text, re.M)
    body = re.search(rf"^%?{re.escape(calls)} .*?^}}", text, re.M | re.S)
    assert body is not None
    yield from re.findall(r"= (\w+\[[\d,]*\])\S* ([\w-]+)\(", body[0])


@pytest.mark.parametrize("dump", all_samples())
def test_each_kernel_holds_the_operation(dump: Path, samples):
    modules = {module.number: module for module in samples.dump(dump).modules}
    for facts in samples.explanation(dump).modules:
        if facts.find(Recomputation) is None:
            continue
        final = modules[facts.number].final
        assert final is not None and final.text is not None
        text = final.text.read().decode()
        for item in facts.find(Recomputation).values:
            assert len(set(item.kernels)) == len(item.kernels) > 1
            shape = item.value.shape.partition("{")[0]
            for kernel in item.kernels:
                assert (shape, item.value.opcode) in set(computed_in(text, kernel))
            assert item.bytes_again > 0 or (item.time_again_ns or 0) > 0 or item.flops_again > 0
