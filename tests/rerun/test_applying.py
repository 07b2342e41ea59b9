"""Plans in a running program."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from fusionscope import UnusableInput, apply
from fusionscope.capture.capture import capture
from fusionscope.capture.targets import read_program, read_target
from fusionscope.rerun import applying
from fusionscope.rerun.applying import NotApplied

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
def test_a_program_has_the_fusions_of_a_plan_while_it_is_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        changed, actual = kernels(), jitted(x)
        assert applied.programs > 0
        assert applied.others == 0
        before = applied.programs
        jax.jit(lambda y: y * 3)(x)  # has another name
        assert applied.programs == before
    for first, second in zip(expected, actual, strict=True):
        numpy.testing.assert_allclose(first, second, rtol=1e-6)
    assert ("wrapped_exponential" in plain, "wrapped_exponential" in changed) == (True, False)
    assert "wrapped_exponential" in kernels()

    def step(x):
        return jnp.exp(x)

    with pytest.warns(UserWarning, match="another program called jit_step"), apply(plan) as second:
        jax.jit(step)(x)
    assert (second.programs, second.others) == (0, 1)
    with (
        pytest.warns(UserWarning),
        pytest.raises(NotApplied, match="1 other programs are called jit_step"),
        apply(plan, strict=True),
    ):
        jax.jit(step)(x)
    with pytest.raises(NotApplied, match="was not compiled"), apply(plan, strict=True):
        pass

    def unneeded(*_: object) -> None:
        raise AssertionError("prepared again")

    monkeypatch.setattr(applying, "_inject", unneeded)
    with apply(plan, strict=True) as applied:
        assert "wrapped_exponential" not in kernels()
    plan.write_text(plan.read_text() + "\nforbid = ['nothing -> *']")
    with pytest.raises(AssertionError, match="prepared again"), apply(plan):
        pass


@with_jax
def test_other_shapes_and_transformations_are_told_when_they_are_compiled(tmp_path: Path) -> None:
    import jax
    from jax import numpy as jnp

    from fusionscope import capture_dump

    @jax.jit
    def step(x):
        return (jnp.tanh(x) * 2).sum()

    x = jnp.ones((64, 32))
    capture_dump(step, x, directory=tmp_path / "dump")
    plan = plan_file(tmp_path / "plan.toml", "dump = 'dump'\nforbid = ['* -> *']")

    @apply(plan)
    def decorated(x):
        return step(x)

    decorated(x)
    with apply(plan) as applied:
        step(x)
        for run in (lambda: step(x[:32]), lambda: jax.vmap(step)(x), lambda: jax.grad(step)(x)):
            with pytest.warns(UserWarning, match="another program called jit_step"):
                run()
    assert applied.programs == 1


PROGRAM = """
import sys
from pathlib import Path

import jax
import numpy
from jax import numpy as jnp

cache = Path(sys.argv[1])
jax.config.update("jax_compilation_cache_dir", str(cache))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append("cache_hits" in name))


@jax.jit
def step(x):
    wide = jnp.concatenate([jnp.tanh(x), x * 2, x + 1], axis=1)
    return jnp.exp(wide), wide.sum(axis=1)


x = numpy.ones((512, 256), "float32")


def called():
    '''By what a call multiplies: 2, or 3 in what is injected.'''
    return float(numpy.log(step(x)[0][0, 256]).round())


def cached():
    return {file for file in cache.glob("jit_step-*-cache")}
"""

APPLYING = """
import fusionscope
from fusionscope.rerun import applying

found = applying._find_module


def with_a_mark(*arguments):
    text = fusionscope.to_text(found(*arguments))
    assert "constant(2)" in text
    return fusionscope.parse(text.replace("constant(2)", "constant(3)"))


applying._find_module = with_a_mark

_, _, dump, plan, uses_cache_before = sys.argv
if uses_cache_before == "True":
    assert called() == 2
before = cached()
assert len(before) == (uses_cache_before == "True")
with fusionscope.apply(plan, dump) as applied:
    assert called() == 3
    assert applied.programs == 1
    written = {file: file.stat().st_mtime_ns for file in before}
    assert not any(hits)
assert {file: file.stat().st_mtime_ns for file in before} == written
assert cached() == before
assert called() == 2  # ... and the cache is in use again
assert len(cached()) == 1
assert any(hits) == bool(before)  # once: what has the hook changed the keys when it was imported
"""


@with_jax
@pytest.mark.parametrize("uses_cache_before", [True, False])
def test_no_plan_gets_into_the_persistent_cache(uses_cache_before: bool, tmp_path: Path) -> None:
    """A process that applies a plan, and one that uses the same cache and knows no plans."""
    plan = plan_file(tmp_path / "plan.toml", "allow = ['* -> concatenate*', 'concatenate* -> *']")
    (tmp_path / "program.py").write_text(PROGRAM)
    target, program = read_target("cpu"), f"{tmp_path / 'program.py'}:step"
    capture(read_program(program, ["f32[512,256]"]), target, tmp_path / "dump")

    def run(program: str, *arguments: object) -> None:
        words = [sys.executable, "-c", program, tmp_path / "cache", *arguments]
        subprocess.run(list(map(str, words)), check=True)

    run(PROGRAM + APPLYING, tmp_path / "dump", plan, uses_cache_before)
    run(PROGRAM + "assert called() == 2 and any(hits)")


@with_jax
def test_what_is_compiled_outside_stays_and_a_decorated_function_compiles_once(
    tmp_path: Path,
) -> None:
    import jax
    import jax.extend  # or the first block imports it, which changes the keys of jax's caches
    from jax import numpy as jnp

    from fusionscope import capture_dump

    compiled: list[str] = []

    def listen(event: str, _: float, **facts: object) -> None:
        if event.endswith("backend_compile_duration"):
            compiled.append(event)

    step, second = jax.jit(lambda x: (jnp.tanh(x) * 2).sum()), jax.jit(lambda x: x + 1)
    x = jnp.ones((64, 32))
    capture_dump(step, x, directory=tmp_path / "dump")
    plan = plan_file(tmp_path / "plan.toml", "dump = 'dump'\nforbid = ['* -> *']")

    @apply(plan, strict=True)
    def decorated(x: jax.Array) -> jax.Array:
        return step(x)

    jax.block_until_ready((step(x), second(x)))
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        decorated(x)
        assert len(compiled) == 1
        decorated(x)
        step(x), second(x)
        assert len(compiled) == 1
        with apply(plan) as applied:
            step(x)
        assert (applied.programs, len(compiled)) == (1, 2)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


@with_jax
def test_unrolled_steps_read_and_write_arrays_in_blocks(tmp_path: Path) -> None:
    import jax
    import numpy
    from jax import lax
    from jax import numpy as jnp

    from fusionscope import capture_dump, to_text
    from fusionscope.advise.recipes.recipe import apply_recipe
    from fusionscope.advise.recipes.unroll_loop import UnrollLoop
    from fusionscope.dump import open_dump
    from fusionscope.rerun.programs import find_program

    def scan(start, xs):
        def step(state, x):
            number, y = state
            y = jnp.cos(y) + x * number
            return (number + 1, y), (y, 2 * x)

        return lax.scan(step, (0.0, start), xs)

    def shifted(start, xs):  # it also reads what an earlier step wrote
        def step(number, xs):
            return xs.at[number].set(xs[number - 1] * 0.5 + start)

        return lax.fori_loop(1, 9, step, xs)

    def in_place(start, xs):
        return lax.fori_loop(0, 8, lambda n, xs: xs.at[n].set(xs[n] * 0.5 + start), xs)

    generator = numpy.random.default_rng(0)
    inputs = [generator.standard_normal(shape).astype("float32") for shape in ((3,), (12, 3))]
    for program, blocks in ((scan, [1, 2]), (shifted, []), (in_place, [])):
        jitted, directory = jax.jit(program), tmp_path / program.__name__
        assert capture_dump(jitted, *inputs, directory=directory / "dump").problem == ""
        (module,) = open_dump(directory / "dump").modules
        unrolled = apply_recipe(UnrollLoop(times=4), find_program(module), "cpu")
        assert unrolled is not None
        text = to_text(unrolled.module)
        if blocks:
            counts = [
                text.count(f" {opcode}(") for opcode in ("dynamic-slice", "dynamic-update-slice")
            ]
            assert counts == blocks
        (directory / "unrolled.hlo").write_text(text)
        plan = plan_file(
            directory / "plan.toml",
            f"module = 'jit_{program.__name__}'\ndump = 'dump'\nprogram = 'unrolled.hlo'",
        )
        expected = jitted(*inputs)
        with apply(plan) as applied:
            jax.clear_caches()
            actual = jitted(*inputs)
        assert applied.programs > 0
        for first, second in zip(jax.tree.leaves(expected), jax.tree.leaves(actual), strict=True):
            numpy.testing.assert_allclose(first, second, rtol=1e-5)


@with_jax
def test_a_plan_may_be_for_a_rewritten_program(tmp_path: Path) -> None:
    import jax
    import numpy
    from jax import lax
    from jax import numpy as jnp

    from fusionscope import capture_dump, to_text
    from fusionscope.advise.recipes.recipe import apply_recipe
    from fusionscope.advise.recipes.unroll_loop import UnrollLoop
    from fusionscope.dump import open_dump
    from fusionscope.rerun.programs import find_program

    def step(x):
        return lax.fori_loop(0, 8, lambda _, y: y + jnp.sin(y) * 0.1, x)

    x = numpy.random.default_rng(0).standard_normal(64).astype("float32")
    jitted = jax.jit(step)
    assert capture_dump(jitted, x, directory=tmp_path / "dump").problem == ""
    (module,) = open_dump(tmp_path / "dump").modules
    unrolled = apply_recipe(UnrollLoop(times=4), find_program(module), "cpu")
    assert unrolled is not None
    (tmp_path / "unrolled.hlo").write_text(to_text(unrolled.module))
    plan = plan_file(
        tmp_path / "plan.toml", "module = 'jit_step'\ndump = 'dump'\nprogram = 'unrolled.hlo'"
    )

    def sines() -> int:
        return str(jitted.lower(x).compile().as_text()).count(" sine(")

    plain, expected = sines(), jitted(x)
    with apply(plan) as applied:
        assert sines() == 4 * plain
        assert applied.programs > 0
        numpy.testing.assert_allclose(jitted(x), expected, rtol=1e-5)
