"""Models and a simulation of a size that people run: their dumps are hundreds of megabytes."""

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


class DenseNet(nn.Module):
    """Each layer reads what all layers before it in its block have made."""

    @nn.compact
    def __call__(self, images):
        def normal(features):
            return nn.relu(nn.BatchNorm(use_running_average=False)(features))

        features = nn.Conv(64, (7, 7), (2, 2), use_bias=False)(images)
        features = nn.max_pool(normal(features), (3, 3), (2, 2), "SAME")
        for block, layers in enumerate((6, 12, 24, 16)):
            made = [features]
            for _ in range(layers):
                hidden = normal(jnp.concatenate(made, axis=-1))
                hidden = normal(nn.Conv(128, (1, 1), use_bias=False)(hidden))
                made.append(nn.Conv(32, (3, 3), use_bias=False)(hidden))
            features = normal(jnp.concatenate(made, axis=-1))
            if block < 3:
                features = nn.Conv(features.shape[-1] // 2, (1, 1), use_bias=False)(features)
                features = nn.avg_pool(features, (2, 2), (2, 2))
        return nn.Dense(1000)(features.mean(axis=(1, 2)))


def decoded(weights, tokens, key):
    """A decoder of many layers in half precision, with rotary places and dropout."""

    def normal(inputs, scale):
        wide = inputs.astype(jnp.float32)
        wide = wide * jax.lax.rsqrt(jnp.square(wide).mean(axis=-1, keepdims=True) + 1e-6)
        return (wide * scale).astype(jnp.bfloat16)

    def turned(heads):
        angles = jnp.arange(heads.shape[1])[:, None] * 1e4 ** (-jnp.arange(32) / 32)
        cosine, sine = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
        left, right = jnp.split(heads.astype(jnp.float32), 2, axis=-1)
        both = left * cosine - right * sine, right * cosine + left * sine
        return jnp.concatenate(both, axis=-1).astype(heads.dtype)

    def dropped(inputs, key):
        return jnp.where(jax.random.bernoulli(key, 0.9, inputs.shape), inputs / 0.9, 0)

    hidden = weights["table"][tokens].astype(jnp.bfloat16)
    batch, time, _ = hidden.shape
    keys = jax.random.split(jax.random.wrap_key_data(key), (len(weights["layers"]), 2))
    causal = jnp.tril(jnp.ones((time, time), dtype=bool))
    for (first, second), layer in zip(keys, weights["layers"], strict=True):
        layer = jax.tree.map(lambda part: part.astype(jnp.bfloat16), layer)
        inner = normal(hidden, layer["before"])
        query = turned((inner @ layer["query"]).reshape(batch, time, 8, 64))
        query = query.reshape(batch, time, 4, 2, 64)
        key = turned((inner @ layer["key"]).reshape(batch, time, 4, 64))
        value = (inner @ layer["value"]).reshape(batch, time, 4, 64)
        scores = jnp.einsum("btgrd,bsgd->bgrts", query, key).astype(jnp.float32) / 8.0
        shares = jax.nn.softmax(jnp.where(causal, scores, -1e30)).astype(jnp.bfloat16)
        mixed = jnp.einsum("bgrts,bsgd->btgrd", shares, value).reshape(hidden.shape)
        hidden = hidden + dropped(mixed @ layer["out"], first)
        inner = normal(hidden, layer["after"])
        wide = jax.nn.silu(inner @ layer["gate"]) * (inner @ layer["up"])
        hidden = hidden + dropped(wide @ layer["down"], second)
    return normal(hidden, weights["last"]) @ weights["table"].T.astype(jnp.bfloat16)


def shallow_water(state, depth, hours):
    """Waves over uneven ground on staggered grids, each step of three parts written out."""

    def change(state):
        height, east, north = state
        total = height + depth

        def ahead(field, axis):
            return jnp.roll(field, -1, axis)

        def behind(field, axis):
            return jnp.roll(field, 1, axis)

        across = 0.5 * (total + ahead(total, 1)) * east
        along = 0.5 * (total + ahead(total, 0)) * north
        spin = ahead(north, 1) - north - ahead(east, 0) + east + 0.1
        spin = spin / (0.25 * (total + ahead(total, 0) + ahead(total, 1) + 1.0))
        energy = 0.25 * (east**2 + behind(east, 1) ** 2 + north**2 + behind(north, 0) ** 2)
        push = 9.81 * height + energy
        turned_east = 0.25 * (along + ahead(along, 1) + behind(along + ahead(along, 1), 0))
        turned_north = 0.25 * (across + ahead(across, 0) + behind(across + ahead(across, 0), 1))
        drag = 1e-3 * jnp.sqrt(east**2 + north**2 + 1e-6) / total
        turned_east = 0.5 * (spin + behind(spin, 0)) * turned_east
        turned_north = 0.5 * (spin + behind(spin, 1)) * turned_north
        return jnp.stack(
            [
                behind(across, 1) - across + behind(along, 0) - along,
                push - ahead(push, 1) + turned_east - drag * east,
                push - ahead(push, 0) - turned_north - drag * north,
            ]
        )

    seen = []
    for hour in range(hours):
        first = state + 0.01 * change(state)
        second = 0.75 * state + 0.25 * (first + 0.01 * change(first))
        state = (state + 2.0 * (second + 0.01 * change(second))) / 3.0
        if hour % 4 == 3:
            seen.append(state[0, ::8, ::8])
    return state, jnp.stack(seen)


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


def decoder_step(weights, state, tokens, key):
    def loss(weights):
        logits = decoded(weights, tokens[:, :-1], key).astype(jnp.float32)
        return cross_entropy(logits, tokens[:, 1:])

    value, change = jax.value_and_grad(loss)(weights)
    change, state = clipped.update(change, state, weights)
    return optax.apply_updates(weights, change), state, value


def densenet_step(weights, statistics, state, images, labels):
    def loss(weights):
        variables = {"params": weights, "batch_stats": statistics}
        logits, updated = DenseNet().apply(variables, images, mutable=["batch_stats"])
        return cross_entropy(logits, labels), updated["batch_stats"]

    (value, statistics), change = jax.value_and_grad(loss, has_aux=True)(weights)
    change, state = momentum.update(change, state, weights)
    return optax.apply_updates(weights, change), statistics, state, value


def assimilation_gradient(state, depth, measured):
    """The slopes of the distance between a forecast and measurements, by start and ground."""

    def loss(state, depth):
        _, seen = shallow_water(state, depth, 4 * measured.shape[0])
        return jnp.square(seen - measured).sum() + 0.1 * jnp.square(jnp.diff(depth)).sum()

    return jax.value_and_grad(loss, argnums=(0, 1))(state, depth)


def shape(*dimensions):
    return jax.ShapeDtypeStruct(dimensions, jnp.float32)


clipped = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(3e-4, weight_decay=0.1))
momentum = optax.sgd(0.1, momentum=0.9, nesterov=True)
tokens = jax.ShapeDtypeStruct((8, 256), jnp.int32)
images = jax.ShapeDtypeStruct((16, 224, 224, 3), jnp.float32)
transformer = jax.eval_shape(Transformer(layers=16).init, KEY, tokens)
resnet = jax.eval_shape(ResNet50().init, KEY, images)
densenet = jax.eval_shape(DenseNet().init, KEY, images)
layer = {
    "before": shape(512),
    "query": shape(512, 512),
    "key": shape(512, 256),
    "value": shape(512, 256),
    "out": shape(512, 512),
    "after": shape(512),
    "gate": shape(512, 1408),
    "up": shape(512, 1408),
    "down": shape(1408, 512),
}
decoder = {"table": shape(16384, 512), "layers": [layer] * 20, "last": shape(512)}

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
    "decoder_step": (
        decoder_step,
        (decoder, jax.eval_shape(clipped.init, decoder), tokens, KEY),
        {"donate": (0, 1)},
    ),
    "densenet_step": (
        densenet_step,
        (
            densenet["params"],
            densenet["batch_stats"],
            jax.eval_shape(momentum.init, densenet["params"]),
            images,
            jax.ShapeDtypeStruct((16,), jnp.int32),
        ),
        {"donate": (0, 1, 2)},
    ),
    "assimilation_gradient": (
        assimilation_gradient,
        (shape(3, 192, 256), shape(192, 256), shape(5, 24, 32)),
    ),
}
