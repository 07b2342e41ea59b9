"""Image operations: augmentation, filters, codecs, features, motion."""

import jax
import jax.numpy as jnp
from jax import lax


def augmented(images, labels, key):
    """Random crops, flips, colours, erased squares and mixed pairs."""
    keys = jax.random.split(key, 6)
    batch, height, width, _ = images.shape
    values = images.astype(jnp.float32) / 255.0
    padded = jnp.pad(values, ((0, 0), (4, 4), (4, 4), (0, 0)), mode="reflect")
    corners = jax.random.randint(keys[0], (batch, 2), 0, 9)
    values = jax.vmap(
        lambda image, corner: lax.dynamic_slice(image, (*corner, 0), (height, width, 3))
    )(padded, corners)
    flipped = jax.random.bernoulli(keys[1], 0.5, (batch, 1, 1, 1))
    values = jnp.where(flipped, values[:, :, ::-1], values)
    bright, strong, grey = jax.random.uniform(keys[2], (3, batch, 1, 1, 1), minval=0.6, maxval=1.4)
    values = values * bright
    values = (values - values.mean(axis=(1, 2, 3), keepdims=True)) * strong + 0.5
    light = (values * jnp.array([0.299, 0.587, 0.114])).sum(axis=-1, keepdims=True)
    values = jnp.clip(light + (values - light) * grey, 0.0, 1.0)
    places = jax.random.randint(keys[3], (batch, 2, 1, 1), 0, height)
    rows, columns = jnp.indices((height, width))
    inside = (jnp.abs(rows - places[:, 0]) < 6) & (jnp.abs(columns - places[:, 1]) < 6)
    values = jnp.where(inside[..., None], 0.0, values)
    share = jax.random.beta(keys[4], 0.4, 0.4, (batch, 1, 1, 1))
    other = jax.random.permutation(keys[5], batch)
    hot = jax.nn.one_hot(labels, 100)
    mixed = share * values + (1.0 - share) * values[other]
    return mixed, share[:, 0, 0] * hot + (1.0 - share[:, 0, 0]) * hot[other]


def compressed(image, table):
    """Colours apart, cosine transforms of blocks, coarse steps, and the way back."""
    matrix = jnp.array([[0.299, 0.587, 0.114], [-0.169, -0.331, 0.5], [0.5, -0.419, -0.081]])
    planes = jnp.einsum("ij,hwj->ihw", matrix, image.astype(jnp.float32) - 128.0)
    _, height, width = planes.shape
    blocks = planes.reshape(3, height // 8, 8, width // 8, 8).transpose(0, 1, 3, 2, 4)
    angles = jnp.pi / 8 * (jnp.arange(8) + 0.5) * jnp.arange(8)[:, None]
    basis = jnp.cos(angles) * jnp.where(jnp.arange(8) == 0, 8**-0.5, 0.5)[:, None]
    waves = jnp.einsum("ui,chwij,vj->chwuv", basis, blocks, basis)
    coarse = jnp.round(waves / table)
    back = jnp.einsum("ui,chwuv,vj->chwij", basis, coarse * table, basis)
    planes = back.transpose(0, 1, 3, 2, 4).reshape(3, height, width)
    image = jnp.einsum("ij,jhw->hwi", jnp.linalg.inv(matrix), planes) + 128.0
    kept = coarse.astype(jnp.int8)
    return kept, (kept != 0).sum(axis=(1, 2, 3, 4)), jnp.clip(image, 0, 255).astype(jnp.uint8)


def smoothed_edges(image):
    """A bilateral filter, slopes, corners, and only the crests of the slopes."""
    padded = jnp.pad(image, 3, mode="edge")
    height, width = image.shape
    total = weight = jnp.zeros_like(image)
    for row in range(7):
        for column in range(7):
            near = padded[row : row + height, column : column + width]
            far = (row - 3) ** 2 + (column - 3) ** 2
            share = jnp.exp(-far / 8.0 - (near - image) ** 2 / 0.02)
            total, weight = total + share * near, weight + share
    smooth = total / weight
    down, right = jnp.gradient(smooth)
    length, angle = jnp.hypot(down, right), jnp.arctan2(down, right)
    box = jnp.ones((5, 5)) / 25.0
    products = jnp.stack([down * down, right * right, down * right])
    first, second, both = jax.vmap(
        lambda plane: jax.scipy.signal.convolve2d(plane, box, mode="same")
    )(products)
    corner = first * second - both**2 - 0.05 * (first + second) ** 2
    highest = lax.reduce_window(corner, -jnp.inf, lax.max, (3, 3), (1, 1), "SAME")
    flat = jnp.abs(jnp.cos(angle)) > 0.707
    beside = jnp.maximum(jnp.roll(length, 1, 1), jnp.roll(length, -1, 1))
    above = jnp.maximum(jnp.roll(length, 1, 0), jnp.roll(length, -1, 0))
    crest = length > jnp.where(flat, beside, above)
    return smooth, crest & (length > 0.1), lax.top_k((corner * (corner == highest)).ravel(), 50)


def compared(left, right):
    """Structural likeness at three scales, and its slope by the left image."""
    places = jnp.arange(11) - 5.0
    kernel = jnp.exp(-(places**2) / 4.5)
    kernel = (kernel / kernel.sum()).reshape(1, 1, 11, 1)

    def blurred(planes):
        planes = planes.reshape(-1, 1, *planes.shape[-2:])
        planes = lax.conv_general_dilated(planes, kernel, (1, 1), "VALID")
        return lax.conv_general_dilated(planes, kernel.swapaxes(2, 3), (1, 1), "VALID")

    score = 1.0
    for _ in range(3):
        mean, other = blurred(left), blurred(right)
        spread = blurred(left**2) - mean**2
        other_spread = blurred(right**2) - other**2
        shared = blurred(left * right) - mean * other
        light = (2.0 * mean * other + 1e-4) / (mean**2 + other**2 + 1e-4)
        score = score * ((2.0 * shared + 9e-4) / (spread + other_spread + 9e-4) * light).mean()
        window = (1, 1, 2, 2)
        left, right = (
            lax.reduce_window(planes, 0.0, lax.add, window, window, "VALID") / 4.0
            for planes in (left, right)
        )
    return score


def equalised(image):
    """Bytes spread evenly by their own distribution, and the threshold between two classes."""
    counts = jnp.bincount(image.ravel(), length=256)
    share = jnp.cumsum(counts) / image.size
    table = jnp.round(255.0 * share).astype(jnp.uint8)
    levels = jnp.arange(256.0)
    mean = jnp.cumsum(counts * levels) / image.size
    between = (mean[-1] * share - mean) ** 2 / (share * (1.0 - share) + 1e-9)
    threshold = jnp.argmax(between)
    return table[image], image > threshold.astype(jnp.uint8), threshold


planes = ("f32", (2, 3, 96, 110))

programs = {
    "augmented": (augmented, (("u8", (16, 32, 32, 3)), ("s32", (16,)), ("u32", (2,)))),
    "compressed": (compressed, (("u8", (120, 160, 3)), ("f32", (8, 8)))),
    "smoothed_edges": (smoothed_edges, (("f32", (101, 133)),)),
    "compared_gradient": (jax.value_and_grad(compared), (planes, planes)),
    "equalised": (equalised, (("u8", (240, 319)),)),
}
