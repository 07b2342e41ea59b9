"""Training steps whose modules have 10,000 instructions and more.

Plain JAX, with every layer written out, as frameworks do without a scan over layers.
"""

import jax
import jax.numpy as jnp

KEY = jax.ShapeDtypeStruct((2,), "uint32")


def shape(*dimensions, dtype="float32"):
    return jax.ShapeDtypeStruct(dimensions, dtype)


def cross_entropy(logits, labels):
    own = jnp.take_along_axis(logits, labels[..., None], -1)[..., 0]
    return (jax.nn.logsumexp(logits, axis=-1) - own).mean()


def adam(weights, change, state):
    """Weights and moments after one step of AdamW."""
    count = state["count"] + 1
    first = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, state["first"], change)
    second = jax.tree.map(lambda old, new: 0.99 * old + 0.01 * new**2, state["second"], change)

    def updated(weight, mean, square):
        mean, square = mean / (1 - 0.9**count), square / (1 - 0.99**count)
        return weight - 1e-3 * (mean / (jnp.sqrt(square) + 1e-8) + 0.01 * weight)

    weights = jax.tree.map(updated, weights, first, second)
    return weights, {"count": count, "first": first, "second": second}


def adam_state(weights):
    return {"count": shape(), "first": weights, "second": weights}


def training_step(loss):
    """A step that donates its weights and state: the arguments 0 and 1."""

    def step(weights, state, *batch):
        value, change = jax.value_and_grad(loss)(weights, *batch)
        return *adam(weights, change, state), value

    return step


def program(loss, weights, *batch):
    arguments = (weights, adam_state(weights), *batch)
    return training_step(loss), arguments, {"donate": (0, 1)}


# A transformer


def normal(hidden, weights):
    mean = hidden.mean(-1, keepdims=True)
    variance = jnp.square(hidden - mean).mean(-1, keepdims=True)
    return (hidden - mean) * jax.lax.rsqrt(variance + 1e-5) * weights["scale"] + weights["shift"]


def attention(hidden, weights, heads, *, causal):
    batch, time, width = hidden.shape
    query, key, value = (
        (hidden @ weights[name] + weights[f"{name}_bias"]).reshape(batch, time, heads, -1)
        for name in ("query", "key", "value")
    )
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) * (width / heads) ** -0.5
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones((time, time), bool)), scores, -1e30)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), value)
    return mixed.reshape(hidden.shape) @ weights["out"] + weights["out_bias"]


def perceptron(hidden, weights):
    wide = jax.nn.gelu(hidden @ weights["up"] + weights["up_bias"])
    return wide @ weights["down"] + weights["down_bias"]


def transformer_loss(weights, tokens):
    hidden = weights["table"][tokens[:, :-1]] + weights["places"]
    for layer in weights["layers"]:
        inner = normal(hidden, layer["before"])
        hidden = hidden + attention(inner, layer["attention"], 8, causal=True)
        hidden = hidden + perceptron(normal(hidden, layer["after"]), layer["perceptron"])
    logits = normal(hidden, weights["last"]) @ weights["table"].T
    return cross_entropy(logits, tokens[:, 1:])


def normal_weights(width):
    return {"scale": shape(width), "shift": shape(width)}


def attention_weights(width):
    names = ("query", "key", "value", "out")
    return {name: shape(width, width) for name in names} | {
        f"{name}_bias": shape(width) for name in names
    }


def perceptron_weights(width):
    return {
        "up": shape(width, 4 * width),
        "up_bias": shape(4 * width),
        "down": shape(4 * width, width),
        "down_bias": shape(width),
    }


def transformer(layers, width=512):
    layer = {
        "before": normal_weights(width),
        "attention": attention_weights(width),
        "after": normal_weights(width),
        "perceptron": perceptron_weights(width),
    }
    weights = {
        "table": shape(8192, width),
        "places": shape(256, width),
        "layers": [layer] * layers,
        "last": normal_weights(width),
    }
    return program(transformer_loss, weights, shape(8, 257, dtype="int32"))


# A transformer with a mixture of experts, in half precision


def rms(hidden, scale):
    wide = hidden.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + 1e-6) * scale).astype(
        hidden.dtype
    )


def turned(heads):
    """Heads [batch, time, heads, size] with rotary places."""
    size = heads.shape[-1] // 2
    angles = jnp.arange(heads.shape[1])[:, None] * 1e4 ** (-jnp.arange(size) / size)
    cosine, sine = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    left, right = jnp.split(heads.astype(jnp.float32), 2, axis=-1)
    both = left * cosine - right * sine, right * cosine + left * sine
    return jnp.concatenate(both, axis=-1).astype(heads.dtype)


def experts(hidden, weights):
    """The mixture of two of all experts for each token, and how evenly they are used."""
    gates = jax.nn.softmax((hidden @ weights["gate"]).astype(jnp.float32))
    shares, chosen = jax.lax.top_k(gates, 2)
    shares = shares / shares.sum(-1, keepdims=True)
    ways = jax.nn.one_hot(chosen, gates.shape[-1])
    mask = jnp.einsum("btk,btke->bte", shares, ways).astype(hidden.dtype)
    inner = jnp.einsum("btd,edf->betf", hidden, weights["left"])
    inner = jax.nn.silu(inner) * jnp.einsum("btd,edf->betf", hidden, weights["right"])
    made = jnp.einsum("betf,efd->betd", inner, weights["down"])
    evenness = (ways.sum(2).mean((0, 1)) * gates.mean((0, 1))).sum()
    return jnp.einsum("bte,betd->btd", mask, made), evenness


def mixture_loss(weights, tokens):
    hidden = weights["table"][tokens[:, :-1]].astype(jnp.bfloat16)
    batch, time, width = hidden.shape
    causal = jnp.tril(jnp.ones((time, time), bool))
    evenness = 0.0
    for layer in weights["layers"]:
        layer = jax.tree.map(lambda part: part.astype(jnp.bfloat16), layer)
        inner = rms(hidden, layer["before"])
        query, key, value = (
            (inner @ layer[name]).reshape(batch, time, 8, -1) for name in ("query", "key", "value")
        )
        scores = jnp.einsum("bqhd,bkhd->bhqk", turned(query), turned(key)).astype(jnp.float32)
        shares = jax.nn.softmax(jnp.where(causal, scores / (width / 8) ** 0.5, -1e30))
        mixed = jnp.einsum("bhqk,bkhd->bqhd", shares.astype(hidden.dtype), value)
        hidden = hidden + mixed.reshape(hidden.shape) @ layer["out"]
        made, uneven = experts(rms(hidden, layer["after"]), layer["experts"])
        hidden, evenness = hidden + made, evenness + uneven
    logits = rms(hidden, weights["last"]) @ weights["table"].T.astype(jnp.bfloat16)
    return cross_entropy(logits.astype(jnp.float32), tokens[:, 1:]) + 0.01 * evenness


def mixture(layers, width=512, count=8):
    layer = {
        "before": shape(width),
        **{name: shape(width, width) for name in ("query", "key", "value", "out")},
        "after": shape(width),
        "experts": {
            "gate": shape(width, count),
            "left": shape(count, width, 2 * width),
            "right": shape(count, width, 2 * width),
            "down": shape(count, 2 * width, width),
        },
    }
    weights = {"table": shape(8192, width), "layers": [layer] * layers, "last": shape(width)}
    return program(mixture_loss, weights, shape(4, 257, dtype="int32"))


# Images


def convolution(images, kernel, stride=1):
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        images, kernel, (stride, stride), "SAME", dimension_numbers=numbers
    )


def batch_normal(images, weights):
    mean = images.mean((0, 1, 2))
    variance = jnp.square(images).mean((0, 1, 2)) - jnp.square(mean)
    return (images - mean) * jax.lax.rsqrt(variance + 1e-5) * weights["scale"] + weights["shift"]


def bottleneck(images, weights, stride):
    hidden = jax.nn.relu(batch_normal(convolution(images, weights["narrow"]), weights["first"]))
    hidden = convolution(hidden, weights["middle"], stride)
    hidden = jax.nn.relu(batch_normal(hidden, weights["second"]))
    hidden = batch_normal(convolution(hidden, weights["wide"]), weights["third"])
    if "past" in weights:
        images = batch_normal(convolution(images, weights["past"], stride), weights["fourth"])
    return jax.nn.relu(images + hidden)


def resnet_loss(weights, images, labels):
    hidden = jax.nn.relu(batch_normal(convolution(images, weights["stem"], 2), weights["first"]))
    window = (1, 3, 3, 1), (1, 2, 2, 1), "SAME"
    hidden = jax.lax.reduce_window(hidden, -jnp.inf, jax.lax.max, *window)
    for stage, blocks in enumerate(weights["stages"]):
        for block, own in enumerate(blocks):
            hidden = bottleneck(hidden, own, 2 if stage and not block else 1)
    logits = hidden.mean((1, 2)) @ weights["head"] + weights["head_bias"]
    return cross_entropy(logits, labels)


def bottleneck_weights(before, width, *, is_first):
    weights = {
        "narrow": shape(1, 1, before, width),
        "first": normal_weights(width),
        "middle": shape(3, 3, width, width),
        "second": normal_weights(width),
        "wide": shape(1, 1, width, 4 * width),
        "third": normal_weights(4 * width),
    }
    if is_first:
        weights |= {"past": shape(1, 1, before, 4 * width), "fourth": normal_weights(4 * width)}
    return weights


def resnet(*depths):
    stages, before = [], 64
    for stage, depth in enumerate(depths):
        blocks = []
        for block in range(depth):
            blocks.append(bottleneck_weights(before, 64 * 2**stage, is_first=not block))
            before = 256 * 2**stage
        stages.append(blocks)
    weights = {
        "stem": shape(7, 7, 3, 64),
        "first": normal_weights(64),
        "stages": stages,
        "head": shape(2048, 1000),
        "head_bias": shape(1000),
    }
    return program(resnet_loss, weights, shape(16, 224, 224, 3), shape(16, dtype="int32"))


def group_normal(images, weights):
    batch, height, width, channels = images.shape
    groups = images.reshape(batch, height, width, 8, channels // 8)
    mean = groups.mean((1, 2, 4), keepdims=True)
    variance = jnp.square(groups - mean).mean((1, 2, 4), keepdims=True)
    made = ((groups - mean) * jax.lax.rsqrt(variance + 1e-5)).reshape(images.shape)
    return made * weights["scale"] + weights["shift"]


def residual(images, time, weights):
    hidden = convolution(jax.nn.silu(group_normal(images, weights["before"])), weights["first"])
    hidden = hidden + (jax.nn.silu(time) @ weights["time"] + weights["time_bias"])[:, None, None]
    hidden = convolution(jax.nn.silu(group_normal(hidden, weights["after"])), weights["second"])
    if "past" in weights:
        images = convolution(images, weights["past"])
    return images + hidden


def look_around(images, weights):
    batch, height, width, channels = images.shape
    flat = group_normal(images, weights["before"]).reshape(batch, height * width, channels)
    return images + attention(flat, weights["attention"], 4, causal=False).reshape(images.shape)


def time_features(times, width):
    angles = times[:, None] * jnp.exp(-jnp.arange(width // 2) * 0.3)
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1)


def unet(weights, images, times):
    time = perceptron(time_features(times, 128), weights["time"])
    hidden = convolution(images, weights["in"])
    kept = [hidden]
    for level in weights["down"]:
        for block in level["blocks"]:
            hidden = residual(hidden, time, block["residual"])
            if "around" in block:
                hidden = look_around(hidden, block["around"])
            kept.append(hidden)
        if "smaller" in level:
            hidden = convolution(hidden, level["smaller"], 2)
            kept.append(hidden)
    hidden = residual(hidden, time, weights["middle"]["first"])
    hidden = look_around(hidden, weights["middle"]["around"])
    hidden = residual(hidden, time, weights["middle"]["second"])
    for level in weights["up"]:
        for block in level["blocks"]:
            hidden = jnp.concatenate([hidden, kept.pop()], -1)
            hidden = residual(hidden, time, block["residual"])
            if "around" in block:
                hidden = look_around(hidden, block["around"])
        if "larger" in level:
            hidden = jnp.repeat(jnp.repeat(hidden, 2, 1), 2, 2)
            hidden = convolution(hidden, level["larger"])
    return convolution(jax.nn.silu(group_normal(hidden, weights["last"])), weights["out"])


def diffusion_loss(weights, images, times, key):
    noise = jax.random.normal(jax.random.wrap_key_data(key), images.shape)
    share = jnp.cos(times * 1.5)[:, None, None, None]
    noisy = share * images + jnp.sqrt(1 - share**2) * noise
    return jnp.square(unet(weights, noisy, times) - noise).mean()


def residual_weights(before, width):
    weights = {
        "before": normal_weights(before),
        "first": shape(3, 3, before, width),
        "time": shape(128, width),
        "time_bias": shape(width),
        "after": normal_weights(width),
        "second": shape(3, 3, width, width),
    }
    if before != width:
        weights["past"] = shape(1, 1, before, width)
    return weights


def around_weights(width):
    return {"before": normal_weights(width), "attention": attention_weights(width)}


def unet_weights(widths, blocks):
    def block(before, width, level):
        own = {"residual": residual_weights(before, width)}
        return own | ({"around": around_weights(width)} if level else {})

    before, kept, down, up = widths[0], [widths[0]], [], []
    for level, width in enumerate(widths):
        made = []
        for _ in range(blocks):
            made.append(block(before, width, level))
            before = width
            kept.append(before)
        down.append({"blocks": made})
        if level < len(widths) - 1:
            down[-1]["smaller"] = shape(3, 3, before, before)
            kept.append(before)
    middle = {
        "first": residual_weights(before, before),
        "around": around_weights(before),
        "second": residual_weights(before, before),
    }
    for level, width in reversed(list(enumerate(widths))):
        made = []
        for _ in range(blocks + 1):
            made.append(block(before + kept.pop(), width, level))
            before = width
        up.append({"blocks": made})
        if level:
            up[-1]["larger"] = shape(3, 3, before, before)
    return {
        "in": shape(3, 3, 3, widths[0]),
        "time": perceptron_weights(128),
        "down": down,
        "middle": middle,
        "up": up,
        "last": normal_weights(before),
        "out": shape(3, 3, before, 3),
    }


def diffusion(*widths, blocks):
    weights = unet_weights(widths, blocks)
    return program(diffusion_loss, weights, shape(8, 64, 64, 3), shape(8), KEY)


# A recurrent network


def recurrent_loss(weights, tokens):
    inputs = weights["table"][tokens[:, :-1]]
    width = inputs.shape[-1]
    states = [(jnp.zeros((inputs.shape[0], width)),) * 2 for _ in weights["layers"]]
    losses = []
    for place in range(inputs.shape[1]):
        hidden = inputs[:, place]
        for number, layer in enumerate(weights["layers"]):
            before, memory = states[number]
            gates = hidden @ layer["in"] + before @ layer["before"] + layer["bias"]
            take, keep, give, new = jnp.split(gates, 4, axis=-1)
            memory = jax.nn.sigmoid(keep) * memory + jax.nn.sigmoid(take) * jnp.tanh(new)
            hidden = jax.nn.sigmoid(give) * jnp.tanh(memory)
            states[number] = hidden, memory
        losses.append(cross_entropy(hidden @ weights["out"], tokens[:, place + 1]))
    return jnp.stack(losses).mean()


def recurrent(layers, steps, width=256):
    layer = {
        "in": shape(width, 4 * width),
        "before": shape(width, 4 * width),
        "bias": shape(4 * width),
    }
    weights = {
        "table": shape(1024, width),
        "layers": [layer] * layers,
        "out": shape(width, 1024),
    }
    return program(recurrent_loss, weights, shape(32, steps + 1, dtype="int32"))


programs = {
    "resnet": resnet(3, 4, 6, 3),
    "transformer": transformer(24),
    "mixture": mixture(14),
    "diffusion": diffusion(64, 128, 256, blocks=2),
    "recurrent": recurrent(2, 60),
}
