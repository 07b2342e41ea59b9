"""The opcodes of the neighbours of library calls, kept once for each kernel.

Hundreds of calls may have one neighbour of a thousand operations. An analysis is kept between runs,
so its boundaries leave out what its kernels say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from fusionscope.facts.result import KernelFacts
from fusionscope.findings.libraries.facts import Boundary


def without_members(
    boundaries: Sequence[Boundary], kernels: Sequence[KernelFacts]
) -> tuple[Boundary, ...]:
    """Return ``boundaries`` without the members of neighbours that are among ``kernels``."""
    nothing: dict[str, tuple[str, ...]] = {kernel.name: () for kernel in kernels}
    return tuple(_with(boundary, nothing) for boundary in boundaries)


def with_members(
    boundaries: Sequence[Boundary], kernels: Sequence[KernelFacts]
) -> tuple[Boundary, ...]:
    """Undo ``without_members``."""
    members = {kernel.name: kernel.members for kernel in kernels}
    return tuple(_with(boundary, members) for boundary in boundaries)


def _with(boundary: Boundary, members: Mapping[str, tuple[str, ...]]) -> Boundary:
    before, after = (
        tuple([replace(side, members=members.get(side.name, side.members)) for side in sides])
        for sides in (boundary.before, boundary.after)
    )
    return replace(boundary, before=before, after=after)
