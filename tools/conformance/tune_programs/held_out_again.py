"""Programs written after joined kernels and unrolling by blocks, in the form of developed.py."""

import importlib.util
from pathlib import Path

import jax
import jax.numpy as jnp
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


@program(
    lambda g: [g.uniform(80, 120, 60_000), g.uniform(0.01, 0.2, 60_000), g.normal(size=(2, 60_000))]
)
def stochastic_volatility(price, variance, noise):
    root = jnp.sqrt(variance)
    other = -0.7 * noise[0] + 0.714 * noise[1]
    price_new = price * jnp.exp(-0.5 * variance * 0.01 + root * 0.1 * noise[0])
    variance_new = jnp.abs(variance + 0.02 * (0.04 - variance) + 0.03 * root * other)
    payoff = jnp.maximum(price_new - 100, 0)
    return price_new, variance_new, payoff, jnp.log(price_new / price)


@program(lambda g: [g.normal(size=(320, 320)), g.uniform(0.1, 1, (320, 320))])
def heat_step(heat, conductivity):
    padded = jnp.pad(heat, 1, mode="edge")
    k = jnp.pad(conductivity, 1, mode="edge")

    def flow(a, b):
        return 2 * k[a] * k[b] / (k[a] + k[b]) * (padded[b] - padded[a])

    inner = (slice(1, -1), slice(1, -1))
    sides = [
        (slice(2, None), slice(1, -1)),
        (slice(None, -2), slice(1, -1)),
        (slice(1, -1), slice(2, None)),
        (slice(1, -1), slice(None, -2)),
    ]
    change = sum(flow(inner, side) for side in sides)
    return heat + 0.1 * change, jnp.abs(change).max()


@program(lambda g: [g.normal(size=30_000), g.normal(size=6), g.uniform(0.5, 1.5, 6)])
def gaussian_mixture(x, means, spreads):
    z = (x[:, None] - means) / spreads
    weights = jax.nn.softmax(-0.5 * z * z - jnp.log(spreads), 1)
    total = weights.sum(0)
    centre = (weights * x[:, None]).sum(0) / total
    return centre, jnp.sqrt((weights * (x[:, None] - centre) ** 2).sum(0) / total), weights


@program(lambda g: [g.uniform(-3, 3, 384), g.normal(size=384)])
def coupled_oscillators(phase, speed):
    def slope(phase):
        return speed + jnp.sin(phase[None] - phase[:, None]).mean(1)

    first = slope(phase)
    second = slope(phase + 0.01 * first)
    new = phase + 0.005 * (first + second)
    order = jnp.sqrt(jnp.cos(new).mean() ** 2 + jnp.sin(new).mean() ** 2)
    return new, order


@program(lambda g: [g.normal(size=(64, 8)), g.normal(size=(64, 8))])
def leapfrog_sampler(position, momentum):
    def energy(q):
        return (0.5 * q**2 + jnp.cos(2 * q)).sum() + 0.1 * (q[:, 1:] * q[:, :-1]).sum()

    def step(_, state):
        q, p = state
        p = p - 0.05 * jax.grad(energy)(q)
        q = q + 0.1 * p
        return q, p - 0.05 * jax.grad(energy)(q)

    return fori_loop(0, 64, step, (position, momentum))


@program(
    lambda g: [g.normal(size=(128, 32)), g.normal(size=(32, 32)) / 6, g.normal(size=(32, 32)) / 6]
)
def residual_network(x, first, second):
    for _ in range(3):
        hidden = jax.nn.gelu(x @ first)
        x = x + jnp.tanh(hidden @ second)
        x = (x - x.mean(1, keepdims=True)) / (x.std(1, keepdims=True) + 1e-3)
    return x, jax.nn.log_softmax(x, 1)


@program(lambda g: [g.uniform(-2, 2, 256), g.uniform(-2, 2, 256), g.normal(size=(2, 256)) / 4])
def double_pendulum(a, b, speeds):
    def slope(a, b, u, v):
        d = a - b
        below = 3 - jnp.cos(2 * d)
        first = -3 * 9.8 * jnp.sin(a) - 9.8 * jnp.sin(a - 2 * b)
        first = first - 2 * jnp.sin(d) * (v * v + u * u * jnp.cos(d))
        second = 2 * jnp.sin(d) * (2 * u * u + 2 * 9.8 * jnp.cos(a) + v * v * jnp.cos(d))
        return first / below, second / below

    def step(state, _):
        a, b, u, v = state
        du, dv = slope(a, b, u, v)
        u, v = u + 0.002 * du, v + 0.002 * dv
        a, b = a + 0.002 * u, b + 0.002 * v
        return (a, b, u, v), 0.5 * (u * u + v * v).mean()

    return scan(step, (a, b, speeds[0], speeds[1]), None, 200)


@program(lambda g: [g.normal(size=(40_000, 4)), g.normal(size=(40_000, 3)) / 10])
def attitude_update(quaternion, rate):
    q = quaternion / jnp.linalg.norm(quaternion, axis=1, keepdims=True)
    w, x, y, z = q[:, 0], q[:, 1], q[:, 2], q[:, 3]
    p, r, s = rate[:, 0], rate[:, 1], rate[:, 2]
    turned = jnp.stack(
        [
            w - 0.05 * (x * p + y * r + z * s),
            x + 0.05 * (w * p + y * s - z * r),
            y + 0.05 * (w * r + z * p - x * s),
            z + 0.05 * (w * s + x * r - y * p),
        ],
        1,
    )
    turned = turned / jnp.linalg.norm(turned, axis=1, keepdims=True)
    roll = jnp.arctan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
    pitch = jnp.arcsin(jnp.clip(2 * (w * y - z * x), -1, 1))
    return turned, roll, pitch


@program(lambda g: [g.normal(size=(32, 2048)), g.normal(size=9)])
def tapped_filter(signal, taps):
    padded = jnp.pad(signal, ((0, 0), (8, 0)))
    filtered = sum(taps[i] * padded[:, 8 - i : 2056 - i] for i in range(9))
    envelope = jnp.sqrt(filtered**2 + 1e-6)
    return filtered, envelope, jnp.log1p(envelope), jnp.sign(filtered) * jnp.sqrt(envelope)


@program(lambda g: [g.normal(size=(5_000, 24)), g.normal(size=24), g.integers(0, 2, 5_000)])
def logistic_step(x, weights, label):
    def loss(weights):
        score = x @ weights
        return (jax.nn.softplus(score) - label * score).mean() + 0.01 * (weights**2).sum()

    value, slope = jax.value_and_grad(loss)(weights)
    return value, weights - 0.1 * slope / (jnp.linalg.norm(slope) + 1e-6)


@program(lambda g: [g.normal(size=(300, 16)), g.normal(size=(16, 16)) / 4, g.normal(size=(16, 4))])
def queue_controller(arrivals, move, control):
    def step(state, arrival):
        action = jnp.tanh(state @ control)
        state = jax.nn.relu(state @ move + arrival - jnp.repeat(action, 4))
        return state * 0.9, (state.sum(), action)

    return scan(step, jnp.zeros(16), arrivals)[1]


@program(lambda g: [g.uniform(0, 1, (400, 400)), g.uniform(0.2, 2, 4)])
def tone_mapping(image, curve):
    light = jnp.log2(image + 0.01)
    blurred = sum(jnp.roll(light, (a, b), (0, 1)) for a in (-1, 0, 1) for b in (-1, 0, 1)) / 9
    detail = light - blurred
    base = jnp.tanh(blurred * curve[0]) * curve[1]
    out = jnp.exp2(base + detail * curve[2])
    return out / (1 + out), lax.integer_pow(detail, 2).mean(), jnp.clip(out, 0, curve[3])
