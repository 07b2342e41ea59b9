"""How long ``diff`` takes, as ratios within one run.

    python benchmarks/diff.py [--rounds N] [--layers N]...

Needs a Python with jax. Compiles a transformer of 9, 17 and 34 layers for CPU, with and without the
library rewriter, and holds the diff of both final modules against the compiler's parser reading
them, and its time for an instruction against that of the smaller ones. Figures are processor time,
the least of all rounds. Prints a Markdown table.
"""

import argparse
import gc
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from jaxlib import _hlo

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "benchmarks"))

from layers import SIZES_OF_DIFF  # noqa: E402
from timing import least  # noqa: E402

from fusionscope.compare.difference import compare  # noqa: E402
from fusionscope.history.changes import find_edits, find_fusion_changes  # noqa: E402
from fusionscope.history.matching import Matching, match  # noqa: E402
from fusionscope.hlo import Module, parse  # noqa: E402

WITHOUT = "--flag=--xla_disable_hlo_passes=dot-library-rewriter"


def compiled(layers: int, directory: Path, *options: str) -> Path:
    """The final module of a fresh compile."""
    program = f"{ROOT / 'benchmarks' / 'layers.py'}:{layers}"
    command = [sys.executable, str(ROOT / "samples" / "compile.py"), program, "cpu"]
    subprocess.run([*command, str(directory), *options], check=True, capture_output=True)
    (final,) = directory.glob("*jit_step.cpu_after_optimizations.txt")
    return final


def parse_both(texts: tuple[str, str]) -> None:
    for text in texts:
        _hlo.hlo_module_from_text(text)


def find_all(modules: tuple[Module, Module]) -> Matching:
    matching = match(*modules)
    find_edits(matching)
    find_fusion_changes(matching, "cpu")
    return matching


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--layers", type=int, action="append", help="default: 9, 17 and 34")
    options = parser.parse_args()
    gc.disable()  # as the commands do
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {options.rounds} rounds\n")
    print("| instructions | matched | diff | XLA's parser | ratio | matching alone | µs each |")
    print("|--:|--:|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        for layers in options.layers or SIZES_OF_DIFF:
            files = (
                compiled(layers, Path(folder) / f"{layers}"),
                compiled(layers, Path(folder) / f"{layers}-without", WITHOUT),
            )
            texts = files[0].read_text(), files[1].read_text()
            modules = parse(texts[0]), parse(texts[1])
            taken = least(
                options.rounds,
                oracle=(parse_both, texts),
                diff=(lambda files: compare(*files), files),
                match=(find_all, modules),
            )
            counts = [module.instruction_count for module in modules]
            matched = 2 * len(find_all(modules).after) / sum(counts)
            print(
                f"| {counts[0]:,} and {counts[1]:,} | {100 * matched:.0f}% | {taken['diff']:.2f} s "
                f"| {taken['oracle']:.3f} s | {taken['diff'] / taken['oracle']:.1f} "
                f"| {taken['match']:.2f} s | {1e6 * taken['match'] / sum(counts):.0f} |"
            )


if __name__ == "__main__":
    main()
