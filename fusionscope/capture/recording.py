"""Runs a program so that XLA dumps what it compiles, and says why if nothing was dumped."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory

from fusionscope.capture.capture import STAGES, quoted_flags, require_empty
from fusionscope.dump.names import tpu_build
from fusionscope.errors import UnusableInput, quoted
from fusionscope.progress import Progress
from fusionscope.system.files import is_there, read_text
from fusionscope.system.processes import Ran, run_in_foreground
from fusionscope.words.text import first_names, plural, size

_FIRST = ".before_optimizations.txt"
_LAST = ".after_optimizations.txt"  # all that the compilation cache dumps
_FLAG = re.compile(r"--?(\w+)(?:=(.*))?", re.DOTALL)
_NUMBER = re.compile(r"(?:(\d{10,20})\.)?(?:.+?\.)?module_(\d+)\.")
_COMPILED = re.compile(r"jax_ir\d+_(.+)_compile\.mlir")  # by JAX_DUMP_IR_TO
_LIMIT = re.compile("--xla_dump_(hlo_module_re|max_hlo_modules)=")
_GLOB = {"*": ".*", "?": "."}
_CACHE = "jax_enable_compilation_cache"


@dataclass(frozen=True, slots=True)
class Filter:
    """Which modules are dumped: those with a name like ``glob`` (None: all). Of these, the
    ``first`` are kept in the end, and of these the ``largest``.
    """

    glob: str | None = None
    first: int | None = None
    largest: int | None = None

    @property
    def flags(self) -> list[str]:
        if self.glob is None:
            return []
        pattern = "".join(_GLOB.get(character, re.escape(character)) for character in self.glob)
        return [f"--xla_dump_hlo_module_re=^{pattern}$"]


@dataclass(frozen=True, slots=True)
class Recorded:
    """A program that ran, and the number of modules and bytes in its dump."""

    ran: Ran
    modules: int
    bytes: int


def record(command: Sequence[str], directory: Path, filter: Filter, tell: Progress) -> Recorded:
    """Run ``command`` with the environment of this process and XLA's flags for a dump into
    ``directory``, which must be empty or new. ``tell`` receives what the user should know: flags
    that are replaced, how much was dumped so far, and why there is nothing.

    Raises ``UnusableInput`` if the program cannot be started.
    """
    flags = _own_flags(directory, filter)
    outer = _outer_flags()
    for line in _replaced(outer, flags):
        tell(line)
    is_new = not is_there(directory)
    require_empty(directory)

    def watch(after_s: float) -> None:
        dumped = _Dumped.measure(directory)
        tell(f"after {after_s:,.0f} s: {dumped.words}")

    try:
        with TemporaryDirectory() as scratch:
            ran = run_in_foreground(command, _environment(outer, flags, scratch), watch)
            programs = _programs(Path(scratch))
    finally:
        if is_new:
            with suppress(OSError):  # it has files
                directory.rmdir()
    dumped = _Dumped.measure(directory)
    if not dumped.modules:
        tell(f"nothing was dumped{_why_nothing(command, filter, outer, programs)}")
    elif dumped.cached:
        tell(_why_incomplete(command, dumped))
    if dumped.modules and (filter.first or filter.largest):
        _remove_others(directory, filter)
        dumped = _Dumped.measure(directory)
    return Recorded(ran, dumped.modules, dumped.bytes)


@dataclass(frozen=True, slots=True)
class _Dumped:
    """What is in a dump so far. ``cached`` counts the modules of which only the end is there."""

    modules: int
    cached: int
    bytes: int

    @staticmethod
    def measure(directory: Path) -> _Dumped:
        begun: set[str] = set()
        ended: set[str] = set()
        total = 0
        for folder, _, names in os.walk(directory):
            for name in names:
                with suppress(OSError):  # removed meanwhile
                    total += Path(folder, name).stat().st_size
                if name.endswith(_FIRST):
                    begun.add(name.removesuffix(_FIRST))
                elif name.endswith(_LAST):
                    ended.add(name.removesuffix(_LAST))
        # The compiler for TPUs may go on with a new number.
        renumbered = {_NUMBER.sub("", name) for name in begun if tpu_build(name)}
        cached = {name for name in ended - begun if _NUMBER.sub("", name) not in renumbered}
        return _Dumped(len(begun | cached), len(cached), total)

    @property
    def words(self) -> str:
        return (
            f"{plural(self.modules, 'module')}, {size(self.bytes)}" if self.modules else "no module"
        )


def _own_flags(directory: Path, filter: Filter) -> list[str]:
    # Processes count their modules apart, and may have the same numbers.
    return [
        f"--xla_dump_to={directory.resolve()}",
        *STAGES,
        "--xla_dump_include_timestamp",
        *filter.flags,
    ]


def _outer_flags() -> str:
    """Return the user's XLA_FLAGS, which may be the name of a file with them. Raises
    ``UnusableInput`` if that cannot be read.
    """
    flags = os.environ.get("XLA_FLAGS", "").strip()
    return flags if not flags or flags.startswith("-") else read_text(Path(flags)).strip()


def _values(flags: Sequence[str]) -> dict[str, str]:
    matches = (_FLAG.fullmatch(flag) for flag in flags)
    return {match[1]: match[2] or "true" for match in matches if match is not None}


def _split(flags: str) -> list[str]:
    try:
        return shlex.split(flags)
    except ValueError:  # XLA may still read them
        return flags.split()


def _replaced(outer: str, flags: Sequence[str]) -> Iterator[str]:
    values = _values(flags)
    for name, value in _values(_split(outer)).items():
        if name in values and values[name] != value:
            yield f"XLA_FLAGS: --{name}={value} gives way to --{name}={values[name]} in this run"


def search_path() -> str:
    """Return where programs are looked up: not in fusionscope's own environment, which uvx puts
    first, so that ``python`` is the user's.
    """
    first, *remaining = os.environ.get("PATH", os.defpath).split(os.pathsep)
    scripts = Path(sys.executable).parent
    is_put_there = "UV" in os.environ and os.environ.get("VIRTUAL_ENV") != str(scripts.parent)
    return os.pathsep.join(
        remaining if Path(first) == scripts and is_put_there else [first, *remaining]
    )


def _environment(outer: str, flags: Sequence[str], scratch: str) -> Mapping[str, str]:
    """Return the environment of the program. ``scratch`` is where jax writes what it compiles,
    unless the user has it elsewhere.
    """
    return {
        "JAX_DUMP_IR_TO": scratch,
        **os.environ,
        "PATH": search_path(),
        "XLA_FLAGS": " ".join([outer, *quoted_flags(flags)]).strip(),
        "JAX_ENABLE_COMPILATION_CACHE": "false",  # a cache hit dumps nothing
    }


def _programs(scratch: Path) -> list[str] | None:
    """Return the names of the programs that jax compiled, in order; None if they are unknown."""
    if "JAX_DUMP_IR_TO" in os.environ:
        return None
    names = sorted(path.name for path in scratch.iterdir())
    return list(dict.fromkeys(match[1] for name in names if (match := _COMPILED.fullmatch(name))))


def _why_nothing(
    command: Sequence[str], filter: Filter, outer: str, programs: Sequence[str] | None
) -> str:
    """Return why there is no module, as far as it is known."""
    place = _mention(command, "XLA_FLAGS")
    replaced = (
        f"{place} sets XLA_FLAGS: let it keep those that are there, "
        "os.environ.get('XLA_FLAGS', '') + ' --xla_…'"
    )
    if programs is not None and not programs:
        why = replaced if place else ""
        if filter.glob and not place:
            why = f"--modules {quoted(filter.glob)} may leave out what others compiled"
        return ", and jax compiled no program" + (f"; {why}" if why else "")
    compiled = f", although jax compiled {first_names(programs, 3)}" if programs else ""
    names = programs or ()
    if names and filter.glob and not any(fnmatchcase(name, filter.glob) for name in names):
        return f"{compiled}: --modules {quoted(filter.glob)} leaves out all of them"
    if place:
        return f"{compiled}: {replaced}"
    if limits := [flag for flag in _split(outer) if _LIMIT.match(flag)]:
        return f"{compiled}: XLA_FLAGS has {' '.join(limits)}"
    if cache := _mention(command, _CACHE):
        return f"{compiled}: {cache} turns the compilation cache on"
    nothing = "no program was compiled, or " if programs is None else ""
    return (
        f"{compiled}: {nothing}something replaces XLA_FLAGS before the first array is made, turns "
        "the compilation cache on, or compiles with a backend that does not read XLA_FLAGS"
    )


def _why_incomplete(command: Sequence[str], dumped: _Dumped) -> str:
    place = _mention(command, _CACHE)
    return (
        f"{dumped.cached} of {plural(dumped.modules, 'module')} came from a compilation cache, "
        f"which {place or 'the program'} turns on: only their end is dumped"
    )


def _mention(command: Sequence[str], word: str) -> str:
    """Return the first line of the program's own files that has ``word``: "train.py:3", or ""."""
    for file in _sources(command):
        with suppress(UnusableInput):  # no such file
            for number, line in enumerate(read_text(file).splitlines(), 1):
                if word in line.partition("#")[0]:
                    return f"{file}:{number}"
    return ""


def _sources(command: Sequence[str]) -> Iterator[Path]:
    """Yield the files that a command line may be about: scripts, modules, and what pytest reads
    first.
    """
    for word, option in zip(command, ["", *command], strict=False):
        paths = [Path(word), Path(word, "conftest.py")]
        if option == "-m":
            module = Path(*word.split("."))
            paths = [module.with_suffix(".py"), module / "__main__.py"]
        yield from (path for path in paths if path.suffix in (".py", ".sh"))
    yield Path("conftest.py")


def _remove_others(directory: Path, filter: Filter) -> None:
    """Remove the files of modules other than the first and the largest that are asked for."""
    paths: dict[tuple[str, str], list[Path]] = defaultdict(list)
    for path in directory.iterdir():
        if match := _NUMBER.match(path.name):
            paths[match[1] or "", match[2]].append(path)
    sizes = {key: sum(map(_size, paths[key])) for key in paths if key[0]}
    first = sorted(sizes)[: filter.first]
    largest = sorted(first, key=lambda key: -sizes[key])[: filter.largest]
    remaining = {*largest, *(("", number) for _, number in largest)}  # some names have no timestamp
    for path in (path for key in paths.keys() - remaining for path in paths[key]):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
