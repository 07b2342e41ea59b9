"""An event of a profile, as ``HOST.trace.json`` has it."""

from __future__ import annotations

import msgspec


class Arguments(msgspec.Struct):
    name: str | None = None
    hlo_module: str | None = None
    hlo_op: str | None = None
    run_id: str | None = None
    device_ordinal: str | None = None


class Event(msgspec.Struct):
    """The fields of an event that matter here; ``ts`` and ``dur`` are microseconds."""

    ph: str = ""
    pid: int = 0
    name: str = ""
    ts: float = 0.0
    dur: float = 0.0
    args: Arguments = msgspec.field(default_factory=Arguments)


class Trace(msgspec.Struct):
    events: list[Event] = msgspec.field(name="traceEvents")
