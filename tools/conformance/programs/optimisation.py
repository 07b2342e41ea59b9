"""Solvers and optimizers as people write them: control, fitting, transport, second order."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import cho_factor, cho_solve


def regulated(start, controls, goal):
    """One pass of an iterative linear regulator: model, backward gains, forward roll."""

    def move(state, control):
        _, angle, speed, turn = state
        force = 10.0 * jnp.tanh(control[0])
        sine, cosine = jnp.sin(angle), jnp.cos(angle)
        push = (force + 0.05 * turn**2 * sine) / 1.1
        bend = (9.8 * sine - cosine * push) / (0.5 * (4.0 / 3.0 - 0.1 * cosine**2 / 1.1))
        change = jnp.stack([speed, turn, push - 0.05 * bend * cosine / 1.1, bend])
        return state + 0.02 * change

    def cost(state, control):
        return ((state - goal) ** 2 @ jnp.array([1.0, 10.0, 0.1, 0.1])) + 0.01 * control @ control

    def roll(state, control):
        return move(state, control), state

    last, states = lax.scan(roll, start, controls)
    along = jax.vmap(jax.jacfwd(move, argnums=(0, 1)))(states, controls)
    slopes = jax.vmap(jax.grad(cost, argnums=(0, 1)))(states, controls)
    curves = jax.vmap(jax.hessian(cost, argnums=(0, 1)))(states, controls)

    def backward(carry, slices):
        slope, curve = carry
        (by_state, by_control), (state_slope, control_slope), rows = slices
        state_slope = state_slope + by_state.T @ slope
        control_slope = control_slope + by_control.T @ slope
        state_curve = rows[0][0] + by_state.T @ curve @ by_state
        control_curve = rows[1][1] + by_control.T @ curve @ by_control + 1e-3 * jnp.eye(1)
        crossed = rows[1][0] + by_control.T @ curve @ by_state
        gain = -jnp.linalg.solve(control_curve, crossed)
        shift = -jnp.linalg.solve(control_curve, control_slope)
        slope = state_slope + gain.T @ control_slope
        return (slope, state_curve + gain.T @ crossed), (gain, shift)

    end = jax.grad(cost)(last, controls[-1]), jax.hessian(cost)(last, controls[-1])
    _, (gains, shifts) = lax.scan(backward, end, (along, slopes, curves), reverse=True)

    def forward(state, slices):
        old, control, gain, shift = slices
        control = control + 0.5 * shift + gain @ (state - old)
        return move(state, control), (control, cost(state, control))

    _, (controls, costs) = lax.scan(forward, start, (states, controls, gains, shifts))
    return controls, costs.sum()


def orthogonal_momentum(weights, momenta, changes):
    """Momentum brought near to orthogonal by a polynomial, as large models train now."""

    def one(weight, momentum, change):
        momentum = 0.95 * momentum + change
        step = (0.95 * momentum + change).astype(jnp.bfloat16)
        step = step / (jnp.linalg.norm(step.astype(jnp.float32)) + 1e-7).astype(jnp.bfloat16)
        tall = step.shape[0] > step.shape[1]
        step = step.T if tall else step
        for _ in range(5):
            square = step @ step.T
            step = 3.4445 * step + (-4.775 * square + 2.0315 * square @ square) @ step
        step = step.T if tall else step
        size = max(1.0, weight.shape[0] / weight.shape[1]) ** 0.5
        return weight - 0.02 * size * step.astype(weight.dtype), momentum

    pairs = [one(*parts) for parts in zip(weights, momenta, changes, strict=True)]
    return [weight for weight, _ in pairs], [momentum for _, momentum in pairs]


def preconditioned(weight, left, right, change):
    """A step scaled by roots of the second moments of rows and columns."""

    def root(matrix):
        values, vectors = jnp.linalg.eigh(matrix + 1e-6 * jnp.eye(matrix.shape[0]))
        return (vectors * jnp.maximum(values, 1e-9) ** -0.25) @ vectors.T

    left = 0.95 * left + 0.05 * change @ change.T
    right = 0.95 * right + 0.05 * change.T @ change
    step = root(left) @ change @ root(right)
    step = step * jnp.linalg.norm(change) / (jnp.linalg.norm(step) + 1e-9)
    return weight - 0.01 * step, left, right


def bundle(cameras, points, seen, camera, point):
    """One damped step of cameras and points towards what was seen, cameras solved first."""

    def projected(camera, point):
        axis, place, focus = camera[:3], camera[3:6], camera[6]
        angle = jnp.sqrt(axis @ axis + 1e-12)
        unit = axis / angle
        turned = point * jnp.cos(angle) + jnp.cross(unit, point) * jnp.sin(angle)
        turned = turned + unit * (unit @ point) * (1.0 - jnp.cos(angle)) + place
        flat = -turned[:2] / turned[2]
        square = flat @ flat
        return focus * (1.0 + camera[7] * square + camera[8] * square**2) * flat

    residual = jax.vmap(projected)(cameras[camera], points[point]) - seen
    by_camera, by_point = jax.vmap(jax.jacrev(projected, (0, 1)))(cameras[camera], points[point])
    weight = 1.0 / (1.0 + (residual**2).sum(axis=-1))
    count = cameras.shape[0]
    blocks = jnp.zeros((count, 9, 9))
    blocks = blocks.at[camera].add(jnp.einsum("o,oia,oib->oab", weight, by_camera, by_camera))
    right = jnp.zeros((count, 9))
    right = right.at[camera].add(-jnp.einsum("o,oia,oi->oa", weight, by_camera, residual))
    shift = jax.vmap(lambda a, b: cho_solve(cho_factor(a + 1e-2 * jnp.eye(9)), b))(blocks, right)
    slopes = jnp.zeros_like(points).at[point].add(jnp.einsum("oia,oi->oa", by_point, residual))
    sizes = jnp.zeros_like(points).at[point].add(jnp.square(by_point).sum(axis=1))
    return cameras + shift, points - slopes / (sizes + 1e-2), (weight * residual[:, 0] ** 2).sum()


def lasso_paths(design, target, penalties):
    """Sparse regressions for many penalties at once, by splitting."""
    gram = design.T @ design + jnp.eye(design.shape[1])
    factor = cho_factor(gram)
    seen = design.T @ target

    def one(penalty):
        def step(carry, _):
            sparse, dual = carry
            dense = cho_solve(factor, seen + sparse - dual)
            moved = 1.6 * dense - 0.6 * sparse + dual
            new = jnp.sign(moved) * jnp.maximum(jnp.abs(moved) - penalty, 0.0)
            return (new, moved - new), jnp.linalg.norm(new - sparse)

        zero = jnp.zeros(design.shape[1])
        (sparse, _), changes = lax.scan(step, (zero, zero), length=40)
        return sparse, changes[-1], (sparse != 0).sum()

    return jax.vmap(one)(penalties)


def two_grids(field, source):
    """Cycles over three grids: smoothing, the residual on a coarser grid, and back."""

    def smoothed(field, source, width):
        for _ in range(2):
            padded = jnp.pad(field, 1)
            around = padded[2:, 1:-1] + padded[:-2, 1:-1] + padded[1:-1, 2:] + padded[1:-1, :-2]
            field = field + 0.8 * (0.25 * (around + width**2 * source) - field)
        return field

    def cycle(field, source, width):
        field = smoothed(field, source, width)
        if field.shape[0] <= 16:
            return smoothed(field, source, width)
        padded = jnp.pad(field, 1)
        around = padded[2:, 1:-1] + padded[:-2, 1:-1] + padded[1:-1, 2:] + padded[1:-1, :-2]
        rest = source - (4.0 * field - around) / width**2
        half = field.shape[0] // 2
        coarse = rest.reshape(half, 2, half, 2).mean(axis=(1, 3))
        change = cycle(jnp.zeros_like(coarse), coarse, 2.0 * width)
        field = field + jnp.repeat(jnp.repeat(change, 2, axis=0), 2, axis=1)
        return smoothed(field, source, width)

    return lax.fori_loop(0, 4, lambda _, field: cycle(field, source, 1 / 64), field)


weights = [("f32", (256, 384)), ("f32", (384, 128)), ("f32", (96, 96))]

programs = {
    "regulated": (regulated, (("f32", (4,)), ("f32", (50, 1)), ("f32", (4,)))),
    "orthogonal_momentum": (orthogonal_momentum, (weights, weights, weights), {"donate": (0, 1)}),
    "preconditioned": (
        preconditioned,
        (("f32", (90, 70)), ("f32", (90, 90)), ("f32", (70, 70)), ("f32", (90, 70))),
    ),
    "bundle": (
        bundle,
        (
            ("f32", (20, 9)),
            ("f32", (700, 3)),
            ("f32", (2400, 2)),
            ("s32", (2400,)),
            ("s32", (2400,)),
        ),
    ),
    "lasso_paths": (lasso_paths, (("f32", (300, 64)), ("f32", (300,)), ("f32", (25,)))),
    "two_grids": (two_grids, (("f32", (64, 64)), ("f32", (64, 64)))),
}
