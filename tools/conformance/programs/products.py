"""Models of Flax, equinox and haiku with products, biases and activations, and their gradients."""

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp

KEY = jax.random.key(0)


def shape(*dimensions, dtype="float32"):
    return jax.ShapeDtypeStruct(dimensions, dtype)


class Block(nn.Module):
    dtype: str = "float32"
    activation: str = "gelu"

    @nn.compact
    def __call__(self, tokens):
        inputs = nn.LayerNorm(dtype=self.dtype)(tokens)
        tokens += nn.MultiHeadDotProductAttention(num_heads=4, dtype=self.dtype)(inputs)
        inputs = nn.LayerNorm(dtype=self.dtype)(tokens)
        hidden = nn.Dense(4 * tokens.shape[-1], dtype=self.dtype)(inputs)
        hidden = getattr(nn, self.activation)(hidden)
        return tokens + nn.Dense(tokens.shape[-1], dtype=self.dtype)(hidden)


class Layers(nn.Module):
    activation: str
    dtype: str = "float32"
    has_bias: bool = True

    @nn.compact
    def __call__(self, values):
        for width in (256, 256, 128):
            layer = nn.Dense(width, dtype=self.dtype, use_bias=self.has_bias)
            values = getattr(nn, self.activation)(layer(values))
        return nn.Dense(10, dtype=self.dtype)(values)


class Mixer(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        columns = jnp.swapaxes(nn.LayerNorm()(tokens), 1, 2)
        columns = nn.Dense(tokens.shape[1])(nn.gelu(nn.Dense(256)(columns)))
        tokens += jnp.swapaxes(columns, 1, 2)
        return tokens + nn.Dense(tokens.shape[2])(nn.gelu(nn.Dense(256)(nn.LayerNorm()(tokens))))


class Sequence(nn.Module):
    cell: nn.Module

    @nn.compact
    def __call__(self, steps):
        return nn.Dense(16)(nn.RNN(self.cell)(steps))


def both(apply, weights, *inputs):
    """A model, and the gradient of the mean square of what it returns."""

    def loss(weights, *inputs):
        return jnp.square(apply(weights, *inputs).astype(jnp.float32)).mean()

    return (apply, (weights, *inputs)), (jax.grad(loss), (weights, *inputs))


def linen(model, *inputs):
    return both(model.apply, jax.eval_shape(model.init, KEY, *inputs), *inputs)


def equinox(model, *inputs):
    weights, static = eqx.partition(model, eqx.is_inexact_array)

    def apply(weights, *inputs):
        return jax.vmap(eqx.combine(weights, static))(*inputs)

    return both(apply, jax.tree.map(lambda w: shape(*w.shape, dtype=w.dtype), weights), *inputs)


def haiku(model, *inputs):
    transformed = hk.without_apply_rng(hk.transform(model))
    weights = jax.eval_shape(transformed.init, KEY, *inputs)
    return both(transformed.apply, weights, *inputs)


ACTIVATIONS = ("relu", "gelu", "silu", "tanh", "leaky_relu", "relu6")
attention = eqx.nn.MultiheadAttention(4, 64, use_query_bias=True, use_output_bias=True, key=KEY)
models = {
    "block": linen(Block(), shape(4, 64, 128)),
    "block_bf16": linen(Block("bfloat16"), shape(4, 64, 128, dtype="bfloat16")),
    "block_f16": linen(Block("float16", "relu"), shape(4, 64, 128, dtype="float16")),
    **{name: linen(Layers(name), shape(512, 64)) for name in ACTIVATIONS},
    "layers_bf16": linen(Layers("gelu", "bfloat16"), shape(512, 64)),
    "layers_without_bias": linen(Layers("relu", has_bias=False), shape(512, 64)),
    "lstm": linen(Sequence(nn.OptimizedLSTMCell(128)), shape(16, 20, 64)),
    "gru": linen(Sequence(nn.GRUCell(128)), shape(16, 20, 64)),
    "mixer": linen(Mixer(), shape(8, 64, 128)),
    "heads": linen(nn.DenseGeneral((8, 32), axis=(-2, -1)), shape(32, 4, 64)),
    "equinox_layers": equinox(eqx.nn.MLP(32, 16, 128, 3, key=KEY), shape(256, 32)),
    "equinox_attention": equinox(lambda x: attention(x, x, x), shape(8, 32, 64)),
    "equinox_gru": equinox(eqx.nn.GRUCell(32, 64, key=KEY), shape(128, 32), shape(128, 64)),
    "haiku_layers": haiku(lambda x: hk.nets.MLP([256, 128, 10])(x), shape(128, 64)),
    "haiku_attention": haiku(
        lambda x: hk.MultiHeadAttention(4, 32, w_init_scale=1.0)(x, x, x), shape(8, 32, 64)
    ),
}
programs = {
    "block": models["block"][0],
    "block_gradient": models["block"][1],
    "block_bf16": models["block_bf16"][0],
    "block_bf16_gradient": models["block_bf16"][1],
    "block_f16": models["block_f16"][0],
    "block_f16_gradient": models["block_f16"][1],
    "relu": models["relu"][0],
    "relu_gradient": models["relu"][1],
    "gelu": models["gelu"][0],
    "gelu_gradient": models["gelu"][1],
    "silu": models["silu"][0],
    "silu_gradient": models["silu"][1],
    "tanh": models["tanh"][0],
    "tanh_gradient": models["tanh"][1],
    "leaky_relu": models["leaky_relu"][0],
    "leaky_relu_gradient": models["leaky_relu"][1],
    "relu6": models["relu6"][0],
    "relu6_gradient": models["relu6"][1],
    "layers_bf16": models["layers_bf16"][0],
    "layers_bf16_gradient": models["layers_bf16"][1],
    "layers_without_bias": models["layers_without_bias"][0],
    "layers_without_bias_gradient": models["layers_without_bias"][1],
    "lstm": models["lstm"][0],
    "lstm_gradient": models["lstm"][1],
    "gru": models["gru"][0],
    "gru_gradient": models["gru"][1],
    "mixer": models["mixer"][0],
    "mixer_gradient": models["mixer"][1],
    "heads": models["heads"][0],
    "heads_gradient": models["heads"][1],
    "equinox_layers": models["equinox_layers"][0],
    "equinox_layers_gradient": models["equinox_layers"][1],
    "equinox_attention": models["equinox_attention"][0],
    "equinox_attention_gradient": models["equinox_attention"][1],
    "equinox_gru": models["equinox_gru"][0],
    "equinox_gru_gradient": models["equinox_gru"][1],
    "haiku_layers": models["haiku_layers"][0],
    "haiku_layers_gradient": models["haiku_layers"][1],
    "haiku_attention": models["haiku_attention"][0],
    "haiku_attention_gradient": models["haiku_attention"][1],
}
