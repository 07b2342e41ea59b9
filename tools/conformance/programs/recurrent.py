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


def transcribed(weights, frames, labels):
    """The loss over all alignments of frames and labels, with a recurrent layer below it."""
    inputs, state_weights, head = weights

    def cell(carry, frame):
        hidden, memory = carry
        gates = frame @ inputs + hidden @ state_weights
        enter, forget, change, leave = jnp.split(gates, 4, axis=-1)
        memory = jax.nn.sigmoid(forget + 1) * memory + jax.nn.sigmoid(enter) * jnp.tanh(change)
        hidden = jax.nn.sigmoid(leave) * jnp.tanh(memory)
        return (hidden, memory), hidden

    zero = jnp.zeros((frames.shape[1], state_weights.shape[0]))
    _, hidden = lax.scan(cell, (zero, zero), frames)
    logarithms = jax.nn.log_softmax(hidden @ head)
    batch, count = labels.shape
    spaced = jnp.zeros((batch, 2 * count + 1), labels.dtype).at[:, 1::2].set(labels)
    emitted = jnp.take_along_axis(
        logarithms, jnp.broadcast_to(spaced, (frames.shape[0], *spaced.shape)), axis=-1
    )
    jump = jnp.pad(spaced[:, 2:] != spaced[:, :-2], ((0, 0), (2, 0))) & (spaced > 0)

    def step(alpha, emitted):
        one = jnp.pad(alpha[:, :-1], ((0, 0), (1, 0)), constant_values=-1e5)
        two = jnp.pad(alpha[:, :-2], ((0, 0), (2, 0)), constant_values=-1e5)
        two = jnp.where(jump, two, -1e5)
        return jnp.logaddexp(jnp.logaddexp(alpha, one), two) + emitted, None

    start = jnp.where(jnp.arange(2 * count + 1) < 2, emitted[0], -1e5)
    alpha, _ = lax.scan(step, start, emitted[1:])
    return -jnp.logaddexp(alpha[:, -1], alpha[:, -2]).mean()


def selective_scan(weights, inputs):
    """A selective state space: short convolution, states kept by input, a gate."""
    joined, kernel, parts, steps, rates, skip, out = weights
    hidden, gate = jnp.split(inputs @ joined, 2, axis=-1)
    width = hidden.shape[-1]
    hidden = lax.conv_general_dilated(
        hidden,
        kernel,
        (1,),
        [(3, 0)],
        dimension_numbers=("NWC", "WIO", "NWC"),
        feature_group_count=width,
    )
    hidden = jax.nn.silu(hidden)
    step, enter, leave = jnp.split(hidden @ parts, (8, 24), axis=-1)
    step = jax.nn.softplus(step @ steps)
    decay = jnp.exp(-step[..., None] * jnp.exp(rates))
    pushed = (step * hidden)[..., None] * enter[:, :, None]

    def combine(left, right):
        return left[0] * right[0], right[0] * left[1] + right[1]

    _, states = lax.associative_scan(combine, (decay, pushed), axis=1)
    read = jnp.einsum("btwn,btn->btw", states, leave) + skip * hidden
    return (read * jax.nn.silu(gate)) @ out


def long_convolution(weights, signals):
    """A diagonal state space in its convolution form: a kernel of complex powers, two FFTs."""
    real, turn, enter, leave = weights
    time = signals.shape[-1]
    poles = -jnp.exp(real) + 1j * turn
    powers = jnp.exp(poles[..., None] * 0.01 * jnp.arange(time))
    kernel = 2.0 * jnp.einsum("cn,cnt->ct", enter + 1j * leave, powers).real
    spectrum = jnp.fft.rfft(signals, 2 * time) * jnp.fft.rfft(kernel, 2 * time)
    return jax.nn.gelu(jnp.fft.irfft(spectrum, 2 * time)[..., :time])


def delta_rule(query, key, value, rate):
    """Linear attention whose memory is corrected at each step, in half precision outside."""

    def step(memory, slices):
        query, key, value, rate = (part.astype(jnp.float32) for part in slices)
        key = key * lax.rsqrt((key**2).sum(axis=-1, keepdims=True) + 1e-6)
        error = value - jnp.einsum("hkv,hk->hv", memory, key)
        memory = memory + jnp.einsum("hk,hv->hkv", key, error * rate[:, None])
        return memory, jnp.einsum("hkv,hk->hv", memory, query).astype(jnp.bfloat16)

    heads, width = query.shape[1:]
    start = jnp.zeros((heads, width, value.shape[-1]))
    return lax.scan(step, start, (query, key, value, rate))[1]


def weather_cell(kernel, maps, start):
    """A cell of convolutions that reads maps in time and forecasts as many as it read."""

    def cell(carry, seen):
        hidden, memory = carry
        joined = jnp.concatenate([seen, hidden], axis=-1)
        gates = lax.conv_general_dilated(
            joined, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        enter, forget, leave, change = jnp.split(gates, 4, axis=-1)
        memory = jax.nn.sigmoid(forget) * memory + jax.nn.sigmoid(enter) * jnp.tanh(change)
        hidden = jax.nn.sigmoid(leave) * jnp.tanh(memory)
        return (hidden, memory), hidden[..., :1]

    def forecast(carry, _):
        hidden = carry[0]
        return cell(carry, hidden[..., :1])

    carry, _ = lax.scan(cell, (start, start), maps)
    _, ahead = lax.scan(forecast, carry, length=4)
    return jnp.square(ahead[-1] - maps[-1]).mean()


def attending_decoder(weights, memory, words):
    """A recurrent decoder that looks at the whole of its memory before each word."""
    table, query, keys, energy, cell, head = weights
    prepared = memory @ keys

    def step(state, word):
        scores = jnp.tanh(prepared + (state @ query)[:, None]) @ energy
        shares = jax.nn.softmax(scores, axis=-1)
        context = jnp.einsum("bt,btd->bd", shares, memory)
        state = jnp.tanh(jnp.concatenate([table[word], context, state], axis=-1) @ cell)
        return state, state @ head

    start = memory.mean(axis=1)[:, : query.shape[0]]
    _, logits = lax.scan(step, start, words[:-1])
    logarithms = jax.nn.log_softmax(logits)
    return -jnp.take_along_axis(logarithms, words[1:, :, None], axis=-1).mean()


def remembered(function):
    """The sum of what a function gives, with the forward work done again in the backward."""
    return lambda *arguments: jax.checkpoint(function)(*arguments).astype(jnp.float32).sum()


def gated(enter, leave):
    return ("f16", (enter, 3 * leave)), ("f16", (leave, 3 * leave)), ("f16", (3 * leave,))


layers = [(gated(40, 24), gated(40, 24)), (gated(48, 24), gated(48, 24))]
sequence, lengths = ("f16", (35, 10, 40)), ("s32", (10,))
selective = (
    ("f32", (64, 256)),
    ("f32", (4, 1, 128)),
    ("f32", (128, 40)),
    ("f32", (8, 128)),
    ("f32", (128, 16)),
    ("f32", (128,)),
    ("f32", (128, 64)),
)
poles = ("f32", (20, 12))
decoder = (
    ("f32", (400, 28)),
    ("f32", (36, 44)),
    ("f32", (52, 44)),
    ("f32", (44,)),
    ("f32", (116, 36)),
    ("f32", (36, 400)),
)

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
    "transcribed_gradient": (
        jax.grad(transcribed),
        (
            (("f32", (26, 160)), ("f32", (40, 160)), ("f32", (40, 30))),
            ("f32", (75, 6, 26)),
            ("s32", (6, 14)),
        ),
    ),
    "selective_scan": (selective_scan, (selective, ("f32", (2, 100, 64)))),
    "selective_scan_gradient": (
        jax.grad(remembered(selective_scan)),
        (selective, ("f32", (2, 100, 64))),
    ),
    "long_convolution_gradient": (
        jax.grad(remembered(long_convolution)),
        ((poles, poles, poles, poles), ("f32", (4, 20, 1000))),
    ),
    "delta_rule": (
        delta_rule,
        (
            ("bf16", (300, 5, 32)),
            ("bf16", (300, 5, 32)),
            ("bf16", (300, 5, 48)),
            ("bf16", (300, 5)),
        ),
    ),
    "weather_cell_gradient": (
        jax.grad(weather_cell),
        (("f32", (3, 3, 13, 48)), ("f32", (6, 3, 22, 26, 1)), ("f32", (3, 22, 26, 12))),
    ),
    "attending_decoder_gradient": (
        jax.grad(attending_decoder),
        (decoder, ("f32", (7, 33, 52)), ("s32", (18, 7))),
    ),
}
