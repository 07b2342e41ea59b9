"""Keeps what the real compiler recorded of the modules in ``gpu_records/``, for the tests.

    python tools/conformance/gpu_records.py --python 0.12=PATH --python 0.11=PATH [--check]

Each ``PATH`` is a Python that has that jax and its plugin for CUDA; no GPU is needed. Each file
``NAME.hlo`` holds modules; a first line ``// targets: h100 b200`` says for which devices of
``samples/devices`` they are recorded, ``// flags: --xla_...`` with which flags,
``// version: 0.11`` by another jaxlib than 0.12. ``NAME.TARGET.txt`` is what priority fusion did
with each of them, a line a step. So are the examples of the rules, for an H100. With ``--check``
the files are compared with what the compiler records instead of written.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from gpu_examples import read_card

from fusionscope.dump.priority_fusion import Fused, Ineligible, Priority, PriorityStep
from fusionscope.gpu.model import GpuModel
from fusionscope.passes.gpu.priority_fusion.rules import GPU_FUSION
from fusionscope.rules.pages import read_examples
from fusionscope.versions.known import load_compiler

DIRECTORY = Path(__file__).resolve().parents[2] / "tests" / "rules" / "gpu_records"
EXAMPLES = "examples"
# What the replay does otherwise than the compiler, by the file.
DIFFERENT = {
    "complex_logarithms": "the table of cycles has none of them, as passes before write them anew",
    "scales": "Triton moves elements of f8e8m0fnu since 0.12",
    "infinite_times": "a priority that was infinite becomes none, when it should stay what it is",
}
_NEWEST = "0.12"
_MORE_TRIES = 3  # jaxlib 0.11 crashes at times, where it scores several producers at once
_HEADING = re.compile(r"^// (\w+): (.+)$", re.MULTILINE)
_MODULE = re.compile(r"^HloModule ([\w.\-]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Programs:
    """The modules of one file, by name."""

    name: str
    targets: tuple[str, ...]
    flags: str
    version: str
    texts: dict[str, str]

    def record(self, target: str) -> Path:
        return DIRECTORY / f"{self.name}.{target}.txt"


def all_programs() -> Iterator[Programs]:
    """Those of the files, and the examples of the rules as one more."""
    for file in sorted(DIRECTORY.glob("*.hlo")):
        text = file.read_text(encoding="utf-8")
        options = dict(_HEADING.findall(text))
        starts = list(_MODULE.finditer(text))
        ends = [start.start() for start in starts[1:]] + [len(text)]
        texts = {
            start[1]: text[start.start() : end] for start, end in zip(starts, ends, strict=True)
        }
        assert len(texts) == len(starts), f"two modules of {file.name} have the same name"
        yield Programs(
            file.stem,
            tuple(options["targets"].split()),
            options.get("flags", ""),
            options.get("version", _NEWEST),
            texts,
        )
    examples = {}
    for rule in GPU_FUSION:
        for suffix, other in (("", ""), ("-gpu", "on GPUs")):
            for index, example in enumerate(read_examples(rule.id, other)):
                examples[f"{rule.id}{suffix}.{index}"] = example.text
    yield Programs(EXAMPLES, ("h100",), "", _NEWEST, examples)


def written(step: PriorityStep) -> str:
    if isinstance(step, Fused):
        return f"fused {step.fusion}: {step.producer} -> {step.consumer}"
    if isinstance(step, Ineligible):
        reason = step.reason.replace("\n", r"\n")
        return f"refused {step.producer}: {reason}"
    consumers = " ".join(step.consumers)
    return f"priority {step.producer}: {consumers} | {step.fused_us!r} {step.unfused_us!r}"


def read_step(line: str) -> PriorityStep:
    kind, _, rest = line.partition(" ")
    producer, _, rest = rest.partition(": ")
    if kind == "fused":
        first, _, second = rest.partition(" -> ")
        return Fused(producer, first, second)
    if kind == "refused":
        return Ineligible(producer, rest.replace(r"\n", "\n"))
    consumers, _, times = rest.partition(" | ")
    fused, unfused = times.split()
    return Priority(producer, tuple(consumers.split()), float(fused), float(unfused))


def read_steps(file: Path) -> dict[str, tuple[PriorityStep, ...]]:
    """The steps that were recorded of each module."""
    found: dict[str, tuple[PriorityStep, ...]] = {}
    for part in file.read_text(encoding="utf-8").split("# ")[1:]:
        name, *lines = part.strip().splitlines()
        found[name] = tuple(map(read_step, lines))
    return found


card = lru_cache(read_card)
steps_of = lru_cache(read_steps)


def gpu_model_of(programs: Programs) -> GpuModel:
    unroll = re.search(r"max_unroll_factor=(\d+)", programs.flags)
    gpu_model = load_compiler(f"gpu-{programs.version}").gpu
    assert gpu_model is not None
    return replace(
        gpu_model,
        max_unroll=int(unroll[1]) if unroll else 32,
        has_heroless_triton="heroless_priority_fusion=true" in programs.flags,
    )


def main() -> None:
    from gpu_compiling import record_all

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", action="append", default=[], metavar="VERSION=PATH")
    parser.add_argument("--check", action="store_true", help="compare and do not write")
    parser.add_argument("--only", help="the name of one file")
    options = parser.parse_args()
    pythons = dict(entry.split("=", 1) for entry in options.python)
    wrong = 0
    for programs in all_programs():
        if options.only not in (None, programs.name) or programs.version not in pythons:
            continue
        for target in programs.targets:
            texts = list(programs.texts.values())
            records = record_all(pythons[programs.version], texts, target, programs.flags)
            for _ in range(_MORE_TRIES):
                for index, found in enumerate(records):
                    if isinstance(found, str):
                        (records[index],) = record_all(
                            pythons[programs.version], [texts[index]], target, programs.flags
                        )
            lines: list[str] = []
            count = 0
            for name, found in zip(programs.texts, records, strict=True):
                lines.append(f"# {name}")
                if isinstance(found, str):
                    raise SystemExit(f"{programs.name}, {target}: {name}: {found[:300]}")
                # Scores and refusals come in any order between two fusions.
                group: list[str] = []
                for step in found.record.steps:
                    count += 1
                    if isinstance(step, Fused):
                        lines += [*sorted(group), written(step)]
                        group = []
                    else:
                        group.append(written(step))
                lines += sorted(group)
            text = "\n".join(lines) + "\n"
            file = programs.record(target)
            same = file.is_file() and file.read_text(encoding="utf-8") == text
            wrong += not same
            print(f"{file.name}: {len(texts)} modules, {count} steps{'' if same else ', another'}")
            if not options.check:
                file.write_text(text, encoding="utf-8")
    sys.exit(options.check and wrong > 0)


if __name__ == "__main__":
    main()
