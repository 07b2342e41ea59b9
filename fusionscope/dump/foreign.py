"""Files that belong to another program, device or run than the stages beside them.

Each run numbers its modules anew, so a second run into the same directory replaces some files of
the first and leaves the rest. Names and the first lines of stages show most of that.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fusionscope.dump.files import DumpFile, as_text
from fusionscope.dump.fusion_explorer import FusionExplorerRecord, Kind
from fusionscope.dump.names import FileName, Role, tpu_build
from fusionscope.dump.stage import BEFORE_OPTIMIZATIONS, Stage, backend_of
from fusionscope.errors import UnusableInput, quoted, shorten

if TYPE_CHECKING:
    from fusionscope.dump.device import Device
    from fusionscope.dump.priority_fusion import PriorityFusionRecord
    from fusionscope.hlo import Module

# Types of the parameters and of the results of an entry, such as ``f32[64,128]``.
Signature = tuple[tuple[str, ...], tuple[str, ...]]
# When a file was written (ns), and its place (bytes) in a captured output.
Written = tuple[int, int]

_HEADER_BYTES = (1 << 14, 1 << 23)  # enough for most entries, and for the longest ones
_LAYOUT = re.compile(r"entry_computation_layout=\{\((.*?)\)->(.*?)\}(?:, \w+=|\s|$)")
_TYPE = re.compile(r"\b([a-z]\w*)\[([^\]]*)\]")
_IS_PARTITIONED = re.compile(r"\bnum_partitions=(?!1\b)\d")
_WIDE = re.compile(r"(?:[sufc]64|c128)\[")
_TARGET = re.compile(r"(?:sm_(\d+)\.(\d+)|(gfx[0-9a-z]+))")
_FIRST_STEPS = 40  # of a record whose names are looked up

_REMEDY = "dump each run into an empty folder"
_TWO_RUNS = (
    "two runs were dumped over each other as {module}: {evidence}{ignored}; "
    f"{_REMEDY}, or with --xla_dump_include_timestamp"
)


def signature_of(header: str) -> Signature | None:
    """Return the signature in the first line of a module, None if it has none.

    Partitioning changes sizes, so those of a partitioned program are ``?``.
    """
    layout = _LAYOUT.search(header)
    if layout is None:
        return None
    parameters, results = (_types(part) for part in layout.groups())
    if _IS_PARTITIONED.search(header):
        parameters, results = (
            tuple(re.sub(r"[^\[\],]+(?=[,\]])", "?", name) for name in part)
            for part in (parameters, results)
        )
    return parameters, results


def _types(text: str) -> tuple[str, ...]:
    return tuple(f"{kind}[{sizes.replace('<=', '')}]" for kind, sizes in _TYPE.findall(text))


def signature_of_text(name: FileName, text: str) -> Signature | None:
    """Return the signature of the text of a stage, None if its header tells too little: the
    compiler for TPUs replaces types of 64 bits by others.
    """
    start = max(text.find("HloModule"), 0)
    end = text.find("\n", start)
    header = text[start:] if end < 0 else text[start:end]
    if name.module is not None and tpu_build(name.module) and _WIDE.search(header):
        return None
    return signature_of(header)


def signature_of_stage(stage: Stage) -> Signature | None:
    """Return the signature of a stage, None if it cannot be read or tells too little."""
    if stage.text is None:
        return None
    text = ""
    for size in _HEADER_BYTES:
        try:
            head = stage.text.head(size)
        except UnusableInput:  # reported when the stage is read
            return None
        text = as_text(head)
        if "\n" in text or len(head) < size:
            break
    return signature_of_text(stage.name, text)


@dataclass(frozen=True, slots=True)
class OwnStages:
    """The stages of one run, and the signature of its program. ``problem`` is a line on those of
    others, or "". Files that were written before ``begin`` are of an earlier run.
    """

    stages: tuple[Stage, ...]
    signature: Signature | None
    problem: str = ""
    begin: Written = (0, 0)


def find_own_stages(module: str, directory: Path, stages: tuple[Stage, ...]) -> OwnStages:
    """Return the stages without those of another program or of an earlier run.

    Of most modules, this reads the first lines of three stages.
    """
    numbered = [stage for stage in stages if stage.name.counter is not None]
    ends = dict.fromkeys([stages[0], *numbered[-1:], *(s for s in stages if s.is_final)])
    signatures = {stage: signature_of_stage(stage) for stage in ends}
    conflicts = _find_conflicts(stages)
    if len(set(signatures.values()) - {None}) < 2 and not conflicts:
        return OwnStages(stages, next(iter(signatures.values()), None))
    signatures |= {s: signature_of_stage(s) for s in stages if s not in signatures}
    signature = _signature_of_last_run(stages, signatures)
    foreign = {s for s in stages if signatures[s] not in (None, signature)}
    begin = _begin_of_last_run(stages) if conflicts else (0, 0)
    early = {s for s in stages if _written(s.file) < begin} - foreign
    own_stages = tuple(stage for stage in stages if stage not in foreign | early)
    if not conflicts and len(foreign) == 1:
        (stage,) = foreign
        problem = f"{stage.file}: {why_foreign(signatures[stage], signature)}: ignored; {_REMEDY}"
        return OwnStages(own_stages, signature, problem)
    if conflicts:
        (first, second), *_ = conflicts
        number = f"step {first.name.counter:04d}" if first.name.counter is not None else "the end"
        evidence = f"{number} is {_label(first)} and {_label(second)}"
    else:
        a_foreign = next(stage for stage in stages if stage in foreign)
        evidence = why_foreign(signatures[a_foreign], signature)
    counts = {"another program": len(foreign), "an earlier run": len(early)}
    ignored = " and ".join(f"{count} of {of}" for of, count in counts.items() if count)
    problem = _TWO_RUNS.format(
        module=shorten(module),
        evidence=evidence,
        ignored=f"; of {len(stages)} stages, {ignored} are ignored" if ignored else "",
    )
    return OwnStages(own_stages, signature, f"{directory}: {problem}", begin)


def _label(stage: Stage) -> str:
    return shorten(stage.label, 120)


def _signature_of_last_run(
    stages: Sequence[Stage], signatures: dict[Stage, Signature | None]
) -> Signature | None:
    """Return the signature that the first stage shares with a final one, which every run replaces,
    or else that of most stages.
    """
    first = signatures[stages[0]]
    if first is not None and any(s.is_final and signatures[s] == first for s in stages[1:]):
        return first
    counts: dict[Signature, int] = defaultdict(int)
    for signature in signatures.values():
        if signature is not None:
            counts[signature] += 1
    return max(counts, key=lambda signature: counts[signature], default=None)


def _find_conflicts(stages: Iterable[Stage]) -> list[tuple[Stage, Stage]]:
    """Return pairs of stages that no single run leaves: of one number, or final on two devices."""
    conflicts = []
    by_number: dict[int, Stage] = {}
    for stage in stages:
        number = stage.name.counter
        if stage.label.endswith("pu_after_optimizations"):
            number = -1
        if number is not None and by_number.setdefault(number, stage) is not stage:
            conflicts.append((by_number[number], stage))
    return conflicts


def _begin_of_last_run(stages: Sequence[Stage]) -> Written:
    """Return when the last run wrote its first stage, which replaced that of the run before, if the
    stages since then have all numbers, each once. They do not where files were copied.
    """
    begin = _written(stages[0].file) if stages[0].label == BEFORE_OPTIMIZATIONS else (0, 0)
    numbers = [
        stage.name.counter
        for stage in stages
        if stage.name.counter is not None and _written(stage.file) >= begin
    ]
    return begin if sorted(numbers) == list(range(len(numbers))) and numbers else (0, 0)


def _written(file: DumpFile) -> Written:
    try:
        return file.path.stat().st_mtime_ns, file.start
    except OSError:
        return 0, 0


def why_foreign(signature: Signature | None, expected: Signature | None) -> str:
    """Return how the entries of two programs differ."""
    return (
        f"the entry's parameters and results, {_shown(signature)}, are not those of the other "
        f"stages, {_shown(expected)}"
    )


def _shown(signature: Signature | None) -> str:
    if signature is None:
        return "none"
    parameters, results = signature
    first_parameters = [*parameters[:4], *(["…"] if len(parameters) > 4 else [])]
    return shorten(f"({', '.join(first_parameters)}) -> {', '.join(results[:3])}", 120)


# ----------------------------------------------------------------------------------- other files


def find_own_files(
    files: dict[Role, list[tuple[FileName, DumpFile]]], own_stages: OwnStages
) -> tuple[dict[Role, tuple[DumpFile, ...]], list[str]]:
    """Return the side files of a module without those that an earlier run left, and without those
    that are named for another device than its stages, with a line on each of the latter.
    """
    stages = own_stages.stages
    backend = backend_of(stages)
    finals = {stage.label for stage in stages if stage.is_final}
    files_by_role: dict[Role, tuple[DumpFile, ...]] = {}
    problems = []
    for role, members in files.items():
        own_files = []
        for name, file in members:
            if _written(file) < own_stages.begin:
                continue
            if backend is not None and _BACKENDS.get(role, backend) != backend:
                of = f"a {role.value} of a {_BACKENDS[role].upper()}"
            elif role in _MEMORY and finals and name.label not in finals:
                of = f"the {role.value} of {quoted(name.label)}"
            else:
                own_files.append(file)
                continue
            there = " and ".join(sorted(map(quoted, finals))) or f"a {str(backend).upper()}"
            problems.append(f"{file}: {of}, the stages are of {there}: ignored")
        if own_files:
            files_by_role[role] = tuple(own_files)
    return files_by_role, problems


_BACKENDS = {Role.DEVICE: "gpu", Role.PRIORITY_FUSION: "gpu", Role.TPU_TARGET: "tpu"}
_MEMORY = (Role.BUFFER_ASSIGNMENT, Role.LIVE_RANGES, Role.MEMORY_USAGE)


def why_foreign_device(device: Device, labels: Iterable[str]) -> str:
    """Return why a GPU is not the one that final stages are named for, or ""."""
    targets = {label: target for label in labels if (target := _TARGET.match(label))}
    names = {f"sm_{t[1]}{t[2]}" if t[1] else t[3].rstrip("af") for t in targets.values()}
    if not names or device.capability is None or str(device.capability).rstrip("af") in names:
        return ""
    return f"of a GPU with {device.capability}, the stages are of {quoted(next(iter(targets)))}"


def why_foreign_module(escaped: str, signature: Signature | None) -> str:
    """Return why the module in a priority-fusion record is not that of the stages, or ""."""
    recorded = signature_of(escaped.partition("\\n")[0].replace('\\"', '"'))
    if None in (recorded, signature) or recorded == signature:
        return ""
    return why_foreign(recorded, signature)


def first_names(record: PriorityFusionRecord) -> tuple[str, ...]:
    """Return the instructions that the first steps name: those of the stage before the pass."""
    from fusionscope.dump.priority_fusion import Fused, Priority  # few dumps have a record

    names: list[str] = []
    for step in record.steps[:_FIRST_STEPS]:
        if isinstance(step, Fused):
            break
        names += step.producer, *(step.consumers if isinstance(step, Priority) else ())
    return tuple(names)


def first_decided_names(record: FusionExplorerRecord) -> tuple[str, ...]:
    """Return the instructions that the first pass names before it fuses any."""
    names: list[str | None] = []
    for decision in record.decisions[:_FIRST_STEPS]:
        is_fusion = decision.kind in (Kind.FUSED, Kind.ABOUT_TO_FUSE)
        if is_fusion or decision.pass_name != first_pass(record):
            break
        names += decision.producer, decision.consumer
    return tuple(name for name in names if name is not None)


def first_pass(record: FusionExplorerRecord) -> str | None:
    """Return the pass of the first decision, as records name it."""
    return record.decisions[0].pass_name if record.decisions else None


def names_in(module: Module) -> list[str]:
    """Return the names of all instructions, in the order of the text."""
    return [s.name for body in module.computations for s in body.graph.statements]


def why_foreign_names(
    names: Iterable[str], before: Module | None, computation: str | None = None
) -> str:
    """Return which of the names with which a pass began, or which computation, is not in the module
    before that pass, or "". ``before`` is None if that module is not known.

    Programs share some names by chance, and a damaged record has some that its own program lacks:
    half of the names decide.
    """
    if before is None:
        return ""
    if computation is not None and computation not in {body.name for body in before.bodies}:
        return f"about {shorten(computation)}, a computation that the stage before it does not have"
    names_in_stage = frozenset(names_in(before))
    unique_names = dict.fromkeys(names)
    absent = [name for name in unique_names if name not in names_in_stage]
    if 2 * len(absent) < max(len(unique_names), 1):
        return ""
    return f"about {shorten(absent[0])}, which the stage before the pass does not have"
