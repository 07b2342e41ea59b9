"""Diffusion and flow models: their losses, their sampling steps, their guidance."""

import jax
import jax.numpy as jnp
from jax import lax

NUMBERS = ("NHWC", "HWIO", "NHWC")


def convolution(images, kernel, stride=1):
    return lax.conv_general_dilated(
        images, kernel, (stride, stride), "SAME", dimension_numbers=NUMBERS
    )


def group_norm(images, scale, shift, groups=8):
    batch, height, width, channels = images.shape
    grouped = images.reshape(batch, height, width, groups, channels // groups)
    mean = grouped.mean(axis=(1, 2, 4), keepdims=True)
    variance = grouped.var(axis=(1, 2, 4), keepdims=True)
    normal = ((grouped - mean) * lax.rsqrt(variance + 1e-5)).reshape(images.shape)
    return normal * scale + shift


def time_features(times, width):
    frequencies = jnp.exp(-jnp.log(10000.0) * jnp.arange(width // 2) / (width // 2))
    angles = times[:, None].astype(jnp.float32) * frequencies
    return jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], axis=-1)


def residual(weights, images, times):
    hidden = convolution(jax.nn.silu(group_norm(images, *weights["first_norm"])), weights["first"])
    scale, shift = jnp.split(times @ weights["times"], 2, axis=-1)
    hidden = group_norm(hidden, *weights["second_norm"]) * (1.0 + scale[:, None, None])
    hidden = convolution(jax.nn.silu(hidden + shift[:, None, None]), weights["second"])
    return hidden + images @ weights["skip"]


def denoised(weights, images, times):
    """A small U-Net: one level down, one residual block in the middle, one level up."""
    times = jax.nn.silu(time_features(times, 64) @ weights["times"])
    outer = residual(weights["down"], convolution(images, weights["enter"]), times)
    inner = convolution(outer, weights["shrink"], 2)
    inner = residual(weights["middle"], inner, times)
    grown = jax.image.resize(inner, outer.shape[:3] + inner.shape[3:], "nearest")
    outer = residual(weights["up"], jnp.concatenate([outer, grown], axis=-1), times)
    return convolution(outer, weights["leave"])


def noise_loss(weights, images, key):
    """The loss of predicting the noise, on a cosine schedule."""
    first, second = jax.random.split(key)
    times = jax.random.randint(first, (images.shape[0],), 0, 1000)
    noise = jax.random.normal(second, images.shape)
    signal = jnp.cos((times / 1000 + 0.008) / 1.008 * jnp.pi / 2)[:, None, None, None] ** 2
    noised = jnp.sqrt(signal) * images + jnp.sqrt(1.0 - signal) * noise
    weight = jnp.minimum(signal / (1.0 - signal), 5.0)
    return (weight * jnp.square(denoised(weights, noised, times) - noise)).mean()


def guided_step(weights, images, step):
    """One deterministic step with guidance, and with the extreme values pulled in."""
    betas = jnp.linspace(1e-4, 0.02, 1000)
    signals = jnp.cumprod(1.0 - betas)
    now, after = signals[step], jnp.where(step > 20, signals[step - 20], 1.0)
    times = jnp.full((2 * images.shape[0],), step)
    both = denoised(weights, jnp.concatenate([images, images]), times)
    plain, labelled = jnp.split(both, 2)
    noise = plain + 7.5 * (labelled - plain)
    clean = (images - jnp.sqrt(1.0 - now) * noise) * lax.rsqrt(now)
    limit = jnp.quantile(jnp.abs(clean.reshape(clean.shape[0], -1)), 0.995, axis=1)
    limit = jnp.maximum(limit, 1.0)[:, None, None, None]
    clean = jnp.clip(clean, -limit, limit) / limit
    return jnp.sqrt(after) * clean + jnp.sqrt(1.0 - after) * noise


def ancestral_sampling(layers, points, key):
    """The whole chain of a small model of points, noise drawn in each step."""
    betas = jnp.linspace(1e-4, 0.02, 100)
    signals = jnp.cumprod(1.0 - betas)

    def step(points, slices):
        beta, signal, time, key = slices
        features = time_features(jnp.full(points.shape[:1], time), 32)
        hidden = jnp.concatenate([points, features], axis=-1)
        for weight, bias in layers[:-1]:
            hidden = jax.nn.silu(hidden @ weight + bias)
        noise = hidden @ layers[-1][0] + layers[-1][1]
        mean = (points - beta * lax.rsqrt(1.0 - signal) * noise) * lax.rsqrt(1.0 - beta)
        fresh = jax.random.normal(key, points.shape)
        return mean + jnp.where(time > 0, jnp.sqrt(beta), 0.0) * fresh, mean.std(axis=0)

    slices = (betas, signals, jnp.arange(100), jax.random.split(key, 100))
    return lax.scan(step, points, slices, reverse=True)


def patch_transformer(weights, images, times, labels):
    """A transformer over patches whose norms are set by time and label."""
    batch, height, width, channels = images.shape
    patches = images.reshape(batch, height // 4, 4, width // 4, 4, channels)
    patches = patches.transpose(0, 1, 3, 2, 4, 5).reshape(batch, -1, 16 * channels)
    hidden = patches @ weights["enter"] + weights["positions"]
    asked = time_features(times, 128).astype(hidden.dtype) @ weights["times"]
    asked = jax.nn.silu(asked + weights["labels"][labels])
    parts = jnp.split(asked @ weights["modulation"], 6, axis=-1)
    shift, scale, gate, later_shift, later_scale, later_gate = (part[:, None] for part in parts)

    def normal(values):
        wide = values.astype(jnp.float32)
        wide = wide - wide.mean(axis=-1, keepdims=True)
        wide = wide * lax.rsqrt(jnp.square(wide).mean(axis=-1, keepdims=True) + 1e-6)
        return wide.astype(values.dtype)

    query, key, value = jnp.einsum(
        "btd,pdhe->pbthe", normal(hidden) * (1 + scale) + shift, weights["joined"]
    )
    mixed = jax.nn.dot_product_attention(query, key, value).reshape(hidden.shape)
    hidden = hidden + gate * (mixed @ weights["out"])
    wide = (normal(hidden) * (1 + later_scale) + later_shift) @ weights["wide"]
    hidden = hidden + later_gate * (jax.nn.gelu(wide, approximate=True) @ weights["narrow"])
    patches = (hidden @ weights["leave"]).reshape(batch, height // 4, width // 4, 4, 4, channels)
    return patches.transpose(0, 1, 3, 2, 4, 5).reshape(images.shape)


def flow_loss(weights, images, labels, key):
    """The loss of the straight path from noise to images."""
    first, second, third = jax.random.split(key, 3)
    times = jax.nn.sigmoid(jax.random.normal(first, images.shape[:1]))
    noise = jax.random.normal(second, images.shape, images.dtype)
    share = times[:, None, None, None].astype(images.dtype)
    labels = jnp.where(jax.random.bernoulli(third, 0.1, labels.shape), 10, labels)
    speed = patch_transformer(weights, (1 - share) * noise + share * images, times, labels)
    return jnp.square((speed - (images - noise)).astype(jnp.float32)).mean()


def likelihood(layers, points, probe):
    """The density of a continuous flow: Heun steps with a stochastic trace of its derivative."""

    def speed(points, time):
        hidden = points
        for weight, bias in layers[:-1]:
            hidden = jnp.tanh(hidden @ weight + bias * time)
        return hidden @ layers[-1][0]

    def sloped(points, time):
        value, change = jax.jvp(lambda x: speed(x, time), (points,), (probe,))
        return value, (change * probe).sum(axis=-1)

    def step(index, carry):
        points, density = carry
        time = 1.0 - index / 20
        first, trace = sloped(points, time)
        second, later_trace = sloped(points - first / 20, time - 0.05)
        return points - (first + second) / 40, density + (trace + later_trace) / 40

    points, density = lax.fori_loop(0, 20, step, (points, jnp.zeros(points.shape[0])))
    return (-0.5 * (points**2).sum(axis=-1) - density).mean()


def averaged_weights(average, weights, step):
    decay = jnp.minimum(0.9999, (1.0 + step) / (10.0 + step))
    return jax.tree.map(lambda a, w: decay * a + (1.0 - decay) * w, average, weights)


def block(enter, leave):
    return {
        "first_norm": (("f32", (enter,)), ("f32", (enter,))),
        "first": ("f32", (3, 3, enter, leave)),
        "times": ("f32", (128, 2 * leave)),
        "second_norm": (("f32", (leave,)), ("f32", (leave,))),
        "second": ("f32", (3, 3, leave, leave)),
        "skip": ("f32", (enter, leave)),
    }


network = {
    "times": ("f32", (64, 128)),
    "enter": ("f32", (3, 3, 3, 32)),
    "down": block(32, 32),
    "shrink": ("f32", (3, 3, 32, 64)),
    "middle": block(64, 64),
    "up": block(96, 32),
    "leave": ("f32", (3, 3, 32, 3)),
}
patched = {
    "enter": ("bf16", (64, 256)),
    "positions": ("bf16", (64, 256)),
    "times": ("bf16", (128, 256)),
    "labels": ("bf16", (11, 256)),
    "modulation": ("bf16", (256, 1536)),
    "joined": ("bf16", (3, 256, 4, 64)),
    "out": ("bf16", (256, 256)),
    "wide": ("bf16", (256, 1024)),
    "narrow": ("bf16", (1024, 256)),
    "leave": ("bf16", (256, 64)),
}
images, latents, key = ("f32", (4, 32, 32, 3)), ("bf16", (6, 32, 32, 4)), ("u32", (2,))
points = [
    (("f32", (34, 90)), ("f32", (90,))),
    (("f32", (90, 90)), ("f32", (90,))),
    (("f32", (90, 2)), ("f32", (2,))),
]
flow = [(("f32", (5, 60)), ("f32", (60,))), (("f32", (60, 5)), ("f32", (5,)))]

programs = {
    "noise_loss_gradient": (jax.value_and_grad(noise_loss), (network, images, key)),
    "guided_step": (guided_step, (network, images, ("s32", ()))),
    "ancestral_sampling": (ancestral_sampling, (points, ("f32", (500, 2)), key)),
    "flow_loss_gradient": (
        jax.value_and_grad(flow_loss),
        (patched, latents, ("s32", (6,)), key),
    ),
    "likelihood_gradient": (jax.grad(likelihood), (flow, ("f32", (333, 5)), ("f32", (333, 5)))),
    "averaged_weights": (averaged_weights, (network, network, ("s32", ())), {"donate": (0,)}),
}
