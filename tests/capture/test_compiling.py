"""Programs compiled in a child process, where jax is installed."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path

import pytest

from fusionscope import UnusableInput, capture_dump, capturing
from fusionscope.capture.capture import PROFILE, Captured, capture
from fusionscope.capture.targets import read_program, read_target
from fusionscope.dump import open_dump
from fusionscope.dump.names import CAPTURE_RECORD
from fusionscope.dump.profile import read_profile
from fusionscope.explain import Selection
from fusionscope.explain import explain as explain_dump
from fusionscope.findings.autotuned.facts import Autotuned
from fusionscope.findings.measured.facts import Measured
from fusionscope.rerun.rerun import rerun
from fusionscope.verify.verification import verify as verify_dump

pytestmark = pytest.mark.slow

with_jax = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs jax")
with_cuda = pytest.mark.skipif(
    importlib.util.find_spec("jax_cuda13_plugin") is None, reason="needs jax's plugin for CUDA"
)

MODEL = Path(__file__).parent / "model.py"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A copy, which may lie in a directory with a space in its name."""
    file = tmp_path / "a model.py"
    shutil.copy(MODEL, file)
    return file


def captured(words: str, directory: Path, *arguments: str, device: str = "cpu") -> Captured:
    return capture(read_program(words, arguments), read_target(device), directory)


@with_jax
def test_a_function_is_compiled_with_its_example(model: Path, tmp_path: Path) -> None:
    actual = captured(f"{model}:step", tmp_path / "dump")
    assert actual.problem == ""
    assert actual.arguments == ("f32[16,8]", "f32[4,16]")
    # What the file computes while it is imported is not the program.
    (module,) = open_dump(actual.directory).modules
    assert module.name == "jit_step"
    assert len(module.stages) > 10
    manifest = json.loads((actual.directory / CAPTURE_RECORD).read_text())
    assert manifest["schema"] == "fusionscope.capture/1"
    assert manifest["versions"]["jaxlib"] == actual.versions["jaxlib"]
    (facts,) = explain_dump(open_dump(actual.directory)).modules
    assert facts.pairs


@with_jax
@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        ("twice", ["f32[128,256]"], ("f32[128,256]",)),
        ("twice", ["bf16[8]"], ("bf16[8]",)),
        ("twice", ["f64[8]"], ("f64[8]",)),
        ("twice", ["u8[]"], ("u8[]",)),
        ("jitted", ["f32[8]"], ("f32[8]",)),
        ("Nested.inside", [], ("f32[8]",)),
    ],
)
def test_arguments_are_those_that_were_asked_for(
    model: Path, tmp_path: Path, function: str, arguments: list[str], expected: tuple[str, ...]
) -> None:
    actual = captured(f"{model}:{function}", tmp_path / "dump", *arguments)
    assert (actual.problem, actual.arguments) == ("", expected)


@with_jax
def test_stablehlo_and_hlo_compile_to_the_same(model: Path, tmp_path: Path) -> None:
    import jax
    import jax.numpy as jnp

    # A softmax broadcasts dimensions of size 1, which HLO writes as three operations.
    lowered = jax.jit(lambda x, y: jax.nn.softmax(x @ y).sum(0)).lower(
        jnp.ones((8, 16)), jnp.ones((16, 4))
    )
    (tmp_path / "step.mlir").write_text(lowered.as_text())
    (tmp_path / "step.hlo").write_text(lowered.as_text("hlo"))
    proto = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    (tmp_path / "step.pb").write_bytes(proto)
    opcodes = []
    for name in ("step.mlir", "step.hlo", "step.pb"):
        actual = captured(str(tmp_path / name), tmp_path / f"dump {name}")
        assert actual.problem == ""
        (module,) = open_dump(actual.directory).modules
        ends = module.read(module.stages[0]), module.read(module.final)
        opcodes.append([sorted(instruction.opcode for instruction in end.walk()) for end in ends])
    assert opcodes[0] == opcodes[1] == opcodes[2]


@with_jax
@with_cuda
def test_a_call_of_the_host_is_compiled_for_an_absent_gpu(tmp_path: Path) -> None:
    file = tmp_path / "host.py"
    file.write_text(
        "import jax\nimport numpy as np\n\n"
        "def step(x):\n"
        "    y = jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x * 2)\n"
        "    jax.debug.callback(print, y)\n"
        "    return y + 1\n"
    )
    actual = captured(f"{file}:step", tmp_path / "dump", "f32[8]", device="h100")
    assert actual.problem == ""
    (module,) = open_dump(actual.directory).modules
    calls = [call for call in module.read(module.final).walk() if call.opcode == "custom-call"]
    targets = {call.attributes["custom_call_target"].strip('"') for call in calls}
    assert (len(calls), targets) == (2, {"xla_ffi_python_gpu_callback"})


@with_jax
@with_cuda
@pytest.mark.parametrize("device", ["h100", "b200"])
def test_a_card_that_is_not_here_is_compiled_for(model: Path, tmp_path: Path, device: str) -> None:
    actual = captured(f"{model}:step", tmp_path / "dump", device=device)
    assert len(actual.arguments) == 2
    dump = open_dump(actual.directory)
    (module,) = dump.modules
    if not actual.problem:
        assert module.ptx
    assert module.priority_fusion is not None  # whatever becomes of the code behind it
    assert verify_dump(dump, dump.modules).identical


@with_jax
def test_functions_and_all_that_is_compiled_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import jax
    import jax.numpy as jnp

    actual = capture_dump(jnp.tanh, jnp.ones(8), directory=tmp_path / "one")
    assert (actual.problem, actual.arguments) == ("", ("f32[8]",))
    square = jax.jit(lambda x: x @ x)
    square(jnp.ones((4, 4)))
    monkeypatch.chdir(tmp_path)
    Path("fusionscope-dump").mkdir()
    Path("fusionscope-dump", "earlier").touch()
    with capturing() as several:
        square(jnp.ones((4, 4))).sum()
    assert {item.directory.parent for item in several} == {Path("fusionscope-dump-2")}
    names = [module.name for item in several for module in open_dump(item.directory).modules]
    assert "jit__lambda" in names
    assert "jit__reduce_sum" in names
    with pytest.raises(UnusableInput, match="compiled nothing"), capturing(tmp_path / "none"):
        pass


@with_jax
@pytest.mark.parametrize(
    ("text", "words", "problem"),
    [
        ("import nowhere", "f", "cannot be imported: ModuleNotFoundError"),
        ("def f(:", "f", "cannot be imported: SyntaxError"),
        ("f = 7\nexample_args = ()", "f", "is int, expected a function"),
        ("def g(): pass", "f", "has no f"),
        ("def f(x): return x", "f", "its arguments are unknown"),
        ("def f(): raise ValueError('mine')\nexample_args = ()", "f", "ValueError: mine"),
        ("import os\nos.abort()", "f", "crashed with SIGABRT"),
        ("import os\ndef f(): os._exit(3)\nexample_args = ()", "f", "exited with 3"),
    ],
)
def test_a_program_that_cannot_be_compiled_is_an_error_of_one_line(
    tmp_path: Path, text: str, words: str, problem: str
) -> None:
    (tmp_path / "model.py").write_text(text)
    with pytest.raises(UnusableInput, match=problem) as error:
        captured(f"{tmp_path / 'model.py'}:{words}", tmp_path / "dump")
    assert "\n" not in str(error.value)


@with_jax
@pytest.mark.parametrize("name", ["step.mlir", "step.hlo", "step.pb"])
def test_junk_is_an_error_of_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x00\xff junk\n" * 9)
    with pytest.raises(UnusableInput) as error:
        captured(str(tmp_path / name), tmp_path / "dump")
    assert "\n" not in str(error.value)


# `s1` is the name of a type; the case was found by accident.
NAMED_AS_A_TYPE = """HloModule m

ENTRY e {
  s1 = f32[4]{0} parameter(0)
  ROOT r = f32[4]{0} negate(s1)
}
"""


@with_jax
@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("step.hlo", NAMED_AS_A_TYPE, "4:3: the compiler cannot read it: expects name, found 's1"),
        ("step.mlir", "module {\n func.func @f( {\n}", "2:15: the compiler cannot read it: expect"),
    ],
)
def test_the_place_of_a_syntax_error_is_that_of_the_compiler(
    tmp_path: Path, name: str, text: str, error: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UnusableInput, match=f"{name}:{error}"):
        captured(str(tmp_path / name), tmp_path / "dump")


FLAGS = """
import os
os.environ["XLA_FLAGS"] = "--xla_cpu_enable_fast_math=true --xla_force_host_platform_device_count=4"
import jax, jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((jax.device_count(),), ("d",), axis_types=(AxisType.Auto,))
def step(x):
    return jax.lax.with_sharding_constraint(jnp.tanh(x), NamedSharding(mesh, P("d"))).sum()
example_args = (jnp.zeros((128, 8)),)
"""


@with_jax
def test_flags_that_a_program_sets_are_kept(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(FLAGS)
    actual = captured(f"{tmp_path / 'model.py'}:step", tmp_path / "dump")
    assert actual.program_flags.split() == [
        "--xla_cpu_enable_fast_math=true",
        "--xla_force_host_platform_device_count=4",
    ]
    (module,) = open_dump(actual.directory).modules
    assert module.flags is not None
    assert module.flags.values["xla_cpu_enable_fast_math"] == ("true",)
    assert module.read(module.stages[0]).attributes["num_partitions"] == "4"
    assert actual.notes == ()


@with_jax
def test_a_mesh_of_one_device_is_noted(tmp_path: Path) -> None:
    text = FLAGS.replace(" --xla_force_host_platform_device_count=4", "")
    (tmp_path / "model.py").write_text(text)
    (note,) = captured(f"{tmp_path / 'model.py'}:step", tmp_path / "dump").notes
    assert note.startswith("the program is sharded over a mesh of one device, and compiled for one")


@with_jax
@with_cuda
def test_a_mesh_of_present_devices_is_not_compiled_for_an_absent_one(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(FLAGS)
    with pytest.raises(UnusableInput, match="names devices of this machine"):
        captured(f"{tmp_path / 'model.py'}:step", tmp_path / "dump", device="h100")


@with_jax
def test_no_compilation_takes_longer_than_it_may(tmp_path: Path) -> None:
    text = "import time\ndef f(): time.sleep(60)\nexample_args = ()"
    (tmp_path / "model.py").write_text(text)
    program = read_program(f"{tmp_path / 'model.py'}:f")
    with pytest.raises(UnusableInput, match="longer than 5 s"):
        capture(program, read_target("cpu"), tmp_path / "dump", limit_s=5)


def test_a_directory_with_something_in_it_is_left_alone(model: Path, tmp_path: Path) -> None:
    (tmp_path / "dump").mkdir()
    (tmp_path / "dump" / "mine").touch()
    with pytest.raises(UnusableInput, match="is not empty"):
        captured(f"{model}:step", tmp_path / "dump")


def test_a_python_without_jax_is_told(model: Path, tmp_path: Path) -> None:
    # Isolated, it has neither this environment's packages nor the user's.
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys._base_executable} -I -S "$@"\n')  # type: ignore[attr-defined]
    python.chmod(0o755)
    with pytest.raises(UnusableInput, match=r"no jax.*pip install.*--python"):
        capture(
            read_program(f"{model}:step"),
            read_target("cpu"),
            tmp_path / "dump",
            python=str(python),
        )


def test_a_python_that_is_none_is_told(model: Path, tmp_path: Path) -> None:
    with pytest.raises(UnusableInput, match="cannot be run"):
        capture(
            read_program(f"{model}:step"),
            read_target("cpu"),
            tmp_path / "dump",
            python=str(tmp_path / "nothing"),
        )


@pytest.mark.parametrize("flag", ["xla_f=1", "--", "--xla f", "-x=1"])
def test_what_is_no_flag_is_an_error(model: Path, tmp_path: Path, flag: str) -> None:
    with pytest.raises(UnusableInput, match="is not a flag"):
        capture(read_program(f"{model}:step"), read_target("cpu"), tmp_path / "dump", flags=[flag])


@with_jax
@with_cuda
def test_a_program_with_a_library_call_is_compiled_again(model: Path, tmp_path: Path) -> None:
    """Reading HLO gives calls an attribute that the plugin does not know."""
    actual = captured(f"{model}:factor", tmp_path / "dump", "f32[64,64]", device="h100")
    (module,) = open_dump(actual.directory).modules
    again = rerun(module, None, tmp_path / "again")
    assert (again.problem, again.variant) == ("", again.baseline)


@with_jax
@pytest.mark.parametrize(
    ("function", "arguments"),
    [("step", ()), ("count_down", ()), ("consumed", ("f32[256,64]",)), ("jitted", ("bf16[512]",))],
)
def test_a_program_is_run_and_its_kernels_are_measured(
    model: Path, tmp_path: Path, function: str, arguments: tuple[str, ...]
) -> None:
    program = read_program(f"{model}:{function}", arguments)
    actual = capture(program, read_target("cpu"), tmp_path / "dump", runs=True)
    assert (actual.problem, actual.profile) == ("", tmp_path / "dump" / PROFILE)
    profile = read_profile(actual.profile)
    (facts,) = explain_dump(open_dump(actual.directory), Selection(profile=profile)).modules
    assert facts.find(Measured) is not None
    assert any(kernel.measured_us for kernel in facts.kernels)


@with_jax
def test_a_program_that_fails_when_it_runs_keeps_its_dump(model: Path, tmp_path: Path) -> None:
    program = read_program(f"{model}:failing", ())
    actual = capture(program, read_target("cpu"), tmp_path / "dump", runs=True)
    assert actual.problem.startswith("was compiled, and cannot be run: ")
    assert actual.profile is None and actual.compile_s is not None
    assert open_dump(actual.directory).modules


@with_jax
def test_where_memory_runs_out_the_command_for_it_is_named(tmp_path: Path) -> None:
    file = tmp_path / "large.py"
    file.write_text("import jax\ndef f(x):\n    return jax.numpy.broadcast_to(x, (1 << 42, 8)) + 1")
    program = read_program(f"{file}:f", ("f32[8]",))
    dump = tmp_path / "dump"
    actual = capture(program, read_target("cpu"), dump, runs=True)
    assert "RESOURCE_EXHAUSTED" in actual.problem
    assert f"bytes; `fusionscope explain {dump} --top 10` shows" in actual.problem


@pytest.mark.parametrize(
    ("words", "device", "expected"),
    [("model.py:step", "h100", "not present"), ("a.mlir", "cpu", "expected a function")],
)
def test_what_cannot_be_run_is_refused_at_once(
    tmp_path: Path, words: str, device: str, expected: str
) -> None:
    (tmp_path / words.partition(":")[0]).touch()
    program = read_program(str(tmp_path / words), ())
    with pytest.raises(UnusableInput, match=expected):
        capture(program, read_target(device), tmp_path / "dump", runs=True)
    assert not (tmp_path / "dump").exists()


# What the compiler looks up (xla/service/gpu/autotuning/autotune_cache_key.cc).
_DEVICE = (
    "CUDA: 9.0, Cores: 132, GPU clock: 1.98 GHz, Memory bandwidth: 3352 GB/s, L2 cache: 50 MB, "
    "DNN version: 9.10.0"
)
_PRODUCT = """{
  tmp_0 = bf16[512,256]{1,0} parameter(0)
  tmp_1 = bf16[256,1024]{1,0} parameter(1)
  ROOT tmp_2 = bf16[512,1024]{1,0} dot(bf16[512,256]{1,0} tmp_0, bf16[256,1024]{1,0} tmp_1), \
lhs_contracting_dims={1}, rhs_contracting_dims={0}
}"""


@pytest.mark.long
@with_jax
@with_cuda
@pytest.mark.parametrize(
    ("device", "choice", "expected"),
    [
        (
            _DEVICE,
            "triton { block_m: 32 block_n: 32 block_k: 32 num_stages: 4 num_warps: 4 num_ctas: 1}",
            "Triton",
        ),
        (_DEVICE, "gemm { algorithm: 0 }", "cuBLAS"),
        (_DEVICE.replace("132", "114"), "gemm { algorithm: 0 }", "for the same program, release"),
    ],
)
def test_results_of_a_card_are_loaded_or_the_compiler_stops(
    tmp_path: Path, device: str, choice: str, expected: str
) -> None:
    file = tmp_path / "model.py"
    file.write_text("def step(x, w):\n    return x @ w\n")
    results = tmp_path / "results.txtpb"
    settings = f"device: {json.dumps(device)} hlo: {json.dumps(_PRODUCT)}"
    results.write_text(f"version: 3 results {{ {settings} result {{ {choice} }} }}")
    actual = capture(
        read_program(f"{file}:step", ["bf16[512,256]", "bf16[256,1024]"]),
        read_target("h100"),
        tmp_path / "dump",
        flags=[
            f"--xla_gpu_load_autotune_results_from={results}",
            "--xla_gpu_use_new_autotune_cache_format=false",
        ],
    )
    if actual.problem:
        assert expected in actual.problem
        return
    (facts,) = explain_dump(open_dump(actual.directory)).modules
    (tuned,) = facts.find_all(Autotuned)
    assert (tuned.basis, tuned.choice) == ("loaded", expected)


def test_results_that_are_not_there_are_an_error(model: Path, tmp_path: Path) -> None:
    flags = ["--xla_gpu_load_autotune_results_from=nowhere.txt"]
    with pytest.raises(UnusableInput, match="no such file of autotuning results"):
        capture(read_program(f"{model}:step"), read_target("cpu"), tmp_path / "dump", flags=flags)
