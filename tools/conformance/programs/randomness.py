"""Random numbers of many distributions, from both kinds of generator."""

import jax
import jax.numpy as jnp


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


key = ("u32", (2,))

programs = {
    "distributions": (distributions, (key,)),
    "counted_draws": (counted_draws, (key, ("f32", (40, 25)))),
    "hardware_noise": (hardware_noise, (("u32", (4,)), ("bf16", (3, 50, 44, 3)))),
}
