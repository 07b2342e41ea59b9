"""Networks of flax, haiku, equinox and jraph, with the optax steps that train them."""

import equinox
import flax.linen as nn
import haiku
import jax
import jax.numpy as jnp
import jraph
import optax
from flax import nnx

KEY = jax.ShapeDtypeStruct((2,), "uint32")


def shape(*dimensions, dtype="float32"):
    return jax.ShapeDtypeStruct(dimensions, dtype)


class Wide(nn.Module):
    """A wide residual network with norms over the batch, dropout, and half precision."""

    @nn.compact
    def __call__(self, images):
        features = nn.Conv(16, (3, 3), use_bias=False, dtype=jnp.bfloat16)(images)
        for width, stride in ((32, 1), (64, 2)):
            hidden = nn.BatchNorm(use_running_average=False, dtype=jnp.bfloat16)(features)
            hidden = nn.relu(hidden)
            strides = (stride, stride)
            skip = nn.Conv(width, (1, 1), strides, use_bias=False, dtype=jnp.bfloat16)(hidden)
            hidden = nn.Conv(width, (3, 3), strides, use_bias=False, dtype=jnp.bfloat16)(hidden)
            hidden = nn.BatchNorm(use_running_average=False, dtype=jnp.bfloat16)(hidden)
            hidden = nn.Dropout(0.3, deterministic=False)(nn.relu(hidden))
            features = skip + nn.Conv(width, (3, 3), dtype=jnp.bfloat16)(hidden)
        return nn.Dense(100)(features.mean(axis=(1, 2)).astype(jnp.float32))


def wide_step():
    images, labels = shape(32, 32, 32, 3), shape(32, dtype="int32")
    keys = {"params": KEY, "dropout": KEY}
    variables = jax.eval_shape(Wide().init, keys, images)
    schedule = optax.cosine_onecycle_schedule(1000, 0.1)
    decay = optax.add_decayed_weights(5e-4)
    optimizer = optax.chain(decay, optax.sgd(schedule, momentum=0.9, nesterov=True))

    def step(variables, state, images, labels, key):
        def loss(weights):
            logits, updated = Wide().apply(
                {**variables, "params": weights},
                images,
                mutable=["batch_stats"],
                rngs={"dropout": key},
            )
            wanted = optax.smooth_labels(jax.nn.one_hot(labels, 100), 0.1)
            return optax.softmax_cross_entropy(logits, wanted).mean(), (updated, logits)

        weights = variables["params"]
        (value, (updated, logits)), change = jax.value_and_grad(loss, has_aux=True)(weights)
        change, state = optimizer.update(change, state, weights)
        right = (jnp.argmax(logits, axis=-1) == labels).mean()
        weights = optax.apply_updates(weights, change)
        return {"params": weights, **updated}, state, value, right

    state = jax.eval_shape(optimizer.init, variables["params"])
    return step, (variables, state, images, labels, KEY), {"donate": (0, 1)}


class Translator(nnx.Module):
    """One encoder and one decoder layer, the decoder looking at the encoder's memory."""

    def __init__(self, rngs):
        self.source = nnx.Embed(1000, 96, rngs=rngs)
        self.target = nnx.Embed(1200, 96, rngs=rngs)
        self.own = nnx.MultiHeadAttention(6, 96, decode=False, rngs=rngs)
        self.past = nnx.MultiHeadAttention(6, 96, decode=False, rngs=rngs)
        self.across = nnx.MultiHeadAttention(6, 96, decode=False, rngs=rngs)
        self.norms = nnx.List([nnx.LayerNorm(96, rngs=rngs) for _ in range(5)])
        self.wide = nnx.Linear(96, 384, rngs=rngs)
        self.narrow = nnx.Linear(384, 96, rngs=rngs)

    def __call__(self, source, target):
        memory = self.source(source)
        present = (source > 0)[:, None, None]
        memory = memory + self.own(self.norms[0](memory), mask=present)
        hidden = self.target(target)
        causal = nnx.make_causal_mask(target)
        hidden = hidden + self.past(self.norms[1](hidden), mask=causal)
        normal, memory = self.norms[2](hidden), self.norms[3](memory)
        hidden = hidden + self.across(normal, memory, mask=present)
        hidden = hidden + self.narrow(nnx.relu(self.wide(self.norms[4](hidden))))
        return self.target.attend(hidden)


def translator_gradient():
    definition, state = nnx.split(nnx.eval_shape(lambda: Translator(nnx.Rngs(0))))

    def loss(state, source, target):
        logits = nnx.merge(definition, state)(source, target[:, :-1])
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, target[:, 1:])
        return (losses * (target[:, 1:] > 0)).sum() / (target[:, 1:] > 0).sum()

    source, target = shape(12, 40, dtype="int32"), shape(12, 33, dtype="int32")
    return jax.value_and_grad(loss), (state, source, target)


def capsule_step():
    """Haiku layers with a running code book, trained by an optimizer that keeps slow weights."""

    def network(images):
        hidden = jax.nn.relu(haiku.Conv2D(32, 4, 2)(images))
        hidden = haiku.Conv2D(16, 3)(haiku.GroupNorm(4)(hidden))
        quantiser = haiku.nets.VectorQuantizerEMA(16, 128, 0.25, 0.99)
        coded = quantiser(hidden, is_training=True)
        back = haiku.Conv2DTranspose(3, 4, 2)(jax.nn.relu(coded["quantize"]))
        return jnp.square(back - images).mean() + coded["loss"], coded["perplexity"]

    model = haiku.transform_with_state(network)
    images = shape(8, 32, 32, 3)
    weights, statistics = jax.eval_shape(model.init, KEY, images)
    slow = optax.lookahead(optax.radam(1e-3), 5, 0.5)
    start = jax.eval_shape(lambda weights: optax.LookaheadParams.init_synced(weights), weights)

    def step(both, state, statistics, images):
        def loss(weights):
            (value, told), updated = model.apply(weights, statistics, None, images)
            return value, (told, updated)

        (value, rest), change = jax.value_and_grad(loss, has_aux=True)(both.fast)
        change, state = slow.update(change, state, both)
        return optax.apply_updates(both, change), state, value, rest

    return step, (start, jax.eval_shape(slow.init, start), statistics, images)


def operator_gradient():
    """Layers that mix low frequencies by complex weights, in equinox."""

    class Spectral(equinox.Module):
        real: jax.Array
        imaginary: jax.Array
        skip: equinox.nn.Conv1d

        def __init__(self, key):
            first, second, third = jax.random.split(key, 3)
            self.real = jax.random.normal(first, (24, 24, 16)) / 24.0
            self.imaginary = jax.random.normal(second, (24, 24, 16)) / 24.0
            self.skip = equinox.nn.Conv1d(24, 24, 1, key=third)

        def __call__(self, field):
            waves = jnp.fft.rfft(field)
            mixed = jnp.einsum("ixk,iok->ok", waves[:, None, :16], self.real + 1j * self.imaginary)
            padded = jnp.pad(mixed, ((0, 0), (0, waves.shape[-1] - 16)))
            return jax.nn.gelu(jnp.fft.irfft(padded, field.shape[-1]) + self.skip(field))

    def built(key):
        keys = jax.random.split(key, 5)
        lift = equinox.nn.Conv1d(2, 24, 1, key=keys[0])
        drop = equinox.nn.Conv1d(24, 1, 1, key=keys[1])
        return lift, [Spectral(key) for key in keys[2:]], drop

    model = equinox.filter_eval_shape(built, KEY)
    arrays, rest = equinox.partition(model, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))

    def loss(arrays, fields, wanted):
        lift, layers, drop = equinox.combine(arrays, rest)

        def apply(field):
            places = jnp.linspace(0.0, 1.0, field.shape[-1])
            hidden = lift(jnp.stack([field, places]))
            for layer in layers:
                hidden = layer(hidden)
            return drop(hidden)[0]

        error = jax.vmap(apply)(fields) - wanted
        return (jnp.linalg.norm(error, axis=-1) / jnp.linalg.norm(wanted, axis=-1)).mean()

    return jax.grad(loss), (arrays, shape(10, 512), shape(10, 512))


def graph_gradient():
    """A graph network of jraph over a batch of graphs, edges and globals updated too."""

    def dense(width):
        return haiku.nets.MLP([32, width], activation=jax.nn.leaky_relu)

    def network(graphs):
        graphs = jraph.GraphMapFeatures(dense(24), dense(24), dense(12))(graphs)
        for _ in range(2):
            layer = jraph.GraphNetwork(
                update_edge_fn=jraph.concatenated_args(dense(24)),
                update_node_fn=jraph.concatenated_args(dense(24)),
                update_global_fn=jraph.concatenated_args(dense(12)),
                attention_logit_fn=lambda edges, *_: edges.sum(axis=-1, keepdims=True),
                attention_reduce_fn=lambda edges, weights: edges * weights,
            )
            graphs = layer(graphs)
        return graphs.globals

    graphs = jraph.GraphsTuple(
        nodes=shape(900, 9),
        edges=shape(2000, 3),
        receivers=shape(2000, dtype="int32"),
        senders=shape(2000, dtype="int32"),
        globals=shape(33, 1),
        n_node=shape(33, dtype="int32"),
        n_edge=shape(33, dtype="int32"),
    )
    model = haiku.without_apply_rng(haiku.transform(network))
    weights = jax.eval_shape(model.init, KEY, graphs)

    def loss(weights, graphs, wanted):
        losses = optax.huber_loss(model.apply(weights, graphs)[:, 0], wanted)
        return (losses * jraph.get_graph_padding_mask(graphs)).mean()

    return jax.value_and_grad(loss), (weights, graphs, shape(33))


def separate_rates():
    """Groups of weights with rates, clips and schedules of their own, and a mean of all."""
    weights = {
        "table": shape(3000, 40),
        "layers": [{"kernel": shape(40, 60), "bias": shape(60)}] * 3,
        "head": {"kernel": shape(60, 7), "bias": shape(7)},
    }
    falling = optax.adamw(optax.exponential_decay(1e-3, 10, 0.9))
    slow = optax.chain(optax.adaptive_grad_clip(0.01), falling)
    groups = {"table": optax.adafactor(1e-2), "layers": slow, "head": optax.nadam(1e-3)}
    optimizer = optax.chain(
        optax.zero_nans(),
        optax.clip_by_global_norm(1.0),
        optax.multi_transform(groups, {name: name for name in weights}),
    )

    def step(weights, state, mean, change):
        change, state = optimizer.update(change, state, weights)
        weights = optax.apply_updates(weights, change)
        return weights, state, optax.incremental_update(weights, mean, 0.001)

    state = jax.eval_shape(optimizer.init, weights)
    return step, (weights, state, weights, weights), {"donate": (0, 1, 2)}


programs = {
    "wide_step": wide_step(),
    "translator_gradient": translator_gradient(),
    "capsule_step": capsule_step(),
    "operator_gradient": operator_gradient(),
    "graph_gradient": graph_gradient(),
    "separate_rates": separate_rates(),
}
