"""Steps assembled from jitted helpers: networks, memories, caches, trees, lenses and cloth."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax


@jax.jit
def root_norm(values, scale):
    """Division by the root of the mean square over the last axis."""
    wide = values.astype(jnp.float32)
    length = lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + 1e-6)
    return (wide * length).astype(values.dtype) * scale


@jax.jit
def two_relus(weights, values):
    """Two layers, the last of them plain."""
    first, second = weights
    return jax.nn.relu(values @ first) @ second


def shifted_windows(layers, images, wanted):
    """Attention inside windows, which the second layer shifts by half a window."""
    size, heads = 4, 3
    _, height, width, channels = images.shape
    places = jnp.arange(size * size)
    down, across = (side[:, None] - side + size - 1 for side in (places >> 2, places & 3))
    apart = down * (2 * size - 1) + across

    @jax.jit
    def parted(field):
        parts = field.reshape(-1, height // size, size, width // size, size, field.shape[-1])
        parts = parts.transpose(0, 1, 3, 2, 4, 5)
        return parts.reshape(field.shape[0], -1, size * size, field.shape[-1])

    @jax.jit
    def looked(layer, windows, alike):
        parts = (windows @ layer["enter"]).reshape(*windows.shape[:3], 3, heads, 16)
        query, key, value = parts[:, :, :, 0], parts[:, :, :, 1], parts[:, :, :, 2]
        scores = jnp.einsum("bwqhd,bwkhd->bwhqk", query, key) * 0.25
        bias = layer["bias"].at[:, apart].get(mode="promise_in_bounds")
        scores = (scores + bias).astype(jnp.float32)
        shares = jax.nn.softmax(jnp.where(alike[:, None], scores, -1e4), axis=-1)
        mixed = jnp.einsum("bwhqk,bwkhd->bwqhd", shares.astype(value.dtype), value)
        return mixed.reshape(windows.shape) @ layer["leave"]

    def turned(field, shift):
        if shift == 0:
            return field
        field = jnp.concatenate([field[:, shift:], field[:, :shift]], axis=1)
        return jnp.concatenate([field[:, :, shift:], field[:, :, :shift]], axis=2)

    hidden = images
    for layer, shift in zip(layers, (0, size // 2), strict=True):
        regions = 2.0 * (jnp.arange(height) >= height - shift)[:, None]
        regions = parted((regions + (jnp.arange(width) >= width - shift))[None, ..., None])[0]
        windows = parted(turned(root_norm(hidden, layer["scale"]), shift))
        mixed = looked(layer, windows, regions == regions.swapaxes(1, 2))
        mixed = mixed.reshape(-1, height // size, width // size, size, size, channels)
        mixed = mixed.transpose(0, 1, 3, 2, 4, 5).reshape(images.shape)
        hidden = hidden + turned(mixed, -shift)
    return jnp.square((hidden - wanted).astype(jnp.float32)).mean()


def integer_layers(layers, tables, signal):
    """Layers that never leave the integers: bytes, wide sums, fixed points, looked-up curves."""

    @jax.jit
    def rescaled(total, factor, shift):
        half = lax.shift_left(jnp.int32(1), shift - 1)
        return jnp.clip(((total >> 6) * factor + half) >> shift, -128, 127).astype(jnp.int8)

    @jax.jit
    def looked_up(values, table):
        return table[values.astype(jnp.int32) + 128]

    @jax.jit
    def saturated(left, right):
        total = left.astype(jnp.int16) + right.astype(jnp.int16)
        return jnp.clip(total, -128, 127).astype(jnp.int8)

    hidden = signal
    for (taps, weight, bias, factor, shift), table in zip(layers, tables, strict=True):
        padded = jnp.pad(hidden, ((0, 0), (2, 0), (0, 0))).astype(jnp.int32)
        along = sum(
            padded[:, place : place + hidden.shape[1]] * taps[place].astype(jnp.int32)
            for place in range(3)
        )
        along = rescaled(along, factor, shift)
        total = lax.dot_general(
            along, weight, (((2,), (0,)), ((), ())), preferred_element_type=jnp.int32
        )
        inner = looked_up(rescaled(total + bias, factor, shift), table)
        hidden = saturated(hidden, inner)
    pooled = lax.reduce_window(hidden, jnp.int8(-128), lax.max, (1, 4, 1), (1, 4, 1), "VALID")
    mean = pooled.astype(jnp.int32).sum(axis=1) // pooled.shape[1]
    powers = lax.shift_left(
        jnp.int32(1), jnp.clip((mean - mean.max(1, keepdims=True)) // 8 + 20, 0, 20)
    )
    return hidden, (powers << 7) // (powers.sum(axis=1, keepdims=True) >> 3), pooled.argmax(axis=1)


def chirped_radar(echoes, pulse):
    """From echoes to distances, speeds and directions: compressed, turned, and compared around."""
    _, pulses, samples = echoes.shape

    @partial(jax.jit, static_argnums=1)
    def tapered(values, axis):
        size = values.shape[axis]
        angle = 2.0 * jnp.pi * jnp.arange(size) / (size - 1)
        window = 0.42 - 0.5 * jnp.cos(angle) + 0.08 * jnp.cos(2.0 * angle)
        return values * jnp.expand_dims(window, [a for a in range(values.ndim) if a != axis])

    @partial(jax.jit, static_argnums=(1, 2))
    def around(power, tall, wide):
        total = jnp.pad(power, ((tall + 1, tall), (wide + 1, wide)), mode="wrap")
        total = jnp.cumsum(jnp.cumsum(total, axis=0), axis=1)
        tall, wide = 2 * tall + 1, 2 * wide + 1
        upper = total[:-tall, wide:] - total[:-tall, :-wide]
        return total[tall:, wide:] - total[tall:, :-wide] - upper

    known = jnp.conj(jnp.fft.fft(pulse, samples))
    close = jnp.fft.ifft(jnp.fft.fft(echoes, axis=-1) * known, axis=-1)
    close = close - close.mean(axis=1, keepdims=True)
    speeds = jnp.fft.fftshift(jnp.fft.fft(tapered(close, 1), axis=1), axes=1)
    power = (jnp.square(speeds.real) + jnp.square(speeds.imag)).sum(axis=0)
    noise = (around(power, 4, 9) - around(power, 1, 2)) / (9 * 19 - 3 * 5)
    peak = lax.reduce_window(power, -jnp.inf, lax.max, (3, 3), (1, 1), "SAME")
    ratio = jnp.where(power == peak, power / (noise + 1e-9), 0.0)
    best, cells = lax.top_k(ratio.ravel(), 10)
    row, column = lax.div(cells, samples), lax.rem(cells, samples)
    across = jnp.fft.fft(tapered(speeds[:, row, column], 0), 64, axis=0)
    angle = jnp.abs(jnp.fft.fftshift(across, axes=0)).argmax(axis=0)
    found = best > 13.0
    return jnp.where(found, column, -1), row - pulses // 2, angle, 10.0 * jnp.log10(best + 1e-9)


def lens_stack(phases, images, labels):
    """Light through a row of thin plates that shall gather it at one place for each label."""
    size = phases.shape[1]
    waves = jnp.square(jnp.minimum(jnp.arange(size), size - jnp.arange(size)) / size)
    along = 75.4 * jnp.sqrt(1.0 - waves[:, None] - waves)
    onward = lax.complex(jnp.cos(along), jnp.sin(along))

    @jax.jit
    def carried(field):
        return jnp.fft.ifft2(jnp.fft.fft2(field) * onward)

    def plate(field, phase):
        return carried(field) * lax.complex(jnp.cos(phase), jnp.sin(phase)), None

    edge = (size - images.shape[1]) // 2
    field = jnp.pad(images, ((0, 0), (edge, edge), (edge, edge))).astype(jnp.complex64)
    field = carried(lax.scan(plate, field, phases)[0])
    light = jnp.square(field.real) + jnp.square(field.imag)
    spots = light.reshape(-1, 4, size // 4, 4, size // 4).sum(axis=(2, 4)).reshape(-1, 16)
    spots = spots / spots.sum(axis=1, keepdims=True)
    chances = jax.nn.log_softmax(20.0 * spots) * jax.nn.one_hot(labels, 16)
    return -chances.sum(axis=1).mean(), spots


def hashed_field(tables, weights, places, wanted):
    """A field of colours whose corners at every size lie where a hash of them says."""
    corners = jnp.stack(jnp.meshgrid(*[jnp.arange(2)] * 3, indexing="ij"), -1).reshape(-1, 3)
    primes = jnp.array([1, 2654435761, 805459861], dtype=jnp.uint32)

    @jax.jit
    def looked_up(table, size):
        low = jnp.floor(places * size)
        part = (places * size - low)[:, None]
        mixed = (low[:, None].astype(jnp.int32) + corners).astype(jnp.uint32) * primes
        row = (mixed[..., 0] ^ mixed[..., 1] ^ mixed[..., 2]) & jnp.uint32(table.shape[0] - 1)
        share = jnp.where(corners == 1, part, 1.0 - part).prod(axis=-1)
        return jnp.einsum("nc,ncf->nf", share.astype(table.dtype), table[row])

    sizes = 8.0 * 1.6 ** jnp.arange(tables.shape[0])
    hidden = jax.vmap(looked_up, out_axes=1)(tables, sizes).reshape(places.shape[0], -1)
    found = jax.nn.sigmoid(two_relus(weights, hidden).astype(jnp.float32))
    apart = jnp.abs(found - wanted)
    loss = jnp.where(apart < 0.1, 5.0 * apart * apart, apart - 0.05).mean()
    return loss + 1e-4 * jnp.square(tables.astype(jnp.float32)).mean()


windowed = {
    "scale": ("f16", (48,)),
    "enter": ("f16", (48, 144)),
    "bias": ("f16", (3, 49)),
    "leave": ("f16", (48, 48)),
}
whole_layer = (("s8", (3, 72)), ("s8", (72, 72)), ("s32", (72,)), ("s32", ()), ("s32", ()))

programs = {
    "shifted_windows_gradient": (
        jax.grad(shifted_windows),
        ([windowed, windowed], ("f16", (3, 16, 24, 48)), ("f16", (3, 16, 24, 48))),
    ),
    "integer_layers": (
        integer_layers,
        ([whole_layer] * 2, [("s8", (256,))] * 2, ("s8", (7, 60, 72))),
    ),
    "chirped_radar": (chirped_radar, (("c64", (6, 48, 320)), ("c64", (70,)))),
    "lens_stack_gradient": (
        jax.value_and_grad(lens_stack, has_aux=True),
        (("f32", (4, 56, 56)), ("f32", (5, 30, 30)), ("s32", (5,))),
    ),
    "hashed_field_gradient": (
        jax.value_and_grad(hashed_field, argnums=(0, 1)),
        (
            ("f16", (5, 1024, 2)),
            (("f16", (10, 36)), ("f16", (36, 3))),
            ("f32", (230, 3)),
            ("f32", (230, 3)),
        ),
    ),
}
