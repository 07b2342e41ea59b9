"""What is found in a directory, however it was dumped and whatever lies beside it."""

import gzip
import os
import re
from pathlib import Path

import pytest

from fusionscope.dump import open_dump
from fusionscope.errors import UnusableInput
from fusionscope.history.kernels import launches_of

DUMPS = Path(__file__).resolve().parents[2] / "samples" / "dumps"
CPU, GPU, TPU = (DUMPS / name for name in ("cpu/softmax", "h100/softmax", "tpu-v5e/softmax"))


def contents(dump: Path) -> dict[str, bytes]:
    """Names and contents of all files, uncompressed."""
    return {
        file.name.removesuffix(".gz"): gzip.decompress(file.read_bytes())
        if file.suffix == ".gz"
        else file.read_bytes()
        for file in dump.iterdir()
    }


def write(directory: Path, files: dict[str, bytes]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (directory / name).write_bytes(content)
    return directory


def stages(dump: Path) -> list[list[str]]:
    return [[stage.label for stage in module.stages] for module in open_dump(dump).modules]


def only(dump: Path):
    (module,) = open_dump(dump).modules
    return module


@pytest.mark.parametrize(
    ("dump", "backend", "before", "final"),
    [
        (CPU, "cpu", "dot-library-passes.after_pipeline-start", "cpu_after_optimizations"),
        (GPU, "gpu", "before_algsimp", "sm_9.0a_gpu_after_optimizations"),
        (TPU, "tpu", "Main_fusion.after_pipeline-start.before_tpu_fusion", "after_codegen"),
    ],
)
def test_a_dump_of_one_module(dump, backend, before, final):
    module = only(dump)
    assert module.backend == backend
    assert before in module.pre_fusion.label
    assert module.final.label == final
    counters = [s.name.counter for s in module.stages if s.name.counter is not None]
    assert counters == sorted(counters) and len(counters) > 10
    assert module.stages[0].label == "before_optimizations"
    assert module.read(module.final) is module.read(module.final)


def test_stages_stand_in_the_order_in_which_the_compiler_made_them():
    """Fixed names have no counter. Modification times of whole dumps show where they belong: the
    partitioner comes early, buffer assignment after the final stage."""
    labels = stages(GPU)[0]
    assert labels.index("before_optimizations") == 0
    assert labels.index("after_spmd_partitioner") < labels.index(
        next(label for label in labels if "layout_assignment" in label)
    )
    assert labels[-1] == "sm_9.0a_gpu_after_optimizations"
    labels = stages(TPU)[0]
    last = [
        "after_optimizations_before_buffer_assignment",
        "after_optimizations",
        "after_optimizations_after_buffer_assignment",
        "after_codegen",
    ]
    assert labels[-4:] == last


def test_the_stage_before_fusion_is_the_one_before_the_first_pass_that_fused():
    for dump in (CPU, GPU, TPU):
        module = only(dump)
        index = module.stages.index(module.pre_fusion)
        following = module.stages[index + 1]
        before, after = (
            module.read(stage).opcode_histogram()["fusion"]
            for stage in (module.pre_fusion, following)
        )
        assert before == 0 < after


def test_compressed_files_are_read_like_others(tmp_path):
    files = contents(CPU)
    plain = write(tmp_path / "plain", files)
    packed = write(tmp_path / "packed", {f"{n}.gz": gzip.compress(c) for n, c in files.items()})
    assert stages(plain) == stages(packed) == stages(CPU)
    first, two = only(plain), only(packed)
    assert first.read(first.final) == two.read(two.final)


def test_timestamps_and_subfolders(tmp_path):
    stamped = {f"1763638291123456.{name}": content for name, content in contents(CPU).items()}
    dump = write(tmp_path / "jit_program" / "host_4711", stamped)
    assert stages(tmp_path) == stages(CPU)
    assert only(tmp_path).directory == dump


def test_names_with_dots_and_five_digits(tmp_path):
    renamed = {
        name.replace("module_0000.jit_program", "module_12345.jit_a.b.0007.c"): content
        for name, content in contents(CPU).items()
    }
    module = only(write(tmp_path, renamed))
    assert (module.number, module.name) == (12345, "jit_a.b.0007.c")
    assert [stage.label for stage in module.stages] == stages(CPU)[0]


def test_several_processes_do_not_mix(tmp_path):
    """Each numbers its modules from 0, in a directory of its own."""
    for process in ("a", "b"):
        write(tmp_path / process, contents(CPU))
    assert [module.directory.name for module in open_dump(tmp_path).modules] == ["a", "b"]
    assert stages(tmp_path) == 2 * stages(CPU)


def test_several_modules_of_one_number_in_one_directory(tmp_path):
    """Two processes that write into one directory: their modules share numbers, not names."""
    files = contents(CPU)
    write(tmp_path, files)
    write(tmp_path, {n.replace("jit_program", "jit_other"): c for n, c in files.items()})
    actual = {(module.number, module.name) for module in open_dump(tmp_path).modules}
    assert actual == {(0, "jit_program"), (0, "jit_other")}


def test_modules_are_sorted_by_number_not_by_text(tmp_path):
    text = contents(CPU)["module_0000.jit_program.before_optimizations.txt"]
    for number in (10000, 9, 100):
        write(tmp_path, {f"module_{number:04d}.f.before_optimizations.txt": text})
    assert [module.number for module in open_dump(tmp_path).modules] == [9, 100, 10000]


def captured(files: dict[str, bytes], newline: bytes = b"\n") -> bytes:
    sections = []
    for name, content in sorted(files.items()):
        if name.endswith((".txt", ".debug_options")):
            begin, end = (f"*** {word} {name} ***\n".encode() for word in ("Begin", "End"))
            sections += [b"a line of the program\n", begin, content.rstrip(b"\n"), b"\n", end]
    return b"".join(sections).replace(b"\n", newline)


@pytest.mark.parametrize("name", ["stdout", "stdout.txt", "run.log", "run.out"])
def test_a_printed_dump_is_read_from_its_capture(tmp_path, name):
    capture = tmp_path / name
    capture.write_bytes(captured(contents(CPU)))
    for place in (capture, tmp_path):
        assert stages(place) == stages(CPU)
        module = only(place)
        assert module.read(module.final) == only(CPU).read(only(CPU).final)
        assert name in str(module.final.file)


def test_a_capture_that_ends_in_the_middle(tmp_path):
    whole = captured(contents(CPU))
    capture = tmp_path / "stdout.txt"
    cut = whole.index(b"*** End", len(whole) // 2)
    capture.write_bytes(whole[: cut - 200])
    actual = stages(capture)[0]
    assert 0 < len(actual) < len(stages(CPU)[0])
    assert set(actual) <= set(stages(CPU)[0])


def test_one_file_alone(tmp_path):
    text = contents(CPU)["module_0000.jit_program.before_optimizations.txt"]
    for name in ("module.hlo", "copied.txt", "module_0000.jit_program.before_optimizations.txt"):
        file = tmp_path / name
        file.write_bytes(text)
        module = only(file)
        assert module.name == "jit_program"
        assert len(module.stages) == 1
        assert module.pre_fusion is None


def test_no_final_stage(tmp_path):
    files = {n: c for n, c in contents(CPU).items() if "after_optimizations" not in n}
    module = only(write(tmp_path, files))
    assert module.final is None
    assert module.pre_fusion is not None
    assert module.backend == "cpu"  # the names of pipelines still tell


def test_without_a_final_stage_the_latest_by_number_is_the_last(tmp_path):
    """``before_config_assignment`` is from before the copies for the loop were inserted."""
    loop = DUMPS / "h100/loop"
    files = {n: c for n, c in contents(loop).items() if not n.endswith("after_optimizations.txt")}
    module = only(write(tmp_path, files))
    assert module.final is None
    assert module.last.name.counter == max(stage.name.counter or 0 for stage in module.stages)
    assert only(loop).last.is_final
    launches = [
        sum(kernel.runs for kernel in launches_of(item.read(item.last), "gpu"))
        for item in (module, only(loop))
    ]
    assert launches[0] == launches[1]


def test_stages_without_numbers_alone_have_a_last_one(tmp_path):
    fixed = ("before_optimizations", "before_config_assignment")
    files = {n: c for n, c in contents(GPU).items() if n.endswith(tuple(f"{f}.txt" for f in fixed))}
    assert only(write(tmp_path, files)).last.label == fixed[-1]


def test_no_stage_before_fusion(tmp_path):
    files = {n: c for n, c in contents(CPU).items() if "_optimizations.txt" in n}
    module = only(write(tmp_path, files))
    assert [stage.label for stage in module.stages] == [
        "before_optimizations",
        "cpu_after_optimizations",
    ]
    assert module.pre_fusion is None


def test_some_passes_only(tmp_path):
    """With another regex than `.*`, every matching pass is dumped, whether it changed anything."""
    files = {n: c for n, c in contents(GPU).items() if "fusion" in n or "_optimizations.txt" in n}
    module = only(write(tmp_path, files))
    assert module.final is not None
    assert module.pre_fusion is not None
    assert all("fusion" in s.label for s in module.stages if s.name.counter is not None)


def test_a_stage_is_found_by_its_number_or_a_part_of_its_label():
    module = only(GPU)
    before, after = module.pre_fusion, module.stages[module.stages.index(module.pre_fusion) + 1]
    assert module.stage("pre-fusion") is before
    assert module.stage("final") is module.final
    assert module.stage(str(after.name.counter)) is after
    assert module.stage(after.label) is after
    assert module.stage("after_priority-fusion").name.after == "priority-fusion"
    for expected in ("no such stage", "simplification"):
        with pytest.raises(UnusableInput, match="jit_program"):
            module.stage(expected)


@pytest.mark.parametrize("files", [{}, {"notes.txt": b"hello"}, {"a.bin": bytes(100)}])
def test_a_directory_without_hlo(tmp_path, files):
    write(tmp_path, files)
    with pytest.raises(UnusableInput, match="--xla_dump_to") as error:
        open_dump(tmp_path)
    assert str(tmp_path) in str(error.value) and "\n" not in str(error.value)
    assert all(name in str(error.value) for name in files)


def test_nothing_there(tmp_path):
    with pytest.raises(UnusableInput, match="no such file"):
        open_dump(tmp_path / "missing")


def test_an_empty_file(tmp_path):
    (tmp_path / "empty.hlo").write_bytes(b"")
    with pytest.raises(UnusableInput, match="empty"):
        open_dump(tmp_path / "empty.hlo")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.symlink_to("nowhere"), "a link to a file that is not there"),
        (os.mkfifo, "a FIFO, expected a regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "a device, expected a regular file"),
    ],
)
def test_a_stage_that_is_no_file_is_told(tmp_path, make, words):
    write(tmp_path, contents(CPU))
    odd = tmp_path / "module_0000.jit_program.9998.fusion.after_x.before_y.txt"
    make(odd)
    dump = open_dump(tmp_path)
    assert dump.unreported_problems() == [f"{odd}: {words}"]
    (module,) = dump.modules
    with pytest.raises(UnusableInput, match=words):
        module.read(module.stage("9998"))
    assert dump.unreported_problems([f"{odd}: {words}"]) == []


def test_odd_things_beside_the_stages(tmp_path):
    """A directory named as a stage, links in a circle, names that are no text, are not stages."""
    write(tmp_path, contents(CPU))
    (tmp_path / "module_0000.jit_program.9999.fusion.after_x.before_y.txt").mkdir()
    (tmp_path / "itself").symlink_to(tmp_path)
    (tmp_path / "circle").symlink_to("circle")
    write(tmp_path, {"module_0000.jit_program.0000.notes": b"\xff\x00"})
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe.txt")).write_bytes(b"\xff")
    assert stages(tmp_path) == stages(CPU)


def unreadable(path: Path) -> None:
    """A file that is there and cannot be read, by the superuser either."""
    path.unlink(missing_ok=True)
    path.symlink_to("/proc/self/mem")


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no file that cannot be read")
def test_a_file_that_cannot_be_read(tmp_path):
    write(tmp_path, contents(CPU))
    unreadable(tmp_path / "notes.txt")  # might be a capture
    name = "module_0000.jit_program.cpu_after_optimizations.txt"
    unreadable(tmp_path / name)
    module = only(tmp_path)
    assert module.read(module.pre_fusion)
    with pytest.raises(UnusableInput, match="cannot be read") as error:
        module.read(module.final)
    assert name in str(error.value)


def test_a_damaged_archive_spoils_only_itself(tmp_path):
    files = {f"{name}.gz": gzip.compress(content) for name, content in contents(CPU).items()}
    files["module_0000.jit_program.before_optimizations.txt.gz"] = b"\x1f\x8b\x08 and no more"
    module = only(write(tmp_path, files))
    assert module.read(module.final)
    with pytest.raises(UnusableInput, match="not a whole gzip file"):
        module.read(module.stages[0])


def test_a_proto_that_ends_the_process_that_reads_it_is_told(tmp_path):
    pytest.importorskip("jaxlib")
    content = (Path(__file__).parent / "data" / "ends_the_reader.hlo.pb").read_bytes()
    files = {
        "module_0004.jit_f.before_optimizations.hlo.pb": content,
        "module_0004.jit_f.cpu_after_optimizations.hlo.pb": content,
    }
    module = only(write(tmp_path, files))
    for stage in module.stages:  # the second one is given to another process
        with pytest.raises(UnusableInput, match=f"{stage.proto.name}: jaxlib cannot read it: it"):
            module.read(stage)


def test_stages_that_were_dumped_as_protos_only(tmp_path):
    """Their place is known; jaxlib, which prints them, need not be there."""
    text = "module_0001.jit_program.0034.fusion.after_priority-fusion.before_cse.txt"
    files = contents(GPU)
    del files[next(n for n in files if n.endswith("after_priority-fusion.before_cse.txt"))]
    module = only(write(tmp_path, files))
    stage = next(s for s in module.stages if s.name.after == "priority-fusion")
    assert stage.text is None and stage.proto is not None, text
    try:
        assert module.read(stage).opcode_histogram()["fusion"]
    except UnusableInput as error:
        assert "jaxlib" in str(error) and stage.proto.name in str(error)


def test_thousands_of_files(tmp_path):
    text = contents(CPU)["module_0000.jit_program.before_optimizations.txt"]
    names = [f"module_0000.f.{n:04d}.a.after_b.before_c.txt" for n in range(3000)]
    write(tmp_path, dict.fromkeys(names, text[:10]))
    assert [stage.name.counter for stage in only(tmp_path).stages] == list(range(3000))


def test_a_tpu_module_that_goes_on_under_another_number_is_one(tmp_path):
    """As libtpu dumps a program with 64-bit types: the rest has a new number, and counts anew."""
    original = open_dump(DUMPS / "tpu-v5e" / "softmax").modules[0]
    split = 10  # stages
    for file in (DUMPS / "tpu-v5e" / "softmax").iterdir():
        _, _, remaining = file.name.partition("module_0000.")
        match = re.search(r"\.(\d{4})\.", remaining)
        number = 3 if match is None or int(match[1]) >= split else 0
        if match is not None and number:
            remaining = remaining.replace(match[0], f".{int(match[1]) - split:04d}.", 1)
        if "before_optimizations" in remaining:
            number = 0
        if "._fusion." not in file.name:
            (tmp_path / f"module_{number:04d}.{remaining}").write_bytes(file.read_bytes())
    (module,) = open_dump(tmp_path).modules
    assert module.number == 3
    assert [stage.label for stage in module.stages] == [stage.label for stage in original.stages]
    assert (module.backend, module.pre_fusion.label) == ("tpu", original.pre_fusion.label)
