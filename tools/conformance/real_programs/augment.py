"""Random flips, crops, colours and noise for a batch of images, resized and normalized."""

import jax
import jax.numpy as jnp

B, S_ = 64, 64


def one(k, im):
    k1, k2, k3, k4, k5 = jax.random.split(k, 5)
    im = jnp.where(jax.random.bernoulli(k1), im[:, ::-1], im)
    dy, dx = jax.random.randint(k2, (2,), 0, 8)
    im = jax.lax.dynamic_slice(jnp.pad(im, ((4, 4), (4, 4), (0, 0))), (dy, dx, 0), im.shape)
    im = im * jax.random.uniform(k3, (), minval=0.8, maxval=1.2) + jax.random.uniform(
        k4, (3,), minval=-0.1, maxval=0.1
    )
    g = im.mean(-1, keepdims=True)
    im = g + (im - g) * 1.2
    im = jnp.clip(im + 0.05 * jax.random.normal(k5, im.shape), 0, 1)
    return jax.image.resize(im, (48, 48, 3), "bilinear")


def step(k, ims):
    out = jax.vmap(one)(jax.random.split(k, B), ims)
    return (out - out.mean((0, 1, 2))) / out.std((0, 1, 2))


example_args = (
    jax.ShapeDtypeStruct((2,), jnp.uint32),
    jax.ShapeDtypeStruct((B, S_, S_, 3), jnp.float32),
)
