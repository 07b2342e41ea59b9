"""What `capture` writes about a dump that it makes: ``fusionscope-capture.json``."""

from __future__ import annotations

import json

from fusionscope.errors import UnusableInput


def read_problem(data: bytes, file: str) -> str:
    """Return why the compiler did not finish, empty if it did. Raises ``UnusableInput`` for what
    `capture` does not write.
    """
    try:
        record = json.loads(data)
        problem, is_finished = record["problem"], record["compile_s"] is not None
    except (ValueError, TypeError, KeyError):
        problem, is_finished = None, False
    if not isinstance(problem, str):
        raise UnusableInput("no record of `fusionscope capture`", file=file)
    return problem if not is_finished else ""
