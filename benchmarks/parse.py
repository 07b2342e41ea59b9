"""How fast HLO text is read, beside the compiler's own parser, as ratios within one run.

    python benchmarks/parse.py DUMP_DIRECTORY... [--whole DUMP_DIRECTORY...] [--rounds N]

Needs a Python with jaxlib. Of each dump, three stages are read: the first, the last one without
fusions, and the final module. Of each dump after ``--whole``, all stages are read with one table.

Both parsers read the same texts in turn, round after round; figures are processor time, the least
of all rounds, so that other work on the machine counts little. Caches of texts are emptied before
each reading; forms (see docs/hlo.md) are kept, as between runs. Prints Markdown tables.

The compiler's parser does everything at once. Of fusionscope, three times are given: *opened*, when
every line has been read and checked by itself (``read``); *checked*, when lines have also been
checked against each other (``parse``; for whole dumps ``Module.check``); and *all values*, when the
shape, operands, called computations and attributes of every instruction have become data, too.
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxlib import _hlo

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from timing import least  # noqa: E402

from fusionscope.hlo import Module, ParseTable, parse, read  # noqa: E402
from fusionscope.hlo.attributes import read_attributes  # noqa: E402

READ_ALL = """
import sys
from fusionscope.dump import open_dump
dump = open_dump(sys.argv[1])
modules = [module.read(stage) for module in dump.modules for stage in module.stages]
for module in modules:
    module.check()
with open("/proc/self/status") as status:
    print(*(line.split()[1] for line in status if line.startswith("VmHWM:")))
"""
LENGTHS = (1_000, 10_000, 100_000, 200_000)  # instructions
HOW = ("opened", "checked", "all values")


def stages(dump: Path) -> dict[str, str]:
    """The texts of all stages by the names of their files, in their order."""
    texts = {path.name: path.read_text(errors="replace") for path in sorted(dump.glob("*.txt"))}
    return {name: text for name, text in texts.items() if text.startswith("HloModule")}


def three_stages(dump: Path) -> list[str]:
    """The texts of the first stage of the largest module, of the last one without fusions, and of
    the final module.
    """
    by_module: dict[str, list[tuple[str, str]]] = {}
    for name, text in stages(dump).items():
        by_module.setdefault(name.partition(".")[0], []).append((name, text))
    own = max(by_module.values(), key=lambda each: sum(len(text) for _, text in each))
    passes = [text for name, text in own if name.split(".")[2].isdecimal()]
    final = next(text for name, text in own if name.endswith("after_optimizations.txt"))
    unfused = next((text for text in reversed(passes) if " fusion(" not in text), passes[0])
    return [passes[0], unfused, final]


def forget(_: object = None) -> None:
    """Empty the caches of texts, but not that of forms, which are kept between runs."""
    for name, module in list(sys.modules.items()):
        if name.startswith("fusionscope.hlo") and name != "fusionscope.hlo.forms":
            for value in vars(module).values():
                if hasattr(value, "cache_parameters") and value.cache_parameters()["maxsize"]:
                    value.cache_clear()


def walk(module: Module) -> Module:
    """Make everything that the text says into data."""
    for each in module.walk():
        _ = each.name, each.opcode, each.shape, each.operands, each.called, each.is_root
        read_attributes(each.statement.attributes)
    return module


def read_all(texts: list[str]) -> list[Module]:
    forget()
    table = ParseTable()
    return [read(text, table) for text in texts]


def check_all(texts: list[str]) -> list[Module]:
    modules = read_all(texts)
    for module in modules:
        module.check()
    return modules


def walk_all(texts: list[str]) -> None:
    forget()
    table, last = ParseTable(), None
    for text in texts:
        module = read(text, table)
        if module is not last:  # equal stages are one module
            module.check()
            walk(module)
        last = module


def chain(length: int) -> str:
    """A module of one chain of instructions."""
    lines = [
        f"  %x.{n} = f32[8]{{0}} negate(%x.{n - 1}), "
        f'metadata={{op_name="jit(f)/neg" stack_frame_id={n % 100}}}'
        for n in range(1, length)
    ]
    head = "HloModule m\n\nENTRY %e (x.0: f32[8]) -> f32[8] {\n  %x.0 = f32[8]{0} parameter(0)\n"
    return f"{head}{chr(10).join(lines)}\n}}\n"


def peak_of_reading(dump: Path) -> int:
    """Bytes that a fresh process holds at most with all stages of the dump read and checked."""
    command = [sys.executable, "-c", READ_ALL, str(dump.resolve())]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return int(done.stdout) * 1024


def name_of(dump: Path) -> str:
    return f"{dump.resolve().parent.name}/{dump.resolve().name}"


def ratios(times: dict[str, float]) -> list[float]:
    """How many times as fast as the compiler's parser, opened, checked and with all values."""
    return [times["compiler"] / times[how] for how in HOW]


def print_stages(dumps: list[Path], rounds: int) -> None:
    oracle = _hlo.hlo_module_from_text
    works: tuple[Callable[[str], Any], ...] = (
        lambda text: read(text, ParseTable()),
        parse,
        lambda text: walk(parse(text)),
    )
    print(f"| dump | lines | first: {', '.join(HOW)} | lines | without fusions | lines | final |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    found: list[list[float]] = []
    for dump in dumps:
        cells = []
        for text in three_stages(dump):
            turns: dict[str, tuple[Callable[..., Any], Any]] = {"compiler": (oracle, text)}
            for how, work in zip(HOW, works, strict=True):
                turns |= {f"before {how}": (forget, None), how: (work, text)}
            found.append(ratios(least(rounds, **turns)))
            shown = ", ".join(f"{ratio:.2f}" for ratio in found[-1])
            cells.append(f"{text.count(chr(10)):,} | {shown}")
        print(f"| {name_of(dump)} | {' | '.join(cells)} |", flush=True)
    print(f"\n| {len(found)} stages | least | median | most |\n|---|--:|--:|--:|")
    for how, each in zip(HOW, zip(*found, strict=True), strict=True):
        print(f"| {how} | {min(each):.2f} | {statistics.median(each):.2f} | {max(each):.2f} |")


def print_dumps(dumps: list[Path], rounds: int) -> None:
    def compiler(texts: list[str]) -> None:
        for text in texts:
            _hlo.hlo_module_from_text(text)

    print(f"\n| dump | stages | MB | XLA | {' | '.join(HOW)} | MB at most, checked |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    for dump in dumps:
        texts = list(stages(dump).values())
        works = zip(HOW, ((read_all, texts), (check_all, texts), (walk_all, texts)), strict=True)
        times = least(rounds, compiler=(compiler, texts), **dict(works))
        print(
            f"| {name_of(dump)} | {len(texts)} | {sum(map(len, texts)) / 1e6:.0f} "
            f"| {times['compiler']:.2f} s | {' | '.join(f'{r:.1f}' for r in ratios(times))} "
            f"| {peak_of_reading(dump) / 1e6:.0f} |",
            flush=True,
        )


def print_lengths(rounds: int) -> None:
    works: dict[str, tuple[Callable[..., Any], Any]] = {
        str(length): (parse, chain(length)) for length in LENGTHS
    }
    times = least(rounds, **works)
    print("\n| chain of | µs for each instruction |\n|--:|--:|")
    for length in LENGTHS:
        print(f"| {length:,} | {times[str(length)] / length * 1e6:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("dumps", type=Path, nargs="+", metavar="DUMP_DIRECTORY")
    parser.add_argument("--whole", type=Path, nargs="+", default=[], metavar="DUMP_DIRECTORY")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    for text in map(three_stages, [*options.dumps, *options.whole]):
        for each in text:
            parse(each)  # reads the forms
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {options.rounds} rounds\n")
    print_stages(options.dumps, options.rounds)
    if options.whole:
        print_dumps(options.whole, max(2, options.rounds // 3))
    print_lengths(options.rounds)


if __name__ == "__main__":
    main()
