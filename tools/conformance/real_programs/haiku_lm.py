"""A training step of a language model with three transformer blocks (Haiku, AdamW)."""

import haiku as hk
import jax
import jax.numpy as jnp
import optax

V, D, L, H, T, B = 1024, 256, 3, 4, 128, 8


def net(tokens):
    x = hk.Embed(V, D)(tokens) + hk.get_parameter(
        "pos", [T, D], init=hk.initializers.RandomNormal(0.02)
    )
    mask = jnp.tril(jnp.ones((1, 1, T, T)))
    for _ in range(L):
        h = hk.LayerNorm(-1, True, True)(x)
        x = x + hk.MultiHeadAttention(
            H, D // H, w_init=hk.initializers.VarianceScaling(), model_size=D
        )(h, h, h, mask=mask)
        h = hk.LayerNorm(-1, True, True)(x)
        x = x + hk.Linear(D)(jax.nn.gelu(hk.Linear(4 * D)(h)))
    return hk.Linear(V)(hk.LayerNorm(-1, True, True)(x))


model = hk.without_apply_rng(hk.transform(net))
opt = optax.adamw(1e-3)


def loss(p, tok, tgt):
    lp = jax.nn.log_softmax(model.apply(p, tok))
    return -jnp.take_along_axis(lp, tgt[..., None], -1).mean()


def step(p, s, tok, tgt):
    value, g = jax.value_and_grad(loss)(p, tok, tgt)
    u, s = opt.update(g, s, p)
    return optax.apply_updates(p, u), s, value


_tok = jax.ShapeDtypeStruct((B, T), jnp.int32)
_p = jax.eval_shape(model.init, jax.random.key(0), _tok)
example_args = (_p, jax.eval_shape(opt.init, _p), _tok, _tok)
