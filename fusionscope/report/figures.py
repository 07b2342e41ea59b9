"""Kernels and those around them as figures: SVG, and graphs for other programs."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from fusionscope.errors import UnusableInput
from fusionscope.facts.result import KernelFacts, PairFacts
from fusionscope.page.fusion_graph import Place
from fusionscope.page.kernel_neighbourhood import Edge, Neighbourhood, edges_of
from fusionscope.page.layout import lay_out
from fusionscope.words.text import duration, file_and_line, safe, size, squeeze

if TYPE_CHECKING:
    import networkx

_ROW, _HIGH, _GAP, _MARGIN, _TITLE = 32.0, 20.0, 18.0, 8.0, 34.0  # pixels
_BETWEEN = 56.0  # pixels between layers
_LETTER = 7.3  # pixels of a letter in the monospaced font of 12 pixels
# Most systems have one of these. To resvg, "monospace" is only the first.
_MONOSPACED = (
    "Courier New", "DejaVu Sans Mono", "Liberation Mono", "Noto Sans Mono", "FreeMono", "Menlo"
)  # fmt: skip
_ONE_LETTER = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9">'
    '<text y="9" font-family="monospace">x</text></svg>'
)
_WIDEST = 36  # letters
_ZOOM = 2  # of a bitmap
_NO_BITMAPS = "a bitmap needs resvg: pip install 'fusionscope[report]', or use --format svg"
_STYLE = """
text { font: 12px monospace; fill: #111 }
.title { font-weight: bold }
.kernel rect { fill: #f4f4f5; stroke: #71717a }
.chosen rect { fill: #dbeafe; stroke: #1d4ed8; stroke-width: 2 }
.operation { fill: #fff; stroke: #a1a1aa }
path { fill: none; stroke: #52525b; stroke-width: 1.2 }
.refused { stroke: #b91c1c; stroke-width: 2; stroke-dasharray: 6 3 }
text.reason { fill: #b91c1c; paint-order: stroke; stroke: #fff; stroke-width: 4px }
"""


def to_networkx(neighbourhood: Neighbourhood) -> networkx.DiGraph[str]:
    """Return a graph with a node for each operation in each kernel."""
    import networkx

    graph: networkx.DiGraph[str] = networkx.DiGraph()
    for place in neighbourhood.graph.stages[0].added:
        operation, kernel = (
            neighbourhood.graph.nodes[place.node],
            neighbourhood.kernels[place.kernel],
        )
        graph.add_node(
            _id(place),
            name=safe(operation.name),
            opcode=safe(operation.opcode),
            shape=safe(operation.shape),
            kernel=safe(kernel.name),
            is_output=place.is_output,
            is_chosen=place.kernel in neighbourhood.chosen,
            source=safe(operation.source or ""),
        )
    for edge in edges_of(neighbourhood):
        pair = edge.refused
        graph.add_edge(
            _id(edge.read),
            _id(edge.reader),
            is_fused=edge.read.kernel == edge.reader.kernel,
            reason=safe(pair.reason or "") if pair is not None else "",
            bytes=pair.bytes_saved if pair is not None else 0,
        )
    return graph


def to_graphml(neighbourhood: Neighbourhood) -> str:
    import networkx

    return "\n".join(networkx.generate_graphml(to_networkx(neighbourhood))) + "\n"


def to_json_graph(neighbourhood: Neighbourhood) -> str:
    """Return what ``networkx.node_link_graph(data, edges="edges")`` reads."""
    import networkx

    return (
        json.dumps(networkx.node_link_data(to_networkx(neighbourhood), edges="edges"), indent=1)
        + "\n"
    )


def to_dot(neighbourhood: Neighbourhood) -> str:
    """Return a graph for Graphviz, with a cluster for each kernel."""
    lines = ["digraph kernels {", '  node [shape=box, fontname="monospace", fontsize=11];']
    inside: dict[int, list[Place]] = defaultdict(list)
    for place in neighbourhood.graph.stages[0].added:
        inside[place.kernel].append(place)
    for kernel, places in inside.items():
        colour = "#1d4ed8" if kernel in neighbourhood.chosen else "#71717a"
        lines.append(f"  subgraph cluster_{kernel} {{")
        title = _quoted(_title(neighbourhood.kernels[kernel]))
        lines.append(f"    label={title}; color={_quoted(colour)};")
        for place in places:
            operation = neighbourhood.graph.nodes[place.node]
            lines.append(
                f"    {_id(place)} [label={_quoted(operation.name)}, "
                f"tooltip={_quoted(operation.shape)}];"
            )
        lines.append("  }")
    for edge in edges_of(neighbourhood):
        how = ""
        if edge.refused is not None:
            label = _quoted(edge.refused.reason or "")
            how = f' [color="#b91c1c", style=dashed, label={label}]'
        lines.append(f"  {_id(edge.read)} -> {_id(edge.reader)}{how};")
    return "\n".join([*lines, "}"]) + "\n"


@dataclass(frozen=True, slots=True)
class _Box:
    """A kernel with its operations by row, from left to right. Sizes are pixels."""

    kernel: int
    layer: int
    order: int
    rows: dict[int, list[int]]
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class _Spot:
    """The rectangle of an operation, and the lower end of its kernel, in pixels."""

    x: float
    y: float
    width: float
    bottom: float


def to_svg(neighbourhood: Neighbourhood) -> str:
    """Return a picture: kernels as boxes around operations, producers above consumers."""
    boxes = _boxes(neighbourhood)
    layers: dict[int, list[_Box]] = defaultdict(list)
    for box in boxes:
        layers[box.layer].append(box)
    widths = {
        layer: sum(box.width + _GAP for box in inside) + _GAP for layer, inside in layers.items()
    }
    total = max(widths.values(), default=0.0)
    kernels: list[str] = []
    operations: list[str] = []
    spots: dict[tuple[int, int], _Spot] = {}
    top = _GAP
    for layer, inside in sorted(layers.items()):
        left = (total - widths[layer]) / 2 + _GAP
        for box in sorted(inside, key=lambda box_inside: box_inside.order):
            kernels += _kernel(neighbourhood, box, left, top)
            for row, nodes in box.rows.items():
                x = left + _MARGIN
                for node in nodes:
                    width = _width(_name(neighbourhood, node))
                    spot = _Spot(x, top + _TITLE + row * _ROW, width, top + box.height)
                    spots[node, box.kernel] = spot
                    operations += _operation(neighbourhood, node, spot)
                    x += spot.width + _MARGIN
            left += box.width + _GAP
        top += max(box.height for box in inside) + _BETWEEN
    lines: list[str] = []
    reasons: list[str] = []  # on top of all lines
    below: Counter[Place] = Counter()
    for edge in edges_of(neighbourhood):
        lines.append(_line(edge, spots))
        if edge.refused is not None:
            reasons.append(_reason(edge.refused, spots[edge.read[:2]], below[edge.read]))
            below[edge.read] += 1
    height = top - _BETWEEN + _GAP
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{total:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {total:.0f} {height:.0f}" role="img">',
            f"<title>{_text(_names(neighbourhood))}</title>",
            f"<style>{_STYLE}</style>",
            '<rect width="100%" height="100%" fill="#fff"/>',
            *kernels,
            *lines,
            *operations,
            *reasons,
            "</svg>\n",
        ]
    )


def to_png(neighbourhood: Neighbourhood) -> bytes:
    """Return the same as a bitmap. Raises ``UnusableInput`` without resvg, or without a font."""
    try:
        from resvg_py import svg_to_bytes
    except ImportError:
        raise UnusableInput(_NO_BITMAPS) from None

    blank = svg_to_bytes(svg_string=_ONE_LETTER, monospace_family="")
    fonts = (
        font
        for font in _MONOSPACED
        if svg_to_bytes(svg_string=_ONE_LETTER, monospace_family=font) != blank
    )
    font = next(fonts, "")
    if not font and blank == svg_to_bytes(svg_string=_ONE_LETTER, skip_system_fonts=True):
        raise UnusableInput(
            f"a bitmap needs a font, and none is found: install {' or '.join(_MONOSPACED[:3])}, or "
            "use --format svg"
        )
    return bytes(svg_to_bytes(svg_string=to_svg(neighbourhood), zoom=_ZOOM, monospace_family=font))


def _boxes(neighbourhood: Neighbourhood) -> list[_Box]:
    layout = lay_out(neighbourhood.graph)
    rows: dict[int, dict[int, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    for node, number, row, column in layout.spots:
        rows[number][row].append((column, node))
    boxes = []
    for number, box in enumerate(layout.boxes):
        if box.kernel is None:
            continue
        nodes = {
            row: [node for _, node in sorted(row_nodes)] for row, row_nodes in rows[number].items()
        }
        names = [[_name(neighbourhood, node) for node in row] for row in nodes.values()]
        widest = max(sum(_width(name) + _MARGIN for name in row) for row in names)
        width = max(widest, _width(_title(neighbourhood.kernels[box.kernel]))) + _MARGIN
        height = _TITLE + max(nodes) * _ROW + _HIGH + _MARGIN
        boxes.append(_Box(box.kernel, box.layer, box.order, nodes, width, height))
    return boxes


def _kernel(neighbourhood: Neighbourhood, box: _Box, left: float, top: float) -> Iterator[str]:
    facts = neighbourhood.kernels[box.kernel]
    css_class = " chosen" if box.kernel in neighbourhood.chosen else ""
    yield f'<g class="kernel{css_class}"><title>{_text(_facts(facts))}</title>'
    yield (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" '
        'rx="6"/>'
    )
    yield (
        f'<text class="title" x="{left + _MARGIN:.1f}" y="{top + 20:.1f}">'
        f"{_text(_title(facts))}</text></g>"
    )


def _operation(picture: Neighbourhood, node: int, spot: _Spot) -> Iterator[str]:
    operation = picture.graph.nodes[node]
    place = f"  {operation.source}" if operation.source else ""
    yield (
        f"<g><title>{_text(f'{operation.name} = {operation.shape} {operation.opcode}{place}')}"
        f'</title><rect class="operation" x="{spot.x:.1f}" y="{spot.y:.1f}" '
        f'width="{spot.width:.1f}" height="{_HIGH:.1f}" rx="3"/>'
        f'<text x="{spot.x + 5:.1f}" y="{spot.y + 14:.1f}">{_text(_name(picture, node))}</text></g>'
    )


def _line(edge: Edge, spots: Mapping[tuple[int, int], _Spot]) -> str:
    begin, end = spots[edge.read[:2]], spots[edge.reader[:2]]
    x, y = begin.x + begin.width / 2, begin.y + _HIGH
    to_x, to_y = end.x + end.width / 2, end.y
    bend = max((to_y - y) / 2, 6)
    kind = "" if edge.refused is None else ' class="refused"'
    return (
        f'<path{kind} d="M{x:.1f} {y:.1f} C{x:.1f} {y + bend:.1f} {to_x:.1f} {to_y - bend:.1f} '
        f'{to_x:.1f} {to_y:.1f}"/>'
    )


def _reason(pair: PairFacts, begin: _Spot, above: int) -> str:
    """Return why a pair was refused, below the producer's kernel and the reasons ``above``."""
    words = f"{pair.reason}  {size(pair.bytes_saved)}"
    y = begin.bottom + 16 + 14 * above
    return f'<text class="reason" x="{begin.x + 4:.1f}" y="{y:.1f}">{_text(words)}</text>'


def _id(place: Place) -> str:
    return f"k{place.kernel}n{place.node}"


def _name(neighbourhood: Neighbourhood, node: int) -> str:
    return squeeze(neighbourhood.graph.nodes[node].name, _WIDEST)


def _title(kernel: KernelFacts) -> str:
    return f"{squeeze(kernel.name, _WIDEST)}  {file_and_line(kernel.source)}".rstrip()


def _facts(kernel: KernelFacts) -> str:
    time = f", {duration(kernel.time_us)}" if kernel.time_us else ""
    return f"{kernel.name}: {size(kernel.bytes_moved)}{time}"


def _names(neighbourhood: Neighbourhood) -> str:
    return ", ".join(sorted(neighbourhood.kernels[number].name for number in neighbourhood.chosen))


def _width(text: str) -> float:
    return len(text) * _LETTER + 10


def _text(text: str) -> str:
    return escape(safe(text))


def _quoted(text: str) -> str:
    return json.dumps(safe(text), ensure_ascii=False)
