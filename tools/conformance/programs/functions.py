"""What jax.scipy, jax.image and jax.nn are made of, for the replay of the CPU fusion passes."""

import jax
import jax.numpy as jnp
from jax.scipy import linalg, ndimage, signal, special, stats


def gamma_family(shape, values):
    return (
        special.gammainc(shape, jnp.abs(values)),
        special.gammaln(shape) - special.betaln(shape, 2.0),
        special.polygamma(1, shape),
    )


def normal_family(values):
    return special.ndtri(special.expit(values)), special.log_ndtr(values), special.i1e(values)


def entropies(first, second):
    first, second = first / first.sum(-1, keepdims=True), second / second.sum(-1, keepdims=True)
    middle = 0.5 * (first + second)
    divergence = special.rel_entr(first, middle) + special.rel_entr(second, middle)
    return divergence.sum(axis=-1), special.entr(first).sum(axis=-1), special.xlog1py(first, second)


def densities(values, place):
    each = (
        stats.norm.logpdf(values, place, 2.0),
        stats.t.logpdf(values, 4.0, place),
        stats.cauchy.logcdf(values),
        stats.gamma.logpdf(jnp.abs(values) + 0.1, 3.0),
        stats.laplace.cdf(values, place),
    )
    return jnp.stack(each), stats.multivariate_normal.logpdf(values[:5], jnp.zeros(5), jnp.eye(5))


def kernel_density(samples, places):
    return stats.gaussian_kde(samples).evaluate(places)


def rotated(image, angle):
    rows, columns = jnp.mgrid[: image.shape[0], : image.shape[1]] - 20.0
    turned = (
        jnp.cos(angle) * rows - jnp.sin(angle) * columns + 20.0,
        jnp.sin(angle) * rows + jnp.cos(angle) * columns + 20.0,
    )
    return ndimage.map_coordinates(image, turned, order=1, mode="nearest")


def edges(image):
    across = jnp.array([[1.0, 0.0, -1.0], [2.0, 0.0, -2.0], [1.0, 0.0, -1.0]])
    horizontal = signal.convolve2d(image, across, mode="same")
    vertical = signal.convolve2d(image, across.T, mode="same")
    strength = jnp.hypot(horizontal, vertical)
    return strength / strength.max(), jnp.arctan2(vertical, horizontal)


def matrix_functions(matrix, right):
    return (
        linalg.expm(matrix),
        linalg.lu_solve(linalg.lu_factor(matrix), right),
        jnp.linalg.slogdet(matrix)[1],
        linalg.block_diag(matrix[:3], right.T, jnp.ones((1, 2))),
    )


def rescaled(images):
    wide = jax.image.resize(images, (2, 30, 21, 3), "cubic")
    place = jax.image.scale_and_translate(
        images, (2, 12, 12, 3), (1, 2), jnp.array([0.7, 0.9]), jnp.array([1.0, -2.0]), "lanczos3"
    )
    return wide.clip(0.0, 1.0), place


def activations(values):
    first, second = jnp.split(values, 2, axis=-1)
    return (
        jax.nn.mish(first) * jax.nn.hard_tanh(second),
        jax.nn.selu(first) - jax.nn.celu(second),
        jax.nn.squareplus(values).sum(axis=0),
        jax.nn.standardize(values),
        jax.nn.log_softmax(jax.nn.soft_sign(values), axis=0),
    )


vector = ("f32", (333,))

programs = {
    "gamma_family": (gamma_family, (vector, vector)),
    "normal_family": (normal_family, (("f32", (5, 1, 77)),)),
    "entropies": (entropies, (("f32", (19, 4100)), ("f32", (19, 4100)))),
    "densities": (densities, (vector, ("f32", ()))),
    "densities_gradient": (
        jax.grad(lambda values, place: densities(values, place)[0].sum(), argnums=(0, 1)),
        (vector, ("f32", ())),
    ),
    "kernel_density": (kernel_density, (("f32", (2, 150)), ("f32", (2, 31)))),
    "rotated": (rotated, (("f32", (41, 39)), ("f32", ()))),
    "edges": (edges, (("f32", (50, 83)),)),
    "matrix_functions": (matrix_functions, (("f32", (11, 11)), ("f32", (11, 2)))),
    "rescaled": (rescaled, (("f32", (2, 15, 14, 3)),)),
    "activations": (activations, (("f32", (27, 130)),)),
    "activations_gradient": (
        jax.grad(lambda values: sum(part.sum() for part in activations(values))),
        (("f32", (27, 130)),),
    ),
}
