"""Asks ptxas, the assembler of the CUDA toolkit, what kernels take of an NVIDIA GPU."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from fusionscope.errors import UnusableInput, shorten
from fusionscope.progress import Progress, silent
from fusionscope.system.files import write_file
from fusionscope.system.processes import run_child

_HINT = "the package nvidia-cuda-nvcc has a newer one, and PTXAS=FILE names one"
_LIMIT_S = 300.0  # for one file: a kernel of 4,000 operations took 3 s
_PLACES = ("nvidia/cu*/bin/ptxas", "nvidia/cuda_nvcc/bin/ptxas")  # in the packages of pip
_TARGET = re.compile(rb"^\s*\.target\s+(sm_\w+)", re.MULTILINE)
_ENTRY = re.compile(r"Compiling entry function '(?P<name>[^']+)' for '\w+'")
_SPILLS = re.compile(
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads"
)
_USED = re.compile(r"Used (?P<registers>\d+) registers(?P<rest>.*)")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True, slots=True)
class Assembled:
    """What a kernel takes: ``registers`` and bytes of ``spill_stores`` and ``spill_loads`` of each
    thread, counted once for each place in the code; ``shared_bytes`` that it declares itself.
    """

    registers: int
    spill_stores: int
    spill_loads: int
    shared_bytes: int


def find_ptxas() -> Path | None:
    """Return the ptxas of a package in this environment, on the path, or of a toolkit.

    ``PTXAS`` in the environment names another one.
    """
    packages = (
        file
        for directory in sys.path
        for place in _PLACES
        for file in sorted(Path(directory or ".").glob(place), reverse=True)
    )
    toolkit = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "bin" / "ptxas"
    named = [os.environ.get("PTXAS"), *packages, shutil.which("ptxas"), toolkit]
    return next((Path(each) for each in named if each and Path(each).is_file()), None)


def assemble(
    ptxas: Path, texts: Sequence[bytes], progress: Progress = silent
) -> tuple[dict[str, Assembled], list[str]]:
    """Return what the kernels in ``texts`` take, by their names, and one line on each text that
    ``ptxas`` does not accept. Raises ``UnusableInput`` if it cannot be run.
    """
    found: dict[str, Assembled] = {}
    problems: list[str] = []
    with TemporaryDirectory() as scratch, ThreadPoolExecutor(os.cpu_count()) as pool:
        files = [Path(scratch) / f"{number}.ptx" for number in range(len(texts))]
        runs = pool.map(lambda each: _assemble(ptxas, *each), zip(texts, files, strict=True))
        for number, (output, problem) in enumerate(runs, start=1):
            progress(f"ptxas: {number} of {len(texts)} files")
            found.update(_read(output))
            if problem is not None:
                problems.append(problem)
    return found, problems


def _assemble(ptxas: Path, text: bytes, file: Path) -> tuple[str, str | None]:
    target = _TARGET.search(text)
    if target is None:
        return "", "a PTX file of the dump names no .target"
    write_file(file, text)
    architecture = target[1].decode("ascii", errors="replace")
    command = [str(ptxas), "-v", f"-arch={architecture}", str(file), "-o", os.devnull]
    ended = run_child(command, None, _LIMIT_S)
    if ended.is_late:
        return ended.errors, f"ptxas took more than {_LIMIT_S:g} s for a PTX file of the dump"
    if ended.code:
        words = ended.errors.replace(str(file), "PTX").strip().splitlines() or ["no message"]
        return ended.errors, (
            f"{ptxas} does not accept a PTX file of the dump ({shorten(words[0])}); {_HINT}"
        )
    return ended.errors, None


def _read(output: str) -> Iterator[tuple[str, Assembled]]:
    """Yield the kernels in the output of ``ptxas -v``, each with its name."""
    name, spills = None, None
    for line in output.splitlines():
        if entry := _ENTRY.search(line):
            name, spills = entry["name"], None
        elif found := _SPILLS.search(line):
            spills = int(found["stores"]), int(found["loads"])
        elif (used := _USED.search(line)) and name is not None:
            shared = _SHARED.search(used["rest"])
            stores, loads = spills or (0, 0)
            yield (
                name,
                Assembled(int(used["registers"]), stores, loads, int(shared[1]) if shared else 0),
            )
            name = None


def version_of(ptxas: Path) -> str:
    """Return what tells this ptxas from others, without running it: its place, size and time.

    Raises ``UnusableInput`` if it cannot be looked up.
    """
    try:
        status = ptxas.stat()
    except OSError as error:
        raise UnusableInput(f"cannot be run: {error.strerror}", file=str(ptxas)) from None
    return f"{ptxas} {status.st_size} {status.st_mtime_ns}"
