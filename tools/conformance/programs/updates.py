"""Writing into buffers, joining and cutting arrays, for the replay of the CPU fusion passes."""

import jax
import jax.numpy as jnp
from jax import lax


def same_row(buffer):
    def step(index, buffer):
        row = lax.dynamic_slice(buffer, (index, 0), (1, buffer.shape[1]))
        return lax.dynamic_update_slice(buffer, jnp.tanh(row) + 1.0, (index, 0))

    return lax.fori_loop(0, buffer.shape[0], step, buffer)


def two_rows_on(buffer):
    def step(index, buffer):
        row = lax.dynamic_slice(buffer, (index, 0), (2, buffer.shape[1]))
        return lax.dynamic_update_slice(buffer, row[::-1] * 0.5, (index + 2, 0))

    return lax.fori_loop(0, buffer.shape[0] - 3, step, buffer)


def scaled_around(buffer, row, column):
    doubled = buffer * 2.0 + 1.0
    patch = lax.dynamic_slice(doubled, (row, column), (5, 9))
    written = lax.dynamic_update_slice(doubled, jnp.sqrt(jnp.abs(patch)), (row, column))
    return written, doubled.sum(axis=0)


def several_writes(buffer, rows, position):
    for shift, row in enumerate(rows):
        buffer = lax.dynamic_update_slice(
            buffer, (row * buffer[shift])[None], (position + shift, 0)
        )
    return buffer


def half_write(buffer, values, position):
    return lax.dynamic_update_slice(buffer, (values * 3.0).astype(jnp.bfloat16), (0, position, 0))


def scattered(values, places, changes):
    smallest = values.at[places].min(changes)
    product = values.at[places].multiply(changes, unique_indices=True)
    return smallest, product, values.at[places, ::2].apply(jnp.exp), values.at[places].get() * 2.0


def scattered_patches(image, corners, patches):
    def put(image, corner, patch):
        return lax.dynamic_update_slice(jnp.zeros_like(image), patch, (corner[0], corner[1]))

    placed = jax.vmap(put, in_axes=(None, 0, 0))(image, corners, patches)
    cut = jax.vmap(lambda corner: lax.dynamic_slice(image, (corner[0], corner[1]), (4, 6)))(corners)
    return image + placed.sum(axis=0), cut.max(axis=(1, 2)) - patches.min(axis=(1, 2))


def static_writes(values):
    values = values.at[1::3].set(0.0).at[:, -1].add(values[:, 0])
    values = values.at[::-2, 5:40].multiply(2.0)
    return values.at[3:8, 3:8].set(values[4:9, 2:7]), values.at[0, 0].set(values.max())


def ring(buffer, count, item):
    place = count % buffer.shape[0]
    buffer = buffer.at[place].set(item)
    newest_first = jnp.roll(buffer[::-1], place + 1, axis=0)
    return buffer, count + 1, (newest_first * 0.9 ** jnp.arange(buffer.shape[0])[:, None]).sum(0)


def few_parts(first, second, third):
    joined = jnp.concatenate([first + 1.0, jnp.sin(second), third[::-1]])
    return joined * joined.mean(), joined[150:333]


def many_parts(parts):
    changed = [jnp.abs(part) - i if i % 3 else part * part for i, part in enumerate(parts)]
    joined = jnp.concatenate(changed, axis=-1)
    return joined / (1.0 + joined.sum(axis=-1, keepdims=True)), joined[:, ::7].astype(jnp.bfloat16)


def nested_parts(parts):
    left = jnp.concatenate(parts[:4], axis=1)
    right = jnp.concatenate(parts[3:], axis=1)
    return jnp.concatenate([jnp.exp(left), right - left], axis=0).max(axis=1)


def padded(values):
    spread = lax.pad(values * 2.0, -1.0, ((1, 2, 1), (-1, 0, 0), (0, -3, 2)))
    return jnp.cos(spread), jnp.pad(values, ((0, 0), (2, 1), (0, 0)), mode="reflect")[::-1, :, ::3]


def unstacked(values):
    planes = [jnp.squeeze(plane, 2) for plane in jnp.split(values, values.shape[2], axis=2)]
    mixed = [left * right for left, right in zip(planes, planes[1:] + planes[:1], strict=True)]
    return jnp.stack(mixed[::-1], axis=1), jnp.hstack(mixed), jnp.stack(planes).min(axis=0)


def many_axes(first, second):
    joined = jnp.einsum("abcdef,dgcb->aefg", first, second)
    turned = first.transpose(5, 0, 3, 1, 4, 2) + 1.0
    return jnp.tanh(joined), turned.sum(axis=(1, 3, 5)), jnp.einsum("abcdef->fa", first)


def eliminated(matrix):
    """Gaussian elimination in place, without pivots."""
    size = matrix.shape[0]

    def step(column, matrix):
        factors = matrix[:, column] / matrix[column, column]
        factors = jnp.where(jnp.arange(size) > column, factors, 0.0)
        matrix = matrix - factors[:, None] * matrix[column]
        return matrix.at[:, column].add(factors)

    return lax.fori_loop(0, size - 1, step, matrix)


def edit_distance(first, second):
    def row(above, letter):
        def cell(left, inputs):
            corner, over, other = inputs
            best = jnp.minimum(jnp.minimum(left, over) + 1, corner + (letter != other))
            return best, best

        _, rest = lax.scan(cell, above[0] + 1, (above[:-1], above[1:], second))
        return jnp.concatenate([above[:1] + 1, rest]), None

    return lax.scan(row, jnp.arange(second.shape[0] + 1), first)[0][-1]


def swapped(front, back):
    def step(index, carry):
        front, back = carry
        back = back.at[index].set(front.mean(axis=0))
        return back, front * 0.99

    return lax.fori_loop(0, 10, step, (front, back))


def chosen_writes(buffer, items):
    def step(carry, item):
        buffer, top = carry
        push = item > 0.0
        pushed = lax.dynamic_update_index_in_dim(buffer, item, top, 0)
        buffer = lax.cond(push, lambda: pushed, lambda: buffer * 0.5)
        return (buffer, jnp.clip(top + jnp.where(push, 1, -1), 0, 99)), buffer[top]

    return lax.scan(step, (buffer, 3), items)


def sieve(flags):
    places = jnp.arange(flags.shape[0])

    def step(carry):
        number, flags = carry
        crossed = (places % number == 0) & (places > number)
        return number + 1, flags & ~crossed

    return lax.while_loop(lambda c: c[0] ** 2 < flags.shape[0], step, (2, flags))[1].sum()


def thin(values, nothing):
    wide = jnp.concatenate([values * 2.0, nothing, values[:, :0] + 1.0], axis=1)
    return wide.squeeze(), nothing.sum(axis=1), jnp.broadcast_to(values, (3, 4, 5, 1)) - 1.0


matrix, place = ("f32", (73, 91)), ("s32", ())

programs = {
    "same_row": (same_row, (matrix,), {"donate": (0,)}),
    "two_rows_on": (two_rows_on, (("f32", (40, 129)),)),
    "scaled_around": (scaled_around, (matrix, place, place)),
    "several_writes": (several_writes, (matrix, [("f32", (91,))] * 4, place), {"donate": (0,)}),
    "half_write": (half_write, (("bf16", (3, 100, 17)), ("f32", (3, 8, 17)), place)),
    "scattered": (scattered, (("f32", (90, 31)), ("s32", (22,)), ("f32", (22, 31)))),
    "scattered_add": (
        lambda x, i, u: x.at[i[:, 0], :, i[:, 1]].add(u * u, mode="drop"),
        (("f32", (12, 5, 14)), ("s32", (33, 2)), ("f32", (33, 5))),
    ),
    "scattered_patches": (
        scattered_patches,
        (("f32", (30, 47)), ("s32", (9, 2)), ("f32", (9, 4, 6))),
    ),
    "static_writes": (static_writes, (("f32", (55, 43)),)),
    "ring": (ring, (("f32", (36, 10)), place, ("f32", (10,))), {"donate": (0, 1)}),
    "few_parts": (few_parts, (("f32", (101,)), ("f32", (299,)), ("f32", (150,)))),
    "many_parts": (many_parts, ([("f32", (6, 100 + 10 * i)) for i in range(20)],)),
    "nested_parts": (nested_parts, ([("f32", (21, 120))] * 7,)),
    "padded": (padded, (("f32", (7, 11, 13)),)),
    "unstacked": (unstacked, (("f32", (10, 23, 6)),)),
    "many_axes": (many_axes, (("f32", (2, 3, 4, 5, 6, 1)), ("f32", (5, 8, 4, 3)))),
    "eliminated": (eliminated, (("f32", (38, 38)),)),
    "edit_distance": (edit_distance, (("u8", (31,)), ("u8", (44,)))),
    "swapped": (swapped, (("f32", (20, 15, 3)), ("f32", (20, 15, 3)))),
    "chosen_writes": (chosen_writes, (("f32", (100,)), ("f32", (60,)))),
    "sieve": (sieve, (("pred", (5000,)),)),
    "thin": (thin, (("f32", (1, 4, 1, 1)), ("f32", (1, 0, 1, 1)))),
}
