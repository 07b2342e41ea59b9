"""Compares the launches by ``explain`` with those that the runtime shows.

The programs (``programs/launches.py``) are compiled and run, as they are and with loops kept out of
functions, and the profiler counts what starts in a run. Of a loop whose steps the compiler does not
know, the profile gives the number, and ``explain`` is asked again with ``--steps``. For GPUs, which
need not be present, the thunks of a dump are what is launched.

Each difference has a kind. Exits with 1 if one has none.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from conformance.findings import Finding, counted, note, problem
from conformance.outcomes import dumps
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.dump.length import Length
from fusionscope.dump.names import Role
from fusionscope.dump.profile import read_profile
from fusionscope.dump.text_proto import parse
from fusionscope.errors import UnusableInput
from fusionscope.explain.analyze_module import analyze_module
from fusionscope.facts.result import ModuleFacts
from fusionscope.findings.measured.find import find_runs
from fusionscope.history.kernels import is_launched, launches_of
from fusionscope.history.thunks import GPU_THUNKS
from fusionscope.hlo import Instruction, Module

_HERE = Path(__file__).resolve().parent
_CONTAINERS = ("call", "conditional", "while")
_CONFIGURATIONS = {
    "as it is": "",
    "loops kept apart": "--xla_disable_hlo_passes=small-while-loop-hoisting",
}
_LATE_S = 0.2  # a thread may record the end of a kernel after its result is there
# Whether a thunk starts something itself. What an asynchronous one contains has no line of its own.
_STARTS = {
    kind.name: not kind.launches.startswith(("nothing", "what it contains")) for kind in GPU_THUNKS
} | {"kAsyncStart": True}
_MODULE = "launched"  # name of the function that is compiled


def record(names: list[str], folder: Path) -> None:
    """Compile and run programs in this process, each into its own folder."""
    import jax

    from conformance.programs.launches import programs

    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    options.host_tracer_level = 2
    for name in names or programs:
        function, arguments = programs[name]

        def launched(*arguments: object, function: object = function) -> object:
            return function(*arguments)  # type: ignore[operator]

        dump = folder / name / "dump"
        compiled = (
            jax.jit(launched)
            .lower(*arguments)
            .compile(
                {
                    "xla_dump_to": str(dump),
                    "xla_dump_hlo_as_text": True,
                    "xla_dump_hlo_pass_re": ".*",
                }
            )
        )
        jax.block_until_ready(compiled(*arguments))
        with jax.profiler.trace(str(folder / name / "profile"), profiler_options=options):
            jax.block_until_ready(compiled(*arguments))
            time.sleep(_LATE_S)


def compare(folder: Path) -> tuple[int, Counter[str], list[str]]:
    """Return the launches of one program by the profile, and the kinds of differences, and the
    differences without a kind.
    """
    dump = open_dump(folder / "dump")
    module = next(module for module in dump.modules if module.name.endswith(_MODULE))
    runs = find_runs(module, read_profile(folder / "profile"))
    final = module.read(module.last)
    started = Counter(span.instruction for span in runs.runs[0].spans)
    facts = analyze_module(module).facts
    steps, uneven = _steps(facts, final, started)
    if steps:
        dump = dump.with_steps(steps)
        module = next(module for module in dump.modules if module.name.endswith(_MODULE))
        facts = analyze_module(module).facts
    expected: Counter[str] = Counter()
    for kernel in facts.kernels:
        expected[kernel.name] += kernel.launches
    instructions = {instruction.name: instruction for instruction in final.walk()}
    kinds: Counter[str] = Counter()
    unknown = []
    for name in expected.keys() | started.keys():
        instruction = instructions[name]
        if expected[name] != started[name] and not _is_container(instruction, expected):
            kind = _kind(instruction, expected[name], started[name], uneven)
            kinds[kind] += 1
            if not kind:
                unknown.append(f"{name}: {expected[name]} by explain, {started[name]} in the run")
    launches = sum(
        count for name, count in started.items() if not _is_container(instructions[name], expected)
    )
    return launches, kinds, unknown


def _is_container(instruction: Instruction, expected: Mapping[str, int]) -> bool:
    return instruction.opcode in _CONTAINERS and not expected[instruction.name]


def _steps(
    facts: ModuleFacts, final: Module, started: Counter[str]
) -> tuple[dict[str, int], set[str]]:
    """Return the steps in the run of loops whose number the compiler does not know, and the names
    of computations of those that take another number each time.
    """
    steps: dict[str, int] = {}
    uneven: set[str] = set()
    loops = {
        instruction.name: instruction
        for instruction in final.walk()
        if instruction.opcode == "while"
    }
    for row in facts.loops:
        if row.length is Length.KNOWN or row.is_function or not started[row.name]:
            continue
        loop = loops[row.name]
        body = next(c for c in loop.called if c.name == loop.attributes["body"].lstrip("%"))
        counts = {
            started[instruction.name]
            for instruction in body.instructions
            if is_launched(instruction)
        }
        times, remainder = divmod(max(counts, default=0), started[row.name])
        steps[row.name] = times
        if remainder:
            uneven.update(row_below.name for row_below in _below(loop))
    return steps, uneven


def _below(caller: Instruction) -> Iterator[Instruction]:
    pending, visited = list(caller.called), set(caller.called)
    while pending:
        for instruction in pending.pop().instructions:
            yield instruction
            pending += (callee for callee in instruction.called if callee not in visited)
            visited.update(instruction.called)


def _kind(instruction: Instruction, expected: int, started: int, uneven: set[str]) -> str:
    """Return why the two differ, empty if nothing explains it."""
    if instruction.name in uneven:
        return "a loop that takes another number of steps each time"
    if _is_in_branch(instruction) and started < expected:
        return "a branch that was not taken, or not each time"
    if instruction.opcode == "sort" and started > expected:
        return "copies of a sort's operands"
    if instruction.opcode in ("partition-id", "replica-id"):
        return "the number of the device"
    return ""


def _is_in_branch(instruction: Instruction) -> bool:
    callers = instruction.computation.module.callers
    pending = [instruction.computation]
    for computation in pending:  # grows on the way
        for caller in callers.get(computation, ()):
            if caller.opcode == "conditional":
                return True
            if caller.computation not in pending:
                pending.append(caller.computation)
    return False


def compare_thunks(module: DumpedModule) -> tuple[int, Counter[str], list[str]]:
    """Compare the launches of a dump for a GPU with the thunks of its final module, in which each
    loop counts once. Return the same as ``compare``.
    """
    final = module.read(module.last)
    started: Counter[str] = Counter()
    for file in module.files[Role.THUNK_METADATA]:
        for entry in parse(file.read(), file.name).messages("thunk_metadata"):
            info = entry.message("thunk_info")
            kind = entry.string("thunk_kind") or ""
            if info is not None and _STARTS.get(kind, True):
                started[info.string("profile_annotation") or ""] += 1
    expected = Counter({kernel.name: 1 for kernel in launches_of(final, "gpu")})
    instructions = {instruction.name: instruction for instruction in final.walk()}
    kinds: Counter[str] = Counter()
    unknown = []
    for name in expected.keys() | started.keys():
        if expected[name] != started[name]:
            kind = _kind_of_thunks(instructions.get(name), expected[name], started[name])
            kinds[kind] += 1
            if not kind:
                unknown.append(f"{name}: {expected[name]} by explain, {started[name]} thunks")
    return sum(started.values()), kinds, unknown


def _kind_of_thunks(instruction: Instruction | None, expected: int, started: int) -> str:
    if instruction is None:
        return ""
    inside = {instruction_below.opcode for instruction_below in _below(instruction)} | {
        instruction.opcode
    }
    if "sort" in inside and started > expected:
        return "copies of a sort's operands, and the stages of its network"
    if "scatter" in inside and started > expected:
        return "copies of a scatter's operands"
    if instruction.opcode == "async-start" and started > expected:
        return "the start beside what it starts"
    return ""


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--only", action="append", default=[], metavar="PROGRAM")
    parser.add_argument("--keep", type=Path, help="keep dumps and profiles here")
    parser.add_argument("--record", type=Path, help=SUPPRESS)
    parser.add_argument("--thunks", type=Path, nargs="+", default=[], metavar="DUMPS")


def findings(options: Namespace) -> Iterator[Finding]:
    if options.record:
        record(options.only, options.record)
        yield note(f"{options.record} is written")
        return
    if options.thunks:
        yield from _of_thunks([dump for root in options.thunks for dump in dumps(root)])
        return
    with TemporaryDirectory() as scratch:
        for words, flags in _CONFIGURATIONS.items():
            folder = (options.keep or Path(scratch)) / words.replace(" ", "-")
            folder.mkdir(parents=True, exist_ok=True)
            command = [options.python, "-m", "conformance", "launches", "--record", str(folder)]
            for name in options.only:
                command += ["--only", name]
            if not any(folder.iterdir()):
                environment = {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
                subprocess.run(command, check=True, env=os.environ | environment)
            programs = sorted(path for path in folder.iterdir() if path.is_dir())
            compared = {program.name: partial(compare, program) for program in programs}
            yield from _of_all(words, compared)


def _of_thunks(paths: Sequence[Path]) -> Iterator[Finding]:
    modules = {
        f"{path} {module.name}": partial(compare_thunks, module)
        for path in paths
        for module in open_dump(path).modules
        if module.files.get(Role.THUNK_METADATA)
    }
    yield from _of_all("dumps for GPUs", modules)


def _of_all(
    words: str, programs: Mapping[str, Callable[[], tuple[int, Counter[str], list[str]]]]
) -> Iterator[Finding]:
    for name, compared in programs.items():
        try:
            launches, kinds, unexplained = compared()
        except UnusableInput as error:
            yield problem(f"{words}: unusable", f"{name}: {error}")
            continue
        yield counted(f"{words}: launches", count=launches)
        yield counted(f"{words}: programs {'that differ' if kinds else 'equal'}")
        for line in unexplained:
            yield problem(f"{words}: without a kind", f"{name}: {line}")
        for kind, count in kinds.items():
            if kind:
                yield counted(f"{words}: kernels: {kind}", f"{name}: {count} x {kind}", count)
