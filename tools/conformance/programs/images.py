"""Image operations: augmentation, filters, codecs, features, motion."""

import jax.numpy as jnp


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


programs = {
    "equalised": (equalised, (("u8", (240, 319)),)),
}
