"""Injects the compiler's own plans, and compares kernels and numbers with those of the compiler.

    python tools/conformance/replays.py DUMPS... [--backend cpu] [--python PATH]

Each of DUMPS is a dump, or a directory with dumps in it. Only dumps of the version that PATH has
are used. A replay holds if the final module has the kernels, launches and bytes of the dump and, on
a CPU, the results are those of a plain compilation, to the last bit. Prints a line for each dump,
then the counts. Exits with 1 if the kernels are others, or the numbers differ and the plain
compilation makes the kernels of the dump.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from changes import is_other_version, version_of
from outcomes import dumps

from fusionscope.dump import DumpedModule, open_dump
from fusionscope.errors import UnusableInput
from fusionscope.graph.comparison import has_equal_kernels
from fusionscope.rerun.injection import Injection
from fusionscope.rerun.plans import own_plan
from fusionscope.rerun.programs import require_final
from fusionscope.rerun.rerun import compile_again, rerun
from fusionscope.rerun.running import CannotRun, Numbers, measure, why_not_run

LIMIT_S = 300.0


def try_replay(module: DumpedModule, python: str, scratch: Path) -> str:
    """Return what came of it."""
    found = rerun(module, own_plan(module), scratch / "replay", python=python, limit_s=LIMIT_S)
    if found.variant is None:
        return f"not compiled: {found.problem}"
    if not (found.holds and found.is_same):
        return "other kernels"
    if module.backend != "cpu" or why_not_run(module):
        return "the same kernels"
    try:
        (measured,) = measure(
            module, Injection(), [found.injection], seconds=0, python=python, limit_s=LIMIT_S
        )
    except CannotRun:
        return "the same kernels"
    if measured.numbers in (Numbers.EQUAL, None):
        return f"the same kernels, {measured.numbers or measured.problem}"
    plain = compile_again(module, Injection(), scratch / "plain", python=python, limit_s=LIMIT_S)
    (made,) = open_dump(plain.directory).modules
    is_same = has_equal_kernels(require_final(module), require_final(made))
    others = "" if is_same else ", as a plain compilation makes others than the dump shows"
    return f"the same kernels, {measured.numbers}{others}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("dumps", nargs="+", type=Path)
    parser.add_argument("--backend", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--python", default=sys.executable, help="an interpreter with jax")
    options = parser.parse_args()
    versions = [version_of(options.python)]
    counts: Counter[str] = Counter()
    for path in [dump for root in options.dumps for dump in dumps(root)]:
        try:
            module = max(open_dump(path).modules, key=lambda each: len(each.stages))
            if module.backend != options.backend or is_other_version(module, versions):
                continue
            with TemporaryDirectory() as scratch:
                words = try_replay(module, options.python, Path(scratch))
        except UnusableInput as refusal:
            words = f"refused: {refusal}"
        counts[words.partition(":")[0]] += 1
        print(f"{path}: {words}", flush=True)
    print(", ".join(f"{count} {words}" for words, count in counts.most_common()))
    wrong = ("not compiled", "other kernels", f"the same kernels, {Numbers.DIFFERENT}")
    return 1 if any(counts[each] for each in wrong) else 0


if __name__ == "__main__":
    sys.exit(main())
