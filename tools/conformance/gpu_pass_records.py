"""Keeps what the passes around priority fusion made of the modules in ``gpu_pass_records/``.

    python tools/conformance/gpu_pass_records.py --python PATH [--check] [--add FILE ...]

``PATH`` is a Python that has jax and its plugin for CUDA; no GPU is needed. ``PASS.VERSION.hlo``
holds pairs of modules: what a pass of that version found, and what it made of it for an H100. The
files of the version of ``PATH`` are written anew, or with ``--check`` compared. The modules of
each ``FILE``, which begins with the name of its pass and a dot, are added.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cpu_compiling import version_of
from gpu_compiling import run_all
from gpu_examples import H100

from fusionscope.gpu.tiling.search import BlockLevelConfig, block_level_config
from fusionscope.graph.comparison import find_divergence
from fusionscope.graph.mutable import MutableModule
from fusionscope.hlo import Module, parse
from fusionscope.passes.context import GpuTarget, PassContext
from fusionscope.passes.fusion_pass import pass_of
from fusionscope.passes.plan import FusionPlan
from fusionscope.passes.rule import RuleBook
from fusionscope.versions.known import load_compiler

DIRECTORY = Path(__file__).resolve().parents[2] / "tests" / "rules" / "gpu_pass_records"
_START = re.compile(r"^(?=HloModule )", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Record:
    """What the pass of ``book`` in a version made of a module."""

    book: RuleBook[Any]
    version: str
    before: str
    after: str

    def difference(self, changed: RuleBook[Any] | None = None) -> str | None:
        """Between what the replay makes, by a ``changed`` book where one is given, and that."""
        plan = replay(changed or self.book, self.version, parse(self.before))
        return difference(plan.module, parse(self.after))


def read_records(file: Path) -> list[Record]:
    pass_name, _, version = file.stem.partition(".")
    book = load_compiler(version).find(pass_name).book
    modules = _START.split(file.read_text(encoding="utf-8"))[1:]
    pairs = zip(modules[::2], modules[1::2], strict=True)
    return [Record(book, version, *pair) for pair in pairs]


RECORDS = {
    f"{file.stem}.{index}": record
    for file in sorted(DIRECTORY.glob("*.hlo"))
    for index, record in enumerate(read_records(file))
}


def replay(book: RuleBook[Any], version: str, before: Module) -> FusionPlan:
    """For an H100."""
    model = load_compiler(version).gpu
    assert model is not None
    context = PassContext(gpu=GpuTarget(device=H100, gpu_model=model))
    return pass_of(book).run(MutableModule(before), context)


def difference(ours: Module, theirs: Module) -> str | None:
    """The first thing in which two modules differ, or all tilings where no more than these do."""
    divergence = find_divergence(ours, theirs)
    if divergence is not None:
        return f"{divergence.ours} here, {divergence.theirs} in the compiler"
    one, other = tilings(ours), tilings(theirs)
    return None if one == other else f"tilings {one} here, {other} in the compiler"


def tilings(module: Module) -> Counter[BlockLevelConfig]:
    configs = (block_level_config(each) for each in MutableModule(module).walk())
    return Counter(filter(None, configs))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--python", required=True, help="a Python that has jax, with CUDA")
    parser.add_argument("--check", action="store_true", help="compare and do not write")
    parser.add_argument("--add", type=Path, nargs="+", default=[], metavar="FILE")
    options = parser.parse_args()
    version = "gpu-" + ".".join(version_of(options.python).split(".")[:2])
    wrong = 0
    for pass_name in [book.pass_name for book in load_compiler(version).books]:
        file = DIRECTORY / f"{pass_name}.{version}.hlo"
        texts = [each.before for each in read_records(file)] if file.exists() else []
        for added in options.add:
            if added.name.startswith(f"{pass_name}."):
                texts += _START.split(added.read_text(encoding="utf-8"))[1:]
        if not texts:
            continue
        pairs: list[str] = []
        for found in run_all(options.python, pass_name, texts):
            if isinstance(found, str):
                raise SystemExit(f"{file.name}: {found[-300:]}")
            pairs += [f"{each.strip()}\n\n" for each in found.runs[0]]
        text = "".join(pairs)
        same = file.exists() and file.read_text(encoding="utf-8") == text
        wrong += not same
        print(f"{file.name}: {len(texts)} modules{'' if same else ', another'}")
        if not options.check:
            file.write_text(text, encoding="utf-8")
    sys.exit(options.check and wrong > 0)


if __name__ == "__main__":
    main()
