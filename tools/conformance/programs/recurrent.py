"""Recurrences over time: cells, state spaces, alignments, and their gradients."""

import jax
import jax.numpy as jnp
from jax import lax


def gated_layers(layers, sequence, lengths):
    """Gated units in both directions, layer upon layer, over sequences of different lengths."""
    present = jnp.arange(sequence.shape[0])[:, None] < lengths

    def direction(weights, sequence, reverse):
        inputs, state_weights, bias = weights
        prepared = sequence @ inputs + bias

        def step(state, slices):
            from_input, here = slices
            from_state = state @ state_weights
            reset, update, fresh = jnp.split(from_input, 3, axis=-1)
            state_reset, state_update, state_fresh = jnp.split(from_state, 3, axis=-1)
            update = jax.nn.sigmoid(update + state_update)
            fresh = jnp.tanh(fresh + jax.nn.sigmoid(reset + state_reset) * state_fresh)
            new = (1 - update) * fresh + update * state
            state = jnp.where(here[:, None], new, state)
            return state, jnp.where(here[:, None], new, 0)

        start = jnp.zeros((sequence.shape[1], state_weights.shape[0]), sequence.dtype)
        return lax.scan(step, start, (prepared, present), reverse=reverse)[1]

    for ahead, behind in layers:
        both = direction(ahead, sequence, False), direction(behind, sequence, True)
        sequence = jnp.concatenate(both, axis=-1)
    return sequence


def tagged(weights, sequence, lengths, tags):
    """The gated layers with a chain of tags on top: their score against all the others."""
    layers, head, moves = weights
    scores = (gated_layers(layers, sequence, lengths) @ head).astype(jnp.float32)

    def step(total, slices):
        score, here = slices
        new = jax.nn.logsumexp(total[:, :, None] + moves + score[:, None], axis=1)
        return jnp.where(here[:, None], new, total), None

    present = jnp.arange(sequence.shape[0])[:, None] < lengths
    total, _ = lax.scan(step, scores[0], (scores[1:], present[1:]))
    chosen = jnp.take_along_axis(scores, tags[..., None], axis=-1)[..., 0]
    walked = chosen.at[1:].add(moves[tags[:-1], tags[1:]])
    return (jax.nn.logsumexp(total, axis=-1) - (walked * present).sum(axis=0)).mean()


def long_convolution(weights, signals):
    """A diagonal state space in its convolution form: a kernel of complex powers, two FFTs."""
    real, turn, enter, leave = weights
    time = signals.shape[-1]
    poles = -jnp.exp(real) + 1j * turn
    powers = jnp.exp(poles[..., None] * 0.01 * jnp.arange(time))
    kernel = 2.0 * jnp.einsum("cn,cnt->ct", enter + 1j * leave, powers).real
    spectrum = jnp.fft.rfft(signals, 2 * time) * jnp.fft.rfft(kernel, 2 * time)
    return jax.nn.gelu(jnp.fft.irfft(spectrum, 2 * time)[..., :time])


def remembered(function):
    """The sum of what a function gives, with the forward work done again in the backward."""
    return lambda *arguments: jax.checkpoint(function)(*arguments).astype(jnp.float32).sum()


def gated(enter, leave):
    return ("f16", (enter, 3 * leave)), ("f16", (leave, 3 * leave)), ("f16", (3 * leave,))


layers = [(gated(40, 24), gated(40, 24)), (gated(48, 24), gated(48, 24))]
sequence, lengths = ("f16", (35, 10, 40)), ("s32", (10,))
poles = ("f32", (20, 12))

programs = {
    "gated_layers": (gated_layers, (layers, sequence, lengths)),
    "tagged_gradient": (
        jax.value_and_grad(tagged),
        (
            (layers, ("f16", (48, 17)), ("f32", (17, 17))),
            sequence,
            lengths,
            ("s32", (35, 10)),
        ),
    ),
    "long_convolution_gradient": (
        jax.grad(remembered(long_convolution)),
        ((poles, poles, poles, poles), ("f32", (4, 20, 1000))),
    ),
}
