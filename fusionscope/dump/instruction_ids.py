"""The unique ids of instructions, which the text leaves out: ``*.hlo.pb``.

Written beside each text with ``--xla_dump_hlo_as_proto``. PriorityFusion breaks ties by them.
The file is an HloProto (``xla/service/hlo.proto``). The wire format is read by hand, and not by the
protobuf library: importing that takes 13 ms, as long as a bare Python, and one file of the usual
5 kB takes 0.2 ms here. The library is faster from 0.4 MB on (6 against 37 ms for 1 MB), which 4 of
12,276 files of test dumps reach. It would also be a dependency whose version other packages pin.
A test holds that both read the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from fusionscope.dump.wire import BYTES, VARINT, fields, varint
from fusionscope.errors import UnusableInput

# Field numbers of hlo.proto.
_MODULE = 1  # HloProto.hlo_module
_COMPUTATION = 3  # HloModuleProto.computations
_COMPUTATION_NAME = 1
_INSTRUCTION = 2  # HloComputationProto.instructions
_INSTRUCTION_NAME = 1
_INSTRUCTION_ID = 35

# The name and the id of an instruction, its bytes before the id, and those of the id.
KnownInstruction = tuple[str, int, bytes, bytes]


@dataclass(slots=True)
class KnownParts:
    """What was read last, of which the next stage has most again: computations by their bytes, and
    instructions by the bytes of their names.
    """

    computations: dict[bytes, tuple[str, dict[str, int]]] = field(default_factory=dict)
    instructions: dict[bytes, KnownInstruction] = field(default_factory=dict)


def read_instruction_ids(
    data: bytes, file: str, parts: KnownParts | None = None
) -> dict[str, dict[str, int]]:
    """Return the ids of instructions by computation and name.

    ``parts`` holds the parts of the stage that was read before, and then those of this one. Raises
    ``UnusableInput`` if ``data`` is truncated or is not an HloProto.
    """
    module = module_part(data, file)
    parts = parts or KnownParts()
    read = KnownParts()
    try:
        for start, end in _parts(module, _COMPUTATION):
            content = module[start:end]
            computation = parts.computations.get(content)
            if computation is None:
                computation = _computation(
                    module, start, end, parts.instructions, read.instructions
                )
            read.computations[content] = computation
    except (IndexError, ValueError) as error:
        raise _unusable(error, file) from None
    if not read.computations:
        raise _unusable(ValueError("no computation in it"), file)
    parts.computations = read.computations
    parts.instructions |= read.instructions
    return dict(read.computations.values())


def module_part(data: bytes, file: str) -> bytes:
    """Return the HloModuleProto in an HloProto. Raises ``UnusableInput`` if there is none."""
    try:
        module = b"".join(data[start:end] for start, end in _parts(data, _MODULE))
    except (IndexError, ValueError) as error:
        raise _unusable(error, file) from None
    if not module:
        raise _unusable(ValueError("no module in it"), file)
    return module


def _unusable(error: IndexError | ValueError, file: str) -> UnusableInput:
    problem = error if isinstance(error, ValueError) else "it ends inside a field"
    return UnusableInput(
        f"not a serialized HLO module ({problem})",
        file=file,
        hint="it is cut off or another file: dump again with --xla_dump_hlo_as_proto",
    )


def _computation(
    data: bytes,
    start: int,
    end: int,
    earlier: dict[bytes, KnownInstruction],
    read: dict[bytes, KnownInstruction],
) -> tuple[str, dict[str, int]]:
    computation = ""
    instructions = {}
    for number, wire_type, value, stop in fields(data, start, end):
        if number == _COMPUTATION_NAME and wire_type == BYTES:
            computation = data[value:stop].decode()
        elif number == _INSTRUCTION and wire_type == BYTES:
            # The name comes first, and mostly takes less than 128 bytes.
            key = data[value : value + 2 + data[value + 1]]
            instruction = earlier.get(key)
            if instruction is not None and data.startswith(instruction[2], value, stop):
                name, unique_id, before_id, id_bytes = instruction
                place = value + len(before_id)
                if not data.startswith(id_bytes, place):  # passes often give all new ids
                    unique_id, id_end = varint(data, place)
                    read[key] = name, unique_id, before_id, data[place:id_end]
            else:
                name, unique_id, place, id_end = _instruction(data, value, stop)
                if id_end > place:
                    read[key] = name, unique_id, data[value:place], data[place:id_end]
            instructions[name] = unique_id
    if not computation or not instructions:
        raise ValueError(f"byte {start}: a computation without name or instructions")
    return computation, instructions


def _instruction(data: bytes, start: int, end: int) -> tuple[str, int, int, int]:
    """Return the name and id of an instruction, and begin and end of the id, if any."""
    name, unique_id, place, id_end = "", 0, start, start
    for number, wire_type, value, stop in fields(data, start, end):
        if number == _INSTRUCTION_NAME and wire_type == BYTES:
            name = data[value:stop].decode()
        elif number == _INSTRUCTION_ID and wire_type == VARINT:
            unique_id, place, id_end = value, stop - 1, stop
            while data[place - 1] >= 0x80:  # the last byte of the key before it is smaller
                place -= 1
    if not name:
        raise ValueError(f"byte {start}: an instruction without a name")
    return name, unique_id, place, id_end


def _parts(data: bytes, field_number: int) -> Iterator[tuple[int, int]]:
    """Yield the positions of the messages in one field of the outermost message."""
    for number, wire_type, value, stop in fields(data, 0, len(data)):
        if number == field_number and wire_type == BYTES:
            yield value, stop
