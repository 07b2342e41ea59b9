"""The program of this dump; captured for an H100 with --flag xla_dump_emitter_re=.* by 0.12.0.1.

Only the files that are read for registers and spills were kept.
"""

import jax
import jax.numpy as jnp


def step(*inputs):
    values = [
        jnp.roll(source, place + 1, 0) / (1.5 + jnp.abs(source))
        + jnp.where(source > 0, jnp.sin(source), jnp.cos(source))
        for place, source in enumerate(inputs)
    ]
    count = len(values)
    for k in range(6):
        values = [
            values[i] * values[(i + k + 1) % count] + jnp.exp(-(values[(i * 3 + k) % count] ** 2))
            for i in range(count)
        ]
    return sum(values)


example_args = tuple(jax.ShapeDtypeStruct((512, 512), jnp.float32) for _ in range(40))
