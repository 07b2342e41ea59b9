"""Signals of sound and radio: spectra and back, filters, wavelets, arrays of microphones."""

import jax.numpy as jnp
from jax import lax


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


programs = {
    "directions": (directions, (("c64", (12, 500)), ("f32", (12,)))),
}
