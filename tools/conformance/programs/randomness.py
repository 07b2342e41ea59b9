"""Random numbers of many distributions, from both kinds of generator."""

import jax
import jax.numpy as jnp
from jax import lax


def distributions(key):
    keys = jax.random.split(key, 9)
    rates = jnp.linspace(0.5, 3.0, 70)
    return (
        jax.random.gamma(keys[0], rates, (20, 70)),
        jax.random.dirichlet(keys[1], jnp.ones(6), (100,)),
        jax.random.laplace(keys[2], (333,)) + jax.random.cauchy(keys[3], (333,)),
        jax.random.truncated_normal(keys[4], -1.0, 2.0, (15, 40)),
        jax.random.t(keys[5], 4.0, (200,)),
        jax.random.rademacher(keys[6], (64, 64)).astype(jnp.float32).sum(axis=0),
        jax.random.exponential(keys[7], (500,)).cumsum(),
        jax.random.categorical(keys[8], jnp.log(rates), shape=(90,)),
    )


def counted_draws(key, rates):
    first, second = jax.random.split(key)
    counts = jax.random.poisson(first, rates)
    return counts, jax.random.binomial(second, 20.0, jax.nn.sigmoid(rates - 2.0))


def hardware_noise(bits, images):
    """Noise of the generator that the hardware has, in two number types, and a shuffle."""
    key = jax.random.wrap_key_data(bits, impl="rbg")
    first, second, third = jax.random.split(key, 3)
    noised = images + 0.1 * jax.random.normal(first, images.shape, images.dtype)
    dropped = jnp.where(jax.random.bernoulli(second, 0.75, images.shape), noised / 0.75, 0.0)
    return dropped, jax.random.uniform(third, (1001,)) < 0.3


def straight_through(logits, temperature, key):
    """A categorical layer that draws forward and is smooth backward."""
    noise = -jnp.log(-jnp.log(jax.random.uniform(key, logits.shape, minval=1e-9) + 1e-9))
    soft = jax.nn.softmax((logits + noise) / temperature, axis=-1)
    hard = jax.nn.one_hot(jnp.argmax(soft, axis=-1), logits.shape[-1])
    chosen = lax.stop_gradient(hard - soft) + soft
    share = jax.nn.softmax(logits, axis=-1)
    distance = (share * (jnp.log(share + 1e-20) + jnp.log(logits.shape[-1] * 1.0))).sum(axis=-1)
    return jnp.square(chosen @ jnp.arange(logits.shape[-1] * 1.0) - 3.0).mean() + distance.mean()


def random_walks(key, drift, start):
    """Many walks at once, each with its own key, stopped where they meet a wall."""

    def walk(key, drift):
        steps = drift + jax.random.normal(key, (365,))
        path = start + jnp.cumsum(steps)
        hit = jnp.abs(path) > 20.0
        first = jnp.where(hit.any(), jnp.argmax(hit), 365)
        return path[jnp.minimum(first, 364)], first

    keys = jax.random.split(key, drift.shape[0])
    ends, times = jax.vmap(walk)(keys, drift)
    return ends.mean(), ends.std(), jnp.bincount(times // 73, length=6)


def bootstrap(key, values):
    """Resampled means, a permuted group difference, and the intervals of both."""
    first, second = jax.random.split(key)
    chosen = jax.random.randint(first, (500, values.shape[0]), 0, values.shape[0])
    means = values[chosen].mean(axis=1)
    mixed = jax.vmap(lambda key: jax.random.permutation(key, values))(jax.random.split(second, 64))
    half = values.shape[0] // 2
    difference = mixed[:, :half].mean(axis=1) - mixed[:, half:].mean(axis=1)
    return jnp.percentile(means, jnp.array([2.5, 97.5])), (difference > 0.1).mean()


key = ("u32", (2,))

programs = {
    "distributions": (distributions, (key,)),
    "counted_draws": (counted_draws, (key, ("f32", (40, 25)))),
    "hardware_noise": (hardware_noise, (("u32", (4,)), ("bf16", (3, 50, 44, 3)))),
    "straight_through_gradient": (
        jax.grad(straight_through),
        (("f32", (64, 9, 10)), ("f32", ()), key),
    ),
    "random_walks": (random_walks, (key, ("f32", (1000,)), ("f32", ()))),
    "bootstrap": (bootstrap, (key, ("f32", (210,)))),
}
