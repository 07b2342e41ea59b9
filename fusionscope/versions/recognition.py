"""Determines which versions of jaxlib can have made a dump."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fusionscope.dump import DumpedModule
from fusionscope.errors import UnusableInput
from fusionscope.versions import known
from fusionscope.versions.version import Mark

VERSIONS = tuple(version.name for version in known.VERSIONS)
_NEWEST = VERSIONS[-1]
_NAMES = "names.json"
_BETWEEN = frozenset({"", "pipeline-start", "pipeline-end"})
_LATE = "copy-insertion"  # leaves stages whatever the program
# Flags turn these off, and an empty one is in no file of the dump.
_OPTIONAL = frozenset({"dot-library-passes", "pdl-launch-annotation"})
_NUMBER = re.compile(r"[-_.]\d+$")
# How TensorFlow and PyTorch/XLA call modules.
_OF_OTHERS = re.compile(r"a_inference_|cluster_\d|.*__XlaMustCompile|SyncTensorsGraph\.|IrToHlo\.")


@dataclass(frozen=True, slots=True)
class Recognition:
    """The possible versions of a dump. ``versions`` has the oldest first: none if the dump shows
    something that no known version does, and all if it shows nothing. ``shown_by`` names the
    evidence, and is empty without any. ``is_newer`` says that the version may be newer than all of
    these. ``is_of_jax`` is false for a compiler of TensorFlow or PyTorch/XLA, which has an XLA of
    its own: then they are those with an XLA of the same time.
    """

    versions: tuple[str, ...]
    shown_by: str = ""
    is_newer: bool = False
    is_of_jax: bool = True

    def __str__(self) -> str:
        """As in *jaxlib 0.7 to 0.9*."""
        if self.is_newer:
            return f"jaxlib newer than {_NEWEST}, or an unknown one"
        if self.versions in ((), VERSIONS):
            return "an unknown version of jaxlib"
        first, last = self.versions[0], self.versions[-1]
        if last == VERSIONS[0]:
            return "XLA of early 2023"
        release = "jaxlib" if self.is_of_jax else "XLA as in jaxlib"
        if first == VERSIONS[0]:
            return f"{release} {last} or older"
        if first == last:
            return f"{release} {first}"
        return f"{release} {first} {'or' if len(self.versions) == 2 else 'to'} {last}"


def recognise(module: DumpedModule) -> Recognition:
    """Return the possible versions of a dump, by the positions of its passes and by its flags.

    A dump that could be of the newest version, but names a pass or a flag that no known version
    has, is of a newer or unknown compiler. Only CPUs and GPUs are recognised.
    """
    marks = _marks(module.backend)
    if not marks:
        return Recognition(())
    places = {(stage.name.pipeline, stage.name.after, stage.name.before) for stage in module.stages}
    is_whole = module.final is not None and _shows_all_passes(module) and _has_no_gap(module)
    visited: list[tuple[frozenset[str], str]] = []  # versions, and their evidence
    doubtful: list[tuple[frozenset[str], str]] = []  # what other evidence can contradict
    for mark, having in marks.items():
        if mark.place in places:
            visited.append((having, str(mark)))
        elif is_whole and mark.is_always and _is_capable(module, mark.capability):
            without = frozenset(VERSIONS) - having, f"no {mark}"
            (doubtful if mark.pipeline in _OPTIONAL else visited).append(without)
    visited += _shown_by_flags(module)
    if module.flags is not None:
        visited += [evidence for evidence in doubtful if evidence[0] & _common(visited)]
    possible = _common(visited)
    if _NEWEST in possible and (unknown := next(_unknown_names(module), None)) is not None:
        return Recognition((), f"{unknown}, which none up to {_NEWEST} has", is_newer=True)
    for each in list(visited):
        remaining = [remaining_mark for remaining_mark in visited if remaining_mark is not each]
        if _common(remaining) == possible:
            visited = remaining
    versions = tuple(version for version in VERSIONS if version in possible)
    return Recognition(
        versions,
        " and ".join(words for _, words in visited),
        is_of_jax=not _OF_OTHERS.match(module.name),
    )


@cache
def _marks(backend: str | None) -> dict[Mark, frozenset[str]]:
    """Return each mark with the versions that have it."""
    versions: dict[Mark, set[str]] = {}
    current: dict[tuple[str, str, str], Mark] = {}
    for version in known.VERSIONS:
        for mark in version.lost.get(backend or "", ()):
            del current[mark.place]
        current.update({mark.place: mark for mark in version.gained.get(backend or "", ())})
        for mark in current.values():
            versions.setdefault(mark, set()).add(version.name)
    return {mark: frozenset(names) for mark, names in versions.items()}


def _common(visited: list[tuple[frozenset[str], str]]) -> frozenset[str]:
    return frozenset(VERSIONS).intersection(*(versions for versions, _ in visited))


def _shows_all_passes(module: DumpedModule) -> bool:
    """Return whether pipelines left stages, and no sign of omitted stages exists."""
    try:
        shows_all = module.shows_all_passes
    except UnusableInput:  # reported when the flags are read
        return False
    return shows_all and any(stage.name.after == "pipeline-start" for stage in module.stages)


def _has_no_gap(module: DumpedModule) -> bool:
    """Return whether the stages are numbered without a gap up to one of the last pipelines: none
    was deleted since.
    """
    counters = {stage.name.counter for stage in module.stages} - {None}
    is_late = any(stage.name.pipeline == _LATE for stage in module.stages)
    return is_late and counters == set(range(len(counters)))


def _is_capable(module: DumpedModule, least: int) -> bool:
    """Return whether the device has at least this major compute capability, if any is asked for."""
    if not least:
        return True
    from fusionscope.dump.device import CudaCapability

    try:
        device = module.device
    except UnusableInput:  # reported when the device is read
        return False
    capability = device.capability if device is not None else None
    return isinstance(capability, CudaCapability) and capability.major >= least


def _shown_by_flags(module: DumpedModule) -> Iterator[tuple[frozenset[str], str]]:
    """Yield the versions that list the same flags. Only a list with flags that are off has all."""
    try:
        config = module.config
    except UnusableInput:  # reported when the flags are read
        return
    if config is None or not any("false" in values for values in config.values.values()):
        return
    for place, version in enumerate(known.VERSIONS):
        if version.flag in config.values:
            yield frozenset(VERSIONS[place:]), f"a flag {version.flag}"
        elif version.flag is not None:
            yield frozenset(VERSIONS[:place]), f"no flag {version.flag}"


def _unknown_names(module: DumpedModule) -> Iterator[str]:
    passes, flags = known_names()
    for stage in module.stages:
        for name in (stage.name.after, stage.name.before):
            if name not in _BETWEEN and without_number(name) not in passes:
                yield f"a pass {name}"
    try:
        options = [source for source in (module.flags, module.config) if source is not None]
    except UnusableInput:  # reported when the flags are read
        return
    for name in sorted({name for option in options for name in option.values} - flags):
        yield f"a flag {name}"


def without_number(name: str) -> str:
    """Return the name of a pass without the number that several runs have."""
    return _NUMBER.sub("", name)


@cache
def known_names() -> tuple[frozenset[str], frozenset[str]]:
    """Return the passes and flags of all known versions."""
    names = json.loads(Path(__file__).with_name(_NAMES).read_text(encoding="utf-8"))
    return frozenset(names["passes"]), frozenset(names["flags"])
