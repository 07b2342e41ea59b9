"""Three leapfrog steps on the posterior of a hierarchical regression (NumPyro)."""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer.util import potential_energy

N, D, G = 4096, 24, 50


def model(x, g, y):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    with numpyro.plate("groups", G):
        a = numpyro.sample("a", dist.Normal(mu, tau))
    w = numpyro.sample("w", dist.Normal(jnp.zeros(D), 1).to_event(1))
    s = numpyro.sample("s", dist.HalfCauchy(1.0))
    with numpyro.plate("data", N):
        numpyro.sample("y", dist.StudentT(4.0, a[g] + x @ w, s), obs=y)


def step(q, p, x, g, y):
    def u(q):
        return potential_energy(model, (x, g, y), {}, q)

    for _ in range(3):
        e, gr = jax.value_and_grad(u)(q)
        p = jax.tree.map(lambda a, b: a - 0.005 * b, p, gr)
        q = jax.tree.map(lambda a, b: a + 0.01 * b, q, p)
    return q, p, e


S = jax.ShapeDtypeStruct
f = jnp.float32
_q = {"mu": S((), f), "tau": S((), f), "a": S((G,), f), "w": S((D,), f), "s": S((), f)}
example_args = (_q, _q, S((N, D), f), S((N,), jnp.int32), S((N,), f))
