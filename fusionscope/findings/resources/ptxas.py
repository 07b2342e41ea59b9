"""Asks ptxas, the assembler of the CUDA toolkit, what kernels take of an NVIDIA GPU."""

from __future__ import annotations

import hashlib
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
from fusionscope.system.cache import Cache
from fusionscope.system.files import write_file
from fusionscope.system.processes import run_child

_HINT = "the package nvidia-cuda-nvcc has a newer one, and PTXAS=FILE names one"
_LIMIT_S = 120.0  # for one file: a kernel of 1,681 operations, unrolled four times, took 8 s
_PLACES = ("nvidia/cu*/bin/ptxas", "nvidia/cuda_nvcc/bin/ptxas")  # in the packages of pip
_TARGET = re.compile(rb"^\s*\.target\s+(sm_\w+)", re.MULTILINE)
_ENTRY = re.compile(r"Compiling entry function '(?P<name>[^']+)' for '\w+'")
_SPILLS = re.compile(
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads"
)
_USED = re.compile(r"Used (?P<registers>\d+) registers(?P<rest>.*)")
_SHARED = re.compile(r"(\d+) bytes smem")
_TOOK = re.compile(r"Compile time = (?P<milliseconds>\d+\.?\d*) ms")


@dataclass(frozen=True, slots=True)
class Assembled:
    """What a kernel takes: ``registers`` and bytes of ``spill_stores`` and ``spill_loads`` of each
    thread, counted once for each place in the code; ``shared_bytes`` that it declares itself.
    ``milliseconds`` is how long ptxas took for it, None if that does not say.
    """

    registers: int
    spill_stores: int
    spill_loads: int
    shared_bytes: int
    milliseconds: float | None = None


@dataclass(frozen=True, slots=True)
class _Answer:
    """What ptxas says of one text: its kernels by name. ``problem`` is empty if it accepted it."""

    kernels: dict[str, Assembled]
    problem: str = ""
    is_late: bool = False


def find_ptxas() -> Path | None:
    """Return the ptxas of a package in this environment, on the path, or of a toolkit.

    ``PTXAS`` in the environment names another one. Raises ``UnusableInput`` if that is no file.
    """
    from_environment = os.environ.get("PTXAS")
    if from_environment:
        if not Path(from_environment).is_file():
            raise UnusableInput(
                "the environment variable PTXAS is set to this path, which is not a file",
                file=from_environment,
            )
        return Path(from_environment)
    packages = (
        file
        for directory in sys.path
        for place in _PLACES
        for file in sorted(Path(directory or ".").glob(place), reverse=True)
    )
    toolkit = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "bin" / "ptxas"
    candidates = [*packages, shutil.which("ptxas"), toolkit]
    return next(
        (Path(candidate) for candidate in candidates if candidate and Path(candidate).is_file()),
        None,
    )


def assemble(
    ptxas: Path,
    texts: Sequence[bytes],
    *,
    flags: Sequence[str] = (),
    cache: Cache | None = None,
    progress: Progress = silent,
) -> tuple[dict[str, Assembled], list[str]]:
    """Return what the kernels in ``texts`` take, by their names, and one line on each text that
    ``ptxas`` does not accept with ``flags``. Answers for a text are looked up in ``cache``.

    If the first answers are late, the other texts are left out. Raises ``UnusableInput`` if ptxas
    cannot be run.
    """
    kernels: dict[str, Assembled] = {}
    problems: list[str] = []
    version = version_of(ptxas)
    with TemporaryDirectory() as scratch, ThreadPoolExecutor(os.cpu_count()) as pool:

        def ask(number: int) -> _Answer:
            file = Path(scratch) / f"{number}.ptx"
            if cache is None:
                return _assemble(ptxas, texts[number], flags, file)
            key = repr(("ptxas 2", version, tuple(flags))).encode("utf-8", "surrogatepass")
            name = hashlib.sha256(key + b"\0" + texts[number]).hexdigest()
            cached = _decoded(cache.read(name))
            answer = cached or _assemble(ptxas, texts[number], flags, file)
            if cached is None and not answer.problem:
                _keep(cache, name, answer)
            return answer

        for number, answer in enumerate(pool.map(ask, range(len(texts))), start=1):
            progress(f"ptxas: {number} of {len(texts)} files")
            kernels.update(answer.kernels)
            if answer.problem:
                problems.append(answer.problem)
            if answer.is_late and not kernels:
                pool.shutdown(wait=False, cancel_futures=True)
                break
    return kernels, problems


def _decoded(content: bytes | None) -> _Answer | None:
    import msgspec

    if content is None:
        return None
    try:
        return msgspec.msgpack.decode(content, type=_Answer)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None


def _keep(cache: Cache, name: str, answer: _Answer) -> None:
    import msgspec

    cache.write(name, msgspec.msgpack.encode(answer))


def _assemble(ptxas: Path, text: bytes, flags: Sequence[str], file: Path) -> _Answer:
    target = _TARGET.search(text)
    if target is None:
        return _Answer({}, "a PTX file of the dump names no .target")
    write_file(file, text)
    architecture = target[1].decode("ascii", errors="replace")
    command = [str(ptxas), "-v", f"-arch={architecture}", *flags, str(file), "-o", os.devnull]
    ended = run_child(command, None, _LIMIT_S)
    kernels = dict(_read(ended.errors))
    if ended.is_late:
        late = f"{ptxas} took more than {_LIMIT_S:g} s for a PTX file of the dump"
        return _Answer(kernels, late, is_late=True)
    if ended.code:
        words = ended.errors.replace(str(file), "PTX").strip().splitlines() or ["no message"]
        refusal = f"{ptxas} does not accept a PTX file of the dump ({shorten(words[0])}); {_HINT}"
        return _Answer(kernels, refusal)
    return _Answer(kernels)


def _read(output: str) -> Iterator[tuple[str, Assembled]]:
    """Yield the kernels in the output of ``ptxas -v``, each with its name."""
    entries = list(_ENTRY.finditer(output))
    begins = [entry.start() for entry in entries]
    for entry, end in zip(entries, [*begins, len(output)][1:], strict=True):
        match = _USED.search(output, entry.end(), end)
        if match is None:
            continue
        stores, loads = 0, 0
        for spills in _SPILLS.finditer(output, entry.end(), match.start()):
            stores, loads = int(spills["stores"]), int(spills["loads"])
        shared = _SHARED.search(match["rest"])
        took = _TOOK.search(output, match.end(), end)
        yield (
            entry["name"],
            Assembled(
                registers=int(match["registers"]),
                spill_stores=stores,
                spill_loads=loads,
                shared_bytes=int(shared[1]) if shared else 0,
                milliseconds=float(took["milliseconds"]) if took else None,
            ),
        )


def version_of(ptxas: Path) -> str:
    """Return what tells this ptxas from others, without running it: its place, size and time.

    Raises ``UnusableInput`` if it cannot be looked up.
    """
    try:
        status = ptxas.stat()
    except OSError as error:
        raise UnusableInput(f"cannot be run: {error.strerror}", file=str(ptxas)) from None
    return f"{ptxas} {status.st_size} {status.st_mtime_ns}"
