"""What is known of the number of steps of a loop."""

from enum import StrEnum


class Length(StrEnum):
    """``GIVEN`` is by the user."""

    KNOWN = "known"
    BOUND = "at most"  # the condition also looks at something else than a counter
    UNKNOWN = "unknown"  # counts as one step
    GIVEN = "given"
