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

from fusionscope.errors import UnusableInput

# Field numbers of hlo.proto.
_MODULE = 1  # HloProto.hlo_module
_COMPUTATION = 3  # HloModuleProto.computations
_COMPUTATION_NAME = 1
_INSTRUCTION = 2  # HloComputationProto.instructions
_INSTRUCTION_NAME = 1
_INSTRUCTION_ID = 35

_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5  # wire types


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
    for number, wire_type, value, stop in _fields(data, start, end):
        if number == _COMPUTATION_NAME and wire_type == _BYTES:
            computation = data[value:stop].decode()
        elif number == _INSTRUCTION and wire_type == _BYTES:
            # The name comes first, and mostly takes less than 128 bytes.
            key = data[value : value + 2 + data[value + 1]]
            instruction = earlier.get(key)
            if instruction is not None and data.startswith(instruction[2], value, stop):
                name, unique_id, before_id, id_bytes = instruction
                place = value + len(before_id)
                if not data.startswith(id_bytes, place):  # passes often give all new ids
                    unique_id, id_end = _varint(data, place)
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
    for number, wire_type, value, stop in _fields(data, start, end):
        if number == _INSTRUCTION_NAME and wire_type == _BYTES:
            name = data[value:stop].decode()
        elif number == _INSTRUCTION_ID and wire_type == _VARINT:
            unique_id, place, id_end = value, stop - 1, stop
            while data[place - 1] >= 0x80:  # the last byte of the key before it is smaller
                place -= 1
    if not name:
        raise ValueError(f"byte {start}: an instruction without a name")
    return name, unique_id, place, id_end


def _parts(data: bytes, field_number: int) -> Iterator[tuple[int, int]]:
    """Yield the positions of the messages in one field of the outermost message."""
    for number, wire_type, value, stop in _fields(data, 0, len(data)):
        if number == field_number and wire_type == _BYTES:
            yield value, stop


def _fields(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the fields of the message in ``data[start:end]``: number, wire type, and value.

    The value is the number itself, or the start and end of the bytes.
    """
    position = start
    while position < end:
        key = data[position]
        position += 1
        if key >= 0x80:  # most take one byte; the call for others is expensive
            key, position = _varint(data, position - 1)
        number, wire_type = key >> 3, key & 7
        if wire_type == _VARINT:
            value, position = _varint(data, position)
            yield number, wire_type, value, position
        elif wire_type == _BYTES:
            length = data[position]
            position += 1
            if length >= 0x80:
                second = data[position]
                if second < 0x80:  # a length of two bytes, as of most messages
                    length += (second - 1) << 7  # -1: the flag in the first byte
                    position += 1
                else:
                    length, position = _varint(data, position - 1)
            stop = position + length
            if stop > end:
                raise ValueError(f"byte {position}: {length} bytes announced, too few left")
            yield number, wire_type, position, stop
            position = stop
        elif wire_type == _FIXED_64:
            position += 8
        elif wire_type == _FIXED_32:
            position += 4
        else:
            raise ValueError(f"byte {position}: unknown wire type {wire_type}")
    if position != end:
        raise ValueError(f"byte {end}: a field runs over the end of its message")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a number of up to ten bytes, seven bits in each, and the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError(f"byte {position}: a number without an end")
