"""A training step of a perceptron with dropout, clipped gradients and LAMB (Optax)."""

import itertools

import jax
import jax.numpy as jnp
import optax

D = [784, 512, 512, 512, 10]
opt = optax.chain(optax.clip_by_global_norm(1.0), optax.lamb(1e-3, weight_decay=1e-2))


def loss(p, k, x, y):
    for i, (w, b) in enumerate(p):
        x = x @ w + b
        if i < len(p) - 1:
            k, s = jax.random.split(k)
            x = jax.nn.relu(x)
            x = jnp.where(jax.random.bernoulli(s, 0.9, x.shape), x / 0.9, 0)
    return optax.softmax_cross_entropy(x, y * 0.9 + 0.01).mean()


def step(p, o, k, x, y):
    value, g = jax.value_and_grad(loss)(p, k, x, y)
    u, o = opt.update(g, o, p)
    return optax.apply_updates(p, u), o, value


def array(*sizes):
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


_p = [(array(a, b), array(b)) for a, b in itertools.pairwise(D)]
example_args = (
    _p,
    jax.eval_shape(opt.init, _p),
    jax.ShapeDtypeStruct((2,), jnp.uint32),
    array(256, 784),
    array(256, 10),
)
