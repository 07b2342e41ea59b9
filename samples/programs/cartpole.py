"""One step of many Cartpoles at once, with a random restart of those that fell.

The dynamics are those of the Cartpole environment of OpenAI Gym; the program is the case study of
"Operator Fusion in XLA: Analysis and Evaluation" (arXiv 2301.13062).
"""

import jax
import jax.numpy as jnp

ENVIRONMENTS = 2048
GRAVITY = 9.8
POLE_MASS = 0.1
TOTAL_MASS = 1.1
HALF_LENGTH = 0.5
FORCE = 10.0
TIME_STEP = 0.02
LARGEST_ANGLE = 12 * 2 * 3.141592653589793 / 360
LARGEST_POSITION = 2.4

arguments = (("f32", (4, ENVIRONMENTS)), ("f32", (ENVIRONMENTS,)), ("u32", (2,)))


def program(state, action, key):
    position, velocity, angle, angular_velocity = state
    force = jnp.where(action > 0.5, FORCE, -FORCE)
    cosine, sine = jnp.cos(angle), jnp.sin(angle)
    pole = POLE_MASS * HALF_LENGTH
    push = (force + pole * angular_velocity**2 * sine) / TOTAL_MASS
    angular_acceleration = (GRAVITY * sine - cosine * push) / (
        HALF_LENGTH * (4.0 / 3.0 - POLE_MASS * cosine**2 / TOTAL_MASS)
    )
    acceleration = push - pole * angular_acceleration * cosine / TOTAL_MASS

    position = position + TIME_STEP * velocity
    velocity = velocity + TIME_STEP * acceleration
    angle = angle + TIME_STEP * angular_velocity
    angular_velocity = angular_velocity + TIME_STEP * angular_acceleration
    moved = jnp.stack([position, velocity, angle, angular_velocity])

    done = (jnp.abs(position) > LARGEST_POSITION) | (jnp.abs(angle) > LARGEST_ANGLE)
    restart = jax.random.uniform(key, state.shape, minval=-0.05, maxval=0.05)
    reward = jnp.where(done, 0.0, 1.0)
    return jnp.where(done, restart, moved), reward, done
