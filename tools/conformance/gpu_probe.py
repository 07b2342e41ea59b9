"""Holds the replay of the passes around priority fusion against the compiler, on random modules.

``PATH`` is a Python that has jax and its plugin for CUDA; no GPU is needed. Each pass runs alone on
modules of what it looks for, for an H100. Prints for each pass how many it changed and how many the
replay makes otherwise; these are kept in the directory.
"""

from __future__ import annotations

import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from math import prod
from pathlib import Path
from random import Random

from conformance.compiling import gpu_compiler_of, run_all
from conformance.examples import replay_pass
from conformance.findings import Finding, counted, problem
from conformance.records import difference
from fusionscope.hlo import parse
from fusionscope.versions.known import load_compiler

Sizes = Sequence[int]
_LOOP_TEST = "test {\n  p = f32[8,8] parameter(0)\n  ROOT c = pred[] constant(true)\n}"


def listed(sizes: Sizes) -> str:
    return ",".join(map(str, sizes))


class Body:
    """The instructions of a computation while it is written, by name."""

    def __init__(self, *parameters: str) -> None:
        self.shapes: dict[str, str] = {}
        self._lines: dict[str, str] = {}
        self.parameters: list[str] = []
        for shape in parameters:
            self.parameter(shape)

    def parameter(self, shape: str) -> str:
        self.parameters.append(self.add(shape, f"parameter({len(self.parameters)})"))
        return self.parameters[-1]

    def add(self, shape: str, what: str) -> str:
        name = f"v{len(self.shapes)}_"
        self.shapes[name] = shape
        self._lines[name] = f"{name} = {shape} {what}"
        return name

    def text(self, name: str) -> str:
        return self._lines[name]

    def tuple_of(self, results: Sequence[str]) -> str:
        """The one result, or a tuple of several."""
        if len(results) == 1:
            return results[0]
        shapes = ", ".join(self.shapes[result] for result in results)
        return self.add(f"({shapes})", f"tuple({', '.join(results)})")

    def written(self, name: str, root: str) -> str:
        """Parameters, and what the root is computed from."""
        read = {root, *self.parameters}
        lines_kept: list[str] = []
        for value_name, line in reversed(self._lines.items()):
            if value_name in read:
                read.update(re.findall(r"v\d+_", line))
                lines_kept.append(f"  ROOT {line}" if value_name == root else f"  {line}")
        return "\n".join([name + " {", *reversed(lines_kept), "}"])


def module(entry: Body, results: Sequence[str], *computations: str) -> str:
    text = entry.written("ENTRY main", entry.tuple_of(results))
    return "\n\n".join(["HloModule probe", *computations, text]) + "\n"


def combining(name: str, kind: str, opcode: str) -> str:
    body = Body(f"{kind}[]", f"{kind}[]")
    return body.written(name, body.add(f"{kind}[]", f"{opcode}({', '.join(body.parameters)})"))


def gemms(random: Random) -> str:  # noqa: C901  a branch for each kind of operation
    """A matrix multiplication or two, with operations before and behind."""
    kind = random.choice(["f32", "bf16", "f16", "s8"])
    lengths = random.choice([(16, 64, 96, 128, 1000), (1, 2, 3, 8)])
    rows, columns, summed = random.choices(lengths, k=3)
    batch = random.choice([(), (), (4,)])
    results: list[str] = []
    entry = Body()

    def given(sizes: Sizes, element_type: str = kind) -> str:
        return entry.parameter(f"{element_type}[{listed(sizes)}]")

    def changed(value: str, sizes: Sizes, element_type: str) -> str:  # noqa: C901
        shape = f"{element_type}[{listed(sizes)}]"
        match random.randrange(13):
            case 0:
                return entry.add(shape, f"negate({value})")
            case 1:
                return entry.add(shape, f"add({value}, {given(sizes, element_type)})")
            case 2:
                near = given(sizes[-1:], element_type)
                places = f"dimensions={{{len(sizes) - 1}}}"
                wide = entry.add(shape, f"broadcast({near}), {places}")
                return entry.add(shape, f"multiply({value}, {wide})")
            case 3:
                converted_type = random.choice(["f32", "bf16", "s32"])
                there = entry.add(f"{converted_type}[{listed(sizes)}]", f"convert({value})")
                return entry.add(shape, f"convert({there})")
            case 4:
                order = random.sample(range(len(sizes)), len(sizes))
                turned = [sizes[place] for place in order]
                back = [order.index(place) for place in range(len(sizes))]
                there = f"{element_type}[{listed(turned)}]"
                value = entry.add(there, f"transpose({value}), dimensions={{{listed(order)}}}")
                value = entry.add(there, f"abs({value})")
                return entry.add(shape, f"transpose({value}), dimensions={{{listed(back)}}}")
            case 5:
                flat = entry.add(f"{element_type}[{prod(sizes)}]", f"bitcast({value})")
                return entry.add(shape, f"bitcast({flat})")
            case 6:
                half = [*sizes[:-1], sizes[-1] // 2 or 1]
                if half[-1] * 2 != sizes[-1]:
                    return value
                part = f"{element_type}[{listed(half)}]"
                ends = ", ".join(f"[0:{size}]" for size in half)
                first = entry.add(part, f"slice({value}), slice={{{ends}}}")
                parts = f"{first}, {given(half, element_type)}"
                return entry.add(shape, f"concatenate({parts}), dimensions={{{len(sizes) - 1}}}")
            case 7:
                scalar = entry.add(f"{element_type}[]", "constant(2)")
                wide = entry.add(shape, f"broadcast({scalar}), dimensions={{}}")
                return entry.add(shape, f"multiply({value}, {wide})")
            case 8:
                return entry.add(shape, f"power({value}, {value})")
            case 9:
                return entry.add(
                    shape, f"maximum({given(sizes, element_type)}, {given(sizes, element_type)})"
                )
            case 10 | 11:
                large = [*sizes[:-1], 2 * sizes[-1]]
                whole = given(large, element_type)
                if random.random() < 0.6:
                    whole = entry.add(f"{element_type}[{listed(large)}]", f"negate({whole})")
                bounds = [f"[0:{size}]" for size in sizes]
                part = entry.add(shape, f"slice({whole}), slice={{{', '.join(bounds)}}}")
                if random.random() < 0.5:
                    results.append(whole)
                elif random.random() < 0.5:
                    bounds[-1] = f"[{sizes[-1]}:{2 * sizes[-1]}]"
                    results.append(
                        entry.add(shape, f"slice({whole}), slice={{{', '.join(bounds)}}}")
                    )
                return part
        order = [*range(len(sizes) - 2), len(sizes) - 1, len(sizes) - 2]
        return entry.add(
            shape,
            f"transpose({given([sizes[place] for place in order], element_type)}), "
            f"dimensions={{{listed(order)}}}",
        )

    def chain(value: str, sizes: Sizes, element_type: str = kind) -> str:
        for _ in range(random.choice([0, 0, 1, 2, 3])):
            value = changed(value, sizes, element_type)
            results.extend(random.choice([[], [], [], [], [], [value]]))
        return value

    result = "s32" if kind == "s8" else kind
    sizes = (*batch, rows, columns)
    first = len(batch)
    batched = "lhs_batch_dims={0}, rhs_batch_dims={0}, " if batch else ""
    sides = f"lhs_contracting_dims={{{first + 1}}}, rhs_contracting_dims={{{first}}}"
    right = (*batch, summed, columns)
    left = chain(given((*batch, rows, summed)), (*batch, rows, summed))
    for _ in range(random.choice([1, 1, 2])):
        operands = f"{left}, {chain(given(right), right)}"
        value = entry.add(f"{result}[{listed(sizes)}]", f"dot({operands}), {batched}{sides}")
        results += random.choice([[], [], [], [value]])
        results.append(chain(value, sizes, result))
    return module(entry, list(dict.fromkeys(results)))


def softmaxes(random: Random) -> str:
    """Up to three diamonds, each of what the one before ends in."""
    kind = random.choice(["f32", "f32", "bf16", "f16", "f64", "s32"])
    sizes = [random.choice([1, 2, 3, 8, 64, 127, 1024]) for _ in range(random.randint(0, 2))]
    sizes += [random.choice([1, 2, 5, 31, 64, 100, 512, 1000, 4096, 9000, 16384, 40000])]
    array, row = f"{kind}[{listed(sizes)}]", f"{kind}[{listed(sizes[:-1])}]"
    unary = ["negate", "abs"] if kind == "s32" else ["negate", "exponential", "tanh", "log"]
    along = f"dimensions={{{listed(range(len(sizes) - 1))}}}"
    entry = Body(array, row)
    value, beside_rows = entry.parameters
    zero = entry.add(f"{kind}[]", "constant(0)")
    two = entry.add(f"{kind}[]", "constant(2)")
    beside = [
        entry.add(array, f"broadcast({two}), dimensions={{}}"),
        entry.add(array, f"broadcast({beside_rows}), {along}"),
    ]

    def changed(value: str, *steps: int) -> str:
        """After one of so many steps."""
        shape = entry.shapes[value]
        for _ in range(random.choice(steps)):
            what = random.randrange(8)
            if what < 3 and shape == array:
                pair = random.sample([value, random.choice([*beside, value])], 2)
                value = entry.add(shape, f"multiply({', '.join(pair)})")
            elif what == 3 and shape == row:
                value = entry.add(shape, f"add({value}, {beside_rows})")
            elif what == 4:
                elements = prod(sizes if shape == array else sizes[:-1])
                value = entry.add(f"{kind}[{elements}]", f"bitcast({value})")
                value = entry.add(shape, f"bitcast({value})")
            else:
                value = entry.add(shape, f"{random.choice(unary)}({value})")
        return value

    results = []
    for _ in range(random.randint(1, 3)):
        value = changed(value, 0, 0, 1, 2)
        start = random.choice([zero, zero, zero, two])
        inside = f"reduce({changed(value, 0, 0, 1)}, {start})"
        reduced = entry.add(row, f"{inside}, dimensions={{{len(sizes) - 1}}}, to_apply=combine")
        below = entry.add(array, f"broadcast({changed(reduced, 0, 0, 1, 2)}), {along}")
        pair = [changed(value, 0, 0, 1), changed(below, 0, 0, 0, 1)]
        end = random.choice(["subtract", "divide", "multiply", "maximum"])
        results += random.choice([[], [], [], [below], [value], [reduced]])
        value = entry.add(array, f"{end}({', '.join(random.choice([pair, pair, pair[::-1]]))})")
    reducer = combining("combine", kind, random.choice(["add", "maximum"]))
    return module(entry, [value, *results], reducer)


def concatenates(random: Random) -> str:
    """Of up to a thousand arrays, some of them the same; perhaps in a loop."""
    count = random.choice([2, 127, 128, 129, 200, 256, 257, 300, 513, 1000])
    axis = random.randrange(2)
    body = Body("f32[8,8]")
    (carried,) = body.parameters
    parts: list[str] = []
    lengths: list[int] = []
    for _ in range(count):
        if parts and random.random() < 0.1:
            parts.append(parts[-1])
            lengths.append(lengths[-1])
            continue
        lengths.append(random.randint(4, 6))
        sizes = (lengths[-1], 8) if axis == 0 else (8, lengths[-1])
        bounds = f"[0:{sizes[0]}], [0:{sizes[1]}]"
        parts.append(body.add(f"f32[{listed(sizes)}]", f"slice({carried}), slice={{{bounds}}}"))
    sizes = (sum(lengths), 8) if axis == 0 else (8, sum(lengths))
    joined = f"concatenate({', '.join(parts)}), dimensions={{{axis}}}"
    joined = body.add(f"f32[{listed(sizes)}]", joined)
    end = body.add("f32[8,8]", f"slice({joined}), slice={{[0:8], [0:8]}}")
    if random.random() < 0.5:
        return module(body, [end])
    entry = Body("f32[8,8]")
    (source,) = entry.parameters
    loop = entry.add("f32[8,8]", f"while({source}), condition=test, body=step")
    return module(entry, [loop], body.written("step", end), _LOOP_TEST)


def sorts(random: Random) -> str:
    shape = "s32[512,8]"
    entry = Body("f32[512,8]", shape)
    source, payload = entry.parameters
    iotas = [entry.add(shape, f"iota(), iota_dimension={random.randrange(2)}") for _ in range(2)]
    payloads = [payload, *iotas, entry.add(shape, f"negate({iotas[0]})")]
    results = random.sample(payloads, 1)
    for _ in range(random.randint(1, 2)):
        operands = ", ".join([source, *random.choices(payloads, k=2)])
        along = f"dimensions={{{random.randrange(2)}}}, to_apply=less"
        sort = entry.add(f"(f32[512,8], {shape}, {shape})", f"sort({operands}), {along}")
        results.append(entry.add(shape, f"get-tuple-element({sort}), index=1"))
    less = Body("f32[]", "f32[]", "s32[]", "s32[]", "s32[]", "s32[]")
    first, second, *_ = less.parameters
    compared = less.add("pred[]", f"compare({first}, {second}), direction=LT")
    return module(entry, results, less.written("less", compared))


def copies(random: Random) -> str:
    """A fusion or two, of one result or several, and copies of them."""
    shape, turned = "f32[64,32]", "f32[32,64]"
    entry = Body(shape)
    (source,) = entry.parameters
    computations: list[str] = []
    results: list[str] = []
    for number in range(random.randint(1, 2)):
        body = Body(shape)
        values = list(body.parameters)
        zero = body.add("f32[]", "constant(0)")
        patch = body.add("f32[4,32]", f"broadcast({zero}), dimensions={{}}")
        at = body.add("s32[]", "constant(3)")
        for _ in range(random.randint(1, 4)):
            first, second = random.choices(values, k=2)
            kinds = {
                f"negate({first})": 4,
                f"add({first}, {second})": 4,
                f"dynamic-update-slice({first}, {patch}, {at}, {at})": 4,
                f"reverse({first}), dimensions={{0}}": 1,
                f"copy({first})": 1,
            }
            values.append(body.add(shape, *random.choices([*kinds], [*kinds.values()])))
        ends = random.choices(values[1:], k=random.choice([1, 1, 2, 3]))
        if len(ends) == 1 and random.random() < 0.2:
            ends = [body.add("f32[2048]", f"bitcast({ends[0]})")]
        root = body.tuple_of(ends)
        computations.append(body.written(f"inside{number}", root))
        what = f"fusion({source}), kind=kLoop, calls=inside{number}"
        outputs = [entry.add(body.shapes[root], what)]
        if len(ends) > 1:
            outputs = [
                entry.add(shape, f"get-tuple-element({outputs[0]}), index={index}")
                for index in range(len(ends))
            ]
        for value in outputs:
            for _ in range(random.choice([0, 1, 1, 2])):
                copied, own_shape = value, entry.shapes[value]
                if random.random() < 0.3:
                    own_shape = turned
                    copied = entry.add(own_shape, f"bitcast({value})")
                if own_shape == shape and random.random() < 0.15:
                    copied = entry.add(f"{shape}{{0,1}}", f"copy({copied})")
                    results.append(entry.add(turned, f"bitcast({copied})"))
                else:
                    results.append(entry.add(own_shape, f"copy({copied})"))
            results += random.choice([[], [value]])
            if random.random() < 0.3:
                results.append(entry.add(entry.shapes[value], f"negate({value})"))
        if entry.shapes[outputs[0]] == shape:
            source = outputs[0]
    return module(entry, random.sample(results, len(results)) or [source], *computations)


def siblings(random: Random) -> str:
    """Fusions and operations that read the same arrays, and each other."""
    shape = "f32[256,128]"
    entry = Body(shape, shape)
    readable = list(entry.parameters)
    computations = [combining("combine", "f32", "add")]
    results: list[str] = []
    for number in range(random.randint(2, 5)):
        reads = random.sample(readable, random.choice([1, 1, 2]))
        is_alone = random.random() < 0.2
        body = entry if is_alone else Body(*[shape] * len(reads))
        values = list(reads if is_alone else body.parameters)
        zero = body.add("f32[]", "constant(0)")
        if not is_alone:
            if len(values) == 2:
                values = [body.add(shape, f"add({', '.join(values)})")]
            for _ in range(random.choice([0, 0, 1, 2, 3])):
                one, second = random.choices(values, k=2)
                whats = [
                    f"add({one}, {second})",
                    f"tanh({one})",
                    f"reverse({one}), dimensions={{1}}",
                ]
                values.append(body.add(shape, *random.choices(whats, [3, 3, 1])))
        at = body.add("s32[]", "constant(8)")
        patch = body.add("f32[4,128]", f"broadcast({zero}), dimensions={{}}")
        ends = []
        for _ in range(1 if is_alone else random.choice([1, 1, 1, 2])):
            value = random.choice(values)
            first = random.choice([0, 64, 128])
            kinds = {
                (shape, f"negate({value})"): 4,
                ("bf16[256,128]", f"convert({value})"): 1,
                ("f32[256]", f"reduce({value}, {zero}), dimensions={{1}}, to_apply=combine"): 3,
                ("f32[128]", f"reduce({value}, {zero}), dimensions={{0}}, to_apply=combine"): 2,
                ("f32[128,256]", f"transpose({value}), dimensions={{1,0}}"): 2,
                ("f32[256,128,2]", f"broadcast({value}), dimensions={{0,1}}"): 1,
                ("f32[32768]", f"bitcast({value})"): 1,
                (
                    f"f32[{first + 64},128]",
                    f"slice({value}), slice={{[0:{first + 64}], [0:128]}}",
                ): 1,
                ("f32[64,128]", f"slice({value}), slice={{[{first}:{first + 64}], [0:128]}}"): 1,
                (shape, f"dynamic-update-slice({value}, {patch}, {at}, {at})"): 1,
            }
            ends.append(body.add(*random.choices([*kinds], [*kinds.values()])[0]))
        outputs = ends
        if not is_alone:
            root = body.tuple_of(ends)
            computations.append(body.written(f"inside{number}", root))
            kind = "kInput" if any("to_apply" in body.text(end) for end in ends) else "kLoop"
            fusion = f"fusion({', '.join(reads)}), kind={kind}, calls=inside{number}"
            outputs = [entry.add(body.shapes[root], fusion)]
            if len(ends) > 1:
                outputs = [
                    entry.add(body.shapes[end], f"get-tuple-element({outputs[0]}), index={index}")
                    for index, end in enumerate(ends)
                ]
        results += outputs
        readable += [output for output in outputs if entry.shapes[output] == shape]
    return module(entry, results, *computations)


def blocks(random: Random) -> str:
    """A fusion of a transpose, or of a reduction of integers, and little else."""
    kind = random.choice(["f32", "bf16", "s32", "s32", "s8", "f64", "pred"])
    sizes = [
        random.choice([1, 2, 3, 4, 8, 16, 30, 32, 64, 100]) for _ in range(random.randint(2, 5))
    ]
    rank = len(sizes)
    array = read = f"{kind}[{listed(sizes)}]"
    is_viewed = random.random() < 0.4
    if is_viewed:
        place = random.randrange(rank - 1)
        merged = [*sizes[:place], sizes[place] * sizes[place + 1], *sizes[place + 2 :]]
        read = f"{kind}[{listed(merged)}]"
    body = Body(read)
    (value,) = body.parameters
    if is_viewed:
        value = body.add(array, f"bitcast({value})")
    if kind != "pred" and random.random() < 0.2:
        value = body.add(array, f"negate({value})")
    computations: list[str] = []
    if kind == "s32" and random.random() < 0.7:
        axes = sorted(random.sample(range(rank), random.choice([1, 1, 1, 2])))
        remaining = [size for place, size in enumerate(sizes) if place not in axes]
        zero = body.add("s32[]", "constant(0)")
        what = f"reduce({value}, {zero}), dimensions={{{listed(axes)}}}, to_apply=combine"
        computations.append(combining("combine", "s32", "add"))
    else:
        order = list(range(rank))
        if random.random() < 0.5:
            random.shuffle(order)
        else:
            place = random.randrange(rank - 1)
            order[place], order[-1] = order[-1], order[place]
        remaining = [sizes[place] for place in order]
        what = f"transpose({value}), dimensions={{{listed(order)}}}"
    root = body.add(f"{kind}[{listed(remaining)}]", what)
    computations.append(body.written("inside", root))
    entry = Body(read)
    form = random.choice(["kLoop", "kLoop", "kInput"])
    what = f"fusion({entry.parameters[0]}), kind={form}, calls=inside"
    return module(entry, [entry.add(body.shapes[root], what)], *computations)


PASSES: dict[str, Callable[[Random], str]] = {
    "triton-gemm-rewriter": gemms,
    "triton-softmax-rewriter": softmaxes,
    "variadic-op-splitter": concatenates,
    "sort-iota-fusion": sorts,
    "multi_output_fusion": siblings,
    "copy_fusion": copies,
    "fusion-block-level-rewriter": blocks,
}


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--python", default=sys.executable, help="one that has jax, with CUDA")
    parser.add_argument("--only", choices=PASSES, metavar="PASS", help="one pass")
    parser.add_argument("--count", type=int, default=30, help="modules for each pass")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=Path(), help="for modules that differ")


def findings(options: Namespace) -> Iterator[Finding]:
    version = gpu_compiler_of(options.python)
    for pass_name in [options.only] if options.only else PASSES:
        book = load_compiler(version).find(pass_name).book
        random = Random(options.seed)
        texts = [PASSES[pass_name](random) for _ in range(options.count)]
        for index, result in enumerate(run_all(options.python, pass_name, texts)):
            file = options.keep / f"{pass_name}.{options.seed}.{index}.hlo"
            if isinstance(result, str):
                why: str | None = f"not compiled: {result[-300:]}"
            else:
                before, after = map(parse, result.runs[0])
                is_changed = difference(before, after) is not None
                yield counted(f"{pass_name}: {'changed' if is_changed else 'left as it is'}")
                why = difference(replay_pass(book, version, before).module, after)
            if why is not None:
                file.write_text(texts[index], encoding="utf-8")
                yield problem(f"{pass_name}: otherwise here", f"{file}: {why}")
