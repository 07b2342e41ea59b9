"""Flax, equinox, optax, gymnax and numpyro models, for the replay of the CPU fusion passes."""

import flax.linen as nn
import gymnax
import jax
import jax.numpy as jnp
import optax

KEY = jax.ShapeDtypeStruct((2,), "uint32")


def shape(*dimensions, dtype="float32"):
    return jax.ShapeDtypeStruct(dimensions, dtype)


class Autoencoder(nn.Module):
    @nn.compact
    def __call__(self, images):
        hidden = nn.silu(nn.Conv(12, (3, 3), (2, 2))(images))
        hidden = nn.BatchNorm(use_running_average=True)(hidden)
        hidden = nn.max_pool(nn.Conv(6, (1, 1))(hidden), (2, 2), (1, 1), "SAME")
        return nn.sigmoid(nn.ConvTranspose(images.shape[-1], (4, 4), (2, 2))(hidden))


class Tagger(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        hidden = nn.RMSNorm()(nn.Embed(300, 26)(tokens))
        hidden = nn.RNN(nn.OptimizedLSTMCell(22))(hidden)
        return nn.log_softmax(nn.Dense(9)(hidden))


def linen(model, inputs):
    def loss(weights, inputs):
        return jnp.abs(model.apply(weights, inputs)).mean()

    return jax.value_and_grad(loss), (jax.eval_shape(model.init, KEY, inputs), inputs)


weights = {
    "table": shape(130, 37),
    "kernel": shape(3, 5, 4, 9),
    "scale": shape(4111),
    "one": shape(),
}


def update(optimizer):
    def step(gradients, state, weights):
        changes, state = optimizer.update(gradients, state, weights)
        return optax.apply_updates(weights, changes), state

    return step, (weights, jax.eval_shape(optimizer.init, weights), weights), {"donate": (1, 2)}


def stepped(name, number):
    environment, parameters = gymnax.make(name)

    def step(key, state, action):
        return environment.step(jax.random.wrap_key_data(key), state, action, parameters)

    def reset(key):
        return environment.reset(jax.random.wrap_key_data(key), parameters)

    keys = shape(number, 2, dtype="uint32")
    _, states = jax.eval_shape(jax.vmap(reset), keys)
    action = environment.action_space(parameters)
    actions = shape(number, *action.shape, dtype=action.dtype)
    return jax.vmap(step), (keys, states, actions)


programs = {
    "autoencoder": linen(Autoencoder(), shape(3, 18, 22, 5)),
    "tagger": linen(Tagger(), shape(6, 23, dtype="int32")),
    "lamb": update(optax.lamb(1e-3, weight_decay=0.01)),
    "adagrad": update(optax.adagrad(1e-2)),
    "schedule": update(optax.adabelief(optax.warmup_cosine_decay_schedule(0.0, 1e-3, 10, 100))),
    "noisy": update(optax.noisy_sgd(1e-2)),
    "accumulated": update(optax.MultiSteps(optax.yogi(1e-3), 4)),
    "finite": update(optax.apply_if_finite(optax.adamax(1e-3), 3)),
    "mountain_car": stepped("MountainCarContinuous-v0", 1031),
    "asterix": stepped("Asterix-MinAtar", 50),
    "invaders": stepped("SpaceInvaders-MinAtar", 21),
    "reacher": stepped("Reacher-misc", 300),
    "rooms": stepped("FourRooms-misc", 64),
}
