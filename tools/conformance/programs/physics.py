"""Simulated matter: particles, fluids, fields and light, forward and backward."""

import jax
import jax.numpy as jnp
from jax import lax


def pair_energy(places, sides):
    """Lennard-Jones energy under periodic bounds, cut off and shifted."""
    apart = places[:, None] - places[None]
    apart = apart - sides * jnp.round(apart / sides)
    square = (apart**2).sum(axis=-1)
    square = jnp.where(jnp.eye(places.shape[0], dtype=bool), 1e6, square)
    sixth = (1.0 / square) ** 3
    energy = 4.0 * (sixth**2 - sixth) + 0.016316891
    return 0.5 * jnp.where(square < 6.25, energy, 0.0).sum()


def molecular_dynamics(places, speeds, sides, key):
    """Steps of a thermostat with random kicks around half steps of the places."""

    def step(carry, key):
        places, speeds = carry
        speeds = speeds - 0.001 * jax.grad(pair_energy)(places, sides)
        places = places + 0.001 * speeds
        speeds = 0.995 * speeds + 0.0998 * jax.random.normal(key, speeds.shape)
        places = (places + 0.001 * speeds) % sides
        speeds = speeds - 0.001 * jax.grad(pair_energy)(places, sides)
        heat = (speeds**2).sum() / (3.0 * speeds.shape[0])
        return (places, speeds), (heat, pair_energy(places, sides))

    return lax.scan(step, (places, speeds), jax.random.split(key, 15))


def smoothed_particles(places, speeds):
    """Densities, pressures and viscous forces of a fluid of particles."""
    apart = places[:, None] - places
    distance = jnp.sqrt((apart**2).sum(axis=-1) + 1e-9)
    near = jnp.maximum(0.1 - distance, 0.0)
    density = (315.0 / (64.0 * jnp.pi * 0.1**9) * jnp.maximum(0.01 - distance**2, 0.0) ** 3).sum(1)
    pressure = 20.0 * (density / 1000.0 - 1.0)
    push = -(pressure[:, None] + pressure) / (2.0 * density) * near**2
    force = -(push / distance)[..., None] * apart
    drag = 0.1 * (speeds - speeds[:, None]) / density[None, :, None] * near[..., None]
    change = (force + drag).sum(axis=1) / density[:, None] - jnp.array([0.0, 9.81, 0.0])
    speeds = speeds + 1e-3 * change
    places = places + 1e-3 * speeds
    speeds = jnp.where((places < 0.0) | (places > 1.0), -0.5 * speeds, speeds)
    return jnp.clip(places, 0.0, 1.0), speeds, density


def vorticity(field):
    """A turbulent plane by its spectrum: products of places, derivatives of waves."""
    size = field.shape[-1]
    along = jnp.fft.rfftfreq(size, 1.0 / size)
    across = jnp.fft.fftfreq(size, 1.0 / size)[:, None]
    square = along**2 + across**2
    inverse = jnp.where(square > 0, 1.0 / jnp.where(square > 0, square, 1.0), 0.0)
    kept = (jnp.abs(across) < size / 3) & (along < size / 3)

    def change(waves):
        stream = waves * inverse
        parts = jnp.stack([1j * across * stream, -1j * along * stream])
        slopes = jnp.stack([1j * along * waves, 1j * across * waves])
        moved = (jnp.fft.irfft2(parts) * jnp.fft.irfft2(slopes)).sum(axis=0)
        return jnp.where(kept, -jnp.fft.rfft2(moved), 0.0)

    def step(_, waves):
        first = change(waves)
        second = change(waves + 0.005 * first)
        return (waves + 0.01 * second) / (1.0 + 1e-4 * square)

    waves = lax.fori_loop(0, 10, step, jnp.fft.rfft2(field))
    power = jnp.abs(waves) ** 2
    shell = jnp.sqrt(square).astype(jnp.int32)
    return jnp.fft.irfft2(waves), jnp.zeros(size).at[shell].add(power)


def smoke(density, flow):
    """Carried smoke on a grid, made free of divergence by sweeps: the gradient by the flow."""
    rows, columns = jnp.indices(density.shape).astype(jnp.float32)

    def carried(field, flow):
        down, right = rows - flow[0], columns - flow[1]
        top, left = jnp.floor(down), jnp.floor(right)
        below, beside = down - top, right - left
        top, left = top.astype(jnp.int32), left.astype(jnp.int32)

        def read(row, column):
            return field[row % field.shape[0], column % field.shape[1]]

        upper = read(top, left) * (1 - beside) + read(top, left + 1) * beside
        lower = read(top + 1, left) * (1 - beside) + read(top + 1, left + 1) * beside
        return upper * (1 - below) + lower * below

    def projected(flow):
        spread = 0.5 * sum(
            jnp.roll(flow[axis], -1, axis) - jnp.roll(flow[axis], 1, axis) for axis in (0, 1)
        )

        def sweep(_, pressure):
            around = sum(jnp.roll(pressure, shift, axis) for shift in (1, -1) for axis in (0, 1))
            return 0.25 * (around - spread)

        pressure = lax.fori_loop(0, 12, sweep, jnp.zeros_like(spread))
        slopes = [
            0.5 * (jnp.roll(pressure, -1, axis) - jnp.roll(pressure, 1, axis)) for axis in (0, 1)
        ]
        return flow - jnp.stack(slopes)

    def step(carry, _):
        density, flow = carry
        flow = projected(jnp.stack([carried(part, flow) for part in flow]))
        return (carried(density, flow), flow), None

    (density, _), _ = lax.scan(step, (density, flow), length=6)
    return jnp.square(density - density.T).mean()


def radio(electric, magnetic, permittivity):
    """A field on staggered grids with a source in the middle and a soft border."""
    size = electric.shape[0]
    border = jnp.minimum(jnp.arange(size), jnp.arange(size)[::-1])
    soft = jnp.where(border < 10, jnp.exp(-0.01 * (10.0 - border) ** 2), 1.0)
    soft = soft[:, None] * soft

    def step(carry, time):
        electric, (across, along) = carry
        across = across.at[:, :-1].add(-0.5 * (electric[:, 1:] - electric[:, :-1]))
        along = along.at[:-1].add(0.5 * (electric[1:] - electric[:-1]))
        curl = along[1:, 1:] - along[:-1, 1:] - across[1:, 1:] + across[1:, :-1]
        electric = electric.at[1:, 1:].add(0.5 / permittivity[1:, 1:] * curl)
        pulse = jnp.exp(-(((time - 30.0) / 10.0) ** 2)) * jnp.sin(0.3 * time)
        electric = electric.at[size // 2, size // 2].add(pulse) * soft
        return (electric, (across * soft, along * soft)), electric[size // 2, ::8]

    return lax.scan(step, (electric, magnetic), jnp.arange(100.0))


def rendered(layers, origins, directions, depths, colours):
    """Light along rays through a small network of places, and the loss against a photograph."""
    places = origins[:, None] + directions[:, None] * depths[..., None]
    scales = 2.0 ** jnp.arange(8)
    angles = (places[..., None] * scales).reshape(*places.shape[:2], -1)
    hidden = jnp.concatenate([places, jnp.sin(angles), jnp.cos(angles)], axis=-1)
    for weight, bias in layers[:-1]:
        hidden = jax.nn.relu(hidden @ weight + bias)
    leaving = hidden @ layers[-1][0] + layers[-1][1]
    thickness = jax.nn.softplus(leaving[..., 0] - 1.0)
    gaps = jnp.concatenate([jnp.diff(depths), jnp.full_like(depths[:, :1], 1e3)], axis=-1)
    opaque = 1.0 - jnp.exp(-thickness * gaps)
    clear = jnp.cumprod(1.0 - opaque + 1e-10, axis=-1)
    clear = jnp.concatenate([jnp.ones_like(clear[:, :1]), clear[:, :-1]], axis=-1)
    weights = opaque * clear
    seen = (weights[..., None] * jax.nn.sigmoid(leaving[..., 1:])).sum(axis=1)
    seen = seen + (1.0 - weights.sum(axis=-1, keepdims=True))
    return jnp.square(seen - colours).mean(), (weights * depths).sum(axis=-1)


atoms, field = ("f32", (108, 3)), ("f32", (80, 80))
rays = ("f32", (256, 3))

programs = {
    "molecular_dynamics": (molecular_dynamics, (atoms, atoms, ("f32", (3,)), ("u32", (2,)))),
    "smoothed_particles": (smoothed_particles, (("f32", (400, 3)), ("f32", (400, 3)))),
    "vorticity": (vorticity, (("f32", (128, 128)),)),
    "smoke_gradient": (
        jax.grad(smoke, argnums=1),
        (("f32", (60, 60)), ("f32", (2, 60, 60))),
    ),
    "radio": (radio, (field, (field, field), field)),
    "rendered_gradient": (
        jax.grad(rendered, has_aux=True),
        (
            [
                (("f32", (51, 128)), ("f32", (128,))),
                (("f32", (128, 128)), ("f32", (128,))),
                (("f32", (128, 4)), ("f32", (4,))),
            ],
            rays,
            rays,
            ("f32", (256, 48)),
            rays,
        ),
    ),
}
