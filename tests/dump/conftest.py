from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fusionscope.errors import UnusableInput

DATA = Path(__file__).parent / "data"


@pytest.fixture
def data() -> Path:
    return DATA


_PIECES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [
            b"{",
            b"}",
            b'"',
            b"\\",
            b": ",
            b"\n",
            b"\x00",
            b"\xff",
            b"-1",
            b"inf",
            b"[[",
            b"|",
            b"9" * 30,
        ]
    ),
)


def _edited(original: bytes, edits: list[tuple[int, int, bytes]], length: int) -> bytes:
    edited = original[:length]
    for position, removed, inserted in edits:
        edited = edited[:position] + inserted + edited[position + removed :]
    return edited


@pytest.fixture
def survives_damage() -> Callable[[Callable[[bytes], object], bytes], None]:
    """Checks that a reader takes damaged copies of a file, or refuses them with UnusableInput.

    A few for each: `make fuzz` damages whole dumps, with such files in them.
    """

    def check(read: Callable[[bytes], object], original: bytes) -> None:
        places = st.integers(0, len(original))
        edits = st.lists(st.tuples(places, st.integers(0, 30), _PIECES), max_size=4)
        lengths = st.one_of(st.just(len(original)), places)

        @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
        @given(edits, lengths)
        def run(edits: list[tuple[int, int, bytes]], length: int) -> None:
            try:
                read(_edited(original, edits, length))
            except UnusableInput as error:
                assert "\n" not in str(error)

        run()

    return check
