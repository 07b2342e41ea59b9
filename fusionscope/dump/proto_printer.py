"""Prints protos from standard input, one after the other: a separate script.

Each arrives as its length and bytes. The answer says whether it could be read, followed by the
length and bytes of the text or of the error. The process ends with its input, or because of a
damaged proto.
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
    except Exception as error:  # jaxlib's own errors have no common type
        return False, (str(error).splitlines() or [type(error).__name__])[0]


if __name__ == "__main__":
    main()
