"""The wire format of protocol buffers, read by hand: ``instruction_ids.py`` says why."""

from __future__ import annotations

from collections.abc import Iterator

VARINT, _FIXED_64, BYTES, _FIXED_32 = 0, 1, 2, 5  # wire types


def fields(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the fields of the message in ``data[start:end]``: number, wire type, and value.

    The value is the number itself, or the start and end of the bytes.
    """
    position = start
    while position < end:
        key = data[position]
        position += 1
        if key >= 0x80:  # most take one byte; the call for others is expensive
            key, position = varint(data, position - 1)
        number, wire_type = key >> 3, key & 7
        if wire_type == VARINT:
            value, position = varint(data, position)
            yield number, wire_type, value, position
        elif wire_type == BYTES:
            length = data[position]
            position += 1
            if length >= 0x80:
                second = data[position]
                if second < 0x80:  # a length of two bytes, as of most messages
                    length += (second - 1) << 7  # -1: the flag in the first byte
                    position += 1
                else:
                    length, position = varint(data, position - 1)
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


def varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a number of up to ten bytes, seven bits in each, and the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError(f"byte {position}: a number without an end")
