"""``fusionscope report --bundle``: a zip for a bug report, in which nothing is the user's own."""

import base64
import gzip
import io
import re
import tempfile
import zipfile
from pathlib import Path

import pytest
from sample_dumps import CPU, DUMPS, GPU, TPU, unpacked, write

from fusionscope.bundle.names import is_plain

pytestmark = pytest.mark.slow

# In texts of a dump of three lines of JAX: what compilers write there of a user's program.
PLANTED = {
    "samples/programs/concatenate.py": "/home/secret_user/secret_project/model.py",
    "compile.py": "C:\\\\Users\\\\secret_user\\\\run.py",
    "compile_program": "secret_caller",
    "jit(program)": "jit(secret_function)/secret_scope",
    'op_name="right"': 'op_name="secret_argument"',
    "jit_program": "jit_secret_module",
    "tanh.1": "secret_layer.1",
    "main.2": "secret_main.2",
    "fused_concatenate": "secret_fused_concatenate",
    "constant(3)": "constant(31415926)",
    "constant(2)": "constant(2.7182818)",
    "mesh['x'=1]": "mesh['secret_axis'=1]",
    "fingerprint_before_lhs": "secret_attribute",
    "the consumer is not fusible": "secret_layer.1.0 is not fusible",
}
FLAGS = r"""
xla_dump_to: "/home/secret_user/dump"
xla_gpu_cuda_data_dir: "/opt/secret_cuda"
xla_disable_hlo_passes: "secret-pass"
xla_gpu_cuda_data_dir: "SECRET_TOKEN=hunter2 /home/secret_user"
xla_backend_extra_options {
  key: "secret_key"
  value: "secret_value"
}
"""
SECRETS = re.compile(
    rb"secret|31415926|2\.7182818|hunter2|/home|\\Users|/opt/|mesh|(?:model|run)\.py", re.I
)
HLO = """HloModule jit_secret, frontend_attributes={secret="secret"}

secret_region {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT secret_sum = f32[] add(a, b) /* secret */
}, execution_thread="secret"

ENTRY secret_main (secret_x: f32[4]) -> (f32[4], f32[]) {
  secret_x = f32[4]{0} parameter(0), metadata={op_name="secret" source_file="/home/secret.py"}
  weights = f32[4]{0} constant({3.1415926, 2.7182818, 0, 1})
  call = f32[4]{0} custom-call(secret_x), custom_call_target="secret_kernel",
    backend_config="secret", api_version=API_VERSION_TYPED_FFI
  call.2 = f32[4]{0} custom-call(call), custom_call_target="secret_kernel",
    backend_config={"secret_name": "secret", "steps": "5"}, frontend_attributes={secret="1"}
  kernel = f32[4]{0} custom-call(call.2), custom_call_target="triton_kernel_call",
    backend_config={"name": "SECRET_KERNEL"}
  gemm = f32[4]{0} custom-call(kernel), custom_call_target="__cublas$gemm",
    backend_config={"gemm_backend_config": {"epilogue": "BIAS", "note": "a secret"}}
  opaque = f32[4]{0} custom-call(gemm), custom_call_target="__cudnn$norm", backend_config="SECRET"
  product = f32[4]{0} multiply(opaque, weights), sharding={mesh['secret'=1], [{}]},
    origin={secret}
  zero = f32[] constant(0)
  large = f32[] constant(31415926)
  sum = f32[] reduce(product, zero), dimensions={0}, to_apply=secret_region,
    control-predecessors={secret_x}
  ROOT result = (f32[4]{0}, /*secret*/f32[]) tuple(product, sum)
}
"""


def planted(dump: Path, into: Path) -> Path:
    files = unpacked(dump)
    for name, content in list(files.items()):
        if name.endswith(".txt") and not name.startswith("notes"):
            text = content.decode()
            for word, secret in PLANTED.items():
                text = text.replace(word, secret)
            files[name] = text.encode()
        elif name.endswith("debug_options"):
            files[name] = content + FLAGS.encode()
        elif name.endswith(".hlo.pb"):
            del files[name]
    files["notes.txt"] = b"secret notes"
    return write(
        into, {name.replace("jit_program", "jit_secret_module"): c for name, c in files.items()}
    )


def contents(file: Path) -> dict[str, bytes]:
    """The files of a bundle; the data of its page is packed, and is unpacked too."""
    with zipfile.ZipFile(file) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    (packed,) = re.findall(rb'id="data">([\w+/=]+)<', files["report.html"])
    return {**files, "report.json": gzip.decompress(base64.b64decode(packed))}


@pytest.mark.main
def test_no_planted_secret_is_in_a_bundle(run_command, tmp_path):
    dump = planted(GPU, tmp_path / "secret_dump")
    before = b"".join(file.read_bytes() for file in dump.iterdir())
    for secret in (*PLANTED.values(), "hunter2", "secret_key"):
        assert secret.encode() in before, secret
    screen = run_command("explain", dump, "--no-try").out
    assert "secret_layer" in screen and "model.py" in screen  # a bundle could have had them
    output = run_command("report", dump, "--bundle", tmp_path / "b.zip")
    assert output.code == 0 and output.errors == ""
    files = contents(tmp_path / "b.zip")
    for name, content in files.items():
        for text in (name.encode(), content):
            match = SECRETS.search(text)
            assert match is None, (name, text[max(match.start() - 80, 0) : match.end() + 80])
            for place in (tmp_path, Path.home(), Path(tempfile.gettempdir())):
                assert str(place).encode() not in text, (name, place)
    assert not SECRETS.search((tmp_path / "b.zip").read_bytes())
    assert b"input_concatenate_fusion" in files["report.json"]  # it can be searched
    assert "x metadata" in output.out and "x value of a flag" in output.out
    for name in files.keys() - {"report.json"}:
        assert f"  {name.partition('/')[0]}" in output.out


def test_no_secret_of_a_single_file_is_in_a_bundle(run_command, tmp_path):
    (tmp_path / "secret.hlo").write_text(HLO)
    assert run_command("report", tmp_path / "secret.hlo", "--bundle", tmp_path / "b.zip").code == 0
    files = contents(tmp_path / "b.zip")
    for name, content in files.items():
        match = SECRETS.search(content)
        assert match is None, (name, content[max(match.start() - 80, 0) : match.end() + 80])
    text = files["before.hlo"].decode()
    assert 'custom_call_target="custom_call_target_1"' in text and "{...}" in text
    assert text.count("custom_call_target_1") == 2  # the same for both
    assert '"steps": "5"' not in text  # of a call that no library has
    assert '"epilogue": "BIAS"' in text and "=null" not in text


@pytest.mark.parametrize(
    "dump",
    [GPU, CPU, TPU, DUMPS / "h100/libraries", DUMPS / "a100-xla-2023/updates", DUMPS / "cpu/loop"],
    ids=lambda dump: f"{dump.parent.name}/{dump.name}",
)
def test_the_dump_in_a_bundle_shows_the_same(run_command, tmp_path, dump):
    run_command("report", dump, "--bundle", tmp_path / "b.zip")
    with zipfile.ZipFile(tmp_path / "b.zip") as archive:
        archive.extractall(tmp_path / "unpacked")
    figures = [
        re.findall(r"(?:about|least) .*moved|\d+ launches.*moved|rules .* plans\)", output.out)
        for output in (
            run_command("explain", folder, "--no-try")
            for folder in (dump, tmp_path / "unpacked/dump")
        )
    ]
    assert figures[0] and figures[0] == figures[1]


def test_a_bundle_is_the_same_each_time(run_command, tmp_path):
    for name in ("a.zip", "b.zip"):
        run_command("report", CPU, "--bundle", tmp_path / name)
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_links_out_of_a_dump_are_not_followed(run_command, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text(HLO)
    dump = write(tmp_path / "dump", unpacked(CPU))
    (dump / "module_0000.jit_program.0099.late.after_a.before_b.txt").symlink_to(secret)
    refused = run_command("report", dump, "--bundle", tmp_path / "b.zip")
    refused.check_refused("a link that leaves")
    assert not (tmp_path / "b.zip").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([CPU, CPU, "--bundle", "b.zip"], "one dump"),
        ([CPU, "--bundle", "b.zip", "--module", "nothing"], "nothing"),
        (["missing", "--bundle", "b.zip"], "missing"),
    ],
)
def test_what_cannot_be_bundled_is_said(run_command, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    run_command("report", *words).check_refused(message)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["tanh.1", "loop_add_fusion.3", "param_0.1", "fused_computation"])
def test_names_that_compilers_make_are_kept(name):
    assert is_plain(name)


@pytest.mark.parametrize(
    "name", ["secret.1", "tanh_secret", "loop_Add_fusion", "op_add.1", "s3cret"]
)
def test_other_names_are_not(name):
    assert not is_plain(name)


@pytest.mark.compiler
def test_the_reproducer_makes_the_same_kernels(run_command, tmp_path):
    """The compiler makes of the program without names what it made of the program."""
    run_command("report", GPU, "--bundle", tmp_path / "b.zip")
    with zipfile.ZipFile(io.BytesIO((tmp_path / "b.zip").read_bytes())) as archive:
        archive.extractall(tmp_path)
    script = (tmp_path / "reproduce.sh").read_text()
    (line,) = (line for line in script.splitlines() if line.startswith("fusionscope capture"))
    words = line.split()[2:]
    paths = {"before.hlo", "device.txtpb", "reproduced"}
    words = [str(tmp_path / word) if word in paths else word for word in words]
    assert run_command("capture", *words).code == 0
    output = run_command("diff", tmp_path / "dump", tmp_path / "reproduced")
    assert "launches 5 → 5, bytes moved 7.34 MB → 7.34 MB" in output.out
    assert "100% of instructions matched" in output.out
