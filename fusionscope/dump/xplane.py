"""The events of ``HOST.xplane.pb``, which the profiler writes, and makes ``HOST.trace.json`` of.

It is an XSpace (``tsl/profiler/protobuf/xplane.proto``): planes, one for each device and one for
the host, with lines of events. Names, and kinds of statistics, are numbers that a plane explains.
"""

from __future__ import annotations

from collections.abc import Iterator

from fusionscope.dump.trace_events import Arguments, Event
from fusionscope.dump.wire import BYTES, VARINT, fields
from fusionscope.errors import UnusableInput

# Field numbers.
_PLANE = 1  # of XSpace
_NAME, _LINE, _EVENT_NAME, _STATISTIC_NAME = 2, 3, 4, 5  # of XPlane
_KEY, _VALUE = 1, 2  # of an entry of a map
_METADATA_NAME = 2  # of XEventMetadata and XStatMetadata
_METADATA_STATISTIC = 5  # of XEventMetadata
_TIMESTAMP_NS, _EVENT = 3, 4  # of XLine
_EVENT_METADATA, _OFFSET_PS, _DURATION_PS, _STATISTIC = 1, 2, 3, 4  # of XEvent
_STATISTIC_METADATA, _UNSIGNED, _SIGNED, _TEXT, _REFERENCE = 1, 3, 4, 5, 7  # of XStat

_ARGUMENTS = frozenset(Arguments.__struct_fields__) - {"name"}
_OF_PYTHON = "$"  # begins the names of the Python tracer's events
_SIGN = 1 << 63

Names = dict[int, str]


def read_xplane(data: bytes, file: str) -> list[Event]:
    """Return the events that may be about instructions. Times count from the first line of events.

    Raises ``UnusableInput`` if ``data`` is truncated or is no XSpace.
    """
    try:
        planes = [
            _Plane(data, start, end)
            for number, wire_type, start, end in fields(data, 0, len(data))
            if (number, wire_type) == (_PLANE, BYTES)
        ]
        first = min((plane.start_ns for plane in planes if plane.lines), default=0)
        events = [
            event for pid, plane in enumerate(planes, 1) for event in plane.events(pid, first)
        ]
    except (IndexError, ValueError) as error:
        problem = error if isinstance(error, ValueError) else "it ends inside a field"
        raise UnusableInput(f"not a whole profile ({problem})", file=file) from None
    if not any(plane.lines for plane in planes):
        raise UnusableInput("not a profile: no events in it", file=file)
    return events


class _Plane:
    """A device, or the host. ``lines`` are where its lines of events are."""

    def __init__(self, data: bytes, start: int, end: int) -> None:
        self._data = data
        self.name = ""
        self.lines: list[tuple[int, int, int]] = []
        self._event_names: Names = {}
        self._statistic_names: Names = {}
        of_events: dict[int, list[tuple[int, int]]] = {}
        for number, wire_type, begin, stop in fields(data, start, end):
            if wire_type != BYTES:
                continue
            if number == _NAME:
                self.name = data[begin:stop].decode()
            elif number == _LINE:
                self.lines.append((_number(data, begin, stop, _TIMESTAMP_NS), begin, stop))
            elif number == _EVENT_NAME:
                key, name, statistics = _metadata(data, begin, stop)
                self._event_names[key] = name
                of_events[key] = statistics
            elif number == _STATISTIC_NAME:
                key, name, _ = _metadata(data, begin, stop)
                self._statistic_names[key] = name
        self._of_events = {
            key: dict(self._statistics(statistics)) for key, statistics in of_events.items()
        }

    @property
    def start_ns(self) -> int:
        return min((start_ns for start_ns, _, _ in self.lines), default=0)

    def events(self, pid: int, first_ns: int) -> Iterator[Event]:
        """Yield the name of the plane, and its events."""
        yield Event(ph="M", pid=pid, name="process_name", args=Arguments(name=self.name))
        for start_ns, begin, stop in self.lines:
            for number, wire_type, start, end in fields(self._data, begin, stop):
                if (number, wire_type) == (_EVENT, BYTES):
                    event = self._event(pid, (start_ns - first_ns) * 1_000, start, end)
                    if event is not None:
                        yield event

    def _event(self, pid: int, line_ps: int, start: int, end: int) -> Event | None:
        key = offset_ps = duration_ps = 0
        statistics: list[tuple[int, int]] = []
        for number, wire_type, value, stop in fields(self._data, start, end):
            if number == _STATISTIC and wire_type == BYTES:
                statistics.append((value, stop))
            elif wire_type == VARINT:
                if number == _EVENT_METADATA:
                    key = value
                elif number == _OFFSET_PS:
                    offset_ps = value
                elif number == _DURATION_PS:
                    duration_ps = value
        name = self._event_names.get(key, "")
        if name.startswith(_OF_PYTHON):
            return None
        return Event(
            ph="X",
            pid=pid,
            name=name,
            ts=(line_ps + offset_ps) / 1e6,
            dur=duration_ps / 1e6,
            args=Arguments(
                **{**self._of_events.get(key, {}), **dict(self._statistics(statistics))}
            ),
        )

    def _statistics(self, places: list[tuple[int, int]]) -> Iterator[tuple[str, str]]:
        """Yield the statistics that are arguments of an event."""
        for start, end in places:
            name, text = "", ""
            for number, wire_type, value, stop in fields(self._data, start, end):
                if number == _STATISTIC_METADATA:
                    name = self._statistic_names.get(value, "")
                elif number == _TEXT and wire_type == BYTES:
                    text = self._data[value:stop].decode()
                elif number == _REFERENCE:
                    text = self._statistic_names.get(value, "")
                elif number == _UNSIGNED:
                    text = str(value)
                elif number == _SIGNED:
                    text = str(value - 2 * _SIGN if value >= _SIGN else value)
            if name in _ARGUMENTS:
                yield name, text


def _number(data: bytes, start: int, end: int, field_number: int) -> int:
    """Return the number in a field of a message, 0 if it has none."""
    values = (
        value
        for number, wire_type, value, _ in fields(data, start, end)
        if (number, wire_type) == (field_number, VARINT)
    )
    return next(values, 0)


def _metadata(data: bytes, start: int, end: int) -> tuple[int, str, list[tuple[int, int]]]:
    """Return the key of an entry of a map, and the name and the statistics in its value."""
    key, name = 0, ""
    statistics = []
    for number, wire_type, value, stop in fields(data, start, end):
        if (number, wire_type) == (_KEY, VARINT):
            key = value
        elif (number, wire_type) == (_VALUE, BYTES):
            for inner, inner_type, begin, finish in fields(data, value, stop):
                if (inner, inner_type) == (_METADATA_NAME, BYTES):
                    name = data[begin:finish].decode()
                elif (inner, inner_type) == (_METADATA_STATISTIC, BYTES):
                    statistics.append((begin, finish))
    return key, name, statistics
