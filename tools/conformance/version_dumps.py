"""Makes the dumps of a version without rules, and the names of the stages of all versions.

python -m conformance version_dumps dumps --python PATH --version 0.7     (jax 0.7.2, CUDA plugin)
python -m conformance version_dumps stages --dumps DIR      (DIR/VERSION/TARGET/PROGRAM)
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

from conformance.findings import ROOT, Finding, note
from conformance.loading import load

VERSIONS = ROOT / "tests" / "versions"
samples = load(ROOT / "samples" / "make.py")
samples.LARGE = 1024  # bytes; small dumps are enough here

BATCHES = (
    samples.Batch("cpu-jaxlib-0.4.38", "0.4.38", "cpu", ("concatenate",), ("concatenate",)),
    samples.Batch("h100-jaxlib-0.4.38", "0.4.38", "h100", ("dense",)),
    samples.Batch("cpu-jaxlib-0.5.3", "0.5.3", "cpu", ("reductions",), ("reductions",)),
    samples.Batch("h100-jaxlib-0.5.3", "0.5.3", "h100", ("updates",)),
    samples.Batch("cpu-jaxlib-0.6", "0.6", "cpu", ("softmax",), ("softmax",)),
    samples.Batch("h100-jaxlib-0.7", "0.7", "h100", ("dense",)),
    samples.Batch("cpu-jaxlib-0.9.0", "0.9.0", "cpu", ("attention",), ("attention",)),
    samples.Batch("cpu-jaxlib-0.9.2", "0.9.2", "cpu", ("reductions",), ("reductions",)),
    samples.Batch("h100-jaxlib-0.9.2", "0.9.2", "h100", ("dense",)),
    samples.Batch("cpu-jaxlib-0.10.0", "0.10.0", "cpu", ("attention",), ("attention",)),
    samples.Batch("cpu-jaxlib-0.10.1", "0.10.1", "cpu", ("attention",), ("attention",)),
)
PROGRAM = "loop"  # whose stages are listed
ENDS = ("before_optimizations.txt", "after_optimizations.txt")


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("what", choices=["dumps", "stages"])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--version", default="0.7")
    parser.add_argument("--dumps", type=Path)


def findings(options: Namespace) -> Iterator[Finding]:
    if options.what == "dumps":
        for batch in BATCHES:
            if batch.version != options.version:
                continue
            for program in batch.programs:
                samples.make(batch, program, options.python, VERSIONS / "dumps")
                yield note(f"{program} is compiled")
        return
    for folder in sorted(options.dumps.glob(f"*/*/{PROGRAM}")):
        target, version = folder.parent.name, folder.parent.parent.name
        files = sorted(folder.glob("module_*.jit_program.*.txt"))
        labels = [file.name.partition(".jit_program.")[2] for file in files]
        stages = [label for label in labels if ".after_" in label or label.endswith(ENDS)]
        (VERSIONS / "stages" / f"{target}-{version}.txt").write_text("\n".join(stages) + "\n")
        yield note(f"{target}-{version}: {len(stages)} stages")
