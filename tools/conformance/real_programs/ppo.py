"""A step of proximal policy optimization on 256 cart poles, with rollout and advantages."""

import jax
import jax.numpy as jnp

N, T, OBSERVED, A = 256, 64, 4, 2


def env(s, a):
    x, xd, th, thd = s.T
    f = jnp.where(a == 1, 10.0, -10.0)
    t = (f + 0.05 * thd**2 * jnp.sin(th)) / 1.1
    ta = (9.8 * jnp.sin(th) - jnp.cos(th) * t) / (0.5 * (4 / 3 - 0.1 * jnp.cos(th) ** 2 / 1.1))
    xa = t - 0.05 * ta * jnp.cos(th) / 1.1
    s = jnp.stack([x + 0.02 * xd, xd + 0.02 * xa, th + 0.02 * thd, thd + 0.02 * ta], -1)
    d = (jnp.abs(s[:, 0]) > 2.4) | (jnp.abs(s[:, 2]) > 0.2)
    return jnp.where(d[:, None], 0.0, s), jnp.ones(N), d


def pol(p, o):
    h = jnp.tanh(o @ p["a"] + p["ab"])
    return h @ p["l"], (h @ p["v"])[:, 0]


def step(p, s, k):
    def roll(c, _):
        s, k = c
        k, kk = jax.random.split(k)
        lg, v = pol(p, s)
        a = jax.random.categorical(kk, lg)
        lp = jnp.take_along_axis(jax.nn.log_softmax(lg), a[:, None], 1)[:, 0]
        n, r, d = env(s, a)
        return (n, k), (s, a, lp, v, r, d)

    (s, k), (o, a, lp, v, r, d) = jax.lax.scan(roll, (s, k), None, T)

    def gae(c, x):
        adv, nv = c
        v, r, d = x
        de = r + 0.99 * nv * (1 - d) - v
        adv = de + 0.95 * 0.99 * (1 - d) * adv
        return (adv, v), adv

    _, adv = jax.lax.scan(
        gae, (jnp.zeros(N), pol(p, s)[1]), (v, r, d.astype(jnp.float32)), reverse=True
    )

    def loss(p):
        lg, nv = pol(p, o.reshape(-1, OBSERVED))
        log_p = jax.nn.log_softmax(lg)
        q = jnp.take_along_axis(log_p, a.reshape(-1, 1), 1)[:, 0]
        ra = jnp.exp(q - lp.reshape(-1))
        ad = adv.reshape(-1)
        ad = (ad - ad.mean()) / (ad.std() + 1e-8)
        return (
            -jnp.minimum(ra * ad, jnp.clip(ra, 0.8, 1.2) * ad).mean()
            + 0.5 * ((nv - (adv + v).reshape(-1)) ** 2).mean()
            + 0.01 * (jnp.exp(log_p) * log_p).sum(-1).mean()
        )

    value, g = jax.value_and_grad(loss)(p)
    return jax.tree.map(lambda a, b: a - 0.01 * b, p, g), s, k, value


def array(*sizes):
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


example_args = (
    {"a": array(OBSERVED, 64), "ab": array(64), "l": array(64, A), "v": array(64, 1)},
    array(N, OBSERVED),
    jax.ShapeDtypeStruct((2,), jnp.uint32),
)
