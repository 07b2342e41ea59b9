"""Steps of many gymnax environments at once."""

import gymnax
import jax

ENVIRONMENTS = 512


def stepped(name):
    environment, parameters = gymnax.make(name)

    def step(keys, states, actions):
        return jax.vmap(environment.step, in_axes=(0, 0, 0, None))(
            jax.vmap(jax.random.wrap_key_data)(keys), states, actions, parameters
        )

    keys = jax.ShapeDtypeStruct((ENVIRONMENTS, 2), "uint32")
    _, states = jax.eval_shape(
        lambda keys: jax.vmap(environment.reset, in_axes=(0, None))(
            jax.vmap(jax.random.wrap_key_data)(keys), parameters
        ),
        keys,
    )
    action = environment.action_space(parameters)
    actions = jax.ShapeDtypeStruct((ENVIRONMENTS, *action.shape), action.dtype)
    return step, (keys, states, actions)


programs = {
    "cartpole": stepped("CartPole-v1"),
    "pendulum": stepped("Pendulum-v1"),
    "acrobot": stepped("Acrobot-v1"),
    "breakout": stepped("Breakout-MinAtar"),
}
