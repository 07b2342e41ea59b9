"""The memory of a module."""

from __future__ import annotations

from fusionscope.facts.facts import Facts


class LiveBuffer(Facts, frozen=True, kw_only=True):
    """A value that is alive at the peak.

    name: the instruction that defines it, with the index of an element of a tuple: ``fusion.1{0}``
    kind: what its memory is reserved for: ``parameter``, ``donated``, ``output``, ``temporary`` or
        ``constant``
    bytes: its size
    shape: its shape with layout
    first: the first place at which it is alive
    last: the last place at which it is alive
    in_place_of: the value whose memory it takes over at the peak: these bytes count once
    op_name: the framework's name of the operation, or of the parameter
    source: the user's line, as ``file:line``
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


class MemorySaving(Facts, frozen=True, kw_only=True):
    """A refused pair whose fusion lowers the peak: what its kernel reads then lives until the last
    reader runs.

    buffer: the value that would need no memory
    producer: the producer that would be computed by each of its readers
    consumers: one consumer for each kernel that reads the value
    reason: the rule that refused the first of these pairs
    bytes_saved: by how much the peak would be lower
    peak_bytes: what it would be
    at: the first place with that many bytes
    """

    buffer: str
    producer: str
    consumers: tuple[str, ...]
    reason: str | None
    bytes_saved: int
    peak_bytes: int
    at: int


class Donation(Facts, frozen=True):
    """An output that could have the memory of a parameter of the same shape, if the caller donated
    the parameter.

    parameter: the parameter, by its name in the program
    argument: the number of the argument that it is, or is a part of, as ``donate_argnums`` counts
        them; null if the program is not JAX's
    output: the value that is returned
    bytes: its size
    read_by: the instruction that still reads the parameter when the output is written, so that the
        compiler may have to copy it; null if none does
    """

    parameter: str
    argument: int | None
    output: str
    bytes: int
    read_by: str | None


class CallMemory(Facts, frozen=True):
    """Memory that a library may reserve inside of a call. The allocations do not contain it.

    call: the instruction
    bytes: at most about so many bytes
    values: the values of its computation that the library may write, with their shapes
    """

    call: str
    bytes: int
    values: tuple[str, ...]


class LifeTime(Facts, frozen=True):
    """A value in memory, and the places between which it is alive.

    name: the instruction that defines it, with the index of an element of a tuple: ``fusion.1{0}``
    kind: as in ``at_peak[]``
    bytes: its size
    first: the first place at which it is alive
    last: the last place at which it is alive
    """

    name: str
    kind: str
    bytes: int
    first: int
    last: int


class Allocations(Facts, frozen=True, kw_only=True):
    """What the program reserves, in bytes: ``parameters`` to ``thread_local`` add up to
    ``total_bytes``.

    total_bytes: all that the program reserves: the sum of its allocations, equal to the compiler's
        own report
    parameters: of it, parameters that are only read
    donated: of it, parameters whose memory holds an output
    outputs: of it, other outputs
    temporaries: of it, values in between
    constants: of it, constants
    thread_local: of it, what code inside of kernels works with
    fragmentation: the part of ``temporaries`` that is not alive even where most of them are
    """

    total_bytes: int
    parameters: int
    donated: int
    outputs: int
    temporaries: int
    constants: int
    thread_local: int
    fragmentation: int


class MemoryFacts(Allocations, frozen=True, kw_only=True):
    """The memory of the final module, in bytes.

    peak_bytes: the most that is alive at any place, each byte once; null if the dump has no live
        ranges
    peak_at: the first place with that many
    peak_instruction: the instruction that runs there
    compiler_peak: the place that the compiler reports as the peak. The compiler counts an element
        of a tuple as a pointer, so the two can differ
    at_peak: the values alive at ``peak_at``, the largest first
    savings: refused pairs whose fusion would lower the peak, an estimate, those first that lower it
        most
    donations: outputs that could have the memory of a parameter of their shape, if the caller
        donated it, the largest first
    donated_peak: the peak if the parameters in ``donations`` without ``read_by`` are donated, an
        estimate
    over_time: the bytes alive at each place
    values: every value in memory, without those inside of kernels
    inside_calls: memory that libraries may reserve inside of a call, beside the allocations, the
        most first ([Memory](memory.md))
    """

    finding = "memory"

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


class Fields(Facts, frozen=True):
    """
    memory: the memory of the final module; null if no file of the dump shows it
    """

    memory: MemoryFacts | None = None
