"""The program behind this dump and its trace."""

import jax
import jax.numpy as jnp
import numpy as np


def step(w, x):
    def body(_, y):
        return jnp.tanh(y @ w) + jnp.sin(y)

    y = jax.lax.fori_loop(0, 3, body, x)
    z = jax.lax.cond(y.sum() > 0, lambda a: jnp.exp(a).sum(0), lambda a: a.max(0), y)
    noise = jax.random.uniform(jax.random.key(0), x.shape)
    return z, jnp.sort(y, axis=0), y * noise


if __name__ == "__main__":
    arguments = [np.full((256, 256), 0.01, np.float32), np.ones((256, 256), np.float32)]
    run = jax.jit(step).lower(*arguments).compile()
    jax.block_until_ready(run(*arguments))
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # only what the compiled program does
    with jax.profiler.trace("trace", profiler_options=options):
        for _ in range(5):
            jax.block_until_ready(run(*arguments))
