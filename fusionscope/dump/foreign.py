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
from fusionscope.dump.stage import Stage, backend_of
from fusionscope.errors import UnusableInput, quoted, shorten

if TYPE_CHECKING:
    from fusionscope.dump.device import Device
    from fusionscope.dump.priority_fusion import PriorityFusionRecord
    from fusionscope.hlo import Module

# Types of the parameters and of the results of an entry, such as ``f32[64,128]``.
Signature = tuple[tuple[str, ...], tuple[str, ...]]

_HEADER_BYTES = (1 << 14, 1 << 23)  # enough for most entries, and for the longest ones
_LAYOUT = re.compile(r"entry_computation_layout=\{\((.*?)\)->(.*?)\}(?:, \w+=|\s|$)")
_TYPE = re.compile(r"\b([a-z]\w*)\[([^\]]*)\]")
_IS_PARTITIONED = re.compile(r"\bnum_partitions=(?!1\b)\d")
_WIDE = re.compile(r"(?:[sufc]64|c128)\[")
_TARGET = re.compile(r"(?:sm_(\d+)\.(\d+)|(gfx\w+))")
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
            tuple(re.sub(r"[^\[\],]+(?=[,\]])", "?", each) for each in part)
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
    """The stages of one program. ``problem`` is a line on those of others, or ""."""

    stages: tuple[Stage, ...]
    signature: Signature | None
    problem: str = ""


def find_own_stages(module: str, directory: Path, stages: tuple[Stage, ...]) -> OwnStages:
    """Return the stages without those of another program.

    Of most modules, this reads the first lines of three stages.
    """
    numbered = [stage for stage in stages if stage.name.counter is not None]
    ends = dict.fromkeys([stages[0], *numbered[-1:], *(s for s in stages if s.is_final)])
    signatures = {stage: signature_of_stage(stage) for stage in ends}
    evidence = _evidence_of_two_runs(stages)
    if len(set(signatures.values()) - {None}) < 2 and not evidence:
        return OwnStages(stages, next(iter(signatures.values()), None))
    signatures |= {s: signature_of_stage(s) for s in stages if s not in signatures}
    signature = _signature_of_last_run(stages, signatures)
    foreign = [s for s in stages if signatures[s] not in (None, signature)]
    own = tuple(stage for stage in stages if stage not in foreign)
    if not evidence and len(foreign) == 1:
        problem = f"{foreign[0].file}: {why_foreign(signatures[foreign[0]], signature)}, ignored"
        return OwnStages(own, signature, f"{problem}; {_REMEDY}")
    ignored = ""
    if foreign:
        evidence = evidence or why_foreign(signatures[foreign[0]], signature)
        ignored = f"; {len(foreign)} of {len(stages)} stages are of another program, and ignored"
    if evidence:
        text = _TWO_RUNS.format(module=shorten(module), evidence=evidence, ignored=ignored)
        return OwnStages(own, signature, f"{directory}: {text}")
    return OwnStages(own, signature)


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


def _evidence_of_two_runs(stages: Iterable[Stage]) -> str:
    """Return what no single run leaves: two stages of one number, or final stages for two
    devices.
    """
    labels: dict[int | str, str] = {}
    for stage in stages:
        label = stage.label
        key = "final" if label.endswith("pu_after_optimizations") else stage.name.counter
        if key is None or labels.setdefault(key, label) == label:
            continue
        pair = f"{quoted(labels[key])} and {quoted(label)}"
        return f"the final stages {pair}" if key == "final" else f"step {key:04d} is {pair}"
    return ""


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
    shown = [*parameters[:4], *(["…"] if len(parameters) > 4 else [])]
    return shorten(f"({', '.join(shown)}) -> {', '.join(results[:3])}", 120)


# ----------------------------------------------------------------------------------- other files


def find_own_files(
    files: dict[Role, list[tuple[FileName, DumpFile]]], stages: tuple[Stage, ...]
) -> tuple[dict[Role, tuple[DumpFile, ...]], list[str]]:
    """Return the side files of a module without those that are named for another device than its
    stages, and a line on each of these.
    """
    backend = backend_of(stages)
    finals = {stage.label for stage in stages if stage.is_final}
    own: dict[Role, tuple[DumpFile, ...]] = {}
    problems = []
    for role, members in files.items():
        kept = []
        for name, file in members:
            if backend is not None and _BACKENDS.get(role, backend) != backend:
                of = f"a {role.value} of a {_BACKENDS[role].upper()}"
            elif role in _MEMORY and finals and name.label not in finals:
                of = f"the {role.value} of {quoted(name.label)}"
            else:
                kept.append(file)
                continue
            there = " and ".join(sorted(map(quoted, finals))) or f"a {str(backend).upper()}"
            problems.append(f"{file}: {of}, the stages are of {there}: ignored")
        if kept:
            own[role] = tuple(kept)
    return own, problems


_BACKENDS = {Role.DEVICE: "gpu", Role.PRIORITY_FUSION: "gpu", Role.TPU_TARGET: "tpu"}
_MEMORY = (Role.BUFFER_ASSIGNMENT, Role.LIVE_RANGES, Role.MEMORY_USAGE)


def why_foreign_device(device: Device, labels: Iterable[str]) -> str:
    """Return why a GPU is not the one that final stages are named for, or ""."""
    if device.capability is None:
        return ""
    for label in labels:
        if target := _TARGET.match(label):
            named = f"sm_{target[1]}{target[2]}" if target[1] else target[3]
            if str(device.capability).rstrip("af") != named.rstrip("af"):
                return f"of a GPU with {device.capability}, the stages are of {quoted(label)}"
    return ""


def why_foreign_module(escaped: str, signature: Signature | None) -> str:
    """Return why the module in a priority-fusion record is not that of the stages, or ""."""
    recorded = signature_of(escaped.partition("\\n")[0].replace('\\"', '"'))
    if None in (recorded, signature) or recorded == signature:
        return ""
    return why_foreign(recorded, signature)


def first_names(record: PriorityFusionRecord) -> tuple[str, ...]:
    """Return the instructions that the first steps name, before any fusion: those of the stage
    before the pass.
    """
    from fusionscope.dump.priority_fusion import Fused, Priority  # few dumps have a record

    names: list[str] = []
    for step in record.steps[:_FIRST_STEPS]:
        if isinstance(step, Fused):
            break
        names += step.producer, *(step.consumers if isinstance(step, Priority) else ())
    return tuple(names)


def first_decided_names(record: FusionExplorerRecord) -> tuple[str, ...]:
    """Return the same of a Fusion Explorer record, whose first pass this is about."""
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


def why_foreign_names(
    names: Iterable[str], before: Module | None, computation: str | None = None
) -> str:
    """Return which of the names with which a pass began, or which computation, is not in the module
    before that pass, or "". None if that module is not known.
    """
    if before is None:
        return ""
    if computation is not None and computation not in {body.name for body in before.bodies}:
        return f"about {shorten(computation)}, a computation that the stage before it does not have"
    known = {s.name for each in before.computations for s in each.graph.statements}
    missing = next((name for name in names if name not in known), None)
    if missing is None:
        return ""
    return f"about {shorten(missing)}, which the stage before the pass does not have"
