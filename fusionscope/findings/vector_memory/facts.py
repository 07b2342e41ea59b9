"""What a kernel of a TPU takes of the vector memory, and how much it may take."""

from __future__ import annotations

from fusionscope.facts.facts import Facts


class VectorMemory(Facts, frozen=True, kw_only=True):
    """What a kernel takes of the vector memory, as the compiler wrote it.

    kernel: its name
    source: the line of the program, as ``file:line``; null if unknown
    bytes: what it takes
    limit: what it may take: of the kernel, of a flag, or of the device; null if unknown
    is_own: whether the program wrote the kernel, as in Pallas, so that its blocks set the size; the
        compiler chooses windows that fit for its own
    """

    finding = "vector_memory"

    kernel: str
    source: str | None
    bytes: int
    limit: int | None
    is_own: bool


class Fields(Facts, frozen=True):
    """
    vector_memory: what kernels of a TPU take of its vector memory, those first that take most
    """

    vector_memory: tuple[VectorMemory, ...] = ()
