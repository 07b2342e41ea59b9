"""The Cartpole of a library of environments, beside ours: gymnax 0.0.9."""

import gymnax
import jax
from jax import Array, lax

STEPS = 20
ENVIRONMENT, PARAMETERS = gymnax.make("CartPole-v1")


def program(actions: Array, key: Array) -> tuple[Array, Array]:
    """Random numbers are drawn in the loop, by the environment itself."""
    key, own = jax.random.split(key)
    keys = jax.random.split(own, actions.shape[1])
    _, states = jax.vmap(ENVIRONMENT.reset, in_axes=(0, None))(keys, PARAMETERS)

    def step(carry: tuple[object, Array], action: Array) -> tuple[object, Array]:
        states, key = carry
        key, own = jax.random.split(key)
        keys = jax.random.split(own, action.shape[0])
        _, states, reward, _, _ = jax.vmap(ENVIRONMENT.step, in_axes=(0, 0, 0, None))(
            keys, states, action, PARAMETERS
        )
        return (states, key), reward.sum()

    (_, _), rewards = lax.scan(step, (states, key), actions)
    return rewards, key
