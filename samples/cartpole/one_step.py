"""One step each of the versions of the Cartpole, for comparison with other compilers."""

import jax
import jax.numpy as jnp
from cartpole import LARGEST_START, has_fallen, move
from jax import Array

STATE, ACTION = jnp.ones((4, 2048)), jnp.ones(2048)


def given(state: Array, stood: Array, action: Array, start: Array) -> tuple[Array, Array]:
    """The state in one array, random numbers from before."""
    moved = jnp.stack(move(tuple(state), action))
    fallen = has_fallen(tuple(moved))
    return jnp.where(fallen, start, moved), stood + jnp.where(fallen, 0.0, 1.0)


def drawn(state: Array, stood: Array, action: Array, key: Array) -> tuple[Array, Array]:
    """The same, with random numbers drawn in the step."""
    start = jax.random.uniform(key, state.shape, minval=-LARGEST_START, maxval=LARGEST_START)
    return given(state, stood, action, start)


def apart(state: list[Array], stood: Array, action: Array, start: list[Array]) -> list[Array]:
    """The state in four arrays."""
    moved = move(tuple(state), action)
    fallen = has_fallen(moved)
    kept = [jnp.where(fallen, new, old) for new, old in zip(start, moved, strict=True)]
    return [*kept, stood + jnp.where(fallen, 0.0, 1.0)]


given.example_args = (STATE, ACTION, ACTION, STATE)
drawn.example_args = (STATE, ACTION, ACTION, jax.random.key(0))
apart.example_args = ([ACTION] * 4, ACTION, ACTION, [ACTION] * 4)
