"""A training step of a graph network with two rounds of messages (Jraph, Haiku, Adam)."""

import haiku as hk
import jax
import jax.numpy as jnp
import jraph
import optax

N, Ee, F = 2048, 8192, 32


def net(g):
    def mlp(x):
        return hk.nets.MLP([64, 64])(x)

    g = g._replace(nodes=hk.Linear(64)(g.nodes), edges=hk.Linear(64)(g.edges))
    for _ in range(2):
        gn = jraph.GraphNetwork(
            update_edge_fn=lambda e, s, r, u: mlp(jnp.concatenate([e, s, r], -1)),
            update_node_fn=lambda n, s, r, u: mlp(jnp.concatenate([n, s, r], -1)),
        )
        h = gn(g)
        g = g._replace(nodes=g.nodes + h.nodes, edges=g.edges + h.edges)
    return hk.Linear(1)(g.nodes)


model = hk.without_apply_rng(hk.transform(net))
opt = optax.adam(1e-3)


def graph(nodes, edges, s, r):
    return jraph.GraphsTuple(nodes, edges, r, s, None, jnp.array([N]), jnp.array([Ee]))


def loss(p, n, e, s, r, y):
    return ((model.apply(p, graph(n, e, s, r)) - y) ** 2).mean()


def step(p, o, n, e, s, r, y):
    value, g = jax.value_and_grad(loss)(p, n, e, s, r, y)
    u, o = opt.update(g, o, p)
    return optax.apply_updates(p, u), o, value


S = jax.ShapeDtypeStruct
_a = (S((N, F), jnp.float32), S((Ee, 8), jnp.float32), S((Ee,), jnp.int32), S((Ee,), jnp.int32))
_p = jax.eval_shape(lambda k, *a: model.init(k, graph(*a)), jax.random.key(0), *_a)
example_args = (_p, jax.eval_shape(opt.init, _p), *_a, S((N, 1), jnp.float32))
