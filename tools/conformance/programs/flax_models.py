"""Flax models: a perceptron, a residual block, a transformer block, and steps that train them."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

KEY = jax.ShapeDtypeStruct((2,), "uint32")


class Perceptron(nn.Module):
    @nn.compact
    def __call__(self, inputs):
        for width in (256, 128):
            inputs = nn.relu(nn.LayerNorm()(nn.Dense(width)(inputs)))
        return nn.Dense(10)(inputs)


class Convolutional(nn.Module):
    @nn.compact
    def __call__(self, images):
        for width in (16, 32):
            images = nn.avg_pool(nn.relu(nn.Conv(width, (3, 3))(images)), (2, 2), (2, 2))
        return nn.Dense(10)(images.reshape(images.shape[0], -1))


class Residual(nn.Module):
    @nn.compact
    def __call__(self, images):
        features = nn.Conv(images.shape[-1], (3, 3), use_bias=False)(images)
        features = nn.relu(nn.GroupNorm(num_groups=4)(features))
        features = nn.Conv(images.shape[-1], (3, 3), use_bias=False)(features)
        return nn.relu(nn.GroupNorm(num_groups=4)(features) + images)


class Transformer(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        hidden = nn.Embed(512, 128)(tokens)
        mask = nn.make_causal_mask(tokens)
        normal = nn.LayerNorm()(hidden)
        hidden = hidden + nn.MultiHeadDotProductAttention(num_heads=4)(normal, mask=mask)
        normal = nn.LayerNorm()(hidden)
        hidden = hidden + nn.Dense(128)(nn.gelu(nn.Dense(512)(normal)))
        return nn.Dense(512)(nn.LayerNorm()(hidden))


def parameters(model, inputs):
    return jax.eval_shape(model.init, KEY, inputs)


def gradient(model):
    return jax.grad(lambda weights, inputs: (model.apply(weights, inputs) ** 2).mean())


def trained(model, optimizer):
    def step(weights, state, inputs, labels):
        def loss(weights):
            logits = model.apply(weights, inputs)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        value, change = jax.value_and_grad(loss)(weights)
        change, state = optimizer.update(change, state, weights)
        return optax.apply_updates(weights, change), state, value

    return step


def shape(dimensions, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(dimensions, dtype)


rows, images = shape((64, 784)), shape((16, 28, 28, 1))
features, tokens = shape((8, 16, 16, 32)), shape((4, 64), jnp.int32)
adam = optax.adam(1e-3)
perceptron = parameters(Perceptron(), rows)
transformer = parameters(Transformer(), tokens)

programs = {
    "perceptron": (Perceptron().apply, (perceptron, rows)),
    "perceptron_step": (
        trained(Perceptron(), adam),
        (perceptron, jax.eval_shape(adam.init, perceptron), rows, shape((64,), jnp.int32)),
        {"donate": (0, 1)},
    ),
    "convolutional": (gradient(Convolutional()), (parameters(Convolutional(), images), images)),
    "residual": (gradient(Residual()), (parameters(Residual(), features), features)),
    "transformer": (Transformer().apply, (transformer, tokens)),
    "transformer_step": (
        trained(Transformer(), adam),
        (transformer, jax.eval_shape(adam.init, transformer), tokens, tokens),
        {"donate": (0, 1)},
    ),
}
