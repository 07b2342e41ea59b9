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


def gathered(block, weight):
    return jnp.tanh(lax.all_gather(block, "x", axis=0, tiled=True)) @ weight


def scattered(block):
    return lax.psum_scatter(block * block, "x", scatter_dimension=0, tiled=True) + 1.0


def exchanged(block):
    return lax.all_to_all(jnp.exp(block), "x", split_axis=1, concat_axis=0, tiled=True)


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
square = ("f32", (256, 256))

programs = {
    "normalised": (mapped(normalised, X, X), (("f32", (64, 128), ("x",)),), {"mesh": LINE}),
    "gathered": (
        mapped(gathered, (X, PartitionSpec(None, "x")), PartitionSpec(None, "x")),
        (("f32", (64, 128), ("x",)), ("f32", (128, 64), (None, "x"))),
        {"mesh": LINE},
    ),
    "scattered": (
        mapped(scattered, PartitionSpec(None, "x"), X),
        (("f32", (64, 128), (None, "x")),),
        {"mesh": LINE},
    ),
    "exchanged": (mapped(exchanged, X, X), (("f32", (64, 128), ("x",)),), {"mesh": LINE}),
    "ring": (mapped(ring, X, X), (("f32", (64, 128), ("x",)),), {"mesh": LINE}),
    "layer": (
        layer,
        (
            ("f32", (128, 256), ("data",)),
            ("f32", (256, 512), (None, "model")),
            ("f32", (512, 256), ("model", None)),
        ),
        {"mesh": GRID},
    ),
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
    "all_axes": (
        lambda a, b: jnp.tanh(a @ b).sum(axis=1),
        (("f32", (256, 256), (("data", "model"), None)), ("f32", (256, 256), ("model",))),
        {"mesh": GRID},
    ),
    "cube": (
        lambda a, b: jnp.einsum("bij,bjk->bik", a, b),
        (("bf16", (4, 64, 64), ("a", "b", "c")), ("bf16", (4, 64, 64), ("a", "c"))),
        {"mesh": {"a": 2, "b": 2, "c": 2}},
    ),
    "sort": (
        lambda x: jnp.sort(x, axis=0) + jnp.cumsum(x, axis=0),
        (("f32", (512, 64), ("x",)),),
        {"mesh": LINE},
    ),
}
