"""Equal layers whose products are quantized, mixed or split: every layer has the same operations on
the same lines, as any model with a loop over its layers.
"""

import jax
import jax.numpy as jnp

ROWS, WIDTH, LAYERS = 64, 256, 3


def contracted(left, right, dtype):
    return jax.lax.dot_general(left, right, (((1,), (0,)), ((), ())), preferred_element_type=dtype)


def bytes_of(values, axis):
    scale = jnp.max(jnp.abs(values), axis=axis, keepdims=True) / 127 + 1e-6
    return jnp.round(values / scale).astype(jnp.int8), scale


def byte_product(inputs, weights):
    """A scale for each row of the inputs and each column of the weights."""
    narrow, rows = bytes_of(inputs, 1)
    fixed, columns = bytes_of(weights, 0)
    return contracted(narrow, fixed, jnp.int32).astype(jnp.float32) * rows * columns


def narrow_weights(inputs, weights):
    """Weights of one byte that become floats before the product."""
    fixed, columns = bytes_of(weights, 0)
    half = inputs.astype(jnp.bfloat16)
    return contracted(half, fixed.astype(jnp.bfloat16), jnp.float32) * columns


def eighth_product(inputs, weights):
    def narrowed(values):
        scale = jnp.max(jnp.abs(values)) / 448 + 1e-6
        return jnp.clip(values / scale, -448, 448).astype(jnp.float8_e4m3fn), scale

    (left, first), (right, second) = narrowed(inputs), narrowed(weights)
    return contracted(left, right, jnp.float32) * (first * second)


def mixed_product(inputs, weights):
    return contracted(inputs.astype(jnp.bfloat16), weights.astype(jnp.bfloat16), jnp.float32)


def half_product(inputs, weights):
    half = contracted(inputs.astype(jnp.float16), weights.astype(jnp.float16), jnp.float16)
    return half.astype(jnp.float32)


def split_sum(inputs, weights, parts=4):
    """The contracted dimension in parts, whose products are added."""
    left = inputs.reshape(inputs.shape[0], parts, -1)
    right = weights.reshape(parts, -1, weights.shape[1])
    return jnp.einsum("rpk,pkc->prc", left, right).sum(0)


def split_columns(inputs, weights):
    halves = jnp.split(weights, 2, axis=1)
    return jnp.concatenate([mixed_product(inputs, half) for half in halves], axis=1)


def split_rows(inputs, weights):
    upper, lower = jnp.split(weights, 2, axis=0)
    left, right = jnp.split(inputs, 2, axis=1)
    return byte_product(left, upper) + byte_product(right, lower)


def low_rank(inputs, weights):
    return inputs @ weights + (inputs @ weights[:, :8]) @ weights[:8]


def normalized(values):
    return values * jax.lax.rsqrt(jnp.mean(values * values, axis=-1, keepdims=True) + 1e-6)


def plain(product):
    def run(inputs, weights):
        for layer in range(LAYERS):
            inputs = jnp.tanh(product(inputs, weights[layer]))
        return inputs

    return run


def residual(product):
    def run(inputs, weights):
        for layer in range(LAYERS):
            hidden = jax.nn.silu(product(normalized(inputs), weights[layer]))
            inputs = inputs + product(hidden, weights[layer].T)
        return inputs

    return run


def trained(product):
    def loss(weights, inputs):
        return jnp.mean(residual(product)(inputs, weights) ** 2)

    return lambda inputs, weights: weights - 0.1 * jax.grad(loss)(weights, inputs)


arguments = (("f32", (ROWS, WIDTH)), ("f32", (LAYERS, WIDTH, WIDTH)))
programs = {
    "bytes": (plain(byte_product), arguments),
    "bytes_residual": (residual(byte_product), arguments),
    "weights": (plain(narrow_weights), arguments),
    "weights_residual": (residual(narrow_weights), arguments),
    "eighth": (plain(eighth_product), arguments),
    "eighth_residual": (residual(eighth_product), arguments),
    "mixed": (plain(mixed_product), arguments),
    "mixed_residual": (residual(mixed_product), arguments),
    "mixed_trained": (trained(mixed_product), arguments),
    "half": (plain(half_product), arguments),
    "half_residual": (residual(half_product), arguments),
    "half_trained": (trained(half_product), arguments),
    "split_sum": (plain(split_sum), arguments),
    "split_sum_residual": (residual(split_sum), arguments),
    "split_sum_trained": (trained(split_sum), arguments),
    "split_columns": (plain(split_columns), arguments),
    "split_columns_trained": (trained(split_columns), arguments),
    "split_rows": (plain(split_rows), arguments),
    "split_rows_residual": (residual(split_rows), arguments),
    "low_rank_trained": (trained(low_rank), arguments),
}
