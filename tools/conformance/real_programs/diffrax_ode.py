"""A training step of a neural ordinary differential equation (Diffrax, Tsit5, checkpoints)."""

import diffrax
import jax
import jax.numpy as jnp

W = 64


def field(t, y, a):
    w1, b1, w2, b2 = a
    return jnp.tanh(jnp.tanh(y @ w1 + b1) @ w2 + b2)


def loss(a, y0, y1):
    s = diffrax.diffeqsolve(
        diffrax.ODETerm(field),
        diffrax.Tsit5(),
        0.0,
        1.0,
        0.05,
        y0,
        args=a,
        stepsize_controller=diffrax.ConstantStepSize(),
        adjoint=diffrax.RecursiveCheckpointAdjoint(checkpoints=8),
        max_steps=64,
        throw=False,
    )
    return ((s.ys[-1] - y1) ** 2).mean()


def step(a, y0, y1):
    value, g = jax.value_and_grad(loss)(a, y0, y1)
    return jax.tree.map(lambda p, q: p - 1e-2 * q, a, g), value


def array(*sizes):
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


example_args = ((array(16, W), array(W), array(W, 16), array(16)), array(256, 16), array(256, 16))
