"""Numerical methods, most of them loops, for the replay of the CPU fusion passes."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import cho_solve, solve_triangular


def conjugate_gradients(matrix, target):
    def step(_, carry):
        solution, residual, direction, square = carry
        image = matrix @ direction + 0.1 * direction
        length = square / (direction @ image)
        residual = residual - length * image
        following = residual @ residual
        direction = residual + following / square * direction
        return solution + length * direction, residual, direction, following

    start = (jnp.zeros_like(target), target, target, target @ target)
    return lax.fori_loop(0, 25, step, start)[0]


def newton(point):
    def equations(x):
        return jnp.array([x[0] ** 2 + x[1] - 3.0, jnp.sin(x[1]) * x[2], x[0] * x[2] - 1.0])

    def step(_, x):
        return x - jnp.linalg.solve(jax.jacfwd(equations)(x), equations(x))

    return lax.fori_loop(0, 4, step, point)


def runge_kutta(populations, rates):
    def slope(state):
        prey, predators = state
        meetings = prey * predators
        return jnp.stack([rates[0] * prey - meetings, 0.7 * meetings - rates[1] * predators])

    def step(_, state):
        first = slope(state)
        second = slope(state + 0.005 * first)
        third = slope(state + 0.005 * second)
        fourth = slope(state + 0.01 * third)
        return state + 0.01 / 6.0 * (first + 2.0 * second + 2.0 * third + fourth)

    return lax.fori_loop(0, 200, step, populations)


def subspace_iteration(matrix, basis):
    symmetric = 0.5 * (matrix + matrix.T)

    def step(_, basis):
        return jnp.linalg.qr(symmetric @ basis)[0]

    basis = lax.fori_loop(0, 12, step, basis)
    return basis, jnp.diagonal(basis.T @ symmetric @ basis)


def bisection(goals):
    def step(carry):
        low, high = carry
        middle = 0.5 * (low + high)
        above = middle * jnp.exp(middle) > goals
        return jnp.where(above, low, middle), jnp.where(above, middle, high)

    def wide(carry):
        return jnp.max(carry[1] - carry[0]) > 1e-5

    return lax.while_loop(wide, step, (jnp.zeros_like(goals), jnp.full_like(goals, 9.0)))[0]


def sinkhorn(cost, rows, columns):
    def step(carry, _):
        left, _ = carry
        right = jnp.log(columns) - jax.nn.logsumexp(left[:, None] - cost, axis=0)
        left = jnp.log(rows) - jax.nn.logsumexp(right[None] - cost, axis=1)
        return (left, right), jnp.abs(left).max()

    (left, right), changes = lax.scan(step, (rows * 0.0, columns * 0.0), length=15)
    plan = jnp.exp(left[:, None] + right - cost)
    return plan, (plan * cost).sum(), changes


def k_means(points, centres):
    distances = (points**2).sum(1)[:, None] - 2.0 * points @ centres.T + (centres**2).sum(1)
    nearest = jnp.argmin(distances, axis=1)
    members = nearest[:, None] == jnp.arange(centres.shape[0])
    sums = members.astype(points.dtype).T @ points
    counts = members.sum(axis=0)
    return jnp.where(counts[:, None] > 0, sums / counts[:, None], centres), distances.min(axis=1)


def kalman(mean, covariance, observations, motion, sensor):
    def step(carry, seen):
        mean, covariance = carry
        mean, covariance = motion @ mean, motion @ covariance @ motion.T + 0.01 * jnp.eye(4)
        surprise = seen - sensor @ mean
        spread = sensor @ covariance @ sensor.T + 0.1 * jnp.eye(2)
        gain = jnp.linalg.solve(spread, sensor @ covariance).T
        mean, covariance = mean + gain @ surprise, covariance - gain @ sensor @ covariance
        return (mean, covariance), (mean, jnp.trace(covariance), surprise @ surprise)

    return lax.scan(step, (mean, covariance), observations)


def tridiagonal(lower, diagonal, upper, right):
    def forward(carry, row):
        ratio, value = carry
        below, middle, above, target = row
        pivot = middle - below * ratio
        carry = above / pivot, (target - below * value) / pivot
        return carry, carry

    def backward(known, row):
        known = row[1] - row[0] * known
        return known, known

    zero = jnp.zeros(lower.shape[1:])
    _, swept = lax.scan(forward, (zero, zero), (lower, diagonal, upper, right))
    return lax.scan(backward, zero, swept, reverse=True)[1]


def least_squares(design, targets):
    orthogonal, triangle = jnp.linalg.qr(design)
    weights = solve_triangular(triangle, orthogonal.T @ targets)
    rest = targets - design @ weights
    return weights, (rest**2).sum(axis=0) / (design.shape[0] - design.shape[1])


def jacobi(field, source):
    def step(carry):
        steps, field, _ = carry
        around = field[:-2, 1:-1] + field[2:, 1:-1] + field[1:-1, :-2] + field[1:-1, 2:]
        inside = 0.25 * (around - source[1:-1, 1:-1])
        change = jnp.linalg.norm(inside - field[1:-1, 1:-1])
        return steps + 1, field.at[1:-1, 1:-1].set(inside), change

    def going(carry):
        return (carry[0] < 500) & (carry[2] > 1e-4)

    return lax.while_loop(going, step, (0, field, jnp.float32(1.0)))


def gaussian_process(logarithms, points, values):
    length, scale, noise = jnp.exp(logarithms)
    distances = jnp.square(points[:, None] - points[None]).sum(axis=-1)
    kernel = scale * jnp.exp(-0.5 * distances / length**2) + noise * jnp.eye(points.shape[0])
    lower = jnp.linalg.cholesky(kernel)
    fit = 0.5 * values @ cho_solve((lower, True), values)
    return fit + jnp.log(jnp.diagonal(lower)).sum()


def two_loops(gradient, steps, changes):
    """The direction of L-BFGS, from the last steps and the changes of the gradient."""
    inverse = 1.0 / (steps * changes).sum(axis=1)

    def newest_first(direction, pair):
        step, change, scale = pair
        weight = scale * (step @ direction)
        return direction - weight * change, weight

    def oldest_first(direction, pair):
        step, change, scale, weight = pair
        return direction + step * (weight - scale * (change @ direction)), None

    pairs = (steps, changes, inverse)
    direction, weights = lax.scan(newest_first, gradient, pairs, reverse=True)
    direction = direction * (steps[-1] @ changes[-1]) / (changes[-1] @ changes[-1])
    return -lax.scan(oldest_first, direction, (*pairs, weights))[0]


def exponential(matrices):
    scaled = matrices / 64.0
    total = term = jnp.broadcast_to(jnp.eye(matrices.shape[-1]), matrices.shape)
    for order in range(1, 7):
        term = term @ scaled / order
        total = total + term
    for _ in range(6):
        total = total @ total
    return total


pair, line = ("f32", (2,)), ("f32", (65, 11))

programs = {
    "conjugate_gradients": (conjugate_gradients, (("f32", (127, 127)), ("f32", (127,)))),
    "newton": (jax.vmap(newton), (("f32", (50, 3)),)),
    "runge_kutta": (runge_kutta, (("f32", (2, 300)), pair)),
    "subspace_iteration": (subspace_iteration, (("f32", (193, 193)), ("f32", (193, 3)))),
    "bisection": (bisection, (("f32", (1001,)),)),
    "sinkhorn": (sinkhorn, (("f32", (96, 130)), ("f32", (96,)), ("f32", (130,)))),
    "k_means": (k_means, (("f32", (5000, 7)), ("f32", (12, 7)))),
    "kalman": (
        kalman,
        (
            ("f32", (4,)),
            ("f32", (4, 4)),
            ("f32", (40, 2)),
            ("f32", (4, 4)),
            ("f32", (2, 4)),
        ),
    ),
    "tridiagonal": (tridiagonal, (line, line, line, line)),
    "least_squares": (least_squares, (("f32", (200, 9)), ("f32", (200, 5)))),
    "jacobi": (jacobi, (("f32", (67, 45)), ("f32", (67, 45)))),
    "gaussian_process": (
        jax.value_and_grad(gaussian_process),
        (("f32", (3,)), ("f32", (80, 3)), ("f32", (80,))),
    ),
    "two_loops": (two_loops, (("f32", (4099,)), ("f32", (10, 4099)), ("f32", (10, 4099)))),
    "exponential": (exponential, (("f32", (6, 17, 17)),)),
}
