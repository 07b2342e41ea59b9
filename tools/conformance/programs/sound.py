"""Signals of sound and radio: spectra and back, filters, wavelets, arrays of microphones."""

import jax
import jax.numpy as jnp
from jax import lax


def framed(signal, size, hop):
    count = 1 + (signal.shape[-1] - size) // hop
    places = hop * jnp.arange(count)[:, None] + jnp.arange(size)
    return signal[..., places] * (0.5 - 0.5 * jnp.cos(2 * jnp.pi * jnp.arange(size) / size))


def spectral_loss(made, wanted):
    """Distances of spectra at three sizes, and of mel bands with their changes in time."""
    total = 0.0
    for size in (512, 256, 128):
        left, right = (
            jnp.abs(jnp.fft.rfft(framed(sound, size, size // 4))) + 1e-7 for sound in (made, wanted)
        )
        ratio = jnp.linalg.norm(right - left) / jnp.linalg.norm(right)
        total = total + ratio + jnp.abs(jnp.log(left) - jnp.log(right)).mean()
    tones = 2595.0 * jnp.log10(1.0 + jnp.arange(65) * 125.0 / 700.0)
    centres = jnp.linspace(0.0, tones[-1], 42)
    up = (tones[:, None] - centres[:-2]) / (centres[1:-1] - centres[:-2])
    down = (centres[2:] - tones[:, None]) / (centres[2:] - centres[1:-1])
    bands = jnp.maximum(0.0, jnp.minimum(up, down))
    left, right = jnp.log(left @ bands + 1e-5), jnp.log(right @ bands + 1e-5)
    return total + jnp.square(left - right).mean() + jnp.abs(jnp.diff(left - right, axis=1)).mean()


def phases_found(power, start):
    """Phases that fit a spectrogram, by going to sound and back."""
    count, bins = power.shape
    size = 2 * (bins - 1)
    window = 0.5 - 0.5 * jnp.cos(2 * jnp.pi * jnp.arange(size) / size)
    places = (size // 4 * jnp.arange(count)[:, None] + jnp.arange(size)).ravel()
    length = size // 4 * (count - 1) + size

    def sound(spectra):
        frames = jnp.fft.irfft(spectra, size) * window
        total = jnp.zeros(length).at[places].add(frames.ravel())
        share = jnp.zeros(length).at[places].add(jnp.tile(window**2, count))
        return total / jnp.maximum(share, 1e-3)

    def step(spectra, _):
        again = jnp.fft.rfft(framed(sound(spectra), size, size // 4))
        turned = again / jnp.maximum(jnp.abs(again), 1e-8)
        return power * turned, jnp.square(jnp.abs(again) - power).mean()

    spectra, errors = lax.scan(step, power * jnp.exp(1j * start), length=16)
    return sound(spectra), errors


def filtered_bank(signals, poles, zeros):
    """Filters of second order in a row, with a gate that follows the loudness."""

    def section(signals, taps):
        pole, zero = taps

        def step(state, value):
            first, second = state
            new = value - pole[0] * first - pole[1] * second
            return (new, first), zero[0] * new + zero[1] * first + zero[2] * second

        start = jnp.zeros(signals.shape[1:])
        return lax.scan(step, (start, start), signals)[1], None

    signals, _ = lax.scan(section, signals, (poles, zeros))

    def combine(left, right):
        return left[0] * right[0], left[1] * right[0] + right[1]

    parts = jnp.full_like(signals, 0.99), 0.01 * signals**2
    loud = jnp.sqrt(lax.associative_scan(combine, parts)[1])
    return signals * jnp.minimum(1.0, 0.1 / (loud + 1e-6)), loud[::100]


def denoised(signals):
    """Wavelets by lifting, five levels deep, small parts set to zero, and back."""
    even, details = signals, []
    for _ in range(5):
        even, odd = even[..., ::2], even[..., 1::2]
        odd = odd - 0.5 * (even + jnp.roll(even, -1, axis=-1))
        even = even + 0.25 * (odd + jnp.roll(odd, 1, axis=-1))
        details.append(odd)
    noise = jnp.median(jnp.abs(details[0]), axis=-1, keepdims=True) / 0.6745
    limit = noise * jnp.sqrt(2.0 * jnp.log(float(signals.shape[-1])))
    for odd in reversed(details):
        odd = jnp.sign(odd) * jnp.maximum(jnp.abs(odd) - limit, 0.0)
        even = even - 0.25 * (odd + jnp.roll(odd, 1, axis=-1))
        odd = odd + 0.5 * (even + jnp.roll(even, -1, axis=-1))
        even = jnp.stack([even, odd], axis=-1).reshape(*even.shape[:-1], -1)
    return even, noise[..., 0]


def directions(snapshots, places):
    """Where sound comes from: covariances of microphones, and two kinds of beam."""
    size = snapshots.shape[0]
    covariance = snapshots @ snapshots.conj().T / snapshots.shape[1]
    loaded = covariance + 1e-3 * jnp.trace(covariance).real / size * jnp.eye(size)
    angles = jnp.linspace(-jnp.pi / 2, jnp.pi / 2, 361)
    steering = jnp.exp(2j * jnp.pi * places[:, None] * jnp.sin(angles)) / jnp.sqrt(1.0 * size)
    plain = jnp.einsum("ma,mn,na->a", steering.conj(), covariance, steering).real
    solved = jnp.linalg.solve(loaded, steering)
    sharp = 1.0 / (steering.conj() * solved).sum(axis=0).real
    best, where = lax.top_k(10.0 * jnp.log10(sharp / sharp.max()), 3)
    return plain, best, angles[where]


sounds = ("f32", (4, 8000))

programs = {
    "spectral_loss_gradient": (jax.value_and_grad(spectral_loss), (sounds, sounds)),
    "phases_found": (phases_found, (("f32", (90, 129)), ("f32", (90, 129)))),
    "filtered_bank": (
        filtered_bank,
        (("f32", (1600, 24)), ("f32", (3, 2, 24)), ("f32", (3, 3, 24))),
    ),
    "denoised": (denoised, (("f32", (6, 4096)),)),
    "directions": (directions, (("c64", (12, 500)), ("f32", (12,)))),
}
