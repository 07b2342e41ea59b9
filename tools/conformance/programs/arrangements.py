"""Moving elements: transposes, joins, cuts, padding, writes in place, gathers and scatters."""

import jax
import jax.numpy as jnp
from jax import lax


def turned_planes(images):
    """Channels last to channels first in two number types, the bytes scaled on the way."""
    planes = images.transpose(0, 3, 1, 2)
    return planes, planes.astype(jnp.bfloat16) / 255, images[..., ::-1].transpose(3, 0, 1, 2)


def turned_matrices(half, bytes_, flags, wide):
    """The plain transpose of each width of number, with a little work on either side."""
    return (half * 2).T, bytes_.T + 1, ~flags.T, jnp.sin(wide).T, half.T @ half


def heads_apart(inputs, scale):
    """Heads split off and joined again, with keys laid out for the product."""
    batch, time, width = inputs.shape
    heads = inputs.reshape(batch, time, 12, width // 12)
    key = (heads * scale).transpose(0, 2, 3, 1)
    value = jnp.tanh(heads).transpose(0, 2, 1, 3)
    joined = value.transpose(0, 2, 1, 3).reshape(inputs.shape)
    return key, value, joined + inputs


def odd_turns(small, thin, deep):
    """Transposes of few elements, of a thin side, and of many dimensions."""
    return (
        small.T + 1.0,
        (thin * 3.0).T,
        jnp.einsum("abcde->ecadb", deep) - 1.0,
        deep.swapaxes(0, 4).sum(axis=2),
        jnp.rot90(thin),
    )


def sum_after_turn(values):
    """Reductions over transposed values, and transposed reductions."""
    turned = jnp.exp(values).transpose(2, 0, 1)
    return turned.sum(axis=-1), turned.max(axis=0), values.sum(axis=0).T, turned / turned.sum()


def record_rows(columns, flags):
    """Columns of a table encoded and joined to rows: one-hot parts, scaled parts, flags."""
    parts = [(column - column.mean()) / (column.std() + 1e-6) for column in columns[:6]]
    hot = [jax.nn.one_hot(jnp.clip(column, 0, 6).astype(jnp.int32), 7) for column in columns[6:]]
    flat = jnp.stack([*parts, *(flag.astype(jnp.float32) for flag in flags)], axis=1)
    return jnp.concatenate([flat, *hot], axis=1)


def hundred_parts(parts):
    """Flattened weights in one vector, its norm, and the vector cut up again."""
    flat = jnp.concatenate([part.reshape(-1) for part in parts])
    flat = flat * jnp.minimum(1.0, 1.0 / jnp.linalg.norm(flat))
    sizes, total = [part.size for part in parts], 0
    cut = []
    for part, size in zip(parts, sizes, strict=True):
        cut.append(lax.dynamic_slice_in_dim(flat, total, size).reshape(part.shape))
        total += size
    return flat, cut


def merged_halves(left, right, middle):
    """Joins of two, three and four parts along each axis, read by sums and by products."""
    two = jnp.concatenate([jnp.sin(left), right], axis=0)
    three = jnp.concatenate([left, middle, right * 2.0], axis=1)
    four = jnp.concatenate([left, -left, right, -right], axis=-1)
    mixed = jnp.stack([left, right], axis=-1).reshape(left.shape[0], -1)
    return two.sum(axis=0), jnp.tanh(three), four @ four.T, mixed


def bordered(images, kernel):
    """Images padded by zeros, by their edge, by reflection, and around, then smoothed."""
    forms = ("constant", "edge", "reflect", "wrap")
    spread = ((0, 0), (2, 2), (3, 3))
    padded = [jnp.pad(images, spread, mode=form) for form in forms]
    smoothed = [
        sum(kernel[i] * image[:, i : i + images.shape[1]] for i in range(5)) for image in padded
    ]
    return jnp.stack(smoothed).mean(axis=0), lax.pad(images, 0.0, [(0, 0, 0), (1, 0, 1), (0, 1, 2)])


def cache_writes(cache, entries, positions):
    """Each row of a batch writes its entry at its own place; the oldest are read back."""

    def write(row, entry, position):
        return lax.dynamic_update_slice(row, entry[None], (position, 0, 0))

    cache = jax.vmap(write)(cache, entries, positions)
    oldest = jax.vmap(lambda row, position: lax.dynamic_slice_in_dim(row, position - 4, 4))
    return cache, oldest(cache, positions).astype(jnp.float32).mean(axis=1)


def filled_table(rows, weights):
    """A table filled row by row, each row from the two before it."""

    def fill(index, table):
        before = lax.dynamic_slice_in_dim(table, index - 2, 2)
        new = jnp.tanh(before[1] @ weights + 0.5 * before[0] + rows[index])
        return lax.dynamic_update_slice_in_dim(table, new[None], index, axis=0)

    table = jnp.zeros_like(rows).at[:2].set(rows[:2])
    return lax.fori_loop(2, rows.shape[0], fill, table)


def tiled_update(matrix, block, row, column):
    """A tile read, changed and written back, next to a write that is in the way."""
    tile = lax.dynamic_slice(matrix, (row, column), block.shape)
    changed = lax.dynamic_update_slice(matrix, tile * 0.9 + block, (row, column))
    crossed = lax.dynamic_update_slice(matrix, jnp.flip(tile), (column, row))
    return changed, crossed.sum(axis=1), matrix[:5] + changed[-5:]


def sparse_rows(table, places, change):
    """An optimizer on the rows that a batch used: repeated rows added, moments in place."""
    weights, sums = table
    total = jnp.zeros_like(weights).at[places].add(change)
    count = jnp.zeros(weights.shape[0], jnp.int32).at[places].add(1)
    square = jnp.square(total).sum(axis=-1)
    sums = sums.at[places].max(square[places])
    step = total * lax.rsqrt(sums + 1e-8)[:, None]
    return jnp.where((count > 0)[:, None], weights - 0.1 * step, weights), sums


def looked_up(tables, tokens, segments):
    """Embeddings of words, places and segments added, and their gradients scattered back."""
    words, places, kinds = tables
    hidden = words[tokens] + places[: tokens.shape[1]] + kinds[segments]
    mean = hidden.mean(axis=-1, keepdims=True)
    spread = hidden.std(axis=-1, keepdims=True)
    return jnp.abs((hidden - mean) / (spread + 1e-6)).mean()


def many_readers(values, weights):
    """One costly value and its many readers, near and far."""
    costly = jnp.tanh(jnp.exp(-values) @ weights) ** 3
    rolled = [jnp.roll(costly, shift, axis=0) * shift for shift in (1, 2, 3, 5, 8, 13)]
    return (
        sum(rolled),
        costly.T,
        costly[::2, ::3],
        costly.sum(axis=0),
        jnp.concatenate([costly, costly[:, :7]], axis=1),
        jnp.flip(costly, axis=1) - costly,
        lax.dynamic_slice(costly, (3, 4), (10, 11)),
    )


def doubling(values):
    """Values that each read the one before twice, until the code of one kernel would be long."""
    for shift in range(1, 18):
        values = jnp.sin(values) + jnp.cos(jnp.roll(values, shift))
    return values


def many_inputs(arrays, scales):
    """More arrays in one sum than one kernel may read."""
    return sum(array * scale for array, scale in zip(arrays, scales, strict=True))


half, matrix = ("bf16", (320, 448)), ("f32", (64, 80))

programs = {
    "turned_planes": (turned_planes, (("u8", (8, 56, 40, 3)),)),
    "turned_matrices": (
        turned_matrices,
        (half, ("s8", (1024, 512)), ("pred", (90, 250)), ("f32", (333, 130))),
    ),
    "heads_apart": (heads_apart, (("bf16", (3, 200, 768)), ("bf16", (64,)))),
    "odd_turns": (
        odd_turns,
        (("f32", (7, 13)), ("f32", (3, 5000)), ("f32", (2, 6, 8, 10, 16))),
    ),
    "sum_after_turn": (sum_after_turn, (("f32", (24, 65, 48)),)),
    "record_rows": (record_rows, ([("f32", (1733,))] * 11, [("pred", (1733,))] * 3)),
    "hundred_parts": (
        hundred_parts,
        ([("f32", (3 + i % 7, 10 + i)) for i in range(140)],),
    ),
    "merged_halves": (merged_halves, (matrix, matrix, ("f32", (64, 33)))),
    "bordered": (bordered, (("f32", (4, 70, 81)), ("f32", (5,)))),
    "cache_writes": (
        cache_writes,
        (("f16", (8, 300, 4, 32)), ("f16", (8, 4, 32)), ("s32", (8,))),
        {"donate": (0,)},
    ),
    "filled_table": (filled_table, (("f32", (150, 44)), ("f32", (44, 44)))),
    "tiled_update": (
        tiled_update,
        (("f32", (200, 200)), ("f32", (16, 16)), ("s32", ()), ("s32", ())),
        {"donate": (0,)},
    ),
    "sparse_rows": (
        sparse_rows,
        ((("f32", (4000, 24)), ("f32", (4000,))), ("s32", (350,)), ("f32", (350, 24))),
        {"donate": (0,)},
    ),
    "looked_up_gradient": (
        jax.grad(looked_up),
        (
            (("f32", (3000, 96)), ("f32", (128, 96)), ("f32", (2, 96))),
            ("s32", (6, 100)),
            ("s32", (6, 100)),
        ),
    ),
    "many_readers": (many_readers, (("f32", (150, 60)), ("f32", (60, 60)))),
    "doubling": (doubling, (("f32", (40000,)),)),
    "many_inputs": (many_inputs, ([("f32", (50, 31))] * 120, [("f32", ())] * 120)),
}
