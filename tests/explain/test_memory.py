"""The memory of modules, by the compiler's files beside them."""

import gzip
import shutil
from itertools import groupby
from pathlib import Path

import pytest

from fusionscope.dump.directory import open_dump
from fusionscope.explain.explain import explain, explain_module
from fusionscope.explain.selection import Selection
from fusionscope.findings.memory.facts import MemoryFacts
from fusionscope.findings.memory.live_bytes import count_live, spans_of
from fusionscope.rules.catalogue import is_legality
from fusionscope.rules.changes import read_changes

SAMPLES = Path(__file__).parents[2] / "samples/dumps"
DUMPS = sorted(
    path.parent for path in SAMPLES.glob("*/*/*after_optimizations-buffer-assignment.txt")
)
# What `rerun --allow` and the real compiler made of these pairs: the peak of the new dump.
COMPILED = {("h100", "reductions"): ("add.3.0", "reduce_sum.23.0", 4_210_728)}


def read(path):
    (module,) = open_dump(path).modules
    return module


@pytest.fixture(params=DUMPS, ids=lambda path: "-".join(path.parts[-2:]))
def dump(request):
    return request.param


def test_bytes_alive_are_those_of_the_places_in_memory(dump, samples):
    """Counted another way: the bytes of each allocation in which any value is alive."""
    module = samples.module(dump)
    ranges = module.live_ranges
    length = len(ranges.sequence)
    live = count_live(spans_of(module.buffer_assignment, ranges).values(), length)
    for place in range(length + 1):
        used = 0
        for allocation in module.buffer_assignment.allocations:
            alive = [
                value
                for value in allocation.values
                if value.position in ranges.ranges
                and ranges.ranges[value.position][0] <= place <= ranges.ranges[value.position][1]
            ]
            end = 0
            for begin, values in groupby(sorted(alive, key=lambda v: v.offset), lambda v: v.offset):
                stop = begin + max(value.size for value in values)
                used += max(0, stop - max(begin, end))
                end = max(end, stop)
        assert live[place] == used


def test_the_parts_are_the_total_and_what_is_alive_is_the_peak(dump, samples):
    module, memory = samples.module(dump), samples.facts(dump).find(MemoryFacts)
    assert memory.total_bytes == module.memory_usage
    assert memory.total_bytes == (
        memory.parameters
        + memory.donated
        + memory.outputs
        + memory.temporaries
        + memory.constants
        + memory.thread_local
    )
    assert memory.peak_bytes <= memory.total_bytes
    assert memory.peak_bytes == max(memory.over_time) == memory.over_time[memory.peak_at]
    assert memory.peak_bytes == sum(
        item.bytes for item in memory.at_peak if item.in_place_of is None
    )
    assert all(item.first <= memory.peak_at <= item.last for item in memory.at_peak)
    assert memory.compiler_peak == module.live_ranges.peak


def test_savings_are_of_refused_pairs_that_a_compiler_could_fuse(dump, samples):
    facts = samples.facts(dump)
    refused = {
        (pair.producer.name, pair.consumer.name): pair.reason
        for pair in facts.pairs
        if pair.outcome == "not-fused"
    }
    for saving in facts.find(MemoryFacts).savings:
        for consumer in saving.consumers:
            assert not is_legality(refused[saving.producer, consumer])
        assert saving.bytes_saved == facts.find(MemoryFacts).peak_bytes - saving.peak_bytes > 0
        assert saving.buffer in {item.name for item in facts.find(MemoryFacts).at_peak}


@pytest.mark.parametrize("dump", COMPILED)
def test_a_predicted_peak_is_that_of_the_compiler(dump):
    producer, consumer, peak = COMPILED[dump]
    savings = explain_module(read(SAMPLES.joinpath(*dump))).find(MemoryFacts).savings
    assert [(saving.producer, saving.consumers, saving.peak_bytes) for saving in savings] == [
        (producer, (consumer,), peak)
    ]


@pytest.mark.parametrize(
    ("dump", "allowed", "peak"),
    [  # of the dumps that `rerun` made with these options
        ("h100/reductions", "add.3.0 -> reduce_sum.23.0", 4_210_728),
        ("h100/concatenate", "mul.3.0 -> concatenate.1.0", 3_802_368),
        ("h100/concatenate", "tanh.1.0 -> concatenate.1.0", 3_278_104),  # fuses both
    ],
)
def test_changed_rules_have_the_peak_that_the_compiler_makes(dump, allowed, peak):
    changes = read_changes((), (), (allowed,), ())
    (facts,) = explain(open_dump(SAMPLES / dump), Selection(changes=changes)).modules
    assert facts.what_if.peak == (facts.find(MemoryFacts).peak_bytes, peak)


@pytest.mark.parametrize(
    ("dump", "option", "pair", "peak"),
    [  # of the dumps that `rerun` made with these options
        ("cpu/elementwise", "allow", "div.1 -> mul.15", 2_625_536),
        ("cpu/convolution", "forbid", "add.7 -> max.1", 1_591_424),
        ("cpu/reductions", "forbid", "mul.4 -> add.3", 8_404_996),  # works in place
        ("h100/attention", "forbid", "select_n.2 -> reduce_max.7", 917_504),  # in place, too
        ("h100/elementwise", "forbid", "log1p.1.0 -> select_n.0.0", 2_625_560),
        ("h100/softmax", "forbid", "reduce_sum.7 -> div.6", 1_049_600),
    ],
)
def test_changed_pairs_have_the_peak_that_the_compiler_makes(dump, option, pair, peak):
    allowed, forbidden = ((pair,), ()) if option == "allow" else ((), (pair,))
    changes = read_changes((), (), allowed, forbidden)
    (facts,) = explain(open_dump(SAMPLES / dump), Selection(changes=changes)).modules
    assert facts.what_if.peak == (facts.find(MemoryFacts).peak_bytes, peak)


def test_the_peak_has_names_that_the_user_knows():
    memory = explain_module(read(SAMPLES / "h100/dense")).find(MemoryFacts)
    names = {item.name: (item.kind, item.op_name, item.source) for item in memory.at_peak}
    assert names["weights.1"] == ("parameter", "weights", None)
    assert names["gemm_fusion_dot"][0] == "temporary"
    assert names["gemm_fusion_dot"][2] == "samples/programs/dense.py:10"


def test_a_loop_variable_has_the_place_of_what_computes_it():
    memory = explain_module(read(SAMPLES / "cpu/loop")).find(MemoryFacts)
    large = [item for item in memory.at_peak if item.bytes > 1000 and item.kind != "parameter"]
    assert large and all(item.source for item in large)


def test_outputs_of_a_parameters_shape_could_have_its_memory():
    """The signal goes into the loop and comes out with its shape; nothing is donated."""
    memory = explain_module(read(SAMPLES / "cpu/loop")).find(MemoryFacts)
    assert [(donation.parameter, donation.bytes) for donation in memory.donations] == [
        ("signal", 16384)
    ]
    donated = explain_module(read(Path(__file__).parents[1] / "dump/data/memory")).find(MemoryFacts)
    assert donated.donated == 16384
    # The state is donated; the weights could hold the sorted state.
    assert [donation.parameter for donation in donated.donations] == ["w"]


@pytest.fixture
def copied(tmp_path):
    shutil.copytree(SAMPLES / "h100/dense", tmp_path / "dump")
    return tmp_path / "dump"


def path_of(dump, ending):
    return next(dump.glob(f"*after_optimizations-{ending}.txt"))


def test_without_files_it_is_unknown(copied):
    path_of(copied, "buffer-assignment").unlink()
    facts = explain_module(read(copied))
    assert facts.find(MemoryFacts) is None and not facts.notes


def test_without_live_ranges_there_are_totals_only(copied):
    path_of(copied, "live-range").unlink()
    memory = explain_module(read(copied)).find(MemoryFacts)
    assert memory.total_bytes == read(copied).memory_usage
    assert memory.peak_bytes is None and not memory.at_peak and not memory.savings


@pytest.mark.parametrize("ending", ["buffer-assignment", "live-range", "memory-usage-report"])
def test_half_a_file_costs_the_section_and_nothing_else(copied, ending):
    path = path_of(copied, ending)
    whole = explain_module(read(copied))
    path.write_bytes(path.read_bytes()[: 30 if ending == "memory-usage-report" else 300])
    facts = explain_module(read(copied))
    assert facts.find(MemoryFacts) is None and facts.pairs == whole.pairs
    (note,) = facts.notes
    assert str(path) in note


@pytest.mark.parametrize("ending", ["buffer-assignment", "live-range", "memory-usage-report"])
def test_a_file_of_another_module_is_refused(copied, ending):
    second = path_of(SAMPLES / "h100/reductions", ending)
    path_of(copied, ending).write_bytes(second.read_bytes())
    facts = explain_module(read(copied))
    assert facts.find(MemoryFacts) is None
    assert len(facts.notes) == 1


def test_compressed_files_are_read(copied):
    before = explain_module(read(copied)).find(MemoryFacts)
    for ending in ("buffer-assignment", "live-range", "memory-usage-report"):
        path = path_of(copied, ending)
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert explain_module(read(copied)).find(MemoryFacts) == before
