"""One step of 512 inverted pendulums (Brax, positional backend)."""

import jax
import jax.numpy as jnp
from brax import envs

env = envs.get_environment("inverted_pendulum", backend="positional")
B = 512
_state = jax.eval_shape(jax.vmap(env.reset), jax.ShapeDtypeStruct((B, 2), jnp.uint32))


def step(state, action):
    return jax.vmap(env.step)(state, action)


example_args = (_state, jax.ShapeDtypeStruct((B, env.action_size), jnp.float32))
