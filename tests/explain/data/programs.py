"""One program for each way in which a pass rewrites all around an instruction."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

LINE = {"mesh": {"x": 8}}


def gathered(first, second, third, inputs):
    def local(first, second, third, inputs):
        first, second, third = (lax.all_gather(w, "x", tiled=True) for w in (first, second, third))
        return jnp.tanh(inputs @ first) @ second + jnp.sin(inputs) @ third

    rows = P("x")
    specs = (rows, rows, rows, rows)
    return jax.shard_map(local, in_specs=specs, out_specs=rows)(first, second, third, inputs)


def partitioned(inputs, scale):
    inputs = lax.with_sharding_constraint(inputs, P("x", None))
    centred = inputs - inputs.mean(axis=-1, keepdims=True)
    return jnp.exp(centred) * scale


def reshaped(inputs, scale):
    wide = jnp.tanh(inputs).reshape(64, 4, 64)
    return (jnp.exp(wide) * scale.reshape(1, 4, 64)).reshape(64, 256)


def gated(inputs, weights, bias, out):
    wide = (inputs @ weights + bias).reshape(8, 128, 512)
    gate = jnp.tanh(wide)
    return (wide * gate * (1 - gate)).reshape(1024, 512) @ out, gate.astype(jnp.float32).sum(0)


def residual(inputs, *changes):
    halves = []
    for change in changes:
        inputs = inputs + change
        halves.append(inputs * 0.5)
    return halves


def donated(values):  # by jaxlib 0.6.2 and 0.7.2, with donate_argnums=0 and the name `program`
    exponentials = jnp.exp(values)

    def body(step, state):
        place, total = state
        return place + 1, total + exponentials[place * 524288]

    _, total = lax.fori_loop(0, 8, body, (0, jnp.float32(0)))
    return exponentials * 2 + total


programs = {
    "gathered": (
        gathered,
        tuple(("f32", shape, ("x",)) for shape in ((256, 256), (256, 128), (256, 128), (64, 256))),
        LINE,
    ),
    "partitioned": (partitioned, (("f32", (64, 256), ("x",)), ("f32", (256,), ())), LINE),
    "gated": (
        gated,
        tuple(("bf16", shape) for shape in ((1024, 256), (256, 512), (512,), (512, 256))),
    ),
    "donated": (donated, (("f32", (4194304,)),)),
    "residual": (residual, 11 * (("f32", (64, 128)),)),
    "reshaped": (reshaped, (("f32", (64, 256)), ("f32", (256,)))),
}
