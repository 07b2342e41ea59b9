"""Regenerates every dump under samples/dumps, each in a child process of the right interpreter.

    python samples/make.py --python 0.12=PATH --python 0.12-rocm=PATH --python 0.11=PATH
        --python 0.10=PATH --python 0.4.35=PATH --python 0.4.34=PATH [--only GLOB]

An interpreter needs jax of that version, with the CUDA plugin, and for the TPU ones also libtpu;
0.12-rocm needs the ROCm plugin, and the libraries that this is linked with. Those of 0.4 need
Python 3.11, numpy before 2 and nvidia-cuda-nvcc-cu12 before 12.7.
Only what a reader of dumps needs is kept, and no path of this machine remains in it.
"""

import argparse
import fnmatch
import gzip
import io
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

SAMPLES = Path(__file__).resolve().parent
# About library calls on a GPU, and the passes of older compilers: compiled for nothing else.
GPU_PROGRAMS = ("libraries", "projections", "updates")
OLDER_PASSES = ("--xla_gpu_enable_priority_fusion=false",)
PROGRAMS = tuple(
    sorted({path.stem for path in (SAMPLES / "programs").glob("*.py")} - {*GPU_PROGRAMS})
)
LARGE = 6 * 1024  # bytes; a larger text file is stored compressed

# Of the protos, the module that priority fusion reads and the one it makes: only they have the
# unique ids which order its queue.
KEPT = re.compile(
    r".*(after|before)_.*\.txt"
    r"|.*\.(priority_fusion_dump\.txt|thunk_sequence\.txt|gpu_target_config\.pbtxt"
    r"|target_arguments\.txt|debug_options|metadata\.textproto|_fusion\.pyz|_fusion\.html)"
    r"|.*\.fusion\.after_(pipeline-start|variadic-op-splitter|priority-fusion)\..*\.hlo\.pb"
)
SKIPPED = "-buffer-assignment-values.txt"  # repeats the instructions
BINARY = {".pb", ".pyz", ".o"}


@dataclass(frozen=True, slots=True)
class Batch:
    """Programs compiled for one target: `recorded` ones get a Fusion Explorer record too."""

    folder: str
    version: str
    target: str
    programs: tuple[str, ...]
    recorded: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()  # these keep the files that a reader has to skip
    flags: tuple[str, ...] = ()
    source: str = "programs"  # where the programs lie


BATCHES = (
    Batch("cpu", "0.12", "cpu", PROGRAMS, ("concatenate", "reductions"), ("dense",)),
    Batch(
        "h100",
        "0.12",
        "h100",
        (*PROGRAMS, "libraries"),
        ("concatenate", "reductions"),
        ("dense",),
    ),
    Batch("a100", "0.12", "a100", ("attention", "convolution", "dense", "reductions")),
    Batch("b200", "0.12", "b200", ("dense",)),
    Batch("h200", "0.12", "h200", ("concatenate", "elementwise")),
    Batch("rtx6000pro", "0.12", "rtx6000pro", ("concatenate",)),
    Batch("mi300x", "0.12-rocm", "mi300x", ("concatenate",)),
    Batch(
        "h100-without-multi-output-fusion",
        "0.12",
        "h100",
        ("reductions",),
        flags=("--xla_disable_hlo_passes=multi_output_fusion",),
    ),
    Batch(
        "h100-without-triton-gemm",
        "0.12",
        "h100",
        ("projections",),
        flags=("--xla_gpu_enable_triton_gemm=false",),
    ),
    Batch(
        "h100-without-triton-softmax",
        "0.12",
        "h100",
        ("softmax",),
        flags=("--xla_disable_hlo_passes=triton-softmax-rewriter",),
    ),
    Batch("tpu-v5e", "0.12", "tpu", ("attention", "concatenate", "softmax"), ("concatenate",)),
    Batch("cpu-jaxlib-0.10", "0.10", "cpu", ("concatenate", "softmax"), ("concatenate",)),
    Batch(
        "cpu-multi-output",
        "0.12",
        "cpu",
        ("cartpole", "reductions"),
        ("reductions",),
        flags=("--xla_backend_extra_options=xla_cpu_use_multi_output_fusion",),
    ),
    Batch(
        "cpu-without-fusion",
        "0.12",
        "cpu",
        ("elementwise",),
        flags=("--xla_disable_hlo_passes=fusion",),
    ),
    Batch(
        "cpu-elementwise-library",
        "0.12",
        "cpu",
        ("attention",),
        flags=(
            "--xla_cpu_experimental_ynn_fusion_type=LIBRARY_FUSION_TYPE_DOT,"
            "LIBRARY_FUSION_TYPE_ELTWISE,LIBRARY_FUSION_TYPE_REDUCE",
        ),
    ),
    Batch(
        "h100-jaxlib-0.10", "0.10", "h100", ("concatenate", "dense", "softmax"), ("concatenate",)
    ),
    Batch("h100-jaxlib-0.11", "0.11", "h100", ("dense",)),
    Batch(
        "a100-jaxlib-0.4.35",
        "0.4.35",
        "a100",
        ("cartpole", "reductions", "updates"),
        ("cartpole", "updates"),
        flags=OLDER_PASSES,
    ),
    Batch(
        "a100-jaxlib-0.4.35",
        "0.4.35",
        "a100",
        ("library_random",),
        ("library_random",),
        flags=OLDER_PASSES,
        source="cartpole",
    ),
    Batch("h100-jaxlib-0.4.34", "0.4.34", "h100", ("updates",), ("updates",), flags=OLDER_PASSES),
)


def compiled(python: str, program: str, batch: Batch, work: Path, record: bool) -> Path:
    """The directory of one dump. Its path is relative in the dump: XLA writes it into its files."""
    name = "record" if record else "dump"
    command = [python, str(SAMPLES / "compile.py"), str(SAMPLES / batch.source / f"{program}.py")]
    command += [batch.target, name] + (["--record"] if record else [])
    command += [f"--flag={flag}" for flag in batch.flags]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{program} for {batch.folder} did not compile:\n{done.stderr}")
    return work / name


def without_viewer(name: str, content: bytes) -> bytes:
    """A Fusion Explorer record without the program that shows it: the decisions alone."""
    if name.endswith("_fusion.pyz"):
        database = zipfile.ZipFile(io.BytesIO(content)).read("fusions.db")
        stripped = io.BytesIO()
        with zipfile.ZipFile(stripped, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(zipfile.ZipInfo("fusions.db"), database, zipfile.ZIP_DEFLATED)
        return stripped.getvalue()
    if name.endswith("_fusion.html"):
        frames = re.search(rb"const frames\s*=.*", content)
        assert frames is not None, f"{name} holds no frames"
        return b"<script>\n" + frames[0] + b"\n</script>\n"
    return content


def store(source: Path, directory: Path) -> None:
    """Copies one file of a dump, without this machine's paths, and compressed when it is large."""
    content = without_viewer(source.name, source.read_bytes())
    if source.suffix not in BINARY:
        content = re.sub(rb'[^\s"]*/site-packages/', b"", content)
    target = directory / source.name
    if source.suffix in {".txt", ".textproto"} and len(content) > LARGE:
        target = target.with_name(f"{target.name}.gz")
        content = gzip.compress(content, mtime=0)
    target.write_bytes(content)


def make(batch: Batch, program: str, python: str, dumps: Path = SAMPLES / "dumps") -> None:
    with tempfile.TemporaryDirectory() as folder:
        dump = compiled(python, program, batch, Path(folder), record=False)
        if program in batch.recorded:
            record = compiled(python, program, batch, Path(folder), record=True)
            for path in record.glob("*._fusion.*"):
                shutil.move(path, dump)
        directory = dumps / batch.folder / program
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        for path in sorted(dump.iterdir()):
            kept = KEPT.fullmatch(path.name) and not path.name.endswith(SKIPPED)
            if kept or (program in batch.whole and path.is_file() and path.suffix != ".pb"):
                store(path, directory)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", action="append", default=[], metavar="VERSION=PATH")
    parser.add_argument("--only", default="*", metavar="GLOB", help="such as 'h100/*'")
    options = parser.parse_args()
    pythons = dict(entry.split("=", 1) for entry in options.python)

    for batch in BATCHES:
        for program in batch.programs:
            name = f"{batch.folder}/{program}"
            if not fnmatch.fnmatch(name, options.only):
                continue
            if batch.version not in pythons:
                print(f"{name}: skipped, no --python {batch.version}=PATH", file=sys.stderr)
                continue
            make(batch, program, pythons[batch.version])
            print(name)


if __name__ == "__main__":
    main()
