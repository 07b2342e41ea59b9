"""A training step of a decoder with rotary embeddings, in bfloat16, with momentum."""

import jax
import jax.numpy as jnp

B, T, D, H, V = 4, 256, 256, 4, 2048
bf = jnp.bfloat16


def rms(x, g):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * g


def rope(x):
    d = x.shape[-1] // 2
    a = jnp.arange(T)[:, None] / 10000 ** (jnp.arange(d) / d)
    c, s = jnp.cos(a)[None, :, None], jnp.sin(a)[None, :, None]
    x1, x2 = x[..., :d], x[..., d:]
    return jnp.concatenate([x1 * c - x2 * s, x2 * c + x1 * s], -1)


def block(x, w):
    h = rms(x, w["g1"]).astype(bf)
    q, k, v = [(h @ w[n].astype(bf)).reshape(B, T, H, D // H) for n in "qkv"]
    q, k = rope(q.astype(jnp.float32)).astype(bf), rope(k.astype(jnp.float32)).astype(bf)
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) / 8
    s = jnp.where(jnp.tril(jnp.ones((T, T), bool)), s, -1e30)
    o = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s).astype(bf), v).reshape(B, T, D)
    x = x + (o @ w["o"].astype(bf)).astype(jnp.float32)
    h = rms(x, w["g2"]).astype(bf)
    return x + (
        (jax.nn.silu(h @ w["a"].astype(bf)) * (h @ w["b"].astype(bf))) @ w["c"].astype(bf)
    ).astype(jnp.float32)


def loss(p, tok):
    x = p["emb"][tok]
    for w in p["w"]:
        x = block(x, w)
    lg = rms(x, p["g"]) @ p["emb"].T
    t = jnp.roll(tok, -1, 1)
    return (jax.nn.logsumexp(lg, -1) - jnp.take_along_axis(lg, t[..., None], -1)[..., 0]).mean()


def step(p, m, tok):
    value, g = jax.value_and_grad(loss)(p, tok)
    m = jax.tree.map(lambda a, b: 0.9 * a + b, m, g)
    return jax.tree.map(lambda a, b: a - 1e-3 * b, p, m), m, value


def array(*sizes):
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


_w = {
    "g1": array(D),
    "g2": array(D),
    "q": array(D, D),
    "k": array(D, D),
    "v": array(D, D),
    "o": array(D, D),
    "a": array(D, 3 * D),
    "b": array(D, 3 * D),
    "c": array(3 * D, D),
}
_p = {"emb": array(V, D), "g": array(D), "w": [_w] * 2}
example_args = (_p, _p, jax.ShapeDtypeStruct((B, T), jnp.int32))
