"""Learning as people write it, in jitted helpers that are called again and share their values."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax


@jax.jit
def centred(values):
    """A norm without weights over the last axis, computed wide and given back narrow."""
    wide = values.astype(jnp.float32)
    apart = wide - wide.mean(axis=-1, keepdims=True)
    return (apart * lax.rsqrt(jnp.square(apart).mean(-1, keepdims=True) + 1e-5)).astype(
        values.dtype
    )


@jax.custom_jvp
def spike(charge):
    return (charge > 0).astype(charge.dtype)


def spiking(weights, rates, labels, key):
    """Layers of cells that leak, tire and fire, driven by random spikes, taught through a bend."""

    @jax.jit
    def fired(state, current):
        charge, tired = state
        charge = 0.9 * charge + current
        out = spike(charge - 1.0 - tired)
        return (charge * (1 - out), 0.95 * tired + 0.1 * out), out

    def step(carry, key):
        first, second, total = carry
        visited = jax.random.bernoulli(key, rates).astype(rates.dtype)
        first, hidden = fired(first, visited @ weights[0] + first[1] @ weights[1])
        second, out = fired(second, hidden @ weights[2])
        return (first, second, total + out), (hidden.mean(), out.mean())

    rows = rates.shape[0]
    first = (jnp.zeros((rows, weights[0].shape[1]), rates.dtype),) * 2
    second = (jnp.zeros((rows, weights[2].shape[1]), rates.dtype),) * 2
    keys = jax.random.split(key, 50)
    (_, _, total), activity = lax.scan(step, (first, second, second[0]), keys)
    chosen = jnp.take_along_axis(jax.nn.log_softmax(total.astype(jnp.float32)), labels, axis=-1)
    busy = sum(jnp.square(part.astype(jnp.float32).mean() - 0.05) for part in activity)
    return -chosen.mean() + busy


def remembered_stack(weights, inputs, wanted):
    """Residual layers of which only the dots are kept, in groups of which nothing is."""

    @jax.jit
    def inner(weight, values):
        enter, leave = weight
        return values + jnp.tanh(centred(values) @ enter) @ leave

    @partial(jax.checkpoint, policy=jax.checkpoint_policies.checkpoint_dots)
    def layer(weight, values):
        return inner(weight[1], inner(weight[0], values))

    @jax.checkpoint
    def group(values, weights):
        for index in range(3):
            values = layer(jax.tree.map(lambda leaf, index=index: leaf[index], weights), values)
        return values, jnp.square(values.astype(jnp.float32)).mean()

    values, sizes = lax.scan(group, inputs, weights["groups"])
    values, last = group(values, weights["last"])
    apart = values.astype(jnp.float32) - wanted
    return jnp.log(jnp.cosh(apart)).mean() + 1e-3 * (sizes.sum() + last)


row, key, square = ("f32", (144,)), ("u32", (2,)), ("f32", (4, 4))

programs = {
    "spiking_gradient": (
        jax.grad(spiking),
        (
            (("f16", (90, 64)), ("f16", (64, 64)), ("f16", (64, 12))),
            ("f16", (25, 90)),
            ("s32", (25, 1)),
            key,
        ),
    ),
    "remembered_stack_gradient": (
        jax.grad(remembered_stack),
        (
            {
                "groups": [(("bf16", (2, 3, 128, 256)), ("bf16", (2, 3, 256, 128)))] * 2,
                "last": [(("bf16", (3, 128, 256)), ("bf16", (3, 256, 128)))] * 2,
            },
            ("bf16", (60, 128)),
            ("f32", (60, 128)),
        ),
    ),
}
