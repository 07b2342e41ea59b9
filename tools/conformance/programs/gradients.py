"""Derivatives of small losses: reverse, forward, both, and with recomputation."""

import jax
import jax.numpy as jnp


def layers(weights, inputs):
    for weight, bias in weights:
        inputs = jnp.tanh(inputs @ weight + bias)
    return inputs


def loss(weights, inputs, targets):
    return jnp.mean((layers(weights, inputs) - targets) ** 2)


def layer_norm(inputs, scale, bias):
    mean = inputs.mean(axis=-1, keepdims=True)
    variance = inputs.var(axis=-1, keepdims=True)
    return ((inputs - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + bias).sum()


def recomputed(weights, inputs, targets):
    checkpointed = jax.checkpoint(layers)
    return jax.grad(lambda w: jnp.mean((checkpointed(w, inputs) - targets) ** 2))(weights)


def rosenbrock(point):
    return (100.0 * (point[1:] - point[:-1] ** 2) ** 2 + (1.0 - point[:-1]) ** 2).sum()


weights = [(("f32", (64, 128)), ("f32", (128,))), (("f32", (128, 64)), ("f32", (64,)))]
data = ("f32", (32, 64))
vector = ("f32", (512,))

programs = {
    "layers": (jax.grad(loss), (weights, data, data)),
    "layer_norm": (
        jax.grad(layer_norm, argnums=(0, 1, 2)),
        (("f32", (256, 512)), vector, vector),
    ),
    "recomputed": (recomputed, (weights, data, data)),
    "hessian": (jax.hessian(rosenbrock), (("f32", (16,)),)),
}
