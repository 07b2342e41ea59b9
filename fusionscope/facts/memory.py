"""What is known about the memory of a module: plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBuffer:
    """A value that is alive at the peak.

    ``kind`` is that of its allocation: parameter, donated, output, temporary or constant. ``first``
    and ``last`` are places in the instruction sequence. ``in_place_of`` is the value whose memory
    this one takes over at the peak, where both are alive; its bytes count once, with the other.
    ``source`` is the user's ``file:line``; that and ``op_name`` are those of the operation that
    computes the value, or of one nearby.
    """

    name: str
    kind: str
    bytes: int
    shape: str
    first: int
    last: int
    in_place_of: str | None
    op_name: str | None
    source: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySaving:
    """A refused pair whose fusion lowers the peak: ``buffer`` goes, and what its kernel reads lives
    until the last reader runs. ``consumers`` are all that read the buffer: each has to compute it.
    ``peak_bytes`` is the peak then, ``at`` its place.
    """

    buffer: str
    producer: str
    consumers: tuple[str, ...]
    reason: str | None
    bytes_saved: int
    peak_bytes: int
    at: int


@dataclass(frozen=True, slots=True)
class Donation:
    """An output that could have the memory of a parameter of the same shape, if the caller donated
    the parameter. ``argument`` is the number of the argument that the parameter is, or is a part
    of, as ``donate_argnums`` counts them. ``read_by`` is what would still read the parameter when
    the output is written, so that the compiler may have to copy it; None if nothing does.
    """

    parameter: str
    argument: int
    output: str
    bytes: int
    read_by: str | None


@dataclass(frozen=True, slots=True)
class CallMemory:
    """Memory that a library may reserve inside of ``call``, an instruction: at most ``bytes``, for
    ``values`` of its computation, each with its shape. The allocations do not contain it.
    """

    call: str
    bytes: int
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LifeTime:
    """A value in memory, and the places between which it is alive."""

    name: str
    kind: str
    bytes: int
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFacts:
    """The memory of the final module, in bytes.

    ``total_bytes`` are all allocations; ``parameters`` to ``thread_local`` add up to them.
    ``donated`` are parameters whose memory holds an output, ``fragmentation`` is the part of
    ``temporaries`` that is not alive even when most of them are. ``peak_bytes`` are those alive at
    ``peak_at``, the place of ``peak_instruction`` in the sequence of ``length`` instructions; None
    if nothing shows when values are alive. ``compiler_peak`` is the place that the compiler names.
    ``donated_peak`` is the peak if the parameters of ``donations`` that nothing reads too late are
    donated: an estimate, for the same instructions in the same order.
    ``over_time`` are the bytes alive at each place. ``inside_calls`` is what libraries may reserve
    in addition, the most first.
    """

    total_bytes: int
    parameters: int
    donated: int
    outputs: int
    temporaries: int
    constants: int
    thread_local: int
    fragmentation: int
    peak_bytes: int | None
    peak_at: int | None
    peak_instruction: str | None
    compiler_peak: int | None
    at_peak: tuple[LiveBuffer, ...]
    savings: tuple[MemorySaving, ...]
    donations: tuple[Donation, ...]
    donated_peak: int | None
    over_time: tuple[int, ...]
    values: tuple[LifeTime, ...]
    inside_calls: tuple[CallMemory, ...] = ()

    @property
    def inside_call_bytes(self) -> int:
        """The most that a library may reserve at once."""
        return max((call.bytes for call in self.inside_calls), default=0)
