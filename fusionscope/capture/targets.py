"""Parses what a command line names: the program, its arguments and the target. Needs no jax."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from fusionscope.capture.description import describe_target
from fusionscope.dump.device import (
    CudaCapability,
    Device,
    RocmCapability,
    find_device,
    known_device,
)
from fusionscope.errors import UnusableInput, quoted
from fusionscope.system.files import read_file, read_text, why_unreadable

_ARGUMENT = re.compile(r"([a-z]\w*)\[([\d,\s]*)\]")
_SIZE = re.compile(r"\d{1,18}")
_PARTITIONS = re.compile(rb"num_partitions\s*=\s*(\d{1,9})(?!\d)")
_FUNCTION = re.compile(r"(.+):([A-Za-z_][\w.]*)")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_DEFAULT_TOPOLOGY = "v5e:1x1"


class ProgramKind(Enum):
    """What a program is written in. All but functions are files."""

    FUNCTION = "function"
    STABLEHLO = "stablehlo"
    HLO = "hlo"
    HLO_PROTO = "hlo-proto"


_SUFFIXES = {
    ".mlir": ProgramKind.STABLEHLO,
    ".mlirbc": ProgramKind.STABLEHLO,
    ".stablehlo": ProgramKind.STABLEHLO,
    ".hlo": ProgramKind.HLO,
    ".txt": ProgramKind.HLO,
    ".pb": ProgramKind.HLO_PROTO,
}


@dataclass(frozen=True, slots=True)
class Argument:
    """An array: the name of its element type as in HLO, and its dimensions in elements."""

    dtype: str
    dimensions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What is compiled: the function ``name`` of ``module`` or ``file``, or a ``file`` of another
    kind.

    ``arguments`` is None if the program has arguments of its own. ``partitions`` is the number of
    devices that it runs on.
    """

    kind: ProgramKind
    file: Path | None = None
    module: str | None = None
    name: str = ""
    arguments: tuple[Argument, ...] | None = None
    partitions: int = 1


@dataclass(frozen=True, slots=True)
class Target:
    """What a program is compiled for.

    ``description`` is XLA's text about a GPU, and ``topology`` names TPUs, such as ``v5e:1x1``:
    neither need be present. With none of the two, it is a device of this machine.
    """

    name: str
    platform: str
    description: str | None = None
    topology: str | None = None

    @property
    def is_here(self) -> bool:
        """Whether it is a device of this machine."""
        return self.description is None and self.topology is None


def read_program(words: str, arguments: Sequence[str] = (), *, folder: Path = Path()) -> Program:
    """Parse ``package.module:function``, ``file.py:function`` or the name of a file in ``folder``.

    ``arguments`` are shapes such as ``f32[128,256]``. Raises ``UnusableInput`` if ``words`` or an
    argument has another form, if the file cannot be read, or if a file is given arguments.
    """
    shapes = tuple(map(_read_argument, arguments)) or None
    if match := _FUNCTION.fullmatch(words):
        place, name = match.groups()
        if place.endswith(".py"):
            file = _readable(folder / place)
            return Program(kind=ProgramKind.FUNCTION, file=file, name=name, arguments=shapes)
        if _MODULE.fullmatch(place):
            return Program(kind=ProgramKind.FUNCTION, module=place, name=name, arguments=shapes)
    path = folder / words
    kind = _SUFFIXES.get(path.suffix)
    if kind is None:
        raise UnusableInput(
            f"{quoted(words)} is not a program, expected package.module:function, "
            "file.py:function, or a file of StableHLO (.mlir) or HLO (.hlo, .txt, .pb)"
        )
    if shapes is not None:
        raise UnusableInput(f"{path.name} has arguments of its own, --arg is for functions")
    head = read_file(_readable(path))[:10_000]
    partitions = _PARTITIONS.search(head)
    return Program(kind=kind, file=path, partitions=int(partitions[1]) if partitions else 1)


def _readable(path: Path) -> Path:
    """Return ``path``. Raises ``UnusableInput`` if no file there can be read."""
    if problem := why_unreadable(path):
        raise UnusableInput(problem, file=str(path))
    return path


def _read_argument(words: str) -> Argument:
    match = _ARGUMENT.fullmatch(words.strip())
    if match is None:
        raise UnusableInput(f"--arg {quoted(words)}: expected a shape such as f32[128,256]")
    sizes = [size.strip() for size in match[2].split(",")] if match[2].strip() else []
    if not all(sizes):
        raise UnusableInput(f"--arg {quoted(words)}: a dimension has no size")
    if wrong := next((size for size in sizes if _SIZE.fullmatch(size) is None), None):
        raise UnusableInput(f"--arg {quoted(words)}: {quoted(wrong)} is no size")
    return Argument(match[1], tuple(map(int, sizes)))


def read_target(words: str) -> Target:
    """Parse ``cpu``, ``gpu``, ``tpu:v5e:1x1``, the name of a GPU, or that of a file that describes
    one. Raises ``UnusableInput`` if it is none of them.
    """
    if words in ("cpu", "gpu"):
        return Target(words, words)
    if words.partition(":")[0] == "tpu":
        topology = words.partition(":")[2] or _DEFAULT_TOPOLOGY
        if ":" not in topology:
            topology += ":1x1"
        return Target(words.replace(":", "-"), "tpu", topology=topology)
    device = find_device(words)
    name = Path(words).stem
    return Target(name, _platform(device, words), description=_description(device, words))


def _description(device: Device, words: str) -> str:
    """Return XLA's text about ``device``: of a file verbatim, as it may contain more than
    fusionscope reads. As in ``find_device``, a known name is not taken for a file.
    """
    try:
        known_device(words)
    except UnusableInput:
        return read_text(Path(words))
    return describe_target(device)


def _platform(device: Device, words: str) -> str:
    """Return what jax calls the device's platform. Raises ``UnusableInput`` if it has none."""
    match device.capability:
        case CudaCapability():
            return "cuda"
        case RocmCapability():
            return "rocm"
    raise UnusableInput(f"jax has no compiler for {quoted(words)}")
