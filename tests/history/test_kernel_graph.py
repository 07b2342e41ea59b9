"""Graphs of launches and of instructions. Edges are read off the modules by hand."""

from pathlib import Path

import networkx
import pytest
from sample_kinds import all_samples

import fusionscope
from fusionscope import Module, UnusableInput, parse
from fusionscope.history.kernel_graph import kernel_graph

DUMPS = Path(__file__).resolve().parents[2] / "samples" / "dumps"


def values(graph: networkx.MultiDiGraph) -> list[tuple[str, str, int]]:
    """Makers, readers and bytes."""
    edges = graph.edges(data="bytes")
    return sorted((maker.name, reader.name, size) for maker, reader, size in edges)


def of_text(text: str) -> list[tuple[str, str, int]]:
    return values(kernel_graph(parse(f"HloModule m\n{text}"), "gpu"))


def final(samples, dump: Path) -> tuple[Module, str | None]:
    module = samples.module(dump)
    assert module.final is not None
    return module.read(module.final), module.backend


def test_values_of_a_loop_come_from_before_it_and_from_its_last_iteration():
    graph = fusionscope.open(DUMPS / "h100" / "loop").kernel_graph()
    assert values(graph) == [
        ("copy.12", "input_add_reduce_fusion", 16384),  # f32[4096]
        ("copy.13", "loop_add_fusion", 4),
        ("copy.13", "loop_and_fusion", 4),
        ("copy.14", "loop_and_fusion", 4),
        ("copy.7", "input_add_reduce_fusion", 16384),
        ("input_add_reduce_fusion", "copy.7", 16384),
        ("input_add_reduce_fusion", "loop_and_fusion", 4),
        ("loop_add_fusion", "loop_add_fusion", 4),
        ("loop_add_fusion", "loop_and_fusion", 4),
    ]
    (copy,) = [item for item in graph if item.name == "copy.7"]
    assert graph.nodes[copy]["computation"] == "region_0.4"
    assert not networkx.is_directed_acyclic_graph(graph)


def test_only_what_a_reader_reads_of_a_value_counts():
    graph = fusionscope.open(DUMPS / "h100" / "concatenate").kernel_graph("jit_*")
    assert [graph.nodes[item]["kind"] for item in graph][:2] == ["wrapped", "fusion"]
    read = {(maker, reader): size for maker, reader, size in values(graph)}
    assert len(read) == 6
    assert read["wrapped_tanh", "input_concatenate_fusion"] == 1024 * 128 * 4
    # f32[1024,160] of f32[1024,320]: every second column
    assert read["wrapped_tanh", "loop_add_fusion"] == 1024 * 64 * 4


CALLED = """
called {
  p = f32[8] parameter(0)
  q = (f32[4], f32[2]) parameter(1)
  first = f32[4] get-tuple-element(q), index=0
  negate = f32[8] negate(p)
  exponential = f32[4] exponential(first)
  ROOT both = (f32[8], f32[4]) tuple(negate, exponential)
}
"""


def test_a_call_hides_no_value():
    assert of_text(f"""{CALLED}
ENTRY main {{
  x = f32[8] parameter(0)
  y = f32[4] parameter(1)
  z = f32[2] parameter(2)
  a = f32[8] abs(x)
  b = f32[4] abs(y)
  c = f32[2] abs(z)
  pair = (f32[4], f32[2]) tuple(b, c)
  results = (f32[8], f32[4]) call(a, pair), to_apply=called
  ROOT last = f32[8] negate(results#0)
}}
""") == [("a", "negate", 32), ("b", "exponential", 16), ("negate", "last", 32)]


def test_two_calls_of_a_computation_are_one_node_that_runs_twice():
    module = parse(f"""HloModule m
{CALLED}
ENTRY main {{
  x = f32[8] parameter(0)
  y = (f32[4], f32[2]) parameter(1)
  a = f32[8] abs(x)
  one = (f32[8], f32[4]) call(a, y), to_apply=called
  two = (f32[8], f32[4]) call(one#0, y), to_apply=called
  ROOT last = f32[8] negate(two#0)
}}
""")
    graph = kernel_graph(module, "gpu")
    runs = {item.name: count for item, count in graph.nodes(data="runs")}
    assert runs == {"a": 1, "negate": 2, "exponential": 2, "last": 1}
    expected = [("a", "negate", 32), ("negate", "last", 32), ("negate", "negate", 32)]
    assert values(graph) == expected


def test_a_branch_gets_its_own_operand_and_any_branch_may_make_the_result():
    assert of_text("""
one {
  p = f32[8] parameter(0)
  ROOT negate = f32[8] negate(p)
}

other {
  q = f32[8] parameter(0)
  ROOT same = f32[8] bitcast(q)
}

ENTRY main {
  index = s32[] parameter(0)
  x = f32[8] parameter(1)
  a = f32[8] abs(x)
  b = f32[8] exponential(x)
  chosen = f32[8] conditional(index, a, b), branch_computations={one, other}
  ROOT last = f32[8] negate(chosen)
}
""") == [("a", "negate", 32), ("b", "last", 32), ("negate", "last", 32)]


def test_of_a_tuple_that_is_read_as_a_whole_each_array_counts():
    assert of_text("""
ENTRY main {
  x = f32[8] parameter(0)
  a = f32[8] abs(x)
  b = f32[2] slice(x), slice={[0:2]}
  pair = (f32[8], f32[2]) tuple(a, b)
  ROOT c = f32[8] custom-call(pair), custom_call_target="own"
}
""") == [("a", "c", 32), ("b", "c", 8)]


@pytest.mark.slow
@pytest.mark.parametrize("dump", all_samples())
def test_graphs_of_samples(dump, samples):
    module, backend = final(samples, dump)
    graph = kernel_graph(module, backend)
    assert graph.number_of_nodes()
    for _, reader, value in graph.edges(data=True):
        assert 0 <= value["bytes"] <= reader.operands[value["operand"]].shape.byte_size
    instructions = module.to_networkx()
    assert list(instructions) == list(module.walk())
    assert instructions.number_of_edges() == module.edge_count
    assert networkx.is_directed_acyclic_graph(instructions)


def test_instructions_of_a_module():
    module = parse("""HloModule m

ENTRY main {
  x = f32[8,4]{1,0} parameter(0)
  square = f32[8,4]{1,0} multiply(x, x)
  ROOT sum = f32[8,4]{1,0} add(square, x)
}
""")
    graph = module.to_networkx()
    assert [(a.name, b.name, slot) for a, b, slot in graph.edges(data="operand")] == [
        ("x", "square", 0),
        ("x", "square", 1),
        ("x", "sum", 1),
        ("square", "sum", 0),
    ]
    assert graph.nodes[module.entry.root] == {
        "name": "sum",
        "opcode": "add",
        "shape": "f32[8,4]{1,0}",
        "computation": "main",
    }
    assert "".join(networkx.generate_graphml(graph))  # attributes are of types that files can hold


def test_a_module_that_contradicts_itself_is_no_graph(tmp_path):
    path = tmp_path / "module.txt"
    path.write_text("HloModule m\n\nENTRY main {\n  ROOT a = f32[] abs(b)\n}\n")
    dump = fusionscope.open(path)
    (module,) = dump.modules
    for build in (module.read(module.stages[-1]).to_networkx, dump.kernel_graph):
        with pytest.raises(UnusableInput, match="a reads 'b', which is not defined above it"):
            build()


def test_a_glob_that_no_module_matches_is_told():
    with pytest.raises(UnusableInput, match="no module matches 'other'"):
        fusionscope.open(DUMPS / "h100" / "loop").kernel_graph("other")
