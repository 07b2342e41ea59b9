"""The graph that replays work on."""

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from fusionscope.graph.fusing import merge_fusion
from fusionscope.graph.mutable import MutableModule, replace_operand
from fusionscope.graph.reachability import Reachability
from fusionscope.hlo import parse

WIDTH = 12


def test_operands_are_replaced_in_what_was_wide_and_is_not_any_more():
    """The slots of a wide tuple are remembered, and what is remembered may have gone since."""
    names = [f"n{number}" for number in range(WIDTH)]
    lines = "".join(f"  %{name} = f32[] negate(%x)\n" for name in names)
    shape = ", ".join("f32[]" for _ in names)
    module = parse(
        f"HloModule m\n\nENTRY %e (x: f32[]) -> ({shape}) {{\n  %x = f32[] parameter(0)\n{lines}"
        f"  ROOT %t = ({shape}) tuple({', '.join(f'%{name}' for name in names)})\n}}\n"
    )
    graph = MutableModule(module)
    found = {each.name: each for each in graph.walk()}
    wide, source = found["t"], found["x"]
    replace_operand(wide, found["n0"], source)  # remembers
    while len(wide.operands) > 2:
        wide.operands.pop().users.drop(wide)
    wide.operands.append(found["n5"])
    found["n5"].users.add(wide)
    wide.places.pop(found["n5"], None)
    replace_operand(wide, found["n5"], source)
    assert [each.name for each in wide.operands] == ["x", "n1", "x"]
    assert source.users.slots(wide) == 2
    assert wide not in found["n5"].users


def test_dead_code_of_a_fusion_is_left_behind():
    """Before and behind the root in the text; only damaged dumps have any."""
    graph = MutableModule(
        parse("""HloModule m

first {
  p = f32[2] parameter(0)
  dead = f32[2] negate(p)
  deader = f32[2] exponential(dead)
  ROOT live = f32[2] sine(p)
  last = f32[2] cosine(p)
}

second {
  q = f32[2] parameter(0)
  ROOT root = f32[2] tanh(q)
}

ENTRY main {
  x = f32[2] parameter(0)
  producer = f32[2] fusion(x), kind=kLoop, calls=first
  ROOT consumer = f32[2] fusion(producer), kind=kLoop, calls=second
}
""")
    )
    consumer = graph.entry.root
    merge_fusion(consumer, consumer.operands[0])
    assert {each.opcode for each in consumer.fused.instructions} == {"parameter", "sine", "tanh"}
    assert consumer.fused.root.operands[0].opcode == "sine"
    assert {each.opcode for each in graph.entry.instructions} == {"parameter", "fusion"}


@given(st.data())
def test_reachability_is_that_of_the_graph_in_which_what_was_merged_is_one(data):
    sizes = data.draw(st.lists(st.integers(0, 3), min_size=2, max_size=14))
    lines = ["  v0 = f32[4] parameter(0)"]
    for number, count in enumerate(sizes, 1):
        names = st.sampled_from([f"v{each}" for each in range(number)])
        read = data.draw(st.lists(names, min_size=count, max_size=count))
        lines.append(f'  v{number} = f32[4] custom-call({", ".join(read)}), custom_call_target="t"')
    text = "\n".join(
        ["HloModule m", "", "ENTRY e {", *lines[:-1], f"  ROOT {lines[-1].strip()}", "}"]
    )
    order = MutableModule(parse(text)).entry.post_order()
    graph = nx.DiGraph()
    graph.add_nodes_from(order)
    graph.add_edges_from((operand, each) for each in order for operand in each.operands)
    reachability = Reachability(order)
    one_of = {each: each for each in order}
    for _ in range(data.draw(st.integers(0, 6))):
        pair = data.draw(st.tuples(st.sampled_from(order), st.sampled_from(order)))
        reachability.merge(*pair)
        first, second = one_of[pair[0]], one_of[pair[1]]
        if first is not second:
            graph = nx.contracted_nodes(graph, first, second, self_loops=False, copy=False)
            one_of = {each: first if of is second else of for each, of in one_of.items()}
        for end in order:
            before = nx.ancestors(graph, one_of[end]) | {one_of[end]}
            for start in order:
                assert reachability.reaches(start, end) == (one_of[start] in before)
