"""Steps assembled from jitted helpers: networks, memories, caches, trees, lenses and cloth."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

PLANES = ("NCHW", "OIHW", "NCHW")
VOLUMES = ("NCDHW", "OIDHW", "NCDHW")


@partial(jax.jit, static_argnames=("stride", "groups"))
def seen_planes(planes, kernel, stride=1, groups=1):
    """A convolution with the channels first."""
    return lax.conv_general_dilated(
        planes,
        kernel,
        (stride, stride),
        "SAME",
        dimension_numbers=PLANES,
        feature_group_count=groups,
    )


@partial(jax.jit, static_argnums=1)
def even_groups(planes, groups, scale, shift):
    """A norm over groups of channels that come first."""
    wide = planes.astype(jnp.float32).reshape(planes.shape[0], groups, -1, *planes.shape[2:])
    mean = wide.mean(axis=(2, 3, 4), keepdims=True)
    spread = jnp.square(wide - mean).mean(axis=(2, 3, 4), keepdims=True)
    normal = ((wide - mean) * lax.rsqrt(spread + 1e-5)).reshape(planes.shape)
    return (normal * scale[:, None, None] + shift[:, None, None]).astype(planes.dtype)


@jax.jit
def root_norm(values, scale):
    """Division by the root of the mean square over the last axis."""
    wide = values.astype(jnp.float32)
    length = lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + 1e-6)
    return (wide * length).astype(values.dtype) * scale


@jax.jit
def two_relus(weights, values):
    """Two layers, the last of them plain."""
    first, second = weights
    return jax.nn.relu(values @ first) @ second


def shuffled_groups(weights, images, labels):
    """Grouped convolutions between which channels are shuffled, and a margin loss."""
    groups = 4

    @jax.jit
    def unit(layer, planes):
        inner = seen_planes(planes, layer["enter"], groups=groups)
        inner = jax.nn.relu(even_groups(inner, groups, *layer["norm"]))
        batch, channels, height, width = inner.shape
        inner = inner.reshape(batch, groups, -1, height, width).swapaxes(1, 2)
        inner = inner.reshape(batch, channels, height, width)
        inner = seen_planes(inner, layer["depth"], groups=channels)
        return jax.nn.relu(planes + seen_planes(inner, layer["leave"], groups=groups))

    hidden = images
    for layer in weights["units"]:
        hidden = unit(layer, hidden)
    sides = (1, 1, 3, 3), (1, 1, 2, 2), "SAME"
    highest = lax.reduce_window(hidden, -jnp.inf, lax.max, *sides)
    hidden = jnp.concatenate([highest, lax.reduce_window(hidden, 0.0, lax.add, *sides)], axis=1)
    logits = jnp.einsum("bchw,kc->bk", hidden, weights["head"]).astype(jnp.float32)
    wanted = jax.nn.one_hot(labels, logits.shape[1])
    right = (wanted * logits).sum(axis=1, keepdims=True)
    return ((1.0 - wanted) * jnp.maximum(0.0, 1.0 + logits - right)).sum(axis=1).mean()


def rival_networks_step(made, judge, squares, noise, images):
    """A painter and a judge take one step each, both from the same painted pictures."""

    @jax.jit
    def painted(weights, noise):
        hidden = (noise @ weights["enter"]).reshape(noise.shape[0], -1, 4, 4)
        for kernel in weights["grow"]:
            hidden = lax.conv_transpose(
                jax.nn.relu(hidden), kernel, (2, 2), "SAME", dimension_numbers=PLANES
            )
        return jnp.tanh(hidden)

    @jax.jit
    def judged(weights, images):
        hidden = images
        for kernel in weights["kernels"]:
            hidden = jax.nn.leaky_relu(seen_planes(hidden, kernel, stride=2), 0.2)
        return jnp.einsum("bchw,chw->b", hidden, weights["head"])

    @jax.jit
    def moved(weight, square, change):
        square = 0.9 * square + 0.1 * change * change
        return weight - 2e-4 * change / (jnp.sqrt(square) + 1e-6), square

    def judge_loss(judge, pictures):
        real, false = judged(judge, images), judged(judge, pictures)
        loss = jax.nn.relu(1.0 - real).mean() + jax.nn.relu(1.0 + false).mean()
        return loss, (real > 0).mean() + (false < 0).mean()

    def made_loss(made):
        pictures = painted(made, noise)
        return -judged(judge, pictures).mean(), pictures

    (cost, pictures), made_change = jax.value_and_grad(made_loss, has_aux=True)(made)
    (loss, right), judge_change = jax.value_and_grad(judge_loss, has_aux=True)(judge, pictures)
    pairs = jax.tree.map(moved, (made, judge), squares, (made_change, judge_change))
    both = jax.tree.transpose(jax.tree.structure((made, judge)), jax.tree.structure((0, 0)), pairs)
    return both, cost, loss, 0.5 * right


def shifted_windows(layers, images, wanted):
    """Attention inside windows, which the second layer shifts by half a window."""
    size, heads = 4, 3
    _, height, width, channels = images.shape
    places = jnp.arange(size * size)
    down, across = (side[:, None] - side + size - 1 for side in (places >> 2, places & 3))
    apart = down * (2 * size - 1) + across

    @jax.jit
    def parted(field):
        parts = field.reshape(-1, height // size, size, width // size, size, field.shape[-1])
        parts = parts.transpose(0, 1, 3, 2, 4, 5)
        return parts.reshape(field.shape[0], -1, size * size, field.shape[-1])

    @jax.jit
    def looked(layer, windows, alike):
        parts = (windows @ layer["enter"]).reshape(*windows.shape[:3], 3, heads, 16)
        query, key, value = parts[:, :, :, 0], parts[:, :, :, 1], parts[:, :, :, 2]
        scores = jnp.einsum("bwqhd,bwkhd->bwhqk", query, key) * 0.25
        bias = layer["bias"].at[:, apart].get(mode="promise_in_bounds")
        scores = (scores + bias).astype(jnp.float32)
        shares = jax.nn.softmax(jnp.where(alike[:, None], scores, -1e4), axis=-1)
        mixed = jnp.einsum("bwhqk,bwkhd->bwqhd", shares.astype(value.dtype), value)
        return mixed.reshape(windows.shape) @ layer["leave"]

    def turned(field, shift):
        if shift == 0:
            return field
        field = jnp.concatenate([field[:, shift:], field[:, :shift]], axis=1)
        return jnp.concatenate([field[:, :, shift:], field[:, :, :shift]], axis=2)

    hidden = images
    for layer, shift in zip(layers, (0, size // 2), strict=True):
        regions = 2.0 * (jnp.arange(height) >= height - shift)[:, None]
        regions = parted((regions + (jnp.arange(width) >= width - shift))[None, ..., None])[0]
        windows = parted(turned(root_norm(hidden, layer["scale"]), shift))
        mixed = looked(layer, windows, regions == regions.swapaxes(1, 2))
        mixed = mixed.reshape(-1, height // size, width // size, size, size, channels)
        mixed = mixed.transpose(0, 1, 3, 2, 4, 5).reshape(images.shape)
        hidden = hidden + turned(mixed, -shift)
    return jnp.square((hidden - wanted).astype(jnp.float32)).mean()


def integer_layers(layers, tables, signal):
    """Layers that never leave the integers: bytes, wide sums, fixed points, looked-up curves."""

    @jax.jit
    def rescaled(total, factor, shift):
        half = lax.shift_left(jnp.int32(1), shift - 1)
        return jnp.clip(((total >> 6) * factor + half) >> shift, -128, 127).astype(jnp.int8)

    @jax.jit
    def looked_up(values, table):
        return table[values.astype(jnp.int32) + 128]

    @jax.jit
    def saturated(left, right):
        total = left.astype(jnp.int16) + right.astype(jnp.int16)
        return jnp.clip(total, -128, 127).astype(jnp.int8)

    hidden = signal
    for (taps, weight, bias, factor, shift), table in zip(layers, tables, strict=True):
        padded = jnp.pad(hidden, ((0, 0), (2, 0), (0, 0))).astype(jnp.int32)
        along = sum(
            padded[:, place : place + hidden.shape[1]] * taps[place].astype(jnp.int32)
            for place in range(3)
        )
        along = rescaled(along, factor, shift)
        total = lax.dot_general(
            along, weight, (((2,), (0,)), ((), ())), preferred_element_type=jnp.int32
        )
        inner = looked_up(rescaled(total + bias, factor, shift), table)
        hidden = saturated(hidden, inner)
    pooled = lax.reduce_window(hidden, jnp.int8(-128), lax.max, (1, 4, 1), (1, 4, 1), "VALID")
    mean = pooled.astype(jnp.int32).sum(axis=1) // pooled.shape[1]
    powers = lax.shift_left(
        jnp.int32(1), jnp.clip((mean - mean.max(1, keepdims=True)) // 8 + 20, 0, 20)
    )
    return hidden, (powers << 7) // (powers.sum(axis=1, keepdims=True) >> 3), pooled.argmax(axis=1)


def narrow_wire_step(weights, lost, inputs, wanted):
    """Workers send their slopes as eight-bit floats and keep what the rounding lost."""

    @jax.jit
    def loss(weights, inputs, wanted):
        values = inputs
        for weight, bias in weights:
            values = jax.nn.softplus(values @ weight + bias)
        return jnp.log(jnp.cosh(values - wanted)).mean()

    @jax.jit
    def sent(change, lost):
        whole = change + lost
        axes = tuple(range(1, whole.ndim))
        largest = jnp.abs(whole).max(axis=axes, keepdims=True)
        scale = jnp.exp2(jnp.ceil(jnp.log2(jnp.maximum(largest, 1e-20) / 57344.0)))
        narrow = (whole / scale).astype(jnp.float8_e5m2)
        back = narrow.astype(jnp.float32) * scale
        return back.mean(axis=0), whole - back, jnp.isinf(narrow.astype(jnp.float32)).sum()

    workers = jax.vmap(jax.value_and_grad(loss), in_axes=(None, 0, 0))
    values, changes = workers(weights, inputs, wanted)
    leaves, shape = jax.tree.flatten(changes)
    parts = [sent(*pair) for pair in zip(leaves, shape.flatten_up_to(lost), strict=True)]
    means, lost, over = (list(part) for part in zip(*parts, strict=True))
    weights = jax.tree.map(lambda w, g: w - 0.1 * g, weights, shape.unflatten(means))
    return weights, shape.unflatten(lost), values.mean(), sum(over)


def sorted_slices(mapper, directions, points, wanted):
    """How far two clouds are apart when each is seen along many lines and sorted there."""

    @jax.jit
    def quantiles(values, shares):
        order = jnp.sort(values, axis=-1)
        place = shares * (values.shape[-1] - 1)
        below = jnp.floor(place)
        left = order[:, below.astype(jnp.uint32)]
        right = order[:, jnp.ceil(place).astype(jnp.uint32)]
        return left + (right - left) * (place - below)

    lines = directions * lax.rsqrt(jnp.square(directions).sum(axis=0, keepdims=True))
    shares = jnp.linspace(0.0, 1.0, 100)
    moved = points + two_relus(mapper, points)
    seen = quantiles(jnp.einsum("nd,dk->kn", moved, lines), shares)
    other = quantiles(jnp.einsum("nd,dk->kn", wanted, lines), shares)
    apart = jnp.abs(seen - other)
    along = (apart * jnp.sqrt(apart + 1e-6)).mean(axis=1)
    work = jnp.square(moved - points).sum(axis=-1).mean()
    steepest = jax.nn.logsumexp(10.0 * along) / 10.0
    return along.mean() + 0.1 * steepest + 0.01 * work, (along.argmax(), apart.max())


def aligned_pairs(weights, left, right):
    """The soft cost of the best way to align two sequences, along the slanted lines of pairs."""

    @jax.jit
    def softly_least(first, second, third):
        values = -jnp.stack([first, second, third]) / 0.1
        top = lax.stop_gradient(values.max(axis=0))
        return -0.1 * (jnp.log(jnp.exp(values - top).sum(axis=0)) + top)

    @jax.jit
    def shifted(line):
        return jnp.concatenate([jnp.full(1, 1e4), line[:-1]])

    def cost(left, right):
        rows, columns = left.shape[0], right.shape[0]
        left, right = (jnp.tanh(side @ weights) for side in (left, right))
        apart = jnp.square(left).sum(1)[:, None] + jnp.square(right).sum(1) - 2.0 * left @ right.T
        padded = jnp.pad(apart, ((0, 0), (0, rows)), constant_values=1e4)
        slanted = padded.ravel()[: rows * (rows + columns - 1)].reshape(rows, -1).T

        def step(carry, line):
            before, last = carry
            new = line + softly_least(last, shifted(last), shifted(before))
            return (last, new), new[-1]

        empty = jnp.full(rows, 1e4)
        start = empty.at[0].set(slanted[0, 0])
        return lax.scan(step, (empty, start), slanted[1:])[1][-1] / (rows + columns)

    costs = jax.vmap(cost)(left, right)
    return costs.mean() + 1e-3 * jnp.square(weights).sum()


def chirped_radar(echoes, pulse):
    """From echoes to distances, speeds and directions: compressed, turned, and compared around."""
    _, pulses, samples = echoes.shape

    @partial(jax.jit, static_argnums=1)
    def tapered(values, axis):
        size = values.shape[axis]
        angle = 2.0 * jnp.pi * jnp.arange(size) / (size - 1)
        window = 0.42 - 0.5 * jnp.cos(angle) + 0.08 * jnp.cos(2.0 * angle)
        return values * jnp.expand_dims(window, [a for a in range(values.ndim) if a != axis])

    @partial(jax.jit, static_argnums=(1, 2))
    def around(power, tall, wide):
        total = jnp.pad(power, ((tall + 1, tall), (wide + 1, wide)), mode="wrap")
        total = jnp.cumsum(jnp.cumsum(total, axis=0), axis=1)
        tall, wide = 2 * tall + 1, 2 * wide + 1
        upper = total[:-tall, wide:] - total[:-tall, :-wide]
        return total[tall:, wide:] - total[tall:, :-wide] - upper

    known = jnp.conj(jnp.fft.fft(pulse, samples))
    close = jnp.fft.ifft(jnp.fft.fft(echoes, axis=-1) * known, axis=-1)
    close = close - close.mean(axis=1, keepdims=True)
    speeds = jnp.fft.fftshift(jnp.fft.fft(tapered(close, 1), axis=1), axes=1)
    power = (jnp.square(speeds.real) + jnp.square(speeds.imag)).sum(axis=0)
    noise = (around(power, 4, 9) - around(power, 1, 2)) / (9 * 19 - 3 * 5)
    peak = lax.reduce_window(power, -jnp.inf, lax.max, (3, 3), (1, 1), "SAME")
    ratio = jnp.where(power == peak, power / (noise + 1e-9), 0.0)
    best, cells = lax.top_k(ratio.ravel(), 10)
    row, column = lax.div(cells, samples), lax.rem(cells, samples)
    across = jnp.fft.fft(tapered(speeds[:, row, column], 0), 64, axis=0)
    angle = jnp.abs(jnp.fft.fftshift(across, axes=0)).argmax(axis=0)
    found = best > 13.0
    return jnp.where(found, column, -1), row - pulses // 2, angle, 10.0 * jnp.log10(best + 1e-9)


def lens_stack(phases, images, labels):
    """Light through a row of thin plates that shall gather it at one place for each label."""
    size = phases.shape[1]
    waves = jnp.square(jnp.minimum(jnp.arange(size), size - jnp.arange(size)) / size)
    along = 75.4 * jnp.sqrt(1.0 - waves[:, None] - waves)
    onward = lax.complex(jnp.cos(along), jnp.sin(along))

    @jax.jit
    def carried(field):
        return jnp.fft.ifft2(jnp.fft.fft2(field) * onward)

    def plate(field, phase):
        return carried(field) * lax.complex(jnp.cos(phase), jnp.sin(phase)), None

    edge = (size - images.shape[1]) // 2
    field = jnp.pad(images, ((0, 0), (edge, edge), (edge, edge))).astype(jnp.complex64)
    field = carried(lax.scan(plate, field, phases)[0])
    light = jnp.square(field.real) + jnp.square(field.imag)
    spots = light.reshape(-1, 4, size // 4, 4, size // 4).sum(axis=(2, 4)).reshape(-1, 16)
    spots = spots / spots.sum(axis=1, keepdims=True)
    chances = jax.nn.log_softmax(20.0 * spots) * jax.nn.one_hot(labels, 16)
    return -chances.sum(axis=1).mean(), spots


def paged_cache_step(pages, layers, hidden, table, lengths):
    """One token of each row through stacked layers whose keys and values lie in shared pages."""
    places = jnp.arange(table.shape[1] * pages[0].shape[2]).reshape(table.shape[1], -1)
    page = jnp.take_along_axis(table, (lengths >> 4)[:, None], axis=1)[:, 0]
    slot = lengths & 15
    seen = (places <= lengths[:, None, None]) & (
        (places > lengths[:, None, None] - 48) | (places < 4)
    )

    @jax.jit
    def turned(heads):
        left, right = jnp.split(heads, 2, axis=-1)
        speed = 1e4 ** (-jnp.arange(left.shape[-1]) / left.shape[-1])
        angle = lengths[:, None, None] * speed
        cosine, sine = jnp.cos(angle).astype(heads.dtype), jnp.sin(angle).astype(heads.dtype)
        return jnp.concatenate([left * cosine - right * sine, right * cosine + left * sine], -1)

    def layer(hidden, slices):
        (keys, values), weights = slices
        groups, width = keys.shape[2:]
        normal = root_norm(hidden, weights["scale"])
        query = turned((normal @ weights["query"]).reshape(hidden.shape[0], -1, width))
        pair = (normal @ weights["pair"]).reshape(hidden.shape[0], 2, groups, width)
        keys = keys.at[page, slot].set(turned(pair[:, 0]))
        values = values.at[page, slot].set(pair[:, 1])
        query = query.reshape(hidden.shape[0], groups, -1, width)
        scores = jnp.einsum("bgqd,bpsgd->bgqps", query, keys[table]).astype(jnp.float32)
        scores = 30.0 * jnp.tanh(scores * width**-0.5 / 30.0)
        scores = jnp.where(seen[:, None, None], scores, -jnp.inf)
        shares = jax.nn.softmax(scores, axis=(-2, -1)).astype(values.dtype)
        mixed = jnp.einsum("bgqps,bpsgd->bgqd", shares, values[table])
        hidden = hidden + mixed.reshape(hidden.shape[0], -1) @ weights["leave"]
        gate, up = jnp.split(root_norm(hidden, weights["scale"]) @ weights["wide"], 2, axis=-1)
        return hidden + (jax.nn.silu(gate) * up) @ weights["narrow"], (keys, values)

    hidden, pages = lax.scan(layer, hidden, (pages, layers))
    return pages, hidden, lengths + 1


def grown_trees(codes, wanted, rate):
    """Trees of three levels, one after the other, each grown on what those before it left."""
    rows, features = codes.shape
    leaves, bins, columns = 8, 32, jnp.arange(features)

    @jax.jit
    def score(slope, curve):
        return slope * slope / (curve + 1.0)

    @jax.jit
    def split(nodes, slopes, curves):
        bars = jnp.zeros((leaves, features, bins, 2))
        both = jnp.stack([slopes, curves], axis=-1)[:, None]
        bars = bars.at[nodes[:, None], columns, codes].add(both)
        left = jnp.cumsum(bars, axis=2)
        whole = left[:, :, -1:]
        right = whole - left
        gain = score(left[..., 0], left[..., 1]) + score(right[..., 0], right[..., 1])
        gain = (gain - score(whole[..., 0], whole[..., 1])).reshape(leaves, -1)
        best = gain.argmax(axis=1)
        feature, limit = best // bins, best % bins
        value = jnp.take_along_axis(codes, feature[nodes][:, None], axis=1)[:, 0]
        return 2 * nodes + (value > limit[nodes]), feature, gain.max(axis=1)

    def grown(guess, _):
        chance = jax.nn.sigmoid(guess)
        slopes, curves = chance - wanted, chance * (1.0 - chance)
        nodes, chosen = jnp.zeros(rows, jnp.int32), []
        for _ in range(3):
            nodes, feature, gain = split(nodes, slopes, curves)
            chosen.append((feature, gain))
        total = jax.ops.segment_sum(slopes, nodes, leaves)
        weight = jax.ops.segment_sum(curves, nodes, leaves) + 1.0
        guess = guess - rate * (total / weight)[nodes]
        loss = (jnp.logaddexp(0.0, guess) - wanted * guess).mean()
        return guess, (chosen, total / weight, loss)

    return lax.scan(grown, jnp.zeros(rows), length=6)


def hung_cloth(places, speeds, held):
    """Cloth on two nails, each step solved backward in time by conjugate gradients."""

    @jax.jit
    def stretched(left, right, rest):
        length = jnp.sqrt(jnp.square(left - right).sum(axis=-1) + 1e-8)
        return 40.0 * jnp.square(length - rest).sum()

    @jax.jit
    def energy(places):
        total = stretched(places[1:], places[:-1], 0.1)
        total = total + stretched(places[:, 1:], places[:, :-1], 0.1)
        return total + 0.0981 * places[..., 1].sum()

    slope = jax.grad(energy)

    def step(carry, _):
        places, speeds = carry
        guess = places + 0.02 * speeds
        forces, bent = jax.linearize(slope, guess)

        @jax.jit
        def applied(change):
            return jnp.where(held, 0.0, 0.01 * change + 4e-4 * bent(change))

        def going(state):
            count, _, rest, _, size = state
            return (count < 20) & (size > 1e-8 * rest.size)

        def closer(state):
            count, change, rest, way, size = state
            along = applied(way)
            share = size / (jnp.vdot(way, along) + 1e-12)
            rest = rest - share * along
            new = jnp.vdot(rest, rest)
            return count + 1, change + share * way, rest, rest + new / (size + 1e-12) * way, new

        rest = jnp.where(held, 0.0, -4e-4 * forces)
        start = (0, jnp.zeros_like(places), rest, rest, jnp.vdot(rest, rest))
        count, change, *_ = lax.while_loop(going, closer, start)
        new = jnp.where(held, places, guess + change)
        return (new, 0.99 * (new - places) / 0.02), (count, energy(new))

    return lax.scan(step, (places, speeds), length=8)


def memory_tape(weights, tape, inputs, wanted):
    """A reader that writes where it reads, and finds its place by content or goes on a step."""

    @jax.jit
    def found(tape, before, key, gate):
        place = jax.nn.softmax(tape @ key) * gate
        return place + (1.0 - gate) * jnp.concatenate([before[-1:], before[:-1]])

    @jax.checkpoint
    def step(carry, signal):
        tape, place, seen = carry
        state = jnp.tanh(jnp.concatenate([signal, seen]) @ weights["within"])
        key, erased, added, gate = jnp.split(state @ weights["change"], (12, 24, 36))
        place = found(tape, place, key, jax.nn.sigmoid(gate))
        tape = tape - place[:, None] * (erased * tape - added)
        seen = place @ tape
        return (tape, place, seen), jnp.concatenate([state, seen])

    def read(inputs):
        first = jnp.ones(tape.shape[0]) / tape.shape[0]
        return lax.scan(step, (tape, first, tape.mean(axis=0)), inputs)[1] @ weights["head"]

    guess = jax.vmap(read)(inputs)
    return jnp.square(guess - wanted).mean()


@jax.jit
def overlaps(left, right):
    """The share that boxes have in common of what they cover together."""
    low, high = (
        jnp.maximum(left[..., :2], right[..., :2]),
        jnp.minimum(left[..., 2:], right[..., 2:]),
    )
    common = jnp.prod(jnp.maximum(high - low, 0.0), axis=-1)
    areas = sum(jnp.prod(box[..., 2:] - box[..., :2], axis=-1) for box in (left, right))
    return common / (areas - common + 1e-6)


def matched_boxes(head, anchors, features, boxes, labels, present):
    """The loss of boxes around things, each of which claims the anchors that lie upon it."""

    def one(features, boxes, labels, present):
        kinds, shifts = features @ head[0], features @ head[1]
        share = jnp.where(present, overlaps(anchors[:, None], boxes), -1.0)
        owner, best = share.argmax(axis=1), share.max(axis=1)
        favourite = jnp.where(present, share.argmax(axis=0), anchors.shape[0])
        best = best.at[favourite].set(1.0, mode="drop")
        taken = best > 0.5
        counted = taken | (best <= 0.4)
        mine = jnp.take(boxes, owner, axis=0, mode="clip")
        kind = jnp.take(labels, owner, mode="clip")
        wanted = jax.nn.one_hot(kind, kinds.shape[1]) * taken[:, None]
        missed = jnp.square(wanted - jax.nn.sigmoid(kinds))
        focused = missed * (jnp.logaddexp(kinds, 0.0) - wanted * kinds)
        size = jnp.tile(anchors[:, 2:] - anchors[:, :2], 2)
        apart = jnp.abs((mine - anchors) / size - shifts)
        smooth = jnp.where(apart < 0.1, 5.0 * apart * apart, apart - 0.05).sum(axis=1)
        count = jnp.maximum(taken.sum(), 1)
        return (focused.sum(axis=1) * counted).sum() / count, (taken * smooth).sum() / count

    kinds, places = jax.vmap(one)(features, boxes, labels, present)
    return kinds.mean() + 2.0 * places.mean(), (kinds, places)


def embedded_clicks_step(tables, squares, layers, names, numbers, clicked):
    """A step on clicks: bags of rows, products of pairs, and updates of the used rows alone."""

    @jax.jit
    def bagged(rows, present):
        count = jnp.maximum(present.sum(axis=1, keepdims=True), 1)
        return (rows * present[..., None]).sum(axis=1) / jnp.sqrt(count)

    @jax.jit
    def renewed(table, square, names, change):
        flat, change = names.ravel(), change.reshape(-1, change.shape[-1])
        square = square.at[flat].add(jnp.square(change).mean(axis=-1))
        step = change * lax.rsqrt(square[flat] + 1e-6)[:, None]
        return table.at[flat].add(-0.05 * step.astype(table.dtype)), square

    def loss(gathered, layers):
        dense = two_relus(layers["enter"], numbers)
        bags = [bagged(rows, name > 0) for rows, name in zip(gathered, names, strict=True)]
        parts = jnp.stack([dense, *bags], axis=1)
        products = jnp.einsum("bid,bjd->bij", parts, parts)
        above = [products[:, row, row + 1 :] for row in range(parts.shape[1] - 1)]
        joined = jnp.concatenate([dense, *above], axis=-1)
        guess = two_relus(layers["leave"], joined)[:, 0]
        return (jnp.logaddexp(guess, 0.0) - clicked * guess).mean(), jax.nn.sigmoid(guess)

    gathered = [table[name].astype(jnp.float32) for table, name in zip(tables, names, strict=True)]
    slopes = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)
    (value, chances), (changes, steep) = slopes(gathered, layers)
    pairs = [renewed(*part) for part in zip(tables, squares, names, changes, strict=True)]
    layers = jax.tree.map(lambda weight, change: weight - 0.1 * change, layers, steep)
    return pairs, layers, value, chances.mean() / clicked.mean()


def folded_pairs(weights, pairs, present, wanted):
    """What is known of pairs, mixed along the third side of every triangle, then told as bins."""
    both = (present[:, None] & present)[..., None].astype(pairs.dtype)

    @partial(jax.jit, static_argnums=0)
    def triangle(order, layer, pairs):
        normal = root_norm(pairs, layer["scale"])
        left, right = jnp.split(normal @ layer["enter"] * both, 2, axis=-1)
        mixed = jnp.einsum(order, left, right)
        return mixed @ layer["leave"] * jax.nn.sigmoid(normal @ layer["gate"])

    @jax.checkpoint
    def block(layer, pairs):
        pairs = pairs + triangle("ikc,jkc->ijc", layer["out"], pairs)
        return pairs + triangle("kjc,kic->ijc", layer["in"], pairs)

    pairs = block(weights["block"], pairs)
    logits = ((pairs + pairs.swapaxes(0, 1)) @ weights["head"]).astype(jnp.float32)
    chances = jax.nn.log_softmax(logits) * jax.nn.one_hot(wanted, logits.shape[-1])
    return -(chances * both).sum() / (both.astype(jnp.float32).sum() + 1e-3)


def halted_thinking(weights, inputs):
    """Rows think until each has had enough, and look at one another at every third thought."""

    @jax.jit
    def alone(state):
        return jnp.tanh(root_norm(state, weights["scale"]) @ weights["alone"] + inputs)

    @jax.jit
    def together(state):
        normal = root_norm(state, weights["scale"])
        scores = (normal @ weights["pairs"]) @ normal.T * state.shape[1] ** -0.5
        return alone(jax.nn.softmax(scores, axis=0).T @ state)

    def going(carry):
        count, _, _, spent, _ = carry
        return (count < 12) & jnp.any(spent < 0.99)

    def think(carry):
        count, state, answer, spent, thoughts = carry
        state = lax.cond(count % 3 == 2, together, alone, state)
        enough = jax.nn.sigmoid(state @ weights["halt"])
        running = spent < 0.99
        last = running & ((spent + enough >= 0.99) | (count == 11))
        share = jnp.where(last, 1.0 - spent, jnp.where(running, enough, 0.0))
        answer = answer + share[:, None] * state
        return count + 1, state, answer, spent + share, thoughts + running

    zeros = jnp.zeros(inputs.shape[0])
    start = (0, inputs, jnp.zeros_like(inputs), zeros, zeros.astype(jnp.int32))
    count, _, answer, spent, thoughts = lax.while_loop(going, think, start)
    return jax.nn.softmax(answer @ weights["head"], axis=-1), count, thoughts, 1.0 - spent


def two_eyes(weights, left, right):
    """Distances from two pictures: costs of every shift, softly the least, and how well it fits."""
    count = 8

    @jax.jit
    def features(images):
        hidden = jax.nn.leaky_relu(seen_planes(images, weights["first"], stride=2))
        return seen_planes(hidden, weights["second"])

    @jax.jit
    def uneven(planes):
        total = lax.reduce_window(planes, 0.0, lax.add, (1, 1, 3, 3), (1, 1, 1, 1), "SAME")
        return planes - total / 9.0

    def shifted(planes, step):
        wide = jnp.pad(planes, ((0, 0), (0, 0), (0, 0), ((count - 1) * step, 0)))
        starts = range((count - 1) * step, -1, -step)
        return jnp.stack([wide[..., s : s + planes.shape[-1]] for s in starts], axis=2)

    near, far = features(left), features(right)
    products = near[:, :, None] * shifted(far, 1)
    costs = products.reshape(near.shape[0], 4, -1, *products.shape[2:]).mean(axis=2)
    costs = lax.conv_general_dilated(
        costs,
        weights["grow"],
        (1, 1, 1),
        ((1, 1), (2, 2), (2, 2)),
        lhs_dilation=(1, 2, 2),
        dimension_numbers=VOLUMES,
    )[:, 0]
    shares = jax.nn.softmax(-costs, axis=1)
    shift = jnp.einsum("bshw,s->bhw", shares, 2.0 * jnp.arange(count))
    seen = jnp.einsum("bshw,bcshw->cbhw", shares, shifted(right, 2)).swapaxes(0, 1)
    apart = jnp.sqrt(jnp.square(uneven(seen) - uneven(left)) + 1e-4).mean()
    steep = jnp.exp(-jnp.abs(jnp.diff(left, axis=3)).mean(axis=1))
    return apart + 0.1 * (jnp.abs(jnp.diff(shift, axis=2)) * steep).mean(), shift


def hashed_field(tables, weights, places, wanted):
    """A field of colours whose corners at every size lie where a hash of them says."""
    corners = jnp.stack(jnp.meshgrid(*[jnp.arange(2)] * 3, indexing="ij"), -1).reshape(-1, 3)
    primes = jnp.array([1, 2654435761, 805459861], dtype=jnp.uint32)

    @jax.jit
    def looked_up(table, size):
        low = jnp.floor(places * size)
        part = (places * size - low)[:, None]
        mixed = (low[:, None].astype(jnp.int32) + corners).astype(jnp.uint32) * primes
        row = (mixed[..., 0] ^ mixed[..., 1] ^ mixed[..., 2]) & jnp.uint32(table.shape[0] - 1)
        share = jnp.where(corners == 1, part, 1.0 - part).prod(axis=-1)
        return jnp.einsum("nc,ncf->nf", share.astype(table.dtype), table[row])

    sizes = 8.0 * 1.6 ** jnp.arange(tables.shape[0])
    hidden = jax.vmap(looked_up, out_axes=1)(tables, sizes).reshape(places.shape[0], -1)
    found = jax.nn.sigmoid(two_relus(weights, hidden).astype(jnp.float32))
    apart = jnp.abs(found - wanted)
    loss = jnp.where(apart < 0.1, 5.0 * apart * apart, apart - 0.05).mean()
    return loss + 1e-4 * jnp.square(tables.astype(jnp.float32)).mean()


@jax.custom_vjp
def summed_prefixes(query, key, value):
    """What each query reads of the sums over all keys up to its own."""
    total = jnp.cumsum(jnp.einsum("tbhm,tbhd->tbhmd", key, value), axis=0)
    return jnp.einsum("tbhm,tbhmd->tbhd", query, total)


def summed_prefixes_forward(query, key, value):
    return summed_prefixes(query, key, value), (query, key, value)


def summed_prefixes_backward(kept, change):
    query, key, value = kept
    total = jnp.cumsum(jnp.einsum("tbhm,tbhd->tbhmd", key, value), axis=0)
    after = jnp.einsum("tbhm,tbhd->tbhmd", query, change)
    after = lax.cumsum(after, axis=0, reverse=True)
    return (
        jnp.einsum("tbhd,tbhmd->tbhm", change, total),
        jnp.einsum("tbhmd,tbhd->tbhm", after, value),
        jnp.einsum("tbhmd,tbhm->tbhd", after, key),
    )


summed_prefixes.defvjp(summed_prefixes_forward, summed_prefixes_backward)


def featured_prefixes(weights, features, hidden, wanted):
    """Attention to the past without a table of scores, by features drawn for the exponential."""

    @partial(jax.jit, static_argnums=1)
    def positive(heads, axes):
        scores = jnp.einsum("bthd,md->tbhm", heads * heads.shape[-1] ** -0.25, features)
        length = 0.5 * jnp.square(heads).sum(axis=-1).transpose(1, 0, 2)[..., None]
        scores = scores - length * heads.shape[-1] ** -0.5
        top = lax.stop_gradient(scores.max(axis=axes, keepdims=True))
        return jnp.exp(scores - top) + 1e-4

    batch, time, width = hidden.shape
    parts = (hidden @ weights["enter"]).reshape(batch, time, 3, -1, features.shape[1])
    query, key, value = (part[:, :, 0] for part in jnp.split(parts, 3, axis=2))
    query, key = positive(query, (3,)), positive(key, (0, 3))
    value = value.transpose(1, 0, 2, 3)
    value = jnp.concatenate([value, jnp.ones_like(value[..., :1])], axis=-1)
    mixed = summed_prefixes(query, key, value)
    mixed = (mixed[..., :-1] / mixed[..., -1:]).transpose(1, 0, 2, 3).reshape(batch, time, width)
    guess = (hidden + mixed @ weights["leave"])[:, :-1]
    guess = guess / jnp.linalg.norm(guess, axis=-1, keepdims=True)
    return (1.0 - (guess * wanted[:, 1:]).sum(axis=-1)).mean()


def shuffled_unit(channels, inner):
    return {
        "enter": ("bf16", (inner, channels // 4, 1, 1)),
        "norm": (("f32", (inner,)), ("f32", (inner,))),
        "depth": ("bf16", (inner, 1, 3, 3)),
        "leave": ("bf16", (channels, inner // 4, 1, 1)),
    }


def triangle_of(width, inner):
    return {
        "scale": ("bf16", (width,)),
        "enter": ("bf16", (width, 2 * inner)),
        "leave": ("bf16", (inner, width)),
        "gate": ("bf16", (width, width)),
    }


painter = {
    "enter": ("f32", (20, 768)),
    "grow": [("f32", (24, 48, 4, 4)), ("f32", (3, 24, 4, 4))],
}
critic = {
    "kernels": [("f32", (24, 3, 5, 5)), ("f32", (40, 24, 5, 5))],
    "head": ("f32", (40, 4, 4)),
}
windowed = {
    "scale": ("f16", (48,)),
    "enter": ("f16", (48, 144)),
    "bias": ("f16", (3, 49)),
    "leave": ("f16", (48, 48)),
}
whole_layer = (("s8", (3, 72)), ("s8", (72, 72)), ("s32", (72,)), ("s32", ()), ("s32", ()))
wired = [(("f32", (30, 90)), ("f32", (90,))), (("f32", (90, 7)), ("f32", (7,)))]
kept_back = [(("f32", (5, 30, 90)), ("f32", (5, 90))), (("f32", (5, 90, 7)), ("f32", (5, 7)))]
paged = ("bf16", (3, 44, 16, 2, 32))
stacked = {
    "scale": ("bf16", (3, 192)),
    "query": ("bf16", (3, 192, 256)),
    "pair": ("bf16", (3, 192, 128)),
    "leave": ("bf16", (3, 256, 192)),
    "wide": ("bf16", (3, 192, 800)),
    "narrow": ("bf16", (3, 400, 192)),
}
cloth = ("f32", (22, 30, 3))
taped = {
    "within": ("f32", (21, 50)),
    "change": ("f32", (50, 37)),
    "head": ("f32", (62, 8)),
}
clicks = {
    "enter": (("f32", (13, 48)), ("f32", (48, 16))),
    "leave": (("f32", (22, 40)), ("f32", (40, 1))),
}
named = [("u32", (90, 6))] * 3
folded = {
    "block": {
        "out": triangle_of(40, 56),
        "in": triangle_of(40, 56),
    },
    "head": ("bf16", (40, 21)),
}
thinker = {
    "scale": ("f32", (84,)),
    "alone": ("f32", (84, 84)),
    "pairs": ("f32", (84, 84)),
    "halt": ("f32", (84,)),
    "head": ("f32", (84, 13)),
}
eyes = {
    "first": ("f32", (16, 3, 5, 5)),
    "second": ("f32", (24, 16, 3, 3)),
    "grow": ("f32", (1, 4, 3, 4, 4)),
}
prefixes = {"enter": ("f32", (60, 180)), "leave": ("f32", (60, 60))}

programs = {
    "shuffled_groups_gradient": (
        jax.value_and_grad(shuffled_groups),
        (
            {"units": [shuffled_unit(24, 32)] * 2, "head": ("bf16", (9, 48))},
            ("bf16", (3, 24, 26, 22)),
            ("s32", (3,)),
        ),
    ),
    "rival_networks_step": (
        rival_networks_step,
        (painter, critic, (painter, critic), ("f32", (10, 20)), ("f32", (10, 3, 16, 16))),
        {"donate": (0, 1, 2)},
    ),
    "shifted_windows_gradient": (
        jax.grad(shifted_windows),
        ([windowed, windowed], ("f16", (3, 16, 24, 48)), ("f16", (3, 16, 24, 48))),
    ),
    "integer_layers": (
        integer_layers,
        ([whole_layer] * 2, [("s8", (256,))] * 2, ("s8", (7, 60, 72))),
    ),
    "narrow_wire_step": (
        narrow_wire_step,
        (wired, kept_back, ("f32", (5, 40, 30)), ("f32", (5, 40, 7))),
        {"donate": (0, 1)},
    ),
    "sorted_slices_gradient": (
        jax.grad(sorted_slices, argnums=(0, 1), has_aux=True),
        (
            (("f32", (6, 50)), ("f32", (50, 6))),
            ("f32", (6, 37)),
            ("f32", (210, 6)),
            ("f32", (160, 6)),
        ),
    ),
    "aligned_pairs_gradient": (
        jax.value_and_grad(aligned_pairs),
        (("f32", (14, 20)), ("f32", (9, 33, 14)), ("f32", (9, 41, 14))),
    ),
    "chirped_radar": (chirped_radar, (("c64", (6, 48, 320)), ("c64", (70,)))),
    "lens_stack_gradient": (
        jax.value_and_grad(lens_stack, has_aux=True),
        (("f32", (4, 56, 56)), ("f32", (5, 30, 30)), ("s32", (5,))),
    ),
    "paged_cache_step": (
        paged_cache_step,
        ((paged, paged), stacked, ("bf16", (7, 192)), ("s32", (7, 6)), ("s32", (7,))),
        {"donate": (0,)},
    ),
    "grown_trees": (grown_trees, (("u8", (650, 13)), ("f32", (650,)), ("f32", ()))),
    "hung_cloth": (hung_cloth, (cloth, cloth, ("pred", (22, 30, 1)))),
    "memory_tape_gradient": (
        jax.value_and_grad(memory_tape, argnums=(0, 1)),
        (taped, ("f32", (26, 12)), ("f32", (6, 15, 9)), ("f32", (6, 15, 8))),
    ),
    "matched_boxes_gradient": (
        jax.value_and_grad(matched_boxes, has_aux=True),
        (
            (("f32", (36, 6)), ("f32", (36, 4))),
            ("f32", (270, 4)),
            ("f32", (4, 270, 36)),
            ("f32", (4, 11, 4)),
            ("s32", (4, 11)),
            ("pred", (4, 11)),
        ),
    ),
    "embedded_clicks_step": (
        embedded_clicks_step,
        (
            [("f16", (777, 16))] * 3,
            [("f32", (777,))] * 3,
            clicks,
            named,
            ("f32", (90, 13)),
            ("f32", (90,)),
        ),
        {"donate": (0, 1, 2)},
    ),
    "folded_pairs_gradient": (
        jax.grad(folded_pairs),
        (folded, ("bf16", (28, 28, 40)), ("pred", (28,)), ("s32", (28, 28))),
    ),
    "halted_thinking": (halted_thinking, (thinker, ("f32", (31, 84)))),
    "two_eyes_gradient": (
        jax.value_and_grad(two_eyes, has_aux=True),
        (eyes, ("f32", (2, 3, 28, 44)), ("f32", (2, 3, 28, 44))),
    ),
    "hashed_field_gradient": (
        jax.value_and_grad(hashed_field, argnums=(0, 1)),
        (
            ("f16", (5, 1024, 2)),
            (("f16", (10, 36)), ("f16", (36, 3))),
            ("f32", (230, 3)),
            ("f32", (230, 3)),
        ),
    ),
    "featured_prefixes_gradient": (
        jax.value_and_grad(featured_prefixes),
        (prefixes, ("f32", (22, 12)), ("f32", (3, 35, 60)), ("f32", (3, 35, 60))),
    ),
}
