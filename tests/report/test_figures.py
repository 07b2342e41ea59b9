"""Figures of a kernel and those around it: what they show is what `explain` says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import networkx
import pytest
from click.testing import CliRunner

from fusionscope import UnusableInput
from fusionscope.cli.main import cli
from fusionscope.dump import open_dump

DUMPS = Path(__file__).resolve().parents[2] / "samples" / "dumps"
GPU = DUMPS / "h100" / "concatenate"
SVG = "{http://www.w3.org/2000/svg}"


def run(command: str, *words: object) -> str:
    ended = CliRunner().invoke(cli, [command, *map(str, words)])
    assert ended.exit_code == 0, ended.output
    return ended.stdout


def figure(format_name: str, dump: Path = GPU, kernel: str = "input_concatenate*") -> str:
    return run("draw", dump, kernel, "--format", format_name)


def read(text: str) -> networkx.DiGraph:
    return networkx.node_link_graph(json.loads(text), edges="edges")


def test_a_bitmap_is_twice_as_large_as_the_drawing(tmp_path: Path) -> None:
    pytest.importorskip("resvg_py")
    file = tmp_path / "figure.png"
    assert not run("draw", GPU, "*", "--format", "png", "--output", file)
    data = file.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    drawing = ElementTree.fromstring(figure("svg", kernel="*"))
    size = [int.from_bytes(data[at : at + 4]) for at in (16, 20)]
    assert size == [2 * int(drawing.attrib[name]) for name in ("width", "height")]
    without = CliRunner().invoke(cli, ["draw", str(GPU), "*", "--format", "png"])
    assert isinstance(without.exception, UnusableInput) and "--output" in str(without.exception)


def test_the_refused_pairs_of_a_kernel_are_those_of_its_page() -> None:
    graph = read(figure("json-graph"))
    (module,) = json.loads(run("explain", GPU, "--no-try", "--format", "json"))["modules"]
    pairs = {
        (pair["producer"]["name"], pair["consumer"]["name"], pair["reason"], pair["bytes_saved"])
        for pair in module["pairs"]
        if pair["outcome"] == "not-fused"
    }
    names = networkx.get_node_attributes(graph, "name")
    drawn = {
        (names[read], names[reader], item["reason"], item["bytes"])
        for read, reader, item in graph.edges(data=True)
        if item["reason"]
    }
    in_program = {
        (a.removesuffix(".0"), b.removesuffix(".0"), *remaining) for a, b, *remaining in pairs
    }
    assert drawn and drawn == in_program
    kernels = {item["kernel"]: item["is_chosen"] for _, item in graph.nodes(data=True)}
    assert kernels == {
        "wrapped_tanh": False,
        "loop_multiply_fusion": False,
        "input_concatenate_fusion": True,
    }


def test_a_value_from_outside_is_not_the_equal_one_inside() -> None:
    """The kernel has a zero of its own for one reduction, and reads another one for the next."""
    dump = DUMPS / "a100-jaxlib-0.4.35" / "reductions"
    graph = read(figure("json-graph", dump, "input_reduce_fusion"))
    readers = [
        graph.nodes[reader]["name"]
        for read, reader in graph.edges
        if graph.nodes[read]["name"] == "constant.8"
    ]
    assert readers == ["reduce.23"]


@pytest.mark.parametrize(
    "name",
    [
        "cpu/loop",
        "h100/attention",
        "tpu-v5e/softmax",
        pytest.param("h100/cartpole", marks=pytest.mark.slow),
    ],
)
def test_every_operation_of_a_kernel_is_drawn(name: str) -> None:
    (module,) = json.loads(run("explain", DUMPS / name, "--no-try", "--format", "json"))["modules"]
    (dumped,) = open_dump(DUMPS / name).modules
    before = dumped.read(dumped.stages[0])
    program = {(instruction.name, instruction.opcode) for instruction in before.walk()}
    for kernel in module["kernels"][:4]:
        words = ["draw", DUMPS / name, kernel["name"], "--radius", "0"]
        graph = read(run(*words, "--format", "json-graph"))
        operations = {(node["name"], node["opcode"]) for _, node in graph.nodes(data=True)}
        # A kernel that computes one value twice has it once here, and what a pass rewrote, as a
        # division by a constant, is drawn as the program has it.
        members = {*kernel["members"], "constant", "bitcast-convert"}
        rewritten = {operation for operation in operations if operation[1] not in members}
        assert rewritten <= program, kernel["name"]
        assert operations - rewritten
        drawing = ElementTree.fromstring(run(*words, "--format", "svg"))
        boxes = drawing.findall(f".//{SVG}rect[@class='operation']")
        assert len(boxes) == graph.number_of_nodes()


def test_formats_agree() -> None:
    graph = read(figure("json-graph"))
    same = networkx.parse_graphml(figure("graphml"))
    assert dict(same.nodes(data="shape")) == dict(graph.nodes(data="shape"))
    assert {(*edge[:2], edge[2] or "") for edge in same.edges(data="reason")} == set(
        graph.edges(data="reason")
    )
    dot = figure("dot")
    assert set(re.findall(r"^    (k\d+n\d+) \[", dot, re.MULTILINE)) == set(graph)
    assert set(re.findall(r"^  (k\w+) -> (k\w+)", dot, re.MULTILINE)) == set(graph.edges)


def test_boxes_do_not_overlap_and_hold_their_operations() -> None:
    drawing = ElementTree.fromstring(figure("svg", DUMPS / "h100" / "cartpole", "*"))

    def corners(rect: ElementTree.Element) -> tuple[float, float, float, float]:
        x, y, width, height = (float(rect.get(name, "")) for name in ("x", "y", "width", "height"))
        return x, y, x + width, y + height

    kernels = [
        corners(group.find(f"{SVG}rect"))
        for group in drawing.findall(f".//{SVG}g")
        if (group.get("class") or "").startswith("kernel")
    ]
    for number, (left, top, right, bottom) in enumerate(kernels):
        for second in kernels[:number]:
            assert (
                second[0] >= right or second[2] <= left or second[1] >= bottom or second[3] <= top
            )
    for rect in drawing.findall(f".//{SVG}rect[@class='operation']"):
        x, y, end, bottom = corners(rect)
        assert any(
            box[0] <= x and end <= box[2] and box[1] <= y and bottom <= box[3] for box in kernels
        )


def test_names_stay_text(tmp_path: Path) -> None:
    name = 'evil"><script>alert(1)</script>'
    (tmp_path / "m.hlo").write_text(
        "HloModule m\n\nENTRY %e (x: f32[4]) -> f32[4] {\n  %x = f32[4]{0} parameter(0)\n"
        '  ROOT %tanh.1 = f32[4]{0} tanh(%x), metadata={op_name="a" '
        f'source_file="{name.replace(chr(34), "")}" source_line=3}}\n}}\n'
    )
    svg = figure("svg", tmp_path / "m.hlo", "*")
    assert "<script" not in svg and "&lt;script" in svg
    ElementTree.fromstring(svg)


def test_a_kernel_that_is_not_there() -> None:
    ended = CliRunner().invoke(cli, ["draw", str(GPU), "nothing"])
    assert isinstance(ended.exception, UnusableInput)
    assert "near: " in str(ended.exception)
