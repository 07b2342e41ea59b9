"""Determines which emitter writes a kernel, and for which of its instructions.

Source: xla/service/gpu/hlo_fusion_analysis.cc; xla/codegen/ir_emission_utils.cc.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from fusionscope.dump.device import Device
from fusionscope.gpu.body import FusionBody
from fusionscope.gpu.reductions import is_reduction_hero, normal_reduction
from fusionscope.gpu.transposes import TiledTranspose
from fusionscope.graph.layouts import (
    reshape_is_bitcast,
    same_elements_in_memory,
    transpose_is_bitcast,
)
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import (
    is_elementwise,
    leaves,
    same_but_for_type,
    slice_ranges,
)

TRITON = "__triton"
_TRITON_KINDS = frozenset(
    {TRITON, "__triton_gemm", "__triton_nested_gemm_fusion", "__triton_collective"}
)
_MOST_CONCATENATED = 4
_UNKNOWN_BITS = 2**31 - 1
_BYTE = 8


class EmitterKind(Enum):
    """Source: HloFusionAnalysis::EmitterFusionKind."""

    LOOP = "loop"
    REDUCTION = "reduction"
    TRANSPOSE = "transpose"
    CONCATENATE = "concatenate"
    SCATTER = "scatter"
    SLICES = "slices"  # several slices of one array
    SORT = "sort"
    TRITON = "triton"
    CUSTOM = "custom"
    CUDNN = "cudnn"

    @property
    def fusion_kind(self) -> str:
        """The kind that a fusion of this emitter is printed with. Source:
        PriorityFusion::ChooseKind.
        """
        if self is EmitterKind.LOOP:
            return "kLoop"
        is_input = self in (
            EmitterKind.REDUCTION,
            EmitterKind.TRANSPOSE,
            EmitterKind.CONCATENATE,
            EmitterKind.SCATTER,
        )
        return "kInput" if is_input else "kCustom"


# Kinds that XLA's own emitters do not write.
_NOT_OF_XLA = frozenset({EmitterKind.TRITON, EmitterKind.CUSTOM, EmitterKind.CUDNN})

TransposeTiling: TypeAlias = Callable[[MutableInstruction], TiledTranspose | None]
"""Returns how the tiled emitter transposes an instruction, None where it does not."""

HeroSearch: TypeAlias = Callable[
    [FusionBody, MutableInstruction, TransposeTiling], MutableInstruction
]
"""Returns the instruction that decides how a root is computed: one above it, or itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Emitters:
    """The abilities of the emitters of one compiler version, and how its passes
    recognise them.

    - ``tiles_copies``: copies that change the layout are tiled like transposes, and so are
      elementwise users of a tiled instruction.
    - ``tells_sizes_apart``: transposes of elements of different sizes cannot share a kernel.
    - ``loops_below_a_byte``: only plain loops read and write elements smaller than a byte.
    - ``has_slices``: several slices of arrays of one shape have an emitter.
    - ``looks_above_roots``: a fusion ends in a reduction if the hero of a root is one, and not only
      if a root itself is.
    - ``looks_at_producers``: the producer also decides the kind of a new fusion.
    - ``column_elements``: the shared memory of a column reduction, in elements.
    """

    tiled_transpose: TransposeTiling
    hero_search: HeroSearch
    tiles_copies: bool
    tells_sizes_apart: bool
    loops_below_a_byte: bool
    has_slices: bool
    looks_above_roots: bool
    looks_at_producers: bool
    column_elements: int

    def find_hero(self, body: FusionBody, root: MutableInstruction) -> MutableInstruction:
        """Return the instruction that decides how ``root`` is computed: one above it, or itself."""
        return self.hero_search(body, root, self.tiled_transpose)

    def are_alike(self, first: TiledTranspose, second: TiledTranspose) -> bool:
        """Return whether one kernel can compute both. Source:
        TransposeDescription::IsEquivalent.
        """
        return first.form == second.form and (
            not self.tells_sizes_apart or first.bits == second.bits
        )


@dataclass(frozen=True, slots=True, eq=False)
class Emission:
    """How a body would be emitted. ``heroes`` holds, for each root, the instruction that decides
    how it is computed. ``output_bits`` is the size of the narrowest element written.
    """

    body: FusionBody
    kind: EmitterKind
    roots: tuple[MutableInstruction, ...]
    heroes: tuple[MutableInstruction, ...]
    transpose: TiledTranspose | None
    output_bits: int

    @property
    def input_bits(self) -> int:
        """The size of the narrowest element read, in bits."""
        return _narrowest(self.body.parameters())


def is_generic_triton(instruction: MutableInstruction) -> bool:
    """Return whether an instruction is a Triton fusion that others can fuse with
    (IsGenericTritonFusion).
    """
    return instruction.is_custom_fusion and instruction.backend_kind == TRITON


def is_intermediate(instruction: MutableInstruction, operands: int) -> bool:
    """Return whether an instruction changes elements one by one, or not at all, and has 1 to
    ``operands`` operands.
    """
    if not 1 <= len(instruction.operands) <= operands:
        return False
    opcode = instruction.opcode
    source = instruction.operands[0].shape
    if is_elementwise(instruction):
        return opcode != "copy" or instruction.shape == source
    if opcode == "bitcast":
        return True
    if opcode == "reshape":
        same_type = source.element_type == instruction.shape.element_type
        return same_type and reshape_is_bitcast(source, instruction.shape)
    if opcode == "transpose":
        return transpose_is_bitcast(source, instruction.shape, instruction.attribute("dimensions"))
    return False


def find_hero(
    body: FusionBody, root: MutableInstruction, tiled: TransposeTiling
) -> MutableInstruction:
    """Return the instruction above ``root`` that decides how it is computed, or else ``root``
    itself.

    Source: xla/service/gpu/ir_emission_utils.cc, FindNonTrivialHero.
    """
    if not body.holds("concatenate", "reduce", "transpose"):
        return root
    hero = root
    while is_intermediate(hero, 1):
        above = body.resolve(hero.operands[0])
        if above not in body:
            break
        hero = above
    special_hero = None
    if body.holds("transpose"):
        special_hero = _find_only(body, hero, lambda instruction: tiled(instruction) is not None)
    if special_hero is None and body.holds("concatenate"):
        special_hero = _find_only(
            body, hero, lambda instruction: instruction.opcode == "concatenate"
        )
    if special_hero is not None:
        return special_hero
    return hero if hero.opcode == "reduce" else root


def _find_only(
    body: FusionBody,
    start: MutableInstruction,
    is_wanted: Callable[[MutableInstruction], bool],
) -> MutableInstruction | None:
    """Return the only wanted instruction above ``start`` with nothing but intermediate ones in
    between.

    Source: xla/codegen/ir_emission_utils.cc, FindHero.
    """
    candidates: list[MutableInstruction] = []

    def look(current: MutableInstruction) -> bool:
        if is_wanted(current):
            candidates.append(current)
            return False
        return is_intermediate(current, 3)

    body.search([start], look)
    if len(candidates) != 1:
        return None
    hero = candidates[0]
    below: list[MutableInstruction] = []

    def check(current: MutableInstruction) -> bool | None:
        if current.opcode not in ("tuple", "parameter") and not is_intermediate(current, 3):
            below.append(current)
            return None
        return True

    body.search(body.users(hero), check, up=False)
    return None if below else hero


def emission_of(body: FusionBody, device: Device, emitters: Emitters) -> Emission:
    """Source: HloFusionAnalysis::Create."""
    roots = body.roots
    heroes = [emitters.find_hero(body, root) for root in roots]
    transpose = _common_transpose(roots, heroes, emitters)
    output_bits = _narrowest(roots)
    kind = _kind(body, roots, heroes, transpose, device)
    if kind not in _NOT_OF_XLA:
        if emitters.loops_below_a_byte and min(_narrowest(body.parameters()), output_bits) < _BYTE:
            kind = EmitterKind.LOOP
        if emitters.has_slices and kind is EmitterKind.LOOP and _are_slices_of_one_shape(roots):
            kind = EmitterKind.SLICES
    if kind is EmitterKind.LOOP:
        heroes, transpose = roots, None
    return Emission(
        body,
        kind,
        tuple(roots),
        tuple(heroes),
        transpose,
        output_bits,
    )


def _narrowest(values: Iterable[MutableInstruction]) -> int:
    bits = (value.shape.bits for value in values if value.shape.is_array)
    return min(bits, default=_UNKNOWN_BITS)


def _common_transpose(
    roots: list[MutableInstruction], heroes: list[MutableInstruction], emitters: Emitters
) -> TiledTranspose | None:
    """Return the common tiled transpose of the roots that have one, if all other roots can be
    computed in its kernel.

    Source: FindConsistentTransposeHero.
    """
    common: TiledTranspose | None = None
    source: MutableInstruction | None = None
    other_roots: list[MutableInstruction] = []
    for root, hero in zip(roots, heroes, strict=True):
        transpose = emitters.tiled_transpose(hero)
        if transpose is None:
            other_roots.append(root)
        elif common is None:
            common, source = transpose, hero.operands[0]
        elif not emitters.are_alike(common, transpose):
            return None
    if source is not None and all(
        same_elements_in_memory(root.shape, source.shape) for root in other_roots
    ):
        return common
    return None


def configured_part(body: FusionBody) -> MutableInstruction | None:
    """Return the part whose backend-specific fusion kind applies: the consumer or, if that has
    none, the producer.
    """
    return next((part for part in reversed(body.parts) if part.backend_kind), None)


def _kind(
    body: FusionBody,
    roots: list[MutableInstruction],
    heroes: list[MutableInstruction],
    transpose: TiledTranspose | None,
    device: Device,
) -> EmitterKind:
    """Source: GetEmitterFusionKind."""
    part = configured_part(body)
    backend = part.backend_kind if part is not None else None
    if backend == "__custom_fusion":
        return EmitterKind.CUSTOM
    if backend in _TRITON_KINDS:
        return EmitterKind.TRITON
    if backend == "__cudnn$fusion":
        return EmitterKind.CUDNN
    if _is_reduction(body, roots, heroes, device):
        return EmitterKind.REDUCTION
    if transpose is not None:
        return EmitterKind.TRANSPOSE
    if len(roots) > 1:
        return EmitterKind.LOOP
    if roots[0].opcode == "scatter":
        return EmitterKind.SCATTER
    if roots[0].opcode == "sort":
        return EmitterKind.SORT
    hero = heroes[0]
    if (
        hero.opcode == "concatenate"
        and not roots[0].shape.is_tuple
        and len(hero.operands) <= _MOST_CONCATENATED
    ):
        return EmitterKind.CONCATENATE
    return EmitterKind.LOOP


def _are_slices_of_one_shape(roots: list[MutableInstruction]) -> bool:
    """Source: IsInputFusibleNonStridedSlices, AllSliceInputsAreCompatible."""
    return len(roots) > 1 and all(
        root.opcode == "slice"
        and all(span.step == 1 for span in slice_ranges(root))
        and same_but_for_type(root.operands[0].shape, roots[0].operands[0].shape)
        for root in roots
    )


def _is_reduction(
    body: FusionBody,
    roots: list[MutableInstruction],
    heroes: list[MutableInstruction],
    device: Device,
) -> bool:
    """Return whether there is a reduction, and all roots can be computed while its
    input is read.
    """
    pairs = list(zip(roots, heroes, strict=True))
    first = next((hero for root, hero in pairs if is_reduction_hero(root, hero, device)), None)
    if first is None:
        return False
    elements = body.operands(first)[0].shape.element_count
    for root, hero in pairs:
        if root is first:
            continue
        if is_reduction_hero(root, hero, device):
            if normal_reduction(hero) != normal_reduction(first):
                return False
        elif sum(leaf.element_count for leaf in leaves(root.shape)) != elements:
            return False
    return True
