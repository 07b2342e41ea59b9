"""Programs for eight devices: collectives, and shardings written in many forms."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec

LINE, GRID = {"x": 8}, {"data": 4, "model": 2}


def mapped(function, inputs, outputs):
    return lambda *arguments: jax.shard_map(function, in_specs=inputs, out_specs=outputs)(
        *arguments
    )


def layer(inputs, first, second):
    hidden = jax.nn.relu(inputs @ first)
    hidden = lax.with_sharding_constraint(hidden, PartitionSpec("data", "model"))
    return lax.with_sharding_constraint(hidden @ second, PartitionSpec("data", None))


def step(inputs, first, second):
    gradients = jax.grad(lambda w: (layer(inputs, *w) ** 2).mean())((first, second))
    return jax.tree.map(lambda weight, change: weight - 0.1 * change, (first, second), gradients)


def ring(block):
    turn = [(i, (i + 1) % 8) for i in range(8)]

    def exchange(_, carry):
        moving, total = carry
        moving = lax.ppermute(moving, "x", turn)
        return moving, total + jnp.tanh(moving)

    return lax.fori_loop(0, 7, exchange, (block, block))[1]


def normalised(block):
    total = lax.psum(jnp.exp(block - lax.pmax(block.max(), "x")).sum(), "x")
    return jnp.exp(block) / total + lax.axis_index("x")


def constrained(values):
    constrain = functools.partial(lax.with_sharding_constraint, values * 2.0)
    return (
        constrain(PartitionSpec(("data", "model"), None)),
        constrain(PartitionSpec(None, "model")).sum(axis=0),
        constrain(PartitionSpec()).max(),
        constrain(PartitionSpec("model", "data")).T,
    )


X = PartitionSpec("x")

programs = {
    "normalised": (mapped(normalised, X, X), (("f32", (64, 128), ("x",)),), {"mesh": LINE}),
    "ring": (mapped(ring, X, X), (("f32", (64, 128), ("x",)),), {"mesh": LINE}),
    "step": (
        step,
        (
            ("f32", (128, 256), ("data",)),
            ("f32", (256, 512), (None, "model")),
            ("f32", (512, 256), ("model", None)),
        ),
        {"mesh": GRID, "donate": (1, 2)},
    ),
    "constrained": (constrained, (("f32", (64, 64), ("data", "model")),), {"mesh": GRID}),
    "cube": (
        lambda a, b: jnp.einsum("bij,bjk->bik", a, b),
        (("bf16", (4, 64, 64), ("a", "b", "c")), ("bf16", (4, 64, 64), ("a", "c"))),
        {"mesh": {"a": 2, "b": 2, "c": 2}},
    ),
}
