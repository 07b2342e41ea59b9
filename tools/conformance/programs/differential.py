"""Differential, linear and nonlinear equations in diffrax, lineax and optimistix."""

import diffrax
import jax
import jax.numpy as jnp
import lineax
import optimistix


def latent_path(weights, start, times, visited):
    """A neural differential equation, and its loss by a backward equation's adjoint."""

    def slope(time, state, weights):
        hidden = jnp.concatenate([state, jnp.sin(time)[None]])
        for weight, bias in weights:
            hidden = jax.nn.softplus(hidden @ weight + bias)
        return jnp.tanh(hidden) - 0.1 * state

    def one(start):
        return diffrax.diffeqsolve(
            diffrax.ODETerm(slope),
            diffrax.Tsit5(),
            times[0],
            times[-1],
            0.05,
            start,
            weights,
            saveat=diffrax.SaveAt(ts=times),
            stepsize_controller=diffrax.PIDController(1e-4, 1e-6),
            max_steps=64,
            throw=False,
        ).ys

    return jnp.square(jax.vmap(one)(start) - visited).mean()


def noisy_prices(start, bits, drift, spread):
    """Paths of a stochastic equation with correlated noise."""
    key = jax.random.wrap_key_data(bits)

    def one(start, key):
        motion = diffrax.VirtualBrownianTree(0.0, 1.0, 1e-2, shape=(3,), key=key)
        terms = diffrax.MultiTerm(
            diffrax.ODETerm(lambda time, state, _: drift * (1.0 - state)),
            diffrax.ControlTerm(lambda time, state, _: spread * state[:, None], motion),
        )
        times = diffrax.SaveAt(ts=jnp.linspace(0.0, 1.0, 11))
        solution = diffrax.diffeqsolve(
            terms, diffrax.EulerHeun(), 0.0, 1.0, 0.02, start, saveat=times, throw=False
        )
        return solution.ys

    paths = jax.vmap(one)(start, jax.random.split(key, start.shape[0]))
    return paths.mean(axis=0), jnp.maximum(paths[:, -1].max(axis=-1) - 1.0, 0.0).mean()


def fitted_curves(times, measured, start):
    """Decaying oscillations fitted to many measurements, each by damped least squares."""

    def residual(weights, measured):
        size, decay, speed, phase = weights
        return size * jnp.exp(-decay * times) * jnp.cos(speed * times + phase) - measured

    def one(measured, start):
        solver = optimistix.LevenbergMarquardt(rtol=1e-4, atol=1e-4)
        solution = optimistix.least_squares(
            residual, solver, start, measured, max_steps=30, throw=False
        )
        return solution.value, jnp.square(residual(solution.value, measured)).sum()

    return jax.vmap(one)(measured, start)


def implicit_heat(field, conduct, right):
    """An implicit step of heat with uneven conduction, by a method without matrices."""

    def applied(field):
        flow = conduct[1:] * (field[1:] - field[:-1])
        across = conduct[:, 1:] * (field[:, 1:] - field[:, :-1])
        change = jnp.zeros_like(field).at[1:].add(-flow).at[:-1].add(flow)
        change = change.at[:, 1:].add(-across).at[:, :-1].add(across)
        return field - 0.1 * change

    operator = lineax.FunctionLinearOperator(applied, jax.eval_shape(lambda: field))
    solver = lineax.GMRES(1e-4, 1e-4, restart=10, max_steps=30)
    solution = lineax.linear_solve(operator, field + right, solver, throw=False)
    bands = lineax.TridiagonalLinearOperator(
        1.0 + conduct[0], -0.4 * conduct[0, 1:], -0.4 * conduct[0, :-1]
    )
    edge = lineax.linear_solve(bands, right[0], lineax.Tridiagonal(), throw=False)
    return solution.value, edge.value


layers = [(("f32", (9, 32)), ("f32", (32,))), (("f32", (32, 8)), ("f32", (8,)))]
plate = ("f32", (70, 66))

programs = {
    "latent_path_gradient": (
        jax.grad(latent_path),
        (layers, ("f32", (20, 8)), ("f32", (15,)), ("f32", (20, 15, 8))),
    ),
    "noisy_prices": (
        noisy_prices,
        (("f32", (300, 4)), ("u32", (2,)), ("f32", ()), ("f32", (3,))),
    ),
    "fitted_curves": (fitted_curves, (("f32", (100,)), ("f32", (25, 100)), ("f32", (25, 4)))),
    "implicit_heat": (implicit_heat, (plate, plate, plate)),
}
