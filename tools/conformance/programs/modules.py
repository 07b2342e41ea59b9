"""Layers, losses and optimizers of flax, equinox, optax and haiku, with gradients."""

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import optax

KEY = jax.ShapeDtypeStruct((2,), "uint32")


def shape(*dimensions, dtype="float32"):
    return jax.ShapeDtypeStruct(dimensions, dtype)


def gradient(apply, *arguments):
    def loss(*values):
        return jnp.square(apply(*values).astype("float32")).mean()

    return jax.value_and_grad(loss), arguments


def linen(model, *inputs):
    return gradient(model.apply, jax.eval_shape(model.init, KEY, *inputs), *inputs)


def haiku(function, *inputs):
    transformed = hk.transform_with_state(function)
    weights, state = jax.eval_shape(transformed.init, KEY, *inputs)

    def apply(weights, state, key, *inputs):
        return transformed.apply(weights, state, key, *inputs)[0]

    return gradient(apply, weights, state, KEY, *inputs)


def equinox(build, *inputs):
    """The gradient of a batch of inputs; the arrays of the model are arguments."""
    model = eqx.filter_eval_shape(build, jax.random.PRNGKey(0))
    weights, static = eqx.partition(model, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    leaves, tree = jax.tree.flatten(weights)

    def apply(leaves, *inputs):
        return jax.vmap(eqx.combine(jax.tree.unflatten(tree, leaves), static))(*inputs)

    return gradient(apply, leaves, *inputs)


class Rotated(eqx.Module):
    attention: eqx.nn.MultiheadAttention
    rotation: eqx.nn.RotaryPositionalEmbedding

    def __init__(self, key):
        self.attention = eqx.nn.MultiheadAttention(4, 64, key=key)
        self.rotation = eqx.nn.RotaryPositionalEmbedding(16)

    def __call__(self, sequence):
        turn = jax.vmap(self.rotation, in_axes=1, out_axes=1)
        heads = lambda query, key, value: (turn(query), turn(key), value)  # noqa: E731
        return self.attention(sequence, sequence, sequence, process_heads=heads)


class Recurrent(eqx.Module):
    cell: eqx.nn.LSTMCell

    def __init__(self, key):
        self.cell = eqx.nn.LSTMCell(24, 40, key=key)

    def __call__(self, sequence):
        start = jnp.zeros(40), jnp.zeros(40)
        return jax.lax.scan(lambda state, x: (self.cell(x, state), None), start, sequence)[0][0]


class Normalized(nn.Module):
    @nn.compact
    def __call__(self, images):
        hidden = nn.Conv(32, (3, 3), feature_group_count=16)(images)
        hidden = nn.gelu(nn.GroupNorm(8)(hidden))
        return nn.Conv(24, (5, 5), (2, 2), kernel_dilation=1)(nn.avg_pool(hidden, (2, 2)))


weights = {"kernel": shape(96, 130), "bias": shape(130), "deep": shape(3, 3, 12, 20)}


def update(optimizer):
    def step(gradients, state, weights):
        changes, state = optimizer.update(gradients, state, weights)
        return optax.apply_updates(weights, changes), state

    return step, (weights, jax.eval_shape(optimizer.init, weights), weights), {"donate": (1, 2)}


def gru(sequence):
    core = hk.GRU(48)
    return hk.dynamic_unroll(core, sequence, core.initial_state(8))[0]


def quantized(inputs):
    output = hk.nets.VectorQuantizer(32, 128, 0.25)(inputs, is_training=True)
    return output["quantize"] + output["loss"]


programs = {
    "heads_bf16": linen(
        nn.MultiHeadDotProductAttention(4, dtype="bfloat16"), shape(3, 40, 64, dtype="bfloat16")
    ),
    "both_ways": linen(
        nn.Bidirectional(nn.RNN(nn.GRUCell(20)), nn.RNN(nn.GRUCell(20))), shape(4, 15, 12)
    ),
    "convolved_memory": linen(nn.RNN(nn.ConvLSTMCell(6, (3, 3))), shape(2, 7, 10, 12, 3)),
    "grouped": linen(Normalized(), shape(2, 20, 24, 16)),
    "weight_norm": linen(nn.WeightNorm(nn.Dense(70)), shape(33, 50)),
    "local": linen(nn.ConvLocal(9, (3, 3)), shape(2, 11, 13, 4)),
    "general": linen(nn.DenseGeneral((6, 14), axis=(-2, -1), dtype="bfloat16"), shape(18, 5, 32)),
    "layers": linen(
        nn.Sequential(
            [nn.Dense(96), nn.LayerNorm(), nn.swish, nn.Dense(48), nn.RMSNorm(), nn.softmax]
        ),
        shape(64, 80),
    ),
    "rotated": equinox(Rotated, shape(2, 24, 64)),
    "recurrent": equinox(Recurrent, shape(5, 19, 24)),
    "perceptron": equinox(lambda key: eqx.nn.MLP(30, 7, 50, 3, key=key), shape(44, 30)),
    "transposed": equinox(
        lambda key: eqx.nn.ConvTranspose2d(6, 10, 3, 2, key=key), shape(3, 6, 14, 15)
    ),
    "pooled": equinox(lambda key: eqx.nn.AdaptiveMaxPool2d((5, 4)), shape(3, 8, 15, 12)),
    "gru": haiku(gru, shape(13, 8, 20)),
    "quantized": haiku(quantized, shape(60, 32)),
    "attended": haiku(
        lambda x: hk.MultiHeadAttention(4, 16, w_init=hk.initializers.VarianceScaling())(x, x, x),
        shape(2, 30, 64),
    ),
    "mobile": haiku(
        lambda x: hk.nets.MobileNetV1((1, 2), (16, 32), num_classes=10)(x, True),
        shape(2, 24, 24, 3),
    ),
    "adafactor": update(optax.adafactor(1e-3, min_dim_size_to_factor=64)),
    "lion": update(optax.chain(optax.clip_by_global_norm(1.0), optax.lion(1e-4))),
    "sm3": update(optax.sm3(1e-2)),
    "novograd": update(optax.novograd(1e-3)),
    "connectionist": (
        jax.grad(lambda *arguments: optax.ctc_loss(*arguments).sum()),
        (shape(4, 30, 20), shape(4, 30), shape(4, 9, dtype="int32"), shape(4, 9)),
    ),
    "contrastive": (
        jax.grad(lambda x, y: optax.ntxent(x, y, 0.1)),
        (shape(48, 40), shape(48, dtype="int32")),
    ),
    "focal": (
        jax.grad(lambda x, y: optax.sigmoid_focal_loss(x, y, alpha=0.3).mean()),
        (shape(100, 70, dtype="bfloat16"), shape(100, 70, dtype="bfloat16")),
    ),
}
