"""Holds the replays of three CPU passes against the compiler itself, on many small modules.

Needs a Python that has jax. It compiles each module with all passes left out but the one in
question (for multi-output fusion also those that make fusions), and the replay of the module that
the pass saw has to be the module that it made.
"""

from __future__ import annotations

import random
import re
import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, groupby, product
from pathlib import Path
from tempfile import TemporaryDirectory

from conformance.compiling import compile_all, compiler_of, version_of
from conformance.findings import Finding, counted, problem
from fusionscope.dump import DumpedModule, Stage, open_dump
from fusionscope.errors import UnusableInput
from fusionscope.graph.comparison import find_divergence
from fusionscope.hlo import Module
from fusionscope.passes.context import PassContext
from fusionscope.rules.pages import read_examples
from fusionscope.user_order.user_history import arrange, find_user_order
from fusionscope.versions.choice import find_rewriters
from fusionscope.versions.compiler import Compiler
from fusionscope.versions.known import COMPILERS, load_compiler
from fusionscope.versions.runs import replay

_FLAGS = (
    "--xla_backend_optimization_level=0 --xla_dump_hlo_as_text --xla_dump_hlo_pass_re=.* "
    "--xla_enable_hlo_passes_only={passes}"
)
_YNN = " --xla_cpu_experimental_ynn_fusion_type="
_SEVERAL = " --xla_backend_extra_options=xla_cpu_use_multi_output_fusion"

LIBRARY, WRAPPER, SEVERAL = "dot-library-rewriter", "fusion-wrapper", "cpu_multi_output_fusion"
PASSES = (LIBRARY, WRAPPER, SEVERAL)
NEWEST = load_compiler(next(iter(COMPILERS)))


@dataclass(frozen=True, slots=True)
class Flags:
    """The pass to be compared, those that run as well, and the types of library fusion."""

    pass_name: str
    also: tuple[str, ...] = ()
    types: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        text = _FLAGS.format(passes=",".join((*self.also, self.pass_name)))
        if self.pass_name == LIBRARY:
            text += _YNN + ",".join(
                f"LIBRARY_FUSION_TYPE_{element_type}" for element_type in self.types
            )
        return text + (_SEVERAL if self.pass_name == SEVERAL else "")

    @property
    def context(self) -> PassContext:
        return PassContext(frozenset(self.types), has_multi_output=self.pass_name == SEVERAL)


@dataclass(frozen=True, slots=True)
class Case:
    flags: Flags
    words: str
    text: str


ALL = ("DOT", "REDUCE", "ELTWISE", "INDIVIDUAL_CONVOLUTION")
DEFAULT = ("INDIVIDUAL_DOT", "INDIVIDUAL_CONVOLUTION", "REDUCE")
BY_ELEMENT = Flags(LIBRARY, (), ("ELTWISE",))
BY_REDUCE = Flags(LIBRARY, (), ("REDUCE",))
BY_ALL = Flags(LIBRARY, (), ALL)
BY_DEFAULT = Flags(LIBRARY, (), DEFAULT)
WRAPPED = Flags(WRAPPER)
WRAPPED_LAID_OUT = Flags(WRAPPER, ("layout-assignment",))
SIBLINGS = Flags(SEVERAL, (WRAPPER,))
FUSED_SIBLINGS = Flags(SEVERAL, ("fusion", WRAPPER))

FLOATS = tuple("f64 f32 bf16 f16".split())
INTEGERS = tuple("s8 u8 s16 u16 s32 u32 s64 u64".split())
NARROW = tuple("s4 u4 f8e5m2 f8e4m3fn".split())
COMPLEX = ("c64", "c128")
TYPES = (*FLOATS, *INTEGERS, *NARROW, *COMPLEX, "pred")
UNARY = """abs acos acosh asin asinh atan atanh cbrt ceil copy cosine cosh count-leading-zeros erf
    exponential exponential-minus-one floor log log-plus-one logistic negate not popcnt
    round-nearest-afz round-nearest-even rsqrt sign sine sinh sqrt tan tanh""".split()
BINARY = """add and atan2 divide maximum minimum multiply mulhi or power remainder shift-left
    shift-right-arithmetic shift-right-logical subtract xor""".split()

# Modules in few words: a line is an instruction. Those without a name, or with a star before it,
# are the results. An operand is a name, or a shape, which makes a parameter; `p:f32[8]` makes or
# repeats one with a name. What is called is `opcode.type`, a reducer, or a given computation.

_LINE = re.compile(r"(?:(\*?\w+) = )?(\([^()]*\)|\S+) ([\w-]+)\(")
_OPERAND = re.compile(r"(?:(\w+):)?(\w+\[[\d,]*\](?:\{[\d,]*\})?)")


class Writer:
    """The text of a module, line by line."""

    def __init__(self, **computations: str) -> None:
        self._computations = {name: f"{name} {text}\n" for name, text in computations.items()}
        self._lines: list[str] = []
        self._roots: list[tuple[str, str]] = []
        self._parameters: list[str] = []

    def line(self, text: str) -> str:
        """The name of the instruction."""
        head = _LINE.match(text)
        assert head is not None, text
        name, shape, opcode = head.groups()
        inside, suffix = _split(text[head.end() :])
        if opcode not in ("constant", "iota"):
            inside = ", ".join(
                self._operand(operand) for operand in filter(None, inside.split(", "))
            )
        suffix = re.sub(r"(?<==)([a-z-]+)\.(\w+)(?=,|$)", self._reducer, suffix)
        result_name = (name or f"v{len(self._lines)}").removeprefix("*")
        self._lines.append(f"  {result_name} = {shape} {opcode}({inside}){suffix}")
        if name is None or name.startswith("*"):
            self._roots.append((result_name, shape))
        return result_name

    def _operand(self, text: str) -> str:
        shape = _OPERAND.fullmatch(text)
        if shape is None:
            return text
        count = len(self._parameters)
        name = shape[1] or f"p{count}_"
        if name not in self._parameters:
            self._lines.append(f"  {name} = {shape[2]} parameter({count})")
            self._parameters.append(name)
        return name

    def _reducer(self, match: re.Match[str]) -> str:
        opcode, element = match.groups()
        name = f"{opcode}.{element}"
        root = "pred[] compare(p, q), direction=LT" if opcode == "less" else f"{opcode}(p, q)"
        self._computations[name] = f"{name} {scalars(element, root)}\n"
        return name

    def text(self) -> str:
        lines = list(self._lines)
        if len(self._roots) == 1:
            (name, _) = self._roots[0]
            index = next(i for i, line in enumerate(lines) if line.startswith(f"  {name} = "))
            lines.append(lines.pop(index).replace("  ", "  ROOT ", 1))
        else:
            names, shapes = (", ".join(column) for column in zip(*self._roots, strict=True))
            lines.append(f"  ROOT all = ({shapes}) tuple({names})")
        entry = "\n".join(lines)
        computations = "".join(self._computations.values())
        return f"HloModule NAME\n\n{computations}\nENTRY main {{\n{entry}\n}}\n"


def _split(text: str) -> tuple[str, str]:
    """Up to the parenthesis that closes, and behind it."""
    depth = 1
    for place, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0:
            return text[:place], text[place + 1 :]
    raise AssertionError(text)


def scalars(element: str, root: str, *lines: str) -> str:
    """A computation of two scalars, p and q."""
    body = "".join(f"  {line}\n" for line in lines)
    return (
        f"{{\n  p = {element}[] parameter(0)\n  q = {element}[] parameter(1)\n{body}"
        f"  ROOT r = {root if '[' in root.partition('(')[0] else f'{element}[] {root}'}\n}}"
    )


def case(flags: Flags, words: str, *lines: str, **computations: str) -> Case:
    writer = Writer(**computations)
    for line in lines:
        writer.line(line)
    return Case(flags, words, writer.text())


# Elementwise operations.


def elementwise(size: str, flags: Flags) -> Iterator[Case]:
    for element, opcode in product(TYPES, UNARY):
        shape = f"{element}[{size}]"
        yield case(flags, f"{opcode} of {element}", f"{shape} {opcode}({shape})")
    for element, opcode in product(TYPES, BINARY):
        shape = f"{element}[{size}]"
        yield case(flags, f"{opcode} of {element}", f"{shape} {opcode}({shape}, {shape})")
    for source, target in product(TYPES, TYPES):
        if source != target:
            line = f"{target}[{size}] convert({source}[{size}])"
            yield case(flags, f"{source} to {target}", line)


def rest(size: str, flags: Flags) -> Iterator[Case]:
    """Elementwise operations whose result or operands are of another type than the rest."""
    lines = []
    for pair in ("f32 s32", "s32 f32", "f16 s16", "bf16 u16", "s8 u8", "u8 s8", "f64 s64"):
        source, target = pair.split()
        lines.append(f"{target}[{size}] bitcast-convert({source}[{size}])")
    for element in TYPES:
        shape, test, scalar = f"{element}[{size}]", f"pred[{size}]", f"{element}[]"
        direction = "EQ" if element in COMPLEX else "LT"
        lines += [
            f"{test} compare({shape}, {shape}), direction={direction}",
            f"{shape} select({test}, {shape}, {shape})",
            f"{shape} clamp({shape}, {shape}, {shape})",
            f"{shape} clamp({scalar}, {shape}, {scalar})",
        ]
    for element in FLOATS:
        shape = f"{element}[{size}]"
        lines.append(f"pred[{size}] is-finite({shape})")
        lines.append(f"{shape} reduce-precision({shape}), exponent_bits=5, mantissa_bits=5")
    for element, part in (("c64", "f32"), ("c128", "f64")):
        whole, half = f"{element}[{size}]", f"{part}[{size}]"
        lines += [f"{half} {opcode}({whole})" for opcode in ("real", "imag", "abs")]
        lines.append(f"{whole} complex({half}, {half})")
    return (case(flags, line, line) for line in lines)


def sizes() -> Iterator[Case]:
    """Elementwise operations of all ranks, beside the least number of elements."""
    for size in ("4095", "4096", "4097", "", "0", "0,4096", "1,4096", "63,65", "2,2,1024"):
        shape = f"f32[{size}]"
        yield case(BY_ELEMENT, f"size {size}", f"{shape} add({shape}, {shape})")
    for rank in range(5, 12):
        long, short = "1," * (rank - 1) + "4096", "1," * (rank - 2) + "4096"
        yield case(BY_ELEMENT, f"rank {rank}", f"f32[{long}] negate(f32[{long}])")
        for shape, source in ((long, short), (short, long)):
            yield case(
                BY_ELEMENT, f"reshape to rank {shape.count(',') + 1}",
                f"m = f32[{shape}] reshape(f32[{source}])", f"f32[{shape}] negate(m)",
            )  # fmt: skip


# Data movement.

# By name: shape before, shape after, and the text; X is the operand, E the type of elements, T
# another array of the shape before, S a test of each of its elements.
MOVES = {
    "reshape": ("64,64", "4096", "reshape(X)"),
    "transpose": ("64,128", "128,64", "transpose(X), dimensions={1,0}"),
    "transpose of three": ("4,64,32", "64,4,32", "transpose(X), dimensions={1,0,2}"),
    "transpose of nothing": ("64,64", "64,64", "transpose(X), dimensions={0,1}"),
    "broadcast": ("64", "64,128", "broadcast(X), dimensions={0}"),
    "broadcast of much": ("64,128", "64,3,128", "broadcast(X), dimensions={0,2}"),
    "broadcast of a scalar": ("", "64,128", "broadcast(X), dimensions={}"),
    "broadcast out of order": ("64,128", "128,64", "broadcast(X), dimensions={1,0}"),
    "slice": ("64,130", "64,128", "slice(X), slice={[0:64],[1:129]}"),
    "slice with stride": ("64,256", "64,128", "slice(X), slice={[0:64],[0:256:2]}"),
    "pad low": ("64,128", "65,128", "pad(X, E[]), padding=1_0x0_0"),
    "pad high": ("64,128", "64,129", "pad(X, E[]), padding=0_0x0_1"),
    "pad both": ("64,128", "66,130", "pad(X, E[]), padding=1_1x1_1"),
    "pad of nothing": ("64,128", "64,128", "pad(X, E[]), padding=0_0x0_0"),
    "negative pad": ("64,130", "64,128", "pad(X, E[]), padding=0_0x-1_-1"),
    "negative and positive pad": ("64,128", "64,128", "pad(X, E[]), padding=0_0x-1_1"),
    "interior pad": ("64,128", "64,255", "pad(X, E[]), padding=0_0x0_0_1"),
    "interior pad of one": ("1,4096", "1,4096", "pad(X, E[]), padding=0_0_1x0_0"),
    "low pad of one": ("1,4096", "2,4096", "pad(X, E[]), padding=1_0x0_0"),
    "high pad of one": ("1,4096", "2,4096", "pad(X, E[]), padding=0_1x0_0"),
    "pad beside one": ("1,4096", "1,4097", "pad(X, E[]), padding=0_0x0_1"),
    "pad of two": ("2,4096", "3,4096", "pad(X, E[]), padding=0_1x0_0"),
    "reverse": ("64,128", "64,128", "reverse(X), dimensions={0}"),
    "concatenate": ("64,128", "128,128", "concatenate(X, T), dimensions={0}"),
    "concatenate of one": ("64,128", "64,128", "concatenate(X), dimensions={0}"),
    "copy": ("64,128", "64,128", "copy(X)"),
    "bitcast": ("64,64", "4096", "bitcast(X)"),
    "dynamic-slice": (
        "64,128", "64,64", "dynamic-slice(X, i:s32[], i), dynamic_slice_sizes={64,64}",
    ),
    "select": ("64,128", "64,128", "select(S, X, T)"),
    "clamp": ("64,128", "64,128", "clamp(t:T, X, t)"),
    "barrier": ("64,128", "64,128", "opt-barrier(X)"),
}  # fmt: skip


def move(name: str, element: str, operand: str) -> str:
    """The line, without a name."""
    before, after, text = MOVES[name]
    values = {"X": operand, "E": element, "T": f"{element}[{before}]", "S": f"pred[{before}]"}
    text = re.sub(r"\b[XETS]\b", lambda letter: values[letter[0]], text)
    return f"{element}[{after}] {text}"


def moves() -> Iterator[Case]:
    """Data movement above, below and between operations that begin a fusion."""
    for element, (name, (before, after, _)) in product(TYPES, MOVES.items()):
        is_rare = element not in ("f32", "bf16", "s8")
        if is_rare and name not in ("reshape", "broadcast", "transpose", "pad low", "copy"):
            continue
        source, moved = f"{element}[{before}]", f"{element}[{after}]"
        many = f"{element}[8,512{',' * bool(before)}{before}]"
        reduced_shape = f"{element}[{after.rpartition(',')[0]}]"
        reduce = f"reduce({{}}), dimensions={{{{{{}}}}}}, to_apply=maximum.{element}"
        for flags, where in product(
            (BY_ELEMENT, BY_REDUCE), ("above", "below", "between", "below and above")
        ):
            lines = []
            if where == "above":
                lines.append(f"m = {move(name, element, source)}")
            else:
                if flags == BY_ELEMENT:
                    lines.append(f"s = {source} multiply(p:{source}, p)")
                else:
                    lines.append(f"z = {element}[] constant(0)")
                    lines.append(f"s = {source} {reduce.format(f'{many}, z', '0,1')}")
                lines.append(f"m = {move(name, element, 's')}")
            if where in ("above", "between"):
                if flags == BY_ELEMENT or not after:
                    lines.append(f"{moved} multiply(m, m)")
                else:
                    lines.append(f"zero = {element}[] constant(0)")
                    axis = str(after.count(","))
                    lines.append(f"{reduced_shape} {reduce.format('m, zero', axis)}")
            else:
                lines[-1] = lines[-1].removeprefix("m = ")
            if where == "below and above":
                lines.append(f"{source} add(s, s)")
            yield case(flags, f"{element} {name} {where} {flags.types[0]}", *lines)


# How an array of 64 by 64 is moved into one of the same shape.
STEPS = {
    "reshape": "reshape({0})",
    "transpose": "transpose({0}), dimensions={{1,0}}",
    "broadcast": "broadcast({0}), dimensions={{0,1}}",
    "copy": "copy({0})",
    "pad": "pad({0}, k:f32[]), padding=0_0x0_0",
    "reverse": "reverse({0}), dimensions={{0}}",
}


def trailing() -> Iterator[Case]:
    """Chains of data movement at the end of a fusion, some of which somebody else reads too."""
    shape = "f32[64,64]"
    dot = "dot(x:f32[64,64], x), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    starts = {
        "negate": (BY_ELEMENT, "negate(f32[64,64])"),
        "copy": (BY_ELEMENT, "copy(f32[64,64])"),
        "dot": (BY_ALL, dot),
        "individual dot": (BY_DEFAULT, dot),
        "reduce": (BY_REDUCE, "reduce(f32[64,64,4], k:f32[]), dimensions={2}, to_apply=add.f32"),
    }
    chains = chain.from_iterable(product(STEPS, repeat=length) for length in (1, 2, 3))
    for steps, (start, (flags, text)) in product(chains, starts.items()):
        if len(steps) == 3 and (start != "negate" or "reverse" in steps):
            continue
        # With more steps, what is read twice makes the compiler crash behind the pass.
        for is_read_twice in (False, True)[: 2 if len(steps) == 1 else 1]:
            lines = [f"s0 = {shape} {text}"]
            for number, step in enumerate(steps):
                lines.append(f"s{number + 1} = {shape} {STEPS[step].format(f's{number}')}")
            for place in (-1, -2)[: 1 + is_read_twice]:
                lines[place] = f"*{lines[place]}"
            words = f"{start}, {', '.join(steps)}{', the one before read too' * is_read_twice}"
            yield case(flags, words, *lines)


def starts_of_data() -> Iterator[Case]:
    """Constants and iotas above what begins a fusion."""
    for root, element, size in product(("constant", "iota"), TYPES, ("", "4096", "64,64")):
        wide = f"{element}[{size or '4096'}]"
        words = f"{root} {element}[{size}] below maximum"
        if root == "constant":
            literal = "true" if element == "pred" else "(1, 0)" if element in COMPLEX else "1"
            lines = [
                f"c = {element}[] constant({literal})",
                f"v = {wide} broadcast(c), dimensions={{}}",
            ]
            yield case(BY_ELEMENT, words, *lines, f"{wide} maximum(v, {wide})")
        elif size:
            line = f"v = {wide} iota(), iota_dimension=0"
            yield case(BY_ELEMENT, words, line, f"{wide} maximum(v, {wide})")
    for element in ("f32", "s32", "bf16", "s8"):
        wide = f"{element}[4,1024]"
        yield case(
            BY_ELEMENT, f"constant of {element}", f"c = {element}[4] constant({{1, 2, 3, 4}})",
            f"v = {wide} broadcast(c), dimensions={{0}}", f"{wide} maximum(v, {wide})",
        )  # fmt: skip


# Reductions.


def reductions() -> Iterator[Case]:
    results = ("f64", "f32", "bf16", "f16", "s8", "s32")
    mixed = [pair for pair in product(TYPES, results) if pair[0] != pair[1]]
    pairs = [*zip(TYPES, TYPES, strict=True), *mixed]
    opcodes = ("add", "maximum", "minimum", "multiply", "and", "or", "subtract")
    for (source, result), opcode in product(pairs, opcodes):
        if source != result and opcode != "add" and (source, opcode) != ("bf16", "maximum"):
            continue
        words = f"{source} to {result} by {opcode}"
        inside = f"({source}[64,64], {result}[])"
        by = f"to_apply={opcode}.{result}"
        yield case(
            BY_REDUCE, f"reduce of {words}", f"{result}[64] reduce{inside}, dimensions={{1}}, {by}"
        )
        window = f"reduce-window{inside}, window={{size=2x1 stride=2x1}}, {by}"
        yield case(BY_REDUCE, f"window of {words}", f"{result}[32,64] {window}")
    bodies = {
        f"{opcode}({order})": scalars("f32", f"{opcode}({order})")
        for opcode, order in product(("add", "maximum", "subtract"), ("q, p", "p, p", "q, q"))
    } | {
        "add of a negated": scalars("f32", "add(p, n)", "n = f32[] negate(q)"),
        "negated add": scalars("f32", "negate(a)", "a = f32[] add(p, q)"),
        "add of a constant": scalars("f32", "add(p, k)", "k = f32[] constant(1)"),
        "only the first": scalars("f32", "copy(p)", "n = f32[] negate(q)"),
        "add beside dead code": scalars("f32", "add(p, q)", "n = f32[] negate(q)"),
        "add of copies": scalars("f32", "add(a, b)", "a = f32[] copy(p)", "b = f32[] copy(q)"),
        "select": scalars("f32", "select(c, p, q)", "c = pred[] compare(p, q), direction=GE"),
    }
    for words, body in bodies.items():
        line = "f32[64] reduce(f32[64,64], f32[]), dimensions={1}, to_apply=how"
        yield case(BY_REDUCE, f"reducer {words}", line, how=body)
    for size, remaining, dimensions in (
        ("4095", "", "0"), ("4096", "", "0"), ("64,64", "64", "0"), ("64,64", "", "0,1"),
        ("64,64", "", "1,0"), ("4096", "4096", ""), ("64,64", "64,64", ""), ("0,4096", "4096", "0"),
        ("1,4095", "4095", "0"), ("1,4096", "4096", "0"), ("64,1,64", "64,64", "1"),
        ("1,1,1,1,1,1,1,4096", "1,1,1,1,1,1,1", "7"),
        ("1,1,1,1,1,1,1,1,4096", "1,1,1,1,1,1,1,1", "8"),
        ("4096,1,1,1,1,1,1,1,1", "1,1,1,1,1,1,1,1", "0"), ("2,4096,0", "2,4096", "2"),
    ):  # fmt: skip
        for opcode in ("add", "maximum"):
            over = f"dimensions={{{dimensions}}}, to_apply={opcode}.f32"
            line = f"f32[{remaining}] reduce(f32[{size}], f32[]), {over}"
            yield case(BY_REDUCE, f"reduce of {size} over {{{dimensions}}} by {opcode}", line)
    for count in (2, 3):
        arrays = ", ".join(["f32[64,64]"] * count + ["f32[]"] * count)
        rows, shapes = (", ".join([shape] * count) for shape in ("f32[64]", "f32[]"))
        parts = [f"p{i} = f32[] parameter({i})" for i in range(2 * count)]
        parts += [f"a{i} = f32[] add(p{i}, p{i + count})" for i in range(count)]
        sums = ", ".join(f"a{i}" for i in range(count))
        body = "\n  ".join(["{", *parts, f"ROOT t = ({shapes}) tuple({sums})"])
        yield case(
            BY_REDUCE, f"reduce of {count} arrays",
            f"r = ({rows}) reduce({arrays}), dimensions={{1}}, to_apply=how",
            "f32[64] get-tuple-element(r), index=0", "f32[64] get-tuple-element(r), index=1",
            how=f"{body}\n}}",
        )  # fmt: skip


def windows() -> Iterator[Case]:
    for words, size, result_size, window in (
        ("stride = size", "64,128", "32,128", "size=2x1 stride=2x1"),
        ("two windows", "64,128", "32,64", "size=2x2 stride=2x2"),
        ("stride 1", "64,128", "63,128", "size=2x1"),
        ("stride > size", "64,128", "21,128", "size=2x1 stride=3x1"),
        ("stride < size", "64,128", "31,128", "size=3x1 stride=2x1"),
        ("size 1, stride 2", "64,128", "32,128", "size=1x1 stride=2x1"),
        ("size 1, stride 2, and a window", "64,128", "32,64", "size=1x2 stride=2x2"),
        ("size 1, stride 1", "64,128", "64,128", "size=1x1"),
        ("low padding", "64,128", "33,128", "size=2x1 stride=2x1 pad=2_0x0_0"),
        ("high padding", "64,128", "33,128", "size=2x1 stride=2x1 pad=0_2x0_0"),
        ("padding of another dimension", "64,128", "32,130", "size=2x1 stride=2x1 pad=0_0x1_1"),
        ("negative padding", "64,128", "31,128", "size=2x1 stride=2x1 pad=-2_0x0_0"),
        ("not divisible", "65,128", "32,128", "size=2x1 stride=2x1"),
        ("base dilation", "64,128", "63,128", "size=2x1 stride=2x1 lhs_dilate=2x1"),
        ("base dilation elsewhere", "64,128", "32,255", "size=2x1 stride=2x1 lhs_dilate=1x2"),
        ("window dilation", "64,128", "31,128", "size=2x1 stride=2x1 rhs_dilate=2x1"),
        ("window dilation elsewhere", "64,128", "32,128", "size=2x1 stride=2x1 rhs_dilate=1x2"),
        ("reversal", "64,128", "32,128", "size=2x1 stride=2x1 rhs_reversal=1x0"),
        ("reversal elsewhere", "64,128", "32,128", "size=2x1 stride=2x1 rhs_reversal=0x1"),
        ("whole array", "64,128", "1,1", "size=64x128 stride=64x128"),
        ("4095 elements", "4095", "1365", "size=3 stride=3"),
        ("4096 elements", "4096", "2048", "size=2 stride=2"),
        ("4096 elements of result", "1,4096", "1,4098", "size=1x2 stride=1x1 pad=0_0x1_2"),
    ):
        for opcode in ("add", "maximum"):
            how = f"window={{{window}}}, to_apply={opcode}.f32"
            line = f"f32[{result_size}] reduce-window(f32[{size}], f32[]), {how}"
            yield case(BY_REDUCE, f"window: {words} by {opcode}", line)
    for rank, count in product(range(3, 10), range(1, 7)):
        if count > rank:
            continue
        extents = [4] * count + [1] * (rank - count)
        extents[-1] *= 1024
        halves = [2] * count + [1] * (rank - count)
        halves[-1] = extents[-1] // (2 if count == rank else 1)
        window = "x".join(["2"] * count + ["1"] * (rank - count))
        size, result_size = (",".join(map(str, lengths)) for lengths in (extents, halves))
        how = f"window={{size={window} stride={window}}}, to_apply=add.f32"
        line = f"f32[{result_size}] reduce-window(f32[{size}], f32[]), {how}"
        yield case(BY_REDUCE, f"rank {rank} with {count} windows", line)


# Dots and convolutions.

_PLAIN = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"


def dots() -> Iterator[Case]:
    wide = ("f32", "s32", "f64")
    same = [
        (element_type, element_type, result)
        for element_type in TYPES
        for result in dict.fromkeys((element_type, *wide))
    ]
    narrow = ("s8", "u8", "s4", "u4")
    mixed = [
        (left, right, result)
        for left, right in product(narrow, repeat=2)
        for result in ("s32", "u32", "f32")
        if left != right
    ]
    odd = ["f32 bf16 f32", "bf16 f32 f32", "f16 f16 bf16", "f32 f32 bf16"]
    for left, right, result in (*same, *mixed, *(element_type.split() for element_type in odd)):
        line = f"{result}[16,16] dot({left}[16,16], {right}[16,16]), {_PLAIN}"
        yield case(BY_DEFAULT, line, line)
    for m, k, n in product((0, 1, 2, 7, 8), repeat=3):
        line = f"f32[{m},{n}] dot(f32[{m},{k}], f32[{k},{n}]), {_PLAIN}"
        yield case(BY_DEFAULT, line, line)
    # Left, right, result; batch dimensions and contracted ones of left and right.
    for words in (
        "16,32 32 16 - 1 - 0", "32 32,16 16 - 0 - 0", "32 32 - - 0 - 0",
        "32,16 32,16 16,16 - 0 - 0", "16,32 16,32 16,16 - 1 - 1", "32,16 16,32 16,16 - 0 - 1",
        "4,16,32 4,32,16 4,16,16 0 2 0 1", "4,16,32 4,16,32 4,16,16 0 2 0 2",
        "4,32,16 4,32,16 4,16,16 0 1 0 1", "4,16,32 4,32 4,16 0 2 0 1", "4,32 4,32,16 4,16 0 1 0 1",
        "4,32 4,32 4 0 1 0 1", "2,4,16,32 2,4,32,16 2,4,16,16 0,1 3 0,1 2",
        "2,4,16,32 4,2,32,16 2,4,16,16 0,1 3 1,0 2", "2,4,16,32 2,4,32,16 4,2,16,16 1,0 3 1,0 2",
        "16,4,32 32,4,16 4,16,16 1 2 1 0", "4,16,32 32,4,16 4,16,16 0 2 1 0",
        "16,4,8 4,8,16 16,16 - 1,2 - 0,1", "16,4,8 8,16 16,4,16 - 2 - 0",
        "16,8 8,4,16 16,4,16 - 1 - 0",
        "1,16,8 8,16 1,16,16 - 2 - 0", "16,8 16,8 16,8,16,8 - - - -", "16 16 16,16 - - - -",
        "16,8 - 16,8 - - - -", "4,16 4,16 4,16,16 0 - 0 -", "16,1 1,16 16,16 - 1 - 0",
        "4,2,7 4,7,2 4,2,2 0 2 0 1", "9,2,7 9,7,2 9,2,2 0 2 0 1", "4,2,8 4,8,2 4,2,2 0 2 0 1",
        "1,1,1,1,1,1,8,8 1,1,1,1,1,1,8,8 1,1,1,1,1,1,8,8 0,1,2,3,4,5 7 0,1,2,3,4,5 6",
        "1,1,1,1,1,1,1,8,8 1,1,1,1,1,1,1,8,8 1,1,1,1,1,1,1,8,8 0,1,2,3,4,5,6 8 0,1,2,3,4,5,6 7",
    ):  # fmt: skip
        left, right, result, *places = (word.replace("-", "") for word in words.split())
        names = ("lhs_batch_dims", "lhs_contracting_dims", "rhs_batch_dims", "rhs_contracting_dims")
        how = ", ".join(
            f"{name}={{{place}}}"
            for name, place in zip(names, places, strict=True)
            if place or "contracting" in name
        )
        for element in ("f32", "bf16"):
            line = f"{element}[{result}] dot({element}[{left}], {element}[{right}]), {how}"
            yield case(BY_DEFAULT, line, line)


def convolutions(flags: Flags) -> Iterator[Case]:
    labels = "dim_labels=b01f_01io->b01f"
    same = [
        (element_type, element_type, result)
        for element_type in TYPES
        for result in dict.fromkeys((element_type, "f32", "s32"))
    ]
    for left, right, result in (*same, ("s8", "u8", "s32"), ("u8", "s8", "s32")):
        inside = f"{left}[1,8,8,16], {right}[3,3,16,32]"
        line = f"{result}[1,6,6,32] convolution({inside}), window={{size=3x3}}, {labels}"
        yield case(flags, line, line)
    small, kernel = "1,8,8,32", "3,3,32,32"
    # Image, kernel, result, window, and more or other attributes.
    for image, weights, result, window, *more in (
        ("1,8,8,16", "3,3,16,17", "1,6,6,17", "size=3x3"),
        ("1,8,8,17", "3,3,17,16", "1,6,6,16", "size=3x3"),
        ("1,8,8,16", "3,3,16,16", "1,6,6,16", "size=3x3"),
        ("1,8,8,0", "3,3,0,32", "1,6,6,32", "size=3x3"),
        ("0,8,8,32", kernel, "0,6,6,32", "size=3x3"),
        (small, "3,3,32,0", "1,6,6,0", "size=3x3"),
        (small, kernel, "1,8,8,32", "size=3x3 pad=1_1x1_1"),
        (small, kernel, "1,9,8,32", "size=3x3 pad=2_1x1_1"),
        (small, kernel, "1,8,9,32", "size=3x3 pad=1_1x2_1"),
        (small, "8,3,32,32", "1,1,8,32", "size=8x3 pad=0_0x1_1"),
        (small, "9,3,32,32", "1,2,8,32", "size=9x3 pad=1_1x1_1"),
        (small, "3,9,32,32", "1,8,2,32", "size=3x9 pad=1_1x1_1"),
        (small, kernel, "1,3,3,32", "size=3x3 stride=2x2"),
        (small, kernel, "1,13,6,32", "size=3x3 lhs_dilate=2x1"),
        (small, kernel, "1,7,6,32", "size=3x3 stride=2x1 lhs_dilate=2x1"),
        (small, kernel, "1,6,7,32", "size=3x3 stride=1x2 lhs_dilate=1x2"),
        (small, kernel, "1,4,6,32", "size=3x3 rhs_dilate=2x1"),
        (small, kernel, "1,6,6,32", "size=3x3 rhs_reversal=1x0"),
        (small, kernel, "1,6,6,32", "size=3x3 rhs_reversal=1x1"),
        (small, "3,3,16,32", "1,6,6,32", "size=3x3", f"{labels}, feature_group_count=2"),
        (small, "3,3,1,32", "1,6,6,32", "size=3x3", f"{labels}, feature_group_count=32"),
        ("2,8,8,32", kernel, "1,6,6,32", "size=3x3", f"{labels}, batch_group_count=2"),
        (small, "1,1,32,32", "1,8,8,32", "size=1x1"),
        ("1,32,8,8", "32,32,3,3", "1,32,6,6", "size=3x3", "dim_labels=bf01_oi01->bf01"),
        (small, kernel, "1,6,6,32", "size=3x3", "dim_labels=b01f_01oi->b01f"),
        (small, "32,32,3,3", "1,6,6,32", "size=3x3", "dim_labels=b01f_io01->b01f"),
        (small, kernel, "1,6,6,32", "size=3x3", "dim_labels=b01f_10io->b01f"),
        (small, kernel, "1,6,6,32", "size=3x3", "dim_labels=b10f_01io->b01f"),
        (small, kernel, "1,6,6,32", "size=3x3", "dim_labels=b01f_01io->b10f"),
        (small, kernel, "1,32,6,6", "size=3x3", "dim_labels=b01f_01io->bf01"),
        ("8,8,1,32", kernel, "6,6,1,32", "size=3x3", "dim_labels=01bf_01io->01bf"),
        ("8,32", "32,32", "8,32", "", "dim_labels=bf_io->bf"),
        ("1,8,32", "3,32,32", "1,6,32", "size=3", "dim_labels=b0f_0io->b0f"),
        ("1,8,32", "3,32,32", "1,4,32", "size=3 rhs_dilate=2", "dim_labels=b0f_0io->b0f"),
        ("1,32,8", "3,32,32", "1,6,32", "size=3", "dim_labels=bf0_0io->b0f"),
        ("1,8,8,8,32", "3,3,3,32,32", "1,6,6,6,32", "size=3x3x3", "dim_labels=b012f_012io->b012f"),
        ("1,8,8,8,32", "3,3,3,32,32", "1,13,6,6,32", "size=3x3x3 lhs_dilate=2x1x1",
         "dim_labels=b012f_012io->b012f"),
        ("1,4,4,4,4,32", "3,3,3,3,32,32", "1,2,2,2,2,32", "size=3x3x3x3",
         "dim_labels=b0123f_0123io->b0123f"),
    ):  # fmt: skip
        how = f"window={{{window}}}, " * bool(window) + (more[0] if more else labels)
        for element in ("f32", "f64", "s8", "f16"):
            to = "s32" if element == "s8" else element
            line = f"{to}[{result}] convolution({element}[{image}], {element}[{weights}]), {how}"
            yield case(flags, line, line)


# Growth.


def repeated(shape: str, count: int, line: str, start: str, prefix: str = "v") -> Iterator[str]:
    """Yield ``count`` copies of a line; X stands for the result of the previous one."""
    for number in range(count):
        yield f"{prefix}{number} = {shape} {line.replace('X', start)}"
        start = f"{prefix}{number}"


def limits() -> Iterator[Case]:
    """Chains and pairs of fusions beside the limit of instructions."""
    shape, square, cube = "f32[4096]", "f32[16,16]", "f32[64,64,8]"
    for length in (*range(94, 104), 199, 205):
        lines = [*repeated(shape, length, "negate(X)", shape)]
        end = f"f32[] reduce(v{length - 1}, f32[]), dimensions={{0}}, to_apply=add.f32"
        yield case(BY_REDUCE, f"chain of {length} and a reduce", *lines, end)
        lines[-1] = f"*{lines[-1]}"
        yield case(BY_ELEMENT, f"chain of {length}", *lines)
    for length in (30, 32, 33, 34, 48, 49, 50, 51, 99, 101):
        # Each operation reads one more array, which is a parameter of the fusion.
        lines = [*repeated(shape, length, f"add(X, {shape})", shape)]
        lines[-1] = f"*{lines[-1]}"
        yield case(BY_ELEMENT, f"chain of {length} with a parameter each", *lines)
    for length in range(90, 100):
        # The dot is begun first, and does not grow; the reduce grows down to it.
        lines = [
            f"r = {square} reduce(f32[16,16,16], f32[]), dimensions={{2}}, to_apply=add.f32",
            *repeated(square, length, "transpose(X), dimensions={1,0}", "r"),
            f"{square} dot(v{length - 1}, {square}), {_PLAIN}",
        ]
        yield case(BY_DEFAULT, f"{length} transposes between a reduce and a dot", *lines)
    for above, below in product((45, 46, 47, 48, 49, 50, 51), repeat=2):
        if 94 <= above + below <= 101:
            # Both are begun before they meet: by a reduce each.
            lines = [
                *repeated(cube, above, "negate(X)", cube),
                f"r = f32[64,64] reduce(v{above - 1}, k:f32[]), dimensions={{2}}, to_apply=add.f32",
                *repeated("f32[64,64]", below, "negate(X)", "r", "w"),
                f"f32[64] reduce(w{below - 1}, k), dimensions={{1}}, to_apply=add.f32",
            ]
            yield case(BY_REDUCE, f"reduces behind {above} and {below}", *lines)


def graphs(flags: Flags, count: int, length: int) -> Iterator[Case]:
    return (graph(flags, seed, length) for seed in range(count))


# By kind: lines in turn, of which the last makes an array. X and Y are arrays that were made
# before, R and Q rows, K a scalar, D a dimension, O one of the reducers.
KINDS: dict[str, tuple[str, ...]] = {
    "unary": ("S OPCODE1(X)",),
    "binary": ("S OPCODE2(X, Y)",),
    "odd": ("S cbrt(X)",),
    "reshape": ("f32[4096] reshape(X)", "S reshape(LAST)"),
    "transpose": ("S transpose(X), dimensions={1,0}",),
    "broadcast": ("S broadcast(R), dimensions={D}",),
    "scalar": ("S broadcast(K), dimensions={}",),
    "copy": ("S copy(X)",),
    "pad": ("S pad(X, K), padding=PAD",),
    "reduce": ("f32[64] reduce(X, K), dimensions={D}, to_apply=O.f32",),
    "window": (
        "f32[32,64] reduce-window(X, K), window={size=2x1 stride=2x1}, to_apply=O.f32",
        "f32[32,2,64] broadcast(LAST), dimensions={0,2}",
        "S reshape(LAST)",
    ),
    "dot": ("S dot(X, Y), lhs_contracting_dims={1}, rhs_contracting_dims={D}",),
    "slice": ("S reverse(X), dimensions={0}",),
    "concatenate": (
        "f32[128,64] concatenate(X, Y), dimensions={0}",
        "S slice(LAST), slice={[0:64],[0:64]}",
    ),
    "rows": ("f32[64] add(R, Q)",),
    "constant": ("f32[] constant(N)",),
    "convert": ("bf16[64,64] convert(X)", "S convert(LAST)"),
    "fill": ("S iota(), iota_dimension=D",),
}


def graph(flags: Flags, seed: int, length: int) -> Case:
    """One by chance: operations that are supported and some that are not, read by any number."""
    square, row = "f32[64,64]", "f32[64]"
    dice = random.Random(f"{flags} {seed}")
    lines = ["zero = f32[] constant(0)", "two = f32[] constant(2)"]
    made = {
        square: [f"a:{square}", f"b:{square}"],
        row: [f"r:{row}"],
        "f32[]": ["k:f32[]", "zero", "two"],
    }
    read: Counter[str] = Counter()

    def pick(shape: str) -> str:
        # Mostly the last ones: that makes chains. Often one that nothing reads yet.
        late = made[shape][-4:] if shape != "f32[]" else made[shape]
        fresh = [value for value in late if not read[value]]
        choice = dice.choice(fresh if fresh and dice.random() < 0.6 else late)
        read[choice] += 1
        return choice

    def fill(word: re.Match[str]) -> str:
        match word[0]:
            case "S":
                return square
            case "X" | "Y":
                return pick(square)
            case "R" | "Q":
                return pick(row)
            case "K":
                return pick("f32[]")
            case "LAST":
                return f"v{len(lines) - 1}"
            case "N":
                return str(dice.randint(3, 99))
        return dice.choice(
            {
                "D": ("0", "1"),
                "O": ("add", "maximum", "multiply"),
                "PAD": ("0_0x0_0", "1_-1x0_0"),
                "OPCODE1": ("negate", "exponential", "abs", "sine", "sqrt"),
                "OPCODE2": ("add", "multiply", "maximum", "divide"),
            }[word[0]]
        )

    for _ in range(dice.randint(length // 2, length)):
        for line in KINDS[dice.choice([*KINDS, "unary", "binary", "binary", "reduce"])]:
            text = re.sub(r"\b(S|X|Y|R|Q|K|D|O|N|PAD|LAST|OPCODE\d)\b", fill, line)
            lines.append(f"v{len(lines)} = {text}")
        shape = lines[-1].split()[2]
        made[shape].append(f"v{len(lines) - 1}")
    values = [value for value in (*made[square], *made[row]) if ":" not in value]
    roots = {value for value in values if not read[value] or dice.random() < 0.05}
    return case(
        flags,
        f"graph {seed}",
        *(f"*{line}" if line.partition(" ")[0] in roots else line for line in lines),
    )


def control_flow(flags: Flags) -> Iterator[Case]:
    """Work in computations that are called."""
    square = "f32[64,64]"
    work = (
        "{\n  p = f32[64,64] parameter(0)\n  e = f32[64,64] negate(p)\n  c = f32[64,64] cbrt(e)\n"
        "  ROOT r = f32[64,64] add(c, p)\n}"
    )
    end = f"{square} negate(v)"
    yield case(flags, "call", f"v = {square} call({square}), to_apply=work", end, work=work)
    line = f"{square} call(v), to_apply=work"
    yield case(flags, "two calls", f"v = {square} call({square}), to_apply=work", line, work=work)
    line = f"v = {square} conditional(pred[], x:{square}, x), true_computation=work"
    second_branch = work.replace("negate", "abs")
    yield case(
        flags,
        "conditional",
        f"{line}, false_computation=other",
        end,
        work=work,
        other=second_branch,
    )
    pair = "(s32[], f32[64,64])"
    index = f"{{\n  t = {pair} parameter(0)\n  i = s32[] get-tuple-element(t), index=0\n"
    test = f"{index}  k = s32[] constant(9)\n  ROOT r = pred[] compare(i, k), direction=LT\n}}"
    step = (
        f"{index}  p = f32[64,64] get-tuple-element(t), index=1\n  k = s32[] constant(1)\n"
        "  j = s32[] add(i, k)\n  e = f32[64,64] negate(p)\n  c = f32[64,64] sine(e)\n"
        f"  q = f32[64,64] multiply(c, p)\n  ROOT r = {pair} tuple(j, q)\n}}"
    )
    yield case(
        flags, "while", "z = s32[] constant(0)", f"s = {pair} tuple(z, {square})",
        f"d = {pair} while(s), condition=test, body=step",
        f"v = {square} get-tuple-element(d), index=1", end, test=test, step=step,
    )  # fmt: skip
    scalar = "{\n  p = f32[] parameter(0)\n  e = f32[] negate(p)\n  ROOT r = f32[] abs(e)\n}"
    line = f"v = {square} map({square}), dimensions={{0,1}}, to_apply=scalar"
    yield case(flags, "map", line, end, scalar=scalar)
    negated = ("n = f32[] negate(p)", "m = f32[] negate(q)")
    less = scalars("f32", "pred[] compare(n, m), direction=LT", *negated)
    line = f"v = {square} sort({square}), dimensions={{1}}, to_apply=less"
    yield case(flags, "sort", line, end, less=less)


# Operations that are neither elementwise nor data movement.


def others(flags: Flags) -> Iterator[Case]:
    window = "window={size=2x1 stride=2x1}"
    for element in ("f32", "s8", "bf16", "pred", "c64"):
        array, row, scalar, part = (f"{element}[{size}]" for size in ("8,16", "16", "", "4,16"))
        for name, (before, _, _) in MOVES.items():
            line = move(name, element, f"{element}[{before}]")
            yield case(flags, f"{element} {name} alone", line)
        row_shape = f"{element}[1,16]"
        add = f"to_apply=add.{element}"
        for line in (
            f"{row_shape} dynamic-slice({array}, i:s32[], i), dynamic_slice_sizes={{1,16}}",
            f"{array} dynamic-update-slice({array}, {row_shape}, i:s32[], i)",
            f"{part} gather({array}, s32[4]), offset_dims={{1}}, collapsed_slice_dims={{0}}, "
            "start_index_map={0}, index_vector_dim=1, slice_sizes={1,16}",
            *(
                f"{element}[8] reduce({array}, {scalar}), dimensions={{1}}, to_apply={by}.{element}"
                for by in ("add", "maximum", "or", "xor")
            ),
            f"{array} scatter({array}, s32[4], {part}), update_window_dims={{1}}, "
            "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
            f"{add}",
            f"{part} reduce-window({array}, {scalar}), {window}, {add}",
            f"{array} iota(), iota_dimension=1",
            f"{array} broadcast({row}), dimensions={{1}}",
            f"{element}[8,8] dot({array}, {element}[16,8]), {_PLAIN}",
        ):
            yield case(flags, line, line)
        line = f"{array} select-and-scatter({array}, {part}, {scalar}), {window}, select=most"
        most = scalars(element, "pred[] compare(p, q), direction=GE")
        yield case(flags, line, f"{line}, scatter=add.{element}", most=most)
    square = "f32[4,4]"
    solve = "left_side=true, lower=true, transpose_a=NO_TRANSPOSE"
    for line in (
        f"{square} cholesky({square}), lower=true",
        f"{square} triangular-solve({square}, {square}), {solve}",
        "c64[16] fft(c64[16]), fft_type=FFT, fft_length={16}",
        f"{square} rng(f32[], f32[]), distribution=rng_uniform",
        "s8[8] stochastic-convert(f32[8], u32[8])",
    ):
        yield case(flags, line, line)
    bits = "b = (u64[2], u32[8]) rng-bit-generator(u64[2]), algorithm=rng_default"
    yield case(flags, "rng-bit-generator", bits, "u32[8] get-tuple-element(b), index=1")


def copies() -> Iterator[Case]:
    """Layouts that differ: by hand, and by what the assignment of layouts makes of them."""
    rare = ("f8e4m3b11fnuz", "f8e5m2fnuz", "f8e4m3", "f8e3m4", "s2", "u2", "f4e2m1fn")
    layouts = (("{1,0}", "{0,1}"), ("{0,1}", "{1,0}"), ("{0,1}", "{0,1}"))
    for element, (first_layout, second_layout) in product((*TYPES, *rare), layouts):
        before, after = f"{element}[8,16]{first_layout}", f"{element}[8,16]{second_layout}"
        for flags in (WRAPPED, WRAPPED_LAID_OUT):
            copied = case(flags, f"copy of {before} to {second_layout}", f"{after} copy({before})")
            yield _laid_out(copied, before, after)
    for line, layout in product(
        (
            "transpose(X), dimensions={1,0}",
            "reshape(X)",
            "add(x:X, x)",
            "reverse(X), dimensions={0}",
        ),
        ("{1,0}", "{0,1}"),
    ):
        before = f"f32[8,8]{layout}"
        moved = case(
            WRAPPED_LAID_OUT, f"{line} of {layout}", f"f32[8,8] {line.replace('X', before)}"
        )
        yield _laid_out(moved, before, "f32[8,8]{1,0}")


def _laid_out(of: Case, before: str, after: str) -> Case:
    header = f"NAME, entry_computation_layout={{({before})->{after}}}"
    return Case(of.flags, of.words, of.text.replace("NAME", header, 1))


# Siblings.


def siblings() -> Iterator[Case]:
    """Modules by words and lines, for plain siblings, for fused ones, or for both."""
    for words, lines in chain(of_both(), of_several_opcodes()):
        for flags in (SIBLINGS, FUSED_SIBLINGS):
            yield case(flags, words, *lines)
    for words, lines in chain(of_shapes(), in_place(), of_count()):
        yield case(SIBLINGS, words, *lines)
    for words, lines in of_operands():
        yield case(FUSED_SIBLINGS, words, *lines)


Lines = Iterator[tuple[str, Iterable[str]]]
_X = "x:f32[64,64]"


def of_both() -> Lines:
    for first, second in product(("negate", "abs", "copy", "cbrt"), repeat=2):
        yield (
            f"{first} and {second} of one",
            [f"f32[64,64] {opcode}({_X})" for opcode in (first, second)],
        )
    yield (
        "siblings that depend",
        (
            "*a = f32[64] exponential(x:f32[64])",
            "*b = f32[64] cbrt(a)",
            "f32[64] add(x, b)",
        ),
    )


def of_shapes() -> Lines:
    for size in ("", "1", "1,1", "0", "1024", "64,64"):
        shape = f"f32[{size}]"
        lines = [f"{shape} {opcode}(x:{shape})" for opcode in ("negate", "abs", "sqrt")]
        yield f"three readers of {shape}", lines
    for line in (
        f"f32[64,64] abs({_X})",
        f"f32[4096] reshape({_X})",
        f"bf16[64,64] convert({_X})",
        f"f32[1,1] slice({_X}), slice={{[0:1],[0:1]}}",
        f"s32[64,64] convert({_X})",
        f"pred[64,64] is-finite({_X})",
        f"f32[64,64] transpose({_X}), dimensions={{1,0}}",
        f"c64[64,64] complex({_X}, x)",
    ):
        yield f"negate and {line}", (f"f32[64,64] negate({_X})", line)


def of_operands() -> Lines:
    """Fusions of so many operands: sums, in one fusion each."""
    for first_count, second_count in product((2, 3, 18, 19, 20, 21), (2, 19, 20)):
        for shared in (1, 2):
            lines: list[str] = []
            for prefix, number in (("a", first_count), ("b", second_count)):
                more = ["y:f32[64]"] * (shared - 1) + ["f32[64]"] * (number - shared)
                start = "x:f32[64]"
                for place, operand in enumerate(more):
                    lines.append(f"{prefix}{place} = f32[64] add({start}, {operand})")
                    start = f"{prefix}{place}"
                lines[-1] = f"*{lines[-1]}"
            yield f"{first_count} and {second_count} operands, {shared} of them shared", lines


def in_place() -> Lines:
    update = "f32[64] dynamic-update-slice({}, u:f32[8], i:s32[])"
    update_of_x = update.format("x:f32[64]")
    yield "updates of one", (update_of_x, update_of_x)
    yield "updates of two", (update_of_x, update.format("y:f32[64]"))
    yield "an update and a reader", (update_of_x, "f32[64] negate(x)")


def of_count() -> Lines:
    for count in (2, 5, 127, 128, 129, 130, 257):
        for alternate in (False, True):
            # Readers of two shapes in turn: only every other one is a sibling.
            lines = [
                "f32[64,2] broadcast(x:f32[64]), dimensions={0}"
                if alternate and number % 2
                else "f32[64] add(x:f32[64], f32[64])"
                for number in range(count)
            ]
            yield f"{count} readers{', every other one alike' if alternate else ''}", lines
    wide = "f32[64] broadcast({}), dimensions={{}}"
    yield "broadcasts of a scalar", [wide.format("x:f32[]")] * 2
    yield "broadcasts of a constant", ("c = f32[] constant(2)", *[wide.format("c")] * 2)
    for constant in (
        "f32[4] constant({1,2,3,4})",
        "f32[1] constant({1})",
        "f32[1,1] constant({{1}})",
    ):
        shape = constant.partition(" ")[0]
        lines = (f"c = {constant}", f"{shape} negate(c)", f"{shape} abs(c)")
        yield f"readers of {constant}", lines


def of_several_opcodes() -> Lines:
    x, row = "x:f32[16,16]", "x:f32[16]"
    readers = (f"f32[16,16] negate({x})", f"f32[16,16] abs({x})")
    dot = f"f32[16,16] dot({x}, x), {_PLAIN}"
    yield "dot and readers", (dot, *readers)
    yield "readers around a dot", (readers[1], dot, readers[0])
    negate = f"f32[16] negate({row})"
    reduce = f"f32[] reduce({row}, k:f32[]), dimensions={{0}}, to_apply="
    inner = f"f32[] dot({row}, x), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}"
    for pair in (
        (negate, negate),
        (f"f32[16] copy({row})", negate),
        (f"f32[16] abs({row})", negate),
        (f"f32[32] concatenate({row}, x), dimensions={{0}}",
         f"f32[32] pad({row}, f32[]), padding=0_16"),
        (f"{reduce}add.f32", f"{reduce}maximum.f32"),
        (f"f32[16] sort({row}), dimensions={{0}}, to_apply=less.f32", negate),
        (inner, f"{reduce}add.f32"),
    ):  # fmt: skip
        for order in (pair, pair[::-1]):
            yield " and ".join(line.split()[1] for line in order), order


def examples(pass_name: str) -> Iterator[Case]:
    """Those of the rules."""
    also = SIBLINGS.also if pass_name == SEVERAL else ()
    for rule in NEWEST.find(pass_name).book:
        for example in read_examples(rule.id):
            types = re.search(r"^// types: (.+)$", example.text, re.MULTILINE)
            flags = Flags(pass_name, also, tuple(types[1].split(", ")) if types else DEFAULT)
            text = re.sub(r"HloModule \w+", "HloModule NAME", example.text, count=1)
            yield Case(flags, f"example of {rule.id}: {example.why}", text)


def cases(pass_name: str) -> Iterator[Case]:
    yield from examples(pass_name)
    if pass_name == LIBRARY:
        for types in TYPES_TOGETHER:
            yield from graphs(Flags(LIBRARY, (), types), 60, 30)
        for flags in (BY_ALL, BY_DEFAULT):
            yield from control_flow(flags)
        for make in (sizes, moves, trailing, starts_of_data, reductions, windows, dots, limits):
            yield from make()
        yield from chain(elementwise("64,64", BY_ELEMENT), rest("64,64", BY_ELEMENT))
        yield from chain(convolutions(BY_DEFAULT), others(BY_ALL))
    elif pass_name == WRAPPER:
        yield from chain(elementwise("8,8", WRAPPED), rest("8,8", WRAPPED), others(WRAPPED))
        yield from chain(convolutions(WRAPPED), copies())
        yield from chain(control_flow(WRAPPED), graphs(WRAPPED, 20, 30))
    else:
        yield from siblings()
        for flags in (SIBLINGS, FUSED_SIBLINGS):
            yield from chain(graphs(flags, 150, 40), control_flow(flags))


TYPES_TOGETHER = (
    ALL,
    ("ELTWISE",),
    ("REDUCE",),
    ("DOT",),
    ("INDIVIDUAL_DOT", "REDUCE"),
    ("INDIVIDUAL_DOT", "DOT", "ELTWISE"),
    ("DOT", "REDUCE"),
    ("REDUCE", "ELTWISE"),
)


def replay_behind(
    before: Stage, case: Case, compiler: Compiler, module: DumpedModule, after: Module
) -> Module:
    """Return the result of the pass, with the order of users, which no text shows, if it takes
    that to make ``after``.
    """
    name, context = case.flags.pass_name, case.flags.context
    replayed = replay(name, module.read(before), context, compiler).module
    if find_divergence(replayed, after) is None:
        return replayed
    users = find_user_order(module, before, find_rewriters(module))
    return replay(
        name, module.read(before), context, compiler, arrange(module.read(before), users)
    ).module


def compare(case: Case, compiler: Compiler, module: DumpedModule | None) -> str | None:
    """What differs, empty where nothing does, None where the compiler did not come to the pass."""
    stages = [] if module is None else [s for s in module.stages if s.name.counter is not None]
    if module is None or not stages:
        return None
    place = next((i for i, s in enumerate(stages) if s.name.after == case.flags.pass_name), None)
    if place is None and module.final is None:
        return None
    before = stages[-1 if place is None else place - 1]
    try:
        after = module.read(before if place is None else stages[place])
        replayed = replay_behind(before, case, compiler, module, after)
    except UnusableInput as error:
        return f"not replayed: {error}"
    divergence = find_divergence(replayed, after)
    if divergence is None:
        return ""
    sides = f"{divergence.ours} here, {divergence.theirs} in the compiler"
    return f"{divergence.what} in {divergence.computation}: {sides}"


def hold(python: str, pass_name: str) -> Iterator[Finding]:
    """How the cases of a pass came out."""
    version = version_of(python)
    compiler = compiler_of(version)
    where = f"{version} {pass_name}"
    ordered = sorted(cases(pass_name), key=lambda case: str(case.flags))
    for flags, group in groupby(ordered, key=lambda case: case.flags):
        same = [*group]
        texts = [case.text.replace("NAME", f"case_{i}", 1) for i, case in enumerate(same)]
        with TemporaryDirectory() as scratch:
            problems = compile_all(python, flags.text, texts, Path(scratch))
            modules = {module.name: module for module in open_dump(Path(scratch) / "dump").modules}
            for index, (case, why) in enumerate(zip(same, problems, strict=True)):
                result = compare(case, compiler, modules.get(f"case_{index}"))
                if result is None:
                    yield counted(f"{where}: not compiled: {' '.join(why.split())[:60]}")
                elif result:
                    yield problem(f"{where}: differ", f"{where}: {case.words}: {result}")
                else:
                    yield counted(f"{where}: identical")


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--python", action="append", help="a Python that has jax")
    parser.add_argument("--only", choices=PASSES, help="the pass that is compared")


def findings(options: Namespace) -> Iterator[Finding]:
    passes = [options.only] if options.only else PASSES
    for python, pass_name in product(options.python or [sys.executable], passes):
        yield from hold(python, pass_name)
