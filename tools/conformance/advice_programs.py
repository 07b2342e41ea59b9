"""The ten programs of docs/advice.md, for follow_advice.py: `fusionscope capture FILE:NAME`."""

import jax
import jax.numpy as jnp
from jax import ShapeDtypeStruct as S
from jax import lax

f = jnp.float32


def array(*sizes, d=f):
    return S(sizes, d)


def rope_attention(q, k, v, c, s):
    def rot(x):
        a, b = jnp.split(x, 2, -1)
        return jnp.concatenate([a * c - b * s, a * s + b * c], -1)

    logits = jnp.einsum("bqhd,bkhd->bhqk", rot(q), rot(k)) / 8
    logits = jnp.where(jnp.tril(jnp.ones(logits.shape[-2:], bool)), logits, -1e9)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(logits), v)


rope_attention.example_args = (array(2, 128, 4, 64),) * 3 + (array(1, 128, 1, 32),) * 2


def swiglu_step(w, x):
    def loss(w):
        h = jax.nn.silu(x @ w["a"]) * (x @ w["b"])
        return jnp.mean((h @ w["c"] - x) ** 2)

    logits, g = jax.value_and_grad(loss)(w)
    return logits, jax.tree.map(lambda p, d: p - 1e-3 * d, w, g)


swiglu_step.example_args = (
    {"a": array(256, 512), "b": array(256, 512), "c": array(512, 256)},
    array(128, 256),
)


def token_loss(e, w, t):
    def loss(e, w):
        logits = jax.nn.log_softmax(e[t] @ w)
        return -jnp.mean(jnp.take_along_axis(logits, t[..., None], -1))

    return jax.grad(loss, (0, 1))(e, w)


token_loss.example_args = (array(1000, 64), array(64, 1000), S((8, 64), jnp.int32))


def message_passing(n, e, s, r):
    m = jnp.tanh(n[s] + e) * jax.nn.sigmoid(n[r])
    a = jax.ops.segment_sum(m, r, 512)
    return jax.nn.relu(n + a), m.mean(0)


message_passing.example_args = (
    array(512, 64),
    array(4096, 64),
    S((4096,), jnp.int32),
    S((4096,), jnp.int32),
)


def kalman(x, p, z):
    def step(c, z):
        x, p = c
        k = p / (p + 0.1)
        x = x + k * (z - x)
        p = (1 - k) * p + 0.01
        return (x, p), jnp.concatenate([x, p])

    return lax.scan(step, (x, p), z)


kalman.example_args = (array(32), array(32), array(100, 32))


def adamw(p, m, v, g):
    def one(p, m, v, g):
        m = 0.9 * m + 0.1 * g
        v = 0.99 * v + 0.01 * g * g
        return p - 1e-3 * (m / (jnp.sqrt(v) + 1e-8) + 0.01 * p), m, v

    n = jnp.sqrt(sum(jnp.sum(x * x) for x in g))
    g = [x * jnp.minimum(1.0, 1 / n) for x in g]
    return [one(*t) for t in zip(p, m, v, g, strict=True)]


adamw.example_args = ([array(256, 256), array(1024), array(64, 512)],) * 4


def image_block(x, k, s):
    y = lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    y = (y - y.mean((0, 1, 2))) * lax.rsqrt(y.var((0, 1, 2)) + 1e-5) * s
    return jax.nn.gelu(y) + x, y.max((1, 2))


image_block.example_args = (array(4, 32, 32, 32), array(3, 3, 32, 32), array(32))


def quantise(x):
    s = jnp.max(jnp.abs(x), -1, keepdims=True) / 127
    q = jnp.round(x / s).astype(jnp.int8)
    d = q.astype(f) * s
    return q, s, jnp.mean((d - x) ** 2, -1), jnp.argmax(x, -1)


quantise.example_args = (array(512, 1024),)


def mixture(x, mu, ls, w):
    logits = (
        -0.5 * jnp.sum(((x[:, None] - mu) * jnp.exp(-ls)) ** 2, -1)
        - ls.sum(-1)
        + jax.nn.log_softmax(w)
    )
    r = jax.nn.softmax(logits, -1)
    return jax.nn.logsumexp(logits, -1).mean(), r, (r.T @ x) / r.sum(0)[:, None]


mixture.example_args = (array(2048, 16), array(32, 16), array(32, 16), array(32))


def wave(u, v):
    def step(_, c):
        u, v = c
        logits = (
            jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1) - 4 * u
        )
        v = v + 0.1 * logits
        return u + 0.1 * v, v

    u, v = lax.fori_loop(0, 20, step, (u, v))
    return u, jnp.stack([u.mean(), v.mean(), jnp.abs(u).max()])


wave.example_args = (array(256, 256), array(256, 256))
