"""A scatter of a few windows, such as rows of a cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from fusionscope.advise.recipes.example import Example
from fusionscope.advise.recipes.patterns import array, build, integers, put, scalar, text_of
from fusionscope.advise.recipes.recipe import Recipe, Site
from fusionscope.graph.mutable import MutableInstruction, MutableModule, replace_and_prune
from fusionscope.graph.properties import slice_ranges


@dataclass(frozen=True, slots=True)
class UpdateRows(Recipe):
    """A scatter has at most ``most`` windows."""

    most: int = 64
    id: ClassVar = "update-rows"
    title: ClassVar = "rows written one by one with `dynamic_update_slice` instead of a scatter"
    what: ClassVar = (
        "At most 64 rows, or other windows, are written to places of their own: by a `vmap` of "
        "`dynamic_update_slice`, or by `cache.at[batch, places].set(rows)`. One "
        "`dynamic_update_slice` after the other does the same. If the array is one layer of a "
        "larger one, such as the cache of all layers, which the result is written back into, the "
        "rows are written into the larger one."
    )
    why: ClassVar = (
        "On a TPU a scatter is a loop over its windows, and fused with nothing. Around it the "
        "layer is copied out of the larger array and back. Updates of single rows are made in "
        "place."
    )
    backfires: ClassVar = (
        "The program grows with each row. A place is taken to be inside of the array, as that of "
        "`dynamic_update_slice` is; where it is not known to be, the old row is read, too."
    )
    backends: ClassVar = frozenset({"tpu"})
    tolerance: ClassVar = 1e-6
    example: ClassVar = Example(
        ("f32[4,8,512,128]", "f32[8,128]", "s32[8]"),
        """
def program(caches, rows, places):
    def write(cache, row, place):
        return lax.dynamic_update_slice(cache, row[None], (place, 0))

    return caches.at[1].set(jax.vmap(write)(caches[1], rows, places))
""",
        """
def program(caches, rows, places):
    for number in range(len(rows)):
        row = rows[number][None, None, None]
        caches = lax.dynamic_update_slice(caches, row, (1, number, places[number], 0))
    return caches
""",
    )

    def find(self, graph: MutableModule, backend: str) -> Iterator[Site]:
        for instruction in list(graph.walk()):
            windows = _windows_of(instruction) if instruction.opcode == "scatter" else None
            if windows is not None and 1 < windows.count <= self.most:
                yield Site(instruction, partial(_rewrite, instruction, windows))


@dataclass(frozen=True, slots=True)
class _Windows:
    """``count`` windows of a scatter, which have ``sizes`` in the operand. A row of indices has
    their starts along the dimensions ``addressed``; the number of the window is that along
    ``batch``, if there is such a dimension. ``scattered`` is the dimension of the updates over the
    windows.
    """

    count: int
    sizes: tuple[int, ...]
    addressed: tuple[int, ...]
    batch: int | None
    scattered: int


@dataclass(frozen=True, slots=True)
class _Layer:
    """What a scatter changes is number ``index`` of ``whole`` along ``dimension``, and
    ``write_back`` puts the result in its place.
    """

    whole: MutableInstruction
    dimension: int
    index: int
    write_back: MutableInstruction


def _windows_of(scatter: MutableInstruction) -> _Windows | None:
    """Return the windows of a scatter that overwrites them, None if they are of another form."""
    if len(scatter.operands) != 3 or not _overwrites(scatter):
        return None
    operand, indices, updates = (value.shape for value in scatter.operands)
    if None in (*operand.dimensions, *indices.dimensions, *updates.dimensions):
        return None
    window = _integers(scatter, "update_window_dims")
    batches = _integers(scatter, "input_batching_dims")
    left_out = {*_integers(scatter, "inserted_window_dims"), *batches}
    scattered = [number for number in range(updates.rank) if number not in window]
    is_plain = (
        indices.rank == 2
        and scatter.attribute("index_vector_dim") == 1
        and len(scattered) == 1
        and len(batches) <= 1
        and len(window) == operand.rank - len(left_out)
        and _integers(scatter, "scatter_indices_batching_dims") in ((), (0,))
    )
    if not is_plain:
        return None
    lengths = iter([updates.dimensions[number] or 1 for number in window])
    sizes = tuple(1 if number in left_out else next(lengths) for number in range(operand.rank))
    return _Windows(
        count=updates.dimensions[scattered[0]] or 0,
        sizes=sizes,
        addressed=_integers(scatter, "scatter_dims_to_operand_dims"),
        batch=batches[0] if batches else None,
        scattered=scattered[0],
    )


def _overwrites(scatter: MutableInstruction) -> bool:
    root = scatter.called[0].root
    return root.opcode == "parameter" and root.parameter_number == 1


def _integers(instruction: MutableInstruction, name: str) -> tuple[int, ...]:
    return tuple(instruction.attribute(name) or ())


def _layer_of(scatter: MutableInstruction) -> _Layer | None:
    """Return the larger array whose part a scatter changes, if all of the result is written back
    there.
    """
    cut = _without_reshape(scatter.operands[0])
    if cut.opcode != "slice":
        return None
    (whole,) = cut.operands
    bounds = list(zip(slice_ranges(cut), whole.shape.dimensions, strict=True))
    parts = [number for number, (part, size) in enumerate(bounds) if len(part) != size]
    if len(parts) != 1 or len(bounds[parts[0]][0]) != 1:
        return None
    dimension, index = parts[0], bounds[parts[0]][0].start
    sizes = list(whole.shape.dimensions)
    del sizes[dimension]
    for user in scatter.users:
        windows = user.opcode == "scatter" and user.operands[0] is whole and _overwrites(user)
        if (
            windows
            and scatter.shape.dimensions == tuple(sizes)
            and user.operands[2] is scatter
            and scalar(user.operands[1]) == str(index)
            and _integers(user, "inserted_window_dims") == (dimension,)
            and _integers(user, "scatter_dims_to_operand_dims") == (dimension,)
            and len(_integers(user, "update_window_dims")) == len(sizes)
        ):
            return _Layer(whole, dimension, index, user)
    return None


def _without_reshape(value: MutableInstruction) -> MutableInstruction:
    while value.opcode == "reshape":
        value = value.operands[0]
    return value


def _rewrite(scatter: MutableInstruction, windows: _Windows) -> None:
    layer = _layer_of(scatter)
    if layer is None:
        put(
            scatter,
            "\n".join(_lines(scatter, windows, scatter.operands[0], (), None)),
            scatter.operands,
        )
        return
    whole, dimension, index = layer.whole, layer.dimension, layer.index
    lines = _lines(scatter, windows, whole, (index,), dimension)
    updated = build(scatter, "\n".join(lines), [whole, *scatter.operands[1:]])
    replace_and_prune(layer.write_back, updated)
    if scatter.parent is None:
        return
    bounds = [
        f"[{index}:{index + 1}]" if number == dimension else f"[0:{size}]"
        for number, size in enumerate(whole.shape.dimensions)
    ]
    sizes = [
        1 if number == dimension else size for number, size in enumerate(whole.shape.dimensions)
    ]
    cut = array(whole.shape.element_type, sizes)
    put(
        scatter,
        f"""
        part = {cut} slice(%p0), slice={{{", ".join(bounds)}}}
        ROOT layer = {text_of(scatter)} reshape(part)
        """,
        [updated],
    )


def _lines(
    scatter: MutableInstruction,
    windows: _Windows,
    target: MutableInstruction,
    index: Sequence[int],
    dimension: int | None,
) -> Iterator[str]:
    """Yield the updates of ``target``, which is what ``scatter`` changes, or an array of which it
    is number ``index`` along ``dimension``.
    """
    operand, indices, updates = (value.shape for value in scatter.operands)
    kind, index_kind = operand.element_type, indices.element_type
    sizes = list(windows.sizes)
    if dimension is not None:
        sizes.insert(dimension, 1)
    window, mask = array(kind, sizes), array("pred", sizes)
    row_sizes = [
        1 if number == windows.scattered else size or 1
        for number, size in enumerate(updates.dimensions)
    ]
    is_inside = _is_inside(scatter, windows)
    yield f"zero = {index_kind}[] constant(0)"
    if index:
        yield f"layer = {index_kind}[] constant({index[0]})"
    previous = "%p0"
    for number in range(windows.count):
        cuts = ", ".join(
            f"[{number}:{number + 1}]" if place == windows.scattered else f"[0:{size}]"
            for place, size in enumerate(updates.dimensions)
        )
        starts = dict.fromkeys(range(operand.rank), "zero")
        if windows.batch is not None:
            yield f"batch{number} = {index_kind}[] constant({number})"
            starts[windows.batch] = f"batch{number}"
        conditions = []
        for column, place in enumerate(windows.addressed):
            name = f"start{number}_{column}"
            bounds = f"[{number}:{number + 1}], [{column}:{column + 1}]"
            yield f"cell{name} = {index_kind}[1,1] slice(%p1), slice={{{bounds}}}"
            yield f"{name} = {index_kind}[] reshape(cell{name})"
            starts[place] = name
            if not is_inside:
                last = (operand.dimensions[place] or 1) - windows.sizes[place]
                yield f"last{name} = {index_kind}[] constant({last})"
                yield f"clamped{name} = {index_kind}[] clamp(zero, {name}, last{name})"
                yield f"is{name} = pred[] compare(clamped{name}, {name}), direction=EQ"
                starts[place] = f"clamped{name}"
                conditions.append(f"is{name}")
        places = [starts[place] for place in range(operand.rank)]
        if dimension is not None:
            places.insert(dimension, "layer")
        at = ", ".join(places)
        yield f"part{number} = {array(kind, row_sizes)} slice(%p2), slice={{{cuts}}}"
        new = f"new{number}"
        yield f"{new} = {window} reshape(part{number})"
        if conditions:
            inside, *further_conditions = conditions
            for count, condition in enumerate(further_conditions):
                yield f"all{number}_{count} = pred[] and({inside}, {condition})"
                inside = f"all{number}_{count}"
            attribute = f"dynamic_slice_sizes={integers(sizes)}"
            yield f"old{number} = {window} dynamic-slice({previous}, {at}), {attribute}"
            yield f"mask{number} = {mask} broadcast({inside}), dimensions={{}}"
            yield f"row{number} = {window} select(mask{number}, {new}, old{number})"
            new = f"row{number}"
        root = "ROOT " if number == windows.count - 1 else ""
        yield (
            f"{root}written{number} = {text_of(target)} "
            f"dynamic-update-slice({previous}, {new}, {at})"
        )
        previous = f"written{number}"


def _is_inside(scatter: MutableInstruction, windows: _Windows) -> bool:
    """Return whether the indices are clamped so that all windows are inside of the operand."""
    indices, operand = scatter.operands[1], scatter.operands[0].shape
    if indices.opcode != "clamp" or scalar(indices.operands[0]) != "0":
        return False
    limits = indices.operands[2]
    while limits.opcode == "broadcast":
        limits = limits.operands[0]
    if limits.opcode != "constant" or limits.shape.dimensions != (len(windows.addressed),):
        return False
    expected = [
        (operand.dimensions[place] or 1) - windows.sizes[place] for place in windows.addressed
    ]
    literal = (limits.literal or "").strip("{ }").split(",")
    return [number.strip() for number in literal] == list(map(str, expected))
