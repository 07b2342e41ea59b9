"""The replay makes of each recorded module what the compiler made, see records.py."""

from __future__ import annotations

import pytest
from conformance.records import PASS_RECORDS, Record


@pytest.mark.parametrize("record", PASS_RECORDS.values(), ids=PASS_RECORDS)
def test_the_replay_makes_what_the_compiler_made(record: Record) -> None:
    assert record.difference() is None
