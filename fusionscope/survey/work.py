"""The two steps of a survey, each of which runs in any process: what a dump holds, and what is in
it that is new.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from fusionscope.dump import Dump, DumpedModule, open_dump
from fusionscope.dump.names import Role, tpu_build
from fusionscope.errors import UnusableInput, shorten
from fusionscope.explain.explain import explain_module
from fusionscope.explain.selection import EVERYTHING
from fusionscope.facts.suggestions import Suggestions
from fusionscope.progress import silent
from fusionscope.survey.rows import rows_of
from fusionscope.survey.sources import AtHand, Source, at_hand
from fusionscope.survey.tables import ANALYSED, DumpRow, UnreadableRow, as_unicode, table_of
from fusionscope.system.files import is_directory
from fusionscope.system.memory import limited_memory, working_memory
from fusionscope.verify.verification import Verification, verify
from fusionscope.versions.recognition import VERSIONS, Recognition, recognise

if TYPE_CHECKING:
    import pyarrow

UNKNOWN = "unknown"
_DIGITS = 32  # of the hexadecimal name of a content
# The place of a dump differs from host to host, and changes nothing.
_PLACE = re.compile(rb"^\s*xla_dump_to: .*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Partition:
    jaxlib: str
    device: str
    day: str


@dataclass(frozen=True, slots=True)
class Held:
    """What a source holds: its modules, each with the partition of its rows."""

    modules: tuple[tuple[DumpRow, Partition], ...]
    unreadable: tuple[UnreadableRow, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """A module of a source: the dump that has it, its number and its name there."""

    content: str
    dump: str
    number: int
    module: str


@dataclass(frozen=True, slots=True)
class Analysed:
    """The tables about one content, as far as they have rows, and what could not be read."""

    content: str
    tables: dict[str, pyarrow.Table]
    unreadable: tuple[UnreadableRow, ...]


def look_into(source: Source, memory: int | None) -> Held:
    """Return what a source holds, after reading all of it once. ``memory`` is the most that this
    may take, in bytes. Never raises for what the source holds.
    """
    modules: list[tuple[DumpRow, Partition]] = []
    unreadable: list[UnreadableRow] = []

    def tell(dump: str, reason: str, module: str | None = None) -> None:
        unreadable.append(_unreadable(source, dump, reason, module))

    try:
        with limited_memory(memory), at_hand(source) as local:
            for problem in local.problems:
                tell(source.address, problem)
            for path, address in local.dumps.items():
                try:
                    dump, own_modules = _open(path)
                except UnusableInput as error:
                    tell(address, _without(str(error), local))
                    continue
                for module in own_modules:
                    content, size, problems = _digest(module)
                    for problem in problems:
                        tell(address, _without(problem, local), module.name)
                    modules.append(_row(source, address, module, content, size))
                for problem in dump.unread([module_found.reason for module_found in unreadable]):
                    tell(address, _without(problem, local))
    except Exception as error:
        modules.clear()
        tell(source.address, _why(error, memory))
    modules.sort(key=lambda module_found: (module_found[0].dump, module_found[0].number))
    return Held(tuple(modules), tuple(dict.fromkeys(unreadable)))


def analyse(
    source: Source, places: tuple[Place, ...], memory: int | None, tries: bool
) -> tuple[Analysed, ...]:
    """Return the tables about modules of a source. ``tries`` is whether to try what could help.
    Never raises for what the source holds.
    """
    analysed: list[Analysed] = []
    try:
        with limited_memory(memory), at_hand(source) as local:
            paths = {as_unicode(address): path for path, address in local.dumps.items()}
            for place in places:
                analysed.append(_analyse(source, place, paths[place.dump], local, memory, tries))
    except Exception as error:
        analysed += (
            without_rows(source, place, _why(error, memory)) for place in places[len(analysed) :]
        )
    return tuple(analysed)


def without_rows(source: Source, place: Place, reason: str) -> Analysed:
    """Return what there is of a module that could not be analysed, for a ``reason`` in one line."""
    row = _unreadable(source, place.dump, reason, place.module, place.content)
    return Analysed(place.content, {}, (row,))


def _analyse(
    source: Source, place: Place, path: Path, local: AtHand, memory: int | None, tries: bool
) -> Analysed:
    tables: dict[str, pyarrow.Table] = {}
    problems: list[str] = []
    try:
        tables = _tables_of(path, place, problems, tries=tries)
    except Exception as error:
        problems.append(_why(error, memory))
    rows = (
        _unreadable(source, place.dump, _without(problem, local), place.module, place.content)
        for problem in problems
    )
    return Analysed(place.content, tables, tuple(dict.fromkeys(rows)))


@working_memory()
def _tables_of(
    path: Path, place: Place, problems: list[str], *, tries: bool
) -> dict[str, pyarrow.Table]:
    dump, own_modules = _open(path)
    module = next(module_of for module_of in own_modules if _is_at(module_of, place))
    facts = explain_module(module)
    suggestions: Suggestions | None = None
    if tries:
        from fusionscope.advise.suggest import suggester

        suggestions = suggester(EVERYTHING, is_limited=False)(module, facts, silent)
    verification: Verification | None = None
    try:
        verification = verify(dump, [module])
    except UnusableInput:  # there is nothing to replay, or what there is cannot be read
        verification = None
    problems += dump.unread()
    rows = rows_of(place.content, facts, suggestions, verification)
    return {
        name: table_of(ANALYSED[name], own_modules)
        for name, own_modules in rows.items()
        if own_modules
    }


def _is_at(module: DumpedModule, place: Place) -> bool:
    return (module.number, as_unicode(module.name)) == (place.number, place.module)


def _open(path: Path) -> tuple[Dump, list[DumpedModule]]:
    """Return a dump, and its modules that are in no folder below it, which is a dump of its own."""
    dump = open_dump(path)
    folder = path if is_directory(path) else None
    return dump, [module for module in dump.modules if folder in (None, module.directory)]


def _digest(module: DumpedModule) -> tuple[str, int, list[str]]:
    """Return the name of the content of a module, its bytes, and what cannot be read of it.

    The content is all that an analysis may read: stages and files beside them, by their roles. The
    number of the module, the time in the names of its files and the directory do not count.
    """
    parts: list[str] = [module.name]
    problems: list[str] = []
    size = 0
    files = [
        (role.value, file) for role, files_of_role in module.files.items() for file in files_of_role
    ]
    for place, stage in enumerate(module.stages):
        texts = (("text", stage.text), ("proto", stage.proto))
        files += [(f"{place} {stage.label} {kind}", file) for kind, file in texts if file]
    for role, file in files:
        try:
            data = file.read()
        except UnusableInput as error:
            problems.append(str(error))
            data = b"unreadable"
        if role in (Role.FLAGS.value, Role.CONFIG.value):
            data = _PLACE.sub(b"", data)
        size += len(data)
        parts.append(f"{role} {hashlib.sha256(data).hexdigest()}")
    whole = "\n".join(sorted(parts)).encode("utf-8", "surrogatepass")
    return hashlib.sha256(whole).hexdigest()[:_DIGITS], size, problems


def _row(
    source: Source, dump: str, module: DumpedModule, content: str, size: int
) -> tuple[DumpRow, Partition]:
    recognition = recognise(module)
    newest = recognition.versions[-1] if recognition.versions else None
    row = DumpRow(
        content=content,
        dump=as_unicode(dump),
        stamp=source.stamp,
        number=module.number,
        module=as_unicode(module.name),
        bytes=size,
        jaxlib_order=VERSIONS.index(newest) if newest and _is_known(recognition) else None,
    )
    return row, Partition(_version(module, recognition), _device(module), source.day)


def _is_known(recognition: Recognition) -> bool:
    return recognition.versions not in ((), VERSIONS)


def _version(module: DumpedModule, recognition: Recognition) -> str:
    """Return the version of jaxlib, "0.12" or "0.10.2 or 0.11.0", or the build for TPUs."""
    if build := tpu_build(module.name):
        return _plain(f"libtpu build {build}")
    if _is_known(recognition) or recognition.is_newer:
        return str(recognition).removeprefix("jaxlib ")
    return UNKNOWN


def _device(module: DumpedModule) -> str:
    try:
        if module.device is not None:
            return _plain(module.device.name)
        if module.tpu is not None:
            return _plain(str(module.tpu))
    except UnusableInput:  # reported when the module is explained
        pass
    return module.backend or UNKNOWN


def _plain(text: str) -> str:
    """Return a text that can name a folder, whatever a dump says."""
    return shorten(text.encode("ascii", "replace").decode(), 60) or UNKNOWN


def _unreadable(
    source: Source, dump: str, reason: str, module: str | None = None, content: str | None = None
) -> UnreadableRow:
    return UnreadableRow(
        content=content,
        dump=as_unicode(dump),
        stamp=source.stamp,
        module=as_unicode(module),
        reason=as_unicode(reason),
    )


def _without(problem: str, local: AtHand) -> str:
    """Return a problem without the place that a dump was brought to: the row has its address."""
    for path, address in local.dumps.items():
        problem = problem.replace(f"{path}/", "").replace(f"{path}: ", "")
        problem = problem.replace(str(path), PurePosixPath(address).name)
    return problem


def _why(error: Exception, memory: int | None) -> str:
    if isinstance(error, UnusableInput):
        return str(error)
    if isinstance(error, MemoryError):
        return f"takes more than {(memory or 0) >> 20:,} MB of memory: --memory sets the limit"
    words = shorten(str(error), 200)
    return f"internal error ({type(error).__name__}: {words}); this is a bug in fusionscope"
