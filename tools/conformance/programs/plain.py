"""Programs of papers and benchmarks in plain jax, for releases from 0.4.36 to 0.12."""

import jax
import jax.numpy as jnp
from jax import lax

KEY = jax.ShapeDtypeStruct((2,), "uint32")


def shape(*dimensions, dtype="float32"):
    return jax.ShapeDtypeStruct(dimensions, dtype)


def half(*dimensions):
    return shape(*dimensions, dtype="bfloat16")


def integers(*dimensions):
    return shape(*dimensions, dtype="int32")


def gradient(apply, *arguments):
    def loss(trained, *values):
        return jnp.square(apply(trained, *values).astype("float32")).mean()

    return jax.value_and_grad(loss), arguments


def operator(weights, field):
    """A layer of a Fourier neural operator (Li et al. 2020)."""
    spectrum = jnp.fft.rfft2(field, axes=(1, 2))
    kernel = lax.complex(weights["real"], weights["imaginary"])
    mixed = jnp.einsum("bxyi,xyio->bxyo", spectrum[:, :6, :6], kernel)
    padded = jnp.zeros(spectrum.shape, spectrum.dtype).at[:, :6, :6].set(mixed)
    return jax.nn.gelu(jnp.fft.irfft2(padded, field.shape[1:3], (1, 2)) + field @ weights["skip"])


OPERATOR = {"real": shape(6, 6, 5, 5), "imaginary": shape(6, 6, 5, 5), "skip": shape(5, 5)}


def selective(weights, x):
    """Mamba's selective scan (Gu, Dao 2023)."""
    steps = jax.nn.softplus(x @ weights["step"])
    entered, read = jnp.split(x @ weights["gates"], 2, axis=-1)
    decays = jnp.exp(-steps[..., None] * jnp.exp(weights["log"]))
    inputs = (steps * x)[..., None] * entered[..., None, :]

    def joined(left, right):
        return left[0] * right[0], right[0] * left[1] + right[1]

    states = lax.associative_scan(joined, (decays, inputs), axis=1)[1]
    return jnp.einsum("blds,bls->bld", states, read) * jax.nn.silu(x)


SELECTIVE = {"step": shape(12, 12), "gates": shape(12, 8), "log": shape(12, 4)}


def biased(weights, x):
    """Causal attention with ALiBi (Press et al. 2022) and grouped queries."""
    length = x.shape[1]
    queries = (x @ weights["q"]).reshape(2, length, 2, 4, 16)
    keys, values = jnp.split((x @ weights["kv"]).reshape(2, length, 2, 32), 2, axis=-1)
    scores = jnp.einsum("bqghd,bkgd->bghqk", queries, keys).astype("float32") / 4
    distance = jnp.arange(length)[None] - jnp.arange(length)[:, None]
    slopes = 2.0 ** -jnp.arange(1, 9).reshape(2, 4, 1, 1)
    scores = jnp.where(distance > 0, -1e9, scores + slopes * distance)
    scores = jax.nn.softmax(scores).astype("bfloat16")
    return jnp.einsum("bghqk,bkgd->bqghd", scores, values).reshape(x.shape) @ weights["o"]


BIASED = {"q": half(128, 128), "kv": half(128, 64), "o": half(128, 128)}


def kernelized(queries, keys, values, projection):
    """Performer's positive features, causal (Choromanski et al. 2020)."""

    def features(x):
        square = jnp.square(x).sum(-1, keepdims=True) / 2
        logits = x @ projection
        return jnp.exp(logits - square - logits.max(-1, keepdims=True)) + 1e-3

    queries, keys = features(queries), features(keys)
    sums = jnp.cumsum(jnp.einsum("bhlf,bhld->lbhfd", keys, values), 0)
    normal = jnp.einsum("bhlf,bhlf->bhl", queries, jnp.cumsum(keys, 2))
    return jnp.einsum("bhlf,lbhfd->bhld", queries, sums) / normal[..., None]


def deformed(weights, image):
    """A deformable convolution (Dai et al. 2017)."""
    offsets = lax.conv_general_dilated(
        image, weights["offset"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    grid = jnp.stack(jnp.meshgrid(jnp.arange(14), jnp.arange(14), indexing="ij"), -1)
    places = jnp.clip(grid + offsets, 0, 12.99)
    corner = jnp.floor(places).astype("int32")
    y, x = jnp.moveaxis(places - corner, -1, 0)[..., None]
    batch = jnp.arange(2)[:, None, None]

    def at(down, right):
        return image[batch, corner[..., 0] + down, corner[..., 1] + right]

    top = at(0, 0) * (1 - x) + at(0, 1) * x
    bottom = at(1, 0) * (1 - x) + at(1, 1) * x
    return (top * (1 - y) + bottom * y) @ weights["kernel"]


def next_block(weights, image):
    """A block of ConvNeXt (Liu et al. 2022)."""
    x = lax.conv_general_dilated(
        image, weights["depth"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=16,
    ).astype("float32")  # fmt: skip
    x = (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)
    x = (x * weights["scale"]).astype("bfloat16")
    return image + jax.nn.gelu(x @ weights["up"]) @ weights["down"]


NEXT_BLOCK = {
    "depth": half(7, 7, 1, 16), "scale": shape(16), "up": half(16, 64), "down": half(64, 16),
}  # fmt: skip


def waves(weights, signal):
    """WaveNet's gated convolutions (van den Oord et al. 2016)."""
    skips = 0.0
    for layer, dilation in enumerate((1, 2, 4)):
        mixed = lax.conv_general_dilated(
            signal, weights["kernel"][layer], (1,), ((dilation, 0),), rhs_dilation=(dilation,),
            dimension_numbers=("NWC", "WIO", "NWC"),
        )  # fmt: skip
        filtered, gate = jnp.split(mixed, 2, axis=-1)
        gated = jnp.tanh(filtered) * jax.nn.sigmoid(gate)
        skips = skips + gated @ weights["skip"][layer]
        signal = signal + gated
    return jax.nn.relu(skips)


def lattice(cells):
    """Ten steps of a lattice Boltzmann method with nine velocities."""
    x = jnp.array([0, 1, 0, -1, 0, 1, -1, -1, 1])
    y = jnp.array([0, 0, 1, 0, -1, 1, 1, -1, -1])
    weight = jnp.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4)

    def step(_, cells):
        density = cells.sum(-1)
        u, v = (cells * x).sum(-1) / density, (cells * y).sum(-1) / density
        along = 3 * (u[..., None] * x + v[..., None] * y)
        square = 1.5 * (u**2 + v**2)[..., None]
        balance = density[..., None] * weight * (1 + along + along**2 / 2 - square)
        cells = cells + (balance - cells) / 0.6
        moved = [
            jnp.roll(cells[..., i], (int(dx), int(dy)), (0, 1))
            for i, (dx, dy) in enumerate(
                ((0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1))
            )
        ]
        return jnp.stack(moved, -1)

    return lax.fori_loop(0, 10, step, cells)


def sparse_solver(values, rows, columns, b):
    """Conjugate gradients with a sparse matrix (NPB CG)."""

    def times(x):
        return jax.ops.segment_sum(values * x[columns], rows, 300) + 20 * x

    def step(state, _):
        x, r, p, square = state
        q = times(p)
        alpha = square / (p @ q)
        x, r = x + alpha * p, r - alpha * q
        new = r @ r
        return (x, r, r + new / square * p, new), jnp.sqrt(new)

    return lax.scan(step, (jnp.zeros(300), b, b, b @ b), None, 8)


def pairs(key):
    """Gaussian pairs by the polar method, counted by annuli (NPB EP)."""
    x, y = jax.random.uniform(key, (2, 5000), minval=-1, maxval=1)
    t = x**2 + y**2
    factor = jnp.where(t <= 1, jnp.sqrt(-2 * jnp.log(t) / t), 0)
    rings = jnp.maximum(jnp.abs(x * factor), jnp.abs(y * factor)).astype("int32")
    counts = jnp.zeros(10, "int32").at[rings].add((t <= 1).astype("int32"))
    return (x * factor).sum(), (y * factor).sum(), counts


def buckets(keys, values):
    """Keys ranked by counting (NPB IS), and sorted with two operands."""
    counts = jnp.bincount(keys >> 4, length=64)
    starts = jnp.cumsum(counts) - counts
    ranks = starts[keys >> 4] + lax.sort_key_val(keys, jnp.arange(800))[1]
    moved = jnp.zeros(800).at[ranks % 800].set(values, mode="drop")
    return lax.sort((keys, values, -values), num_keys=2), moved, jnp.sort(values)[::-1]


def cycle(field, source):
    """Two levels of a multigrid cycle in three dimensions (NPB MG)."""

    def residual(u, v):
        padded = jnp.pad(u, 1, mode="wrap")
        faces = (
            padded[2:, 1:-1, 1:-1] + padded[:-2, 1:-1, 1:-1] + padded[1:-1, 2:, 1:-1]
            + padded[1:-1, :-2, 1:-1] + padded[1:-1, 1:-1, 2:] + padded[1:-1, 1:-1, :-2]
        )  # fmt: skip
        return v - (faces / 6 - u)

    def level(u, v, depth):
        r = residual(u, v)
        if depth:
            coarse = (r[::2, ::2, ::2] + r[1::2, 1::2, 1::2]) / 2
            z = level(jnp.zeros_like(coarse), coarse, depth - 1)
            for axis in range(3):
                z = jnp.repeat(z, 2, axis)
            u = u + z
        return u - 0.4 * residual(u, v)

    u = level(field, source, 2)
    return u, jnp.sqrt((residual(u, source) ** 2).mean()), jnp.abs(u).max()


def correlation(data, a, u, v, y, z):
    """PolyBench's correlation, covariance and gemver."""
    centred = data - data.mean(0)
    deviation = jnp.sqrt((centred**2).mean(0))
    deviation = jnp.where(deviation <= 0.1, 1.0, deviation)
    scaled = centred / (jnp.sqrt(60.0) * deviation)
    b = a + jnp.outer(u, v) + jnp.outer(v, u)
    x = 1.2 * (b.T @ y) + z
    return scaled.T @ scaled, centred.T @ centred / 59, 1.5 * (b @ x)


def speckle(image):
    """A step of anisotropic diffusion by indices of neighbours (Rodinia SRAD)."""
    rows = jnp.arange(40)
    up, down = jnp.maximum(rows - 1, 0), jnp.minimum(rows + 1, 39)
    north, south = image[up] - image, image[down] - image
    west, east = image[:, up] - image, image[:, down] - image
    square = (north**2 + south**2 + west**2 + east**2) / image**2
    laplace = (north + south + west + east) / image
    q = (square / 2 - laplace**2 / 16) / (1 + laplace / 4) ** 2
    limit = image.var() / image.mean() ** 2
    c = jnp.clip(1 / (1 + (q - limit) / (limit * (1 + limit))), 0, 1)
    return image + 0.1 * (c[down] * south + c * north + c[:, down] * east + c * west)


def path(walls):
    """The cheapest way down a grid (Rodinia pathfinder)."""

    def step(costs, row):
        padded = jnp.pad(costs, 1, constant_values=2**30)
        least = jnp.minimum(jnp.minimum(padded[:-2], padded[1:-1]), padded[2:])
        return row + least, jnp.argmin(costs)

    return lax.scan(step, walls[0], walls[1:])


def weighted_keys(weights, x):
    """RWKV's recurrence (Peng et al. 2023)."""
    keys, values, gates = jnp.split(x @ weights["kvr"], 3, axis=-1)

    def step(state, inputs):
        top, bottom, largest = state
        key, value = inputs
        new = jnp.maximum(largest, weights["first"] + key)
        old, now = jnp.exp(largest - new), jnp.exp(weights["first"] + key - new)
        output = (old * top + now * value) / (old * bottom + now)
        new = jnp.maximum(largest - weights["decay"], key)
        old, now = jnp.exp(largest - weights["decay"] - new), jnp.exp(key - new)
        return (old * top + now * value, old * bottom + now, new), output

    start = jnp.zeros((4, 24))
    inputs = keys.astype("float32"), values.astype("float32")
    outputs = lax.scan(step, (start, start, start - 1e30), inputs)[1].astype("bfloat16")
    return jax.nn.sigmoid(gates) * outputs


WEIGHTED_KEYS = {"kvr": half(24, 72), "first": shape(24), "decay": shape(24)}


def outliers(x, kernel, scales):
    """A product in 8 bits with columns of outliers in 16 (Dettmers et al. 2022)."""
    large = jnp.abs(x).max(0) > 6
    regular = jnp.where(large, 0, x)
    largest = jnp.abs(regular).max(-1, keepdims=True).astype("float32") / 127 + 1e-8
    rounded = jnp.round(regular / largest).astype("int8")
    product = lax.dot_general(
        rounded, kernel, (((1,), (0,)), ((), ())), preferred_element_type="int32"
    )
    weights = kernel.astype("bfloat16") * scales.astype("bfloat16")
    precise = jnp.where(large, x, 0) @ weights
    return (product.astype("float32") * largest * scales).astype("bfloat16") + precise


def orthogonal(weights, gradients, momentum):
    """A step of Muon (Jordan 2024)."""

    def update(weight, gradient, moment):
        moment = 0.95 * moment + gradient
        x = (gradient + 0.95 * moment).astype("bfloat16")
        x = x / (jnp.linalg.norm(x.astype("float32")) + 1e-7).astype("bfloat16")
        for _ in range(3):
            a = x @ x.T
            x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
        return weight * (1 - 1e-4) - 0.02 * x.astype("float32"), moment

    return jax.tree.map(update, weights, gradients, momentum)


def sampler(key, rates, logits):
    """Draws of five distributions."""
    keys = jax.random.split(key, 5)
    return (
        jax.random.gamma(keys[0], rates),
        jax.random.poisson(keys[1], rates * 5, (60,)),
        jax.random.categorical(keys[2], logits, axis=-1),
        jax.random.permutation(keys[3], logits, axis=1, independent=True),
        jax.random.laplace(keys[4], (33,)).astype("bfloat16"),
    )


def merges(tokens):
    """Byte pairs merged, the most frequent first (Sennrich et al. 2016)."""

    def merge(state):
        tokens, _, number = state
        pairs = tokens[:-1] * 512 + tokens[1:]
        ordered = jnp.sort(pairs)
        starts = jnp.searchsorted(ordered, ordered)
        peak = ordered[jnp.argmax(jnp.arange(ordered.size) - starts)]
        matches = jnp.append(pairs == peak, False)
        merged = jnp.where(matches, 256 + number, tokens)
        remaining = ~jnp.roll(matches, 1)
        places = jnp.where(remaining, jnp.cumsum(remaining) - 1, tokens.size)
        return (
            jnp.zeros_like(tokens).at[places].set(merged, mode="drop"),
            remaining.sum(),
            number + 1,
        )

    return lax.while_loop(lambda state: state[2] < 20, merge, (tokens, tokens.size, 0))


def cepstrum(signal, filters):
    """Cepstral coefficients on the mel scale."""
    frames = signal[jnp.arange(20)[:, None] * 60 + jnp.arange(128)]
    window = 0.5 - 0.5 * jnp.cos(2 * jnp.pi * jnp.arange(128) / 128)
    power = jnp.abs(jnp.fft.rfft(frames * window)) ** 2
    mel = jnp.log(power @ filters + 1e-6)
    angles = jnp.pi / 24 * (jnp.arange(24) + 0.5)[:, None] * jnp.arange(13)
    return mel @ jnp.cos(angles)


def hinge(logits, labels):
    """The Lovász hinge (Berman et al. 2018)."""
    signs = 2.0 * labels - 1
    errors = 1 - logits * signs
    order = jnp.argsort(-errors)
    ordered = labels[order].astype("float32")
    intersection = ordered.sum() - jnp.cumsum(ordered)
    jaccard = 1 - intersection / (ordered.sum() + jnp.cumsum(1 - ordered))
    steps = jnp.concatenate([jaccard[:1], jnp.diff(jaccard)])
    return jax.nn.relu(errors[order]) * steps


def cached(x, keys, values, scales, position, weights):
    """A step of decoding with keys and values in 8 bits."""
    query, key, value = jnp.split((x @ weights).reshape(3, 4, 96), 3, axis=-1)
    scale = jnp.abs(key).max(-1, keepdims=True) / 127

    def write(cache, new):
        return lax.dynamic_update_slice(
            cache, new[:, :, None].astype(cache.dtype), (0, 0, position, 0)
        )

    keys = write(keys, jnp.round(key / scale))
    values, scales = write(values, value), write(scales, scale)
    read = keys.astype("bfloat16") * scales
    scores = jnp.einsum("bhd,bhkd->bhk", query, read).astype("float32")
    scores = jnp.where(jnp.arange(64) <= position, scores, -jnp.inf)
    mixed = jnp.einsum("bhk,bhkd->bhd", jax.nn.softmax(scores).astype("bfloat16"), values)
    return mixed, keys, values, scales


def pooled_windows(image, kernel):
    """Pools with padding, and a local response norm."""
    image = image * lax.rsqrt(
        2 + lax.reduce_window(image**2, 0.0, lax.add, (1, 1, 1, 5), (1, 1, 1, 1), "SAME")
    )
    peak = lax.reduce_window(
        image, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0))
    )
    mean = lax.reduce_window(peak, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4
    return jnp.tanh(mean @ kernel)


def codes(encoded, book, counts, sums):
    """A codebook by straight-through gradients and moving averages (van den Oord et al. 2017)."""

    def loss(encoded):
        square = (encoded**2).sum(-1, keepdims=True) + (book**2).sum(-1) - 2 * encoded @ book.T
        indices = jnp.argmin(square, -1)
        quantized = book[indices]
        passed = encoded + lax.stop_gradient(quantized - encoded)
        cost = ((quantized - encoded) ** 2).mean() + jnp.sin(passed).mean()
        return cost, indices

    (cost, indices), cotangent = jax.value_and_grad(loss, has_aux=True)(encoded)
    hits = jax.ops.segment_sum(jnp.ones(200), indices, 32)
    counts = 0.99 * counts + 0.01 * hits
    sums = 0.99 * sums + 0.01 * jax.ops.segment_sum(encoded, indices, 32)
    return cost, cotangent, counts, sums, sums / (counts[:, None] + 1e-5)


def particles(places, speeds):
    """A step of smoothed particle hydrodynamics."""

    def density(places):
        square = ((places[:, None] - places) ** 2).sum(-1)
        return jnp.where(square < 1, (1 - square) ** 3, 0).sum(1)

    def energy(places):
        return (jnp.maximum(density(places) / 4, 1) ** 7 - 1).sum()

    forces = -jax.grad(energy)(places) / density(places)[:, None]
    speeds = speeds + 0.01 * (forces + jnp.array([0, 0, -9.8]))
    moved = places + 0.01 * speeds
    outside = jnp.abs(moved) > 5
    return jnp.clip(moved, -5, 5), jnp.where(outside, -0.5 * speeds, speeds)


def chunks(weights, hidden, labels):
    """A cross entropy by chunks of tokens, with the square of the normalizer."""

    @jax.checkpoint
    def chunk(total, inputs):
        x, label = inputs
        logits = (x @ weights).astype("float32")
        normal = jax.nn.logsumexp(logits, -1)
        right = jnp.take_along_axis(logits, label[:, None], 1)[:, 0]
        return total + (normal - right + 1e-4 * normal**2).sum(), None

    return lax.scan(chunk, 0.0, (hidden.reshape(4, 32, 48), labels.reshape(4, 32)))[0]


def skip(weights, image):
    """A level of a U-Net (Ronneberger et al. 2015) with group norm."""
    numbers = ("NHWC", "HWIO", "NHWC")

    def normal(x):
        groups = x.astype("float32").reshape(*x.shape[:-1], 4, -1)
        mean, variance = (f(groups, (1, 2, 4), keepdims=True) for f in (jnp.mean, jnp.var))
        return ((groups - mean) * lax.rsqrt(variance + 1e-5)).reshape(x.shape).astype(x.dtype)

    down = lax.conv_general_dilated(
        image, weights["down"], (2, 2), "SAME", dimension_numbers=numbers
    )
    down = jax.nn.silu(normal(down))
    up = lax.conv_transpose(down, weights["up"], (2, 2), "SAME", dimension_numbers=numbers)
    joined = jnp.concatenate([image, jax.nn.silu(normal(up))], -1)
    return lax.conv_general_dilated(
        joined, weights["out"], (1, 1), "SAME", dimension_numbers=numbers
    )


programs = {
    "operator": gradient(operator, OPERATOR, shape(2, 16, 16, 5)),
    "selective": gradient(selective, SELECTIVE, shape(2, 8, 12)),
    "biased": gradient(biased, BIASED, half(2, 32, 128)),
    "kernelized": (
        kernelized,
        (half(2, 3, 24, 16), half(2, 3, 24, 16), half(2, 3, 24, 16), half(16, 20)),
    ),
    "deformed": gradient(
        deformed, {"offset": shape(3, 3, 6, 2), "kernel": shape(6, 9)}, shape(2, 14, 14, 6)
    ),
    "next_block": gradient(next_block, NEXT_BLOCK, half(2, 12, 12, 16)),
    "waves": gradient(
        waves, {"kernel": shape(3, 2, 10, 20), "skip": shape(3, 10, 14)}, shape(2, 50, 10)
    ),
    "lattice": (lattice, (shape(24, 18, 9),)),
    "sparse_solver": (
        sparse_solver,
        (shape(1500), integers(1500), integers(1500), shape(300)),
    ),
    "pairs": (pairs, (KEY,)),
    "buckets": (buckets, (integers(800), shape(800))),
    "cycle": (cycle, (shape(16, 16, 16), shape(16, 16, 16))),
    "correlation": (
        correlation,
        (shape(60, 45), shape(50, 50), shape(50), shape(50), shape(50), shape(50)),
    ),
    "speckle": gradient(speckle, shape(40, 40)),
    "path": (path, (integers(30, 70),)),
    "weighted_keys": gradient(weighted_keys, WEIGHTED_KEYS, half(15, 4, 24)),
    "outliers": (outliers, (half(40, 96), shape(96, 64, dtype="int8"), shape(64))),
    "orthogonal": (
        orthogonal,
        ({"a": shape(32, 48), "b": shape(40, 40)},) * 3,
    ),
    "sampler": (sampler, (KEY, shape(60), shape(12, 20))),
    "merges": (merges, (integers(300),)),
    "cepstrum": gradient(cepstrum, shape(1300), shape(65, 24)),
    "hinge": gradient(hinge, shape(700), integers(700)),
    "cached": (
        cached,
        (
            half(3, 40),
            shape(3, 4, 64, 32, dtype="int8"),
            half(3, 4, 64, 32),
            half(3, 4, 64, 1),
            integers(),
            half(40, 384),
        ),
    ),
    "pooled_windows": gradient(pooled_windows, shape(2, 17, 17, 8), shape(8, 6)),
    "codes": (codes, (shape(200, 16), shape(32, 16), shape(32), shape(32, 16))),
    "particles": (particles, (shape(70, 3), shape(70, 3))),
    "chunks": (jax.value_and_grad(chunks), (half(48, 210), half(128, 48), integers(128))),
    "skip": gradient(
        skip,
        {"down": half(3, 3, 8, 16), "up": half(3, 3, 16, 8), "out": half(3, 3, 16, 8)},
        half(2, 12, 12, 8),
    ),
}
