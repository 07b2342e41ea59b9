"""How fast HLO text is read, beside the compiler's own parser, as ratios within one run.

    python benchmarks/parse.py DUMP_DIRECTORY [--rounds N]

Needs a Python with jaxlib. DUMP_DIRECTORY holds the stages of one module. Both parsers read the
same texts in turn, round after round; figures are processor time, the least of all rounds, so that
other work on the machine counts little. Prints a Markdown table.
"""

import argparse
import os
import platform
import subprocess
import sys
from pathlib import Path

from jaxlib import _hlo

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from timing import least  # noqa: E402

from fusionscope.hlo import Module, ParseTable, parse, read  # noqa: E402

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


def stages(dump: Path) -> list[str]:
    """The texts of all stages, in their order."""
    texts = (path.read_text(errors="replace") for path in sorted(dump.glob("*.txt")))
    return [text for text in texts if text.startswith("HloModule")]


def read_all(texts: list[str]) -> list[Module]:
    table = ParseTable()
    return [read(text, table) for text in texts]


def read_and_check_all(texts: list[str]) -> None:
    for module in read_all(texts):
        module.check()


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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("dump", type=Path, metavar="DUMP_DIRECTORY")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()

    texts = stages(options.dump)
    largest = max(texts, key=len)
    oracle = _hlo.hlo_module_from_text
    parse(chain(10))  # loads the grammar

    one = least(options.rounds, oracle=(oracle, largest), parse=(parse, largest))
    whole = least(
        max(1, options.rounds // 3),
        oracle=(lambda all_of: [oracle(text) and None for text in all_of], texts),
        read=(read_all, texts),
        check=(read_and_check_all, texts),
    )
    chains = {length: chain(length) for length in LENGTHS}
    lengths = least(
        options.rounds, **{str(length): (parse, text) for length, text in chains.items()}
    )

    size = f"{len(largest) / 1e6:.1f} MB, {largest.count(chr(10)):,} lines"
    total = f"{len(texts)} stages, {sum(map(len, texts)) / 1e6:.0f} MB"
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {options.rounds} rounds\n")
    print("| what | fusionscope | XLA | times as fast |\n|---|--:|--:|--:|")
    for what, ours, theirs in (
        (f"the largest stage, {size}", one["parse"], one["oracle"]),
        (f"all of {total}: `read`", whole["read"], whole["oracle"]),
        ("the same, and `Module.check`", whole["check"], whole["oracle"]),
    ):
        print(f"| {what} | {ours:.3f} s | {theirs:.3f} s | {theirs / ours:.1f} |")
    print("\n| chain of | µs for each instruction |\n|--:|--:|")
    for length in LENGTHS:
        print(f"| {length:,} | {lengths[str(length)] / length * 1e6:.1f} |")
    print(f"\nAll stages read and checked: {peak_of_reading(options.dump) / 1e6:.0f} MB at most.")


if __name__ == "__main__":
    main()
