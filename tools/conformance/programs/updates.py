"""Writing into buffers, joining and cutting arrays, for the replay of the CPU fusion passes."""

import jax.numpy as jnp
from jax import lax


def scaled_around(buffer, row, column):
    doubled = buffer * 2.0 + 1.0
    patch = lax.dynamic_slice(doubled, (row, column), (5, 9))
    written = lax.dynamic_update_slice(doubled, jnp.sqrt(jnp.abs(patch)), (row, column))
    return written, doubled.sum(axis=0)


def static_writes(values):
    values = values.at[1::3].set(0.0).at[:, -1].add(values[:, 0])
    values = values.at[::-2, 5:40].multiply(2.0)
    return values.at[3:8, 3:8].set(values[4:9, 2:7]), values.at[0, 0].set(values.max())


def padded(values):
    spread = lax.pad(values * 2.0, -1.0, ((1, 2, 1), (-1, 0, 0), (0, -3, 2)))
    return jnp.cos(spread), jnp.pad(values, ((0, 0), (2, 1), (0, 0)), mode="reflect")[::-1, :, ::3]


def edit_distance(first, second):
    def row(above, letter):
        def cell(left, inputs):
            corner, over, other = inputs
            best = jnp.minimum(jnp.minimum(left, over) + 1, corner + (letter != other))
            return best, best

        _, rest = lax.scan(cell, above[0] + 1, (above[:-1], above[1:], second))
        return jnp.concatenate([above[:1] + 1, rest]), None

    return lax.scan(row, jnp.arange(second.shape[0] + 1), first)[0][-1]


matrix, place = ("f32", (73, 91)), ("s32", ())

programs = {
    "scaled_around": (scaled_around, (matrix, place, place)),
    "static_writes": (static_writes, (("f32", (55, 43)),)),
    "padded": (padded, (("f32", (7, 11, 13)),)),
    "edit_distance": (edit_distance, (("u8", (31,)), ("u8", (44,)))),
}
