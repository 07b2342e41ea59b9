"""Folders that hold several runs, and files that belong to another program, device or run."""

import gzip
import os
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner
from conformance.special_files import make_socket

from fusionscope.cli.main import cli
from fusionscope.dump import open_dump
from fusionscope.dump.names import Role
from fusionscope.errors import UnusableInput

DUMPS = Path(__file__).resolve().parents[2] / "samples" / "dumps"
FIRST, SECOND, THIRD = "1764267890123456", "1764267899999999", "1764267900000000"
# Names without a timestamp, as jaxlib 0.12 leaves them with --xla_dump_include_timestamp.
PLAIN = re.compile(r"\.debug_options$|\.config\.pbtxt$|thunk_sequence|metadata\.textproto")
MODULE = "module_0001.jit_program"
FINAL = f"{MODULE}.sm_9.0a_gpu_after_optimizations.txt"
Files = dict[str, bytes]


@cache
def contents(dump: str) -> Files:
    """The files of a sample by name, uncompressed, all as of module 1, the first stage first."""
    actual = {}
    for file in sorted((DUMPS / dump).iterdir(), key=lambda file: "before_opt" not in file.name):
        content = file.read_bytes()
        if file.suffix == ".gz":
            content = gzip.decompress(content)
        actual[file.name.removesuffix(".gz").replace("module_0000", "module_0001")] = content
    return actual


def write(directory: Path, *runs: Files) -> Path:
    """One run after the other: each begins a minute later and writes a file every millisecond."""
    directory.mkdir(parents=True, exist_ok=True)
    for minute, files in enumerate(runs):
        for number, (name, content) in enumerate(files.items()):
            (directory / name).write_bytes(content)
            output = 1_700_000_000_000_000_000 + minute * 60_000_000_000 + number * 1_000_000
            os.utime(directory / name, ns=(output, output))
    return directory


def stamped(files: Files, stamp: str, but: re.Pattern[str] = re.compile("$ ")) -> Files:
    return {n if but.search(n) else f"{stamp}.{n}": content for n, content in files.items()}


def with_one(dump: str, ending: str, second: str, other_ending: str = "") -> Files:
    """A dump in which one file has the content of that of another dump."""
    (name,) = (name for name in contents(dump) if name.endswith(ending))
    content = next(c for n, c in contents(second).items() if n.endswith(other_ending or ending))
    return {**contents(dump), name: content}


def labels(dump: str) -> list[str]:
    (module,) = open_dump(DUMPS / dump).modules
    return [stage.label for stage in module.stages]


def run(*words: object) -> tuple[int, str]:
    """The exit code of a command, and what it writes; ``UnusableInput`` is exit code 2."""
    result = CliRunner().invoke(cli, [str(word) for word in words])
    if isinstance(result.exception, UnusableInput):
        return 2, str(result.exception)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


# ------------------------------------------------------------------------------- several runs


@pytest.mark.parametrize(
    ("runs", "sizes"),
    [
        pytest.param([(FIRST, "h100/softmax"), (SECOND, "h100/concatenate")], 2, id="two"),
        pytest.param(
            [(FIRST, "cpu/loop"), (SECOND, "h100/softmax"), (THIRD, "cpu/softmax")], 3, id="three"
        ),
        pytest.param([(FIRST, "cpu/loop"), (SECOND, "cpu/loop")], 2, id="the same twice"),
        pytest.param([(FIRST, "cpu/loop"), ("", "cpu/softmax")], 2, id="one without timestamps"),
        pytest.param([(FIRST, "tpu-v5e/softmax"), (SECOND, "cpu/loop")], 2, id="other names"),
    ],
)
def test_runs_with_timestamps_are_modules_of_their_own(tmp_path, runs, sizes):
    for stamp, dump in runs:
        write(tmp_path, stamped(contents(dump), stamp) if stamp else contents(dump))
    dump = open_dump(tmp_path)
    assert len(dump.modules) == sizes
    actual = sorted([stage.label for stage in module.stages] for module in dump.modules)
    assert actual == sorted(labels(dump) for _, dump in runs)
    for module in dump.modules:
        assert module.final is not None and module.read(module.final)
        assert module.files.keys() >= {Role.FLAGS}
    assert dump.unread() == []


def test_files_without_a_timestamp_are_of_the_last_run(tmp_path):
    for stamp, name in ((FIRST, "h100/softmax"), (SECOND, "h100/concatenate")):
        write(tmp_path, stamped(contents(name), stamp, PLAIN))
    dump = open_dump(tmp_path)
    first, last = dump.modules
    assert (first.run, last.run) == (FIRST, SECOND)
    assert Role.FLAGS not in first.files and Role.FLAGS in last.files
    (note,) = dump.notes
    assert f"2 runs of jit_program, separated by timestamp (--module {FIRST} or" in note
    assert "of the last run" in note


def test_one_run_whose_timestamps_are_in_some_names_is_one_module(tmp_path):
    write(tmp_path, stamped(contents("h100/softmax"), FIRST, PLAIN))
    (module,) = open_dump(tmp_path).modules
    (whole,) = open_dump(DUMPS / "h100/softmax").modules
    assert (module.run, module.files.keys()) == (None, whole.files.keys())
    assert [stage.label for stage in module.stages] == labels("h100/softmax")


def test_timestamps_of_some_stages_only(tmp_path):
    write(tmp_path, stamped(contents("cpu/loop"), FIRST, re.compile(r"\.00[01]\d\.")))
    (module,) = open_dump(tmp_path).modules
    assert [stage.label for stage in module.stages] == labels("cpu/loop")


def test_a_run_is_named_by_its_timestamp(tmp_path):
    for stamp, name in ((FIRST, "cpu/loop"), (SECOND, "cpu/softmax")):
        write(tmp_path, stamped(contents(name), stamp))
    code, message = run("verify", tmp_path, "--module", SECOND)
    assert code == 0 and "100% agreement" in message
    code, message = run("rerun", tmp_path, "--rest", "off")
    assert code == 2 and f"jit_program ({FIRST}), jit_program ({SECOND})" in message


@pytest.mark.parametrize("ending", ["gpu_target_config.pbtxt", "priority_fusion_dump.txt"])
def test_a_side_file_of_another_time_is_ignored(tmp_path, ending):
    name = f"{MODULE}.{ending}"
    files = {n: c for n, c in contents("h100/softmax").items() if n != name}
    write(tmp_path, stamped(files, SECOND))
    write(tmp_path, {f"{FIRST}.{name}": contents("h100/softmax")[name]})
    dump = open_dump(tmp_path)
    (problem,) = dump.unread()
    assert ending in problem and "by its timestamp of another run" in problem
    assert not dump.modules[0].files.keys() & {Role.DEVICE, Role.PRIORITY_FUSION} - {
        Role.DEVICE if ending.startswith("priority") else Role.PRIORITY_FUSION
    }


def test_a_record_of_decisions_may_come_from_a_run_of_its_own(tmp_path):
    """As docs/dumping.md advises for large programs."""
    record = re.compile(r"_fusion\.pyz$")
    files = contents("h100/concatenate")
    write(tmp_path, stamped({n: c for n, c in files.items() if not record.search(n)}, SECOND))
    write(tmp_path, stamped({n: c for n, c in files.items() if record.search(n)}, FIRST))
    dump = open_dump(tmp_path)
    assert len(dump.modules[0].fusion_explorer) == 1
    assert dump.unread() == []


OVER = [
    ("h100/concatenate", "h100/softmax"),
    ("h100/softmax", "h100/concatenate"),
    ("h100/softmax", "h100-without-triton-softmax/softmax"),  # the same program, other flags
    ("h100-jaxlib-0.10/softmax", "h100/softmax"),  # another compiler
    ("a100/dense", "h100/dense"),  # another device
    ("mi300x/concatenate", "h100/concatenate"),
    ("h100/softmax", "cpu/softmax"),
    ("cpu/loop", "cpu/softmax"),
]


@pytest.mark.parametrize(("earlier", "last"), OVER)
def test_of_runs_over_each_other_the_last_is_shown(tmp_path, earlier, last):
    write(tmp_path, contents(earlier), contents(last))
    dump = open_dump(tmp_path)
    (module,) = dump.modules
    assert [stage.label for stage in module.stages] == labels(last)
    (note,) = dump.unread()
    assert "two runs were dumped over each other" in note and "empty folder" in note


@pytest.mark.parametrize(
    ("earlier", "last"),
    [*OVER[:4], *(pytest.param(*names, marks=pytest.mark.slow) for names in OVER[4:])],
)
def test_runs_over_each_other_whose_files_were_copied(tmp_path, earlier, last):
    """Times say nothing then: the two are noticed, and nothing fails."""
    write(tmp_path, contents(earlier), contents(last))
    for file in tmp_path.iterdir():
        os.utime(file, ns=(10**18, 10**18))
    assert "two runs" in " ".join(open_dump(tmp_path).unread())
    for command in (("verify",), ("history",), ("explain", "--no-try", "--no-cache")):
        code, message = run(command[0], tmp_path, *command[1:])
        assert code in (0, 2) and "two runs" in message


def test_two_runs_in_one_captured_output(tmp_path):
    """As ``python train.py >> log`` leaves them with --xla_dump_to=-."""
    with (tmp_path / "log").open("wb") as log:
        for dump in ("h100-jaxlib-0.10/softmax", "h100/softmax"):
            for name, content in contents(dump).items():
                if name.endswith(".txt"):
                    begin, end = (f"*** {word} {name} ***\n".encode() for word in ("Begin", "End"))
                    log.write(begin + content.rstrip(b"\n") + b"\n" + end)
    dump = open_dump(tmp_path / "log")
    (module,) = dump.modules
    assert [stage.label for stage in module.stages] == labels("h100/softmax")
    assert "two runs" in dump.unread()[0]


def test_three_runs_over_each_other(tmp_path):
    write(tmp_path, *map(contents, ("h100/concatenate", "h100/loop", "h100/softmax")))
    (module,) = open_dump(tmp_path).modules
    assert [stage.label for stage in module.stages] == labels("h100/softmax")


@pytest.mark.parametrize("dump", ["cpu/loop", "h100/softmax", "tpu-v5e/softmax"])
def test_the_same_run_again_is_one(tmp_path, dump):
    write(tmp_path, contents(dump), contents(dump))
    again = open_dump(tmp_path)
    assert len(again.modules) == 1 and again.unreported_problems() == []


def test_programs_of_different_names_are_modules(tmp_path):
    for name in ("softmax", "loop"):
        files = contents(f"cpu/{name}")
        write(tmp_path, {n.replace("jit_program", f"jit_{name}"): c for n, c in files.items()})
    dump = open_dump(tmp_path)
    assert [module.name for module in dump.modules] == ["jit_loop", "jit_softmax"]
    assert dump.unreported_problems() == []


def test_runs_in_nested_folders_do_not_meet(tmp_path):
    write(tmp_path, contents("cpu/loop"))
    write(tmp_path / "again" / "host_1", contents("cpu/softmax"))
    dump = open_dump(tmp_path)
    assert len(dump.modules) == 2 and dump.unreported_problems() == []


@pytest.mark.parametrize("dump", sorted(str(p.relative_to(DUMPS)) for p in DUMPS.glob("*/*")))
def test_no_file_of_a_sample_is_foreign(dump):
    opened = open_dump(DUMPS / dump)
    for module in opened.modules:
        _ = module.device, module.priority_fusion, module.fusion_explorer
    assert opened.unread() == []


# -------------------------------------------------------------------- stages of other programs

BEFORE = "0030.pre-fusion.after_rename-instructions.before_pipeline-end.txt"


@pytest.mark.parametrize(
    ("ending", "second"),
    [
        ("sm_9.0a_gpu_after_optimizations.txt", "h100/reductions"),
        ("sm_9.0a_gpu_after_optimizations.txt", "h100/loop"),
        ("sm_9.0a_gpu_after_optimizations.txt", "h100/attention"),
        ("before_optimizations.txt", "h100/reductions"),
    ],
)
def test_a_stage_of_another_program_is_ignored(tmp_path, ending, second):
    write(tmp_path, with_one("h100/softmax", f"program.{ending}", second))
    dump = open_dump(tmp_path)
    (problem,) = dump.unread()
    assert f"{ending}: the entry's parameters and results" in problem and "ignored" in problem
    assert [stage.label for stage in dump.modules[0].stages] == [
        label for label in labels("h100/softmax") if label != ending.removesuffix(".txt")
    ]


@pytest.mark.parametrize("command", [("verify",), ("history",), ("explain", "--no-try")])
def test_a_stage_in_the_middle_of_another_program(tmp_path, command):
    """Only its reader sees it."""
    files = with_one("h100/softmax", BEFORE, "h100/reductions", "before_optimizations.txt")
    write(tmp_path, files)
    code, message = run(command[0], tmp_path, *command[1:])
    assert code in (0, 2)
    assert command[0] == "explain" or "it is of another program" in message


# ---------------------------------------------------------------------------- foreign side files


def foreign(dump: str, ending: str, second: str, other_ending: str = "") -> object:
    name = f"{ending.partition('-')[0] if '-' not in ending else ending}"
    return pytest.param(dump, ending, second, other_ending, id=f"{name} of {second} in {dump}")


@pytest.mark.parametrize(
    ("dump", "ending", "second", "other_ending"),
    [
        foreign("h100/softmax", "gpu_target_config.pbtxt", "a100/dense"),
        foreign("h100/softmax", "gpu_target_config.pbtxt", "mi300x/concatenate"),
        foreign("mi300x/concatenate", "gpu_target_config.pbtxt", "h100/softmax"),
        foreign("b200/dense", "gpu_target_config.pbtxt", "h100/dense"),
        foreign("h100/softmax", "priority_fusion_dump.txt", "h100/reductions"),
        foreign("h100/dense", "priority_fusion_dump.txt", "a100/dense"),
        foreign("h100/softmax", "priority_fusion_dump.txt", "h100-without-triton-softmax/softmax"),
        foreign("h100/concatenate", "_fusion.pyz", "h100/reductions"),
        foreign("cpu/concatenate", "_fusion.pyz", "cpu/reductions"),
        foreign("h100/softmax", "-buffer-assignment.txt", "h100/loop"),
        foreign("h100/softmax", "-live-range.txt", "h100/loop"),
        foreign("h100/softmax", "-memory-usage-report.txt", "h100/loop"),
        foreign("cpu/loop", "-buffer-assignment.txt", "cpu/softmax"),
    ],
)
def test_a_side_file_of_another_program_is_ignored(tmp_path, dump, ending, second, other_ending):
    write(tmp_path, with_one(dump, ending, second, other_ending))
    code, message = run("explain", tmp_path, "--no-try", "--no-cache", "--top", "1")
    assert code == 0
    reported = ending.replace(
        "memory-usage-report", "buffer-assignment"
    )  # which of the two is unknown
    place = str(next(file for file in tmp_path.iterdir() if file.name.endswith(reported)))
    message = re.sub(r"\s+", "", message)
    assert message.count(re.sub(r"\s+", "", place)) == 1


@pytest.mark.parametrize(
    ("dump", "name", "second"),
    [
        ("cpu/loop", f"{MODULE}.gpu_target_config.pbtxt", "h100/softmax"),
        ("cpu/loop", f"{MODULE}.priority_fusion_dump.txt", "h100/softmax"),
        (
            "cpu/loop",
            FINAL.replace(".txt", "-buffer-assignment.txt"),
            "h100/softmax",
        ),
    ],
)
def test_a_side_file_of_another_backend_is_ignored(tmp_path, dump, name, second):
    write(tmp_path, {**contents(dump), name: contents(second)[name]})
    opened = open_dump(tmp_path)
    (problem,) = opened.unread()
    assert name in problem and "the stages are of 'cpu_after_optimizations': ignored" in problem
    assert opened.modules[0].backend == "cpu"
    assert run("verify", tmp_path)[0] == 0


# ------------------------------------------------------------------------------------ cut stages


def before_entry(text: bytes) -> bytes:
    return text.partition(b"\nENTRY")[0] + b"\n"


def in_the_header(text: bytes) -> bytes:
    return text[:40]


def after_the_header(text: bytes) -> bytes:
    return text.partition(b"\n")[0] + b"\n"


def in_an_instruction(text: bytes) -> bytes:
    return text[: text.index(b"ROOT", text.index(b"\nENTRY")) + 12]


def at_the_end(text: bytes) -> bytes:
    return text.rstrip()[:-1]


@pytest.mark.parametrize("is_final", [True, False])
@pytest.mark.parametrize(
    "cut", [before_entry, in_the_header, after_the_header, in_an_instruction, at_the_end]
)
def test_a_stage_that_is_cut_is_refused(tmp_path, cut, is_final):
    name = FINAL if is_final else f"{MODULE}.{BEFORE}"
    files = contents("h100/softmax")
    write(tmp_path, {**files, name: cut(files[name])})
    (module,) = open_dump(tmp_path).modules
    stage = next(stage for stage in module.stages if stage.file.name == name)
    with pytest.raises(UnusableInput, match=r"cut|truncated") as error:
        module.read(stage)
    assert name in str(error.value) and "\n" not in str(error.value)
    code, message = run("history", tmp_path)
    assert code == 0 and name in re.sub(r"\s+", "", message)


# ------------------------------------------------------------------------------ no files at all


def a_directory(path: Path) -> None:
    path.mkdir()


def a_broken_link(path: Path) -> None:
    path.symlink_to("nowhere")


def a_link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def a_huge_empty_file(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(5 << 30)


def junk(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 40)


def another_text(path: Path) -> None:
    path.write_text("# Notes\n\nENTRY of a diary, and no HLO.\n")


def nothing(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    "make",
    [
        a_directory,
        os.mkfifo,
        make_socket,
        a_broken_link,
        a_link_to_a_device,
        a_huge_empty_file,
        junk,
        another_text,
        nothing,
    ],
)
@pytest.mark.parametrize(
    "name", [FINAL, f"{MODULE}.gpu_target_config.pbtxt", f"{MODULE}.priority_fusion_dump.txt"]
)
def test_something_else_in_the_place_of_a_file(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    write(tmp_path, {n: c for n, c in contents("h100/softmax").items() if n != name})
    make(tmp_path / name)
    code, message = run("verify", tmp_path)
    assert code in (0, 2)
    assert make is a_directory or name != FINAL or code == 0
    code, message = run("explain", tmp_path, "--no-try", "--no-cache")
    assert code in (0, 2)
    assert make is a_directory or name in re.sub(r"\s+", "", message)
