"""The graph that replays work on."""

from itertools import pairwise
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusionscope.dump import open_dump
from fusionscope.graph.buffer_sharing import may_share
from fusionscope.graph.cleanup import clean_up, join_equal, remove_copies
from fusionscope.graph.comparison import find_divergence
from fusionscope.graph.fusing import merge_fusion
from fusionscope.graph.mutable import (
    MutableInstruction,
    MutableModule,
    replace_operand,
    to_module,
)
from fusionscope.graph.reachability import Reachability
from fusionscope.hlo import parse
from fusionscope.hlo.printer import to_text

DUMPS = Path(__file__).resolve().parents[2] / "samples" / "dumps"
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
    actual = {instruction.name: instruction for instruction in graph.walk()}
    wide, source = actual["t"], actual["x"]
    replace_operand(wide, actual["n0"], source)  # remembers
    while len(wide.operands) > 2:
        wide.operands.pop().users.drop(wide)
    wide.operands.append(actual["n5"])
    actual["n5"].users.add(wide)
    wide.places.pop(actual["n5"], None)
    replace_operand(wide, actual["n5"], source)
    assert [operand.name for operand in wide.operands] == ["x", "n1", "x"]
    assert source.users.slots(wide) == 2
    assert wide not in actual["n5"].users


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
    assert {instruction.opcode for instruction in consumer.fused.instructions} == {
        "parameter",
        "sine",
        "tanh",
    }
    assert consumer.fused.root.operands[0].opcode == "sine"
    assert {instruction.opcode for instruction in graph.entry.instructions} == {
        "parameter",
        "fusion",
    }


@given(st.data())
def test_reachability_is_that_of_the_graph_in_which_what_was_merged_is_one(data):
    sizes = data.draw(st.lists(st.integers(0, 3), min_size=2, max_size=14))
    lines = ["  v0 = f32[4] parameter(0)"]
    for number, count in enumerate(sizes, 1):
        names = st.sampled_from([f"v{item}" for item in range(number)])
        read = data.draw(st.lists(names, min_size=count, max_size=count))
        lines.append(f'  v{number} = f32[4] custom-call({", ".join(read)}), custom_call_target="t"')
    text = "\n".join(
        ["HloModule m", "", "ENTRY e {", *lines[:-1], f"  ROOT {lines[-1].strip()}", "}"]
    )
    order = MutableModule(parse(text)).entry.post_order()
    graph = nx.DiGraph()
    graph.add_nodes_from(order)
    graph.add_edges_from((operand, item) for item in order for operand in item.operands)
    reachability = Reachability(order)
    one_of = {item: item for item in order}
    for _ in range(data.draw(st.integers(0, 6))):
        pair = data.draw(st.tuples(st.sampled_from(order), st.sampled_from(order)))
        reachability.merge(*pair)
        first, second = one_of[pair[0]], one_of[pair[1]]
        if first is not second:
            graph = nx.contracted_nodes(graph, first, second, self_loops=False, copy=False)
            one_of = {item: first if of is second else of for item, of in one_of.items()}
        for end in order:
            before = nx.ancestors(graph, one_of[end]) | {one_of[end]}
            for start in order:
                assert reachability.reaches(start, end) == (one_of[start] in before)


@pytest.mark.parametrize(
    "name", ["a100-jaxlib-0.4.35/updates", "h100/cartpole", "h100/elementwise", "h100/libraries"]
)
def test_equal_instructions_are_joined_as_the_compiler_does(name):
    """Stages before and after its own pass, inside of fusions."""
    (module,) = open_dump(DUMPS / name).modules
    joined = 0
    for before, after in pairwise(module.stages):
        if after.name.after == "cse" and "fusion" in after.name.pipeline:
            graph = MutableModule(module.read(before))
            assert join_equal(
                computation for computation in graph.post_order() if computation.is_fused
            )
            assert find_divergence(to_module(graph), module.read(after)) is None
            joined += 1
    assert joined


@pytest.mark.parametrize(
    ("one", "other", "is_joined"),
    [
        ("add(%x, %y)", "add(%y, %x)", True),
        ("subtract(%x, %y)", "subtract(%y, %x)", False),
        ("slice(%x), slice={[0:2]}", "slice(%x), slice={[0:2]}", True),
        ("slice(%x), slice={[0:2]}", "slice(%x), slice={[1:3]}", False),
        ("add(%x, %i)", "add(%x, %j)", True),  # equal iotas
        ("add(%x, %c)", "add(%x, %d)", True),  # equal constants
        ("negate(%x), control-predecessors={%i}", "negate(%x)", False),
        ("add(%x, %k)", "add(%x, %l)", False),  # large constants, whose values are not in the dump
    ],
)
def test_instructions_are_equal_if_their_results_are(one, other, is_joined):
    shape = "f32[2]{0}" if "slice" in one else "f32[4]{0}"
    text = f"""HloModule m

ENTRY %e (x: f32[4], y: f32[4]) -> ({shape}, {shape}) {{
  %x = f32[4]{{0}} parameter(0)
  %y = f32[4]{{0}} parameter(1)
  %i = f32[4]{{0}} iota(), iota_dimension=0
  %j = f32[4]{{0}} iota(), iota_dimension=0
  %c = f32[4]{{0}} constant({{1, 2, 3, 4}})
  %d = f32[4]{{0}} constant({{1, 2, 3, 4}})
  %k = f32[4]{{0}} constant({{...}})
  %l = f32[4]{{0}} constant({{...}})
  %one = {shape} {one}
  %other = {shape} {other}
  ROOT %t = ({shape}, {shape}) tuple(%one, %other)
}}
"""
    graph = MutableModule(parse(text))
    join_equal([graph.entry])
    first, second = graph.entry.root.operands
    assert (first is second) is is_joined


def test_only_copies_that_change_no_layout_are_removed():
    text = """HloModule m

%f (p: f32[4,2]) -> f32[4,2] {
  %p = f32[4,2]{1,0} parameter(0)
  ROOT %inside = f32[4,2]{1,0} copy(%p)
}

ENTRY %e (x: f32[4,2]) -> (f32[4,2], f32[4,2], f32[4,2]) {
  %x = f32[4,2]{1,0} parameter(0)
  %same = f32[4,2]{1,0} copy(%x)
  %other = f32[4,2]{0,1} copy(%same)
  %kernel = f32[4,2]{1,0} fusion(%same), kind=kLoop, calls=%f
  ROOT %t = (f32[4,2]{1,0}, f32[4,2]{0,1}, f32[4,2]{1,0}) tuple(%same, %other, %kernel)
}
"""
    graph = MutableModule(parse(text))
    remove_copies(graph)
    assert {instruction.name for instruction in graph.walk() if instruction.opcode == "copy"} == {
        "inside",
        "other",
    }
    assert graph.entry.root.operands[0].name == "x"


@pytest.mark.parametrize(("backend", "copies"), [("cpu", 1), ("gpu", 2)])
def test_elements_of_tuples_are_read_where_they_come_from(backend, copies):
    """On CPUs, equal operations behind two tuples are then one."""
    text = """HloModule m

ENTRY %e (x: f32[4,2]) -> (f32[4,2], f32[4,2]) {
  %x = f32[4,2]{1,0} parameter(0)
  %y = f32[4,2]{1,0} negate(%x)
  %one = (f32[4,2]{1,0}, f32[4,2]{1,0}) tuple(%y, %x)
  %other = (f32[4,2]{1,0}, f32[4,2]{1,0}) tuple(%x, %x)
  %first = f32[4,2]{1,0} get-tuple-element(%one), index=1
  %second = f32[4,2]{1,0} get-tuple-element(%other), index=0
  %copy.1 = f32[4,2]{0,1} copy(%first)
  %copy.2 = f32[4,2]{0,1} copy(%second)
  ROOT %t = (f32[4,2]{0,1}, f32[4,2]{0,1}) tuple(%copy.1, %copy.2)
}
"""
    graph = MutableModule(parse(text))
    clean_up(graph, backend)
    assert [instruction.opcode for instruction in graph.walk()].count("copy") == copies
    tuples = [instruction.name for instruction in graph.walk() if instruction.opcode == "tuple"]
    assert (tuples == ["t"]) is (backend == "cpu")


FUSION = """HloModule m

%f (p: f32[4], q: f32[4]) -> (f32[4], f32[4], f32[4]) {{
  %p = f32[4]{{0}} parameter(0)
  %q = f32[4]{{0}} parameter(1)
  %a = f32[4]{{0}} {first}(%p)
  %b = f32[4]{{0}} negate(%p)
  %c = f32[4]{{0}} sine(%q)
  ROOT %r = (f32[4]{{0}}, f32[4]{{0}}, f32[4]{{0}}) tuple(%a, %b, %c)
}}

ENTRY %e (x: f32[4], y: f32[4]) -> ({shapes}) {{
  %x = f32[4]{{0}} parameter(0)
  %y = f32[4]{{0}} parameter(1)
  %z = f32[4]{{0}} cosine(%y)
  %k = (f32[4]{{0}}, f32[4]{{0}}, f32[4]{{0}}) fusion(%x, %z), kind=kLoop, calls=%f{options}
{reads}  ROOT %t = ({shapes}) tuple({names})
}}
"""


def with_fusion(first: str, read: tuple[int, ...], options: str = "") -> MutableModule:
    """A fusion of ``first``, ``negate`` and ``sine`` whose results in ``read`` are read."""
    text = FUSION.format(
        first=first,
        options=options,
        shapes=", ".join("f32[4]{0}" for _ in read),
        reads="".join(
            f"  %g{place} = f32[4]{{0}} get-tuple-element(%k), index={index}\n"
            for place, index in enumerate(read)
        ),
        names=", ".join(f"%g{place}" for place in range(len(read))),
    )
    return MutableModule(parse(text))


def results_of(fusion: MutableInstruction) -> list[str]:
    root = fusion.fused.root
    return [operand.opcode for operand in (root.operands if fusion.is_multi_output else [root])]


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
@pytest.mark.parametrize(
    ("first", "read", "results", "operands"),
    [
        ("abs", (0, 1, 2), ["abs", "negate", "sine"], ["x", "z"]),
        ("negate", (0, 1, 2), ["negate", "sine"], ["x", "z"]),
        ("negate", (1, 2), ["negate", "sine"], ["x", "z"]),
        ("negate", (0, 1), ["negate"], ["x"]),
        ("abs", (2, 0), ["abs", "sine"], ["x", "z"]),
        ("abs", (2,), ["sine"], ["z"]),
    ],
)
def test_equal_and_unused_results_of_fusions_are_removed(backend, first, read, results, operands):
    graph = with_fusion(first, read)
    assert clean_up(graph, backend) is (first == "negate" or len(read) < 3)
    fusion = next(instruction for instruction in graph.walk() if instruction.opcode == "fusion")
    assert results_of(fusion) == results
    assert [operand.name for operand in fusion.operands] == operands
    assert ("z" in operands) is any(instruction.opcode == "cosine" for instruction in graph.walk())
    what = [
        results[int(operand.attributes["index"]) if operand is not fusion else 0]
        for operand in graph.entry.root.operands
    ]
    assert what == [(first, "negate", "sine")[index] for index in read]
    parse(to_text(to_module(graph)))


def test_results_that_share_memory_with_operands_stay():
    graph = with_fusion("abs", (2,), ", output_to_operand_aliasing={{0}: (0, {})}")
    assert not clean_up(graph, "cpu")


@pytest.mark.parametrize(
    ("kind", "body", "is_shared"),
    [
        ("kLoop", "negate(%p)", True),
        ("kLoop", "reverse(%p), dimensions={0}", False),
        ("kCustom", "negate(%p)", True),
        ("kCustom", "reverse(%p), dimensions={0}", False),
    ],
)
def test_what_a_fusion_reads_element_by_element_it_may_overwrite(kind, body, is_shared):
    """Whoever makes its code: a library's kernel does, too."""
    text = f"""HloModule m

%f (p: f32[4]) -> f32[4] {{
  %p = f32[4]{{0}} parameter(0)
  ROOT %r = f32[4]{{0}} {body}
}}

ENTRY %e (x: f32[4]) -> f32[4] {{
  %x = f32[4]{{0}} parameter(0)
  ROOT %k = f32[4]{{0}} fusion(%x), kind={kind}, calls=%f
}}
"""
    graph = MutableModule(parse(text))
    assert may_share(graph.entry.parameters[0], graph.entry.root, ()) is is_shared
