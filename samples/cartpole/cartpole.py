"""Many Cartpoles at once, in the steps by which "Operator Fusion in XLA: Analysis and Evaluation"
(arXiv 2301.13062) made them fast.

Each program simulates STEPS steps in a loop, restarts those that fell, and returns the last state
and how many steps each stood. The dynamics are those of the Cartpole environment of OpenAI Gym.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax

STEPS = 20
GRAVITY = 9.8
POLE_MASS = 0.1
TOTAL_MASS = 1.1
HALF_LENGTH = 0.5
POLE = POLE_MASS * HALF_LENGTH
FORCE = 10.0
TIME_STEP = 0.02
LARGEST_ANGLE = 12 * 2 * 3.141592653589793 / 360
LARGEST_POSITION = 2.4
LARGEST_START = 0.05
LARGEST = (LARGEST_POSITION, math.inf, LARGEST_ANGLE, math.inf)

State = tuple[Array, Array, Array, Array]


def move(state: State, action: Array) -> State:
    """One step of position, velocity, angle and angular velocity."""
    position, velocity, angle, angular_velocity = state
    force = jnp.where(action > 0.5, FORCE, -FORCE)
    cosine, sine = jnp.cos(angle), jnp.sin(angle)
    push = (force + POLE * angular_velocity**2 * sine) / TOTAL_MASS
    angular_acceleration = (GRAVITY * sine - cosine * push) / (
        HALF_LENGTH * (4.0 / 3.0 - POLE_MASS * cosine**2 / TOTAL_MASS)
    )
    acceleration = push - POLE * angular_acceleration * cosine / TOTAL_MASS
    return (
        position + TIME_STEP * velocity,
        velocity + TIME_STEP * acceleration,
        angle + TIME_STEP * angular_velocity,
        angular_velocity + TIME_STEP * angular_acceleration,
    )


def has_fallen(state: State) -> Array:
    return (jnp.abs(state[0]) > LARGEST_POSITION) | (jnp.abs(state[2]) > LARGEST_ANGLE)


def joined(state: Array, stood: Array, action: Array, start: Array) -> tuple[Array, Array]:
    """A step with the state in one array, as the paper's program has it: the concatenate has two
    users."""
    moved = jnp.stack(move(tuple(state), action))
    fallen = (jnp.abs(moved) > jnp.array(LARGEST)[:, None]).any(axis=0)
    return jnp.where(fallen, start, moved), stood + jnp.where(fallen, 0.0, 1.0)


def drawn_inside(state: Array, actions: Array, key: Array) -> tuple[Array, Array]:
    """Random numbers are drawn in the loop."""

    def step(carry: tuple[Array, Array, Array], action: Array) -> tuple[object, None]:
        state, stood, key = carry
        key, own = jax.random.split(key)
        start = jax.random.uniform(own, state.shape, minval=-LARGEST_START, maxval=LARGEST_START)
        return (*joined(state, stood, action, start), key), None

    (state, stood, _), _ = lax.scan(step, (state, jnp.zeros(state.shape[1:]), key), actions)
    return state, stood


def drawn_before(state: Array, actions: Array, starts: Array) -> tuple[Array, Array]:
    """Random numbers come from before the loop."""

    def step(carry: tuple[Array, Array], inputs: tuple[Array, Array]) -> tuple[object, None]:
        return joined(*carry, *inputs), None

    carry, _ = lax.scan(step, (state, jnp.zeros(state.shape[1:])), (actions, starts))
    return carry


def apart(unroll: int) -> Callable[..., tuple[State, Array]]:
    """The state in four arrays, so that nothing is concatenated; ``unroll`` steps a time round the
    loop."""

    def program(
        position: Array,
        velocity: Array,
        angle: Array,
        angular_velocity: Array,
        actions: Array,
        starts: Array,
    ) -> tuple[State, Array]:
        def step(carry: tuple[State, Array], inputs: tuple[Array, Array]) -> tuple[object, None]:
            state, stood = carry
            action, start = inputs
            moved = move(state, action)
            fallen = has_fallen(moved)
            state = tuple(
                jnp.where(fallen, new, old) for new, old in zip(start, moved, strict=True)
            )
            return (state, stood + jnp.where(fallen, 0.0, 1.0)), None

        state = position, velocity, angle, angular_velocity
        carry = state, jnp.zeros(position.shape)
        carry, _ = lax.scan(step, carry, (actions, starts), unroll=unroll)
        return carry

    return program


unrolled_1, unrolled_2, unrolled_5, unrolled_10, unrolled_20 = map(apart, (1, 2, 5, 10, 20))
