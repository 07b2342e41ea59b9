"""Convolutions of all kinds, pooling, and their derivatives."""

import jax

images, kernel, channels = ("f32", (4, 16, 16, 8)), ("f32", (3, 3, 8, 8)), ("f32", (8,))

programs = {
    "resize": (lambda x: jax.image.resize(x, (4, 32, 32, 8), "bilinear") * 2.0, (images,)),
}
