"""Compiles the programs of ``programs.py`` for an H100 into texts of their final modules.

    python make_examples.py [FOLDER]

Paths of files are shortened, and names for the schedule and code of kernels left out.
"""

from __future__ import annotations

import gzip
import os
import re
import sys
from dataclasses import asdict
from pathlib import Path

os.environ |= {
    "JAX_PLATFORMS": "cpu",
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
    "XLA_FLAGS": "--xla_gpu_autotune_level=0",
}

import jax
from jax.sharding import SingleDeviceSharding

from fusionscope.capture.child import find_devices
from fusionscope.capture.targets import read_target

sys.path.insert(0, str(Path(__file__).parent))
from programs import EXAMPLES

_NAMES = re.compile(r' scheduling_name="[^"]*"')
_CODE = re.compile(r'(?<= ir = ")(?:[^"\\]|\\.)*(?=")')  # of a kernel by Triton
_FOLDERS = re.compile(r'(?<=")/[^"]*/(?=site-packages/|[\w.]+")')


def main(folder: Path, examples=EXAMPLES) -> None:
    target = read_target("h100")
    (device,) = find_devices({**asdict(target), "is_here": target.is_here}, 1)
    sharding = SingleDeviceSharding(device)
    for name, (function, arguments, donated) in examples.items():
        with jax.enable_x64("double" in name):
            step = jax.jit(
                function, donate_argnums=donated, in_shardings=sharding, out_shardings=sharding
            )
            text = step.lower(*arguments).compile().as_text()
        content = _FOLDERS.sub("", _CODE.sub("", _NAMES.sub("", text)))
        path = folder / f"{name}.txt.gz"
        path.write_bytes(gzip.compress(content.encode(), mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parent)
