"""What a GPU module launches: ``thunk_sequence.txt``, the same after passes that put thunks into
command buffers (``thunk_sequence_after_thunk_passes.txt``), and ``thunk_metadata.txt``.

A thunk is a step of the program as the host runs it. One that launches a kernel names the entry
function of the kernel, which equal fusions share. Source: ThunkSequence::ToString and
ThunkMetadataListProto, xla/backends/gpu/runtime.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fusionscope.dump.text_proto import parse
from fusionscope.errors import UnusableInput, quoted

_LAUNCH = re.compile(
    r"\s*(?P<thunk>\d+): k\w+\s+\[[^\]]*\]\s*(?P<entry>\S+) grid: \[(?P<grid>[\d, ]+)\]"
    r" threads: \[(?P<threads>[\d, ]+)\]\s+shared_memory: (?P<shared>\d+) bytes.*"
)

# Older compilers write neither the shared memory nor, before jaxlib 0.9, the number of the thunk.
_OLDER_LAUNCH = re.compile(
    r"\s*(?:(?P<thunk>\d+): )?k\w+\s+(?:\[[^\]]*\]\s*)?, kernel = (?P<entry>[^\s,]+),"
    r"(?: profile_annotation = (?P<instruction>.*?),)? launch dimensions ="
    r" blocks: \{(?P<grid>[\d, ]+)\}, threads/block: \{(?P<threads>[\d, ]+)\}, cluster_dim = .*"
)

_THUNK = re.compile(r"(?:^|(?<=\s))(\d+): (k\w+)\s+\[")


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel that a thunk launches: ``blocks`` blocks of ``threads`` threads, each block with
    ``shared_bytes`` of shared memory beside what the kernel declares itself. ``instruction`` is the
    one of the final module that the thunk runs. Both are None if the file does not say.
    """

    thunk: int
    entry: str
    blocks: int
    threads: int
    shared_bytes: int | None
    instruction: str | None


def read_launches(data: bytes, file: str) -> tuple[Launch, ...]:
    """Return the kernels of ``thunk_sequence.txt``, in order. Other thunks are left out. Thunks
    without numbers, as older compilers write them, are numbered from 0 on.

    Raises ``UnusableInput`` if a line has the grid of a kernel and another form.
    """
    launches: list[Launch] = []
    for number, line in enumerate(data.decode("utf-8", errors="replace").splitlines(), start=1):
        if " grid: " not in line and " launch dimensions = " not in line:
            continue
        launch = _LAUNCH.fullmatch(line) or _OLDER_LAUNCH.fullmatch(line)
        if launch is None:
            raise UnusableInput(
                "expected a launch, '001: kKernel [source] name grid: [1, 1, 1] "
                f"threads: [1, 1, 1] shared_memory: 0 bytes', found {quoted(line.strip())}",
                file=file,
                line=number,
            )
        groups = launch.groupdict()
        shared = groups.get("shared")
        launches.append(
            Launch(
                thunk=int(launch["thunk"] or len(launches)),
                entry=launch["entry"],
                blocks=_product(launch["grid"]),
                threads=_product(launch["threads"]),
                shared_bytes=int(shared) if shared is not None else None,
                instruction=groups.get("instruction"),
            )
        )
    return tuple(launches)


class _Line(NamedTuple):
    thunk: int
    indent: int
    kind: str


@dataclass(frozen=True, slots=True)
class CommandBuffer:
    """Thunks that the host launches at once, as one CUDA graph, by their numbers. ``direct`` are
    those that are in no loop or branch inside of it, ``loops`` the loops themselves.
    """

    thunks: tuple[int, ...]
    direct: tuple[int, ...]
    loops: tuple[int, ...] = ()


def read_command_buffers(data: bytes, file: str) -> tuple[CommandBuffer, ...]:
    """Return the command buffers of ``thunk_sequence_after_thunk_passes.txt``, in order.

    What a thunk contains is indented deeper than the thunk. Lines that list no thunk are ignored.
    """
    buffers: list[tuple[int, list[_Line]]] = []  # each with the indent of the command buffer
    is_open = False
    for line in data.decode("utf-8", errors="replace").splitlines():
        thunks = [(match.start(1), int(match[1]), match[2]) for match in _THUNK.finditer(line)]
        if not thunks:
            continue
        indent = thunks[0][0]
        if is_open and indent > buffers[-1][0]:
            buffers[-1][1].extend(_Line(number, place, kind) for place, number, kind in thunks)
            continue
        is_open = thunks[0][2] == "kCommandBuffer"
        if is_open:
            buffers.append((indent, []))
    return tuple(_command_buffer(lines) for _, lines in buffers)


def _command_buffer(lines: Sequence[_Line]) -> CommandBuffer:
    least = min((line.indent for line in lines), default=0)
    return CommandBuffer(
        tuple(line.thunk for line in lines),
        tuple(line.thunk for line in lines if line.indent == least),
        tuple(line.thunk for line in lines if line.kind == "kWhile"),
    )


def _product(sizes: str) -> int:
    return math.prod(int(size) for size in sizes.split(","))


def read_annotations(data: bytes, file: str) -> dict[int, str]:
    """Return the instruction of the final module that each thunk of ``thunk_metadata.txt`` runs, by
    the number of the thunk. Raises ``UnusableInput`` if it is not a text proto.
    """
    instructions_by_thunk = {}
    for message in parse(data, file).messages("thunk_metadata"):
        info = message.message("thunk_info")
        if info is not None and info.string("profile_annotation"):
            instructions_by_thunk[info.integer("thunk_id")] = info.string("profile_annotation")
    return instructions_by_thunk
