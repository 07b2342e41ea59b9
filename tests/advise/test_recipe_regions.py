"""What recipes change, cut out of a program and compiled on its own."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from fusionscope import DumpedModule, UnusableInput
from fusionscope.advise.recipes import region_trials
from fusionscope.advise.recipes.compiled import Compiled, Work
from fusionscope.advise.recipes.part_compiler import PartCompiler
from fusionscope.advise.recipes.recipe import apply_recipe, prepare
from fusionscope.advise.recipes.region_trials import RegionTrial, _Search
from fusionscope.advise.recipes.regions import cut_region
from fusionscope.advise.recipes.trying import Compilation, Offer, find_offers
from fusionscope.advise.recipes.unroll_loop import UnrollLoop
from fusionscope.advise.split_products import FlagOffer
from fusionscope.capture.capture import capture
from fusionscope.capture.targets import Program, ProgramKind, read_program, read_target
from fusionscope.dump import open_dump
from fusionscope.facts.suggestions import Figures, HowTried
from fusionscope.facts.times import count_figures
from fusionscope.hlo import parse, to_text
from fusionscope.rerun.programs import find_program
from fusionscope.versions.context import read_context
from tests.conftest import Samples

with_plugin = pytest.mark.skipif(
    importlib.util.find_spec("jax_cuda13_plugin") is None, reason="needs jax for GPUs"
)

# Eight steps of a loop, between a chain of operations before it and one behind it.
CHAIN = "\n".join(f"  s.{n + 1} = f32[64] sine(s.{n})" for n in range(200))
LOOP = f"""HloModule jit_steps

grow {{
  state = (s32[], f32[64], f32[64]) parameter(0)
  step = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(step, one)
  values = f32[64] get-tuple-element(state), index=1
  force = f32[64] get-tuple-element(state), index=2
  grown = f32[64] multiply(values, force)
  ROOT grown_state = (s32[], f32[64], f32[64]) tuple(next, grown, force)
}}

goes_on {{
  state.1 = (s32[], f32[64], f32[64]) parameter(0)
  step.1 = s32[] get-tuple-element(state.1), index=0
  end = s32[] constant(8)
  ROOT below = pred[] compare(step.1, end), direction=LT
}}

ENTRY main {{
  x = f32[64] parameter(0)
  s.0 = f32[64] negate(x)
{CHAIN}
  y = f32[64] parameter(1)
  zero = s32[] constant(0)
  start = (s32[], f32[64], f32[64]) tuple(zero, s.200, y)
  loop = (s32[], f32[64], f32[64]) while(start), condition=goes_on, body=grow
  last = f32[64] get-tuple-element(loop), index=1
  around = f32[64] cosine(last)
  ROOT both = (f32[64], f32[64]) tuple(around, s.50)
}}
"""


def test_a_region_holds_the_loop_and_its_constants_and_no_more():
    region = cut_region(UnrollLoop(times=4), parse(LOOP), "gpu")
    assert region is not None and not region.is_whole
    module = parse(to_text(region.edits[0].before))
    module.check()
    opcodes = sorted(instruction.opcode for instruction in module.entry.instructions)
    assert opcodes == sorted(
        ["constant", "get-tuple-element", "parameter", "parameter", "tuple", "tuple", "while"]
    )
    assert str(module.entry.root.shape) == "(f32[64])"


def test_a_region_is_edited_as_the_program_is():
    region = cut_region(UnrollLoop(times=4), parse(LOOP), "gpu")
    whole = apply_recipe(UnrollLoop(times=4), parse(LOOP), "gpu")
    assert region is not None and whole is not None
    bodies = [
        sum(1 for instruction in module.walk() if instruction.opcode == "multiply")
        for module in (region.edits[0].before, region.edits[0].after, whole.module)
    ]
    assert bodies == [1, 4, 4]


def test_a_small_program_is_its_own_region():
    text = LOOP.replace(CHAIN, "  s.200 = f32[64] sine(s.0)\n  s.50 = f32[64] cosine(s.0)")
    region = cut_region(UnrollLoop(times=4), parse(text), "gpu")
    assert region is not None and region.is_whole
    assert region.edits[0].before.entry.root.shape == parse(text).entry.root.shape


def test_a_loop_in_a_function_that_is_called_is_inside_its_caller() -> None:
    """Two calls, whose clones of the loop have one body."""
    function = LOOP.replace("ENTRY main {", "steps {")
    text = f"""{function}
ENTRY called {{
  a = f32[64] parameter(0)
  b = f32[64] parameter(1)
  once = (f32[64], f32[64]) call(a, b), to_apply=steps
  first = f32[64] get-tuple-element(once), index=0
  ROOT twice = (f32[64], f32[64]) call(first, b), to_apply=steps
}}
"""
    graph = prepare(parse(text))
    (body,) = {i.computation for i in graph.walk() if i.opcode == "multiply"}
    assert [loop.parent for loop in body.callers if loop.parent is not None] == [graph.entry] * 2


def test_where_a_recipe_does_not_fit_there_is_no_region():
    assert cut_region(UnrollLoop(times=16), parse(LOOP), "gpu") is None


STEPS = """
def program(state, force, weights):
    for _ in range(3):
        force = jnp.tanh(force @ weights)
    for scale in range(60):
        state = jnp.sin(state) * scale + force[0]

    def step(state, row):
        state = 0.9 * state + row
        return state, state.sum()

    return lax.scan(step, state, force)
"""
IMPORTS = "import jax\nimport jax.numpy as jnp\nfrom jax import lax\n"


def figures_of(module: DumpedModule) -> Figures:
    assert module.final is not None
    return count_figures(module.read(module.final), "gpu", read_context(module).gpu)


@with_plugin
def test_a_region_predicts_what_compiling_the_whole_shows(tmp_path: Path) -> None:
    file = tmp_path / "steps.py"
    file.write_text(IMPORTS + STEPS)
    arguments = ("f32[512]", "f32[64,512]", "f32[512,512]")
    target = read_target("h100")
    captured = capture(read_program(f"{file}:program", arguments), target, tmp_path / "dump")
    (module,) = open_dump(captured.directory).modules
    trial = RegionTrial(module, figures_of(module), Compilation(sys.executable))
    suggestions = {attempt.change: attempt for attempt in trial.run(find_offers(module), ())}
    unrolled = suggestions["unroll-loop"]
    assert unrolled.evidence is HowTried.REGION
    times = int(unrolled.title.split()[0])
    rewritten = apply_recipe(UnrollLoop(times), find_program(module), "gpu")
    assert rewritten is not None
    edited = tmp_path / "edited.hlo"
    edited.write_text(to_text(rewritten.module))
    program = Program(kind=ProgramKind.HLO, file=edited)
    (after,) = open_dump(capture(program, target, tmp_path / "after").directory).modules
    actual = figures_of(after)
    assert unrolled.after.launches == actual.launches < unrolled.before.launches
    assert unrolled.after.time_us == pytest.approx(actual.time_us, rel=0.02)


@with_plugin
def test_a_python_without_jax_is_named(tmp_path: Path) -> None:
    file = tmp_path / "steps.py"
    file.write_text(IMPORTS + STEPS)
    arguments = ("f32[512]", "f32[64,512]", "f32[512,512]")
    captured = capture(
        read_program(f"{file}:program", arguments), read_target("h100"), tmp_path / "dump"
    )
    (module,) = open_dump(captured.directory).modules
    trial = RegionTrial(module, figures_of(module), Compilation("/bin/false"))
    with pytest.raises(UnusableInput):
        list(trial.run(find_offers(module), ()))


def test_kernels_that_a_module_does_not_have_are_timed() -> None:
    nothing = Figures(0, 0, 0.0)
    sums, wide, slices = Work(("add",)), Work(("add",), "f32[65]"), Work(("slice", "transpose"))
    times = {sums: 3.0, wide: 5.0, slices: 1.0}
    before = Compiled(nothing, Counter({sums: 2, wide: 1}), times)
    after = Compiled(nothing, Counter({sums: 1}), times)
    moving = Compiled(nothing, Counter({sums: 1, slices: 2}), times)
    for kernels, expected in (((), 8.0), ((sums,), 5.0), ((wide,), 3.0)):
        final = Compiled(nothing, Counter(kernels), times)
        assert before.time_apart_from(after, final) == expected
        assert before.time_apart_from(moving, final) == expected + 2.0


NAMED = ', metadata={op_name="jit(sums)/reduce_sum"}'
SUMS = f"""HloModule jit_sums

add {{
  one = f32[] parameter(0)
  two = f32[] parameter(1)
  ROOT both = f32[] add(one, two)
}}

ENTRY main {{
  x = f32[64] parameter(0)
  s.0 = f32[64] negate(x)
{CHAIN}
  rows = f32[1024,64] parameter(1)
  powers = f32[1024,64] multiply(rows, rows)
  zero = f32[] constant(0)
  sums = f32[64] reduce(powers, zero), dimensions={{0}}, to_apply=add{NAMED}
  ROOT all = f32[64] add(sums, s.200)
}}
"""


class Unfused:
    """A compiler that leaves modules as they are."""

    versions: ClassVar[dict[str, str]] = {}

    def __enter__(self) -> Unfused:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def compile(self, text: str, flags: dict[str, str]) -> SimpleNamespace:
        return SimpleNamespace(text=text, problem="")


def sums_module(directory: Path, final: str) -> DumpedModule:
    for file in Path("samples/dumps/h100/softmax").glob("*gpu_target_config*"):
        shutil.copy(file, directory / file.name.replace("jit_program", "jit_sums"))
    name = "module_0001.jit_sums"
    (directory / f"{name}.before_optimizations.txt").write_text(SUMS)
    (directory / f"{name}.sm_9.0_gpu_after_optimizations.txt").write_text(final)
    (module,) = open_dump(directory).modules
    return module


@pytest.mark.parametrize("is_same", [True, False])
def test_a_region_with_other_kernels_than_the_module_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_same: bool
) -> None:
    module = sums_module(tmp_path, SUMS if is_same else SUMS.replace("64]", "65]"))
    monkeypatch.setattr(region_trials, "_open_compiler", lambda *_: Unfused())
    monkeypatch.setattr(region_trials, "_MOST_FOREIGN", 0.02)  # all of it is small beside the rest
    monkeypatch.setattr(region_trials, "_MUCH_OF_TIME", 1.0)
    offers = [offer for offer in find_offers(module) if offer.recipe.id == "sum-in-parts"]
    trial = RegionTrial(module, figures_of(module), Compilation(sys.executable), most=None)
    evidence = [attempt.evidence for attempt in trial.run(offers, ())]
    assert evidence == [HowTried.REGION if is_same else HowTried.COMPILED]
    little = RegionTrial(module, figures_of(module), Compilation(sys.executable), most=300)
    assert len(list(little.run(offers, ()))) == int(is_same)
    assert len(little.untried) == int(not is_same)


def test_no_compiler_starts_if_no_region_is_within_the_limit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = sums_module(tmp_path, SUMS)
    monkeypatch.setattr(region_trials, "_open_compiler", lambda *_: pytest.fail("it started"))
    offers = find_offers(module)
    trial = RegionTrial(module, figures_of(module), Compilation(sys.executable), most=10)
    assert offers and not list(trial.run(offers, ()))
    assert trial.untried == offers


def test_what_can_save_next_to_nothing_is_compiled_only_without_a_limit(tmp_path: Path) -> None:
    module = sums_module(tmp_path, SUMS)
    program = find_program(module)
    (offer,) = (offer for offer in find_offers(module) if offer.recipe.id == "sum-in-parts")
    trial = RegionTrial(module, figures_of(module), Compilation(sys.executable))
    compiler = PartCompiler(module, pytest.fail, None)
    elsewhere, here = offers = [
        replace(offer, op_names=frozenset({name}))
        for name in ("jit(sums)/nothing", "jit(sums)/reduce_sum")
    ]

    def worthwhile(trial: RegionTrial) -> list[Offer | FlagOffer]:
        searches = trial._worthwhile(offers, program, compiler)
        return [search.offer if isinstance(search, _Search) else search for search in searches]

    assert worthwhile(trial) == [here]
    assert trial.untried == [elsewhere]
    unlimited = RegionTrial(module, figures_of(module), Compilation(sys.executable), None)
    assert worthwhile(unlimited) == [here, elsewhere]


def test_the_tiles_of_a_kernel_of_triton_count_by_pairs_of_ways_through_it(
    samples: Samples,
) -> None:
    module = samples.module("h100/softmax")
    program = find_program(module)
    without_code = {"parameter", "constant"}
    count = sum(value.opcode not in without_code for value in program.walk())
    # From the result: one way to the division, the sum, its broadcast and its zero, two to the
    # exponential, the subtraction, the broadcast of the maximum, that and its constant, four to the
    # parameter, which are 18. The final module has ten instructions with code, two of them
    # combine elements.
    compiler = PartCompiler(module, pytest.fail, None)
    assert compiler.work([program], ()) == 100 + int(count * (1 + 18**2 / 90 / 10))
