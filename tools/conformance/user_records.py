"""Keeps the orders of users that the real compiler recorded behind passes, for the tests.

    python tools/conformance/user_records.py --python PATH [--only NAME]

``PATH`` is a Python that has jax 0.12 and its plugin for CUDA; no GPU is needed. Each file
``users/NAME.hlo`` is a module, of which a first line ``// passes: a b`` says what runs on it before
priority fusion, which scores each producer with its users in their order. Where a second line
``// layouts: as written`` stands, it is put in before layouts are assigned; else it goes through
StableHLO, from the start on. ``users/NAME`` holds the stages that differ from those before them,
with their ids, and in ``users.txt`` the orders.
"""

from __future__ import annotations

import argparse
import re
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from gpu_compiling import dump_stages

from fusionscope.dump.priority_fusion import read_priority_fusion
from fusionscope.hlo import parse
from fusionscope.passes.gpu.priority_fusion.record import recorded_users

DIRECTORY = Path(__file__).resolve().parents[2] / "tests" / "replay" / "users"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", required=True, help="one that has jax and its plugin for CUDA")
    parser.add_argument("--only", default="*", help="the name of one file")
    options = parser.parse_args()
    for file in sorted(DIRECTORY.glob(f"{options.only}.hlo")):
        _record(options.python, file)


def _record(python: str, file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    headings = dict(re.findall(r"^// (\w+): (.+)$", text, re.MULTILINE))
    kept = file.with_suffix("")
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir()
    with TemporaryDirectory() as scratch:
        *stages, record = dump_stages(
            python,
            text,
            headings["passes"].split(),
            Path(scratch),
            is_put="layouts" in headings,
        )
        last = ""
        for stage in stages:
            module = stage.read_text(encoding="utf-8")
            if module != last or stage is stages[-1]:
                (kept / stage.name).write_text(module, encoding="utf-8")
                shutil.copy(stage.with_suffix(".hlo.pb"), kept)
            last = module
        users = recorded_users(read_priority_fusion(record.read_bytes(), record.name).steps)
    here = {
        each.name for computation in parse(last).computations for each in computation.instructions
    }
    lines = [
        f"{value}: {' '.join(each)}\n"
        for value, each in users.items()
        if len(each) > 1 and here.issuperset((value, *each))
    ]
    (kept / "users.txt").write_text("".join(sorted(lines)), encoding="utf-8")


if __name__ == "__main__":
    main()
