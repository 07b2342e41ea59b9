"""Gradients of log densities of numpyro models."""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as distributions
from numpyro.infer.util import log_density


def regression(features, labels):
    weights = numpyro.sample("weights", distributions.Normal(jnp.zeros(16), 1.0).to_event(1))
    intercept = numpyro.sample("intercept", distributions.StudentT(3.0, 0.0, 5.0))
    logits = features @ weights + intercept
    numpyro.sample("labels", distributions.Bernoulli(logits=logits), obs=labels)


def schools(errors, effects):
    mean = numpyro.sample("mean", distributions.Normal(0.0, 5.0))
    spread = numpyro.sample("spread", distributions.HalfCauchy(5.0))
    with numpyro.plate("schools", 8):
        effect = numpyro.sample("effect", distributions.Normal(mean, spread))
        numpyro.sample("observed", distributions.Normal(effect, errors), obs=effects)


def density(model):
    return jax.value_and_grad(lambda values, *data: log_density(model, data, {}, values)[0])


programs = {
    "regression": (
        density(regression),
        (
            {"weights": ("f32", (16,)), "intercept": ("f32", ())},
            ("f32", (1000, 16)),
            ("s32", (1000,)),
        ),
    ),
    "schools": (
        density(schools),
        (
            {"mean": ("f32", ()), "spread": ("f32", ()), "effect": ("f32", (8,))},
            ("f32", (8,)),
            ("f32", (8,)),
        ),
    ),
}
