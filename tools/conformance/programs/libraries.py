"""Programs of fourteen packages that build on jax, for releases from 0.4.38 to 0.10.0."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp

KEY = jax.ShapeDtypeStruct((2,), "uint32")


def shape(*dimensions, dtype="float32"):
    return jax.ShapeDtypeStruct(dimensions, dtype)


@dataclass(frozen=True)
class Program:
    """A function and its arguments, whose package is imported when they are asked for."""

    build: Callable

    def __iter__(self) -> Iterator:
        return iter(self.build())


def gradient(apply, *arguments):
    def loss(*values):
        return jnp.square(apply(*values).astype("float32")).mean()

    return jax.value_and_grad(loss), arguments


def hmc():
    import blackjax

    def step(key, weights, features, labels):
        def density(weights):
            logits = features @ weights
            return (labels * logits - jax.nn.softplus(logits)).sum() - (weights**2).sum()

        kernel = blackjax.hmc(density, 0.1, jnp.ones(23), num_integration_steps=7)
        return kernel.step(key, kernel.init(weights))[0].position

    return step, (KEY, shape(23), shape(150, 23), shape(150))


def resampled():
    from blackjax.smc import resampling

    def step(key, weights, particles):
        indices = resampling.systematic(key, jax.nn.softmax(weights), 500)
        return particles[indices], jnp.bincount(indices, length=500)

    return step, (KEY, shape(500), shape(500, 6))


def perceptron(features, weights):
    return jax.nn.relu(features @ weights)


def graph():
    import jraph

    def apply(kernels, nodes, edges, senders, receivers):
        network = jraph.GraphNetwork(
            update_edge_fn=lambda e, s, r, g: perceptron(jnp.concatenate([e, s, r], 1), kernels[0]),
            update_node_fn=lambda n, s, r, g: perceptron(jnp.concatenate([n, s, r], 1), kernels[1]),
            aggregate_edges_for_nodes_fn=jraph.segment_max,
        )
        number = jnp.array([40])
        result = network(
            jraph.GraphsTuple(
                nodes, edges, receivers, senders, None, number, jnp.array([130]),
            )
        )  # fmt: skip
        return result.nodes

    indices = shape(130, dtype="int32")
    kernels = shape(5 + 2 * 12, 16), shape(12 + 2 * 16, 20)
    return gradient(apply, kernels, shape(40, 12), shape(130, 5), indices, indices)


def graph_attention():
    import jraph

    def apply(kernel, scale, nodes, senders, receivers):
        network = jraph.GAT(
            attention_query_fn=lambda nodes: nodes @ kernel,
            attention_logit_fn=lambda s, r, e: jax.nn.leaky_relu(
                jnp.concatenate([s, r], 1) @ scale
            ),
        )
        return network(
            jraph.GraphsTuple(
                nodes, None, receivers, senders, None, jnp.array([60]), jnp.array([200])
            )
        ).nodes

    indices = shape(200, dtype="int32")
    return gradient(apply, shape(18, 24), shape(48, 1), shape(60, 18), indices, indices)


def spline():
    import distrax

    def density(parameters, samples):
        flow = distrax.RationalQuadraticSpline(parameters, -3.0, 3.0)
        base = distrax.Normal(jnp.zeros(9), jnp.ones(9))
        return distrax.Transformed(base, flow).log_prob(samples)

    return gradient(density, shape(64, 9, 25), shape(64, 9))


def mixture():
    import distrax

    def density(logits, means, scales, samples):
        components = distrax.MultivariateNormalDiag(means, jax.nn.softplus(scales))
        return distrax.MixtureSameFamily(distrax.Categorical(logits), components).log_prob(samples)

    half = partial(shape, dtype="bfloat16")
    return gradient(density, half(7), half(7, 30), half(7, 30), half(90, 30))


def vtrace():
    import rlax

    def loss(logits, values, behaviour, actions, rewards, discounts):
        ratio = rlax.categorical_importance_sampling_ratios(logits[:-1], behaviour, actions)
        result = rlax.vtrace_td_error_and_advantage(
            values[:-1], values[1:], rewards, discounts, ratio, 0.95
        )
        policy = rlax.policy_gradient_loss(
            logits[:-1], actions, result.pg_advantage, jnp.ones_like(rewards)
        )
        entropy = rlax.entropy_loss(logits[:-1], jnp.ones_like(rewards))
        return policy + 0.5 * jnp.square(result.errors).mean() + 0.01 * entropy

    def batched(*arguments):
        return jax.vmap(loss, in_axes=1)(*arguments).mean()

    steps = shape(20, 12)
    return jax.value_and_grad(batched, argnums=(0, 1)), (
        shape(21, 12, 6), shape(21, 12), shape(20, 12, 6), shape(20, 12, dtype="int32"),
        steps, steps,
    )  # fmt: skip


def distributional():
    import rlax

    def loss(logits, target, actions, rewards, discounts):
        atoms = jnp.linspace(-5.0, 5.0, 31)
        error = jax.vmap(rlax.categorical_q_learning, in_axes=(None, 0, 0, 0, 0, None, 0))
        return error(atoms, logits, actions, rewards, discounts, atoms, target).mean()

    values, batch = shape(25, 4, 31), shape(25)
    return jax.value_and_grad(loss), (values, values, shape(25, dtype="int32"), batch, batch)


def augmented():
    import dm_pix

    def apply(images, angle):
        blurred = dm_pix.gaussian_blur(images, 1.5, 5)
        rotated = jax.vmap(lambda image: dm_pix.rotate(image, angle, order=1))(blurred)
        return dm_pix.ssim(images, dm_pix.adjust_saturation(rotated, 0.7), filter_size=5)

    return gradient(apply, shape(3, 24, 28, 3), shape())


def keras_model(layers, *dimensions, training=True):
    import os

    os.environ["KERAS_BACKEND"] = "jax"
    import keras

    inputs = keras.Input(dimensions[1:], batch_size=dimensions[0])
    model = keras.Model(inputs, layers(keras, inputs))
    states = [
        [shape(*variable.shape, dtype=variable.dtype) for variable in variables]
        for variables in (model.trainable_variables, model.non_trainable_variables)
    ]

    def apply(weights, state, inputs):
        return model.stateless_call(weights, state, inputs, training=training)[0]

    return gradient(apply, *states, shape(*dimensions))


def keras_attention():
    def layers(keras, inputs):
        half = {"dtype": "mixed_bfloat16"}
        hidden = keras.layers.MultiHeadAttention(4, 16, **half)(inputs, inputs)
        hidden = keras.layers.LayerNormalization(**half)(hidden + inputs)
        return keras.layers.Dense(50, activation="gelu", **half)(hidden)

    return keras_model(layers, 3, 28, 64)


def keras_separable():
    def layers(keras, inputs):
        hidden = keras.layers.SeparableConv2D(20, 3, strides=2, padding="same")(inputs)
        hidden = keras.layers.BatchNormalization()(hidden)
        hidden = keras.layers.MaxPooling2D(2)(keras.layers.ReLU(max_value=6.0)(hidden))
        hidden = keras.layers.GlobalAveragePooling2D()(hidden)
        return keras.layers.Dense(11, activation="softmax")(hidden)

    return keras_model(layers, 4, 26, 22, 6)


def searched():
    import mctx

    def step(key, kernel, embedding):
        def recurrent(_, key, action, embedding):
            embedding = jnp.tanh(embedding @ kernel[:, :32] + jax.nn.one_hot(action, 32))
            output = embedding @ kernel[:, 32:]
            result = mctx.RecurrentFnOutput(
                reward=output[:, 5], discount=jnp.full_like(output[:, 5], 0.97),
                prior_logits=output[:, :5], value=output[:, 6],
            )  # fmt: skip
            return result, embedding

        output = embedding @ kernel[:, 32:]
        root = mctx.RootFnOutput(
            prior_logits=output[:, :5], value=output[:, 6], embedding=embedding
        )
        return mctx.gumbel_muzero_policy((), key, root, recurrent, num_simulations=8).action_weights

    return step, (KEY, shape(32, 39), shape(6, 32))


def projected():
    from jaxopt import projection

    def apply(rows):
        return jax.vmap(projection.projection_simplex)(rows) - jax.vmap(
            lambda row: projection.projection_l1_ball(row, 0.5)
        )(rows)

    return gradient(apply, shape(40, 33))


def equivariant():
    import e3nn_jax as e3nn

    def product(vectors, features):
        directions = e3nn.spherical_harmonics(
            "0e + 1o + 2e", e3nn.IrrepsArray("1o", vectors), normalize=True
        )
        inputs = e3nn.IrrepsArray("8x0e + 4x1o", features)
        return e3nn.tensor_product(inputs, directions, filter_ir_out="0e + 1o").array

    width = jax.eval_shape(product, shape(3), shape(20)).shape[-1]
    return gradient(
        lambda kernel, *inputs: product(*inputs) @ kernel,
        shape(width, 15), shape(70, 3), shape(70, 20),
    )  # fmt: skip


def transport():
    from ott.geometry import pointcloud
    from ott.solvers import linear

    def cost(x, y):
        geometry = pointcloud.PointCloud(x, y, epsilon=0.1)
        return linear.solve(geometry, max_iterations=30).reg_ot_cost

    return jax.value_and_grad(cost), (shape(45, 3), shape(38, 3))


def markov():
    from tensorflow_probability.substrates import jax as tfp

    def marginals(initial, transitions, means, observations):
        model = tfp.distributions.HiddenMarkovModel(
            tfp.distributions.Categorical(logits=initial),
            tfp.distributions.Categorical(logits=transitions),
            tfp.distributions.Normal(means, 0.7),
            num_steps=16,
        )
        return model.posterior_marginals(observations).logits

    return gradient(marginals, shape(6), shape(6, 6), shape(6), shape(9, 16))


def process():
    import tinygp

    def density(scale, x, y):
        kernel = jnp.exp(scale[0]) * tinygp.kernels.Matern32(jnp.exp(scale[1]))
        return tinygp.GaussianProcess(kernel, x, diag=0.1).log_probability(y)

    return jax.value_and_grad(density), (shape(2), shape(48), shape(48))


def filtered():
    from jax.scipy import ndimage, signal, special

    def apply(waves, images, places, shapes):
        spectrum = signal.stft(waves, nperseg=32)[2]
        pixels = ndimage.map_coordinates(images, list(places), order=1, mode="wrap")
        return jnp.abs(spectrum).sum() + pixels.sum() + special.gammainc(shapes, shapes * 1.3)

    return gradient(apply, shape(4, 300), shape(31, 27), shape(2, 80), shape(80))


def quantized():
    from aqt.jax.v2 import config

    def apply(kernel, inputs):
        product = config.fully_quantized(use_stochastic_rounding=False)
        outputs = product(inputs, kernel, (((1,), (0,)), ((), ())))
        return jax.nn.silu(outputs)

    return gradient(apply, shape(72, 96), shape(50, 72))


def evolved():
    import evosax

    strategy = evosax.OpenES(popsize=30, num_dims=40)
    parameters = strategy.default_params
    state = jax.eval_shape(strategy.initialize, KEY, parameters)

    def step(key, state):
        population, state = strategy.ask(key, state, parameters)
        fitness = (population**2 - 10 * jnp.cos(population)).sum(1)
        ranks = evosax.FitnessShaper(centered_rank=True).apply(population, fitness)
        return strategy.tell(population, ranks, state, parameters)

    return step, (KEY, state)


def blockwise():
    """Self-attention by blocks of keys, each step computed again for the gradient (2112.05682)."""

    def attention(queries, keys, values):
        blocks = keys.reshape(5, 16, 4, 32), values.reshape(5, 16, 4, 32)

        @jax.checkpoint
        def step(carry, block):
            total, weights, largest = carry
            scores = jnp.einsum("qhd,khd->hqk", queries, block[0]).astype("float32")
            maximum = jnp.maximum(largest, scores.max(-1))
            weight = jnp.exp(scores - maximum[..., None])
            shrunk = jnp.exp(largest - maximum)
            part = jnp.einsum("hqk,khd->hqd", weight.astype("bfloat16"), block[1])
            total = total * shrunk[..., None] + part
            return (total, weights * shrunk + weight.sum(-1), maximum), None

        start = jnp.zeros((4, 48, 32)), jnp.zeros((4, 48)), jnp.full((4, 48), -jnp.inf)
        (total, weights, _), _ = jax.lax.scan(step, start, blocks)
        return total / weights[..., None]

    half = partial(shape, dtype="bfloat16")
    return gradient(attention, half(48, 4, 32), half(80, 4, 32), half(80, 4, 32))


programs = {
    "hmc": Program(hmc),
    "resampled": Program(resampled),
    "graph": Program(graph),
    "graph_attention": Program(graph_attention),
    "spline": Program(spline),
    "mixture": Program(mixture),
    "vtrace": Program(vtrace),
    "distributional": Program(distributional),
    "augmented": Program(augmented),
    "keras_attention": Program(keras_attention),
    "keras_separable": Program(keras_separable),
    "searched": Program(searched),
    "projected": Program(projected),
    "equivariant": Program(equivariant),
    "transport": Program(transport),
    "markov": Program(markov),
    "process": Program(process),
    "filtered": Program(filtered),
    "quantized": Program(quantized),
    "evolved": Program(evolved),
    "blockwise": Program(blockwise),
}
