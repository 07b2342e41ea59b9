"""Where collectives come from, by programs that say where data is sharded anew."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from fusionscope.dump import Dump, open_dump
from fusionscope.explain import explain
from fusionscope.facts.suggestions import Suggestions
from fusionscope.findings.collectives.facts import Collective, CollectiveCause
from fusionscope.findings.collectives.find import find_collectives
from fusionscope.findings.collectives.partitioning import Origin, Partitioning
from fusionscope.findings.collectives.splitting import is_resharded
from fusionscope.findings.refusals.sheet import brief
from fusionscope.hlo import Module, parse
from fusionscope.hlo.shardings import tuple_shardings
from fusionscope.words.markdown import to_markdown

WORDS = {
    "ROWS": "{devices=[2,1]0,1}",
    "COLUMNS": "{devices=[1,2]0,1}",
    "SINE": 'metadata={op_name="sin" source_file="a.py" source_line=7}',
    "BACK": 'metadata={op_name="f/sharding_constraint" source_file="a.py" source_line=8}',
}
BEFORE = """HloModule program, num_partitions=2

body {
  carried = (s32[], f32[8,8]) parameter(0), sharding={{replicated}, ROWS}
  step = s32[] get-tuple-element(carried), index=0
  state = f32[8,8] get-tuple-element(carried), index=1
  one = s32[] constant(1)
  next = s32[] add(step, one)
  wanted = f32[8,8] sine(state), sharding=COLUMNS, SINE
  back = f32[8,8] copy(wanted), sharding=ROWS, BACK
  ROOT both = (s32[], f32[8,8]) tuple(next, back), sharding={{replicated}, ROWS}
}

condition {
  carried = (s32[], f32[8,8]) parameter(0)
  step = s32[] get-tuple-element(carried), index=0
  count = s32[] constant(3)
  ROOT less = pred[] compare(step, count), direction=LT
}

ENTRY main {
  x = f32[8,8] parameter(0), sharding=ROWS, metadata={op_name="x"}
  zero = s32[] constant(0)
  start = (s32[], f32[8,8]) tuple(zero, x), sharding={{replicated}, ROWS}
  loop = (s32[], f32[8,8]) while(start), condition=condition, body=body
  ROOT result = f32[8,8] get-tuple-element(loop), index=1, sharding=ROWS
}
"""
AFTER = """HloModule program, num_partitions=2

body_spmd {
  carried = (s32[], f32[4,8]) parameter(0)
  step = s32[] get-tuple-element(carried), index=0
  state = f32[4,8] get-tuple-element(carried), index=1
  one = s32[] constant(1)
  next = s32[] add(step, one)
  there = f32[8,4] all-to-all(state), channel_id=1, replica_groups={{0,1}}, dimensions={1}
  wanted = f32[8,4] sine(there), SINE
  again = f32[4,8] all-to-all(wanted), channel_id=2, replica_groups={{0,1}}, dimensions={0}, SINE
  back = f32[4,8] copy(again), BACK
  ROOT both = (s32[], f32[4,8]) tuple(next, back)
}

condition_spmd {
  carried = (s32[], f32[4,8]) parameter(0)
  step = s32[] get-tuple-element(carried), index=0
  count = s32[] constant(3)
  ROOT less = pred[] compare(step, count), direction=LT
}

ENTRY main_spmd {
  x = f32[4,8] parameter(0), metadata={op_name="x"}
  zero = s32[] constant(0)
  start = (s32[], f32[4,8]) tuple(zero, x)
  loop = (s32[], f32[4,8]) while(start), condition=condition_spmd, body=body_spmd
  ROOT result = f32[4,8] get-tuple-element(loop), index=1
}
"""
PROGRAM = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()), ("d",))
rows, columns = NamedSharding(mesh, P("d")), NamedSharding(mesh, P(None, "d"))


def product(x, w):
    y = jnp.tanh(x @ w)
    return jnp.sin(y)


def resharded(x, w):
    y = jnp.tanh(x @ w)  # PRODUCT
    y = jax.lax.with_sharding_constraint(y, columns)  # HERE
    return jnp.sin(y)


def summed(x, w):
    return (x @ w).sum()  # SUM


def called(x, w):
    return jax.lax.psum(x @ w, "d")  # CALL


def ordered(x):
    return jnp.sort(x, axis=0)  # SORT


def rolled(x):
    return jnp.roll(jnp.tanh(x), 1, axis=0)  # ROLL


def branches(flag, x):
    def other(x):
        return jax.lax.with_sharding_constraint(jnp.sin(x), columns)  # BRANCH

    return jax.lax.cond(flag, other, lambda x: x * 2.0, x)


def asked(x):
    return jnp.tanh(x)


def whole(x):
    block = jax.shard_map(
        jnp.sin, mesh=mesh, in_specs=P(None, "d"), out_specs=P(None, "d")
    )
    return block(jnp.tanh(x))  # MAP


x = jax.ShapeDtypeStruct((64, 64), "float32", sharding=rows)
flag = jax.ShapeDtypeStruct((), "bool", sharding=NamedSharding(mesh, P()))
for function in (ordered, rolled, whole):
    jax.jit(function).lower(x).compile()
jax.jit(branches).lower(flag, x).compile()
jax.jit(asked, out_shardings=columns).lower(x).compile()
w = jax.ShapeDtypeStruct((64, 64), "float32", sharding=NamedSharding(mesh, P()))
for function in (product, resharded, summed):
    jax.jit(function).lower(x, w).compile()
call = jax.shard_map(called, mesh=mesh, in_specs=(P("d"), P()), out_specs=P())
jax.jit(lambda x, w: call(x, w)).lower(x, w).compile()
"""


def module(text: str) -> Module:
    for word, meaning in WORDS.items():
        text = text.replace(word, meaning)
    return parse(text)


def line_of(mark: str) -> int:
    (number,) = (n for n, line in enumerate(PROGRAM.split("\n"), 1) if line.endswith(f"# {mark}"))
    return number


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Dump:
    """That of all functions, compiled for four CPUs."""
    directory = tmp_path_factory.mktemp("collectives")
    (directory / "program.py").write_text(PROGRAM)
    flags = (
        f"--xla_dump_to={directory / 'dump'} --xla_dump_hlo_pass_re=.* --xla_dump_hlo_as_text "
        "--xla_force_host_platform_device_count=4"
    )
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, directory / "program.py"], env=environment, check=True)
    return open_dump(directory / "dump")


@pytest.fixture(scope="module")
def collectives(dump: Dump) -> dict[str, tuple[Collective, ...]]:
    """Those of each function."""
    return {
        module.name.removeprefix("jit_"): find_collectives(module, module.read(module.final), ())
        for module in dump.modules
        if module.final is not None
    }


@pytest.mark.parametrize("layout", ["", "{0,1}"])
def test_in_a_loop_what_is_carried_leads_to_who_has_split_it(layout: str) -> None:
    after = module(AFTER)
    loop = "loop = (s32[], f32[8,8]"
    partitioning = Partitioning(module(BEFORE.replace(loop, loop + layout)), after)
    there, again = (
        partitioning.origin(collective)
        for collective in after.walk()
        if collective.opcode == "all-to-all"
    )
    assert (there.cause, there.source) == (CollectiveCause.RESHARDING, "a.py:7")
    assert there.before is not None and there.after is not None
    assert (there.before.text, there.after.text) == (WORDS["ROWS"], WORDS["COLUMNS"])
    assert there.before.set_by in ("x", "a.py:8")  # both, one step apart
    assert again.source == "a.py:8" and again.before is not None and again.after is not None
    assert (again.before.text, again.after.text) == (WORDS["COLUMNS"], WORDS["ROWS"])
    assert again.after.set_by == "a.py:8"


def test_shardings_of_a_tuple_are_cut_between_its_elements() -> None:
    assert tuple_shardings("{{replicated}, {mesh['a'=2], [{'a'}, {}]}}") == (
        "{replicated}",
        "{mesh['a'=2], [{'a'}, {}]}",
    )
    assert not tuple_shardings("{devices=[2,1]0,1}")


@pytest.mark.compiler
def test_a_constraint_that_shards_anew_is_named(
    collectives: dict[str, tuple[Collective, ...]],
) -> None:
    assert not collectives["product"]
    (resharding,) = collectives["resharded"]
    # Each device has some rows of x, and needs all of them for its columns of the product.
    assert resharding.kind == "all-gather" and resharding.cause is CollectiveCause.RESHARDING
    assert resharding.bytes == 64 * 64 * 4
    assert str(resharding.source).endswith(f"program.py:{line_of('PRODUCT')}")
    assert resharding.before is not None and resharding.after is not None
    assert str(resharding.after.set_by).endswith(f"program.py:{line_of('HERE')}")
    assert resharding.before.set_by == "x"


@pytest.mark.compiler
def test_a_pair_with_a_collective_leads_to_its_cause(dump: Dump) -> None:
    modules = explain(dump).modules
    (facts,) = (module for module in modules if module.name == "jit_resharded")
    for rows, is_told in ((facts.find_all(Collective), True), ((), False)):
        with_rows = replace(facts, suggestions=Suggestions()).with_finding(Collective, rows)
        text = "".join(to_markdown(brief(with_rows)))
        assert "never-collective" in text
        assert ("Collectives says what causes it" in text) is is_told


@pytest.mark.compiler
def test_what_the_program_calls_and_what_combines_parts_is_no_resharding(
    collectives: dict[str, tuple[Collective, ...]],
) -> None:
    (call,) = next(listed for name, listed in collectives.items() if "lambda" in name)
    assert call.cause is CollectiveCause.PROGRAM
    assert str(call.source).endswith(f"program.py:{line_of('CALL')}")
    (combined,) = collectives["summed"]
    assert combined.cause is CollectiveCause.SUM and combined.kind == "all-reduce"
    assert combined.after is not None and combined.after.operation.opcode == "reduce"
    assert combined.before is not None and combined.before.set_by == "x"
    assert str(combined.source).endswith(f"program.py:{line_of('SUM')}")


@pytest.mark.compiler
def test_what_works_along_a_split_dimension_and_what_reaches_over_is_no_resharding(
    collectives: dict[str, tuple[Collective, ...]],
) -> None:
    assert collectives["ordered"]
    for collective in collectives["ordered"]:
        assert collective.cause is CollectiveCause.WHOLE
        assert str(collective.source).endswith(f"program.py:{line_of('SORT')}")
        assert collective.before is not None and collective.before.set_by == "x"
    (permute,) = collectives["rolled"]
    assert permute.cause is CollectiveCause.NEIGHBOURS
    assert str(permute.source).endswith(f"program.py:{line_of('ROLL')}")


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("name", "mark"), [("branches", "BRANCH"), ("whole", "MAP"), ("asked", None)]
)
def test_a_branch_a_shard_map_and_a_result_set_a_sharding(
    collectives: dict[str, tuple[Collective, ...]], name: str, mark: str | None
) -> None:
    listed = collectives[name]
    assert listed
    for collective in listed:
        assert collective.cause is CollectiveCause.RESHARDING and collective.after is not None
        setter = "the result" if mark is None else f"program.py:{line_of(mark)}"
        assert str(collective.after.set_by).endswith(setter)


RETURNED = """HloModule program, num_partitions=2

ENTRY main {
  x = f32[8,8] parameter(0), sharding=ROWS, metadata={op_name="x"}
  y = f32[8,8] sine(x), sharding=ROWS, SINE
  both = (f32[8,8]) tuple(y), sharding={ROWS}
  ROOT result = f32[8,8] get-tuple-element(both), index=0, sharding=COLUMNS
}
"""
SENT_AT_THE_END = """HloModule program, num_partitions=2

ENTRY main_spmd {
  x = f32[4,8] parameter(0), metadata={op_name="x"}
  y = f32[4,8] sine(x), SINE
  ROOT there = f32[8,4] all-to-all(y), channel_id=1, replica_groups={{0,1}}, dimensions={1}
}
"""


def origins(before: str, after: str, final: str | None = None) -> list[Origin]:
    partitioning = Partitioning(module(before), module(after))
    return [
        partitioning.origin(instruction)
        for instruction in module(final or after).walk()
        if instruction.opcode.startswith("all-")
    ]


def test_a_result_that_is_split_otherwise_is_a_resharding() -> None:
    (origin,) = origins(RETURNED, SENT_AT_THE_END)
    assert (origin.cause, origin.source) == (CollectiveCause.RESHARDING, "a.py:7")
    assert origin.before is not None and origin.after is not None
    assert (origin.before.text, origin.after.text) == (WORDS["ROWS"], WORDS["COLUMNS"])


@pytest.mark.parametrize(("after", "is_sent"), [("COLUMNS", False), ("ROWS", True)])
def test_a_transpose_of_rows_has_columns(after: str, is_sent: bool) -> None:
    transposing = module(
        f"""HloModule program, num_partitions=2

        ENTRY main {{
          x = f32[8,8] parameter(0), sharding=ROWS
          ROOT y = f32[8,8] transpose(x), dimensions={{1,0}}, sharding={after}
        }}
        """
    )
    (x,) = transposing.entry.root.operands
    assert is_resharded(x, transposing.entry.root) is is_sent


def test_of_two_gathers_for_one_operation_each_has_its_operand() -> None:
    """The compiler numbers them anew, so that the channel does not say which is which."""
    before = """HloModule program, num_partitions=2

    ENTRY main {
      x = f32[8,8] parameter(0), sharding=ROWS, metadata={op_name="x"}
      y = f32[8,8] parameter(1), sharding=COLUMNS, metadata={op_name="y"}
      ROOT both = f32[8,8] subtract(x, y), sharding={replicated}, SINE
    }
    """
    after = """HloModule program, num_partitions=2

    ENTRY main_spmd {
      x = f32[4,8] parameter(0), metadata={op_name="x"}
      y = f32[8,4] parameter(1), metadata={op_name="y"}
      gx = f32[8,8] all-gather(x), channel_id=1, replica_groups={{0,1}}, dimensions={0}, SINE
      gy = f32[8,8] all-gather(y), channel_id=2, replica_groups={{0,1}}, dimensions={1}, SINE
      ROOT both = f32[8,8] subtract(gx, gy), SINE
    }
    """
    final = after.replace("channel_id=1", "channel_id=3").replace("channel_id=2", "channel_id=4")
    setters = [origin.before.set_by for origin in origins(before, after, final) if origin.before]
    assert setters == ["x", "y"]


def test_an_all_reduce_that_a_tpu_makes_of_a_reduce_scatter_is_the_programs() -> None:
    call = 'metadata={op_name="reduce_scatter" source_file="a.py" source_line=5}'
    scatter = f"""HloModule program, num_partitions=2

    sum {{ a = f32[] parameter(0)
      b = f32[] parameter(1)
      ROOT c = f32[] add(a, b) }}

    ENTRY main {{
      x = f32[8,8] parameter(0)
      ROOT r = f32[4,8] reduce-scatter(x), channel_id=1, replica_groups={{{{0,1}}}},
        dimensions={{0}}, to_apply=sum, {call}
    }}
    """
    final = """HloModule program, num_partitions=2

    sum { a = f32[] parameter(0)
      b = f32[] parameter(1)
      ROOT c = f32[] add(a, b) }

    ENTRY main_spmd {
      x = f32[8,8] parameter(0)
      ROOT r = f32[8,8] all-reduce(x), channel_id=2, replica_groups={{0,1}}, to_apply=sum
    }
    """
    (origin,) = origins(scatter, scatter, final)
    assert (origin.cause, origin.source) == (CollectiveCause.PROGRAM, "a.py:5")


def test_a_sum_names_what_is_split_along_it() -> None:
    product = """HloModule program, num_partitions=2

    ENTRY main {
      x = f32[8,8] parameter(0), sharding=ROWS, metadata={op_name="x"}
      w = f32[8,8] parameter(1), sharding=ROWS, metadata={op_name="w"}
      ROOT y = f32[8,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0},
        sharding={replicated}, SINE
    }
    """
    summed = """HloModule program, num_partitions=2

    sum { a = f32[] parameter(0)
      b = f32[] parameter(1)
      ROOT c = f32[] add(a, b) }

    ENTRY main_spmd {
      x = f32[8,8] parameter(0)
      ROOT y = f32[8,8] all-reduce(x), channel_id=1, replica_groups={{0,1}}, to_apply=sum, SINE
    }
    """
    (origin,) = origins(product, summed)
    assert (origin.cause, origin.source) == (CollectiveCause.SUM, "a.py:7")
    assert origin.before is not None and origin.before.set_by == "w"
    assert origin.after is not None and origin.after.operation.name == "y"


@pytest.mark.parametrize("name", ["f/sharding_constraint", "jit(f)/jit(g)"])
def test_a_line_comes_before_an_argument_that_is_as_near(name: str) -> None:
    before = """HloModule program, num_partitions=2

    ENTRY main {
      x = f32[8,8] parameter(0), sharding=ROWS, metadata={op_name="x"}
      w = f32[8,8] parameter(1), sharding=COLUMNS, metadata={op_name="w"}
      y = f32[8,8] subtract(x, w), sharding=COLUMNS, SINE
      ROOT back = f32[8,8] copy(y), sharding=COLUMNS, BACK
    }
    """
    after = """HloModule program, num_partitions=2

    ENTRY main_spmd {
      x = f32[4,8] parameter(0), metadata={op_name="x"}
      ROOT there = f32[8,4] all-to-all(x), channel_id=1, replica_groups={{0,1}},
        dimensions={1}, SINE
    }
    """
    before = before.replace("BACK", WORDS["BACK"].replace("f/sharding_constraint", name))
    (origin,) = origins(before, after)
    assert origin.after is not None and origin.after.set_by == "a.py:8"


@pytest.mark.parametrize(
    ("operation", "kind", "cause"),
    [
        ("pad(x, zero), padding=1_0x0_0", "all-reduce", CollectiveCause.NEIGHBOURS),
        (
            "scan(x, row), dimensions={0}, num_carries=1, to_apply=step",
            "all-gather",
            CollectiveCause.WHOLE,
        ),
    ],
)
def test_what_moves_or_runs_along_a_split_dimension_has_a_cause(
    operation: str, kind: str, cause: CollectiveCause
) -> None:
    size, is_scan = ("8,8", True) if "scan" in operation else ("9,8", False)
    result = f"(f32[{size}], f32[8])" if is_scan else f"f32[{size}]"
    sharding = "{ROWS, {replicated}}" if is_scan else "ROWS"
    before = f"""HloModule program, num_partitions=2

    step {{ a = f32[8] parameter(0)
      b = f32[8] parameter(1)
      c = f32[8] add(a, b)
      ROOT d = (f32[8], f32[8]) tuple(c, c) }}

    ENTRY main {{
      x = f32[8,8] parameter(0), sharding=ROWS, metadata={{op_name="x"}}
      zero = f32[] constant(0)
      row = f32[8] broadcast(zero), dimensions={{}}
      ROOT y = {result} {operation}, sharding={sharding}, SINE
    }}
    """
    attributes = "to_apply=sum" if kind == "all-reduce" else "dimensions={0}"
    after = f"""HloModule program, num_partitions=2

    sum {{ a = f32[] parameter(0)
      b = f32[] parameter(1)
      ROOT c = f32[] add(a, b) }}

    ENTRY main_spmd {{
      x = f32[4,8] parameter(0)
      ROOT y = f32[4,8] {kind}(x), channel_id=1, replica_groups={{{{0,1}}}}, {attributes}, SINE
    }}
    """
    (origin,) = origins(before, after)
    assert (origin.cause, origin.source) == (cause, "a.py:7")
