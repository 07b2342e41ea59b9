"""Finds the fastest tiling of a fusion, and the run time with a given tiling.

Source: xla/service/gpu/model/gpu_indexing_performance_model.cc;
xla/codegen/tiling/experimental/tiling_space.cc, tiling_space_utils.cc.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

from fusionscope.dump.device import Device
from fusionscope.errors import UnusableInput
from fusionscope.gpu.body import FusionBody
from fusionscope.gpu.tiling.indexing import IndexPropagation
from fusionscope.gpu.tiling.kernel import TiledKernel, Tiling, endless
from fusionscope.gpu.tiling.propagation import NONE_FOUND, Propagation, TilePropagation
from fusionscope.gpu.tiling.table import TilingTables, grid_of
from fusionscope.gpu.triton_support import TritonVersion
from fusionscope.graph.layouts import sizes
from fusionscope.graph.mutable import MutableInstruction


@dataclass(frozen=True, slots=True)
class Untileable:
    """Why there is no tiling: the compiler's message, and whether it raised that as an error."""

    message: str
    is_error: bool = False


_MANY_ROOTS = Untileable("TilingSpace does not support fusions with multiple roots.", True)
_MANY_REAL_ROOTS = Untileable(
    "Only simple multi-output fusions with one real root are supported but multiple roots were "
    "found."
)


def find_best_tiling(
    body: FusionBody, device: Device, version: TritonVersion, tables: TilingTables
) -> Tiling | Untileable:
    """Return the fastest of all tilings; of several equally fast ones, the one with the smallest
    tiles. ``tables`` are those of other kernels, if any.

    Source: TryFindBestTilingForFusion.
    """
    if (problem := _roots_problem(body, version)) is not None:
        return problem
    propagation = _propagation(body, version)
    extents = sizes(body.roots[0].shape)
    tile_sizes = tuple(tuple(propagation.tile_sizes(extent)) for extent in extents)
    table = _tables_for(version, tables).of(device, extents, tile_sizes)
    kernel = TiledKernel(body, table, propagation, version)
    if kernel.problem:
        return Untileable(kernel.problem)
    if propagation.can_fail:
        # The compiler goes from small tiles to large ones.
        for tiling in product(*map(reversed, tile_sizes)):
            error = propagation.error(tiling)
            if error and table.has_tiles(kernel.sources, grid_of(extents, tiling)):
                return Untileable(error, True)
    best = kernel.best()
    if best is None and version.has_endless_tilings and table.with_tiles(kernel.sources):
        return endless(table.grids[0].sizes)
    return best or Untileable(NONE_FOUND)


def estimate_run_time(
    fusion: MutableInstruction,
    device: Device,
    config: BlockLevelConfig,
    version: TritonVersion,
    tables: TilingTables,
) -> Tiling | None:
    """Return the run time of a Triton fusion with the tiling that it was given.

    Return None if a tile has more elements than a block has registers for; the compiler treats that
    as an infinite time. Source: EstimateRunTimeForTriton.
    """
    body = FusionBody(fusion)
    if _roots_problem(body, version) is not None:
        return None
    propagation = _propagation(body, version, is_given=True)
    extents = sizes(body.roots[0].shape)
    tile_sizes = propagation.given(config.tile_sizes)
    table = _tables_for(version, tables).of_given(device, extents, tile_sizes)
    return TiledKernel(body, table, propagation, version).tiling(0, config.warps)


def _roots_problem(body: FusionBody, version: TritonVersion) -> Untileable | None:
    """Return a problem unless the first root computes all others (GetRealRootIndex)."""
    if len(body.roots) > 1 and version.propagates_tiles:
        return _MANY_ROOTS
    return None if all(map(body.users, body.roots[1:])) else _MANY_REAL_ROOTS


def _tables_for(version: TritonVersion, tables: TilingTables) -> TilingTables:
    """Return ``tables`` if kernels of different contents can have equal tiles."""
    return tables if version.propagates_tiles else TilingTables()


def _propagation(
    body: FusionBody, version: TritonVersion, *, is_given: bool = False
) -> Propagation:
    if version.propagates_tiles:
        return TilePropagation()
    return IndexPropagation(
        body, division=version.division, is_given=is_given, checks_last=version.checks_last
    )


@dataclass(frozen=True, slots=True)
class BlockLevelConfig:
    """The tiling that a Triton fusion was given: elements per tile in each dimension, and warps."""

    tile_sizes: tuple[int, ...]
    warps: int


def block_level_config(fusion: MutableInstruction) -> BlockLevelConfig | None:
    """Return the tiling of the first root, None without one. Raises ``UnusableInput``.

    Its sizes are ``output_tile_sizes`` where a fusion could have no other root (jaxlib 0.4.38).
    """
    config = fusion.attribute("backend_config")
    for key in ("fusion_config", "fusion_backend_config"):
        if isinstance(config, dict) and isinstance(config.get(key), dict):
            message = config[key].get("block_level_fusion_config")
            if isinstance(message, dict) and (
                message.get("output_tiles") or message.get("output_tile_sizes")
            ):
                read = _read_config(message)
                root = fusion.shape.elements[0] if fusion.shape.elements else fusion.shape
                if (
                    read is None
                    or len(read.tile_sizes) != root.rank
                    or min(read.tile_sizes, default=1) < 1
                ):
                    raise UnusableInput(
                        f"the block_level_fusion_config of {fusion.name} is damaged"
                    )
                return read
    return None


def _read_config(message: dict[str, Any]) -> BlockLevelConfig | None:
    try:
        tiles = message.get("output_tiles")
        texts = tiles[0].get("sizes", ()) if tiles else message["output_tile_sizes"]
        tile_sizes = tuple(map(int, texts))
        return BlockLevelConfig(tile_sizes, int(message.get("num_warps", 0)))
    except (AttributeError, LookupError, TypeError, ValueError):
        return None
