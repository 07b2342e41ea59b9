"""Turns a directory into modules with ordered stages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from fusionscope.dump.debug_options import DebugOptions, read_debug_options
from fusionscope.dump.files import DumpFile, as_text, find_files
from fusionscope.dump.foreign import (
    Signature,
    find_own_files,
    find_own_stages,
    first_decided_names,
    first_names,
    first_pass,
    names_in,
    signature_of_text,
    why_foreign,
    why_foreign_device,
    why_foreign_module,
    why_foreign_names,
)
from fusionscope.dump.fusion_explorer import FusionExplorerRecord, read_fusion_explorer
from fusionscope.dump.fusion_passes import (
    PRIORITY_FUSION,
    Record,
    names_in_files,
    names_of_record,
)
from fusionscope.dump.instruction_ids import KnownParts, read_instruction_ids
from fusionscope.dump.names import OF_ALL_MODULES, FileName, Role, read_name, tpu_build
from fusionscope.dump.pass_times import PassTime, read_pass_times
from fusionscope.dump.stage import (
    AFTER_OPTIMIZATIONS,
    BEFORE_OPTIMIZATIONS,
    Stage,
    backend_of,
    with_makers,
)
from fusionscope.dump.uses import FileReader
from fusionscope.errors import UnusableInput, quoted, shorten
from fusionscope.system.files import is_directory, is_there

if TYPE_CHECKING:
    from fusionscope.dump.autotuner_log import TunedInstruction, TuningResult
    from fusionscope.dump.buffer_assignment import BufferAssignment
    from fusionscope.dump.device import Device
    from fusionscope.dump.live_ranges import LiveRanges
    from fusionscope.dump.priority_fusion import PriorityFusionRecord
    from fusionscope.dump.protos import ProtoPrinter
    from fusionscope.dump.thunks import CommandBuffer, Launch
    from fusionscope.dump.tpu_target import TpuTarget
    from fusionscope.hlo import Module, ParseTable

NamedFile: TypeAlias = "tuple[FileName, DumpFile]"
# What files say, by what kind of file it is and the digest of its bytes.
Contents: TypeAlias = "dict[tuple[Role, bytes], Any]"

HOW_TO_DUMP = (
    "`fusionscope record -- python train.py` dumps a program as it runs; by hand: "
    'XLA_FLAGS="--xla_dump_to=DIR --xla_dump_hlo_as_text --xla_dump_hlo_pass_re=.*" in a fresh '
    "process, without compilation cache (JAX_ENABLE_COMPILATION_CACHE=false)"
)

Content = TypeVar("Content")
_MOST_NAMED = 8
_BEFORE_FUSING = ("variadic-op-splitter", PRIORITY_FUSION)  # stages before priority fusion


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DumpedModule:
    """One module of a dump: its stages in order, and the files beside them.

    Everything is read on demand, and only once.
    """

    number: int
    name: str
    run: str | None  # the timestamp of its files, "" without one; None if it has one run only
    directory: Path
    stages: tuple[Stage, ...]
    signature: Signature | None = field(repr=False)  # of its entry, None if no stage shows it
    files: dict[Role, tuple[DumpFile, ...]]
    table: Callable[[], ParseTable] = field(repr=False)  # one, made when a stage is read
    protos: Callable[[], ProtoPrinter] = field(repr=False)  # one, made when a stage needs it
    reader: FileReader = field(repr=False)
    unknown_opcodes: set[str] = field(repr=False)  # of the whole dump
    _problems: dict[str, None] = field(repr=False)  # of the whole dump, each once, in order
    contents: Contents = field(repr=False)  # what was read of the whole dump
    like: Contents = field(repr=False)  # what was read of another dump of the same program
    steps: Mapping[str, int] = field(default_factory=dict)  # of loops by name, given by the user
    _lazy: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def backend(self) -> str | None:
        """``cpu``, ``gpu``, ``tpu``, or None if the names do not show it."""
        backend = backend_of(self.stages)
        if backend is None and (Role.DEVICE in self.files or Role.PRIORITY_FUSION in self.files):
            return "gpu"
        return backend

    @property
    def final(self) -> Stage | None:
        """The module after all optimizations: of a TPU as its code generation leaves it, which only
        adds what it estimates.
        """
        finals = [stage for stage in self.stages if stage.is_final]
        return finals[-1] if finals else None

    @property
    def last(self) -> Stage:
        """The final stage or, if it was not dumped, the latest of the others."""
        if self.final is not None:
            return self.final
        is_numbered = any(stage.name.counter is not None for stage in self.stages)
        return [stage for stage in self.stages if not (is_numbered and stage.is_amid_numbered)][-1]

    @property
    def fusion_stages(self) -> tuple[Stage, ...]:
        """The stages after passes that formed or changed fusions, in order."""
        passes = names_in_files(self.backend)
        return tuple(stage for stage in self.stages if stage.name.after in passes)

    @property
    def pre_fusion(self) -> Stage | None:
        """The stage before the first fusion pass that changed the module.

        If none did, the stage before the first one that the file names mention.
        """
        passes = names_in_files(self.backend)
        changed = self.fusion_stages
        if changed:
            index = self.stages.index(changed[0])
            return self.stages[index - 1] if index else None
        for stage in self.stages:
            if stage.name.before in passes or stage.name.pipeline in ("fusion", "Main_fusion"):
                return stage
        return None

    def stage(self, words: str) -> Stage:
        """Return a stage by ``pre-fusion``, ``final``, its number, or a part of its label.

        Raises ``UnusableInput`` if no stage, or more than one, matches.
        """
        special = {"pre-fusion": self.pre_fusion, "final": self.final}.get(words)
        if special is not None:
            return special
        matches = [stage for stage in self.stages if words in stage.label]
        exact = [stage for stage in matches if stage.label == words]
        if words.isdecimal():
            exact = [stage for stage in self.stages if stage.name.counter == int(words)]
        if len(exact or matches) != 1:
            choice = ", ".join(
                f"{stage.name.counter} ({stage.label})" if stage.name.counter else stage.label
                for stage in (exact or matches or self.stages)[:8]
            )
            problem = "several stages match" if matches else "no stage matches"
            raise UnusableInput(f"{problem} {quoted(words)} in {self.name}, there are {choice} …")
        return (exact or matches)[0]

    def read(self, stage: Stage) -> Module:
        """Return the module as ``stage`` shows it. Raises ``UnusableInput``."""
        module: Module | None = self._lazy.get(stage)
        # An equal stage of another dump serves as well, but for its errors.
        if module is None or (module.is_contradictory and module.file != str(stage.file)):
            with self._noting():
                module = self._lazy[stage] = self._read(stage)
        self.reader.use(stage.file)
        return module

    def remember(self, key: Hashable, find: Callable[[], Content]) -> Content:
        """Return what ``find`` returned when it was first called for this ``key``."""
        if key not in self._lazy:
            with self.reader.recording() as uses:
                content = find()
            self._lazy[key] = content, uses
        remembered: Content
        remembered, uses = self._lazy[key]
        self.reader.use_again(uses)
        return remembered

    def note(self, problem: UnusableInput) -> None:
        """Keep a problem for the end of the report, if nothing else reports it."""
        self.reader.fail()
        self._problems.setdefault(str(problem))

    @contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except UnusableInput as problem:
            self.note(problem)
            raise

    def _read(self, stage: Stage) -> Module:
        from fusionscope.hlo import read  # not if an earlier run has read the stage

        file, table = stage.file, self.table()
        data = self.reader.read(file)
        if stage.text is not None:
            earlier_module: Module | None = self.like.get((Role.STAGE, self.reader.digest(file)))
            if (
                earlier_module is not None
                and not earlier_module.is_contradictory
                and not table.unknown_opcodes
            ):
                return earlier_module
            text = as_text(data)
            self._check_text(stage, text)
        else:
            text = self.protos().print(data, str(file))
            self.reader.fail()  # it depends on what prints it
        earlier = set(table.unknown_opcodes)  # another dump may have the same table
        try:
            module = read(text, table, file=str(file))
        except UnusableInput:
            self.unknown_opcodes.update(table.unknown_opcodes - earlier)
            raise
        if table.unknown_opcodes:
            unknown = {instruction.opcode for instruction in module.walk()} & table.unknown_opcodes
            self.unknown_opcodes.update(unknown)
            self.reader.unknown_opcodes[file] = unknown
        if stage.text is not None:
            self.contents[Role.STAGE, self.reader.digest(file)] = module
        return module

    def _check_text(self, stage: Stage, text: str) -> None:
        """Raise ``UnusableInput`` if a text lacks its end, or is of another program."""
        is_dumped = stage.label != stage.file.name  # by the compiler, and not one file alone
        if is_dumped and "ENTRY" not in text and "HloModule" in text:
            raise UnusableInput(
                "cut: the text ends before ENTRY, its last computation",
                file=str(stage.file),
                line=text.rstrip().count("\n") + 1,
                hint="dump the module again",
            )
        if self.signature is not None:
            signature = signature_of_text(stage.name, text)
            if signature not in (None, self.signature):
                problem = f"{why_foreign(signature, self.signature)}: it is of another program"
                raise UnusableInput(problem, file=str(stage.file))

    def _side(
        self,
        role: Role,
        reader: Callable[[bytes, str], Content],
        digest: Callable[[bytes], bytes] | None = None,
    ) -> tuple[Content, ...]:
        """Return what files say, by ``digest``; None for that of all bytes."""
        contents: tuple[Content, ...] | None = self._lazy.get(role)
        files = self.files.get(role, ())
        if contents is None:
            with self._noting():
                contents = tuple(self._content(role, file, reader, digest) for file in files)
            self._lazy[role] = contents
        for file in files:
            self.reader.use(file)
        return contents

    def _content(
        self,
        role: Role,
        file: DumpFile,
        reader: Callable[[bytes, str], Content],
        digest: Callable[[bytes], bytes] | None,
    ) -> Content:
        data = self.reader.read(file)
        key = role, self.reader.digest(file) if digest is None else digest(data)
        if key not in self.contents:
            is_shared = key in self.like
            self.contents[key] = self.like[key] if is_shared else reader(data, str(file))
        content: Content = self.contents[key]
        return content

    @property
    def device(self) -> Device | None:
        """The target GPU. Raises ``UnusableInput``, like all following properties."""
        if Role.DEVICE in self.files:
            from fusionscope.dump.device import read_device

            described = self._side(Role.DEVICE, read_device)
            if described and self._fits(Role.DEVICE, 0, partial(self._why_foreign, described[0])):
                return described[0]
        record = self.priority_fusion
        return record.device if record else None

    def _fits(self, role: Role, number: int, why_foreign: Callable[[], str]) -> bool:
        """Return whether a side file is of this module, and note it if not."""
        key = "foreign", role, number
        if key not in self._lazy:
            self._lazy[key] = why_foreign()
        if self._lazy[key]:
            file = self.files[role][number]
            self.note(UnusableInput(f"{self._lazy[key]}: ignored", file=str(file)))
        return not self._lazy[key]

    def _why_foreign(self, device: Device) -> str:
        return why_foreign_device(device, [s.label for s in self.stages if s.is_final])

    def _why_foreign_record(self, record: PriorityFusionRecord) -> str:
        passes = names_of_record(Record.PRIORITY_FUSION)
        return (
            why_foreign_module(record.escaped_module, self.signature)
            or (self._why_foreign(record.device) if record.device is not None else "")
            or why_foreign_names(first_names(record), self._module_before(passes))
        )

    def _why_foreign_decisions(self, record: FusionExplorerRecord, number: int) -> str:
        computation = read_name(self.files[Role.FUSION_EXPLORER][number].name)
        before = self._module_before(names_of_record(first_pass(record)))
        label = computation.label if computation is not None else ""
        return why_foreign_names(first_decided_names(record), before, label)

    def _module_before(self, passes: Sequence[str]) -> Module | None:
        """Return the module on which the first of these passes worked, None if it is unknown."""
        after = (n for n, stage in enumerate(self.stages) if stage.name.after in passes)
        with suppress(UnusableInput):  # noted where the stage or the flags are needed
            if (index := next(after, 0)) and self.shows_all_passes:
                return self.read(self.stages[index - 1])
        return None

    def _module_ahead(self, *passes: str) -> Module | None:
        """Return the last module that is dumped before one of these passes, whatever they do."""
        ahead = [stage for stage in self.stages if stage.name.before in passes]
        return self.read(ahead[-1]) if ahead else None

    @property
    def tpu(self) -> TpuTarget | None:
        """The target TPU, None if no file shows it."""
        if Role.TPU_TARGET not in self.files:
            return None
        from fusionscope.dump.tpu_target import read_tpu_target

        return next(iter(self._side(Role.TPU_TARGET, read_tpu_target)), None)

    @property
    def vector_memory_limit(self) -> int | None:
        """What a flag lets one kernel of a TPU take of its vector memory, in bytes, if one does."""
        if Role.TPU_FLAGS not in self.files:
            return None
        from fusionscope.dump.tpu_target import read_vector_memory_limit

        return next(iter(self._side(Role.TPU_FLAGS, read_vector_memory_limit)), None)

    @property
    def problem(self) -> str:
        """Why the compiler did not finish, as `capture` recorded it; empty if it did, or another
        program made the dump.
        """
        if Role.CAPTURE not in self.files:
            return ""
        from fusionscope.dump.capture_record import read_problem

        return next(iter(self._side(Role.CAPTURE, read_problem)), "")

    @property
    def flags(self) -> DebugOptions | None:
        """The compiler flags that differ from their defaults."""
        return next(iter(self._side(Role.FLAGS, read_debug_options)), None)

    @property
    def config(self) -> DebugOptions | None:
        """All compiler flags, including those with default values; GPUs only."""
        return next(iter(self._side(Role.CONFIG, read_debug_options)), None)

    def with_flags(self, changed: Mapping[str, tuple[str, ...]]) -> DumpedModule:
        """The same stages as if the flags in ``changed`` had these values. Raises
        ``UnusableInput`` where the flags cannot be read."""
        options = self.flags or DebugOptions({}, complete=False)
        flags = DebugOptions({**options.values, **changed}, options.complete)
        return replace(self, _lazy={**self._lazy, Role.FLAGS: (flags,)})

    @property
    def shows_all_passes(self) -> bool:
        """Whether every pass that changed something left a stage."""
        values = self.flags.values if self.flags is not None else {}
        return values.get("xla_dump_hlo_pass_re", (".*",)) == (".*",)

    def lets_run(self, pass_name: str) -> bool:
        """Return whether the flags let a pass run."""
        values = self.flags.values if self.flags is not None else {}
        enabled = values.get("xla_enable_hlo_passes_only", ())
        is_enabled = not enabled or pass_name in enabled
        return is_enabled and pass_name not in values.get("xla_disable_hlo_passes", ())

    @property
    def priority_fusion(self) -> PriorityFusionRecord | None:
        if Role.PRIORITY_FUSION not in self.files:
            return None
        from fusionscope.dump.priority_fusion import digest_of_record, read_priority_fusion

        records = self._side(Role.PRIORITY_FUSION, read_priority_fusion, digest_of_record)
        for number in range(len(records)):
            record = self._as_before_the_pass(records[number], number)
            check = partial(self._why_foreign_record, record)
            if self._fits(Role.PRIORITY_FUSION, number, check):
                return record
        return None

    def _as_before_the_pass(
        self, record: PriorityFusionRecord, number: int
    ) -> PriorityFusionRecord:
        """Return a record with the names of the stage before the pass, if that is known."""
        key = "first names", Role.PRIORITY_FUSION, number
        if key not in self._lazy:
            before = self._module_before(
                names_of_record(Record.PRIORITY_FUSION)
            ) or self._module_ahead(*_BEFORE_FUSING)
            self._lazy[key] = record.with_names_of(names_in(before)) if before else record
        renamed: PriorityFusionRecord = self._lazy[key]
        return renamed

    @property
    def fusion_explorer(self) -> tuple[FusionExplorerRecord, ...]:
        """One record for each computation that a fusion pass visited."""
        records = self._side(Role.FUSION_EXPLORER, read_fusion_explorer)
        return tuple(
            record
            for number, record in enumerate(records)
            if self._fits(
                Role.FUSION_EXPLORER, number, partial(self._why_foreign_decisions, record, number)
            )
        )

    @property
    def ptx(self) -> tuple[bytes, ...]:
        """The texts of the kernels for an NVIDIA GPU."""
        return self._side(Role.PTX, lambda data, file: data)

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The kernels that the thunks of a GPU module launch, with their sizes."""
        from fusionscope.dump.thunks import read_launches

        return next(iter(self._side(Role.THUNKS, read_launches)), ())

    @property
    def command_buffers(self) -> tuple[CommandBuffer, ...]:
        """What the host launches as CUDA graphs."""
        from fusionscope.dump.thunks import read_command_buffers

        return next(iter(self._side(Role.THUNKS_IN_GRAPHS, read_command_buffers)), ())

    @property
    def thunk_instructions(self) -> dict[int, str]:
        """The instructions of the final module by the numbers of the thunks that run them."""
        from fusionscope.dump.thunks import read_annotations

        return next(iter(self._side(Role.THUNK_METADATA, read_annotations)), {})

    @property
    def autotuner_log(self) -> tuple[TunedInstruction, ...]:
        """The instructions that the autotuner timed, those of other modules too."""
        if Role.AUTOTUNER_LOG not in self.files:
            return ()
        from fusionscope.dump.autotuner_log import read_autotuner_log

        logs = self._side(Role.AUTOTUNER_LOG, read_autotuner_log)
        return tuple(entry for log in logs for entry in log)

    @property
    def autotuner_results(self) -> tuple[TuningResult, ...]:
        """What the autotuner chose for instructions, those of other modules too."""
        if Role.AUTOTUNER_RESULTS not in self.files:
            return ()
        from fusionscope.dump.autotuner_log import read_autotuner_results

        files = self._side(Role.AUTOTUNER_RESULTS, read_autotuner_results)
        return tuple(result for results in files for result in results)

    @property
    def pass_times(self) -> tuple[PassTime, ...]:
        return next(iter(self._side(Role.PASS_TIMES, read_pass_times)), ())

    @property
    def buffer_assignment(self) -> BufferAssignment | None:
        """The memory of the final module, None if no file shows it."""
        if Role.BUFFER_ASSIGNMENT not in self.files:
            return None
        from fusionscope.dump.buffer_assignment import read_buffer_assignment

        return next(iter(self._side(Role.BUFFER_ASSIGNMENT, read_buffer_assignment)), None)

    @property
    def live_ranges(self) -> LiveRanges | None:
        """When the values of the final module are alive, None if no file shows it."""
        if Role.LIVE_RANGES not in self.files:
            assignment = self.buffer_assignment
            return assignment.live_ranges if assignment is not None else None
        from fusionscope.dump.live_ranges import read_live_ranges

        return next(iter(self._side(Role.LIVE_RANGES, read_live_ranges)), None)

    @property
    def memory_usage(self) -> int | None:
        """The bytes of all allocations by the compiler's report, None if there is none."""
        if Role.MEMORY_USAGE not in self.files:
            return None
        from fusionscope.dump.memory_usage import read_memory_usage

        return next(iter(self._side(Role.MEMORY_USAGE, read_memory_usage)), None)

    def instruction_ids(self, stage: Stage) -> dict[str, dict[str, int]] | None:
        """Return unique ids by computation and instruction, or None if no proto was dumped; the
        same object as for the stage before if both protos are equal.
        """
        if stage.proto is None:
            return None
        ids: dict[str, dict[str, int]]
        last, ids, parts = self._lazy.get(Role.STAGE_PROTO, (None, {}, KnownParts()))
        with self._noting():
            data = self.reader.read(stage.proto)
            self.reader.use(stage.proto)
            if data != last:
                ids = read_instruction_ids(data, str(stage.proto), parts)
                self._lazy[Role.STAGE_PROTO] = data, ids, parts
        return ids


@dataclass(frozen=True, slots=True)
class NewFacts:
    """What reading a dump has shown: one line for each file that could not be read, and the
    operations that no rule knows."""

    problems: tuple[str, ...]
    unknown_opcodes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Dump:
    """The modules of a dump, by number, the oldest process first, and all of its files."""

    path: Path
    modules: tuple[DumpedModule, ...]
    files: tuple[DumpFile, ...] = field(repr=False)
    _unknown_opcodes: set[str] = field(repr=False)
    _problems: dict[str, None] = field(repr=False)

    steps: Mapping[str, int] = field(default_factory=dict)

    def __reduce__(self) -> tuple[Callable[..., Dump], tuple[Path, Mapping[str, int]]]:
        """Pickle the path and the steps: another process opens the dump itself."""
        return _open_with_steps, (self.path, self.steps)

    def with_steps(self, steps: Mapping[str, int]) -> Dump:
        """Return this dump with the number of steps of the loops that are named."""
        modules = tuple(replace(module, steps=steps) for module in self.modules)
        return replace(self, modules=modules, steps=steps)

    def learned(self) -> NewFacts:
        """Return what has been found out so far."""
        return NewFacts(tuple(self._problems), frozenset(self._unknown_opcodes))

    def learn(self, learned: NewFacts) -> None:
        """Add what another process has found out about the same dump."""
        self._problems.update(dict.fromkeys(learned.problems))
        self.add_unknown_opcodes(learned.unknown_opcodes)

    def unread(self, reported: Iterable[str] = ()) -> list[str]:
        """Return a line for each file that could not be read, except those among ``reported``."""
        reported_before = set(reported)
        return [problem for problem in self._problems if problem not in reported_before]

    @property
    def notes(self) -> list[str]:
        """Return one line for each directory into which several runs dumped, and one on the
        operations that no rule knows, if stages read so far have any.
        """
        return [*self._notes_on_runs(), *self._notes_on_opcodes()]

    def _notes_on_runs(self) -> Iterator[str]:
        runs: dict[Path, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for module in self.modules:
            if module.run is not None:
                runs[module.directory][module.name].append(module.run)
        for directory, stamps_by_name in runs.items():
            name, stamps = next(iter(stamps_by_name.items()))
            options = " or ".join(f"--module {stamp}" for stamp in stamps if stamp)
            count = len(stamps_by_name) - 1
            remainder = f" and {count} more" if count else ""
            yield (
                f"{directory}: {len(stamps)} runs of {shorten(name)}{remainder}, separated by "
                f"timestamp ({shorten(options, 120)}); files without one, such as flags, are of "
                "the last run"
            )

    def _notes_on_opcodes(self) -> list[str]:
        names = sorted(self._unknown_opcodes)
        if not names:
            return []
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        first = ", ".join(map(shorten, names[:_MOST_NAMED]))
        return [f"{self.path}: operations of a newer compiler, which no rule covers: {first}{more}"]

    def add_unknown_opcodes(self, names: Iterable[str]) -> None:
        """Note operations that no rule knows, in stages that an earlier run has read."""
        self._unknown_opcodes.update(names)

    def unreported_problems(self, reported: Iterable[str] = ()) -> list[str]:
        """Return all problems and notes so far that are not among ``told``, a line each."""
        return [*self.unread(reported), *self.notes]


def _open_with_steps(path: Path, steps: Mapping[str, int]) -> Dump:
    return open_dump(path).with_steps(steps)


def _make_table() -> ParseTable:
    from fusionscope.hlo import ParseTable

    return ParseTable()


def _make_printer() -> ProtoPrinter:
    from fusionscope.dump.protos import ProtoPrinter  # few dumps need what it imports

    return ProtoPrinter()


def open_dump(path: Path | str, *, like: Dump | None = None) -> Dump:
    """Find the modules in a directory (recursively), captured output or one HLO file. What it has
    in common with ``like``, another dump of the same program, is read once for both: equal stages
    are one ``Module``.

    Raises ``UnusableInput`` if there is no HLO; the error says what was found and how to dump.
    """
    path = Path(path)
    if not is_there(path):
        raise UnusableInput("no such file or directory", file=str(path), hint=HOW_TO_DUMP)
    search = find_files(path)
    files = search.files
    problems = dict.fromkeys(search.problems)
    # What its modules share: the cache for reading, and what is reported in the end.
    unknown_opcodes: set[str] = set()
    contents: Contents = {}
    make_module = partial(
        DumpedModule,
        table=cache(_make_table) if like is None else like.modules[0].table,
        protos=cache(_make_printer),
        reader=FileReader(),
        unknown_opcodes=unknown_opcodes,
        _problems=problems,
        contents=contents,
        like={} if like is None else like.modules[0].contents,
    )
    groups: dict[tuple[Path, int], list[NamedFile]] = defaultdict(list)
    of_all: list[tuple[FileName, DumpFile]] = []
    for file in files:
        name = read_name(file.name)
        if name is not None and name.module_id == OF_ALL_MODULES:
            of_all.append((name, file))
        elif name is not None:
            groups[file.path if file.end is not None else file.path.parent, name.module_id].append(
                (name, file)
            )
    _join_renumbered(groups)
    modules = tuple(
        sorted(
            (
                module
                for (directory, number), members in groups.items()
                for module in _modules(directory, number, members + of_all, make_module, problems)
            ),
            key=lambda module: (str(module.directory), module.number),
        )
    )
    if not modules and not is_directory(path) and files[0].end is None:
        modules = (_single(files[0], make_module),)
    if not modules:
        first = ", ".join(file.name for file in files[:3])
        raise UnusableInput(
            f"no HLO found among {len(files)} files{f' ({first} …)' if first else ''}, expected "
            "files such as module_0001.jit_f.before_optimizations.txt",
            file=str(path),
            hint=HOW_TO_DUMP,
        )
    return Dump(path, modules, files, unknown_opcodes, problems)


def _join_renumbered(groups: dict[tuple[Path, int], list[NamedFile]]) -> None:
    """Give the files of each module one number. The compiler for TPUs goes on with a new module, of
    the same name, after it has replaced types of 64 bits: what it has dumped until then has the
    number of the old one.
    """
    ends: dict[tuple[Path, str], dict[bool, list[int]]] = defaultdict(lambda: {False: [], True: []})
    for (directory, number), members in groups.items():
        labels: dict[str, set[str]] = defaultdict(set)
        for name, _ in members:
            if name.module is not None and tpu_build(name.module):
                labels[name.module].add(name.label)
        for module, labels_of_module in labels.items():
            if (BEFORE_OPTIMIZATIONS in labels_of_module) != (
                AFTER_OPTIMIZATIONS in labels_of_module
            ):
                ends[directory, module][AFTER_OPTIMIZATIONS in labels_of_module].append(number)
    for (directory, _), numbers in ends.items():
        if [len(numbers[False]), len(numbers[True])] == [1, 1] and numbers[False] < numbers[True]:
            first = groups.pop((directory, numbers[False][0]))
            last = groups[directory, numbers[True][0]]
            dumped = max((name.counter for name, _ in first if name.counter is not None), default=0)
            last[:] = first + [
                (replace(name, counter=name.counter + dumped + 1), file)
                if name.counter is not None
                else (name, file)
                for name, file in last
            ]


def _modules(
    directory: Path,
    number: int,
    members: list[NamedFile],
    make_module: Callable[..., DumpedModule],
    problems: dict[str, None],
) -> Iterator[DumpedModule]:
    """Yield usually one module; several if processes wrote their dumps into one directory."""
    by_name: dict[str, list[NamedFile]] = defaultdict(list)
    shared: list[NamedFile] = []
    for name, file in members:
        if name.module is None:
            shared.append((name, file))
        else:
            by_name[name.module].append((name, file))
    for module_name, files in by_name.items():
        runs = _split_runs(files + shared, problems)
        for run, files_of_run in runs.items():
            own_stages = find_own_stages(module_name, directory, _stages(files_of_run))
            sides: dict[Role, list[NamedFile]] = defaultdict(list)
            for name, file in files_of_run:
                if name.role not in (Role.STAGE, Role.STAGE_PROTO):
                    sides[name.role].append((name, file))
            own_sides, foreign = find_own_files(sides, own_stages)
            problems.update(
                dict.fromkeys([own_stages.problem] * bool(own_stages.problem) + foreign)
            )
            yield make_module(
                number=number,
                name=module_name,
                run=run if len(runs) > 1 else None,
                directory=directory,
                stages=tuple(with_makers(own_stages.stages)),
                signature=own_stages.signature,
                files=own_sides,
            )


def _split_runs(files: list[NamedFile], problems: dict[str, None]) -> dict[str, list[NamedFile]]:
    """Return the files of each run that left stages, by the timestamp in their names, the oldest
    run first.

    The compiler leaves the timestamp out of some names, such as that of the flags: these files are
    of the last run, which replaced those of the others. If that has the same stages, files without
    a timestamp are a run of their own. Records of decisions may come from a run without stages.
    """
    by_run: dict[str, list[NamedFile]] = defaultdict(list)
    stages: dict[str, set[object]] = defaultdict(set)
    for name, file in files:
        by_run[name.run].append((name, file))
        if name.role in (Role.STAGE, Role.STAGE_PROTO):
            stages[name.run].add((name.counter, name.label))
    runs = sorted(stages, key=lambda run: (len(run), run))
    if not runs:
        return {}
    later_runs = sorted(by_run.keys() - stages.keys(), key=lambda run: (len(run), run))
    if len(runs) > 1 and not stages.get("", set()) & stages[runs[-1]]:
        by_run[runs[-1]] += by_run.pop("", [])
        runs = [run for run in runs if run]
    elif runs == [""] and later_runs:
        by_run[""] += by_run[later_runs.pop()]
    elif "" in later_runs:
        by_run[runs[-1]] += by_run[""]
    for name, file in (named_file for run in later_runs if run for named_file in by_run[run]):
        if name.role is Role.FUSION_EXPLORER:
            by_run[runs[-1]].append((name, file))
        elif name.module is not None:  # otherwise of another module of that number
            problems.setdefault(f"{file}: by its timestamp of another run than the stages: ignored")
    return {run: by_run[run] for run in runs}


def _stages(files: list[NamedFile]) -> tuple[Stage, ...]:
    texts: dict[str, NamedFile] = {}
    protos: dict[str, NamedFile] = {}
    for name, file in files:
        key = f"{name.counter}.{name.label}"
        if name.role is Role.STAGE:
            texts[key] = (name, file)
        elif name.role is Role.STAGE_PROTO:
            protos[key] = (name, file)
    stages = (
        Stage(
            (texts.get(key) or protos[key])[0],
            texts[key][1] if key in texts else None,
            protos[key][1] if key in protos else None,
        )
        for key in texts | protos
    )
    return tuple(sorted(stages, key=lambda stage: stage.order))


def _single(file: DumpFile, make_module: Callable[..., DumpedModule]) -> DumpedModule:
    """Return one file, whatever its name, as a dump of one stage."""
    start = file.read()[:4096]
    if not start.strip():
        raise UnusableInput("empty, expected HLO text", file=str(file), hint=HOW_TO_DUMP)
    name = FileName(role=Role.STAGE, module_id=0, module=file.name, label=file.name)
    stage = Stage(name, None, file) if file.name.endswith(".pb") else Stage(name, file)
    if stage.text is not None and b"\0" in start:
        raise UnusableInput(
            "binary, expected HLO text or a directory of dumps", file=str(file), hint=HOW_TO_DUMP
        )
    module = make_module(
        number=0,
        name=file.name,
        run=None,
        directory=file.path.parent,
        stages=(stage,),
        signature=None,
        files={},
    )
    return replace(module, name=module.read(stage).name)
