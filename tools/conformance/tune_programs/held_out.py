"""Programs on which the search of `tune` was not developed, in the form of developed.py."""

import importlib.util
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy
from jax import lax

_spec = importlib.util.spec_from_file_location(
    "developed", Path(__file__).with_name("developed.py")
)
_developed = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_developed)
program = _developed.program
PROGRAMS = _developed.PROGRAMS
scan, fori_loop = _developed.scan, _developed.fori_loop
PROGRAMS.clear()


@program(lambda g: [g.normal(size=(256, 256)), g.uniform(0.5, 1.5, (256, 256))])
def reaction_diffusion(u, v):
    def laplace(x):
        return sum(jnp.roll(x, s, a) for s in (-1, 1) for a in (0, 1)) - 4 * x

    reaction = u * v * v
    u_new = u + 0.1 * (0.16 * laplace(u) - reaction + 0.035 * (1 - u))
    v_new = v + 0.1 * (0.08 * laplace(v) + reaction - 0.1 * v)
    return u_new, v_new, jnp.tanh(u_new - v_new)


@program(lambda g: [g.normal(size=(20_000, 3)), g.normal(size=(20_000, 3)), g.normal(size=3)])
def particle_step(position, velocity, field):
    speed = jnp.sqrt((velocity**2).sum(1, keepdims=True) + 1e-6)
    gamma = 1 / jnp.sqrt(1 + 0.01 * speed**2)
    force = jnp.cross(velocity, field) - 0.1 * position * jnp.exp(-(position**2))
    velocity = velocity + 0.01 * gamma * force
    position = position + 0.01 * velocity
    bounced = jnp.abs(position) > 3
    return (
        jnp.where(bounced, jnp.sign(position) * 6 - position, position),
        jnp.where(bounced, -velocity, velocity),
        0.5 * (velocity**2).sum(1),
    )


@program(lambda g: [g.normal(size=(200, 4)), numpy.eye(4) * 0.1, g.normal(size=4)])
def kalman_filter(seen, noise, start):
    move = jnp.eye(4) + 0.1 * jnp.eye(4, k=1)

    def step(state, z):
        mean, gain = state
        mean = move @ mean
        spread = gain + noise.diagonal()
        k = spread / (spread + 0.5)
        mean = mean + k * (z - mean)
        return (mean, (1 - k) * spread), mean

    return scan(step, (start, jnp.ones(4)), seen)[1]


@program(lambda g: [g.normal(size=(50_000,)), g.uniform(0.05, 0.5, 50_000)])
def implied_moves(x, sigma):
    def price(s, x):
        d = (x + s * s / 2) / s
        other = jnp.exp(-x * 0.1) * 0.5 * (1 + lax.erf(d - s))
        return 0.5 * (1 + lax.erf(d / 1.4142135)) - other

    target = price(sigma, x)
    guess = jnp.full_like(x, 0.3)
    for _ in range(3):
        value, slope = jax.vmap(jax.value_and_grad(price))(guess, x)
        guess = jnp.clip(guess - 0.1 * (value - target) / (slope + 1.0), 0.01, 2.0)
    return guess, target


@program(lambda g: [g.normal(size=(64, 64)), g.normal(size=(64, 64)) / 8, g.normal(size=64)])
def recurrent_network(xs, w, b):
    def step(h, x):
        h = jnp.tanh(x + h @ w + b)
        return h, (h * h).sum()

    return scan(step, jnp.zeros(64), xs)


@program(lambda g: [g.uniform(0, 1, (3, 200, 200))])
def image_filter(image):
    grey = (image * jnp.array([0.299, 0.587, 0.114])[:, None, None]).sum(0)
    x = grey[1:-1, 2:] - grey[1:-1, :-2]
    y = grey[2:, 1:-1] - grey[:-2, 1:-1]
    strength = jnp.sqrt(x * x + y * y + 1e-6)
    angle = jnp.arctan2(y, x + 1e-6)
    return strength, jnp.sin(2 * angle) * strength, jnp.cos(2 * angle) * strength, strength > 0.1


@program(lambda g: [g.normal(size=(6, 32)), g.normal(size=(6, 32))])
def robot_arm(angles, speeds):
    def step(state, _):
        q, v = state
        total = jnp.cumsum(q, 0)
        gravity = jnp.cumsum(jnp.cos(total)[::-1], 0)[::-1]
        a = -gravity - 0.5 * v - 2 * jnp.sin(q)
        v = v + 0.005 * a
        q = q + 0.005 * v
        return (q, v), total[-1].mean()

    return scan(step, (angles, speeds), None, 120)


@program(lambda g: [g.normal(size=1024)])
def envelope_follower(signal):
    def step(state, x):
        level, gain = state
        up = jnp.abs(x)
        level = jnp.where(up > level, 0.9 * level + 0.1 * up, 0.99 * level + 0.01 * up)
        gain = 0.95 * gain + 0.05 / (1 + level)
        return (level, gain), x * gain

    return scan(step, (jnp.float32(0), jnp.float32(1)), signal)[1]


@program(lambda g: [g.normal(size=(4096, 64)), g.normal(size=(64,)), g.normal(size=(64,))])
def normalised_activation(x, scale, shift):
    mean = x.mean(1, keepdims=True)
    variance = ((x - mean) ** 2).mean(1, keepdims=True)
    y = (x - mean) * lax.rsqrt(variance + 1e-5) * scale + shift
    return jax.nn.gelu(y) + jax.nn.silu(y), jnp.tanh(y)


@program(lambda g: [g.normal(size=(8, 128, 32)), g.normal(size=(8, 128, 32))])
def attention(q, k):
    weights = jax.nn.softmax(q @ jnp.swapaxes(k, 1, 2) / 5.6, -1)
    return weights @ k, weights.max(-1)


@program(lambda g: [g.normal(size=(16, 16)), g.normal(size=16)])
def power_iteration(a, start):
    def step(_, x):
        y = a @ x + 0.1 * x
        return y / jnp.sqrt((y * y).sum())

    return fori_loop(0, 100, step, start)


@program(lambda g: [g.uniform(0.1, 1, (512, 20)), g.dirichlet(numpy.ones(20), 1)[0]])
def portfolio_paths(prices, weights):
    returns = jnp.log(prices[1:] / prices[:-1])
    value = jnp.cumsum(returns @ weights)
    peak = lax.cummax(value)
    drop = value - peak
    return value, drop.min(), returns.std(0), jnp.exp(value) * (1 + drop)
