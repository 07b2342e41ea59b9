"""Plans in a running program."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from fusionscope import UnusableInput, apply

DUMPS = Path(__file__).parents[2] / "samples" / "dumps"
with_jax = pytest.mark.skipif(importlib.util.find_spec("jaxlib") is None, reason="needs jax")


def plan_file(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def applied_to(text: str, directory: Path) -> None:
    with apply(plan_file(directory / "plan.toml", text)):
        pass


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("allow = ['* -> *']", "names no dump"),
        (f"dump = '{DUMPS / 'cpu/softmax'}'\nmodule = 'other'", "the dump has 0"),
        (f"dump = '{DUMPS / 'h100/softmax'}'", "only plans for CPUs"),
        ("dump = 'nowhere'", "no such file"),
        (f"dump = '{DUMPS / 'cpu/softmax'}'\nallow = ['nothing -> *']", "no pair before fusion"),
    ],
)
def test_plans_that_cannot_be_applied(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(UnusableInput, match=problem):
        applied_to(text, tmp_path)


@with_jax
def test_a_program_has_the_fusions_of_a_plan_while_it_is_applied(tmp_path: Path) -> None:
    import jax
    import numpy
    from jax import numpy as jnp

    from fusionscope import capture_dump

    def step(x):
        wide = jnp.concatenate([jnp.tanh(x), x * 2, x + 1], axis=1)
        return jnp.exp(wide), wide.sum(axis=1)

    x = numpy.random.default_rng(0).standard_normal((512, 256)).astype("float32")
    jitted = jax.jit(step)
    assert capture_dump(jitted, x, directory=tmp_path / "dump").problem == ""
    plan = plan_file(
        tmp_path / "plan.toml",
        "module = 'jit_step'\ndump = 'dump'\nallow = ['* -> concatenate*', 'concatenate* -> *']",
    )

    def kernels() -> str:
        return str(jitted.lower(x).compile().as_text())

    plain, expected = kernels(), jitted(x)
    with apply(plan) as applied:
        changed, found = kernels(), jitted(x)
        assert applied.programs > 0
        assert applied.others == 0
        before = applied.programs
        jax.jit(lambda y: y * 3)(x)  # has another name
        assert applied.programs == before
    for one, other in zip(expected, found, strict=True):
        numpy.testing.assert_allclose(one, other, rtol=1e-6)
    assert ("wrapped_exponential" in plain, "wrapped_exponential" in changed) == (True, False)
    assert "wrapped_exponential" in kernels()

    def step(x):
        return jnp.exp(x)

    with pytest.warns(UserWarning, match="but another program of that name"), apply(plan) as other:
        jax.jit(step)(x)
    assert (other.programs, other.others) == (0, 1)
