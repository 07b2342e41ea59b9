"""Reads what to compile, and for what, from the user's words, without jax."""

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
_TPU = "v5e:1x1"


class ProgramKind(Enum):
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
    """A program. ``name`` is that of a function in ``module`` or in ``file``; other kinds are
    files.

    ``arguments`` is None if the program provides an example. ``partitions`` is the number of
    devices it runs on.
    """

    kind: ProgramKind
    file: Path | None = None
    module: str | None = None
    name: str = ""
    arguments: tuple[Argument, ...] | None = None
    partitions: int = 1


@dataclass(frozen=True, slots=True)
class Target:
    """A target: ``description`` of a GPU that need not be present, or ``topology`` of TPUs."""

    name: str
    platform: str
    description: str | None = None
    topology: str | None = None

    @property
    def is_here(self) -> bool:
        """Whether the device has to be present."""
        return self.description is None and self.topology is None


def read_program(words: str, arguments: Sequence[str] = (), *, folder: Path = Path()) -> Program:
    """Read ``package.module:function``, ``file.py:function`` or the name of a file in ``folder``.

    ``arguments`` are shapes such as ``f32[128,256]``. Raises ``UnusableInput``.
    """
    argument_shapes = tuple(map(_read_argument, arguments)) or None
    if match := _FUNCTION.fullmatch(words):
        place, name = match.groups()
        if place.endswith(".py"):
            return Program(
                kind=ProgramKind.FUNCTION,
                file=_existing(folder / place),
                module=None,
                name=name,
                arguments=argument_shapes,
            )
        if _MODULE.fullmatch(place):
            return Program(
                kind=ProgramKind.FUNCTION,
                file=None,
                module=place,
                name=name,
                arguments=argument_shapes,
            )
    path = folder / words
    kind = _SUFFIXES.get(path.suffix)
    if kind is None:
        raise UnusableInput(
            f"{quoted(words)} is not a program, expected package.module:function, "
            "file.py:function, or a file of StableHLO (.mlir) or HLO (.hlo, .txt, .pb)"
        )
    if argument_shapes is not None:
        raise UnusableInput(f"{path.name} has arguments of its own, --arg is for functions")
    head = read_file(_existing(path))[:10_000]
    partitions = _PARTITIONS.search(head)
    return Program(kind=kind, file=path, partitions=int(partitions[1]) if partitions else 1)


def _existing(path: Path) -> Path:
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
    """Read ``cpu``, ``gpu``, ``tpu:v5e:1x1``, the name of a card, or a file that describes one.

    Raises ``UnusableInput``.
    """
    if words in ("cpu", "gpu"):
        return Target(words, words)
    if words.partition(":")[0] == "tpu":
        topology = words.partition(":")[2] or _TPU
        if ":" not in topology:
            topology += ":1x1"
        return Target(words.replace(":", "-"), "tpu", topology=topology)
    device = find_device(words)
    name = Path(words).stem
    return Target(name, _platform(device, words), description=_description(words, device))


def _description(words: str, device: Device) -> str:
    """Return the text of a file verbatim: it may contain more than fusionscope reads. As in
    ``find_device``, a known name is no file.
    """
    try:
        known_device(words)
    except UnusableInput:
        return read_text(Path(words))
    return describe_target(device)


def _platform(device: Device, words: str) -> str:
    match device.capability:
        case CudaCapability():
            return "cuda"
        case RocmCapability():
            return "rocm"
    raise UnusableInput(f"jax has no compiler for {quoted(words)}")
