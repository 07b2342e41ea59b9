"""Programs with loops, branches and calls, for the check `launches`: ours, and of packages.

Each is a function without arguments that returns a function and its arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax, random
from jax.experimental import ode
from jax.scipy import integrate, linalg, optimize, special, stats
from jax.scipy.sparse import linalg as sparse

Program = tuple[Callable[..., Any], tuple[Any, ...]]

_ROW = jnp.linspace(0.1, 0.9, 64)
_SQUARE = jnp.outer(_ROW[:32], _ROW[:32]) + 4 * jnp.eye(32)
_LARGE = jnp.outer(jnp.linspace(0, 1, 256), jnp.linspace(0, 1, 512))
_KEY = random.key(0)


def _fori(steps: int, body: Callable[[Any, Any], Any], start: Any) -> Program:
    return (lambda x: lax.fori_loop(0, steps, body, x)), (start,)


def _collatz(n: Any) -> Any:
    def step(state: Any) -> Any:
        n, count = state
        return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), count + 1

    return lax.while_loop(lambda state: state[0] > 1, step, (n, 0))[1]


def _newton(x: Any) -> Any:
    def far(state: Any) -> Any:
        return (state[0] < 20) & (jnp.abs(state[1] ** 2 - 2).max() > 1e-5)

    return lax.while_loop(far, lambda s: (s[0] + 1, 0.5 * (s[1] + 2 / s[1])), (0, x))


def _sorting(x: Any) -> Any:
    """A sort in a loop keeps the loop out of a function."""
    return lax.fori_loop(0, 5, lambda i, y: jnp.sin(jnp.sort(y)) + i, x)


def _sorting_until(x: Any) -> Any:
    def step(state: Any) -> Any:
        count, y = state
        return count + 1, jnp.cos(jnp.sort(y))

    return lax.while_loop(lambda s: (s[0] < 9) & (s[1].sum() > 40.0), step, (0, x))


def _nested_sorting(x: Any) -> Any:
    def inner(_: Any, y: Any) -> Any:
        return jnp.sort(jnp.sin(y)) * 1.5

    return lax.fori_loop(0, 3, lambda i, y: lax.fori_loop(0, 4, inner, y) + i, x)


def _varying(x: Any) -> Any:
    def inner(i: Any) -> Callable[[Any, Any], Any]:
        return lambda _, y: jnp.sort(jnp.sin(y) + i)

    return lax.fori_loop(0, 4, lambda i, y: lax.fori_loop(0, i + 1, inner(i), y), x)


def _scan(x: Any) -> Any:
    return lax.scan(lambda c, row: (jnp.tanh(c + row), c.sum()), jnp.zeros(512), x)


def _scan_sorting(x: Any) -> Any:
    return lax.scan(lambda c, row: (jnp.sort(c + row), c[0]), jnp.zeros(512), x)


def _cond(x: Any) -> Any:
    return lax.cond(x.sum() > 0, lambda y: jnp.sin(y) @ y.T, lambda y: y @ y.T, x)


def _switch(x: Any) -> Any:
    branches = [jnp.sin, jnp.cos, lambda y: jnp.sort(y, axis=0), jnp.cumsum]
    branches[-1] = lambda y: jnp.cumsum(y, axis=0)
    return lax.switch(jnp.int32(x[0, 0] + 2), branches, x)


def _cond_in_loop(x: Any) -> Any:
    def step(i: Any, y: Any) -> Any:
        return lax.cond(i % 2 == 0, jnp.sort, jnp.sin, y)

    return lax.fori_loop(0, 6, step, x)


def _loop_in_cond(x: Any) -> Any:
    def repeat(y: Any) -> Any:
        return lax.fori_loop(0, 5, lambda i, z: jnp.sort(jnp.sin(z)) + i, y)

    return lax.cond(x[0] > 0, repeat, jnp.cos, x)


@jax.jit
def _layer(x: Any) -> Any:
    return jnp.tanh(x @ x.T)[:, :16]


def _calls(x: Any) -> Any:
    return _layer(_layer(x)) + 1


def _remat(x: Any) -> Any:
    return jax.grad(lambda y: jax.checkpoint(lambda z: jnp.sin(jnp.sin(z)))(y).sum())(x)


def _descent(x: Any) -> Any:
    gradient = jax.grad(lambda w: jnp.sum((x @ w - 1) ** 2))
    return lax.fori_loop(0, 10, lambda _, w: w - 0.01 * gradient(w), jnp.zeros(512))


def _rnn(x: Any) -> Any:
    def loss(w: Any) -> Any:
        return lax.scan(lambda h, row: (jnp.tanh(w @ h + row), None), x[0], x)[0].sum()

    return jax.grad(loss)(jnp.eye(x.shape[1]))


def _decode(x: Any) -> Any:
    def step(state: Any) -> Any:
        i, _, tokens = state
        scores = jnp.sort(x[i] + tokens.sum())
        tokens = tokens.at[i].set(jnp.argmax(scores).astype(tokens.dtype))
        return i + 1, tokens[i] == 3, tokens

    start = (0, False, jnp.zeros(16, jnp.int32))
    return lax.while_loop(lambda s: (s[0] < 16) & ~s[1], step, start)


def _histogram(x: Any) -> Any:
    return jnp.zeros(16).at[(x * 16).astype(int)].add(x)


OURS: dict[str, Program] = {
    "fori_small": _fori(7, lambda i, x: jnp.sin(x) + i, _ROW),
    "fori_large": _fori(5, lambda i, x: jnp.sin(x) * 0.5 + i, _LARGE),
    "fori_dot": _fori(6, lambda _, x: jnp.tanh(x @ x), _SQUARE),
    "fori_nested": _fori(3, lambda i, x: lax.fori_loop(0, 4, lambda _, y: jnp.sin(y), x) + i, _ROW),
    "fori_zero": _fori(0, lambda _, x: jnp.sin(x), _ROW),
    "fori_one": _fori(1, lambda _, x: jnp.sort(x), _ROW),
    "fori_down": (
        lambda x: lax.while_loop(lambda s: s[0] > 0, lambda s: (s[0] - 3, jnp.sort(s[1])), (10, x)),
        (_ROW,),
    ),
    "fori_dynamic": (
        lambda n, x: lax.fori_loop(0, n, lambda i, y: jnp.sort(jnp.sin(y)) + i, x),
        (jnp.int32(5), _ROW),
    ),
    "fori_unroll": (
        lambda x: lax.fori_loop(0, 16, lambda i, y: jnp.sort(y) + i, x, unroll=4),
        (_ROW,),
    ),
    "sorting": (_sorting, (_ROW,)),
    "sorting_until": (_sorting_until, (_ROW,)),
    "nested_sorting": (_nested_sorting, (_ROW,)),
    "varying": (_varying, (_ROW,)),
    "collatz": (_collatz, (jnp.int32(27),)),
    "newton": (_newton, (_ROW,)),
    "scan": (_scan, (_LARGE,)),
    "scan_sorting": (_scan_sorting, (_LARGE[:20],)),
    "scan_reverse": (lambda x: lax.scan(lambda c, r: (c + r, c), x[0], x, reverse=True), (_LARGE,)),
    "map": (lambda x: lax.map(lambda row: jnp.sort(row).cumsum(), x), (_LARGE[:12],)),
    "associative_scan": (lambda x: lax.associative_scan(jnp.multiply, x), (_ROW,)),
    "cond": (_cond, (_SQUARE,)),
    "switch": (_switch, (_SQUARE,)),
    "cond_in_loop": (_cond_in_loop, (_ROW,)),
    "loop_in_cond": (_loop_in_cond, (_ROW,)),
    "vmap_cond": (jax.vmap(lambda x: lax.cond(x > 0.5, jnp.sin, jnp.cos, x)), (_ROW,)),
    "vmap_while": (jax.vmap(_collatz), (jnp.arange(1, 33, dtype=jnp.int32),)),
    "vmap_newton": (jax.vmap(_newton), (_LARGE[1:5, 1:9],)),
    "calls": (_calls, (_SQUARE[:, :16],)),
    "remat": (_remat, (_ROW,)),
    "descent": (_descent, (_LARGE,)),
    "rnn": (_rnn, (_SQUARE,)),
    "decode": (_decode, (_LARGE[:16],)),
    "histogram": (_histogram, (_ROW,)),
    "sort_pairs": (lambda x: lax.sort((x, -x), num_keys=1), (_ROW,)),
    "argsort": (lambda x: jnp.argsort(jnp.sin(x)), (_ROW,)),
    "top_k": (lambda x: lax.top_k(x, 5), (_LARGE,)),
    "fft": (lambda x: jnp.fft.fft(jnp.fft.fft(x)).real, (_LARGE,)),
    "convolution": (
        lambda x, w: lax.conv(x, w, (1, 1), "SAME"),
        (_LARGE.reshape(2, 4, 128, 128), jnp.ones((8, 4, 3, 3))),
    ),
    "cumulative": (lambda x: lax.cummax(jnp.cumsum(x, 1), 0), (_LARGE,)),
    "dynamic_update": (
        lambda x: lax.fori_loop(0, 8, lambda i, y: y.at[i].set(jnp.sort(y[i + 1])), x),
        (_LARGE,),
    ),
}  # fmt: skip

PACKAGES: dict[str, Program] = {
    "random.normal": (lambda key: random.normal(key, (128, 16)), (_KEY,)),
    "random.permutation": (lambda key: random.permutation(key, 100), (_KEY,)),
    "random.poisson": (lambda key: random.poisson(key, 4.0, (64,)), (_KEY,)),
    "random.gamma": (lambda key: random.gamma(key, 2.0, (32,)), (_KEY,)),
    "random.choice": (lambda key, x: random.choice(key, x, (10,), replace=False), (_KEY, _ROW)),
    "random.binomial": (lambda key: random.binomial(key, 10.0, 0.3, (16,)), (_KEY,)),
    "special.betainc": (lambda x: special.betainc(2.0, 3.0, x), (_ROW,)),
    "special.gammainc": (lambda x: special.gammainc(2.5, x), (_ROW,)),
    "special.zeta": (lambda x: special.zeta(x + 2, 1.5), (_ROW,)),
    "special.i0e": (special.i0e, (_ROW,)),
    "sparse.cg": (lambda a: sparse.cg(a, a[0])[0], (_SQUARE,)),
    "sparse.gmres": (lambda a: sparse.gmres(a, a[0], maxiter=3, restart=5)[0], (_SQUARE,)),
    "sparse.bicgstab": (lambda a: sparse.bicgstab(a, a[0])[0], (_SQUARE,)),
    "optimize.bfgs": (
        lambda x: optimize.minimize(lambda y: jnp.sum((y - 1) ** 4), x, method="BFGS").x,
        (_ROW[:6],),
    ),
    "ode.odeint": (
        lambda x: ode.odeint(lambda y, t: -y * t, x, jnp.linspace(0.0, 1.0, 4)),
        (_ROW[:4],),
    ),
    "integrate.trapezoid": (integrate.trapezoid, (_ROW,)),
    "linalg.expm": (linalg.expm, (_SQUARE[:8, :8],)),
    "linalg.solve": (lambda a: jnp.linalg.solve(a, a[0]), (_SQUARE,)),
    "linalg.cholesky": (jnp.linalg.cholesky, (_SQUARE @ _SQUARE.T,)),
    "linalg.eigh": (jnp.linalg.eigh, (_SQUARE,)),
    "linalg.qr": (jnp.linalg.qr, (_SQUARE,)),
    "linalg.polar": (lambda a: linalg.polar(a, method="qdwh"), (_SQUARE[:8, :8],)),
    "linalg.matrix_power": (lambda a: jnp.linalg.matrix_power(a * 0.1, 9), (_SQUARE,)),
    "searchsorted": (lambda x: jnp.searchsorted(x, x[::3]), (_ROW,)),
    "unique": (lambda x: jnp.unique(jnp.round(x, 1), size=16), (_ROW,)),
    "median": (jnp.median, (_LARGE,)),
    "stats.gaussian_kde": (lambda x: stats.gaussian_kde(x)(x[:8]), (_ROW,)),
    "interp": (lambda x: jnp.interp(x * 0.9, x, x**2), (_ROW,)),
}  # fmt: skip

if find_spec("optax"):
    import optax

    def _lbfgs(x: Any) -> Any:
        optimizer = optax.lbfgs()
        loss = lambda y: jnp.sum((y - 1) ** 4)  # noqa: E731

        def step(_: Any, state: Any) -> Any:
            values, memory = state
            value, gradient = optax.value_and_grad_from_state(loss)(values, state=memory)
            updates, memory = optimizer.update(
                gradient, memory, values, value=value, grad=gradient, value_fn=loss
            )
            return optax.apply_updates(values, updates), memory

        return lax.fori_loop(0, 3, step, (x, optimizer.init(x)))[0]

    def _adam(x: Any) -> Any:
        optimizer = optax.adamw(1e-2)
        updates, _ = optimizer.update(jnp.cos(x), optimizer.init(x), x)
        return optax.apply_updates(x, updates)

    PACKAGES["optax.lbfgs"] = (_lbfgs, (_ROW[:6],))
    PACKAGES["optax.adamw"] = (_adam, (_LARGE,))
    PACKAGES["optax.ctc"] = (
        lambda x: optax.ctc_loss(
            x.reshape(2, 16, 16), jnp.zeros((2, 16)), jnp.ones((2, 4), int), jnp.zeros((2, 4))
        ),
        (_LARGE[:1],),
    )

if find_spec("diffrax"):
    import diffrax

    def _diffrax(x: Any) -> Any:
        return diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, _: -y * t),
            diffrax.Tsit5(),
            0.0,
            1.0,
            0.1,
            x,
            stepsize_controller=diffrax.PIDController(1e-4, 1e-6),
        ).ys

    PACKAGES["diffrax.tsit5"] = (_diffrax, (_ROW[:4],))

programs = OURS | PACKAGES
