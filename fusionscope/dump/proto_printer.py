"""Prints the protos that come through standard input, one after the other: a script of its own.

Each comes as its length and bytes; back go whether it could be read, and the length and bytes of
the text, or of what is wrong. The process ends with its input, or of a proto.
"""

from __future__ import annotations

import struct
import sys

_LENGTH = struct.Struct("<?Q")


def main() -> None:
    while head := sys.stdin.buffer.read(_LENGTH.size):
        _, length = _LENGTH.unpack(head)
        is_text, answer = _print(sys.stdin.buffer.read(length))
        data = answer.encode("utf-8", errors="replace")
        sys.stdout.buffer.write(_LENGTH.pack(is_text, len(data)) + data)
        sys.stdout.buffer.flush()


def _print(module: bytes) -> tuple[bool, str]:
    try:
        from jaxlib import _hlo

        return True, _hlo.HloModule.from_serialized_hlo_module_proto(module).to_string()
    except Exception as error:  # jaxlib's own, of no common type
        return False, (str(error).splitlines() or [type(error).__name__])[0]


if __name__ == "__main__":
    main()
