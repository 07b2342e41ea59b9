"""Learning as people write it, in jitted helpers that are called again and share their values."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax


@jax.jit
def centred(values):
    """A norm without weights over the last axis, computed wide and given back narrow."""
    wide = values.astype(jnp.float32)
    apart = wide - wide.mean(axis=-1, keepdims=True)
    return (apart * lax.rsqrt(jnp.square(apart).mean(-1, keepdims=True) + 1e-5)).astype(
        values.dtype
    )


@jax.jit
def two_layers(weights, values):
    (first, offset), (second, shift) = weights
    return jax.nn.gelu(values @ first + offset) @ second + shift


@jax.jit
def two_tanh(weights, values):
    (first, offset), (second, shift) = weights
    return jnp.tanh(values @ first + offset) @ second + shift


@jax.jit
def kept(key, values, share):
    """A dropout that draws inside."""
    return jnp.where(jax.random.bernoulli(key, share, values.shape), values / share, 0)


@partial(jax.jit, static_argnames=("stride", "dilation"))
def along(signal, kernel, stride=1, dilation=1):
    """A convolution over time that keeps the length, but for its stride."""
    return lax.conv_general_dilated(
        signal,
        kernel,
        (stride,),
        "SAME",
        rhs_dilation=(dilation,),
        dimension_numbers=("NWC", "WIO", "NWC"),
    )


@jax.jit
def averaged(weight, change, first, second, count):
    """One array's part of Adam with decay, and its step's length."""
    first = 0.9 * first + 0.1 * change
    second = 0.999 * second + 0.001 * jnp.square(change)
    step = first / (1 - 0.9**count) / (jnp.sqrt(second / (1 - 0.999**count)) + 1e-8)
    step = step + 0.01 * weight
    return weight - 1e-3 * step, first, second, jnp.sum(step * step)


def mixed_patches_step(state, images, labels, key):
    """A mixer over patches with dropouts, trained by an Adam that is written out."""
    weights, first, second, count = state

    def loss(weights):
        batch = images.shape[0]
        patches = images.reshape(batch, 8, 4, 8, 4, 3).transpose(0, 1, 3, 2, 4, 5)
        hidden = patches.reshape(batch, 64, 48) @ weights["enter"]
        for index, (tokens, channels) in enumerate(weights["blocks"]):
            one, two = jax.random.split(jax.random.fold_in(key, index))
            turned = two_layers(tokens, centred(hidden).swapaxes(1, 2)).swapaxes(1, 2)
            hidden = hidden + kept(one, turned, 0.9)
            hidden = hidden + kept(two, two_layers(channels, centred(hidden)), 0.9)
        logits = centred(hidden).mean(axis=1) @ weights["leave"]
        wanted = 0.9 * jax.nn.one_hot(labels, 10) + 0.01
        right = (jnp.argmax(logits, axis=-1) == labels).mean()
        return -(wanted * jax.nn.log_softmax(logits)).sum(axis=-1).mean(), right

    (value, right), change = jax.value_and_grad(loss, has_aux=True)(weights)
    count = count + 1
    leaves, shape = jax.tree.flatten(weights)
    parts = map(shape.flatten_up_to, (change, first, second))
    moved = [averaged(*leaf, count) for leaf in zip(leaves, *parts, strict=True)]
    *trees, lengths = zip(*moved, strict=True)
    weights, first, second = (shape.unflatten(leaves) for leaves in trees)
    return (weights, first, second, count), value, right, jnp.sqrt(sum(lengths))


def parted_sound(weights, sound, sources):
    """A U-Net over time: strided on the way down, joined with what it skipped on the way up."""

    @jax.jit
    def gated(signal, kernel):
        left, right = jnp.split(along(signal, kernel), 2, axis=-1)
        return left * jax.nn.sigmoid(right)

    skipped, hidden = [], sound
    for down, gate in weights["down"]:
        hidden = jax.nn.relu(along(hidden, down, stride=2))
        hidden = centred(gated(hidden, gate))
        skipped.append(hidden)
    for up, gate in weights["up"]:
        hidden = jnp.concatenate([hidden, skipped.pop()], axis=-1)
        hidden = jnp.repeat(gated(hidden, gate), 2, axis=1)
        hidden = jax.nn.relu(along(hidden, up))
    masks = jax.nn.softmax(along(jnp.concatenate([hidden, sound], -1), weights["out"]), axis=-1)
    parts = masks * sound
    noise = parts - sources
    quiet = jnp.log10(jnp.square(noise).sum(axis=1) + 1e-8)
    return (quiet - jnp.log10(jnp.square(sources).sum(axis=1) + 1e-8)).mean()


@jax.jit
def spoiled(key, rows):
    """One random view of rows: scaled, masked, and with noise."""
    first, second, third = jax.random.split(key, 3)
    scale = jax.random.uniform(first, (rows.shape[0], 1), minval=0.7, maxval=1.3)
    shown = jax.random.bernoulli(second, 0.8, rows.shape)
    return jnp.where(shown, rows * scale, 0.0) + 0.1 * jax.random.normal(third, rows.shape)


def redundancy(weights, rows, key):
    """Two views whose features shall agree, vary, and not repeat each other."""

    @jax.jit
    def spread(features):
        apart = features - features.mean(axis=0)
        deviation = jnp.sqrt(jnp.square(apart).mean(axis=0) + 1e-4)
        shared = apart.T @ apart / features.shape[0]
        off = jnp.square(shared).sum() - jnp.square(jnp.diagonal(shared)).sum()
        return jax.nn.relu(1.0 - deviation).mean() + 0.04 * off / features.shape[1], deviation

    def features(key):
        hidden = two_layers(weights["body"], spoiled(key, rows))
        return two_layers(weights["head"], centred(jax.nn.relu(hidden)))

    left, right = map(features, jax.random.split(key))
    (left_cost, left_spread), (right_cost, right_spread) = spread(left), spread(right)
    alike = jnp.square(left - right).mean()
    cross = (left / left_spread).T @ (right / right_spread) / rows.shape[0]
    crossed = jnp.square(cross - jnp.eye(cross.shape[0])).sum()
    return 25.0 * (alike + left_cost + right_cost) + 0.005 * crossed


def coupled_flow(layers, points):
    """The likelihood of points under layers that move one half by what they see in the other."""

    @jax.jit
    def coupled(weights, still, moving):
        scale, shift = jnp.split(two_tanh(weights, still), 2, axis=-1)
        scale = 2.0 * jnp.tanh(scale / 2.0)
        return moving * jnp.exp(scale) + shift, scale.sum(axis=-1)

    @jax.jit
    def normal(values):
        return -0.5 * (jnp.square(values) + jnp.log(2.0 * jnp.pi)).sum(axis=-1)

    density = 0.0
    left, right = points[:, ::2], points[:, 1::2]
    for first, second, turn in layers:
        right, grown = coupled(first, left, right)
        left, larger = coupled(second, right, left)
        joined = jnp.concatenate([left, right], axis=-1) @ turn
        left, right = jnp.split(joined, 2, axis=-1)
        density = density + grown + larger + jnp.linalg.slogdet(turn)[1]
    return -(density + normal(left) + normal(right)).mean()


def searched_words(weights, start):
    """A search with beams over a gated cell, until the best that is done beats all that goes on."""
    table, inputs, within, head = weights
    batch, width, beams, most = start.shape[0], start.shape[1], 5, 20

    @jax.jit
    def cell(state, word):
        gate, fresh = jnp.split(table[word] @ inputs + state @ within, 2, axis=-1)
        gate = jax.nn.sigmoid(gate)
        return gate * state + (1.0 - gate) * jnp.tanh(fresh)

    @jax.jit
    def picked(values, parents):
        places = parents.reshape(parents.shape + (1,) * (values.ndim - 2))
        return jnp.take_along_axis(values, places, axis=1)

    def going(carry):
        position, scores, _, _, best, _ = carry
        return (position < most) & jnp.any(scores[:, 0] / most**0.6 > best)

    def step(carry):
        position, scores, words, states, best, answer = carry
        last = lax.dynamic_index_in_dim(words, position, axis=2, keepdims=False)
        states = cell(states, last)
        logits = jax.nn.log_softmax(states @ head)
        ended = scores + logits[..., 0]
        place = jnp.argmax(ended, axis=1)[:, None]
        ending = picked(ended, place)[:, 0] / (position + 1.0) ** 0.6
        answer = jnp.where((ending > best)[:, None], picked(words, place)[:, 0], answer)
        total = (scores[..., None] + logits.at[..., 0].set(-jnp.inf)).reshape(batch, -1)
        scores, chosen = lax.top_k(total, beams)
        parents = chosen // head.shape[1]
        words, states = picked(words, parents), picked(states, parents)
        words = words.at[:, :, position + 1].set(chosen % head.shape[1])
        return position + 1, scores, words, states, jnp.maximum(best, ending), answer

    words = jnp.zeros((batch, beams, most + 1), jnp.int32)
    scores = jnp.where(jnp.arange(beams) == 0, 0.0, -jnp.inf) + jnp.zeros((batch, 1))
    states = jnp.broadcast_to(start[:, None], (batch, beams, width))
    carry = (0, scores, words, states, jnp.full(batch, -jnp.inf), words[:, 0])
    return lax.while_loop(going, step, carry)[1:]


def smoothed_states(move, noise, look, blur, seen):
    """A linear filter and its smoother, both as scans over pairs in parallel."""
    size, eye = move.shape[0], jnp.eye(move.shape[0])

    @jax.jit
    def turned(matrix):
        return jnp.swapaxes(matrix, -1, -2)

    @jax.jit
    def applied(matrix, vector):
        return jnp.einsum("...ij,...j->...i", matrix, vector)

    gain = noise @ look.T @ jnp.linalg.inv(look @ noise @ look.T + blur)
    back = move.T @ look.T @ jnp.linalg.inv(look @ noise @ look.T + blur)
    count = seen.shape[0]
    elements = (
        jnp.broadcast_to((eye - gain @ look) @ move, (count, size, size)),
        seen @ gain.T,
        jnp.broadcast_to((eye - gain @ look) @ noise, (count, size, size)),
        seen @ back.T,
        jnp.broadcast_to(back @ look @ move, (count, size, size)),
    )

    @jax.jit
    def filtering(left, right):
        a, b, c, eta, j = left
        d, e, f, nu, k = right
        inner = jnp.linalg.inv(eye + c @ k)
        outer = turned(jnp.linalg.inv(eye + k @ c))
        ahead, behind = d @ inner, turned(a) @ turned(outer)
        return (
            ahead @ a,
            applied(ahead, b + applied(c, nu)) + e,
            ahead @ c @ turned(d) + f,
            applied(behind, nu - applied(k, b)) + eta,
            behind @ k @ a + j,
        )

    @jax.jit
    def smoothing(late, early):
        a, b, c = early
        d, e, f = late
        return a @ d, applied(a, e) + b, a @ f @ turned(a) + c

    _, means, spreads, _, _ = lax.associative_scan(filtering, elements)
    ahead = move @ spreads @ move.T + noise
    gains = turned(jnp.linalg.solve(ahead, move @ spreads))
    offsets = means - applied(gains @ move, means)
    rest = spreads - gains @ move @ spreads
    gains, rest = gains.at[-1].set(0.0), rest.at[-1].set(spreads[-1])
    offsets = offsets.at[-1].set(means[-1])
    _, smooth, narrow = lax.associative_scan(smoothing, (gains, offsets, rest), reverse=True)
    return smooth, narrow, means


def grown_cells(weights, wanted, key):
    """Cells that see their neighbours' slopes and change by chance, grown to a picture."""
    across = jnp.array([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]]) / 8.0
    filters = jnp.stack([jnp.pad(jnp.ones((1, 1)), 1), across, across.T])

    @jax.jit
    def alive(cells):
        near = lax.reduce_window(
            cells[..., 3:4], -jnp.inf, lax.max, (1, 3, 3, 1), (1, 1, 1, 1), "SAME"
        )
        return near > 0.1

    def step(cells, key):
        before = alive(cells)
        count = cells.shape[-1]
        kernel = jnp.tile(filters.transpose(1, 2, 0)[:, :, None], (1, 1, 1, count))
        sensed = lax.conv_general_dilated(
            cells,
            kernel,
            (1, 1),
            "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=count,
        )
        cells = cells + kept(key, two_layers(weights, sensed), 0.5)
        return jnp.where(before & alive(cells), cells, 0.0), None

    start = jnp.zeros((4, 24, 24, 12)).at[:, 12, 12, 3:].set(1.0)
    cells, _ = lax.scan(step, start, jax.random.split(key, 16))
    return jnp.square(cells[..., :4] - wanted).mean()


def waves_on_planes(weights, fields, wanted):
    """A neural operator on planes: low waves of both signs mixed by complex weights."""

    @jax.jit
    def mixed(hidden, low, high):
        waves = jnp.fft.rfft2(hidden, axes=(1, 2))
        result = jnp.zeros_like(waves)
        result = result.at[:, :6, :6].set(
            jnp.einsum("bxyi,xyio->bxyo", waves[:, :6, :6], lax.complex(low[0], low[1]))
        )
        result = result.at[:, -6:, :6].set(
            jnp.einsum("bxyi,xyio->bxyo", waves[:, -6:, :6], lax.complex(high[0], high[1]))
        )
        return jnp.fft.irfft2(result, hidden.shape[1:3], axes=(1, 2))

    @jax.jit
    def relative(left, right):
        apart = jnp.square(left - right).sum(axis=(1, 2, 3))
        return jnp.sqrt(apart / (jnp.square(right).sum(axis=(1, 2, 3)) + 1e-6)).mean()

    _, height, width, _ = fields.shape
    rows, columns = jnp.linspace(0, 1, height)[:, None], jnp.linspace(0, 1, width)
    places = jnp.stack(jnp.broadcast_arrays(rows, columns), axis=-1)
    places = jnp.broadcast_to(places, (fields.shape[0], height, width, 2))
    hidden = jnp.concatenate([fields, places], axis=-1) @ weights["lift"]
    for low, high, skip in weights["layers"]:
        hidden = jax.nn.gelu(mixed(hidden, low, high) + hidden @ skip)
    found = two_layers(weights["drop"], hidden)
    down = relative(jnp.diff(found, axis=1), jnp.diff(wanted, axis=1))
    right = relative(jnp.diff(found, axis=2), jnp.diff(wanted, axis=2))
    return relative(found, wanted) + 0.1 * (down + right)


def adapted(weights, rates, tasks):
    """The loss after two steps that each task takes for itself, with a rate for each array."""

    @jax.jit
    def loss(weights, inputs, wanted):
        return jnp.square(two_tanh(weights, inputs) - wanted).mean()

    @jax.jit
    def stepped(weights, inputs, wanted):
        change = jax.grad(loss)(weights, inputs, wanted)
        return jax.tree.map(lambda w, r, g: w - jnp.exp(r) * g, weights, rates, change)

    def task(inputs, wanted, others, answers):
        own = stepped(weights, inputs, wanted)
        own = stepped(own, inputs, wanted)
        return loss(own, others, answers), loss(weights, others, answers)

    after, before = jax.vmap(task)(*tasks)
    return after.mean(), (before.mean(), (before - after).max())


def covered_update(weights, state, changes):
    """Covers of rows and columns in place of second moments, signs for vectors, one clip."""

    @jax.jit
    def length(tree):
        return jnp.sqrt(sum(jnp.square(x.astype(jnp.float32)).sum() for x in jax.tree.leaves(tree)))

    @jax.jit
    def covered(weight, rows, columns, momentum, change):
        both = jnp.minimum(rows[:, None], columns) + jnp.square(change)
        step = change * lax.rsqrt(both + 1e-12)
        momentum = (0.9 * momentum + 0.1 * step).astype(jnp.bfloat16)
        trust = length(weight) / (length(momentum) + 1e-6)
        moved = weight - 0.1 * jnp.minimum(trust, 10.0) * momentum
        return moved.astype(weight.dtype), both.max(axis=1), both.max(axis=0), momentum

    @jax.jit
    def signed(weight, momentum, change):
        step = jnp.sign(0.9 * momentum + 0.1 * change) + 0.01 * weight
        return weight - 1e-4 * step, 0.99 * momentum + 0.01 * change

    whole = length(changes)
    scale = jnp.minimum(1.0, 1.0 / (whole + 1e-6))
    moved, states = [], []
    for (matrix, vector), (covers, momentum), (steep, slope) in zip(
        weights, state, changes, strict=True
    ):
        matrix, *covers = covered(matrix, *covers, steep.astype(jnp.float32) * scale)
        vector, momentum = signed(vector, momentum, slope * scale)
        moved.append((matrix, vector))
        states.append((tuple(covers), momentum))
    return moved, states, whole, length(moved)


def generated_weights(maker, codes, places, colours):
    """Networks of sines whose weights another network writes, one network for each code."""
    sizes = ((2, 32), (32, 32), (32, 3))

    @jax.jit
    def sine(inputs, weight, bias):
        return jnp.sin(6.0 * (inputs @ weight + bias))

    @jax.jit
    def painted(written):
        hidden, start = places, 0
        for index, (enter, leave) in enumerate(sizes):
            weight = written[start : start + enter * leave].reshape(enter, leave) / enter
            bias = written[start + enter * leave : start + (enter + 1) * leave]
            start += (enter + 1) * leave
            last = index == len(sizes) - 1
            hidden = hidden @ weight + bias if last else sine(hidden, weight, bias)
        return jax.nn.sigmoid(hidden)

    written = two_layers(maker, codes)
    pictures = jax.vmap(painted)(written)
    doubt = 1e-3 * jnp.square(codes).sum(axis=-1).mean() + 1e-4 * jnp.square(written).mean()
    return jnp.square(pictures - colours).mean() + doubt


def low_rank_step(frozen, added, tokens, wanted, key):
    """Fine tuning of narrow factors beside frozen weights in bfloat16."""

    @jax.jit
    def projected(weight, pair, values, key):
        down, up = pair
        beside = kept(key, values, 0.95) @ down.astype(values.dtype) @ up.astype(values.dtype)
        return values @ weight + 2.0 * beside

    @jax.jit
    def attended(query, key, value):
        scores = jnp.einsum("bthd,bshd->bhts", query, key).astype(jnp.float32) * 0.125
        causal = jnp.tri(scores.shape[-1], dtype=bool)
        shares = jax.nn.softmax(jnp.where(causal, scores, -1e9), axis=-1).astype(value.dtype)
        return jnp.einsum("bhts,bshd->bthd", shares, value)

    def loss(added):
        hidden = frozen["table"][tokens]
        batch, time, width = hidden.shape
        for index, (layer, pairs) in enumerate(zip(frozen["layers"], added, strict=True)):
            keys = jax.random.split(jax.random.fold_in(key, index), 3)
            normal = centred(hidden)
            query, value = (
                projected(layer[name], pairs[name], normal, one).reshape(batch, time, -1, 64)
                for name, one in zip(("query", "value"), keys, strict=False)
            )
            other = (normal @ layer["key"]).reshape(batch, time, -1, 64)
            mixed = attended(query, other, value).reshape(batch, time, width)
            hidden = hidden + projected(layer["out"], pairs["out"], mixed, keys[2])
            normal = centred(hidden)
            hidden = hidden + (jax.nn.silu(normal @ layer["gate"])) @ layer["down"]
        logits = (centred(hidden) @ frozen["table"].T).astype(jnp.float32)
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), wanted[..., None], -1)[..., 0]
        counted = wanted > 0
        return -(chosen * counted).sum() / jnp.maximum(counted.sum(), 1)

    value, changes = jax.value_and_grad(loss)(added)
    whole = jnp.sqrt(sum(jnp.vdot(change, change) for change in jax.tree.leaves(changes)))
    scale = 1e-3 / jnp.maximum(whole, 1.0)
    return jax.tree.map(lambda a, g: a - scale * g, added, changes), value, whole


def grouped_bytes(layers, head, inputs):
    """Layers whose weights are bytes with a scale and a zero for each group of rows."""

    @jax.jit
    def widened(packed, scale, zero):
        groups, width = scale.shape
        wide = packed.reshape(groups, -1, width).astype(jnp.float16) - zero[:, None]
        return (wide * scale[:, None]).reshape(-1, width)

    @jax.jit
    def narrowed(values):
        largest = jnp.abs(values).max(axis=-1, keepdims=True).astype(jnp.float32)
        scale = jnp.maximum(largest, 1e-4) / 127.0
        return jnp.round(values / scale).astype(jnp.int8), scale

    hidden = inputs
    for gate, up, down in layers:
        normal = centred(hidden)
        inner = jax.nn.silu(normal @ widened(*gate)) * (normal @ widened(*up))
        hidden = hidden + inner @ widened(*down)
    rows, row_scales = narrowed(centred(hidden))
    columns, column_scales = narrowed(head.T)
    whole = lax.dot_general(
        rows, columns, (((1,), (1,)), ((), ())), preferred_element_type=jnp.int32
    )
    logits = whole.astype(jnp.float32) * row_scales * column_scales.T
    best, places = lax.top_k(logits, 8)
    return best - jax.nn.logsumexp(logits, axis=-1, keepdims=True), places, jnp.abs(whole).max()


@jax.jit
def attending(weights, readers, memory, present):
    """A block in which readers look at the present part of a memory."""
    query, key, value, out, after = weights
    batch, count, width = readers.shape
    heads = width // 16
    query = (readers @ query).reshape(batch, count, heads, 16)
    key = (memory @ key).reshape(batch, -1, heads, 16)
    value = (memory @ value).reshape(batch, -1, heads, 16)
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / 4.0
    scores = jnp.where(present[:, None, None], scores, -1e9)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), value)
    readers = centred(readers + mixed.reshape(readers.shape) @ out)
    return centred(readers + two_layers(after, readers))


def pooled_sets(weights, members, sizes, wanted):
    """Sets of different sizes, read by few points and pooled by seeds, with nothing ordered."""
    present = jnp.arange(members.shape[1]) < sizes[:, None]
    hidden = members @ weights["enter"]
    for points, inward, outward in weights["layers"]:
        readers = jnp.broadcast_to(points, (members.shape[0], *points.shape))
        few = attending(inward, readers, hidden, present)
        everyone = jnp.ones(few.shape[:2], dtype=bool)
        hidden = attending(outward, hidden, few, everyone)
    seeds = jnp.broadcast_to(weights["seeds"], (members.shape[0], *weights["seeds"].shape))
    pooled = attending(weights["pool"], seeds, hidden, present)
    counted = present[..., None]
    mean = (hidden * counted).sum(axis=1) / sizes[:, None]
    highest = jnp.where(counted, hidden, -jnp.inf).max(axis=1)
    joined = jnp.concatenate([pooled.reshape(mean.shape[0], -1), mean, highest], axis=-1)
    return jnp.square(two_layers(weights["head"], joined)[:, 0] - wanted).mean()


def sloped_cache_step(cache, weights, hidden, lengths):
    """One token for each row at its own place, with slopes over distance in place of positions."""
    heads, width = cache[0][0].shape[1], cache[0][0].shape[3]
    slopes = 2.0 ** (-8.0 * (jnp.arange(heads) + 1) / heads)

    @jax.jit
    def written(kept, entry):
        put = jax.vmap(lambda row, new, place: lax.dynamic_update_slice(row, new, (0, place, 0)))
        return put(kept, entry[:, :, None], lengths)

    @jax.jit
    def looked(query, keys, values):
        scores = jnp.einsum("bhd,bhtd->bht", query, keys).astype(jnp.float32) * width**-0.5
        distance = lengths[:, None] - jnp.arange(keys.shape[2])
        scores = scores - slopes[:, None] * distance[:, None]
        scores = jnp.where(distance[:, None] >= 0, scores, -jnp.inf)
        shares = jax.nn.softmax(scores, axis=-1)
        mixed = jnp.einsum("bht,bhtd->bhd", shares.astype(values.dtype), values)
        return mixed, -(shares * jnp.log(shares + 1e-9)).sum(axis=-1)

    renewed, doubts = [], []
    for (keys, values), (joined, out, after) in zip(cache, weights, strict=True):
        parts = (centred(hidden) @ joined).reshape(hidden.shape[0], 3, heads, width)
        keys, values = written(keys, parts[:, 1]), written(values, parts[:, 2])
        mixed, doubt = looked(parts[:, 0], keys, values)
        hidden = hidden + mixed.reshape(hidden.shape) @ out
        hidden = hidden + two_layers(after, centred(hidden))
        renewed.append((keys, values))
        doubts.append(doubt)
    return renewed, hidden, lengths + 1, jnp.stack(doubts)


def sounding_block(weights, statistics, frames, lengths):
    """Half steps around a gated convolution with statistics over a batch that is partly empty."""
    present = (jnp.arange(frames.shape[1]) < lengths[:, None])[..., None]

    @jax.jit
    def half_step(weights, values):
        return values + 0.5 * two_layers(weights, centred(values))

    @jax.jit
    def standard(values, mean, variance):
        wide = values.astype(jnp.float32)
        count = present.sum()
        here = (wide * present).sum(axis=(0, 1)) / count
        spread = (jnp.square(wide - here) * present).sum(axis=(0, 1)) / count
        kept = 0.9 * mean + 0.1 * here, 0.9 * variance + 0.1 * spread
        return ((wide - here) * lax.rsqrt(spread + 1e-5)).astype(values.dtype), kept

    hidden, renewed = frames, []
    for layer, (mean, variance) in zip(weights, statistics, strict=True):
        hidden = half_step(layer["first"], hidden)
        left, right = jnp.split(centred(hidden) @ layer["enter"], 2, axis=-1)
        inner = jnp.where(present, left * jax.nn.sigmoid(right), 0)
        inner = lax.conv_general_dilated(
            inner,
            layer["kernel"],
            (1,),
            "SAME",
            dimension_numbers=("NWC", "WIO", "NWC"),
            feature_group_count=inner.shape[-1],
        )
        inner, kept = standard(inner, mean, variance)
        renewed.append(kept)
        hidden = hidden + jax.nn.silu(inner * layer["scale"] + layer["shift"]) @ layer["leave"]
        hidden = centred(half_step(layer["last"], hidden))
    return jnp.square((hidden * present).astype(jnp.float32)).mean(), renewed


def next_samples(queues, weights, sample, key):
    """Eight samples of sound, each through dilated layers that keep their past in rings."""
    table, layers, head = weights

    @jax.jit
    def layer(queue, weight, skip, hidden, place):
        before, queue_length = queue[place % queue.shape[0]], queue.shape[0]
        queue = lax.dynamic_update_index_in_dim(queue, hidden, place % queue_length, 0)
        left, right = jnp.split(jnp.concatenate([before, hidden], -1) @ weight, 2, axis=-1)
        inner = jnp.tanh(left) * jax.nn.sigmoid(right)
        beside, onward = jnp.split(inner @ skip, 2, axis=-1)
        return queue, hidden + onward, beside

    @jax.jit
    def drawn(key, logits):
        lowest = lax.top_k(logits, 30)[0][:, -1:]
        return jax.random.categorical(key, jnp.where(logits < lowest, -jnp.inf, logits))

    def step(carry, slices):
        queues, sample = carry
        place, key = slices
        hidden, total, renewed = table[sample], 0.0, []
        for queue, (weight, skip) in zip(queues, layers, strict=True):
            queue, hidden, beside = layer(queue, weight, skip, hidden, place)
            renewed.append(queue)
            total = total + beside
        sample = drawn(key, two_layers(head, jax.nn.relu(total)))
        return (renewed, sample.astype(jnp.int32)), sample

    times = jnp.arange(8), jax.random.split(key, 8)
    (queues, sample), samples = lax.scan(step, (queues, sample), times)
    return queues, sample, samples


@jax.jit
def equilibrium_map(weights, state, inputs):
    within, enter, bias = weights
    return jnp.tanh(centred(state @ within + inputs @ enter) + bias)


@partial(jax.jit, static_argnums=0)
def settled(function, start):
    """The fixed point of a function, by steps that mix the last two."""

    def going(carry):
        count, old, new = carry
        return (count < 40) & (jnp.abs(new - old).max() > 1e-4)

    def step(carry):
        count, _, new = carry
        return count + 1, new, 0.8 * function(new) + 0.2 * new

    return lax.while_loop(going, step, (0, start, function(start)))[2]


@jax.custom_vjp
def equilibrium(weights, inputs):
    start = jnp.zeros((*inputs.shape[:-1], weights[0].shape[0]))
    return settled(lambda state: equilibrium_map(weights, state, inputs), start)


def equilibrium_forward(weights, inputs):
    state = equilibrium(weights, inputs)
    return state, (weights, inputs, state)


def equilibrium_backward(values, change):
    weights, inputs, state = values
    _, by_state = jax.vjp(lambda state: equilibrium_map(weights, state, inputs), state)
    _, by_rest = jax.vjp(lambda w, x: equilibrium_map(w, state, x), weights, inputs)
    return by_rest(settled(lambda back: by_state(back)[0] + change, change))


equilibrium.defvjp(equilibrium_forward, equilibrium_backward)


def at_rest(weights, inputs, labels):
    """Two layers that are each the rest of a map, their slopes by a second rest."""
    first, second, head = weights
    hidden = equilibrium(first, inputs)
    logits = equilibrium(second, jnp.concatenate([hidden, inputs], axis=-1)) @ head
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=-1).mean()


def retrieved(patterns, present, spoilt, sharpness):
    """Stored patterns called back from spoilt ones, by softmax until nothing moves."""

    @jax.jit
    def energy(state, scores):
        free = jax.nn.logsumexp(scores, axis=-1) / sharpness
        return 0.5 * jnp.square(state.astype(jnp.float32)).sum(axis=-1) - free

    @jax.jit
    def scored(state):
        scores = jnp.einsum("bd,nd->bn", state, patterns, preferred_element_type=jnp.float32)
        return jnp.where(present, sharpness * scores, -1e30)

    def going(carry):
        count, _, _, apart = carry
        return (count < 12) & jnp.any(apart > 1e-3)

    def step(carry):
        count, state, _, _ = carry
        scores = scored(state)
        new = jax.nn.softmax(scores, axis=-1).astype(state.dtype) @ patterns
        apart = jnp.abs(new - state).astype(jnp.float32).max(axis=-1)
        return count + 1, new, energy(new, scores), apart

    start = (0, spoilt, energy(spoilt, scored(spoilt)), jnp.full(spoilt.shape[0], jnp.inf))
    count, state, low, _ = lax.while_loop(going, step, start)
    shares = jax.nn.softmax(scored(state), axis=-1)
    return count, state, low, jnp.argmax(shares, axis=-1), shares.max(axis=-1)


def categorical_codes(weights, images, heat, key):
    """An autoencoder whose codes are soft draws of categories, several draws for each image."""

    @jax.jit
    def drawn(key, logits, heat):
        noise = -jnp.log(-jnp.log(jax.random.uniform(key, logits.shape, minval=1e-6) + 1e-9))
        return jax.nn.softmax((logits + noise) / heat, axis=-1)

    @jax.jit
    def likely(logits, images):
        return (
            images * jax.nn.log_sigmoid(logits) + (1 - images) * jax.nn.log_sigmoid(-logits)
        ).sum(axis=-1)

    logits = two_layers(weights["down"], images).reshape(images.shape[0], 20, 10)
    logarithms = jax.nn.log_softmax(logits)
    apart = (jnp.exp(logarithms) * (logarithms + jnp.log(10.0))).sum(axis=(1, 2))
    bounds = []
    for one in jax.random.split(key, 3):
        codes = drawn(one, logits, heat).reshape(images.shape[0], -1)
        bounds.append(likely(two_layers(weights["up"], codes), images) - apart)
    bounds = jnp.stack(bounds)
    tight = jax.nn.logsumexp(bounds, axis=0) - jnp.log(3.0)
    return -tight.mean(), (bounds.mean(), apart.mean())


def evolved_step(state, places, key):
    """Evolution by mirrored noise of every weight, fitness by rank, and a network's own noise."""
    mean, momentum, spread = state

    @jax.jit
    def noisy(key, like):
        return jax.random.normal(key, (32, *like.shape), like.dtype)

    @jax.jit
    def fitness(weights, key):
        action = two_tanh(weights, places)
        action = action + 0.05 * jax.random.truncated_normal(key, -2.0, 2.0, action.shape)
        reached = places[:, :2] + jnp.clip(action, -1.0, 1.0)
        return -jnp.square(reached).sum(axis=-1).mean() - 1e-3 * jnp.abs(action).mean()

    @jax.jit
    def ranked(values):
        ranks = jnp.argsort(jnp.argsort(values))
        return ranks / (values.size - 1.0) - 0.5

    leaves, shape = jax.tree.flatten(mean)
    keys = jax.random.split(key, len(leaves) + 1)
    draws = [noisy(one, leaf) for one, leaf in zip(keys, leaves, strict=False)]
    draws = shape.unflatten([jnp.concatenate([noise, -noise]) for noise in draws])
    others = jax.tree.map(lambda m, s, noise: m + jnp.exp(s) * noise, mean, spread, draws)
    values = jax.vmap(fitness)(others, jax.random.split(keys[-1], 64))
    share = ranked(values)
    towards = jax.tree.map(lambda noise: jnp.tensordot(share, noise, 1) / 64, draws)
    wider = jax.tree.map(lambda noise: jnp.tensordot(share, noise**2 - 1.0, 1) / 64, draws)
    momentum = jax.tree.map(lambda m, t: 0.9 * m + t, momentum, towards)
    mean = jax.tree.map(lambda m, v: 0.999 * m + 0.1 * v, mean, momentum)
    spread = jax.tree.map(lambda s, w: jnp.clip(s + 0.05 * w, -5.0, 1.0), spread, wider)
    return (mean, momentum, spread), values.max(), fitness(mean, keys[0])


@jax.custom_jvp
def spike(charge):
    return (charge > 0).astype(charge.dtype)


@spike.defjvp
def spike_slope(primals, tangents):
    (charge,), (change,) = primals, tangents
    return spike(charge), change / jnp.square(1.0 + 10.0 * jnp.abs(charge))


def spiking(weights, rates, labels, key):
    """Layers of cells that leak, tire and fire, driven by random spikes, taught through a bend."""

    @jax.jit
    def fired(state, current):
        charge, tired = state
        charge = 0.9 * charge + current
        out = spike(charge - 1.0 - tired)
        return (charge * (1 - out), 0.95 * tired + 0.1 * out), out

    def step(carry, key):
        first, second, total = carry
        seen = jax.random.bernoulli(key, rates).astype(rates.dtype)
        first, hidden = fired(first, seen @ weights[0] + first[1] @ weights[1])
        second, out = fired(second, hidden @ weights[2])
        return (first, second, total + out), (hidden.mean(), out.mean())

    rows = rates.shape[0]
    first = (jnp.zeros((rows, weights[0].shape[1]), rates.dtype),) * 2
    second = (jnp.zeros((rows, weights[2].shape[1]), rates.dtype),) * 2
    keys = jax.random.split(key, 50)
    (_, _, total), activity = lax.scan(step, (first, second, second[0]), keys)
    chosen = jnp.take_along_axis(jax.nn.log_softmax(total.astype(jnp.float32)), labels, axis=-1)
    busy = sum(jnp.square(part.astype(jnp.float32).mean() - 0.05) for part in activity)
    return -chosen.mean() + busy


def remembered_stack(weights, inputs, wanted):
    """Residual layers of which only the dots are kept, in groups of which nothing is."""

    @jax.jit
    def inner(weight, values):
        enter, leave = weight
        return values + jnp.tanh(centred(values) @ enter) @ leave

    @partial(jax.checkpoint, policy=jax.checkpoint_policies.checkpoint_dots)
    def layer(weight, values):
        return inner(weight[1], inner(weight[0], values))

    @jax.checkpoint
    def group(values, weights):
        for index in range(3):
            values = layer(jax.tree.map(lambda leaf, index=index: leaf[index], weights), values)
        return values, jnp.square(values.astype(jnp.float32)).mean()

    values, sizes = lax.scan(group, inputs, weights["groups"])
    values, last = group(values, weights["last"])
    apart = values.astype(jnp.float32) - wanted
    return jnp.log(jnp.cosh(apart)).mean() + 1e-3 * (sizes.sum() + last)


def codebook_step(weights, books, images):
    """Images through two rounds of nearest codes, straight through, and codes that follow."""

    @jax.jit
    def nearest(book, values):
        apart = jnp.square(values).sum(-1, keepdims=True) - 2 * values @ book.T
        return jnp.argmin(apart + jnp.square(book).sum(axis=-1), axis=-1)

    @jax.jit
    def straight(values, codes):
        return values + lax.stop_gradient(codes - values)

    @jax.jit
    def followed(book, counts, sums, values, chosen):
        hot = jax.nn.one_hot(chosen, book.shape[0])
        counts = 0.99 * counts + 0.01 * hot.sum(axis=0)
        sums = 0.99 * sums + 0.01 * hot.T @ values
        total = counts.sum()
        level = (counts + 1e-5) / (total + 1e-5 * counts.size) * total
        shares = hot.mean(axis=0)
        return (sums / level[:, None], counts, sums), -(shares * jnp.log(shares + 1e-10)).sum()

    def loss(weights):
        values = two_layers(weights["down"], images)
        rest, total, used, promise = values, 0.0, [], 0.0
        for book, _, _ in books:
            chosen = nearest(book, lax.stop_gradient(rest))
            codes = book[chosen]
            promise = promise + jnp.square(rest - lax.stop_gradient(codes)).mean()
            used.append((rest, chosen))
            total, rest = total + codes, rest - codes
        back = two_layers(weights["up"], straight(values, total))
        return jnp.square(back - images).mean() + 0.25 * promise, used

    (value, used), change = jax.value_and_grad(loss, has_aux=True)(weights)
    weights = jax.tree.map(lambda w, g: w - 0.01 * jnp.clip(g, -1.0, 1.0), weights, change)
    pairs = [followed(*book, *one) for book, one in zip(books, used, strict=True)]
    books, doubts = zip(*pairs, strict=True)
    return weights, books, value, jnp.exp(jnp.stack(doubts))


def perceptron(enter, inner, leave, dtype="f32"):
    return (
        ((dtype, (enter, inner)), (dtype, (inner,))),
        ((dtype, (inner, leave)), (dtype, (leave,))),
    )


def attention(width):
    square = ("f32", (width, width))
    return (square, square, square, square, perceptron(width, 2 * width, width))


def packed(enter, leave):
    groups = ("f16", (enter // 32, leave))
    return ("s8", (enter, leave)), groups, groups


mixer = {
    "enter": ("f32", (48, 96)),
    "blocks": [(perceptron(64, 128, 64), perceptron(96, 384, 96))] * 3,
    "leave": ("f32", (96, 10)),
}
parting = {
    "down": [
        (("f32", (5, 1, 16)), ("f32", (3, 16, 32))),
        (("f32", (5, 16, 32)), ("f32", (3, 32, 64))),
        (("f32", (5, 32, 48)), ("f32", (3, 48, 96))),
    ],
    "up": [
        (("f32", (5, 48, 32)), ("f32", (3, 96, 96))),
        (("f32", (5, 32, 16)), ("f32", (3, 64, 64))),
        (("f32", (5, 16, 12)), ("f32", (3, 32, 32))),
    ],
    "out": ("f32", (7, 13, 4)),
}
spectral = ("f32", (2, 6, 6, 20, 20))
operator = {
    "lift": ("f32", (4, 20)),
    "layers": [(spectral, spectral, ("f32", (20, 20)))] * 2,
    "drop": perceptron(20, 48, 1),
}
cover = (("f32", (768,)), ("f32", (320,)), ("bf16", (768, 320)))
narrow_square, narrow_pair = ("bf16", (256, 256)), (("f32", (256, 8)), ("f32", (8, 256)))
frozen = {
    "table": ("bf16", (3000, 256)),
    "layers": [
        {
            "query": narrow_square,
            "key": narrow_square,
            "value": narrow_square,
            "out": narrow_square,
            "gate": ("bf16", (256, 700)),
            "down": ("bf16", (700, 256)),
        }
    ]
    * 2,
}
sets = {
    "enter": ("f32", (5, 48)),
    "layers": [(("f32", (9, 48)), attention(48), attention(48))] * 2,
    "seeds": ("f32", (2, 48)),
    "pool": attention(48),
    "head": perceptron(192, 64, 1),
}
sounding = {
    "first": perceptron(144, 576, 144, "bf16"),
    "enter": ("bf16", (144, 288)),
    "kernel": ("bf16", (15, 1, 144)),
    "scale": ("bf16", (144,)),
    "shift": ("bf16", (144,)),
    "leave": ("bf16", (144, 144)),
    "last": perceptron(144, 576, 144, "bf16"),
}
codes = {"down": perceptron(784, 256, 200), "up": perceptron(200, 256, 784)}
books = {"down": perceptron(300, 128, 40), "up": perceptron(40, 128, 300)}
book = (("f32", (256, 40)), ("f32", (256,)), ("f32", (256, 40)))
small, policy = perceptron(3, 40, 2), perceptron(6, 24, 2)
row, key, square = ("f32", (144,)), ("u32", (2,)), ("f32", (4, 4))
kept_pair = (("f16", (6, 8, 160, 32)), ("f16", (6, 8, 160, 32)))
cache_layer = (("f16", (256, 768)), ("f16", (256, 256)), perceptron(256, 640, 256, "f16"))

programs = {
    "mixed_patches_step": (
        mixed_patches_step,
        (
            (mixer, mixer, mixer, ("f32", ())),
            ("f32", (32, 32, 32, 3)),
            ("s32", (32,)),
            key,
        ),
        {"donate": (0,)},
    ),
    "parted_sound_gradient": (
        jax.value_and_grad(parted_sound),
        (parting, ("f32", (3, 1024, 1)), ("f32", (3, 1024, 4))),
    ),
    "redundancy_gradient": (
        jax.grad(redundancy),
        (
            {"body": perceptron(60, 128, 96), "head": perceptron(96, 128, 72)},
            ("f32", (200, 60)),
            key,
        ),
    ),
    "coupled_flow_gradient": (
        jax.value_and_grad(coupled_flow),
        (
            [(perceptron(5, 32, 10), perceptron(5, 32, 10), ("f32", (10, 10)))] * 3,
            ("f32", (500, 10)),
        ),
    ),
    "searched_words": (
        searched_words,
        (
            (("f32", (900, 48)), ("f32", (48, 128)), ("f32", (64, 128)), ("f32", (64, 900))),
            ("f32", (6, 64)),
        ),
    ),
    "smoothed_states": (
        smoothed_states,
        (square, square, ("f32", (2, 4)), ("f32", (2, 2)), ("f32", (64, 2))),
    ),
    "grown_cells_gradient": (
        jax.grad(grown_cells),
        (perceptron(36, 64, 12), ("f32", (4, 24, 24, 4)), key),
    ),
    "waves_on_planes_gradient": (
        jax.value_and_grad(waves_on_planes),
        (operator, ("f32", (3, 32, 40, 2)), ("f32", (3, 32, 40, 1))),
    ),
    "adapted_gradient": (
        jax.grad(adapted, argnums=(0, 1), has_aux=True),
        (
            small,
            small,
            tuple(("f32", (12, rows, width)) for rows, width in ((9, 3), (9, 2), (17, 3), (17, 2))),
        ),
    ),
    "covered_update": (
        covered_update,
        (
            [(("bf16", (768, 320)), ("f32", (320,)))] * 3,
            [(cover, ("f32", (320,)))] * 3,
            [(("bf16", (768, 320)), ("f32", (320,)))] * 3,
        ),
        {"donate": (0, 1)},
    ),
    "generated_weights_gradient": (
        jax.value_and_grad(generated_weights, argnums=(0, 1)),
        (perceptron(24, 64, 1251), ("f32", (10, 24)), ("f32", (300, 2)), ("f32", (10, 300, 3))),
    ),
    "low_rank_step": (
        low_rank_step,
        (
            frozen,
            [{"query": narrow_pair, "value": narrow_pair, "out": narrow_pair}] * 2,
            ("s32", (4, 96)),
            ("s32", (4, 96)),
            key,
        ),
        {"donate": (1,)},
    ),
    "grouped_bytes": (
        grouped_bytes,
        (
            [(packed(384, 1024), packed(384, 1024), packed(1024, 384))] * 2,
            ("f16", (384, 5000)),
            ("f16", (12, 384)),
        ),
    ),
    "pooled_sets_gradient": (
        jax.grad(pooled_sets),
        (sets, ("f32", (20, 50, 5)), ("s32", (20,)), ("f32", (20,))),
    ),
    "sloped_cache_step": (
        sloped_cache_step,
        (
            [kept_pair, kept_pair],
            [cache_layer, cache_layer],
            ("f16", (6, 256)),
            ("s32", (6,)),
        ),
        {"donate": (0,)},
    ),
    "sounding_block_gradient": (
        jax.value_and_grad(sounding_block, has_aux=True),
        ([sounding, sounding], [(row, row)] * 2, ("bf16", (4, 130, 144)), ("s32", (4,))),
    ),
    "next_samples": (
        next_samples,
        (
            [("f32", (size, 3, 32)) for size in (1, 2, 4, 8)],
            (
                ("f32", (256, 32)),
                [(("f32", (64, 64)), ("f32", (32, 64)))] * 4,
                perceptron(32, 64, 256),
            ),
            ("s32", (3,)),
            key,
        ),
        {"donate": (0,)},
    ),
    "at_rest_gradient": (
        jax.grad(at_rest),
        (
            (
                (("f32", (64, 64)), ("f32", (30, 64)), ("f32", (64,))),
                (("f32", (48, 48)), ("f32", (94, 48)), ("f32", (48,))),
                ("f32", (48, 11)),
            ),
            ("f32", (70, 30)),
            ("s32", (70,)),
        ),
    ),
    "retrieved": (
        retrieved,
        (("f16", (700, 128)), ("pred", (700,)), ("f16", (33, 128)), ("f32", ())),
    ),
    "categorical_codes_gradient": (
        jax.value_and_grad(categorical_codes, has_aux=True),
        (codes, ("f32", (64, 784)), ("f32", ()), key),
    ),
    "evolved_step": (
        evolved_step,
        ((policy, policy, policy), ("f32", (40, 6)), key),
        {"donate": (0,)},
    ),
    "spiking_gradient": (
        jax.grad(spiking),
        (
            (("f16", (90, 64)), ("f16", (64, 64)), ("f16", (64, 12))),
            ("f16", (25, 90)),
            ("s32", (25, 1)),
            key,
        ),
    ),
    "remembered_stack_gradient": (
        jax.grad(remembered_stack),
        (
            {
                "groups": [(("bf16", (2, 3, 128, 256)), ("bf16", (2, 3, 256, 128)))] * 2,
                "last": [(("bf16", (3, 128, 256)), ("bf16", (3, 256, 128)))] * 2,
            },
            ("bf16", (60, 128)),
            ("f32", (60, 128)),
        ),
    ),
    "codebook_step": (codebook_step, (books, (book, book), ("f32", (150, 300)))),
}
