"""Training and attention over eight devices, with the collectives that they need."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec

LINE, GRID = {"x": 8}, {"data": 2, "model": 4}


def ring_attention(query, key, value):
    """Each device holds its own queries while keys and values go round."""

    def local(query, key, value):
        turn = [(i, (i + 1) % 8) for i in range(8)]

        def step(_, carry):
            key, value, highest, total, mixed = carry
            scores = jnp.einsum("qhd,khd->hqk", query, key).astype(jnp.float32) / 8.0
            following = jnp.maximum(highest, scores.max(axis=-1))
            weights = jnp.exp(scores - following[..., None])
            shrink = jnp.exp(highest - following)
            total = total * shrink + weights.sum(axis=-1)
            part = jnp.einsum("hqk,khd->hqd", weights, value.astype(jnp.float32))
            mixed = mixed * shrink[..., None] + part
            key, value = lax.ppermute((key, value), "x", turn)
            return key, value, following, total, mixed

        time, heads, width = query.shape
        start = (
            jnp.full((heads, time), -1e30),
            jnp.zeros((heads, time)),
            jnp.zeros((heads, time, width)),
        )
        start = lax.pcast(start, "x", to="varying")
        *_, total, mixed = lax.fori_loop(0, 8, step, (key, value, *start))
        return (mixed / total[..., None]).swapaxes(0, 1).astype(query.dtype)

    row = PartitionSpec("x")
    return jax.shard_map(local, in_specs=(row, row, row), out_specs=row)(query, key, value)


def sharded_step(weights, momenta, inputs, labels):
    """A step of a model whose rows and columns lie on different devices."""

    def loss(weights):
        hidden = inputs
        for wide, narrow in weights[:-1]:
            mean = jnp.square(hidden).mean(axis=-1, keepdims=True)
            inner = jax.nn.gelu((hidden * lax.rsqrt(mean + 1e-6)) @ wide)
            inner = lax.with_sharding_constraint(inner, PartitionSpec("data", "model"))
            hidden = hidden + inner @ narrow
        logits = (hidden @ weights[-1]).astype(jnp.float32)
        chosen = jnp.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
        return (jax.nn.logsumexp(logits, axis=-1) - chosen).mean()

    value, change = jax.value_and_grad(loss)(weights)
    momenta = jax.tree.map(lambda m, g: 0.9 * m + g.astype(jnp.float32), momenta, change)
    weights = jax.tree.map(lambda w, m: (w - 0.01 * m).astype(w.dtype), weights, momenta)
    return weights, momenta, value


def shared_statistics(weights, images, labels):
    """Data-parallel gradients of a layer whose norm is taken over all devices."""

    def local(weights, images, labels):
        def loss(weights):
            kernel, scale, head = weights
            hidden = lax.conv_general_dilated(images, kernel, (2, 2), "SAME")
            mean = lax.pmean(hidden.mean(axis=(0, 2, 3)), "x")
            square = lax.pmean(jnp.square(hidden).mean(axis=(0, 2, 3)), "x")
            factor = scale * lax.rsqrt(square - mean**2 + 1e-5)
            normal = (hidden - mean[:, None, None]) * factor[:, None, None]
            pooled = jax.nn.relu(normal).mean(axis=(2, 3))
            chosen = jnp.take_along_axis(jax.nn.log_softmax(pooled @ head), labels[:, None], axis=1)
            return lax.pmean(-chosen.mean(), "x")

        return jax.value_and_grad(loss)(weights)

    row, whole = PartitionSpec("x"), PartitionSpec()
    mapped = jax.shard_map(local, in_specs=(whole, row, row), out_specs=whole)
    return mapped(weights, images, labels)


def layers(dtype):
    block = (dtype, (256, 1024), (None, "model")), (dtype, (1024, 256), ("model", None))
    return [block, block, (dtype, (256, 4096), (None, "model"))]


heads = ("bf16", (1024, 4, 64), ("x",))

programs = {
    "ring_attention": (ring_attention, (heads, heads, heads), {"mesh": LINE}),
    "sharded_step": (
        sharded_step,
        (layers("bf16"), layers("f32"), ("bf16", (64, 256), ("data",)), ("s32", (64,), ("data",))),
        {"mesh": GRID, "donate": (0, 1)},
    ),
    "shared_statistics": (
        shared_statistics,
        (
            (("f32", (16, 3, 3, 3)), ("f32", (16,)), ("f32", (16, 10))),
            ("f32", (32, 3, 24, 24), ("x",)),
            ("s32", (32,), ("x",)),
        ),
        {"mesh": LINE},
    ),
}
