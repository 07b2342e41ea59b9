"""Probabilistic programs and their samplers, in numpyro and blackjax."""

import blackjax
import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as distributions
from jax import lax
from numpyro.infer import HMC, NUTS, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal, AutoNormal

KEY = jax.ShapeDtypeStruct((2,), "uint32")


def shape(*dimensions, dtype="float32"):
    return jax.ShapeDtypeStruct(dimensions, dtype)


def spread_slopes(features, groups, outcomes=None):
    """Slopes of groups around a common slope, with correlations between them."""
    common = numpyro.sample("common", distributions.Normal(0.0, 2.0).expand([5]).to_event(1))
    scale = numpyro.sample("scale", distributions.HalfNormal(1.0).expand([5]).to_event(1))
    factor = numpyro.sample("factor", distributions.LKJCholesky(5, 2.0))
    with numpyro.plate("groups", 20):
        raw = numpyro.sample("raw", distributions.Normal(0.0, 1.0).expand([5]).to_event(1))
    slopes = common + raw @ (scale[:, None] * factor).T
    logits = (features * slopes[groups]).sum(axis=-1)
    with numpyro.plate("rows", features.shape[0]):
        numpyro.sample("outcomes", distributions.Bernoulli(logits=logits), obs=outcomes)


def hidden_weather(observed):
    """States in time that are summed out by a forward pass of logarithms."""
    moves = numpyro.sample("moves", distributions.Dirichlet(jnp.ones((4, 4))).to_event(1))
    with numpyro.plate("states", 4):
        mean = numpyro.sample("mean", distributions.Normal(0.0, 5.0))
        noise = numpyro.sample("noise", distributions.Gamma(2.0, 2.0))

    def step(total, value):
        total = jax.nn.logsumexp(total[:, None] + jnp.log(moves), axis=0)
        total = total + distributions.Normal(mean, noise).log_prob(value)
        return total, total

    start = distributions.Normal(mean, noise).log_prob(observed[0]) - jnp.log(4.0)
    total, _ = lax.scan(step, start, observed[1:])
    numpyro.factor("forward", jax.nn.logsumexp(total))


def volatile(returns):
    """A random walk of volatility under returns with heavy tails."""
    step = numpyro.sample("step", distributions.Exponential(50.0))
    tails = numpyro.sample("tails", distributions.Exponential(0.1))
    walk = numpyro.sample("walk", distributions.GaussianRandomWalk(step, returns.shape[0]))
    heavy = distributions.StudentT(tails + 2.0, 0.0, jnp.exp(walk))
    numpyro.sample("returns", heavy.to_event(1), obs=returns)


def topics(weights, counts, bits):
    """The bound of a topic model with an encoder in front, by draws that can be derived."""
    hidden = jax.nn.softplus(counts @ weights["enter"])
    mean, spread = jnp.split(hidden @ weights["middle"], 2, axis=-1)
    noise = jax.random.normal(jax.random.wrap_key_data(bits), mean.shape)
    shares = jax.nn.softmax(mean + jnp.exp(0.5 * spread) * noise)
    words = jax.nn.log_softmax(shares @ weights["leave"])
    divergence = 0.5 * (jnp.exp(spread) + mean**2 - 1.0 - spread).sum(axis=-1)
    return (divergence - (counts * words).sum(axis=-1)).mean()


def gaussian_process(weights, places, values, induced):
    """The bound of a sparse Gaussian process with a kernel of Matern."""
    length, scale, noise = jnp.exp(weights)

    def kernel(left, right):
        distance = jnp.sqrt(((left[:, None] - right) ** 2).sum(axis=-1) + 1e-12) / length
        near = 1.0 + 5**0.5 * distance + 5 / 3 * distance**2
        return scale * near * jnp.exp(-(5**0.5) * distance)

    lower = jnp.linalg.cholesky(kernel(induced, induced) + 1e-4 * jnp.eye(induced.shape[0]))
    between = jax.scipy.linalg.solve_triangular(lower, kernel(induced, places), lower=True)
    middle = jnp.eye(induced.shape[0]) + between @ between.T / noise
    factor = jnp.linalg.cholesky(middle)
    seen = jax.scipy.linalg.solve_triangular(factor, between @ values, lower=True) / noise
    size = places.shape[0]
    bound = jnp.log(jnp.diagonal(factor)).sum() + 0.5 * size * jnp.log(2.0 * jnp.pi * noise)
    bound = bound + 0.5 * (values @ values) / noise - 0.5 * seen @ seen
    return bound + 0.5 * (size * scale - jnp.square(between).sum()) / noise


def sampled(kernel, *data):
    """One transition of a sampler of numpyro, from the shapes that its own start gives."""
    state = jax.eval_shape(lambda key, *data: kernel.init(key, 100, None, data, {}), KEY, *data)
    return lambda state, *data: kernel.sample(state, data, {}), (state, *data)


def fitted(model, guide, *data):
    """One step of variational inference."""
    inference = SVI(model, guide, numpyro.optim.ClippedAdam(1e-3), Trace_ELBO(num_particles=4))
    state = jax.eval_shape(inference.init, KEY, *data)
    return inference.update, (state, *data), {"donate": (0,)}


def banana(place, heights):
    """A curved density, with rows of measurements as a weak pull."""
    first, second = place[..., 0], place[..., 1]
    ridge = -((1.0 - first) ** 2) - 10.0 * (second - first**2) ** 2
    return ridge - 0.5 * jnp.square(place @ jnp.ones(2) - heights).mean()


def chains(algorithm, options, start, bits, heights):
    """Many chains of one sampler of blackjax, each a few steps long."""
    kernel = algorithm(lambda place: banana(place, heights), **options)

    def chain(start, key):
        def step(state, key):
            state, told = kernel.step(key, state)
            return state, (state.position, told.acceptance_rate)

        return lax.scan(step, kernel.init(start), jax.random.split(key, 8))[1]

    keys = jax.random.split(jax.random.wrap_key_data(bits), start.shape[0])
    places, rates = jax.vmap(chain)(start, keys)
    between = places.mean(axis=1).var(axis=0)
    within = places.var(axis=1).mean(axis=0)
    return places[:, -1], rates.mean(), jnp.sqrt(1.0 + between / within)


def langevin(start, bits, heights):
    return chains(blackjax.mala, {"step_size": 1e-2}, start, bits, heights)


def no_turns(start, bits, heights):
    options = {"step_size": 1e-1, "inverse_mass_matrix": jnp.ones(2), "max_num_doublings": 4}
    return chains(blackjax.nuts, options, start, bits, heights)


features, groups = shape(3000, 5), shape(3000, dtype="int32")
outcomes, returns = shape(3000, dtype="int32"), shape(500)

programs = {
    "slopes_sampled": sampled(NUTS(spread_slopes, max_tree_depth=6), features, groups, outcomes),
    "weather_sampled": sampled(HMC(hidden_weather, num_steps=5), shape(365)),
    "slopes_fitted": fitted(
        spread_slopes, AutoMultivariateNormal(spread_slopes), features, groups, outcomes
    ),
    "volatility_fitted": fitted(volatile, AutoNormal(volatile), returns),
    "topics_gradient": (
        jax.grad(topics),
        (
            {
                "enter": ("f32", (2000, 100)),
                "middle": ("f32", (100, 40)),
                "leave": ("f32", (20, 2000)),
            },
            ("f32", (64, 2000)),
            ("u32", (2,)),
        ),
    ),
    "gaussian_process_gradient": (
        jax.grad(gaussian_process, argnums=(0, 3)),
        (("f32", (3,)), ("f32", (900, 2)), ("f32", (900,)), ("f32", (50, 2))),
    ),
    "langevin": (langevin, (("f32", (200, 2)), ("u32", (2,)), ("f32", (50,)))),
    "no_turns": (no_turns, (("f32", (16, 2)), ("u32", (2,)), ("f32", (50,)))),
}
