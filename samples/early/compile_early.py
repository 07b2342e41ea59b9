"""Compiles HLO with XLA's GPU compiler of February 2023, that of TensorFlow 2.12, without a GPU.

    python samples/early/compile_early.py tensorflow-2.12.0-*.whl MODULE.txt a100 OUT [--sample]

MODULE.txt is a `before_optimizations.txt`(`.gz`), best of jaxlib 0.4.34 or 0.4.35: newer text has
words that this compiler does not know. Needs g++, and 3 GB beside the wheel for what is in it. OUT
gets the dump, the Fusion Explorer record, and the description of the GPU; as a sample, what the
others have, too.
"""

import argparse
import gzip
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import make  # of the samples

HERE = Path(__file__).resolve().parent
DEVICES = HERE.parent / "devices"
LIBRARIES = ("libtensorflow_cc.so.2", "libtensorflow_framework.so.2")
FLAGS = (
    "--xla_dump_hlo_as_text --xla_dump_hlo_as_proto --xla_dump_hlo_pass_re=.* "
    "--xla_gpu_autotune_level=0 --xla_dump_fusion_visualization"
)
# What this compiler reads of a description, and of the text of a module does not.
KNOWN = re.compile(
    r"\s*(threads_per_\w+|shared_memory_per_(block|core)|block_dim_limit_[xyz]|core_count"
    r"|fpus_per_core|memory_bandwidth|l2_cache_size|clock_rate_ghz|device_memory_size|major|minor"
    r"|platform_name|device_description_str):"
)
UNREADABLE = re.compile(
    r", (allow_spmd_sharding_propagation_to_(parameters|output)|frontend_attributes)=\{[^}]*\}"
    r"|, (num_partitions|replica_count)=\d+|, backend_config=\{\}"
)


def build(wheel: Path) -> Path:
    """The driver, beside what the wheel holds."""
    folder = wheel.with_name(f"{wheel.name}.d")
    driver = folder / "compile"
    if driver.exists():
        return driver
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    stub = folder / "stub" / "re2"  # which a header names and nothing here uses
    stub.mkdir(parents=True, exist_ok=True)
    (stub / "re2.h").write_text("namespace re2 { class RE2; } using re2::RE2;\n")
    root = folder / "tensorflow"
    command = ["g++", "-std=c++17", "-O1", "-w", f"-I{root / 'include'}", f"-I{stub.parent}"]
    command += [str(HERE / "compile.cc"), "-o", str(driver), f"-L{root}", f"-Wl,-rpath,{root}"]
    subprocess.run([*command, *(f"-l:{name}" for name in LIBRARIES)], check=True)
    return driver


def describe(card: str) -> str:
    """The description of a card, as this compiler reads it."""
    text = (DEVICES / f"{card}.txtpb").read_text()
    lines = {line.strip() for line in text.splitlines() if KNOWN.match(line)}
    inner = ("major:", "minor:")
    outer = ("platform_name:", "device_description_str:")
    capability = sorted({"minor: 0", *(line for line in lines if line.startswith(inner))})
    device = sorted(line for line in lines if not line.startswith(inner + outer))
    blocks = [
        "gpu_device_info {", *(f"  {line}" for line in device), "}",
        "cuda_compute_capability {", *(f"  {line}" for line in capability), "}",
        *sorted(line for line in lines if line.startswith(outer)),
    ]  # fmt: skip
    return "\n".join(blocks) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("module", type=Path)
    parser.add_argument("card", help="a100 or h100")
    parser.add_argument("out", type=Path)
    parser.add_argument("--sample", action="store_true", help="keep what samples/dumps keeps")
    options = parser.parse_args()

    driver = build(options.wheel.resolve())
    content = options.module.read_bytes()
    text = (gzip.decompress(content) if options.module.suffix == ".gz" else content).decode()
    text = UNREADABLE.sub("", text).replace("API_VERSION_TYPED_FFI", "API_VERSION_STATUS_RETURNING")
    description = describe(options.card)
    version = ".".join(re.findall(r"(?:major|minor): (\d+)", description))
    with tempfile.TemporaryDirectory() as work:
        out = Path(work) / "dump" if options.sample else options.out
        out.mkdir(parents=True, exist_ok=True)
        module, device = Path(work) / "module.txt", Path(work) / "device.txtpb"
        module.write_text(text)
        device.write_text(description)
        environment = {
            "XLA_FLAGS": f"--xla_dump_to={out.resolve()} {FLAGS}",
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "TF_ENABLE_ONEDNN_OPTS": "0",
            "FINAL": f"sm_{version}_gpu_after_optimizations",
        }
        done = subprocess.run([driver, module, device], env=os.environ | environment)
        if done.returncode:
            sys.exit(f"{options.module} was not compiled")
        (first,) = out.glob("*.before_optimizations.txt")
        name = first.name.removesuffix("before_optimizations.txt")
        (out / f"{name}gpu_target_config.pbtxt").write_text(description)
        if options.sample:
            options.out.mkdir(parents=True, exist_ok=True)
            for file in sorted(out.iterdir()):
                if make.KEPT.fullmatch(file.name) and not make.NOT_HLO.search(file.name):
                    make.store(file, options.out)


if __name__ == "__main__":
    main()
