"""How the time and memory of a command grow with a module, for modules of one extreme shape each.

    python benchmarks/scale.py [--shape NAME]... [--backend NAME]... [--command NAME]...
                               [--size N]... [--limit SECONDS] [--directory DIRECTORY]

Each shape is written as a dump directory for a CPU and for a GPU: the stage before fusion, and
what the replayed passes make of it. ``diff`` compares it with one in which every tenth operation is
another and all names are. Each run is a process of its own in which everything is imported before;
the figures are processor seconds, and the peak of resident memory. The exponent is the slope of the
seconds over the sizes, both as logarithms, over the upper half of the sizes. Prints a Markdown
table.

A run of more than LIMIT processor seconds is ended, and larger sizes of its row are left out.
"""

from __future__ import annotations

import argparse
import functools
import gc
import os
import platform
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, inf, log
from multiprocessing import Pipe
from pathlib import Path
from statistics import linear_regression
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SIZES = (1000, 2000, 4000, 8000, 16000, 32000)
SMALL = 50
COMMANDS = ("explain", "verify", "history", "diff")
DEVICE = ROOT / "samples" / "devices" / "h100.txtpb"

ARRAY = "f32[256]{0}"
UNARY = ("negate", "abs", "floor", "round-nearest-even")
REDUCER = """%add.{0} (a: f32[], b: f32[]) -> f32[] {{
  %a.{0} = f32[] parameter(0)
  %b.{0} = f32[] parameter(1)
  ROOT %add.{0} = f32[] {1}(%a.{0}, %b.{0})
}}
"""


class Text:
    """The lines of one computation. ``opcode`` tells the opcode of the next operation, ``names``
    what stands behind each name."""

    def __init__(self, names: str, *, is_changed: bool) -> None:
        self.names = names
        self.is_changed = is_changed
        self.before: list[str] = []
        self._lines: list[str] = []
        self._operations = 0

    def add(
        self, opcode: str, *operands: str, shape: str = ARRAY, inside: str = "", more: str = ""
    ) -> str:
        name = f"{opcode}.{len(self._lines)}{self.names}"
        inside = inside or ", ".join(f"%{operand}" for operand in operands)
        self._lines.append(f"%{name} = {shape} {opcode}({inside}){more}")
        return name

    def unary(self, operand: str) -> str:
        self._operations += 1
        if self.is_changed and self._operations % 10 == 0:
            return self.add("ceil", operand)
        return self.add(UNARY[self._operations % len(UNARY)], operand)

    def parameter(self, number: int = 0, shape: str = ARRAY) -> str:
        return self.add("parameter", shape=shape, inside=str(number))

    def results(self, names: list[str], shape: str = ARRAY) -> str:
        return self.add("tuple", *names, shape=tuple_of(len(names), shape))

    def write(self, head: str) -> str:
        *lines, root = self._lines
        body = "\n".join(f"  {line}" for line in (*lines, f"ROOT {root}"))
        return f"{head} {{\n{body}\n}}\n"


def tuple_of(count: int, shape: str = ARRAY) -> str:
    return f"({', '.join([shape] * count)})"


def fan_out(text: Text, size: int) -> None:
    """One value, read by all."""
    value = text.add("tanh", text.parameter())
    others = [text.parameter(number) for number in range(1, size // 3)]
    text.results([text.unary(text.add("add", value, other)) for other in others])


def equal_readers(text: Text, size: int) -> None:
    """One value, read by all, most of which compute the same."""
    value = text.add("tanh", text.parameter())
    text.results([text.unary(value) for _ in range(size - 3)])


def constant(text: Text, size: int) -> None:
    """One constant, read by all."""
    shared, value = text.add("constant", shape="f32[]", inside="2"), text.parameter()
    results = []
    for _ in range(size // 3):
        spread = text.add("broadcast", shared, more=", dimensions={}")
        results.append(text.unary(text.add("multiply", value, spread)))
    text.results(results)


def chain(text: Text, size: int) -> None:
    """Each reads the one before."""
    start = value = text.parameter()
    for index in range(size - 1):
        value = text.unary(value) if index % 3 else text.add("add", value, start)


def diamonds(text: Text, size: int) -> None:
    """Two read the one before, and one reads both."""
    value = text.parameter()
    for _ in range(size // 3):
        value = text.add("add", text.unary(value), text.unary(value))


def gradient(text: Text, size: int) -> None:
    """A chain whose links are read once more from its end to its beginning."""
    values = [text.parameter()]
    for _ in range(size // 3):
        values.append(text.add("tanh", values[-1]))
    back = values[-1]
    for value in reversed(values):
        back = text.unary(text.add("multiply", back, value))


def optimizer(text: Text, size: int) -> None:
    """A step of momentum for many parameters."""
    rates = [text.add("constant", shape="f32[]", inside=value) for value in ("0.9", "0.1")]
    decay, rate = [text.add("broadcast", value, more=", dimensions={}") for value in rates]
    results = []
    for index in range(size // 9):
        weight, slope, momentum = [text.parameter(3 * index + slot) for slot in range(3)]
        kept = text.add("multiply", momentum, decay)
        momentum = text.add("add", kept, text.unary(slope))
        change = text.add("multiply", momentum, rate)
        results += [momentum, text.add("subtract", weight, change)]
    text.results(results)


def concatenate(text: Text, size: int) -> None:
    """One reads all."""
    length = size // 2
    whole = text.parameter(shape=f"f32[{256 * length}]{{0}}")
    parts = [
        text.unary(
            text.add("slice", whole, more=f", slice={{[{256 * index}:{256 * (index + 1)}]}}")
        )
        for index in range(length)
    ]
    text.add("concatenate", *parts, shape=f"f32[{256 * length}]{{0}}", more=", dimensions={0}")


def computations(text: Text, size: int) -> None:
    """Many reductions, each with its own reducer."""
    value = text.parameter(shape="f32[256,8]{1,0}")
    zero = text.add("constant", shape="f32[]", inside="0")
    results = []
    for index in range(size // 5):
        name = f"{index}{text.names}"
        kind = "maximum" if text.is_changed and index % 10 == 0 else "add"
        text.before.append(REDUCER.format(name, kind))
        more = f", dimensions={{1}}, to_apply=%add.{name}"
        results.append(text.unary(text.add("reduce", value, zero, more=more)))
    text.results(results)


def loops(text: Text, size: int) -> None:
    """Many small loops, one after the other."""
    value = text.parameter()
    carried = f"(s32[], {ARRAY})"
    count = text.add("constant", shape="s32[]", inside="0")
    for index in range(size // 16):
        names = f"{text.names}.{index}"
        condition = Text(names, is_changed=text.is_changed)
        state = condition.parameter(shape=carried)
        number = condition.add("get-tuple-element", state, shape="s32[]", more=", index=0")
        end = condition.add("constant", shape="s32[]", inside="10")
        condition.add("compare", number, end, shape="pred[]", more=", direction=LT")
        body = Text(names, is_changed=text.is_changed and index % 10 == 0)
        state = body.parameter(shape=carried)
        number = body.add("get-tuple-element", state, shape="s32[]", more=", index=0")
        inner = body.add("get-tuple-element", state, more=", index=1")
        one = body.add("constant", shape="s32[]", inside="1")
        number = body.add("add", number, one, shape="s32[]")
        for _ in range(3):
            inner = body.unary(inner)
        body.add("tuple", number, inner, shape=carried)
        text.before += [
            condition.write(f"%condition{names} (state: {carried}) -> pred[]"),
            body.write(f"%body{names} (state: {carried}) -> {carried}"),
        ]
        state = text.add("tuple", count, value, shape=carried)
        loop = text.add(
            "while",
            state,
            shape=carried,
            more=f", condition=%condition{names}, body=%body{names}",
        )
        value = text.add("get-tuple-element", loop, more=", index=1")


def wide_loop(text: Text, size: int) -> None:
    """One loop that carries much."""
    width = size // 6
    carried = tuple_of(width)
    condition = Text(text.names, is_changed=text.is_changed)
    condition.parameter(shape=carried)
    condition.add("constant", shape="pred[]", inside="false")
    body = Text(text.names, is_changed=text.is_changed)
    state = body.parameter(shape=carried)
    elements = [
        body.add("get-tuple-element", state, more=f", index={index}") for index in range(width)
    ]
    body.results([body.unary(element) for element in elements])
    text.before += [
        condition.write(f"%condition{text.names} (state: {carried}) -> pred[]"),
        body.write(f"%body{text.names} (state: {carried}) -> {carried}"),
    ]
    inputs = [text.unary(text.parameter(index)) for index in range(width)]
    loop = text.add(
        "while",
        text.results(inputs),
        shape=carried,
        more=f", condition=%condition{text.names}, body=%body{text.names}",
    )
    text.results(
        [
            text.unary(text.add("get-tuple-element", loop, more=f", index={index}"))
            for index in range(width)
        ]
    )


def wide_fusion(text: Text, size: int) -> None:
    """One fusion that reads and computes much."""
    width = size // 5
    fused = Text(text.names, is_changed=text.is_changed)
    inner = [fused.parameter(index) for index in range(width)]
    fused.results([fused.unary(each) for each in inner])
    parameters = ", ".join(f"p{index}: {ARRAY}" for index in range(width))
    name = f"%fused{text.names}"
    text.before.append(fused.write(f"{name} ({parameters}) -> {tuple_of(width)}"))
    inputs = [text.parameter(index) for index in range(width)]
    more = f", kind=kLoop, calls={name}"
    fusion = text.add("fusion", *inputs, shape=tuple_of(width), more=more)
    text.results(
        [
            text.unary(text.add("get-tuple-element", fusion, more=f", index={index}"))
            for index in range(width)
        ]
    )


SHAPES: dict[str, Callable[[Text, int], None]] = {
    "fan-out": fan_out,
    "equal readers": equal_readers,
    "shared constant": constant,
    "chain": chain,
    "diamonds": diamonds,
    "gradient": gradient,
    "optimizer": optimizer,
    "concatenate": concatenate,
    "many computations": computations,
    "many loops": loops,
    "wide loop": wide_loop,
    "wide fusion": wide_fusion,
}


def write_module(shape: str, size: int, *, is_changed: bool) -> str:
    text = Text(".x" if is_changed else "", is_changed=is_changed)
    SHAPES[shape](text, size)
    return "\n".join(["HloModule jit_scale\n", *text.before, text.write("ENTRY %main")])


# Names of stages, with the pass that makes each of the one before; None where it is the same.
_STAGES: dict[str, tuple[tuple[str, str | None], ...]] = {
    "cpu": (
        ("before_optimizations", None),
        ("0001.dot-library-passes.after_pipeline-start.before_dot_decomposer", None),
        ("0002.after_layout_assignment.after_pipeline-start.before_pipeline-end", None),
        ("0003.HLO_passes_after_layout_assignment.after_fusion.before_fusion-wrapper", "fusion"),
        (
            "0004.HLO_passes_after_layout_assignment.after_fusion-wrapper.before_pipeline-end",
            "fusion-wrapper",
        ),
        ("0005.simplification_after_layout_assignment.after_pipeline-start.before_algsimp", None),
        ("cpu_after_optimizations", None),
    ),
    "gpu": (
        ("before_optimizations", None),
        ("0001.hlo_normalization.after_pipeline-start.before_algsimp", None),
        ("0002.fusion.after_pipeline-start.before_variadic-op-splitter", None),
        ("0003.fusion.after_priority-fusion.before_cse", "priority-fusion"),
        ("0004.fusion.after_multi_output_fusion.before_cse", "multi_output_fusion"),
        ("0005.fusion-wrapper.after_pipeline-start.before_fusion-wrapper", None),
        ("0006.fusion-wrapper.after_fusion-wrapper.before_pipeline-end", "fusion-wrapper"),
        ("sm_9.0a_gpu_after_optimizations", None),
    ),
}


def write_dump(directory: Path, backend: str, text: str) -> None:
    """Writes the stages of ``backend``, the later ones as the replay of its passes makes them."""
    from fusionscope.dump import open_dump
    from fusionscope.hlo import parse
    from fusionscope.hlo.printer import to_text
    from fusionscope.versions.choice import choose_compiler
    from fusionscope.versions.context import read_context
    from fusionscope.versions.runs import replay

    directory.mkdir(parents=True)
    start = directory / "module_0001.jit_scale"

    def write(label: str) -> None:
        Path(f"{start}.{label}.txt").write_text(text)

    stages = _STAGES[backend]
    if backend == "gpu":
        Path(f"{start}.gpu_target_config.pbtxt").write_bytes(DEVICE.read_bytes())
    for label, _ in stages[:3]:
        write(label)
    (dumped,) = open_dump(directory).modules
    context, compiler = read_context(dumped), choose_compiler(dumped).compiler
    for label, pass_name in stages[3:]:
        if pass_name is not None:
            after = to_text(replay(pass_name, parse(text), context, compiler).module)
            if after == text:
                continue
            text = after
        write(label)


def dumps(directory: Path, shape: str, backend: str, size: int) -> tuple[Path, Path]:
    """The dump, and the other one for ``diff``."""
    paths = []
    for is_changed in (False, True):
        name = f"{shape.replace(' ', '-')}-{size}{'-changed' if is_changed else ''}"
        path = directory / backend / name
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=directory) as temporary:
                partial = Path(temporary) / name
                text = write_module(shape, size, is_changed=is_changed)
                apart(functools.partial(write_dump, partial, backend, text), inf)
                path.parent.mkdir(exist_ok=True)
                partial.rename(path)
        paths.append(path)
    return paths[0], paths[1]


def apart(work: Callable[[], Any], limit: float) -> tuple[Any, int] | None:
    """What ``work`` returns and the peak of its memory in bytes, from a copy of this process; None
    where it takes more than ``limit`` processor seconds."""
    receiver, sender = Pipe(duplex=False)
    child = os.fork()
    if child == 0:
        if limit < inf:
            resource.setrlimit(resource.RLIMIT_CPU, (ceil(limit), ceil(limit)))
        try:
            sender.send(work())
        finally:
            os._exit(0)
    _, _, usage = os.wait4(child, 0)
    if not receiver.poll():
        return None
    return receiver.recv(), usage.ru_maxrss * 1024


def run(command: str, paths: Sequence[Path]) -> float:
    """Runs a command; processor seconds."""
    from fusionscope.cli.main import cli

    more = [] if command == "verify" else ["--all"]
    if command == "explain":
        more.append("--no-try")  # trying takes as long as it may
    start = time.process_time()
    cli.main(
        [command, *map(str, paths), *more, "--format", "json", "--output", os.devnull],
        standalone_mode=False,
    )
    return time.process_time() - start


@dataclass(frozen=True, slots=True)
class Point:
    """Processor seconds of one run, and the peak of memory in bytes."""

    size: int
    seconds: float
    memory: int


def measure(command: str, paths: Sequence[Path], size: int, limit: float) -> Point | None:
    """One run; None where it takes longer than ``limit`` seconds."""
    done = apart(lambda: run(command, paths), limit)
    return Point(size, *done) if done is not None else None


def exponent(points: list[Point]) -> float:
    upper = points[len(points) // 2 :] if len(points) > 3 else points
    return linear_regression(
        [log(each.size) for each in upper], [log(each.seconds) for each in upper]
    ).slope


def rows(options: argparse.Namespace, directory: Path) -> Iterator[str]:
    gc.disable()  # as the command line does
    for backend in options.backend or tuple(_STAGES):
        for command in COMMANDS:  # so that everything is imported
            paths = dumps(directory, "optimizer", backend, SMALL)
            run(command, paths[: 1 + (command == "diff")])
        for shape in options.shape or tuple(SHAPES):
            for command in options.command or COMMANDS:
                points: list[Point] = []
                for size in sorted(options.size or SIZES):
                    count = 2 if command == "diff" else 1
                    paths = dumps(directory, shape, backend, size)[:count]
                    found = measure(command, paths, size, options.limit)
                    if found is None:
                        break
                    points.append(found)
                slope = f"{exponent(points):.2f}" if len(points) > 1 else ""
                seconds = " | ".join(f"{each.seconds:.2f}" for each in points)
                seconds += " | " * (len(options.size or SIZES) - len(points))
                memory = f"{points[-1].memory / 1e6:.0f}" if points else ""
                yield f"| {shape} | {backend} | `{command}` | {seconds} | {memory} | {slope} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--shape", action="append", choices=SHAPES)
    parser.add_argument("--backend", action="append", choices=_STAGES)
    parser.add_argument("--command", action="append", choices=COMMANDS)
    parser.add_argument("--size", action="append", type=int)
    parser.add_argument("--limit", type=float, default=300)
    parser.add_argument("--directory", type=Path, help="keeps the dumps for another run")
    options = parser.parse_args()
    sizes = sorted(options.size or SIZES)
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores\n")
    print(f"| shape | | command | {' | '.join(f'{size:,}' for size in sizes)} | MB | exponent |")
    print(f"|---|---|---|{'--:|' * (len(sizes) + 2)}", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        directory = options.directory or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        for row in rows(options, directory):
            print(row, flush=True)


if __name__ == "__main__":
    main()
