"""Dots of all kinds, with what surrounds them, dense, ragged and sparse."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import sparse


def accumulated(left, right):
    return jnp.dot(left, right, preferred_element_type=jnp.float32) * 0.5


def gelu_layers(inputs, wide, narrow):
    return jax.nn.gelu(inputs @ wide) @ narrow + inputs


def gated(inputs, gate, up, down):
    return (jax.nn.silu(inputs @ gate) * (inputs @ up)) @ down


def chain(first, second, third):
    return (first @ second) @ third - first.sum(axis=1, keepdims=True)


def sparse_product(values, indices, dense):
    matrix = sparse.BCOO((values, indices), shape=(256, 128))
    return jnp.tanh(matrix @ dense)


def float8_scaled(left, right, scale):
    return (jnp.dot(left, right, preferred_element_type=jnp.float32) * scale).astype(jnp.bfloat16)


square, vector = ("f32", (128, 128)), ("f32", (128,))
half = ("bf16", (256, 256))
small = ("f8e4m3fn", (256, 256))

programs = {
    "batched": (
        lambda a, b: jnp.einsum("bij,bjk->bik", a, b) + 1.0,
        (("f32", (8, 32, 64)), ("f32", (8, 64, 16))),
    ),
    "half": (accumulated, (half, half)),
    "bytes": (
        lambda a, b: jnp.dot(a, b, preferred_element_type=jnp.int32) + 1,
        (("s8", (128, 128)), ("s8", (128, 128))),
    ),
    "float8": (float8_scaled, (small, small, ("f32", ()))),
    "vector": (lambda m, v: jnp.tanh(m @ v) + v @ m, (square, vector)),
    "outer": (lambda a, b: jnp.exp(jnp.outer(a, b)) @ b, (vector, vector)),
    "inner": (lambda a, b: jnp.dot(a, b) / jnp.dot(a, a), (("f32", (100000,)), ("f32", (100000,)))),
    "transposed": (lambda a, b: (a.T @ b.T).T * 2.0, (square, square)),
    "long_contraction": (lambda a, b: a @ b, (("bf16", (64, 16384)), ("bf16", (16384, 64)))),
    "gelu_layers": (gelu_layers, (half, ("bf16", (256, 1024)), ("bf16", (1024, 256)))),
    "gated": (gated, (half, ("bf16", (256, 512)), ("bf16", (256, 512)), ("bf16", (512, 256)))),
    "chain": (chain, (square, square, square)),
    "einsum": (
        lambda a, b, c: jnp.einsum("abc,cd,bd->ad", a, b, c),
        (("f32", (8, 16, 32)), ("f32", (32, 24)), ("f32", (16, 24))),
    ),
    "ragged": (
        lax.ragged_dot,
        (("f32", (64, 32)), ("f32", (4, 32, 48)), ("s32", (4,))),
    ),
    "sparse": (sparse_product, (("f32", (500,)), ("s32", (500, 2)), ("f32", (128, 32)))),
    "attention_gradient": (
        jax.grad(
            lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True).sum(),
            argnums=(0, 1, 2),
        ),
        (("bf16", (2, 64, 4, 32)),) * 3,
    ),
}
