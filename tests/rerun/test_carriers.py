"""What a program must keep when it is compiled again from its dump, and what cannot be run."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from fusionscope import UnusableInput
from fusionscope.capture import child
from fusionscope.capture.capture import CONSTANTS, capture
from fusionscope.capture.targets import read_program, read_target
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.rerun.plans import make_plan, own_plan
from fusionscope.rerun.rerun import rerun
from fusionscope.rerun.running import Numbers
from fusionscope.rerun.trial import Trial, Variant, try_variants
from fusionscope.rules.changes import read_changes

PYTHON = __import__("sys").executable
with_jax = pytest.mark.skipif(find_spec("jax") is None, reason="needs jax")
with_cuda = pytest.mark.skipif(
    find_spec("jax_cuda13_plugin") is None, reason="needs jax's plugin for CUDA"
)

PROGRAM = """
import jax
import numpy as np
from jax import lax
from jax import numpy as jnp
from jax.experimental.layout import Format, Layout
from jax.sharding import SingleDeviceSharding

example_args = (jnp.ones((64, 32)),)


def layouts():
    def step(a, b):
        return jnp.tanh(a) * 2 + b.sum(0), jnp.exp(b) @ a.T

    columns = Format(Layout((1, 0)), SingleDeviceSharding(jax.devices()[0]))
    made = jax.jit(
        step, in_shardings=(None, columns), out_shardings=(columns, columns), donate_argnums=1
    )
    made.example_args = example_args * 2
    return made


in_columns = layouts()


def callback(x):
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x * 2) + 1


def unknown_call(x):
    call = jax.ffi.ffi_call("a_target_of_another_process", jax.ShapeDtypeStruct(x.shape, x.dtype))
    return call(jnp.tanh(x)) + 1


def negative_zero(x):
    return jnp.where(x > 0, jnp.tanh(x), -0.0)


def another_shape(x):
    start = jnp.tanh(x) @ x.T
    return lax.fori_loop(0, 9, lambda i, flat: jnp.sin(flat) + i, start.reshape(-1))


def one_copy_for_two_loops(x):
    def loss(w):
        def cell(h, row):
            return jnp.tanh(row @ w + h), None

        h, _ = lax.scan(cell, jnp.zeros((8, 16)), jnp.swapaxes(x.reshape(8, 64, 4), 0, 1))
        return (h**2).mean()

    return jax.value_and_grad(loss)(jnp.ones((4, 16)))


def branches_in_a_loop(x):
    table = np.sin(np.arange(64 * 32, dtype="float32").reshape(64, 32))

    def step(state):
        count, slow, fast = state

        def work(given):
            slow, fast = given
            fast = lax.fori_loop(0, 3, lambda i, y: jnp.sin(y) * table, fast)
            return jnp.tanh(slow + fast), END

        branch = count % 2 == 0
        slow, fast = lax.cond(branch, lambda given: given, work, (slow, fast))
        return count + 1, slow * 0.5, fast

    return lax.while_loop(lambda state: state[0] < 9, step, (jnp.int32(0), x + 1, x * 2))


def branches_that_update(xs):
    def step(state, x):
        def update(given):
            mean, squares, count = given
            change = x - mean
            mean = mean + change / (count + 1)
            return mean, squares + change * (x - mean), count + 1

        state = lax.cond(x.sum() > 0, update, lambda given: given, state)
        return state, state[0].sum()

    return lax.scan(step, (xs[0] * 0, xs[0] * 0, 0.0), xs)


def ragged(x):
    return lax.ragged_dot(x, jnp.ones((2, 32, 8)), jnp.array([30, 34]))
"""


def captured(
    name: str,
    directory: Path,
    device: str = "cpu",
    *,
    text: str = PROGRAM,
    flags: tuple[str, ...] = (),
) -> DumpedModule:
    (directory / "model.py").write_text(text)
    program = read_program(f"{directory / 'model.py'}:{name}")
    assert capture(program, read_target(device), directory / "dump", flags=flags).has_stages
    (module,) = open_dump(directory / "dump").modules
    return module


def replayed(name: str, directory: Path, device: str = "cpu") -> Trial:
    module = captured(name, directory, device)
    variant = Variant("replay", own_plan(module))
    return try_variants(module, [variant], directory / "rerun", baseline=None, seconds=0)


@pytest.mark.parametrize(
    ("layouts", "expected"),
    [
        ("(f32[4,8]{1,0}, /*index=1*/s32[])->f32[8]{0}", (["", ""], [""])),
        ("(f32[4,8]{0,1})->(f32[2,3,4]{1,2,0}, s4[8,2]{1,0:E(4)})", (["{0,1}"], ["{1,2,0}", ""])),
        ("(f32[4,8], f32[8])->f32[4,8]", (["auto", ""], ["auto"])),
        ("()->f32[4,8]{0,1}", ([], ["{0,1}"])),
    ],
)
def test_layouts_of_a_header(layouts: str, expected: tuple[list[str], list[str]]) -> None:
    header = f"HloModule m, is_scheduled=true, entry_computation_layout={{{layouts}}}"
    for end in ("", ", allow_spmd_sharding_propagation_to_parameters={true,true}", ", a=b\nmore"):
        assert child.entry_layouts(header + end) == expected


def test_a_header_without_layouts() -> None:
    assert child.entry_layouts("HloModule m\n\nENTRY e {") == ([], [])


@with_jax
def test_layouts_of_arguments_and_results_are_kept(tmp_path: Path) -> None:
    trial = replayed("in_columns", tmp_path)
    (attempts,) = trial.variants
    assert attempts.holds
    assert attempts.rerun.is_same
    assert attempts.measurement is not None
    assert attempts.measurement.numbers is Numbers.EQUAL


@with_jax
def test_a_negative_zero_keeps_its_sign(tmp_path: Path) -> None:
    (attempts,) = replayed("negative_zero", tmp_path).variants
    assert attempts.holds
    (output,) = open_dump(tmp_path / "rerun").modules
    assert output.final is not None
    assert output.final.text is not None
    assert "constant(-0)" in output.final.text.text()


@with_jax
def test_what_a_loop_starts_from_in_another_shape_is_not_copied(tmp_path: Path) -> None:
    (attempts,) = replayed("another_shape", tmp_path).variants
    assert attempts.holds
    assert attempts.rerun.is_same


@with_jax
def test_two_loops_share_a_copy_with_changed_fusions_too(tmp_path: Path) -> None:
    """Both read one transposed array, which the compiler copies once, through their tuples."""
    module = captured("one_copy_for_two_loops", tmp_path)
    changes = read_changes(set_=(), disable=(), allow=(), forbid=("add -> tanh",))
    result = rerun(module, make_plan(module, changes), tmp_path / "rerun")
    assert result.holds
    assert result.changed
    assert result.variant is not None and result.variant.launches > result.baseline.launches


@with_jax
@pytest.mark.parametrize(
    ("end", "flags"),
    [
        ("fast * 2 + slow", (CONSTANTS,)),
        pytest.param("fast", (CONSTANTS,), marks=pytest.mark.long),
        pytest.param("slow", (CONSTANTS,), marks=pytest.mark.long),
        ("fast * 2 + slow", ()),
    ],
)
def test_branches_are_given_what_they_are_in_the_plan(
    end: str, flags: tuple[str, ...], tmp_path: Path
) -> None:
    """In StableHLO they capture it, in the order in which they read it. One of these branches reads
    a constant, passes values on, and computes others where they are or elsewhere.
    """
    text = PROGRAM.replace("END", end)
    module = captured("branches_in_a_loop", tmp_path, text=text, flags=flags)
    variant = Variant("replay", own_plan(module))
    trial = try_variants(module, [variant], tmp_path / "rerun", baseline=None, seconds=0)
    (attempts,) = trial.variants
    assert attempts.holds
    assert attempts.rerun.is_same
    if flags:
        assert attempts.measurement is not None
        assert attempts.measurement.numbers is Numbers.EQUAL
    else:
        assert "leaves large constants out" in trial.not_run


@with_jax
def test_a_branch_writes_over_what_another_one_passes_on(tmp_path: Path) -> None:
    """As its fusions may and calls may not, unless they say so. A new mean is read twice."""
    (attempts,) = replayed("branches_that_update", tmp_path).variants
    assert attempts.holds
    assert attempts.rerun.is_same


@with_jax
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("callback", "calls a Python function"),
        ("unknown_call", "No FFI handler registered for a_target_of_another_process"),
    ],
)
def test_programs_that_only_their_own_process_can_run(
    name: str, reason: str, tmp_path: Path
) -> None:
    trial = replayed(name, tmp_path)
    assert reason in trial.not_run
    assert all(variant.rerun.holds and variant.measurement is None for variant in trial.variants)


@with_cuda
def test_an_operation_that_stablehlo_lacks(tmp_path: Path) -> None:
    with pytest.raises(UnusableInput, match="StableHLO has no ragged_dot"):
        replayed("ragged", tmp_path, "h100")
