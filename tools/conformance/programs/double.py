"""Programs in double precision: what science computes with 64-bit floats, integers, complex."""

import jax
import jax.numpy as jnp
from jax import lax

jax.config.update("jax_enable_x64", True)


def three_bodies(state, masses, tolerance):
    """An orbit by a method of order five with steps that its own error chooses."""
    shares = (
        (1 / 5,),
        (3 / 40, 9 / 40),
        (44 / 45, -56 / 15, 32 / 9),
        (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
        (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
        (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
    )
    errors = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)

    def slope(state):
        places, speeds = state
        apart = places - places[:, None]
        cube = ((apart**2).sum(axis=-1) + 1e-12) ** 1.5
        return jnp.stack([speeds, (masses[:, None] * apart / cube[..., None]).sum(axis=1)])

    def step(carry):
        time, size, state, count = carry
        slopes = [slope(state)]
        for row in shares:
            moved = state + size * sum(s * k for s, k in zip(row, slopes, strict=True))
            slopes.append(slope(moved))
        error = size * sum(e * k for e, k in zip(errors, slopes, strict=True))
        ratio = jnp.sqrt(jnp.mean((error / (tolerance * (1.0 + jnp.abs(state)))) ** 2))
        taken = ratio < 1.0
        state = jnp.where(taken, moved, state)
        time = jnp.where(taken, time + size, time)
        size = size * jnp.clip(0.9 * ratio**-0.2, 0.2, 5.0)
        return time, size, state, count + 1

    def going(carry):
        return (carry[0] < 10.0) & (carry[3] < 100000)

    return lax.while_loop(going, step, (0.0, 1e-3, state, 0))


def quantum_packet(wave, potential):
    """A wave packet moved by half steps of its potential and full steps of its momentum."""
    size = wave.shape[-1]
    momentum = 2.0 * jnp.pi * jnp.fft.fftfreq(size, 0.1)
    kinetic = jnp.exp(-0.005j * (momentum[:, None] ** 2 + momentum**2))
    half = jnp.exp(-0.005j * potential)

    def step(wave, _):
        wave = half * jnp.fft.ifft2(kinetic * jnp.fft.fft2(half * wave))
        density = (wave * wave.conj()).real
        place = jnp.arange(size) * 0.1
        return wave, (density.sum(), (density.sum(axis=0) * place).sum())

    return lax.scan(step, wave, length=20)


def self_consistent(core, repulsion, overlap):
    """Orbitals of a molecule in the field of their own density."""
    values, vectors = jnp.linalg.eigh(overlap)
    half = (vectors * lax.rsqrt(values)) @ vectors.T

    def step(_, carry):
        density, _ = carry
        direct = jnp.einsum("ijkl,kl->ij", repulsion, density)
        swapped = jnp.einsum("ikjl,kl->ij", repulsion, density)
        field = core + direct - 0.5 * swapped
        _, orbitals = jnp.linalg.eigh(half.T @ field @ half)
        filled = (half @ orbitals)[:, :5]
        new = 2.0 * filled @ filled.T
        energy = 0.5 * ((core + field) * new).sum()
        return 0.7 * new + 0.3 * density, energy

    return lax.fori_loop(0, 12, step, (jnp.zeros_like(core), 0.0))


def hashed_rows(rows):
    """Rows of text mixed to 64 bits, and the buckets and registers that count them."""
    value = jnp.full(rows.shape[0], 14695981039346656037, jnp.uint64)
    for column in rows.T.astype(jnp.uint64):
        value = (value ^ column) * jnp.uint64(1099511628211)
    value = (value ^ (value >> 33)) * jnp.uint64(0xFF51AFD7ED558CCD)
    value = value ^ (value >> 33)
    bucket = (value & 1023).astype(jnp.int32)
    run = lax.clz(value >> 10).astype(jnp.int32) - 9
    registers = jnp.zeros(1024, jnp.int32).at[bucket].max(run)
    share = 1.0 / (2.0 ** -registers.astype(jnp.float64)).sum()
    return value, registers, 0.7213 / (1 + 1.079 / 1024) * 1024.0**2 * share


def stiffness(nodes, elements, load):
    """Triangles of an elastic plate put together, and its bending by conjugate gradients."""
    corners = nodes[elements]
    edges = jnp.roll(corners, -1, axis=1) - jnp.roll(corners, 1, axis=1)
    normal = jnp.stack([edges[..., 1], -edges[..., 0]], axis=-1)
    first, second = edges[:, 0], edges[:, 1]
    area = 0.5 * jnp.abs(first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0])
    local = jnp.einsum("eai,ebi->eab", normal, normal) / (4.0 * area[:, None, None])

    def applied(field):
        parts = jnp.einsum("eab,eb->ea", local, field[elements])
        return jnp.zeros_like(field).at[elements].add(parts) + 1e-3 * field

    solution, _ = jax.scipy.sparse.linalg.cg(applied, load, maxiter=200)
    return solution, 0.5 * solution @ applied(solution)


def mixed_widths(doubles, singles, longs):
    """64-bit and 32-bit values in one expression, with reductions and a turn of both."""
    wide = doubles + singles
    narrow = wide.astype(jnp.float32) * 2
    return (
        wide.sum(axis=0),
        narrow.sum(axis=1),
        (longs % 1000).astype(jnp.float64).mean(axis=1),
        jnp.tanh(wide).T,
        jnp.cumsum(longs, axis=1)[:, ::10],
    )


packet, matrix = ("c128", (128, 128)), ("f64", (14, 14))

programs = {
    "three_bodies": (three_bodies, (("f64", (2, 3, 2)), ("f64", (3,)), ("f64", ()))),
    "quantum_packet": (quantum_packet, (packet, ("f64", (128, 128)))),
    "self_consistent": (self_consistent, (matrix, ("f64", (14, 14, 14, 14)), matrix)),
    "hashed_rows": (hashed_rows, (("u8", (2000, 16)),)),
    "stiffness_gradient": (
        jax.grad(lambda nodes, elements, load: stiffness(nodes, elements, load)[1]),
        (("f64", (450, 2)), ("s32", (840, 3)), ("f64", (450,))),
    ),
    "mixed_widths": (
        mixed_widths,
        (("f64", (96, 410)), ("f32", (96, 410)), ("s64", (96, 410))),
    ),
}
