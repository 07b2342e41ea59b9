"""Run with `pytest` in samples/project, where fusionscope and jax are installed."""

import jax.numpy as jnp
from model import activate, attend, normalize

rows = jnp.ones((512, 384))
row = jnp.ones((384,))


def test_an_activation_is_one_kernel(fusionscope):
    fusions = fusionscope(activate, rows, row)
    fusions.assert_fused("add -> tanh")
    fusions.assert_one_kernel("add", "tanh", "multiply")
    fusions.assert_kernels(at_most=1)
    fusions.assert_bytes(at_most="1.6 MB")
    fusions.assert_library_calls()


def test_normalizing_is_as_it_was(fusionscope):
    fusionscope(normalize, rows, row).assert_matches_baseline(allow_better=True)


def test_the_softmax_goes_into_the_product(fusionscope):
    """It does not, and the failure says why."""
    fusions = fusionscope(attend, rows, jnp.ones((384, 64)))
    fusions.assert_fused("multiply -> dot")
