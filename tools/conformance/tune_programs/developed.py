"""Programs with which the search of `tune` was developed: `fusionscope capture FILE:NAME`.

`NAME.draw(generator)` returns inputs on which the program computes something sensible.
"""

import os
from functools import partial

import jax
import jax.numpy as jnp
import numpy
from jax import ShapeDtypeStruct, lax

PROGRAMS = {}
UNROLL = int(os.environ.get("UNROLL", "1"))  # steps of a loop in one, as a person would try it
scan = partial(lax.scan, unroll=UNROLL)
fori_loop = partial(lax.fori_loop, unroll=UNROLL)


def _narrow(array):
    return array.astype({"f": "float32", "i": "int32"}.get(array.dtype.kind, array.dtype))


def program(draw):
    """Register a function with the inputs that ``draw`` makes."""

    def register(function):
        function.draw = lambda generator: [_narrow(numpy.asarray(e)) for e in draw(generator)]
        drawn = function.draw(numpy.random.default_rng(0))
        function.example_args = tuple(ShapeDtypeStruct(each.shape, each.dtype) for each in drawn)
        PROGRAMS[function.__name__] = function
        return function

    return register


def _black_scholes(spot, strike, years, rate, sigma):
    root = sigma * jnp.sqrt(years)
    first = (jnp.log(spot / strike) + (rate + sigma * sigma / 2) * years) / root

    def normal(x):
        return 0.5 * (1 + lax.erf(x / jnp.sqrt(2.0)))

    return spot * normal(first) - strike * jnp.exp(-rate * years) * normal(first - root)


@program(
    lambda g: [
        g.uniform(50, 150, 100_000),
        g.uniform(50, 150, 100_000),
        g.uniform(0.2, 2, 100_000),
        g.uniform(0.0, 0.1, 100_000),
        g.uniform(0.1, 0.5, 100_000),
    ]
)
def option_pricing(spot, strike, years, rate, sigma):
    price = jax.value_and_grad(_black_scholes, argnums=(0, 1, 2, 3, 4))
    return jax.vmap(price)(spot, strike, years, rate, sigma)


_DIRECTIONS = [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)]
_WEIGHTS = [4 / 9] + [1 / 9] * 4 + [1 / 36] * 4


@program(lambda g: [g.uniform(0.9, 1.1, (9, 256, 256)) * numpy.reshape(_WEIGHTS, (9, 1, 1))])
def lattice_boltzmann(f):
    density = sum(f[i] for i in range(9))
    u = sum(_DIRECTIONS[i][0] * f[i] for i in range(9)) / density
    v = sum(_DIRECTIONS[i][1] * f[i] for i in range(9)) / density
    square = 1.5 * (u * u + v * v)
    moved = []
    for i, (x, y) in enumerate(_DIRECTIONS):
        along = 3 * (x * u + y * v)
        equilibrium = _WEIGHTS[i] * density * (1 + along + 0.5 * along * along - square)
        moved.append(jnp.roll(f[i] - (f[i] - equilibrium) / 0.6, (x, y), (0, 1)))
    return jnp.stack(moved)


@program(lambda g: [g.normal(size=(8192, 16)), g.normal(size=(64, 16))])
def kmeans(points, centres):
    distances = (points**2).sum(1)[:, None] - 2 * points @ centres.T + (centres**2).sum(1)
    nearest = jnp.argmin(distances, 1)
    chosen = jax.nn.one_hot(nearest, centres.shape[0], dtype=points.dtype)
    counts = chosen.sum(0)
    sums = chosen.T @ points
    moved = jnp.where(counts[:, None] > 0, sums / jnp.maximum(counts, 1)[:, None], centres)
    return moved, nearest, distances.min(1).mean()


@program(lambda g: [g.uniform(-0.05, 0.05, (16, 4)), g.normal(size=4)])
def cartpole(start, policy):
    def step(state, _):
        x, speed, angle, turning = (state[:, i] for i in range(4))
        force = jnp.where(state @ policy > 0, 10.0, -10.0)
        sine, cosine = jnp.sin(angle), jnp.cos(angle)
        pushed = (force + 0.05 * turning**2 * sine) / 1.1
        bent = (9.8 * sine - cosine * pushed) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        moved = pushed - 0.05 * bent * cosine / 1.1
        new = jnp.stack(
            [x + 0.02 * speed, speed + 0.02 * moved, angle + 0.02 * turning, turning + 0.02 * bent],
            1,
        )
        return new, jnp.where(jnp.abs(angle) < 0.2, 1.0, 0.0)

    end, rewards = scan(step, start, None, 200)
    return end, rewards.sum(0)


@program(
    lambda g: [
        g.normal(size=(128, 256)),
        g.integers(0, 10, 128),
        g.normal(size=(256, 256)) / 16,
        numpy.zeros(256),
        g.normal(size=(256, 10)) / 16,
        numpy.zeros(10),
        numpy.zeros((256, 256)),
        numpy.zeros((256, 10)),
    ]
)
def training_step(x, labels, w1, b1, w2, b2, m1, m2):
    def loss(w1, b1, w2, b2):
        logits = jax.nn.gelu(x @ w1 + b1) @ w2 + b2
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1)
        return -chosen.mean()

    value, (g1, h1, g2, h2) = jax.value_and_grad(loss, (0, 1, 2, 3))(w1, b1, w2, b2)
    m1, m2 = 0.9 * m1 + 0.1 * g1, 0.9 * m2 + 0.1 * g2
    return value, w1 - 0.01 * m1, b1 - 0.01 * h1, w2 - 0.01 * m2, b2 - 0.01 * h2, m1, m2


@program(lambda g: [g.normal(size=(48, 3)), g.normal(size=(48, 3)), g.uniform(0.5, 1, 48)])
def bodies(position, velocity, mass):
    def step(_, state):
        position, velocity = state
        apart = position[None] - position[:, None]
        near = ((apart**2).sum(-1) + 0.01) ** -1.5
        velocity = velocity + 0.001 * jnp.einsum("ij,ijk,j->ik", near, apart, mass)
        return position + 0.001 * velocity, velocity

    return fori_loop(0, 50, step, (position, velocity))


@program(
    lambda g: [
        g.normal(size=(64, 8, 16)),
        g.normal(size=(16, 96)) / 4,
        g.normal(size=(32, 96)) / 6,
        g.normal(size=96) / 4,
    ]
)
def gru(xs, w, u, b):
    def step(h, x):
        a, c = x @ w + b, h @ u
        reset = jax.nn.sigmoid(a[:, :32] + c[:, :32])
        keep = jax.nn.sigmoid(a[:, 32:64] + c[:, 32:64])
        new = jnp.tanh(a[:, 64:] + reset * c[:, 64:])
        h = keep * h + (1 - keep) * new
        return h, h

    return scan(step, jnp.zeros((8, 32)), xs)


@program(lambda g: [g.normal(size=(3, 16))])
def integrator(start):
    def slope(state):
        x, y, z = state
        return jnp.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])

    def step(state, _):
        a = slope(state)
        b = slope(state + 0.005 * a)
        c = slope(state + 0.005 * b)
        d = slope(state + 0.01 * c)
        return state + 0.01 / 6 * (a + 2 * b + 2 * c + d), None

    return scan(step, start, None, 240)[0]


@program(lambda g: [g.dirichlet(numpy.ones(16), 16), g.uniform(0.1, 1, (256, 16))])
def markov_chain(transition, likelihood):
    def step(state, seen):
        new = (state @ transition) * seen
        total = new.sum()
        return new / total, jnp.log(total)

    end, logs = scan(step, jnp.full(16, 1 / 16), likelihood)
    return end, logs.sum()


@program(lambda g: [g.normal(size=2048)])
def biquad_filter(signal):
    def step(state, x):
        one, two = state
        y = 0.2 * x + one
        return (0.4 * x + 0.5 * y + two, 0.2 * x - 0.3 * y), y

    return scan(step, (jnp.float32(0), jnp.float32(0)), signal)[1]


@program(lambda g: [g.normal(size=(384, 384)), g.normal(size=(384, 384))])
def wave_step(now, before):
    around = sum(jnp.roll(now, shift, axis) for shift in (-1, 1) for axis in (0, 1))
    after = 2 * now - before + 0.1 * (around - 4 * now)
    energy = 0.5 * (after - now) ** 2
    return after * 0.999, now, energy.sum(), jnp.sqrt(energy + 1e-6)


@program(lambda g: [g.normal(size=(64, 2)), g.integers(0, 2**31, 2).astype("uint32")])
def sampler(start, key):
    def height(x):
        return -((1 - x[:, 0]) ** 2 + 5 * (x[:, 1] - x[:, 0] ** 2) ** 2)

    def step(state, key):
        x, value = state
        one, two = jax.random.split(key)
        wish = x + 0.3 * jax.random.normal(one, x.shape)
        other = height(wish)
        accepted = jnp.log(jax.random.uniform(two, value.shape)) < other - value
        x = jnp.where(accepted[:, None], wish, x)
        return (x, jnp.where(accepted, other, value)), x.mean(0)

    keys = jax.random.split(jax.random.wrap_key_data(key), 64)
    return scan(step, (start, height(start)), keys)[1]
