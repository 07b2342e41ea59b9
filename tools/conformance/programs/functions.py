"""What jax.scipy, jax.image and jax.nn are made of, for the replay of the CPU fusion passes."""

import jax.numpy as jnp
from jax.scipy import linalg, special, stats


def gamma_family(shape, values):
    return (
        special.gammainc(shape, jnp.abs(values)),
        special.gammaln(shape) - special.betaln(shape, 2.0),
        special.polygamma(1, shape),
    )


def normal_family(values):
    return special.ndtri(special.expit(values)), special.log_ndtr(values), special.i1e(values)


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


def matrix_functions(matrix, right):
    return (
        linalg.expm(matrix),
        linalg.lu_solve(linalg.lu_factor(matrix), right),
        jnp.linalg.slogdet(matrix)[1],
        linalg.block_diag(matrix[:3], right.T, jnp.ones((1, 2))),
    )


vector = ("f32", (333,))

programs = {
    "gamma_family": (gamma_family, (vector, vector)),
    "normal_family": (normal_family, (("f32", (5, 1, 77)),)),
    "densities": (densities, (vector, ("f32", ()))),
    "kernel_density": (kernel_density, (("f32", (2, 150)), ("f32", (2, 31)))),
    "matrix_functions": (matrix_functions, (("f32", (11, 11)), ("f32", (11, 2)))),
}
