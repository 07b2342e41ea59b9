"""Flax, equinox, optax, gymnax and numpyro models, for the replay of the CPU fusion passes."""

import equinox
import flax.linen as nn
import gymnax
import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as distributions
import optax
from flax import nnx
from numpyro.infer.util import log_density

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


class Mixer(nnx.Module):
    def __init__(self, rngs):
        self.across = nnx.Linear(20, 20, rngs=rngs)
        self.along = nnx.Linear(34, 34, rngs=rngs)
        self.norm = nnx.LayerNorm(34, rngs=rngs)

    def __call__(self, inputs):
        mixed = self.across(jnp.swapaxes(self.norm(inputs), 1, 2))
        return inputs + nnx.gelu(self.along(jnp.swapaxes(mixed, 1, 2)))


def linen(model, inputs):
    def loss(weights, inputs):
        return jnp.abs(model.apply(weights, inputs)).mean()

    return jax.value_and_grad(loss), (jax.eval_shape(model.init, KEY, inputs), inputs)


def mixer():
    definition, state = nnx.split(nnx.eval_shape(lambda: Mixer(nnx.Rngs(0))))

    def loss(state, inputs):
        return jnp.square(nnx.merge(definition, state)(inputs)).mean()

    return jax.grad(loss), (state, shape(5, 20, 34))


def vision(key):
    first, second, third = jax.random.split(key, 3)
    return (
        equinox.nn.Conv2d(3, 18, 4, stride=4, key=first),
        equinox.nn.MultiheadAttention(3, 18, key=second),
        equinox.nn.GroupNorm(3, 18, channelwise_affine=True),
        equinox.nn.Linear(18, 7, key=third),
    )


def vision_loss():
    model = equinox.filter_eval_shape(vision, KEY)
    arrays, rest = equinox.partition(model, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))

    def apply(arrays, image):
        patch, attention, norm, head = equinox.combine(arrays, rest)
        tokens = norm(patch(image)).reshape(18, -1).T
        tokens = tokens + attention(tokens, tokens, tokens)
        return head(tokens.mean(axis=0))

    def loss(arrays, images, labels):
        logits = jax.vmap(apply, in_axes=(None, 0))(arrays, images)
        return optax.sigmoid_focal_loss(logits, labels).mean()

    return jax.grad(loss), (arrays, shape(6, 3, 24, 28), shape(6, 7))


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


def mixture(values):
    shares = numpyro.sample("shares", distributions.Dirichlet(jnp.ones(4)))
    with numpyro.plate("components", 4):
        places = numpyro.sample("places", distributions.Normal(0.0, 10.0))
        scales = numpyro.sample("scales", distributions.LogNormal(0.0, 1.0))
    parts = distributions.Normal(places, scales)
    mixed = distributions.MixtureSameFamily(distributions.Categorical(shares), parts)
    with numpyro.plate("data", values.shape[0]):
        numpyro.sample("values", mixed, obs=values)


def counties(groups, floors, levels):
    spread = numpyro.sample("spread", distributions.HalfNormal(1.0))
    noise = numpyro.sample("noise", distributions.Exponential(1.0))
    slope = numpyro.sample("slope", distributions.Normal(0.0, 1.0))
    with numpyro.plate("counties", 85):
        offsets = numpyro.sample("offsets", distributions.Normal(0.0, 1.0))
    expected = spread * offsets[groups] + slope * floors
    with numpyro.plate("houses", groups.shape[0]):
        numpyro.sample("levels", distributions.StudentT(5.0, expected, noise), obs=levels)


def counts(exposures, counts):
    walk = numpyro.sample("walk", distributions.GaussianRandomWalk(0.2, num_steps=61))
    shape = numpyro.sample("shape", distributions.Gamma(2.0, 0.5))
    rates = jnp.exp(walk) * exposures
    numpyro.sample("counts", distributions.NegativeBinomial2(rates, shape).to_event(1), obs=counts)


def density(model, values, *data):
    def logarithm(values, *data):
        return log_density(model, data, {}, values)[0]

    return jax.value_and_grad(logarithm), (values, *data)


programs = {
    "autoencoder": linen(Autoencoder(), shape(3, 18, 22, 5)),
    "tagger": linen(Tagger(), shape(6, 23, dtype="int32")),
    "mixer": mixer(),
    "vision": vision_loss(),
    "momentum": update(optax.sgd(1e-2, momentum=0.9, nesterov=True)),
    "rmsprop": update(optax.rmsprop(1e-3, centered=True, momentum=0.5)),
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
    "mixture": density(
        mixture,
        {"shares": ("f32", (4,)), "places": ("f32", (4,)), "scales": ("f32", (4,))},
        ("f32", (5003,)),
    ),
    "counties": density(
        counties,
        {
            "spread": ("f32", ()),
            "noise": ("f32", ()),
            "slope": ("f32", ()),
            "offsets": ("f32", (85,)),
        },
        ("s32", (919,)),
        ("f32", (919,)),
        ("f32", (919,)),
    ),
    "counts": density(
        counts,
        {"walk": ("f32", (61,)), "shape": ("f32", ())},
        ("f32", (61,)),
        ("s32", (61,)),
    ),
}
