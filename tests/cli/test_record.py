"""The `record` command: a program runs as without it, its dump is explained, or it says why not."""

from __future__ import annotations

import importlib.util
import os
import pty
import re
import signal
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from sample_dumps import CPU, GPU, ROOT, unpacked, write

from fusionscope.dump import open_dump
from fusionscope.explain.modules import pick_module
from fusionscope.system import processes

pytestmark = pytest.mark.slow

with_jax = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs jax")

# Writes what XLA would: the files of a dump whose names its arguments begin with.
FAKE = """
import os, re, shutil, sys
dump = re.search('--xla_dump_to="([^"]*)"', os.environ["XLA_FLAGS"])[1]
for source in sys.argv[1:]:
    folder, _, stamp = source.partition("@")
    for name in os.listdir(folder):
        shutil.copy(os.path.join(folder, name), os.path.join(dump, stamp + name))
"""
# Writes what jax writes of the programs that it compiles.
COMPILED = """
import os, pathlib
for number, name in enumerate(["jit_step", "jit_loss"]):
    file = f"jax_ir{number:04d}_{name}_compile.mlir"
    pathlib.Path(os.environ["JAX_DUMP_IR_TO"], file).write_text("module")
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty directory to work in, with the files of a dump beside it."""
    write(tmp_path / "sample", unpacked(CPU))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    return tmp_path / "here"


def names(folder: str = ".") -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


def python(code: str, *arguments: object) -> tuple[object, ...]:
    return ("--", sys.executable, "-c", code, *arguments)


@pytest.mark.main
def test_the_program_is_as_without_it_and_its_dump_is_explained(run, here):
    code = f"{FAKE}\nprint('loss 1.5')\nprint('careful', file=sys.stderr)\nsys.exit(3)"
    result = run(*python(code, "../sample"))
    assert (result.code, result.out) == (3, "loss 1.5\n")
    first, ended, recorded, *screen = result.errors.splitlines()
    assert (first, ended.partition(" ended ")[2]) == ("careful", "with exit code 3")
    total = sum(path.stat().st_size for path in Path("../sample").iterdir())
    assert recorded == f"fusionscope: 1 module, {total / 1e3:.3g} kB: " + (
        "fusionscope explain fusionscope-dump"
    )
    assert screen[0].startswith("jit_program on CPU")
    assert screen[-1].startswith("  More: ")
    assert names() == ["fusionscope-dump"]
    # Another run has a directory of its own.
    assert "explain fusionscope-dump-2" in run(*python(FAKE, "../sample")).errors


def test_the_environment_of_the_program(run, here, monkeypatch):
    """The user's flags come first, and those that differ are said."""
    monkeypatch.setenv("XLA_FLAGS", "--xla_a=1 --xla_dump_to=/there --xla_dump_hlo_as_text")
    monkeypatch.setenv("JAX_ENABLE_COMPILATION_CACHE", "true")
    before = dict(os.environ)
    code = "print(os.environ['XLA_FLAGS'])\nprint(os.environ['JAX_ENABLE_COMPILATION_CACHE'])"
    result = run(*python(f"import os\n{code}"))
    flags, cache = result.out.splitlines()
    assert flags.startswith("--xla_a=1 --xla_dump_to=/there --xla_dump_hlo_as_text ")
    assert flags.endswith("--xla_dump_module_metadata --xla_dump_include_timestamp")
    assert f' --xla_dump_to="{here}/fusionscope-dump" ' in flags
    assert '--xla_dump_hlo_pass_re=".*"' in flags
    assert cache == "false"
    (replaced,) = [line for line in result.errors.splitlines() if "gives way" in line]
    assert "--xla_dump_to=/there gives way to --xla_dump_to=/" in replaced
    assert dict(os.environ) == before


def test_flags_in_a_file(run, here, monkeypatch):
    """XLA_FLAGS that do not begin with a dash name one."""
    Path("flags.txt").write_text("--xla_a=1\n")
    monkeypatch.setenv("XLA_FLAGS", "flags.txt")
    code = "import os; print(os.environ['XLA_FLAGS'])"
    assert run(*python(code)).out.startswith("--xla_a=1 --xla_dump_to=")
    monkeypatch.setenv("XLA_FLAGS", "nowhere.txt")
    run(*python(code)).check_refused("nowhere.txt: no such file")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, sys.executable),
        ({"UV": "uv"}, "ours"),
        ({"UV": "uv", "VIRTUAL_ENV": str(Path(sys.executable).parents[1])}, sys.executable),
    ],
    ids=["not uv", "uvx", "uv run"],
)
def test_python_is_the_one_of_the_user(run, here, monkeypatch, environment, expected):
    """``uvx`` puts the environment of fusionscope first, ``uv run`` that of the project."""
    program = Path(sys.executable).name
    Path("bin").mkdir()
    Path("bin", program).write_text("#!/bin/sh\necho ours\n")
    Path("bin", program).chmod(0o755)
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.delenv("UV", raising=False)
    path = os.pathsep.join([str(Path(sys.executable).parent), str(here / "bin"), os.defpath])
    code = "import sys; print(sys.executable)"
    result = run("--", program, "-c", code, PATH=path, **environment)
    assert result.out == f"{expected}\n"


def test_how_much_there_is_so_far(run, here, monkeypatch):
    """A line comes after a while, and then each time that twice as much has passed."""
    monkeypatch.setattr(processes, "_FIRST_LOOK_S", 0.25)
    code = f"import time\n{FAKE}\ntime.sleep(3)"
    *looks, recorded = (
        run(sys.executable, "-c", code, "../sample")
        .errors.partition("fusionscope explain")[0]
        .splitlines()
    )
    assert len(looks) >= 4  # 0.25, 0.5, 1 and 2 s
    assert looks[-1].rpartition(" s: ")[2] == recorded.removeprefix("fusionscope: ").rstrip(": ")
    nothing = run(sys.executable, "-c", "import time\ntime.sleep(0.5)").errors
    assert nothing.splitlines()[0].endswith(" s: no module")


def test_input_is_passed_on(here):
    result = subprocess.run(
        [sys.executable, "-m", "fusionscope", "record", *python("print(input())")],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        input=b"hello\n",
        capture_output=True,
        check=True,
    )
    assert result.stdout == b"hello\n"


SETS_FLAGS = "import os\n\nos.environ['XLA_FLAGS'] = '--xla_a=1'\n"
NOTHING = {
    "no compilation": ("", [], {}, "nothing was dumped, and jax compiled no program"),
    "flags replaced": (SETS_FLAGS + COMPILED, [], {}, "jit_step, jit_loss: train.py:3 sets XLA_"),
    "replaced, not by jax": (SETS_FLAGS, [], {}, "jax compiled no program; train.py:3 sets XLA_"),
    "filtered, not by jax": ("", ["--modules", "f*"], {}, "--modules 'f*' may leave out"),
    "filtered": (COMPILED, ["--modules", "jit_f*"], {}, "--modules 'jit_f*' leaves out all of"),
    "not filtered": (COMPILED, ["--modules", "jit_l*"], {}, "something replaces XLA_FLAGS"),
    "filtered by the user": (
        COMPILED,
        [],
        {"XLA_FLAGS": "--xla_dump_hlo_module_re=f"},
        "XLA_FLAGS has --xla_dump_hlo_module_re=f",
    ),
    "cached": (
        f"# no XLA_FLAGS\n# jax_enable_compilation_cache\n'jax_enable_compilation_cache'{COMPILED}",
        [],
        {},
        "train.py:3 turns the compilation cache on",
    ),
    "another backend": (COMPILED, [], {}, "a backend that does not read XLA_FLAGS"),
    "unknown programs": ("", [], {"JAX_DUMP_IR_TO": "there"}, "no program was compiled, or some"),
}


@pytest.mark.parametrize(
    ("script", "options", "environment", "reason"), NOTHING.values(), ids=NOTHING.keys()
)
@pytest.mark.parametrize("way", ["script", "module"])
def test_why_nothing_was_dumped(run, here, script, options, environment, reason, way):
    Path("train.py").write_text(script)
    words = ["train.py"] if way == "script" else ["-m", "train"]
    result = run(*options, "--", sys.executable, "-B", *words, **environment)
    assert (result.code, result.out) == (0, "")
    (line,) = result.errors.splitlines()
    assert line.startswith("fusionscope: nothing was dumped") and reason in line
    assert names() == ["train.py"]  # no empty directory


def test_flags_that_pytest_reads_are_found(run, here):
    Path("tests").mkdir()
    Path("tests/conftest.py").write_text(SETS_FLAGS)
    result = run(*python(COMPILED, "tests"))
    assert "tests/conftest.py:3 sets XLA_FLAGS" in result.errors


def test_modules_of_a_compilation_cache_are_counted(run, here):
    """Of them, only the final stage is dumped."""
    stage = next(path for path in Path("../sample").iterdir() if "cpu_after_opt" in path.name)
    write(Path("../cached"), {"module_0002.jit_f.after_optimizations.txt": stage.read_bytes()})
    result = run(*python(FAKE, "../sample", "../cached"))
    assert "1 of 2 modules came from a compilation cache" in result.errors
    # A TPU's compiler goes on with another number.
    names_of_tpu = ["module_0001.jit_f.cl_9.before", "module_0002.jit_f.cl_9.after"]
    files = {f"{name}_optimizations.txt": stage.read_bytes() for name in names_of_tpu}
    write(Path("../tpu"), files)
    errors = run(*python(FAKE, "../tpu")).errors
    assert "1 module, " in errors and "cache" not in errors


def test_a_dump_that_cannot_be_explained(run, here):
    """The exit code stays the program's."""
    write(Path("../broken"), {"module_0001.jit_f.before_optimizations.txt": b"HloModule f\n"})
    result = run(*python(f"{FAKE}\nsys.exit(3)", "../broken"))
    assert (result.code, result.out) == (3, "")
    assert "the text ends before ENTRY" in result.errors


def stamps(dump: str) -> set[str]:
    return {name.partition(".")[0] for name in names(dump)}


FIRST, SECOND, THIRD = (str(1795953773442759 + second) for second in range(3))


@pytest.mark.parametrize(
    ("options", "remaining"),
    [
        ((), {FIRST, SECOND, THIRD}),
        (("--first", "2"), {FIRST, SECOND}),
        (("--largest", "1"), {SECOND}),
        (("--first", "1", "--largest", "3"), {FIRST}),
    ],
)
def test_some_modules_are_kept(run, here, options, remaining):
    """The second of three processes has the largest module."""
    larger = unpacked(CPU) | {"module_0000.jit_program.other.txt": b"x" * 1000}
    write(Path("../larger"), larger)
    result = run(
        *options,
        *python(FAKE, f"../sample@{FIRST}.", f"../larger@{SECOND}.", f"../sample@{THIRD}."),
    )
    assert stamps("fusionscope-dump") == remaining
    assert f"fusionscope: {len(remaining)} module" in result.errors
    assert len(open_dump("fusionscope-dump").modules) == len(remaining)


def test_printed_commands_name_one_module_of_several_processes(run, here):
    write(Path("../gpu"), unpacked(GPU))
    errors = run(*python(FAKE, f"../gpu@{FIRST}.", f"../gpu@{SECOND}.")).errors
    commands = errors.partition("What to try")[2].replace("\\\n", " ")
    selected = re.findall(r"fusionscope rerun +fusionscope-dump +--module (\S+) ", commands)
    assert len(selected) == 2  # as in README
    dump = open_dump("fusionscope-dump")
    assert {pick_module(dump, words).run for words in selected} <= {FIRST, SECOND}


def test_what_cannot_be_run(run, here):
    run("--", "./nowhere").check_refused("./nowhere cannot be run: No such file or directory")
    run("--output", "..", "--", sys.executable).check_refused("is not empty")
    run().check_refused("COMMAND")
    run("--module", "jit_f", "--", sys.executable).check_refused("No such option")
    assert names() == []


# Writes a dump, prints that it is ready, and exits with the number of the first signal.
STOPPED = f"""{FAKE}
import signal, time
signals = []
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
    signal.signal(number, lambda number, _: signals.append(number))
print("ready", flush=True)
while not signals:
    time.sleep(0.05)
time.sleep(0.3)
print(len(signals), flush=True)
sys.exit(int(signals[0]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_are_forwarded(here, number):
    """Who ends the command by SIGTERM does not wait for an explanation."""
    process = subprocess.Popen(
        [sys.executable, "-m", "fusionscope", "record", *python(STOPPED, "../sample")],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(signal.signal, number, signal.SIG_DFL),  # a background job ignores some
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.send_signal(number)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out) == (number, "1\n")
    assert ("jit_program on CPU" in errors) == (number != signal.SIGTERM)


def test_a_program_that_a_signal_ends(run, here):
    result = run(*python("import os; os.kill(os.getpid(), 9)"))
    assert result.code == 128 + 9
    assert "was ended by SIGKILL" in result.errors


def test_the_terminal_interrupts_the_program_once(here):
    command = [sys.executable, "-m", "fusionscope", "record", *python(STOPPED, "../sample")]
    process, terminal = pty.fork()
    if not process:
        os.execve(sys.executable, list(map(str, command)), os.environ | {"PYTHONPATH": str(ROOT)})
    printed = b""
    while b"ready" not in printed:
        printed += os.read(terminal, 1 << 12)
    os.write(terminal, b"\x03")  # Ctrl-C
    with suppress(OSError):  # the other side has closed
        while chunk := os.read(terminal, 1 << 16):
            printed += chunk
    os.close(terminal)
    _, status = os.waitpid(process, 0)
    assert re.search(rb"^(\^C)?1\r", printed, re.MULTILINE)
    assert b"More: " in printed
    assert os.waitstatus_to_exitcode(status) == signal.SIGINT


STEP = """
import jax, jax.numpy as jnp

@jax.jit
def step(x):
    return jnp.exp(x) / jnp.exp(x).sum()

def test_step(rows=8):
    assert abs(step(jnp.ones((rows, 4))).sum() - 1) < 1e-5
"""
FORKS = """
import multiprocessing
from test_model import test_step

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=test_step, args=(rows,)) for rows in (8, 16)]
    for process in processes: process.start()
    for process in processes: process.join()
"""
CACHED = """
import jax
from test_model import test_step

jax.config.update("jax_compilation_cache_dir", "cache")
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
test_step()
"""


@with_jax
@pytest.mark.parametrize(
    ("words", "runs"),
    [
        (["train.py"], 1),
        (["-m", "train"], 1),
        (["-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"], 1),
        (["forks.py"], 2),
        (["cached.py"], 1),
    ],
    ids=["script", "module", "pytest", "processes", "warm cache"],
)
def test_what_jax_compiles_is_dumped(run, here, monkeypatch, words, runs):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    Path("test_model.py").write_text(STEP)
    Path("train.py").write_text("import test_model\n\ntest_model.test_step()\n")
    Path("forks.py").write_text(FORKS)
    Path("cached.py").write_text(CACHED)
    if words == ["cached.py"]:
        subprocess.run([sys.executable, *words], check=True)
        assert any("jit_step" in name for name in names("cache"))
    result = run("--modules", "jit_s?ep", "--", sys.executable, *words)
    assert result.code == 0
    modules = open_dump("fusionscope-dump").modules
    assert [module.name for module in modules] == ["jit_step"] * runs
    assert all(module.shows_all_passes and module.pre_fusion for module in modules)
    assert "jit_step on CPU" in result.errors


@with_jax
def test_a_script_that_replaces_the_flags_is_named(run, here, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    Path("test_model.py").write_text(SETS_FLAGS.replace("--xla_a=1", "") + STEP + "test_step()\n")
    result = run("--", sys.executable, "test_model.py")
    assert "jit_step" in result.errors and "test_model.py:3 sets XLA_FLAGS" in result.errors
