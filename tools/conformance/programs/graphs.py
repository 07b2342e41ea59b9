"""Networks and algorithms on graphs: messages along edges, sums over segments."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.ops import segment_max, segment_sum


def smoothed_features(weights, features, senders, receivers, labels):
    """Two graph convolutions with symmetric norms, and the loss on the nodes with a label."""
    count = features.shape[0]
    degrees = segment_sum(jnp.ones(senders.shape), receivers, count) + 1.0
    scale = lax.rsqrt(degrees)[:, None]
    for index, (weight, bias) in enumerate(weights):
        hidden = (features @ weight) * scale
        summed = segment_sum(hidden[senders], receivers, count) + hidden
        features = summed * scale + bias
        features = jax.nn.relu(features) if index == 0 else features
    losses = jax.nn.logsumexp(features, axis=-1)
    losses = losses - jnp.take_along_axis(features, jnp.maximum(labels, 0)[:, None], 1)[:, 0]
    return jnp.where(labels >= 0, losses, 0.0).sum() / (labels >= 0).sum()


def attending_edges(weights, features, edges, senders, receivers):
    """Attention of several heads over the edges that meet in a node."""
    projection, left, right, along, out = weights
    count = features.shape[0]
    hidden = jnp.einsum("nd,dhe->nhe", features, projection)
    scores = (hidden * left).sum(axis=-1)[senders] + (hidden * right).sum(axis=-1)[receivers]
    scores = jax.nn.leaky_relu(scores + edges @ along, 0.2)
    highest = segment_max(scores, receivers, count)
    parts = jnp.exp(scores - highest[receivers])
    total = segment_sum(parts, receivers, count)
    shares = parts / (total[receivers] + 1e-9)
    mixed = segment_sum(hidden[senders] * shares[..., None], receivers, count)
    return jax.nn.elu(mixed.reshape(count, -1)) @ out + features, shares


def turning_graph(weights, places, features, senders, receivers):
    """Messages that turn with the places of the nodes, and how the places move."""
    edge, gate, node = weights
    count = places.shape[0]
    apart = places[senders] - places[receivers]
    square = (apart**2).sum(axis=-1, keepdims=True)
    joined = jnp.concatenate([features[senders], features[receivers], square], axis=-1)
    message = jax.nn.silu(joined @ edge)
    message = message * jax.nn.sigmoid(message @ gate)
    push = apart / (jnp.sqrt(square + 1e-8) + 1.0) * message[:, :1]
    places = places + segment_sum(push, receivers, count, indices_are_sorted=True)
    summed = segment_sum(message, receivers, count, indices_are_sorted=True)
    update = jax.nn.silu(jnp.concatenate([features, summed], axis=-1) @ node)
    return places, features + update


def molecule_energy(weights, places, kinds, senders, receivers, shares):
    """Continuous filters over distances: the energy of atoms under periodic bounds."""
    table, filters, dense, out = weights
    count = places.shape[0]
    apart = places[senders] - places[receivers]
    apart = apart - 12.0 * jnp.round(apart / 12.0)
    distance = jnp.sqrt((apart**2).sum(axis=-1) + 1e-12)
    centres = jnp.linspace(0.0, 5.0, filters.shape[1])
    spread = jnp.exp(-10.0 * (distance[:, None] - centres) ** 2)
    cut = jnp.where(distance < 5.0, 0.5 * (jnp.cos(jnp.pi * distance / 5.0) + 1.0), 0.0)
    hidden = table[kinds]
    for layer in range(filters.shape[0]):
        filtered = (spread @ filters[layer]) * cut[:, None]
        message = (hidden @ dense[layer])[senders] * filtered
        summed = segment_sum(message, receivers, count)
        hidden = hidden + jax.nn.softplus(summed) - jnp.log(2.0)
    return segment_sum((hidden @ out)[:, 0], shares, 8)


def forces(weights, places, *rest):
    """The energy's derivative by places, and the derivative of their loss by weights."""

    def loss(weights):
        slopes = jax.grad(lambda places: molecule_energy(weights, places, *rest).sum())(places)
        return jnp.square(slopes).mean()

    return jax.value_and_grad(loss)(weights)


def ranked_pages(senders, receivers, start):
    count = start.shape[0]
    leaving = jnp.bincount(senders, length=count)

    def step(carry):
        ranks, _, steps = carry
        share = jnp.where(leaving > 0, ranks / jnp.maximum(leaving, 1), 0.0)
        lost = jnp.where(leaving > 0, 0.0, ranks).sum() / count
        moved = jnp.zeros(count).at[receivers].add(share[senders])
        following = 0.15 / count + 0.85 * (moved + lost)
        return following, jnp.abs(following - ranks).sum(), steps + 1

    def going(carry):
        return (carry[1] > 1e-6) & (carry[2] < 100)

    ranks, _, steps = lax.while_loop(going, step, (start, jnp.float32(1.0), 0))
    return lax.top_k(ranks, 10), steps


def shortest_paths(senders, receivers, lengths, source):
    """Bellman and Ford, for many sources at once, with the parents of the nodes."""
    count = 200

    def one(source):
        start = jnp.full(count, jnp.inf).at[source].set(0.0)

        def step(_, distances):
            reached = distances[senders] + lengths
            return distances.at[receivers].min(reached)

        distances = lax.fori_loop(0, 30, step, start)
        tight = distances[senders] + lengths <= distances[receivers]
        parents = jnp.full(count, -1).at[receivers].max(jnp.where(tight, senders, -1))
        return distances, parents

    return jax.vmap(one)(source)


def graph_statistics(features, graphs, weights):
    """Sum, mean, spread, largest and smallest of the nodes of each graph, side by side."""
    count = 33
    sizes = jnp.maximum(segment_sum(jnp.ones(graphs.shape), graphs, count), 1.0)[:, None]
    total = segment_sum(features, graphs, count)
    square = segment_sum(features**2, graphs, count)
    mean = total / sizes
    spread = jnp.sqrt(jax.nn.relu(square / sizes - mean**2) + 1e-5)
    highest = segment_max(features, graphs, count)
    lowest = -segment_max(-features, graphs, count)
    joined = jnp.concatenate([total, mean, spread, highest, lowest], axis=-1)
    scaled = jnp.log1p(sizes) * joined
    return jnp.concatenate([joined, scaled, joined / jnp.log1p(sizes)], axis=-1) @ weights


def triangles(weights, pairs, mask):
    """The update of pairs by the third side of their triangles, outgoing and incoming."""
    mean = pairs.mean(axis=-1, keepdims=True)
    variance = jnp.square(pairs - mean).mean(axis=-1, keepdims=True)
    normal = (pairs - mean) * lax.rsqrt(variance + 1e-5)
    left, right, left_gate, right_gate, gate = jnp.split(normal @ weights[0], 5, axis=-1)
    left = left * jax.nn.sigmoid(left_gate) * mask[..., None]
    right = right * jax.nn.sigmoid(right_gate) * mask[..., None]
    outgoing = jnp.einsum("ikc,jkc->ijc", left, right)
    incoming = jnp.einsum("kic,kjc->ijc", left, right)
    both = outgoing + incoming
    both = both * lax.rsqrt(jnp.square(both).mean(axis=-1, keepdims=True) + 1e-5)
    return pairs + jax.nn.sigmoid(gate) * (both @ weights[1])


def attending_loss(*arguments):
    hidden, shares = attending_edges(*arguments)
    return jnp.square(hidden).mean() - (shares * jnp.log(shares + 1e-9)).sum()


def turning_loss(weights, places, features, senders, receivers):
    for layer in weights:
        places, features = turning_graph(layer, places, features, senders, receivers)
    return jnp.square(places).sum() + features.mean()


edges, citations = ("s32", (5278,)), ("f32", (1354, 143))
attention = (
    ("f32", (64, 4, 16)),
    ("f32", (4, 16)),
    ("f32", (4, 16)),
    ("f32", (12, 4)),
    ("f32", (64, 64)),
)
layer = (("f32", (41, 24)), ("f32", (24, 1)), ("f32", (44, 20)))
molecule = (
    ("f32", (20, 32)),
    ("f32", (3, 25, 32)),
    ("f32", (3, 32, 32)),
    ("f32", (32, 1)),
)
pairs = ("bf16", (70, 70, 32))

programs = {
    "smoothed_features_gradient": (
        jax.value_and_grad(smoothed_features),
        (
            [(("f32", (143, 16)), ("f32", (16,))), (("f32", (16, 7)), ("f32", (7,)))],
            citations,
            edges,
            edges,
            ("s32", (1354,)),
        ),
    ),
    "attending_edges_gradient": (
        jax.grad(attending_loss),
        (
            attention,
            ("f32", (600, 64)),
            ("f32", (2500, 12)),
            ("s32", (2500,)),
            ("s32", (2500,)),
        ),
    ),
    "turning_graph_gradient": (
        jax.grad(turning_loss, argnums=(0, 1)),
        (
            [layer] * 3,
            ("f32", (90, 3)),
            ("f32", (90, 20)),
            ("s32", (810,)),
            ("s32", (810,)),
        ),
    ),
    "forces_gradient": (
        forces,
        (
            molecule,
            ("f32", (160, 3)),
            ("s32", (160,)),
            ("s32", (2600,)),
            ("s32", (2600,)),
            ("s32", (160,)),
        ),
    ),
    "ranked_pages": (ranked_pages, (("s32", (9001,)), ("s32", (9001,)), ("f32", (1200,)))),
    "shortest_paths": (
        shortest_paths,
        (("s32", (1500,)), ("s32", (1500,)), ("f32", (1500,)), ("s32", (9,))),
    ),
    "graph_statistics": (
        graph_statistics,
        (("f32", (777, 30)), ("s32", (777,)), ("f32", (450, 10))),
    ),
    "triangles": (
        triangles,
        ((("bf16", (32, 160)), ("bf16", (32, 32))), pairs, ("bf16", (70, 70))),
    ),
}
