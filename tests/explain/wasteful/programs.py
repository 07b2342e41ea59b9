"""For each pattern of waste a program that has it, and one that computes something close without.

``make_examples.py`` compiles them: what is read is what the compiler made of them.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def spec(*dimensions, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(dimensions, dtype)


# By the pattern's id, "not-" before it for the one without: a function, its arguments, and the
# numbers of those that it donates.
EXAMPLES = {}


def example(pattern, *arguments, donated=()):
    def add(function):
        EXAMPLES[pattern] = function, arguments, donated
        return function

    return add


ROWS = spec(256, 1024)


@example("recurrence", ROWS, ROWS)
def decayed_sums(decays, inputs):
    def step(state, row):
        decay, value = row
        state = decay * state + value
        return state, jnp.tanh(state)

    return lax.scan(step, jnp.zeros(1024), (decays, inputs))


@example("not-recurrence", ROWS, ROWS)
def recurrent_layer(decays, inputs):
    def step(state, row):
        decay, value = row
        state = jnp.tanh(decay * state + value)
        return state, state

    return lax.scan(step, jnp.zeros(1024), (decays, inputs))


@example("search-for-a-step", ROWS)
def shorter_steps(values):
    """A step is halved until it is short enough: it depends on what each one gives."""

    def is_too_long(state):
        size, result = state
        return jnp.square(values - size * jnp.sign(values)).sum() > result.sum()

    def halve(state):
        size, result = state
        return 0.5 * size, 0.5 * result

    return lax.while_loop(is_too_long, halve, (jnp.float32(1.0), jnp.ones(1024)))


@example("pooling", spec(8, 112, 112, 64))
def gradient_of_pooling(images):
    def loss(images):
        pooled = lax.reduce_window(images, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        return jnp.square(pooled).sum()

    return jax.grad(loss)(images)


@example("search-loop", spec(4096), spec(65536))
def ranks(edges, values):
    return jnp.searchsorted(jnp.sort(edges), values)


@example("not-search-loop", spec(4096), spec(65536))
def ranks_by_sorting(edges, values):
    return jnp.searchsorted(jnp.sort(edges), values, method="sort")


def walk(key, state, steps, draw):
    def step(carry, _):
        key, state = carry
        key, inner = jax.random.split(key)
        return (key, jnp.sin(state) + draw(inner, state.shape)), None

    return lax.scan(step, (key, state), None, length=steps)[0][1]


@example("random-in-loop", spec(2, dtype=jnp.uint32), spec(1024, 128))
def noisy_walk(key, state):
    return walk(key, state, 64, jax.random.normal)


@example("not-random-in-loop", spec(2, dtype=jnp.uint32), spec(1024, 128))
def drawn_before(key, state):
    noise = jax.random.normal(key, (64, *state.shape))
    return lax.scan(lambda state, row: (jnp.sin(state) + row, None), state, noise)[0]


def descend(parameters, gradients):
    return [p - 0.1 * jnp.tanh(g) for p, g in zip(parameters, gradients, strict=True)]


ARRAYS = [spec(64, width) for width in range(16, 48)]


@example("alike-kernels", ARRAYS, ARRAYS)
def update_of_each(parameters, gradients):
    return descend(parameters, gradients)


@example("not-alike-kernels", [spec(64, 1008)], [spec(64, 1008)])
def update_of_all(parameters, gradients):
    return descend(parameters, gradients)


MOMENTUM = [spec(256, 256)] * 4


@example("copied-result", MOMENTUM, MOMENTUM, MOMENTUM, donated=(1, 2))
def update_with_momentum(gradients, moments, weights):
    moments = [0.9 * m + g for m, g in zip(moments, gradients, strict=True)]
    return [w - 0.1 * m for w, m in zip(weights, moments, strict=True)], moments


@example("not-copied-result", MOMENTUM, MOMENTUM, MOMENTUM, donated=(1, 2))
def update_in_the_order_of_arguments(gradients, moments, weights):
    return update_with_momentum(gradients, moments, weights)[::-1]


@example("equal-calls", *[spec(256, 256, dtype=jnp.complex64)] * 4)
def four_transforms(a, b, c, d):
    return [jnp.fft.ifft2(array) for array in (a, b, c, d)]


@example("not-equal-calls", spec(4, 256, 256, dtype=jnp.complex64))
def one_transform(batch):
    return jnp.fft.ifft2(batch)


def cell(weights, state, row):
    state = jnp.tanh(state @ weights + row)
    return state, jnp.sin(state * row)


@example("residuals", spec(256, 256), spec(64, 1024, 256))
def gradient_of_scan(weights, rows):
    def loss(weights):
        return lax.scan(partial(cell, weights), rows[0], rows)[1].sum()

    return jax.grad(loss)(weights)


@example("not-residuals", spec(256, 256), spec(64, 1024, 256))
def scan_alone(weights, rows):
    return lax.scan(partial(cell, weights), rows[0], rows)[1].sum()


@example("scatter-gradient", spec(65536, 64), spec(65536, 16, dtype=jnp.int32))
def forces(positions, neighbours):
    def energy(positions):
        return jnp.square(positions[neighbours] - positions[:, None]).sum()

    return jax.grad(energy)(positions)


@example("not-scatter-gradient", spec(65536, 64), spec(65536, 16, dtype=jnp.int32))
def energies(positions, neighbours):
    return jnp.square(positions[neighbours] - positions[:, None]).sum()


@example("narrow-rows", spec(65536, 3), spec(65536, 16, dtype=jnp.int32))
def distances(positions, neighbours):
    offsets = positions[neighbours] - positions[:, None]
    lengths = jnp.sqrt(jnp.square(offsets).sum(-1))
    return lengths, (offsets / lengths[..., None]).sum(1)


@example("not-narrow-rows", spec(3, 65536), spec(65536, 16, dtype=jnp.int32))
def distances_by_axis(positions, neighbours):
    offsets = [axis[neighbours] - axis[:, None] for axis in positions]
    lengths = jnp.sqrt(sum(map(jnp.square, offsets)))
    return lengths, [(offset / lengths).sum(1) for offset in offsets]


def attend(queries, keys, values):
    scores = jnp.einsum("bhtd,bhsd->bhts", queries, keys) / 8
    return jnp.einsum("bhts,bhsd->bhtd", jax.nn.softmax(scores), values)


@example("attention-scores", *[spec(8, 16, 1024, 64, dtype=jnp.bfloat16)] * 3)
def attention(queries, keys, values):
    return attend(queries, keys, values)


CACHE = spec(8, 16, 1024, 64, dtype=jnp.bfloat16)


@example("not-attention-scores", spec(8, 16, 1, 64, dtype=jnp.bfloat16), CACHE, CACHE)
def decoding_attention(queries, keys, values):
    return attend(queries, keys, values)


def loss_of_logits(logits, labels):
    logit = jnp.take_along_axis(logits, labels[:, None], 1)[:, 0]
    return (jax.nn.logsumexp(logits, axis=1) - logit).mean()


TOKENS, LABELS = spec(4096, 512, dtype=jnp.bfloat16), spec(4096, dtype=jnp.int32)


@example("wide-logits", TOKENS, spec(512, 32768, dtype=jnp.bfloat16), LABELS)
def loss_of_words(tokens, table, labels):
    logits = jnp.matmul(tokens, table, preferred_element_type=jnp.float32)
    return loss_of_logits(logits, labels)


@example("not-wide-logits", TOKENS, spec(512, 1024, dtype=jnp.bfloat16), LABELS)
def loss_of_classes(tokens, table, labels):
    logits = jnp.matmul(tokens, table, preferred_element_type=jnp.float32)
    return loss_of_logits(logits, labels)


QUANTIZED = spec(8, 2048, dtype=jnp.bfloat16), spec(2048, 4096, dtype=jnp.int8)


@example("dequantized", *QUANTIZED, spec(16, 4096))
def product_of_scaled_weights(tokens, weights, scales):
    scaled = weights.reshape(16, 128, 4096).astype(jnp.float32) * scales[:, None]
    return tokens.astype(jnp.float32) @ scaled.reshape(2048, 4096)


@example("not-dequantized", *QUANTIZED, spec(4096))
def scaled_product(tokens, weights, scales):
    return (tokens @ weights.astype(jnp.bfloat16)) * scales


@example("turned-operand", spec(64, 512, 128), spec(64, 256, 128))
def outer_dimensions(left, right):
    return jnp.einsum("abc,adc->bd", jnp.tanh(left), right)


@example("not-turned-operand", spec(512, 64, 128), spec(256, 64, 128))
def inner_dimensions(left, right):
    return jnp.einsum("bac,dac->bd", jnp.tanh(left), right)


GRADIENTS = spec(4096, 128)


@example("strided-reduction", GRADIENTS)
def gradient_of_bias(gradients):
    return gradients.sum(0)


@example("not-strided-reduction", GRADIENTS)
def gradient_in_parts(gradients):
    parts = gradients.reshape(64, 64, 128).sum(1)
    return lax.optimization_barrier(parts).sum(0)  # which else become one sum again


@example("double-precision", spec(4096, 1024))
def normalised_in_double(values):
    with jax.enable_x64():
        wide = values.astype(jnp.float64)
        total = jnp.exp(wide) / jnp.exp(wide).sum(1, keepdims=True)
        return total, total.sum(0)


@example("not-double-precision", spec(4096, 1024, dtype=jnp.float64))
def double_throughout(values):
    total = jnp.exp(values) / jnp.exp(values).sum(1, keepdims=True)
    return total, total.sum(0)


@example("padding", spec(96, 1024, 80))
def padded_transform(rows):
    return jnp.fft.rfft(jnp.pad(rows, ((0, 0), (0, 0), (0, 80))))


@example("not-padding", spec(96, 1024, 160))
def plain_transform(rows):
    return jnp.fft.rfft(rows)


@example("host-calls", spec(1024, 1024))
def logged(values):
    total = jnp.tanh(values).sum()
    jax.ffi.ffi_call(  # what jax.debug.callback becomes where there is a GPU
        "xla_ffi_python_gpu_callback", (), has_side_effect=True
    )(total, index=np.uint64(0))
    return total


@example("not-host-calls", spec(1024, 1024))
def silent(values):
    return jnp.tanh(values).sum()


@example("split-product", spec(64, 65536), spec(65536, 64))
def long_product(left, right):
    return jnp.tanh(left @ right)


@example("not-split-product", spec(1024, 1024), spec(1024, 1024))
def square_product(left, right):
    return jnp.tanh(left @ right)


STACK = spec(8, 1024, 1024, dtype=jnp.bfloat16)


@example("sliced", spec(16, 1024, dtype=jnp.bfloat16), STACK)
def layers(tokens, stack):
    return lax.scan(lambda state, weights: (jnp.tanh(state @ weights), None), tokens, stack)[0]


@example("not-sliced", spec(16, 1024, dtype=jnp.bfloat16), STACK)
def unrolled_layers(tokens, stack):
    for weights in stack:
        tokens = jnp.tanh(tokens @ weights)
    return tokens


def blocks(block, inputs, weights):
    for matrix in weights:
        inputs = block(inputs, matrix)
    return inputs.sum()


def layer(inputs, matrix):
    return inputs + jnp.tanh(inputs @ matrix) @ matrix.T


WEIGHTS = spec(4, 1024, 4096, dtype=jnp.bfloat16)
INPUTS = spec(8192, 1024, dtype=jnp.bfloat16)


@example("rematerialized", WEIGHTS, INPUTS)
def gradient_with_checkpoints(weights, inputs):
    return jax.grad(partial(blocks, jax.checkpoint(layer), inputs))(weights)


@example("not-rematerialized", WEIGHTS, INPUTS)
def gradient_of_layers(weights, inputs):
    return jax.grad(partial(blocks, layer, inputs))(weights)
