"""The flag that splits no product, tried on what is around the products that are split."""

from __future__ import annotations

import importlib.util
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from fusionscope import DumpedModule
from fusionscope.advise.recipes.recipe import prepare
from fusionscope.advise.recipes.region_trials import RegionTrial
from fusionscope.advise.recipes.regions import cut_parts
from fusionscope.advise.recipes.trying import Compilation
from fusionscope.advise.split_products import find_flag_offers
from fusionscope.capture.capture import capture
from fusionscope.capture.targets import read_program, read_target
from fusionscope.dump import open_dump
from fusionscope.facts.suggestions import Figures, HowTried
from fusionscope.facts.times import count_figures
from fusionscope.hlo import parse, to_text
from fusionscope.versions.context import read_context

with_plugin = pytest.mark.skipif(
    importlib.util.find_spec("jax_cuda13_plugin") is None, reason="needs jax for GPUs"
)
ROWS_BY_COLUMNS = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
SPLIT_NOTHING = "--xla_gpu_experimental_force_split_k=1"


def layer(number: int, rows: int) -> str:
    return f"""
  x.{number} = f32[{rows},512] sine(x)
  y.{number} = f32[{rows},64] dot(x.{number}, w), {ROWS_BY_COLUMNS}
  z.{number} = f32[{rows},64] cosine(y.{number})"""


def chain(number: int, rows: int) -> str:
    """Operations that take ``z.NUMBER`` far from the next product."""
    names = [f"z.{number}", *(f"c.{number}.{step}" for step in range(20))]
    return "\n".join(
        f"  {name} = f32[{rows},64] negate({operand})" for operand, name in pairwise(names)
    )


def test_parts_are_around_their_products_and_equal_ones_are_counted() -> None:
    layers = [(0, 16), (1, 16), (2, 32)]
    body = "\n".join(
        layer(number, rows).replace("(x)", f"(x{rows})") + "\n" + chain(number, rows)
        for number, rows in layers
    )
    module = parse(f"""HloModule jit_layers

ENTRY main {{
  x16 = f32[16,512] parameter(0)
  x32 = f32[32,512] parameter(1)
  w = f32[512,64] parameter(2)
{body}
  ROOT all = (f32[16,64], f32[16,64], f32[32,64]) tuple(c.0.19, c.1.19, c.2.19)
}}
""")
    graph = prepare(module)
    dots = [instruction for instruction in graph.walk() if instruction.opcode == "dot"]
    parts = cut_parts(graph, dots)
    assert sorted(part.times for part in parts) == [1, 2]
    for part in parts:
        parse(to_text(part.module)).check()
        opcodes = [instruction.opcode for instruction in part.module.walk()]
        assert opcodes.count("dot") == opcodes.count("sine") == 1
        assert 0 < opcodes.count("negate") < 19
    whole = [instruction.name for instruction in graph.walk()]
    assert len(whole) == module.instruction_count


LAYERS = """
import jax.numpy as jnp

def program(x, weights):
    for weight in weights:
        x = jnp.tanh(x @ weight)
        for scale in range(30):
            x = jnp.sin(x * scale) + x
    return x
"""


def figures_of(module: DumpedModule) -> Figures:
    assert module.final is not None
    return count_figures(module.read(module.final), "gpu", read_context(module).gpu)


@with_plugin
def test_the_trial_says_what_compiling_the_whole_shows(tmp_path: Path) -> None:
    file = tmp_path / "layers.py"
    file.write_text(LAYERS)
    program = read_program(f"{file}:program", ("bf16[64,2048]", "bf16[3,2048,2048]"))
    target = read_target("h100")
    (module,) = open_dump(capture(program, target, tmp_path / "dump").directory).modules
    (offer,) = find_flag_offers(module)
    trial = RegionTrial(module, figures_of(module), Compilation(sys.executable))
    (suggestion,) = trial.run([offer], ())
    assert (suggestion.change, suggestion.evidence) == (SPLIT_NOTHING, HowTried.COMPILED)
    unsplit = capture(program, target, tmp_path / "unsplit", flags=[SPLIT_NOTHING])
    (after,) = open_dump(unsplit.directory).modules
    assert not find_flag_offers(after)
    actual = figures_of(after)
    assert suggestion.after == actual
