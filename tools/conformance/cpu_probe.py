"""Holds the replays of three CPU passes against the compiler itself, on many small modules.

    python tools/conformance/cpu_probe.py --python PATH [--python PATH ...] [--only PASS]

``PATH`` is a Python that has jax. It compiles each module with all passes left out but the one in
question (for multi-output fusion also those that make fusions), and the replay of the module that
the pass saw has to be the module that it made. Prints for each version and pass how many modules
there were and how many agree, and what each other one is about; fails where there are any.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, groupby, product
from pathlib import Path
from tempfile import TemporaryDirectory

from cpu_compiling import compile_all, compiler_of, version_of

from fusionscope.dump import DumpedModule, open_dump
from fusionscope.errors import UnusableInput
from fusionscope.graph.comparison import find_divergence
from fusionscope.passes.context import PassContext
from fusionscope.rules.pages import read_examples
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
            text += _YNN + ",".join(f"LIBRARY_FUSION_TYPE_{each}" for each in self.types)
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


class Writer:
    """The text of a module, line by line."""

    def __init__(self) -> None:
        self._computations: list[str] = []
        self._lines: list[str] = []
        self._shapes: dict[str, str] = {}
        self._parameters = 0

    def __call__(self, shape: str, expression: str) -> str:
        name = f"v{len(self._lines)}"
        self._lines.append(f"  {name} = {shape} {expression}")
        self._shapes[name] = shape
        return name

    def parameter(self, shape: str) -> str:
        self._parameters += 1
        return self(shape, f"parameter({self._parameters - 1})")

    def reducer(self, opcode: str, element: str, order: str = "p, q", initial: str = "") -> str:
        """A computation of two scalars; ``initial`` is the type of the first, where it differs."""
        name = f"c{len(self._computations)}"
        self._computations.append(
            f"{name} {{\n  p = {initial or element}[] parameter(0)\n"
            f"  q = {element}[] parameter(1)\n"
            f"  ROOT r = {element}[] {opcode}({order})\n}}\n"
        )
        return name

    def computation(self, text: str) -> str:
        """``text`` without its name, which is returned."""
        name = f"c{len(self._computations)}"
        self._computations.append(f"{name} {text}\n")
        return name

    def text(self, *roots: str) -> str:
        lines = list(self._lines)
        if len(roots) == 1:
            index = int(roots[0][1:])
            lines.append(lines.pop(index).replace("  v", "  ROOT v", 1))
        else:
            shapes = ", ".join(self._shapes[root] for root in roots)
            lines.append(f"  ROOT all = ({shapes}) tuple({', '.join(roots)})")
        entry = "\n".join(lines)
        return f"HloModule NAME\n\n{''.join(self._computations)}\nENTRY main {{\n{entry}\n}}\n"


def expression(words: str, result: str, text: str, *operands: str, flags: Flags) -> Case:
    """One operation: ``text`` with its operands, parameters of these shapes, as {0}, {1}, …"""
    w = Writer()
    names = [w.parameter(shape) for shape in operands]
    return Case(flags, f"{words}: {result} {text}", w.text(w(result, text.format(*names))))


# Elementwise operations.


def elementwise(size: str, flags: Flags) -> Iterator[Case]:
    for element, opcode in product(TYPES, UNARY):
        shape = f"{element}[{size}]"
        yield expression(element, shape, opcode + "({0})", shape, flags=flags)
    for element, opcode in product(TYPES, BINARY):
        shape = f"{element}[{size}]"
        yield expression(element, shape, opcode + "({0}, {1})", shape, shape, flags=flags)
    for one, other in product(TYPES, TYPES):
        if one != other:
            to = f"{other}[{size}]"
            yield expression(one, to, "convert({0})", f"{one}[{size}]", flags=flags)


def rest(size: str, flags: Flags) -> Iterator[Case]:
    """Elementwise operations whose result or operands are of another type than the rest."""
    for pair in ("f32 s32", "s32 f32", "f16 s16", "bf16 u16", "s8 u8", "u8 s8", "f64 s64"):
        one, other = pair.split()
        to = f"{other}[{size}]"
        yield expression(one, to, "bitcast-convert({0})", f"{one}[{size}]", flags=flags)
    for element in TYPES:
        shape, test = f"{element}[{size}]", f"pred[{size}]"
        less = "compare({0}, {1}), direction=" + ("EQ" if element in COMPLEX else "LT")
        yield expression(element, test, less, shape, shape, flags=flags)
        yield expression(element, shape, "select({0}, {1}, {2})", test, shape, shape, flags=flags)
        yield expression(element, shape, "clamp({0}, {1}, {2})", shape, shape, shape, flags=flags)
        scalar = f"{element}[]"
        yield expression(element, shape, "clamp({0}, {1}, {2})", scalar, shape, scalar, flags=flags)
    for element in FLOATS:
        shape = f"{element}[{size}]"
        yield expression(element, f"pred[{size}]", "is-finite({0})", shape, flags=flags)
        rounded = "reduce-precision({0}), exponent_bits=5, mantissa_bits=5"
        yield expression(element, shape, rounded, shape, flags=flags)
    for element, part in (("c64", "f32"), ("c128", "f64")):
        whole, half = f"{element}[{size}]", f"{part}[{size}]"
        yield expression(element, half, "real({0})", whole, flags=flags)
        yield expression(element, half, "imag({0})", whole, flags=flags)
        yield expression(element, half, "abs({0})", whole, flags=flags)
        yield expression(element, whole, "complex({0}, {1})", half, half, flags=flags)


def sizes() -> Iterator[Case]:
    """Elementwise operations of all ranks, beside the least number of elements."""
    for size in ("4095", "4096", "4097", "", "0", "0,4096", "1,4096", "63,65", "2,2,1024"):
        shape = f"f32[{size}]"
        yield expression("size", shape, "add({0}, {1})", shape, shape, flags=BY_ELEMENT)
    for rank in range(5, 12):
        shape = f"f32[{','.join(['1'] * (rank - 1) + ['4096'])}]"
        yield expression(f"rank {rank}", shape, "negate({0})", shape, flags=BY_ELEMENT)
        one, other = "1," * (rank - 1) + "4096", "1," * (rank - 2) + "4096"
        for shape, source in ((one, other), (other, one)):
            w = Writer()
            moved = w(f"f32[{shape}]", f"reshape({w.parameter(f'f32[{source}]')})")
            text = w.text(w(f"f32[{shape}]", f"negate({moved})"))
            yield Case(BY_ELEMENT, f"reshape to rank {shape.count(',') + 1}", text)


# Data movement.

# By name: shape before, shape after, and the text; {0} is the operand, {p} a scalar, {t} another
# array of the shape before.
MOVES = {
    "reshape": ("64,64", "4096", "reshape({0})"),
    "transpose": ("64,128", "128,64", "transpose({0}), dimensions={{1,0}}"),
    "transpose of three": ("4,64,32", "64,4,32", "transpose({0}), dimensions={{1,0,2}}"),
    "transpose of nothing": ("64,64", "64,64", "transpose({0}), dimensions={{0,1}}"),
    "broadcast": ("64", "64,128", "broadcast({0}), dimensions={{0}}"),
    "broadcast of much": ("64,128", "64,3,128", "broadcast({0}), dimensions={{0,2}}"),
    "broadcast of a scalar": ("", "64,128", "broadcast({0}), dimensions={{}}"),
    "broadcast out of order": ("64,128", "128,64", "broadcast({0}), dimensions={{1,0}}"),
    "slice": ("64,130", "64,128", "slice({0}), slice={{[0:64],[1:129]}}"),
    "slice with stride": ("64,256", "64,128", "slice({0}), slice={{[0:64],[0:256:2]}}"),
    "pad low": ("64,128", "65,128", "pad({0}, {p}), padding=1_0x0_0"),
    "pad high": ("64,128", "64,129", "pad({0}, {p}), padding=0_0x0_1"),
    "pad both": ("64,128", "66,130", "pad({0}, {p}), padding=1_1x1_1"),
    "pad of nothing": ("64,128", "64,128", "pad({0}, {p}), padding=0_0x0_0"),
    "negative pad": ("64,130", "64,128", "pad({0}, {p}), padding=0_0x-1_-1"),
    "negative and positive pad": ("64,128", "64,128", "pad({0}, {p}), padding=0_0x-1_1"),
    "interior pad": ("64,128", "64,255", "pad({0}, {p}), padding=0_0x0_0_1"),
    "interior pad of one": ("1,4096", "1,4096", "pad({0}, {p}), padding=0_0_1x0_0"),
    "low pad of one": ("1,4096", "2,4096", "pad({0}, {p}), padding=1_0x0_0"),
    "high pad of one": ("1,4096", "2,4096", "pad({0}, {p}), padding=0_1x0_0"),
    "pad beside one": ("1,4096", "1,4097", "pad({0}, {p}), padding=0_0x0_1"),
    "pad of two": ("2,4096", "3,4096", "pad({0}, {p}), padding=0_1x0_0"),
    "pad of a scalar": ("", "", "pad({0}, {p}), padding="),
    "reverse": ("64,128", "64,128", "reverse({0}), dimensions={{0}}"),
    "concatenate": ("64,128", "128,128", "concatenate({0}, {t}), dimensions={{0}}"),
    "concatenate of one": ("64,128", "64,128", "concatenate({0}), dimensions={{0}}"),
    "copy": ("64,128", "64,128", "copy({0})"),
    "bitcast": ("64,64", "4096", "bitcast({0})"),
    "dynamic-slice": (
        "64,128",
        "64,64",
        "dynamic-slice({0}, {i}, {i}), dynamic_slice_sizes={{64,64}}",
    ),
    "select": ("64,128", "64,128", "select({s}, {0}, {t})"),
    "clamp": ("64,128", "64,128", "clamp({t}, {0}, {t})"),
    "barrier": ("64,128", "64,128", "opt-barrier({0})"),
}


def move(w: Writer, name: str, element: str, operand: str) -> str:
    before, after, text = MOVES[name]
    other = {
        "p": f"{element}[]", "t": f"{element}[{before}]", "s": f"pred[{before}]", "i": "s32[]",
    }  # fmt: skip
    names = {key: w.parameter(shape) for key, shape in other.items() if f"{{{key}}}" in text}
    return w(f"{element}[{after}]", text.format(operand, **names))


def moves() -> Iterator[Case]:
    """Data movement above, below and between operations that begin a fusion."""
    for element in TYPES:
        few = element not in ("f32", "bf16", "s8")
        for name, (before, after, _) in MOVES.items():
            if few and name not in ("reshape", "broadcast", "transpose", "pad low", "copy"):
                continue
            for flags, where in product(
                (BY_ELEMENT, BY_REDUCE), ("above", "below", "between", "below and above")
            ):
                w = Writer()
                ends: list[str] = []
                source = w.parameter(f"{element}[{before}]")
                by_element = flags == BY_ELEMENT
                if where != "above":
                    if by_element:
                        source = w(f"{element}[{before}]", f"multiply({source}, {source})")
                    else:
                        above = w.parameter(f"{element}[8,512{',' * bool(before)}{before}]")
                        zero = w(f"{element}[]", "constant(0)")
                        how = w.reducer("maximum", element)
                        source = w(
                            f"{element}[{before}]",
                            f"reduce({above}, {zero}), dimensions={{0,1}}, to_apply={how}",
                        )
                if where == "below and above":
                    ends.append(w(f"{element}[{before}]", f"add({source}, {source})"))
                moved = move(w, name, element, source)
                if where in ("above", "between"):
                    if by_element or not after:
                        moved = w(f"{element}[{after}]", f"multiply({moved}, {moved})")
                    else:
                        zero = w(f"{element}[]", "constant(0)")
                        how = w.reducer("maximum", element)
                        kept = after.rpartition(",")[0]
                        moved = w(
                            f"{element}[{kept}]",
                            f"reduce({moved}, {zero}), "
                            f"dimensions={{{after.count(',')}}}, to_apply={how}",
                        )
                types = "REDUCE" if not by_element else "ELTWISE"
                yield Case(flags, f"{element} {name} {where} {types}", w.text(moved, *ends))


# How an array of 64 by 64 is moved into one of the same shape; {p} is a scalar.
STEPS = {
    "reshape": "reshape({0})",
    "transpose": "transpose({0}), dimensions={{1,0}}",
    "broadcast": "broadcast({0}), dimensions={{0,1}}",
    "copy": "copy({0})",
    "pad": "pad({0}, {p}), padding=0_0x0_0",
    "reverse": "reverse({0}), dimensions={{0}}",
}


def trailing() -> Iterator[Case]:
    """Chains of data movement at the end of a fusion, some of which somebody else reads too."""
    shape = "f32[64,64]"
    dot = "dot({0}, {0}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
    starts = {
        "negate": (BY_ELEMENT, "negate({0})"),
        "copy": (BY_ELEMENT, "copy({0})"),
        "dot": (BY_ALL, dot),
        "individual dot": (BY_DEFAULT, dot),
        "reduce": (BY_REDUCE, "reduce({1}, {p}), dimensions={{2}}, to_apply={how}"),
    }
    chains = chain.from_iterable(product(STEPS, repeat=length) for length in (1, 2, 3))
    for steps, (start, (flags, text)) in product(chains, starts.items()):
        if len(steps) == 3 and (start != "negate" or "reverse" in steps):
            continue
        # With more steps, what is read twice makes the compiler crash behind the pass.
        for is_read_twice in (False, True)[: 2 if len(steps) == 1 else 1]:
            w = Writer()
            source, scalar, how = w.parameter(shape), w.parameter("f32[]"), w.reducer("add", "f32")
            cube = w.parameter("f32[64,64,4]")
            values = [w(shape, text.format(source, cube, p=scalar, how=how))]
            for step in steps:
                values.append(w(shape, STEPS[step].format(values[-1], p=scalar)))
            words = f"{start}, {', '.join(steps)}{', the one before read too' * is_read_twice}"
            yield Case(flags, words, w.text(*values[-1 - is_read_twice :]))


def starts_of_data() -> Iterator[Case]:
    """Constants and iotas above what begins a fusion."""
    for root in ("constant", "iota"):
        for element in TYPES:
            for size in ("", "4096", "64,64"):
                shape = f"{element}[{size}]"
                w = Writer()
                if root == "iota":
                    if not size:
                        continue
                    value = w(shape, "iota(), iota_dimension=0")
                else:
                    one = "true" if element == "pred" else "(1, 0)" if element in COMPLEX else "1"
                    value = w(f"{element}[]", f"constant({one})")
                    if size:
                        value = w(shape, f"broadcast({value}), dimensions={{}}")
                other = w.parameter(f"{element}[{size or '4096'}]")
                if not size:
                    value = w(f"{element}[4096]", f"broadcast({value}), dimensions={{}}")
                total = w(f"{element}[{size or '4096'}]", f"maximum({value}, {other})")
                yield Case(BY_ELEMENT, f"{root} {shape} below maximum", w.text(total))
    for element in ("f32", "s32", "bf16", "s8"):
        w = Writer()
        row = w(f"{element}[4]", "constant({1, 2, 3, 4})")
        wide = w(f"{element}[4,1024]", f"broadcast({row}), dimensions={{0}}")
        total = w(f"{element}[4,1024]", f"maximum({wide}, {w.parameter(f'{element}[4,1024]')})")
        yield Case(BY_ELEMENT, f"array constant of {element}", w.text(total))


# Reductions.


def reductions() -> Iterator[Case]:
    results = ("f64", "f32", "bf16", "f16", "s8", "s32")
    mixed = [pair for pair in product(TYPES, results) if pair[0] != pair[1]]
    pairs = [*zip(TYPES, TYPES, strict=True), *mixed]
    opcodes = ("add", "maximum", "minimum", "multiply", "and", "or", "subtract")
    for (source, result), opcode in product(pairs, opcodes):
        if source != result and opcode != "add" and (source, opcode) != ("bf16", "maximum"):
            continue
        w = Writer()
        how = w.reducer(opcode, result)
        start = w.parameter(f"{result}[]")
        array = w.parameter(f"{source}[64,64]")
        value = w(f"{result}[64]", f"reduce({array}, {start}), dimensions={{1}}, to_apply={how}")
        yield Case(BY_REDUCE, f"reduce of {source} to {result} by {opcode}", w.text(value))
        w = Writer()
        how = w.reducer(opcode, result)
        start = w.parameter(f"{result}[]")
        array = w.parameter(f"{source}[64,64]")
        value = w(
            f"{result}[32,64]",
            f"reduce-window({array}, {start}), window={{size=2x1 stride=2x1}}, to_apply={how}",
        )
        yield Case(BY_REDUCE, f"window of {source} to {result} by {opcode}", w.text(value))
    for opcode, order in product(("add", "maximum", "subtract"), ("q, p", "p, p", "q, q")):
        w = Writer()
        how = w.reducer(opcode, "f32", order)
        value = w(
            "f32[64]",
            f"reduce({w.parameter('f32[64,64]')}, {w.parameter('f32[]')}), "
            f"dimensions={{1}}, to_apply={how}",
        )
        yield Case(BY_REDUCE, f"reducer {opcode}({order})", w.text(value))
    bodies = {
        "add of a negated": "n = f32[] negate(q)\n  ROOT r = f32[] add(p, n)",
        "negated add": "a = f32[] add(p, q)\n  ROOT r = f32[] negate(a)",
        "add of a constant": "k = f32[] constant(1)\n  ROOT r = f32[] add(p, k)",
        "only the first": "n = f32[] negate(q)\n  ROOT r = f32[] copy(p)",
        "add beside dead code": "n = f32[] negate(q)\n  ROOT r = f32[] add(p, q)",
        "add of copies": "a = f32[] copy(p)\n  b = f32[] copy(q)\n  ROOT r = f32[] add(a, b)",
        "select": "c = pred[] compare(p, q), direction=GE\n  ROOT r = f32[] select(c, p, q)",
    }
    for words, body in bodies.items():
        w = Writer()
        how = w.computation(f"{{\n  p = f32[] parameter(0)\n  q = f32[] parameter(1)\n  {body}\n}}")
        value = w(
            "f32[64]",
            f"reduce({w.parameter('f32[64,64]')}, {w.parameter('f32[]')}), "
            f"dimensions={{1}}, to_apply={how}",
        )
        yield Case(BY_REDUCE, f"reducer {words}", w.text(value))
    for size, kept, dimensions in (
        ("4095", "", "0"), ("4096", "", "0"), ("64,64", "64", "0"), ("64,64", "", "0,1"),
        ("64,64", "", "1,0"), ("4096", "4096", ""), ("64,64", "64,64", ""), ("0,4096", "4096", "0"),
        ("1,4095", "4095", "0"), ("1,4096", "4096", "0"), ("64,1,64", "64,64", "1"),
        ("1,1,1,1,1,1,1,4096", "1,1,1,1,1,1,1", "7"),
        ("1,1,1,1,1,1,1,1,4096", "1,1,1,1,1,1,1,1", "8"),
        ("4096,1,1,1,1,1,1,1,1", "1,1,1,1,1,1,1,1", "0"), ("2,4096,0", "2,4096", "2"),
    ):  # fmt: skip
        for opcode in ("add", "maximum"):
            w = Writer()
            how = w.reducer(opcode, "f32")
            value = w(
                f"f32[{kept}]",
                f"reduce({w.parameter(f'f32[{size}]')}, {w.parameter('f32[]')}), "
                f"dimensions={{{dimensions}}}, to_apply={how}",
            )
            words = f"reduce of {size} over {{{dimensions}}} by {opcode}"
            yield Case(BY_REDUCE, words, w.text(value))
    for count in (2, 3):
        w = Writer()
        scalars = "".join(f"  p{i} = f32[] parameter({i})\n" for i in range(2 * count)) + "".join(
            f"  a{i} = f32[] add(p{i}, p{i + count})\n" for i in range(count)
        )
        shapes, sums = ", ".join(["f32[]"] * count), ", ".join(f"a{i}" for i in range(count))
        how = w.computation(f"{{\n{scalars}  ROOT t = ({shapes}) tuple({sums})\n}}")
        arrays = ", ".join(w.parameter("f32[64,64]") for _ in range(count))
        starts = ", ".join(w.parameter("f32[]") for _ in range(count))
        rows = ", ".join(["f32[64]"] * count)
        value = w(f"({rows})", f"reduce({arrays}, {starts}), dimensions={{1}}, to_apply={how}")
        first = w("f32[64]", f"get-tuple-element({value}), index=0")
        second = w("f32[64]", f"get-tuple-element({value}), index=1")
        yield Case(BY_REDUCE, f"reduce of {count} arrays", w.text(first, second))


def windows() -> Iterator[Case]:
    for words, size, kept, window in (
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
            w = Writer()
            how = w.reducer(opcode, "f32")
            value = w(
                f"f32[{kept}]",
                f"reduce-window({w.parameter(f'f32[{size}]')}, {w.parameter('f32[]')}), "
                f"window={{{window}}}, to_apply={how}",
            )
            yield Case(BY_REDUCE, f"window: {words} by {opcode}", w.text(value))
    for rank, count in product(range(3, 10), range(1, 7)):
        if count > rank:
            continue
        extents = [4] * count + [1] * (rank - count)
        extents[-1] *= 1024
        halves = [2] * count + [1] * (rank - count)
        halves[-1] = extents[-1] // (2 if count == rank else 1)
        window = "x".join(["2"] * count + ["1"] * (rank - count))
        w = Writer()
        how = w.reducer("add", "f32")
        source = w.parameter(f"f32[{','.join(map(str, extents))}]")
        value = w(
            f"f32[{','.join(map(str, halves))}]",
            f"reduce-window({source}, {w.parameter('f32[]')}), "
            f"window={{size={window} stride={window}}}, to_apply={how}",
        )
        yield Case(BY_REDUCE, f"rank {rank} with {count} windows", w.text(value))


# Dots and convolutions.


def dots() -> Iterator[Case]:
    wide = ("f32", "s32", "f64")
    same = [(each, each, result) for each in TYPES for result in dict.fromkeys((each, *wide))]
    narrow = ("s8", "u8", "s4", "u4")
    mixed = [
        (left, right, result)
        for left, right in product(narrow, repeat=2)
        for result in ("s32", "u32", "f32")
        if left != right
    ]
    odd = ["f32 bf16 f32", "bf16 f32 f32", "f16 f16 bf16", "f32 f32 bf16"]
    for left, right, result in (*same, *mixed, *(each.split() for each in odd)):
        yield expression(
                "dot", f"{result}[16,16]",
                "dot({0}, {1}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
                f"{left}[16,16]", f"{right}[16,16]", flags=BY_DEFAULT,
            )  # fmt: skip
    for m, k, n in product((0, 1, 2, 7, 8), repeat=3):
        yield expression(
            f"{m} {k} {n}", f"f32[{m},{n}]",
            "dot({0}, {1}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
            f"f32[{m},{k}]", f"f32[{k},{n}]", flags=BY_DEFAULT,
        )  # fmt: skip
    for left, right, result, how in (
        ("16,32", "32", "16", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
        ("32", "32,16", "16", "lhs_contracting_dims={0}, rhs_contracting_dims={0}"),
        ("32", "32", "", "lhs_contracting_dims={0}, rhs_contracting_dims={0}"),
        ("32,16", "32,16", "16,16", "lhs_contracting_dims={0}, rhs_contracting_dims={0}"),
        ("16,32", "16,32", "16,16", "lhs_contracting_dims={1}, rhs_contracting_dims={1}"),
        ("32,16", "16,32", "16,16", "lhs_contracting_dims={0}, rhs_contracting_dims={1}"),
        ("4,16,32", "4,32,16", "4,16,16", "B0, lhs_contracting_dims={2}, rhs_contracting_dims={1}"),
        ("4,16,32", "4,16,32", "4,16,16", "B0, lhs_contracting_dims={2}, rhs_contracting_dims={2}"),
        ("4,32,16", "4,32,16", "4,16,16", "B0, lhs_contracting_dims={1}, rhs_contracting_dims={1}"),
        ("4,16,32", "4,32", "4,16", "B0, lhs_contracting_dims={2}, rhs_contracting_dims={1}"),
        ("4,32", "4,32,16", "4,16", "B0, lhs_contracting_dims={1}, rhs_contracting_dims={1}"),
        ("4,32", "4,32", "4", "B0, lhs_contracting_dims={1}, rhs_contracting_dims={1}"),
        ("2,4,16,32", "2,4,32,16", "2,4,16,16",
         "B01, lhs_contracting_dims={3}, rhs_contracting_dims={2}"),
        ("2,4,16,32", "4,2,32,16", "2,4,16,16",
         "lhs_batch_dims={0,1}, rhs_batch_dims={1,0}, lhs_contracting_dims={3}, "
         "rhs_contracting_dims={2}"),
        ("2,4,16,32", "2,4,32,16", "4,2,16,16",
         "lhs_batch_dims={1,0}, rhs_batch_dims={1,0}, lhs_contracting_dims={3}, "
         "rhs_contracting_dims={2}"),
        ("16,4,32", "32,4,16", "4,16,16",
         "lhs_batch_dims={1}, rhs_batch_dims={1}, lhs_contracting_dims={2}, "
         "rhs_contracting_dims={0}"),
        ("4,16,32", "32,4,16", "4,16,16",
         "lhs_batch_dims={0}, rhs_batch_dims={1}, lhs_contracting_dims={2}, "
         "rhs_contracting_dims={0}"),
        ("16,4,8", "4,8,16", "16,16", "lhs_contracting_dims={1,2}, rhs_contracting_dims={0,1}"),
        ("16,4,8", "8,16", "16,4,16", "lhs_contracting_dims={2}, rhs_contracting_dims={0}"),
        ("16,8", "8,4,16", "16,4,16", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
        ("1,16,8", "8,16", "1,16,16", "lhs_contracting_dims={2}, rhs_contracting_dims={0}"),
        ("16,8", "16,8", "16,8,16,8", "lhs_contracting_dims={}, rhs_contracting_dims={}"),
        ("16", "16", "16,16", "lhs_contracting_dims={}, rhs_contracting_dims={}"),
        ("16,8", "", "16,8", "lhs_contracting_dims={}, rhs_contracting_dims={}"),
        ("4,16", "4,16", "4,16,16", "B0, lhs_contracting_dims={}, rhs_contracting_dims={}"),
        ("16,1", "1,16", "16,16", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
        ("4,2,7", "4,7,2", "4,2,2", "B0, lhs_contracting_dims={2}, rhs_contracting_dims={1}"),
        ("9,2,7", "9,7,2", "9,2,2", "B0, lhs_contracting_dims={2}, rhs_contracting_dims={1}"),
        ("4,2,8", "4,8,2", "4,2,2", "B0, lhs_contracting_dims={2}, rhs_contracting_dims={1}"),
        ("1,1,1,1,1,1,8,8", "1,1,1,1,1,1,8,8", "1,1,1,1,1,1,8,8",
         "B012345, lhs_contracting_dims={7}, rhs_contracting_dims={6}"),
        ("1,1,1,1,1,1,1,8,8", "1,1,1,1,1,1,1,8,8", "1,1,1,1,1,1,1,8,8",
         "B0123456, lhs_contracting_dims={8}, rhs_contracting_dims={7}"),
    ):  # fmt: skip

        def batch(match: re.Match[str]) -> str:
            numbers = ",".join(match[1])
            return f"lhs_batch_dims={{{numbers}}}, rhs_batch_dims={{{numbers}}}"

        for element in ("f32", "bf16"):
            w = Writer()
            operands = f"{w.parameter(f'{element}[{left}]')}, {w.parameter(f'{element}[{right}]')}"
            text = f"dot({operands}), {re.sub(r'B([0-9]+)', batch, how)}"
            words = f"{element} dot of [{left}] and [{right}], {how}"
            yield Case(BY_DEFAULT, words, w.text(w(f"{element}[{result}]", text)))


def convolutions(flags: Flags) -> Iterator[Case]:
    plain = "1,8,8,16", "3,3,16,32", "1,6,6,32", "window={size=3x3}, dim_labels=b01f_01io->b01f"
    same = [
        (each, each, result) for each in TYPES for result in dict.fromkeys((each, "f32", "s32"))
    ]
    for left, right, result in (*same, ("s8", "u8", "s32"), ("u8", "s8", "s32")):
        yield expression(
                "convolution", f"{result}[{plain[2]}]", "convolution({0}, {1}), "
                + plain[3].replace("{", "{{").replace("}", "}}"),
                f"{left}[{plain[0]}]", f"{right}[{plain[1]}]", flags=flags,
            )  # fmt: skip
    l2 = "dim_labels=b01f_01io->b01f"
    for words, image, kernel, result, how in (
        ("features 16 and 17", "1,8,8,16", "3,3,16,17", "1,6,6,17", f"window={{size=3x3}}, {l2}"),
        ("features 17 and 16", "1,8,8,17", "3,3,17,16", "1,6,6,16", f"window={{size=3x3}}, {l2}"),
        ("features 16 and 16", "1,8,8,16", "3,3,16,16", "1,6,6,16", f"window={{size=3x3}}, {l2}"),
        ("features 0", "1,8,8,0", "3,3,0,32", "1,6,6,32", f"window={{size=3x3}}, {l2}"),
        ("no batch", "0,8,8,32", "3,3,32,32", "0,6,6,32", f"window={{size=3x3}}, {l2}"),
        ("no results", "1,8,8,32", "3,3,32,0", "1,6,6,0", f"window={{size=3x3}}, {l2}"),
        ("same size", "1,8,8,32", "3,3,32,32", "1,8,8,32",
         f"window={{size=3x3 pad=1_1x1_1}}, {l2}"),
        ("larger result", "1,8,8,32", "3,3,32,32", "1,9,8,32",
         f"window={{size=3x3 pad=2_1x1_1}}, {l2}"),
        ("larger result in columns", "1,8,8,32", "3,3,32,32", "1,8,9,32",
         f"window={{size=3x3 pad=1_1x2_1}}, {l2}"),
        ("kernel as large", "1,8,8,32", "8,3,32,32", "1,1,8,32",
         f"window={{size=8x3 pad=0_0x1_1}}, {l2}"),
        ("kernel larger", "1,8,8,32", "9,3,32,32", "1,2,8,32",
         f"window={{size=9x3 pad=1_1x1_1}}, {l2}"),
        ("kernel larger in columns", "1,8,8,32", "3,9,32,32", "1,8,2,32",
         f"window={{size=3x9 pad=1_1x1_1}}, {l2}"),
        ("stride", "1,8,8,32", "3,3,32,32", "1,3,3,32", f"window={{size=3x3 stride=2x2}}, {l2}"),
        ("base dilation", "1,8,8,32", "3,3,32,32", "1,13,6,32",
         f"window={{size=3x3 lhs_dilate=2x1}}, {l2}"),
        ("base dilation and stride", "1,8,8,32", "3,3,32,32", "1,7,6,32",
         f"window={{size=3x3 stride=2x1 lhs_dilate=2x1}}, {l2}"),
        ("base dilation of columns and stride", "1,8,8,32", "3,3,32,32", "1,6,7,32",
         f"window={{size=3x3 stride=1x2 lhs_dilate=1x2}}, {l2}"),
        ("window dilation", "1,8,8,32", "3,3,32,32", "1,4,6,32",
         f"window={{size=3x3 rhs_dilate=2x1}}, {l2}"),
        ("reversal", "1,8,8,32", "3,3,32,32", "1,6,6,32",
         f"window={{size=3x3 rhs_reversal=1x0}}, {l2}"),
        ("reversal of both", "1,8,8,32", "3,3,32,32", "1,6,6,32",
         f"window={{size=3x3 rhs_reversal=1x1}}, {l2}"),
        ("feature groups", "1,8,8,32", "3,3,16,32", "1,6,6,32",
         f"window={{size=3x3}}, {l2}, feature_group_count=2"),
        ("by channel", "1,8,8,32", "3,3,1,32", "1,6,6,32",
         f"window={{size=3x3}}, {l2}, feature_group_count=32"),
        ("batch groups", "2,8,8,32", "3,3,32,32", "1,6,6,32",
         f"window={{size=3x3}}, {l2}, batch_group_count=2"),
        ("1x1", "1,8,8,32", "1,1,32,32", "1,8,8,32", f"window={{size=1x1}}, {l2}"),
        ("channels first", "1,32,8,8", "32,32,3,3", "1,32,6,6",
         "window={size=3x3}, dim_labels=bf01_oi01->bf01"),
        ("kernel oi", "1,8,8,32", "3,3,32,32", "1,6,6,32",
         "window={size=3x3}, dim_labels=b01f_01oi->b01f"),
        ("kernel io first", "1,8,8,32", "32,32,3,3", "1,6,6,32",
         "window={size=3x3}, dim_labels=b01f_io01->b01f"),
        ("kernel turned", "1,8,8,32", "3,3,32,32", "1,6,6,32",
         "window={size=3x3}, dim_labels=b01f_10io->b01f"),
        ("image turned", "1,8,8,32", "3,3,32,32", "1,6,6,32",
         "window={size=3x3}, dim_labels=b10f_01io->b01f"),
        ("result turned", "1,8,8,32", "3,3,32,32", "1,6,6,32",
         "window={size=3x3}, dim_labels=b01f_01io->b10f"),
        ("result with features first", "1,8,8,32", "3,3,32,32", "1,32,6,6",
         "window={size=3x3}, dim_labels=b01f_01io->bf01"),
        ("batch last", "8,8,1,32", "3,3,32,32", "6,6,1,32",
         "window={size=3x3}, dim_labels=01bf_01io->01bf"),
        ("no spatial dimension", "8,32", "32,32", "8,32", "dim_labels=bf_io->bf"),
        ("one", "1,8,32", "3,32,32", "1,6,32", "window={size=3}, dim_labels=b0f_0io->b0f"),
        ("one, window dilation", "1,8,32", "3,32,32", "1,4,32",
         "window={size=3 rhs_dilate=2}, dim_labels=b0f_0io->b0f"),
        ("one, features first", "1,32,8", "3,32,32", "1,6,32",
         "window={size=3}, dim_labels=bf0_0io->b0f"),
        ("three", "1,8,8,8,32", "3,3,3,32,32", "1,6,6,6,32",
         "window={size=3x3x3}, dim_labels=b012f_012io->b012f"),
        ("three, base dilation", "1,8,8,8,32", "3,3,3,32,32", "1,13,6,6,32",
         "window={size=3x3x3 lhs_dilate=2x1x1}, dim_labels=b012f_012io->b012f"),
        ("four", "1,4,4,4,4,32", "3,3,3,3,32,32", "1,2,2,2,2,32",
         "window={size=3x3x3x3}, dim_labels=b0123f_0123io->b0123f"),
    ):  # fmt: skip
        for element in ("f32", "f64", "s8", "f16"):
            w = Writer()
            operands = (
                f"{w.parameter(f'{element}[{image}]')}, {w.parameter(f'{element}[{kernel}]')}"
            )
            to = "s32" if element == "s8" else element
            value = w(f"{to}[{result}]", f"convolution({operands}), {how}")
            yield Case(flags, f"{element} convolution: {words}", w.text(value))


# Growth.


def limits() -> Iterator[Case]:
    """Chains and pairs of fusions beside the limit of instructions."""
    shape = "f32[4096]"
    for flags, start in ((BY_ELEMENT, ""), (BY_REDUCE, "reduce")):
        for length in (*range(94, 104), 199, 205):
            w = Writer()
            value = w.parameter(shape)
            for _ in range(length):
                value = w(shape, f"negate({value})")
            if start:
                how = w.reducer("add", "f32")
                value = w(
                    "f32[]",
                    f"reduce({value}, {w.parameter('f32[]')}), dimensions={{0}}, to_apply={how}",
                )
            yield Case(flags, f"chain of {length} {start}", w.text(value))
        for length in (30, 32, 33, 34, 48, 49, 50, 51, 99, 101):
            # Each operation reads one more array, which is a parameter of the fusion.
            w = Writer()
            value = w.parameter(shape)
            for _ in range(length):
                value = w(shape, f"add({value}, {w.parameter(shape)})")
            yield Case(BY_ELEMENT, f"chain of {length} with a parameter each", w.text(value))
    for length in range(90, 100):
        # The dot is begun first, and does not grow; the reduce grows down to it.
        w = Writer()
        how = w.reducer("add", "f32")
        operands = f"{w.parameter('f32[16,16,16]')}, {w.parameter('f32[]')}"
        value = w("f32[16,16]", f"reduce({operands}), dimensions={{2}}, to_apply={how}")
        for _ in range(length):
            value = w("f32[16,16]", f"transpose({value}), dimensions={{1,0}}")
        operands = f"{value}, {w.parameter('f32[16,16]')}"
        dot = f"dot({operands}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
        words = f"{length} transposes between a reduce and a dot"
        yield Case(BY_DEFAULT, words, w.text(w("f32[16,16]", dot)))
    for above, below in product((45, 46, 47, 48, 49, 50, 51), repeat=2):
        if not 94 <= above + below <= 101:
            continue
        w = Writer()
        # Both are begun before they meet: by a reduce each.
        value = w.parameter("f32[64,64,8]")
        how = w.reducer("add", "f32")
        for _ in range(above):
            value = w("f32[64,64,8]", f"negate({value})")
        zero = w.parameter("f32[]")
        value = w("f32[64,64]", f"reduce({value}, {zero}), dimensions={{2}}, to_apply={how}")
        for _ in range(below):
            value = w("f32[64,64]", f"negate({value})")
        value = w("f32[64]", f"reduce({value}, {zero}), dimensions={{1}}, to_apply={how}")
        yield Case(BY_REDUCE, f"reduces behind {above} and {below}", w.text(value))


def graphs(flags: Flags, count: int, length: int) -> Iterator[Case]:
    return (graph(flags, seed, length) for seed in range(count))


def graph(flags: Flags, seed: int, length: int) -> Case:  # noqa: C901  a branch an operation
    """One by chance: operations that are supported and some that are not, read by any number."""
    square, row = "f32[64,64]", "f32[64]"
    dice = random.Random(f"{flags} {seed}")
    w = Writer()
    squares = [w.parameter(square) for _ in range(2)]
    rows = [w.parameter(row)]
    scalars = [w.parameter("f32[]"), w("f32[]", "constant(0)"), w("f32[]", "constant(2)")]
    how = [w.reducer("add", "f32"), w.reducer("maximum", "f32"), w.reducer("multiply", "f32")]
    read: Counter[str] = Counter()

    def pick(values: list[str]) -> str:
        # Mostly the last ones: that makes chains. Often one that nothing reads yet.
        late = values[-4:]
        fresh = [each for each in late if not read[each]]
        chosen = dice.choice(fresh if fresh and dice.random() < 0.6 else late)
        read[chosen] += 1
        return chosen

    for _ in range(dice.randint(length // 2, length)):
        kind = dice.choice(
            "unary unary binary binary binary odd reshape transpose broadcast scalar copy pad "
            "reduce reduce dot slice concatenate rows constant convert fill window".split()
        )
        one = pick(squares)
        if kind == "unary":
            opcode = dice.choice(("negate", "exponential", "abs", "sine", "sqrt"))
            squares.append(w(square, f"{opcode}({one})"))
        elif kind == "binary":
            opcode = dice.choice(("add", "multiply", "maximum", "divide"))
            squares.append(w(square, f"{opcode}({one}, {pick(squares)})"))
        elif kind == "odd":
            squares.append(w(square, f"cbrt({one})"))
        elif kind == "reshape":
            flat = w("f32[4096]", f"reshape({one})")
            squares.append(w(square, f"reshape({flat})"))
        elif kind == "transpose":
            squares.append(w(square, f"transpose({one}), dimensions={{1,0}}"))
        elif kind == "broadcast":
            dimension = dice.choice("01")
            squares.append(w(square, f"broadcast({pick(rows)}), dimensions={{{dimension}}}"))
        elif kind == "scalar":
            squares.append(w(square, f"broadcast({dice.choice(scalars)}), dimensions={{}}"))
        elif kind == "copy":
            squares.append(w(square, f"copy({one})"))
        elif kind == "pad":
            pad = dice.choice(("0_0x0_0", "1_-1x0_0"))
            squares.append(w(square, f"pad({one}, {dice.choice(scalars)}), padding={pad}"))
        elif kind == "reduce":
            rows.append(
                w(
                    row,
                    f"reduce({one}, {dice.choice(scalars)}), "
                    f"dimensions={{{dice.choice('01')}}}, to_apply={dice.choice(how)}",
                )
            )
        elif kind == "window":
            half = w(
                "f32[32,64]",
                f"reduce-window({one}, {dice.choice(scalars)}), "
                f"window={{size=2x1 stride=2x1}}, to_apply={dice.choice(how)}",
            )
            wide = w("f32[32,2,64]", f"broadcast({half}), dimensions={{0,2}}")
            squares.append(w(square, f"reshape({wide})"))
        elif kind == "dot":
            squares.append(
                w(
                    square,
                    f"dot({one}, {pick(squares)}), lhs_contracting_dims={{1}}, "
                    f"rhs_contracting_dims={{{dice.choice('01')}}}",
                )
            )
        elif kind == "slice":
            squares.append(w(square, f"reverse({one}), dimensions={{0}}"))
        elif kind == "concatenate":
            tall = w("f32[128,64]", f"concatenate({one}, {pick(squares)}), dimensions={{0}}")
            squares.append(w(square, f"slice({tall}), slice={{[0:64],[0:64]}}"))
        elif kind == "rows":
            rows.append(w(row, f"add({pick(rows)}, {pick(rows)})"))
        elif kind == "constant":
            scalars.append(w("f32[]", f"constant({dice.randint(3, 99)})"))
        elif kind == "convert":
            narrow = w("bf16[64,64]", f"convert({one})")
            squares.append(w(square, f"convert({narrow})"))
        else:
            squares.append(w(square, f"iota(), iota_dimension={dice.choice('01')}"))
    roots = [each for each in (*squares, *rows) if not read[each]]
    roots += [each for each in (*squares, *rows) if read[each] and dice.random() < 0.05]
    return Case(flags, f"graph {seed}", w.text(*roots))


def control_flow(flags: Flags) -> Iterator[Case]:
    """Work in computations that are called."""
    body = (
        "{\n  p = f32[64,64] parameter(0)\n  e = f32[64,64] negate(p)\n  c = f32[64,64] cbrt(e)\n"
        "  ROOT r = f32[64,64] add(c, p)\n}"
    )
    w = Writer()
    inner = w.computation(body)
    value = w("f32[64,64]", f"call({w.parameter('f32[64,64]')}), to_apply={inner}")
    yield Case(flags, "call", w.text(w("f32[64,64]", f"negate({value})")))
    w = Writer()
    inner = w.computation(body)
    array = w.parameter("f32[64,64]")
    first = w("f32[64,64]", f"call({array}), to_apply={inner}")
    second = w("f32[64,64]", f"call({first}), to_apply={inner}")
    yield Case(flags, "two calls", w.text(second))
    w = Writer()
    one, two = w.computation(body), w.computation(body.replace("negate", "abs"))
    test, array = w.parameter("pred[]"), w.parameter("f32[64,64]")
    value = w(
        "f32[64,64]",
        f"conditional({test}, {array}, {array}), true_computation={one}, false_computation={two}",
    )
    yield Case(flags, "conditional", w.text(w("f32[64,64]", f"negate({value})")))
    w = Writer()
    pair = "(s32[], f32[64,64])"
    test_computation = w.computation(
        f"{{\n  t = {pair} parameter(0)\n  i = s32[] get-tuple-element(t), index=0\n"
        "  k = s32[] constant(9)\n  ROOT r = pred[] compare(i, k), direction=LT\n}"
    )
    loop = w.computation(
        f"{{\n  t = {pair} parameter(0)\n  i = s32[] get-tuple-element(t), index=0\n"
        "  p = f32[64,64] get-tuple-element(t), index=1\n  k = s32[] constant(1)\n"
        "  j = s32[] add(i, k)\n  e = f32[64,64] negate(p)\n  c = f32[64,64] sine(e)\n"
        f"  q = f32[64,64] multiply(c, p)\n  ROOT r = {pair} tuple(j, q)\n}}"
    )
    zero, array = w("s32[]", "constant(0)"), w.parameter("f32[64,64]")
    start = w(pair, f"tuple({zero}, {array})")
    done = w(pair, f"while({start}), condition={test_computation}, body={loop}")
    value = w("f32[64,64]", f"get-tuple-element({done}), index=1")
    yield Case(flags, "while", w.text(w("f32[64,64]", f"negate({value})")))
    w = Writer()
    scalar = w.computation(
        "{\n  p = f32[] parameter(0)\n  e = f32[] negate(p)\n  ROOT r = f32[] abs(e)\n}"
    )
    value = w(
        "f32[64,64]",
        f"map({w.parameter('f32[64,64]')}), dimensions={{0,1}}, to_apply={scalar}",
    )
    yield Case(flags, "map", w.text(w("f32[64,64]", f"negate({value})")))
    w = Writer()
    less = w.computation(
        "{\n  p = f32[] parameter(0)\n  q = f32[] parameter(1)\n  n = f32[] negate(p)\n"
        "  m = f32[] negate(q)\n  ROOT r = pred[] compare(n, m), direction=LT\n}"
    )
    value = w("f32[64,64]", f"sort({w.parameter('f32[64,64]')}), dimensions={{1}}, to_apply={less}")
    yield Case(flags, "sort", w.text(w("f32[64,64]", f"negate({value})")))


# Operations that are neither elementwise nor data movement.


def others(flags: Flags) -> Iterator[Case]:
    for element in ("f32", "s8", "bf16", "pred", "c64"):
        array, row, scalar = f"{element}[8,16]", f"{element}[16]", f"{element}[]"
        for name, (before, _, _) in MOVES.items():
            w = Writer()
            moved = move(w, name, element, w.parameter(f"{element}[{before}]"))
            yield Case(flags, f"{element} {name} alone", w.text(moved))
        yield expression(
            element, f"{element}[1,16]",
            "dynamic-slice({0}, {1}, {1}), dynamic_slice_sizes={{1,16}}", array, "s32[]",
            flags=flags,
        )  # fmt: skip
        yield expression(
            element, array, "dynamic-update-slice({0}, {1}, {2}, {2})", array,
            f"{element}[1,16]", "s32[]", flags=flags,
        )  # fmt: skip
        yield expression(
            element, f"{element}[4,16]",
            "gather({0}, {1}), offset_dims={{1}}, collapsed_slice_dims={{0}}, "
            "start_index_map={{0}}, index_vector_dim=1, slice_sizes={{1,16}}",
            array, "s32[4]", flags=flags,
        )  # fmt: skip
        for opcode in ("add", "maximum", "or", "xor"):
            w = Writer()
            how = w.reducer(opcode, element)
            operands = f"{w.parameter(array)}, {w.parameter(scalar)}"
            value = w(f"{element}[8]", f"reduce({operands}), dimensions={{1}}, to_apply={how}")
            yield Case(flags, f"{element} reduce by {opcode}", w.text(value))
        w = Writer()
        how = w.reducer("add", element)
        operands = (
            f"{w.parameter(array)}, {w.parameter('s32[4]')}, {w.parameter(f'{element}[4,16]')}"
        )
        value = w(
            array,
            f"scatter({operands}), update_window_dims={{1}}, inserted_window_dims={{0}}, "
            f"scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply={how}",
        )
        yield Case(flags, f"{element} scatter", w.text(value))
        w = Writer()
        how = w.reducer("add", element)
        value = w(
            f"{element}[4,16]",
            f"reduce-window({w.parameter(array)}, {w.parameter(scalar)}), "
            f"window={{size=2x1 stride=2x1}}, to_apply={how}",
        )
        yield Case(flags, f"{element} reduce-window", w.text(value))
        w = Writer()
        how = w.reducer("add", element)
        kind = w.computation(
            f"{{\n  p = {scalar} parameter(0)\n  q = {scalar} parameter(1)\n"
            "  ROOT r = pred[] compare(p, q), direction=GE\n}"
        )
        value = w(
            array,
            f"select-and-scatter({w.parameter(array)}, {w.parameter(f'{element}[4,16]')}, "
            f"{w.parameter(scalar)}), window={{size=2x1 stride=2x1}}, select={kind}, "
            f"scatter={how}",
        )
        yield Case(flags, f"{element} select-and-scatter", w.text(value))
        yield expression(
            element, array, "iota(), iota_dimension=1", flags=flags
        )  # fmt: skip
        yield expression(element, array, "broadcast({0}), dimensions={{1}}", row, flags=flags)
        yield expression(
            element, f"{element}[8,8]",
            "dot({0}, {1}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
            array, f"{element}[16,8]", flags=flags,
        )  # fmt: skip
    square = "f32[4,4]"
    yield expression("cholesky", square, "cholesky({0}), lower=true", square, flags=flags)
    yield expression(
        "triangular-solve", square,
        "triangular-solve({0}, {1}), left_side=true, lower=true, transpose_a=NO_TRANSPOSE",
        square, square, flags=flags,
    )  # fmt: skip
    yield expression(
        "fft", "c64[16]", "fft({0}), fft_type=FFT, fft_length={{16}}", "c64[16]", flags=flags
    )
    yield expression(
        "rng", square, "rng({0}, {1}), distribution=rng_uniform", "f32[]", "f32[]", flags=flags
    )
    yield expression(
        "stochastic-convert", "s8[8]", "stochastic-convert({0}, {1})", "f32[8]", "u32[8]",
        flags=flags,
    )  # fmt: skip
    w = Writer()
    pair = w(
        "(u64[2], u32[8])", f"rng-bit-generator({w.parameter('u64[2]')}), algorithm=rng_default"
    )
    yield Case(
        flags, "rng-bit-generator", w.text(w("u32[8]", f"get-tuple-element({pair}), index=1"))
    )


def copies() -> Iterator[Case]:
    """Layouts that differ: by hand, and by what the assignment of layouts makes of them."""
    for element, layouts in product(
        (*TYPES, "f8e4m3b11fnuz", "f8e5m2fnuz", "f8e4m3", "f8e3m4", "s2", "u2", "f4e2m1fn"),
        (("{1,0}", "{0,1}"), ("{0,1}", "{1,0}"), ("{0,1}", "{0,1}")),
    ):
        w = Writer()
        value = w.parameter(f"{element}[8,16]{layouts[0]}")
        w2 = w(f"{element}[8,16]{layouts[1]}", f"copy({value})")
        entry = f"{{({element}[8,16]{layouts[0]})->{element}[8,16]{layouts[1]}}}"
        text = w.text(w2).replace("NAME", f"NAME, entry_computation_layout={entry}")
        for flags in (WRAPPED, WRAPPED_LAID_OUT):
            yield Case(flags, f"{element} copy from {layouts[0]} to {layouts[1]}", text)
    for opcode, layout in product(("transpose", "reshape", "add", "reverse"), ("{1,0}", "{0,1}")):
        w = Writer()
        value = w.parameter(f"f32[8,8]{layout}")
        how = {
            "transpose": f"transpose({value}), dimensions={{1,0}}",
            "reshape": f"reshape({value})",
            "add": f"add({value}, {value})",
            "reverse": f"reverse({value}), dimensions={{0}}",
        }[opcode]
        entry = f"{{(f32[8,8]{layout})->f32[8,8]{{1,0}}}}"
        text = w.text(w("f32[8,8]", how)).replace("NAME", f"NAME, entry_computation_layout={entry}")
        yield Case(WRAPPED_LAID_OUT, f"{opcode} of {layout}", text)


# Siblings.


def siblings() -> Iterator[Case]:
    yield from siblings_by_shape()
    yield from siblings_by_operands()
    yield from siblings_in_place()
    yield from siblings_by_count()
    yield from siblings_by_opcode()


def siblings_by_shape() -> Iterator[Case]:
    shapes = ("f32[64,64]", "f32[64,64]", "f32[4096]", "bf16[64,64]", "f32[]", "f32[1,1]")
    for one, other in product(("negate", "abs", "copy", "cbrt"), repeat=2):
        for flags in (SIBLINGS, FUSED_SIBLINGS):
            w = Writer()
            source = w.parameter("f32[64,64]")
            first = w("f32[64,64]", f"{one}({source})")
            second = w("f32[64,64]", f"{other}({source})")
            yield Case(flags, f"{one} and {other} of one", w.text(first, second))
    for size in ("", "1", "1,1", "0", "1024", "64,64"):
        w = Writer()
        source = w.parameter(f"f32[{size}]")
        values = [w(f"f32[{size}]", f"{each}({source})") for each in ("negate", "abs", "sqrt")]
        yield Case(SIBLINGS, f"three readers of f32[{size}]", w.text(*values))
    for shape in shapes:
        w = Writer()
        source = w.parameter("f32[64,64]")
        first = w("f32[64,64]", f"negate({source})")
        text = {
            "f32[64,64]": "abs({0})", "f32[4096]": "reshape({0})", "bf16[64,64]": "convert({0})",
            "f32[]": "slice({0}), slice={{[0:1],[0:1]}}",
            "f32[1,1]": "slice({0}), slice={{[0:1],[0:1]}}",
        }[shape].format(source)  # fmt: skip
        second = w("f32[1,1]" if shape == "f32[]" else shape, text)
        yield Case(SIBLINGS, f"negate and {shape} {text}", w.text(first, second))
    for shape, text in (
        ("s32[64,64]", "convert({0})"),
        ("pred[64,64]", "is-finite({0})"),
        ("f32[64,64]", "transpose({0}), dimensions={{1,0}}"),
        ("c64[64,64]", "complex({0}, {0})"),
    ):
        w = Writer()
        source = w.parameter("f32[64,64]")
        first = w("f32[64,64]", f"negate({source})")
        second = w(shape, text.format(source))
        yield Case(SIBLINGS, f"negate and {shape} {text}", w.text(first, second))


def siblings_by_operands() -> Iterator[Case]:
    for pair in product((2, 3, 18, 19, 20, 21), (2, 19, 20)):
        # Fusions of so many operands: sums, in one fusion each.
        for shared in (1, 2):
            w = Writer()
            common = [w.parameter("f32[64]") for _ in range(shared)]
            ends = []
            for number in pair:
                value = common[0]
                own = [w.parameter("f32[64]") for _ in range(number - shared)]
                for each in (*common[1:], *own):
                    value = w("f32[64]", f"add({value}, {each})")
                ends.append(value)
            words = f"{pair[0]} and {pair[1]} operands, {shared} of them shared"
            yield Case(FUSED_SIBLINGS, words, w.text(*ends))
    w = Writer()
    source = w.parameter("f32[64]")
    first = w("f32[64]", f"exponential({source})")
    second = w("f32[64]", f"cbrt({first})")
    third = w("f32[64]", f"add({source}, {second})")
    for flags in (SIBLINGS, FUSED_SIBLINGS):
        yield Case(flags, "siblings that depend", w.text(first, second, third))


def siblings_in_place() -> Iterator[Case]:
    for same in (True, False):
        w = Writer()
        buffer, other = w.parameter("f32[64]"), w.parameter("f32[64]")
        index = w.parameter("s32[]")
        update = w.parameter("f32[8]")
        first = w("f32[64]", f"dynamic-update-slice({buffer}, {update}, {index})")
        into = buffer if same else other
        second = w("f32[64]", f"dynamic-update-slice({into}, {update}, {index})")
        yield Case(SIBLINGS, f"updates of {'one' if same else 'two'}", w.text(first, second))
    w = Writer()
    buffer, index, update = w.parameter("f32[64]"), w.parameter("s32[]"), w.parameter("f32[8]")
    first = w("f32[64]", f"dynamic-update-slice({buffer}, {update}, {index})")
    second = w("f32[64]", f"negate({buffer})")
    yield Case(SIBLINGS, "an update and a reader", w.text(first, second))


def siblings_by_count() -> Iterator[Case]:
    for count in (2, 5, 127, 128, 129, 130, 257):
        for alternate in (False, True):
            w = Writer()
            source = w.parameter("f32[64]")
            values = []
            for number in range(count):
                # Readers of two shapes in turn: only every other one is a sibling.
                if alternate and number % 2:
                    values.append(w("f32[64,2]", f"broadcast({source}), dimensions={{0}}"))
                else:
                    values.append(w("f32[64]", f"add({source}, {w.parameter('f32[64]')})"))
            words = f"{count} readers{', every other one alike' if alternate else ''}"
            yield Case(SIBLINGS, words, w.text(*values))
    for scalar in ("constant(2)", "parameter"):
        w = Writer()
        value = w.parameter("f32[]") if scalar == "parameter" else w("f32[]", scalar)
        first = w("f32[64]", f"broadcast({value}), dimensions={{}}")
        second = w("f32[64]", f"broadcast({value}), dimensions={{}}")
        yield Case(SIBLINGS, f"broadcasts of a scalar {scalar}", w.text(first, second))
    for constant in (
        "f32[4] constant({1,2,3,4})",
        "f32[1] constant({1})",
        "f32[1,1] constant({{1}})",
    ):
        w = Writer()
        shape, _, text = constant.partition(" ")
        value = w(shape, text)
        first = w(shape, f"negate({value})")
        second = w(shape, f"abs({value})")
        yield Case(SIBLINGS, f"readers of {constant}", w.text(first, second))


def siblings_by_opcode() -> Iterator[Case]:
    w = Writer()
    source = w.parameter("f32[16,16]")
    how = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    first = w("f32[16,16]", f"dot({source}, {source}), {how}")
    second = w("f32[16,16]", f"negate({source})")
    third = w("f32[16,16]", f"abs({source})")
    yield Case(SIBLINGS, "dot and readers", w.text(first, second, third))
    yield Case(FUSED_SIBLINGS, "dot and fused readers", w.text(third, first, second))
    for opcode in ("negate", "concatenate", "reduce", "sort", "copy", "rng", "iota", "dot"):
        w = Writer()
        source = w.parameter("f32[16]")
        if opcode == "concatenate":
            first = w("f32[32]", f"concatenate({source}, {source}), dimensions={{0}}")
            second = w("f32[32]", f"pad({source}, {w.parameter('f32[]')}), padding=0_16")
        elif opcode == "reduce":
            how = w.reducer("add", "f32")
            zero = w.parameter("f32[]")
            first = w("f32[]", f"reduce({source}, {zero}), dimensions={{0}}, to_apply={how}")
            how = w.reducer("maximum", "f32")
            second = w("f32[]", f"reduce({source}, {zero}), dimensions={{0}}, to_apply={how}")
        elif opcode == "sort":
            less = w.computation(
                "{\n  p = f32[] parameter(0)\n  q = f32[] parameter(1)\n"
                "  ROOT r = pred[] compare(p, q), direction=LT\n}"
            )
            first = w("f32[16]", f"sort({source}), dimensions={{0}}, to_apply={less}")
            second = w("f32[16]", f"negate({source})")
        elif opcode == "dot":
            how = "lhs_contracting_dims={0}, rhs_contracting_dims={0}"
            first = w("f32[]", f"dot({source}, {source}), {how}")
            add = w.reducer("add", "f32")
            zero = w.parameter("f32[]")
            second = w("f32[]", f"reduce({source}, {zero}), dimensions={{0}}, to_apply={add}")
        else:
            first = w("f32[16]", f"{opcode if opcode in ('copy', 'negate') else 'abs'}({source})")
            second = w("f32[16]", f"negate({source})")
        for flags in (SIBLINGS, FUSED_SIBLINGS):
            yield Case(flags, f"{opcode} and a reader", w.text(first, second))
            yield Case(flags, f"a reader and {opcode}", w.text(second, first))


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


def compare(case: Case, compiler: Compiler, module: DumpedModule | None) -> str | None:
    """What differs, empty where nothing does, None where the compiler did not come to the pass."""
    stages = [] if module is None else [s for s in module.stages if s.name.counter is not None]
    if module is None or not stages:
        return None
    made = next((i for i, s in enumerate(stages) if s.name.after == case.flags.pass_name), None)
    if made is None and module.final is None:
        return None
    try:
        before = module.read(stages[-1 if made is None else made - 1])
        after = before if made is None else module.read(stages[made])
        plan = replay(case.flags.pass_name, before, case.flags.context, compiler)
    except UnusableInput as error:
        return f"not replayed: {error}"
    found = find_divergence(plan.module, after)
    if found is None:
        return ""
    return f"{found.what} in {found.computation}: {found.ours} here, {found.theirs} in the compiler"


def hold(python: str, pass_name: str) -> int:
    """Prints how the cases of a pass came out; returns how many differ."""
    version = version_of(python)
    compiler = compiler_of(version)
    counts: Counter[str] = Counter()
    ordered = sorted(cases(pass_name), key=lambda case: str(case.flags))
    for flags, group in groupby(ordered, key=lambda case: case.flags):
        same = [*group]
        texts = [case.text.replace("NAME", f"case_{i}", 1) for i, case in enumerate(same)]
        with TemporaryDirectory() as scratch:
            problems = compile_all(python, flags.text, texts, Path(scratch))
            modules = {each.name: each for each in open_dump(Path(scratch) / "dump").modules}
            for index, (case, problem) in enumerate(zip(same, problems, strict=True)):
                result = compare(case, compiler, modules.get(f"case_{index}"))
                if result is None:
                    counts["not compiled"] += 1
                    counts[f"  {' '.join(problem.split())[:60]}"] += 1
                elif result:
                    counts["differ"] += 1
                    print(f"{version} {pass_name}: {case.words}: {result}", flush=True)
                else:
                    counts["identical"] += 1
    total = counts["identical"] + counts["differ"]
    print(
        f"{version} {pass_name}: {total} cases, {counts['identical']} identical, "
        f"{counts['differ']} differ ({counts['not compiled']} more were not compiled)",
        flush=True,
    )
    return counts["differ"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--python", action="append", required=True, help="a Python that has jax")
    parser.add_argument("--only", choices=PASSES, help="the pass that is compared")
    options = parser.parse_args()
    passes = [options.only] if options.only else PASSES
    differ = [hold(*each) for each in product(options.python, passes)]
    sys.exit(any(differ))


if __name__ == "__main__":
    main()
