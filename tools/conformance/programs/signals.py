"""Transforms, sorts, quantisation and bit tricks, for the replay of the CPU fusion passes."""

import jax
import jax.numpy as jnp
from jax import lax


def fast_convolution(signals, kernel):
    length = signals.shape[-1] + kernel.shape[-1] - 1
    product = jnp.fft.rfft(signals, length) * jnp.fft.rfft(kernel, length)
    return jnp.fft.irfft(product, length)[..., kernel.shape[-1] // 2 :][..., : signals.shape[-1]]


def spectrogram(signal):
    starts = jnp.arange(0, signal.shape[0] - 256, 96)
    frames = signal[starts[:, None] + jnp.arange(256)]
    window = 0.5 - 0.5 * jnp.cos(2.0 * jnp.pi * jnp.arange(256) / 256)
    power = jnp.square(jnp.abs(jnp.fft.rfft(frames * window)))
    decibels = 10.0 * jnp.log10(jnp.maximum(power, 1e-10))
    return jnp.maximum(decibels, decibels.max() - 80.0)


def low_pass(volume):
    spectrum = jnp.fft.fftn(volume)
    along = [jnp.fft.fftfreq(size) ** 2 for size in volume.shape]
    square = along[0][:, None, None] + along[1][:, None] + along[2]
    smooth = jnp.fft.ifftn(jnp.where(square < 0.05, spectrum, 0.0)).real
    return smooth, volume - smooth


def phases(waves):
    angles = jnp.unwrap(jnp.angle(waves))
    speed = jnp.diff(angles, axis=-1) / (2.0 * jnp.pi)
    shifted = waves * jnp.exp(-1j * angles.mean(axis=-1, keepdims=True))
    return speed, shifted, (shifted * jnp.conj(waves)).imag


def distinct(values):
    ordered = jnp.sort(values)
    fresh = jnp.concatenate([jnp.ones(1, bool), ordered[1:] != ordered[:-1]])
    number = jnp.cumsum(fresh) - 1
    table = jnp.full_like(ordered, -1).at[number].set(ordered)
    return table, jnp.zeros_like(number).at[number].add(1), fresh.sum()


def ranks(values):
    order = jnp.argsort(values, axis=1, stable=True)
    best, where = lax.top_k(values.astype(jnp.int32) ** 2, 7)
    return jnp.argsort(order, axis=1).astype(jnp.uint16), best.sum(axis=1), where[:, ::-1]


def weighted_histogram(values, weights):
    low, high = values.min(), values.max()
    bins = jnp.floor((values - low) / (high - low + 1e-6) * 37.0).astype(jnp.int32)
    mass = jnp.bincount(bins, weights, length=37)
    return mass / mass.sum(), jnp.cumsum(mass), jnp.bincount(bins, length=37)


def median_filter(image):
    padded = jnp.pad(image, 1, mode="edge")
    height, width = image.shape
    shifts = [padded[i : i + height, j : j + width] for i in range(3) for j in range(3)]
    middle = jnp.sort(jnp.stack(shifts), axis=0)[4]
    deviation = jnp.abs(image - middle)
    return jnp.where(deviation > 3.0 * jnp.median(deviation), middle, image)


def interpolated(places, nodes, values):
    linear = jnp.interp(places, nodes, values, left=0.0)
    slot = jnp.clip(jnp.searchsorted(nodes, places) - 1, 0, nodes.shape[0] - 2)
    part = (places - nodes[slot]) / (nodes[slot + 1] - nodes[slot])
    smooth = part * part * (3.0 - 2.0 * part)
    return linear, values[slot] * (1.0 - smooth) + values[slot + 1] * smooth


def hashed(words):
    def turned(value, places):
        return (value << places) | (value >> (32 - places))

    state = turned(words * jnp.uint32(0xCC9E2D51), 15) * jnp.uint32(0x1B873593)
    state = turned(state ^ jnp.uint32(42), 13) * 5 + jnp.uint32(0xE6546B64)
    state = (state ^ (state >> 16)) * jnp.uint32(0x85EBCA6B)
    state = state ^ (state >> 13)
    letters = lax.bitcast_convert_type(state, jnp.uint8)
    return letters.sum(axis=-1, dtype=jnp.uint32), lax.reduce_xor(state, axes=(1,)), letters[..., 0]


def quantised(values, weights):
    scales = jnp.abs(values).max(axis=1, keepdims=True) / 127.0
    small = jnp.clip(jnp.round(values / scales), -127, 127).astype(jnp.int8)
    total = jnp.dot(small, weights, preferred_element_type=jnp.int32)
    error = small.astype(jnp.float32) * scales - values
    return total.astype(jnp.float32) * scales, jnp.sqrt(jnp.mean(error**2)), small.min(axis=0)


def companded(samples):
    """The mu law of telephones, there and back."""
    squeezed = jnp.sign(samples) * jnp.log1p(255.0 * jnp.abs(samples)) / jnp.log(256.0)
    code = ((squeezed + 1.0) * 127.5).astype(jnp.uint8)
    back = code.astype(jnp.float32) / 127.5 - 1.0
    sign = jnp.where(back < 0, -1, 1).astype(jnp.int16)
    return code, (sign * jnp.expm1(jnp.abs(back) * jnp.log(256.0)) / 255.0).astype(jnp.float16)


def packed(left, right):
    both = jnp.packbits(left & ~right, axis=1)
    either = jnp.packbits(left | right, axis=1)
    shared = lax.population_count(both).sum(axis=1, dtype=jnp.int32)
    back = jnp.unpackbits(either, axis=1)
    return shared, back.astype(bool).any(axis=0), jnp.logical_xor(left, right).all()


def permuted(key, values):
    first, second, third = jax.random.split(key, 3)
    mixed = jax.random.permutation(first, values, independent=True)
    picked = jax.random.categorical(second, values, axis=1)
    return mixed, picked, jax.random.laplace(third, (5, 3, 1)) + jax.random.gumbel(third, (3, 2))


def long_integers(values):
    with jax.enable_x64(True):
        wide = values.astype(jnp.int64) * 6364136223846793005 + 1442695040888963407
        high = (wide >> 33).astype(jnp.int32)
        return high % 100, wide.max() // 3, wide.astype(jnp.float64).mean()


def resampled(signal):
    """Three samples for every two, and an echo whose delay is no multiple of anything."""
    held = jnp.repeat(signal, 3, axis=0)
    smooth = jnp.convolve(held, jnp.hanning(13) / 6.0, mode="same")[::2]
    echo = jnp.pad(smooth, (401, 0))[: smooth.shape[0]]
    return smooth + 0.4 * echo, jnp.sqrt(jnp.cumsum(smooth**2) / (1 + jnp.arange(smooth.size)))


def long_sums(values):
    centred = values - values.mean()
    fourth = (centred**4).mean() / (centred**2).mean() ** 2
    return (
        fourth,
        jnp.abs(centred).max(),
        (centred > 0).sum(),
        jnp.argmin(centred),
        centred[:-1] @ (centred[1:]),
    )


key = ("u32", (2,))

programs = {
    "fast_convolution": (fast_convolution, (("f32", (3, 5000)), ("f32", (31,)))),
    "spectrogram": (spectrogram, (("f32", (16001,)),)),
    "low_pass": (low_pass, (("f32", (8, 12, 10)),)),
    "phases": (phases, (("c64", (7, 333)),)),
    "distinct": (distinct, (("s32", (4097,)),)),
    "sorted_records": (
        lambda a, b, c: lax.sort((a, -b, c * 2.0), dimension=1, num_keys=2),
        (("s8", (3, 501)), ("f32", (3, 501)), ("bf16", (3, 501))),
    ),
    "ranks": (ranks, (("s16", (13, 400)),)),
    "weighted_histogram": (weighted_histogram, (("f32", (10007,)), ("f32", (10007,)))),
    "median_filter": (median_filter, (("f32", (33, 57)),)),
    "interpolated": (interpolated, (("f32", (4096,)), ("f32", (100,)), ("f32", (100,)))),
    "hashed": (hashed, (("u32", (3, 1365)),)),
    "quantised": (quantised, (("f32", (64, 300)), ("s8", (300, 24)))),
    "companded": (companded, (("f32", (2, 8000)),)),
    "packed": (packed, (("pred", (9, 1003)), ("pred", (9, 1003)))),
    "permuted": (permuted, (key, ("f32", (6, 41)))),
    "long_integers": (long_integers, (("s32", (777,)),)),
    "resampled": (resampled, (("f32", (3001,)),)),
    "long_sums": (long_sums, (("f32", (12289,)),)),
}
