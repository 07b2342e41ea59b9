"""Makes the dumps of a version without rules, and the names of the stages of all versions.

python tools/conformance/version_dumps.py dumps --python PATH     (jax 0.7.2 with the CUDA plugin)
python tools/conformance/version_dumps.py stages --dumps DIR      (DIR/VERSION/TARGET/PROGRAM)
"""

import argparse
import sys
from pathlib import Path

from loading import load

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = ROOT / "tests" / "versions"
samples = load(ROOT / "samples" / "make.py")
samples.LARGE = 1024  # bytes; small dumps are enough here

BATCHES = (
    samples.Batch("cpu-jaxlib-0.7", "0.7", "cpu", ("softmax",), ("softmax",)),
    samples.Batch("h100-jaxlib-0.7", "0.7", "h100", ("dense",)),
)
PROGRAM = "loop"  # whose stages are listed
ENDS = ("before_optimizations.txt", "after_optimizations.txt")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=["dumps", "stages"])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--dumps", type=Path)
    options = parser.parse_args()
    if options.what == "dumps":
        for batch in BATCHES:
            for program in batch.programs:
                samples.make(batch, program, options.python, VERSIONS / "dumps")
        return
    for folder in sorted(options.dumps.glob(f"*/*/{PROGRAM}")):
        target, version = folder.parent.name, folder.parent.parent.name
        found = sorted(folder.glob("module_*.jit_program.*.txt"))
        labels = [each.name.partition(".jit_program.")[2] for each in found]
        stages = [each for each in labels if ".after_" in each or each.endswith(ENDS)]
        (VERSIONS / "stages" / f"{target}-{version}.txt").write_text("\n".join(stages) + "\n")


if __name__ == "__main__":
    main()
