"""Keeps the tiles that the real compiler logs of the kernels in ``tile_records/``, for the tests.

    python tools/conformance/tile_records.py --python PATH [--check]

``PATH`` is a Python that has jax 0.12 and its plugin for CUDA; no GPU is needed. Each module of
``kernels.hlo`` ends in a kernel for Triton that was given its tiles. ``kernels.txt`` has, for each
instruction that is computed in it or in its first operand, the tiles that the compiler gave it with
those, as it wrote them. With ``--check`` it is compared with what the compiler logs instead of
written.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from pathlib import Path
from unittest import mock

DIRECTORY = Path(__file__).resolve().parents[2] / "tests" / "rules" / "tile_records"
_MODULE = re.compile(r"^HloModule ([\w.\-]+)", re.MULTILINE)
_GIVEN = re.compile(r'"output_tiles":\[\{"sizes":\[([^\]]*)\]')
_ROOT = re.compile(r"^  ROOT ([\w.]+) = ", re.MULTILINE)
_LOGGED = re.compile(
    r" (\d+) tile_propagation\.cc:\d+\] PropagateTileToInput:\n  hlo: %([\w.\-]+) = .*\n"
    r"  output_tile: \(.*?\) -> (.*)\n"
)


def read_modules() -> dict[str, str]:
    text = (DIRECTORY / "kernels.hlo").read_text(encoding="utf-8")
    starts = list(_MODULE.finditer(text))
    ends = [start.start() for start in starts[1:]] + [len(text)]
    return {start[1]: text[start.start() : end] for start, end in zip(starts, ends, strict=True)}


def read_tiles() -> dict[str, list[str]]:
    """The lines that were recorded of each module."""
    found = {}
    for part in (DIRECTORY / "kernels.txt").read_text(encoding="utf-8").split("# ")[1:]:
        name, *lines = part.strip().splitlines()
        found[name] = lines
    return found


def given_tiles(text: str) -> list[int]:
    found = _GIVEN.search(text)
    assert found is not None
    return [int(each.strip('"')) for each in found[1].split(",")]


def logged_tiles(text: str, log: str) -> list[str]:
    """What the log says of the tiling that a kernel was given. The root comes first in each."""
    root = _ROOT.search(text)
    assert root is not None
    sizes = f" sizes {given_tiles(text)} strides "
    is_given: defaultdict[str, bool] = defaultdict(bool)
    found = set()
    for thread, name, tile in _LOGGED.findall(log):
        if name == root[1]:
            is_given[thread] = sizes in tile
        if is_given[thread] and "." not in name:  # no copy, in what is fused already
            found.add(f"{name}: {tile}")
    return sorted(found)


def record(python: str, text: str) -> list[str]:
    import gpu_compiling

    logs = {"TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_VMODULE": "tile_propagation=1"}
    with mock.patch.object(gpu_compiling, "_LOGS", logs):
        log = gpu_compiling.log_of(python, "priority-fusion", text)
    return logged_tiles(text, log)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", required=True, metavar="PATH")
    parser.add_argument("--check", action="store_true", help="compare and do not write")
    options = parser.parse_args()
    lines = []
    for name, text in read_modules().items():
        lines += [f"# {name}", *record(options.python, text)]
    file = DIRECTORY / "kernels.txt"
    written = "\n".join(lines) + "\n"
    same = file.is_file() and file.read_text(encoding="utf-8") == written
    print(f"{len(lines)} lines{'' if same else ', others'}")
    if not options.check:
        file.write_text(written, encoding="utf-8")
    sys.exit(options.check and not same)


if __name__ == "__main__":
    main()
