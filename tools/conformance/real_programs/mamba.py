"""A selective state space model, evaluated by an associative scan."""

import jax
import jax.numpy as jnp

B, T, D, N = 4, 256, 128, 16


def step(p, x):
    z, g = jnp.split(x @ p["i"], 2, -1)
    z = jax.nn.silu(
        sum(jnp.pad(z, ((0, 0), (k, 0), (0, 0)))[:, :T] * p["conv"][k] for k in range(4))
    )
    dt = jax.nn.softplus(z @ p["dt"])
    b_in, c_out = z @ p["B"], z @ p["C"]
    a = jnp.exp(-dt[..., None] * jnp.exp(p["A"]))
    b = dt[..., None] * b_in[:, :, None] * z[..., None]

    def combine(left, right):
        return left[0] * right[0], right[0] * left[1] + right[1]

    _, h = jax.lax.associative_scan(combine, (a, b), axis=1)
    return ((jnp.einsum("btdn,btn->btd", h, c_out) + p["Dp"] * z) * jax.nn.silu(g)) @ p["o"]


def array(*sizes):
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


example_args = (
    {
        "i": array(D, 2 * D),
        "conv": array(4, D),
        "dt": array(D, D),
        "B": array(D, N),
        "C": array(D, N),
        "A": array(D, N),
        "Dp": array(D),
        "o": array(D, D),
    },
    array(B, T, D),
)
