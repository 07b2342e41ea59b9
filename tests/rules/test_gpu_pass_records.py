"""The replay makes of each recorded module what the compiler made, see gpu_pass_records.py."""

from __future__ import annotations

import pytest
from gpu_pass_records import RECORDS, Record


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_the_replay_makes_what_the_compiler_made(record: Record) -> None:
    assert record.difference() is None
