"""Copies, compared with those that the compiler made: the final module has no others."""

from pathlib import Path

import pytest

from fusionscope.dump import open_dump
from fusionscope.graph.mutable import MutableModule, to_module
from fusionscope.history.kernels import Totals, total_kernels
from fusionscope.history.loops import NOTHING_MORE, LoopFacts, read_loop_facts
from fusionscope.hlo import Module, parse
from fusionscope.what_if.copies import copied_parts, insert_copies
from fusionscope.what_if.final_figures import FinalFigures

HERE = Path(__file__).resolve().parent
DUMPS = HERE.parents[1] / "samples" / "dumps"


def with_copies(module: Module, backend: str, loops: LoopFacts = NOTHING_MORE) -> Totals:
    graph = MutableModule(module)
    insert_copies(graph, backend)
    return total_kernels(to_module(graph), backend, loops)


@pytest.mark.parametrize(
    ("dump", "last"),
    [
        ("cpu/cartpole", "after_fusion-wrapper.before_cpu-all-reduce-combiner"),
        ("cpu/loop", "after_fusion-wrapper.before_cpu-all-reduce-combiner"),
        ("h100/loop", "after_multi_output_fusion"),
    ],
)
def test_loops_are_copied_as_in_the_final_module(dump, last):
    (module,) = open_dump(DUMPS / dump).modules
    stage = module.read(module.stage(last))
    actual = with_copies(stage, module.backend, read_loop_facts(module))
    assert actual == total_kernels(module.read(module.final), module.backend)


@pytest.mark.parametrize(
    ("file", "final"),
    [
        ("cpu.jacobi", (16, 274582)),  # read before and after an update in place
        ("cpu.swapped", (113, 414748)),  # two variables of a loop change places
        ("cpu.lion", (41, 3434504)),  # outputs in the buffers of donated arguments
        ("cpu.lion-multi-output", (9, 1321160)),  # a result in the buffer of what another one reads
        ("h100.adam-apart", (33, 3170344)),  # copies that wait for others stay kernels
        ("h100.kmeans", (9, 10843660)),  # a copy becomes an output of its producer
    ],
)
def test_copies_after_fusion(file, final):
    """``final`` are launches and bytes of the final module, which the compiler made of ``file``,
    with one step of the loop whose length it does not know.
    """
    text = (HERE / "after_fusion" / f"{file}.txt").read_text(encoding="utf-8")
    backend = file.partition(".")[0].replace("h100", "gpu")
    once = LoopFacts({"while.3": 1} if file == "cpu.jacobi" else {}, {}, frozenset())
    assert with_copies(parse(text), backend, once) == final


def test_what_is_read_late_is_copied_as_in_the_final_module() -> None:
    """A layer's weights are read once more, by a kernel that does not depend on the one that writes
    the new weights over them. The order that the compiler chose needs a copy in one layer of three.
    """
    after, final = (
        parse((HERE / "after_fusion" / f"{name}.txt").read_text(encoding="utf-8"))
        for name in ("h100.read-late", "h100.read-late.final")
    )
    predicted = FinalFigures(final, after, "gpu", None).predict(after)
    assert predicted.is_certain
    graph = MutableModule(after)
    copies = insert_copies(graph, "gpu", read_late=lambda: copied_parts(MutableModule(final)))
    assert len(copies.left_to_order) == 3
    assert total_kernels(to_module(graph), "gpu") == total_kernels(final, "gpu")
