"""A training step of a small residual network with batch normalization (Flax, Optax)."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax


class Block(nn.Module):
    f: int
    s: int = 1

    @nn.compact
    def __call__(self, x):
        def n():
            return nn.BatchNorm(use_running_average=False, momentum=0.9)

        y = nn.relu(n()(nn.Conv(self.f, (3, 3), (self.s, self.s), use_bias=False)(x)))
        y = n()(nn.Conv(self.f, (3, 3), use_bias=False)(y))
        if x.shape != y.shape:
            x = n()(nn.Conv(self.f, (1, 1), (self.s, self.s), use_bias=False)(x))
        return nn.relu(x + y)


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Conv(32, (3, 3))(x)
        for f, s in ((32, 1), (64, 2), (64, 1)):
            x = Block(f, s)(x)
        return nn.Dense(10)(x.mean((1, 2)))


net = Net()
opt = optax.sgd(0.1, momentum=0.9)


def loss(p, bs, x, y):
    out, new = net.apply({"params": p, "batch_stats": bs}, x, mutable=["batch_stats"])
    return optax.softmax_cross_entropy_with_integer_labels(out, y).mean(), new["batch_stats"]


def step(p, bs, o, x, y):
    (value, bs), g = jax.value_and_grad(loss, has_aux=True)(p, bs, x, y)
    u, o = opt.update(g, o, p)
    return optax.apply_updates(p, u), bs, o, value


S = jax.ShapeDtypeStruct
_x = S((64, 32, 32, 3), jnp.float32)
_v = jax.eval_shape(net.init, jax.random.key(0), _x)
example_args = (
    _v["params"],
    _v["batch_stats"],
    jax.eval_shape(opt.init, _v["params"]),
    _x,
    S((64,), jnp.int32),
)
programs = {"step": (step, example_args)}
