"""One step of a lattice Boltzmann flow in two dimensions (D2Q9, with obstacles)."""

import jax
import jax.numpy as jnp

E = jnp.array([[0, 0], [1, 0], [0, 1], [-1, 0], [0, -1], [1, 1], [-1, 1], [-1, -1], [1, -1]])
W = jnp.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4)
V = [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)]
OPP = jnp.array([0, 3, 4, 1, 2, 7, 8, 5, 6])


def step(f, mask):
    f = jnp.stack([jnp.roll(f[i], v, (0, 1)) for i, v in enumerate(V)])
    r = f.sum(0)
    u = jnp.einsum("qxy,qd->dxy", f, E.astype(f.dtype)) / r
    eu = jnp.einsum("qd,dxy->qxy", E.astype(f.dtype), u)
    uu = (u * u).sum(0)
    feq = W[:, None, None] * r * (1 + 3 * eu + 4.5 * eu**2 - 1.5 * uu)
    g = f - (f - feq) / 0.6
    return jnp.where(mask, f[OPP], g)


example_args = (
    jax.ShapeDtypeStruct((9, 512, 512), jnp.float32),
    jax.ShapeDtypeStruct((512, 512), jnp.bool_),
)
