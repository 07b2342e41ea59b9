"""Small simulations, for the replay of the CPU fusion passes."""

import jax
import jax.numpy as jnp
from jax import lax


def life(alive):
    def step(_, alive):
        cells = alive.astype(jnp.uint8)
        rows = cells + jnp.roll(cells, 1, 0) + jnp.roll(cells, -1, 0)
        around = rows + jnp.roll(rows, 1, 1) + jnp.roll(rows, -1, 1) - cells
        return (around == 3) | (alive & (around == 2))

    return lax.fori_loop(0, 30, step, alive)


def automaton(cells):
    rule = jnp.array([0, 1, 1, 1, 0, 1, 1, 0], jnp.uint8)

    def step(cells, _):
        number = 4 * jnp.roll(cells, 1) + 2 * cells + jnp.roll(cells, -1)
        return rule[number], cells.sum(dtype=jnp.int32)

    return lax.scan(step, cells, length=64)


def ising(spins, heat, key):
    rows, columns = jnp.indices(spins.shape)

    def half(spins, key, parity):
        around = sum(jnp.roll(spins, shift, axis) for shift in (1, -1) for axis in (0, 1))
        cost = 2.0 * (spins * around).astype(jnp.float32)
        taken = jax.random.uniform(key, spins.shape) < jnp.exp(-cost / heat)
        return jnp.where(taken & ((rows + columns) % 2 == parity), -spins, spins)

    def sweep(spins, key):
        first, second = jax.random.split(key)
        spins = half(half(spins, first, 0), second, 1)
        return spins, spins.astype(jnp.float32).mean()

    return lax.scan(sweep, spins, jax.random.split(key, 5))


def heat(rod):
    def step(rod, time):
        rod = jnp.concatenate([rod[:1], rod[1:-1] + 0.2 * jnp.diff(rod, 2), rod[-2:-1]])
        return rod.at[0].set(jnp.sin(0.1 * time)), rod[::100]

    return lax.scan(step, rod, jnp.arange(50.0))


key, many = ("u32", (2,)), ("f32", (4096,))
volume, scalar = ("f32", (17, 19, 23)), ("f32", ())

programs = {
    "life": (life, (("pred", (61, 93)),)),
    "automaton": (automaton, (("u8", (129,)),)),
    "ising": (ising, (("s8", (32, 34)), scalar, key)),
    "heat": (heat, (("f32", (4501,)),)),
}
