"""One denoising step of a small U-Net with attention."""

import jax
import jax.numpy as jnp

C = 64


def conv(x, w):
    return jax.lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def gn(x, s, b):
    n, h, w, c = x.shape
    y = x.reshape(n, h, w, 8, c // 8)
    m = y.mean((1, 2, 4), keepdims=True)
    v = y.var((1, 2, 4), keepdims=True)
    return ((y - m) / jnp.sqrt(v + 1e-5)).reshape(x.shape) * s + b


def step(p, x, t):
    f = jnp.exp(-jnp.arange(C // 2) / 8.0)
    e = jnp.concatenate([jnp.sin(t[:, None] * f), jnp.cos(t[:, None] * f)], -1) @ p["t"]
    h = conv(x, p["i"])
    a = h + conv(jax.nn.silu(gn(h, p["s"], p["b"])), p["c1"]) + e[:, None, None]
    d = a.reshape(a.shape[0], 16, 2, 16, 2, C).mean((2, 4))
    z = gn(d, p["s"], p["b"]).reshape(d.shape[0], 256, C)
    q, k, v = jnp.split(z @ p["qkv"], 3, -1)
    d = d + (jax.nn.softmax(jnp.einsum("bqc,bkc->bqk", q, k) / 8) @ v).reshape(d.shape)
    u = jnp.repeat(jnp.repeat(d, 2, 1), 2, 2)
    h = conv(jax.nn.silu(gn(jnp.concatenate([u, a], -1), p["s2"], p["b2"])), p["c2"])
    n = conv(jax.nn.silu(h), p["o"])
    al = jnp.cos(t * 0.001)[:, None, None, None]
    return (x - (1 - al) * n) / jnp.sqrt(al)


def array(*sizes):
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


example_args = (
    {
        "i": array(3, 3, 3, C),
        "t": array(C, C),
        "s": array(C),
        "b": array(C),
        "c1": array(3, 3, C, C),
        "qkv": array(C, 3 * C),
        "s2": array(2 * C),
        "b2": array(2 * C),
        "c2": array(3, 3, 2 * C, C),
        "o": array(3, 3, C, 3),
    },
    array(8, 32, 32, 3),
    array(8),
)
