"""Two models of a size that people train: their dumps are hundreds of megabytes."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

KEY = jax.ShapeDtypeStruct((2,), "uint32")


class Transformer(nn.Module):
    layers: int

    @nn.compact
    def __call__(self, tokens):
        hidden = nn.Embed(8192, 512)(tokens)
        mask = nn.make_causal_mask(tokens)
        for _ in range(self.layers):
            normal = nn.LayerNorm()(hidden)
            hidden = hidden + nn.MultiHeadDotProductAttention(num_heads=8)(normal, mask=mask)
            normal = nn.LayerNorm()(hidden)
            hidden = hidden + nn.Dense(512)(nn.gelu(nn.Dense(2048)(normal)))
        return nn.Dense(8192)(nn.LayerNorm()(hidden))


class Bottleneck(nn.Module):
    width: int
    stride: int

    @nn.compact
    def __call__(self, images):
        def normal(features):
            return nn.BatchNorm(use_running_average=False)(features)

        strides = (self.stride, self.stride)
        features = nn.relu(normal(nn.Conv(self.width, (1, 1), use_bias=False)(images)))
        features = nn.Conv(self.width, (3, 3), strides, use_bias=False)(features)
        features = nn.relu(normal(features))
        features = normal(nn.Conv(4 * self.width, (1, 1), use_bias=False)(features))
        if images.shape != features.shape:
            images = normal(nn.Conv(4 * self.width, (1, 1), strides, use_bias=False)(images))
        return nn.relu(features + images)


class ResNet50(nn.Module):
    @nn.compact
    def __call__(self, images):
        features = nn.Conv(64, (7, 7), (2, 2), use_bias=False)(images)
        features = nn.relu(nn.BatchNorm(use_running_average=False)(features))
        features = nn.max_pool(features, (3, 3), (2, 2), "SAME")
        for stage, blocks in enumerate((3, 4, 6, 3)):
            for block in range(blocks):
                stride = 2 if stage and not block else 1
                features = Bottleneck(64 * 2**stage, stride)(features)
        return nn.Dense(1000)(features.mean(axis=(1, 2)))


def cross_entropy(logits, labels):
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


optimizer = optax.adamw(1e-3)


def transformer_step(weights, state, tokens, labels):
    model = Transformer(layers=16)
    value, change = jax.value_and_grad(
        lambda weights: cross_entropy(model.apply(weights, tokens), labels)
    )(weights)
    change, state = optimizer.update(change, state, weights)
    return optax.apply_updates(weights, change), state, value


def resnet_gradient(weights, statistics, images, labels):
    def loss(weights):
        variables = {"params": weights, "batch_stats": statistics}
        logits, updated = ResNet50().apply(variables, images, mutable=["batch_stats"])
        return cross_entropy(logits, labels), updated

    return jax.value_and_grad(loss, has_aux=True)(weights)


tokens = jax.ShapeDtypeStruct((8, 256), jnp.int32)
images = jax.ShapeDtypeStruct((16, 224, 224, 3), jnp.float32)
transformer = jax.eval_shape(Transformer(layers=16).init, KEY, tokens)
resnet = jax.eval_shape(ResNet50().init, KEY, images)

programs = {
    "transformer_step": (
        transformer_step,
        (transformer, jax.eval_shape(optimizer.init, transformer), tokens, tokens),
        {"donate": (0, 1)},
    ),
    "resnet_gradient": (
        resnet_gradient,
        (
            resnet["params"],
            resnet["batch_stats"],
            images,
            jax.ShapeDtypeStruct((16,), jnp.int32),
        ),
    ),
}
