"""Buffer assignment, live ranges and the memory usage report, beside each other."""

from pathlib import Path

import pytest

from fusionscope.dump.buffer_assignment import AllocationKind, read_buffer_assignment
from fusionscope.dump.directory import open_dump
from fusionscope.dump.live_ranges import Position, read_live_ranges
from fusionscope.dump.memory_usage import read_memory_usage
from fusionscope.dump.names import Role, read_name
from fusionscope.errors import UnusableInput

SAMPLES = Path(__file__).parents[2] / "samples/dumps"
DUMPS = [SAMPLES / "cpu/dense", SAMPLES / "h100/dense"]
LOOP = Path(__file__).parent / "data/memory"
OLDER = [
    Path(__file__).parents[1] / "explain/data/donated" / jaxlib for jaxlib in ("0.6.2", "0.7.2")
]
READERS = {
    Role.BUFFER_ASSIGNMENT: read_buffer_assignment,
    Role.LIVE_RANGES: read_live_ranges,
    Role.MEMORY_USAGE: read_memory_usage,
}


@pytest.fixture(params=[*DUMPS, LOOP, *OLDER], ids=lambda path: "-".join(path.parts[-2:]))
def module(request):
    (module,) = open_dump(request.param).modules
    return module


def test_allocations_add_up_to_the_compilers_report(module):
    assert module.buffer_assignment.total_bytes == module.memory_usage


def test_what_is_alive_at_the_peak_is_what_the_compiler_lists(module):
    ranges = module.live_ranges
    alive = {item for item, (first, last) in ranges.ranges.items() if first <= ranges.peak <= last}
    assert alive == set(ranges.at_peak)


def test_every_value_with_a_live_range_has_memory(module):
    allocations = module.buffer_assignment.allocations
    assigned = [value.position for allocation in allocations for value in allocation.values]
    assert len(assigned) == len(set(assigned))
    assert set(module.live_ranges.ranges) <= set(assigned)


def test_values_lie_within_their_allocation(module):
    for allocation in module.buffer_assignment.allocations:
        assert all(
            v.offset >= 0 and v.offset + v.size <= allocation.size for v in allocation.values
        )


def test_the_sequence_is_that_of_the_final_module():
    (module,) = open_dump(SAMPLES / "h100/dense").modules
    entry = module.read(module.final).entry
    assert list(module.live_ranges.sequence) == [
        instruction.name for instruction in entry.instructions
    ]


def test_kinds_of_allocations():
    (module,) = open_dump(LOOP).modules
    kinds = {a.number: a.kind for a in module.buffer_assignment.allocations}
    text = next(LOOP.glob("*-buffer-assignment.txt")).read_text()
    lines = [line for line in text.split("\n") if line.startswith("allocation")]
    for number, line in enumerate(lines):
        is_parameter, is_result = ", parameter " in line, "maybe-live-out" in line
        assert (kinds[number] is AllocationKind.DONATED) == (is_parameter and is_result)
        assert (kinds[number] is AllocationKind.PARAMETER) == (is_parameter and not is_result)
        assert (kinds[number] is AllocationKind.OUTPUT) == (is_result and not is_parameter)
        assert (kinds[number] is AllocationKind.TEMPORARY) == ("preallocated-temp" in line)
        assert (kinds[number] is AllocationKind.THREAD_LOCAL) == ("thread-local" in line)
    assert AllocationKind.DONATED in kinds.values()


def test_older_compilers_list_uses_behind_the_allocations_and_name_no_index():
    # As jaxlib 0.4.35 and XLA of 2023 write them.
    text = (
        "BufferAssignment:\nallocation 0: size 8, parameter 0, shape |f32[2]| at ShapeIndex {}:\n"
        " value: <3 x @0> (size=8,offset=0): f32[2]{0}\n\nTotal bytes used: 8 (8B)\n\n"
        "Used values:\n<3 x @0>\n positions:\n  x\n"
    )
    assignment = read_buffer_assignment(text.encode(), "f")
    assert [allocation.kind for allocation in assignment.allocations] == [AllocationKind.PARAMETER]
    assert read_memory_usage(b"Total bytes used: 65773 (64.2KiB)\n\nAllocations", "f") == 65773
    ranges = read_live_ranges(
        b"HloLiveRange (max 1):\n  InstructionSequence:\n    0:x\n  BufferLiveRange:\n    x{}:0-1\n"
        b"  Live ranges at 0 (peak):\n    x: 8 bytes\n",
        "f",
    )
    assert ranges.at_peak == (Position("x"),)


def test_sums_of_several_memory_spaces():
    text = (
        b"Memory Space: default (color=0)\nTotal bytes: 7 (7B)\nMemory Space: 1\nTotal bytes: 5 (5"
    )
    assert read_memory_usage(text, "f") == 12


@pytest.mark.parametrize("ending", ["buffer-assignment", "live-range", "memory-usage-report"])
@pytest.mark.parametrize("label", ["cpu", "gpu", "sm_9.0a_gpu", "gfx942:sramecc+_gpu"])
def test_names(label, ending):
    name = read_name(f"module_0001.jit_f.b.{label}_after_optimizations-{ending}.txt")
    assert name.module == "jit_f.b" and name.label == f"{label}_after_optimizations"
    assert name.role in READERS


def test_other_files_beside_them_are_not_read():
    assert (
        read_name("module_0001.jit_f.cpu_after_optimizations-buffer-assignment-values.txt") is None
    )
    assert read_name("module_0001.jit_f.cpu_after_optimizations-memory-usage-report.pb") is None


@pytest.mark.parametrize("role", READERS)
@pytest.mark.parametrize("content", [b"", b"HloModule x", b"\xff\0", b"allocation 0: size 1:"])
def test_foreign_files_are_refused(role, content):
    with pytest.raises(UnusableInput) as refused:
        READERS[role](content, "some.txt")
    assert str(refused.value).startswith("some.txt:")


def test_the_error_names_the_line():
    text = b"BufferAssignment:\nallocation 0: size 8, thread-local:\n value: <3 x @0> (si"
    with pytest.raises(UnusableInput, match=r"^f:3:1: expected an allocation or a value"):
        read_buffer_assignment(text, "f")


def test_cut_live_ranges_are_refused(module):
    role = Role.LIVE_RANGES if Role.LIVE_RANGES in module.files else Role.BUFFER_ASSIGNMENT
    data = module.files[role][0].read()
    first_line = data.index(b"HloLiveRange (max ")
    begin = 0 if role is Role.LIVE_RANGES else data.index(b"\n", first_line) + 1
    end = data.index(b"  Live ranges at")
    for cut in range(begin, end, 7):
        with pytest.raises(UnusableInput):
            READERS[role](data[:cut], "f")


@pytest.mark.parametrize("module", [LOOP, *OLDER], ids=lambda path: path.name, indirect=True)
@pytest.mark.parametrize("role", READERS)
def test_damaged_files_are_taken_or_refused(module, role, survives_damage):
    if role in module.files:
        survives_damage(lambda damaged: READERS[role](damaged, "f"), module.files[role][0].read())
