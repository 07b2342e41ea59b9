"""Answers whether Triton can compute an instruction, with which tiles and how fast, and
caches it.

Source: xla/backends/gpu/transforms/priority_fusion.cc, GetTiledRunTimeDataCached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fusionscope.dump.device import Device
from fusionscope.gpu.body import FusionBody
from fusionscope.gpu.identity import Identities, PairIdentity
from fusionscope.gpu.tiling.kernel import Tiling
from fusionscope.gpu.tiling.search import (
    BlockLevelConfig,
    Untileable,
    block_level_config,
    estimate_run_time,
    find_best_tiling,
)
from fusionscope.gpu.tiling.table import TilingTables
from fusionscope.gpu.triton_support import TritonVersion, unsupported
from fusionscope.graph.mutable import MutableInstruction

_ERROR = "TiledRunTimeDataOrError return status: "


class Triton:
    """A version of Triton on ``device``, with a cache of its answers."""

    def __init__(self, device: Device, version: TritonVersion) -> None:
        self._device = device
        self._version = version
        self._tables = TilingTables()
        self._unsupported: dict[MutableInstruction, str | None] = {}
        self._identities = Identities()
        self._pairs: dict[PairIdentity, Tiling | Untileable] = {}
        self._tilings: dict[MutableInstruction, Tiling] = {}

    def unsupported(self, instruction: MutableInstruction) -> str | None:
        """Return why Triton cannot compute an instruction or what is in a fusion, or None."""
        if instruction not in self._unsupported:
            message = unsupported(instruction, self._device, self._version)
            self._unsupported[instruction] = message
        return self._unsupported[instruction]

    def identity(
        self,
        producer: MutableInstruction,
        consumer: MutableInstruction,
        *,
        writes_producer: bool = False,
    ) -> PairIdentity:
        """Return the key that decides whether the compiler considers two pairs' tilings
        the same.
        """
        return self._identities.of_pair(producer, consumer, writes_producer=writes_producer)

    def find_tiling_problem(
        self, pair: PairIdentity, find: Callable[[], Tiling | Untileable]
    ) -> str | None:
        """Return why a pair cannot be tiled; None if it can. ``find`` is asked once for all pairs
        of this identity.
        """
        tiling = self._pairs.get(pair)
        if tiling is None:
            tiling = self._pairs[pair] = find()
        if isinstance(tiling, Tiling):
            return None
        return _ERROR + tiling.message if tiling.is_error else tiling.message

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Discard at the end of the block which tilings were requested in it."""
        count = len(self._pairs)
        try:
            yield
        finally:
            while len(self._pairs) > count:
                self._pairs.popitem()

    def forget_pairs(self) -> None:
        """Discard the tilings of pairs, which the compiler keeps for one computation."""
        self._pairs.clear()

    def find_best_tiling(self, body: FusionBody) -> Tiling | Untileable:
        """Return the fastest tiling of a kernel."""
        return find_best_tiling(body, self._device, self._version, self._tables)

    def known_tiling(self, pair: PairIdentity) -> Tiling | None:
        """Return the tiling of a pair, if it was requested and exists."""
        tiling = self._pairs.get(pair)
        return tiling if isinstance(tiling, Tiling) else None

    def fused(self, fusion: MutableInstruction, pair: PairIdentity, tiling: Tiling | None) -> None:
        """Record that ``pair`` became ``fusion``, which is now computed with ``tiling``, if any."""
        self._identities.fused(fusion, pair)
        if tiling is not None:
            self._tilings[fusion] = tiling

    def tiling(self, fusion: MutableInstruction) -> Tiling | None:
        """Return the tiling of a Triton fusion, or None if it needs too many registers.

        Source: EstimateRunTimeForTriton.
        """
        config = self.config(fusion)
        if config is None:
            return None
        return estimate_run_time(fusion, self._device, config, self._version, self._tables)

    def config(self, fusion: MutableInstruction) -> BlockLevelConfig | None:
        """Return the tiles that a fusion was given when it was formed, or before, or None."""
        tiling = self._tilings.get(fusion)
        if tiling is not None:
            return BlockLevelConfig(tiling.tile_sizes, tiling.warps)
        return block_level_config(fusion)

    def changed(self, instruction: MutableInstruction) -> None:
        """Discard what is known of ``instruction``, which has changed."""
        self._unsupported.pop(instruction, None)
