"""One token of a decoder with caches of keys and values, in bfloat16."""

import jax
import jax.numpy as jnp

L, B, H, T, Dh = 2, 4, 8, 512, 64
D = H * Dh
bf = jnp.bfloat16


def rms(x, g):
    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-6)).astype(bf) * g


def layer(x, w, kc, vc, pos):
    h = rms(x, w["g1"])
    q, k, v = jnp.split((h @ w["qkv"]).reshape(B, 3, H, Dh), 3, 1)
    kc = jax.lax.dynamic_update_slice(kc, k.reshape(B, 1, H, Dh), (0, pos, 0, 0))
    vc = jax.lax.dynamic_update_slice(vc, v.reshape(B, 1, H, Dh), (0, pos, 0, 0))
    s = jnp.einsum("bhd,bthd->bht", q[:, 0], kc).astype(jnp.float32) / 8
    s = jnp.where(jnp.arange(T) <= pos, s, -1e9)
    o = jnp.einsum("bht,bthd->bhd", jax.nn.softmax(s).astype(bf), vc).reshape(B, D)
    x = x + o @ w["o"]
    h = rms(x, w["g2"])
    return x + (jax.nn.silu(h @ w["a"]) * (h @ w["b"])) @ w["c"], kc, vc


def step(ws, tok, emb, caches, pos):
    x = emb[tok]
    new = []
    for w, (kc, vc) in zip(ws, caches, strict=True):
        x, kc, vc = layer(x, w, kc, vc, pos)
        new.append((kc, vc))
    return jnp.argmax(x @ emb.T, -1), new


def array(*sizes):
    return jax.ShapeDtypeStruct(sizes, bf)


_w = {
    "g1": array(D),
    "g2": array(D),
    "qkv": array(D, 3 * D),
    "o": array(D, D),
    "a": array(D, 4 * D),
    "b": array(D, 4 * D),
    "c": array(4 * D, D),
}
example_args = (
    [_w] * L,
    jax.ShapeDtypeStruct((B,), jnp.int32),
    array(4096, D),
    [(array(B, T, H, Dh), array(B, T, H, Dh))] * L,
    jax.ShapeDtypeStruct((), jnp.int32),
)
