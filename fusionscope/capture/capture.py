"""Compiles a program in a child process and leaves its dump in a directory."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fusionscope import __version__
from fusionscope.capture.targets import Program, ProgramKind, Target
from fusionscope.dump.names import CAPTURE_RECORD
from fusionscope.errors import UnusableInput, quoted, shorten
from fusionscope.facts.facts import Facts, to_data
from fusionscope.hlo.shape import ShapeTable
from fusionscope.progress import Progress, silent
from fusionscope.system.files import make_directory, read_text, write_file
from fusionscope.system.processes import run_child

DUMP = "fusionscope-dump"  # the directory, unless another one is named
INPUTS = "fusionscope-inputs.npz"
PROFILE = "fusionscope-profile"
SCHEMA = "fusionscope.capture/1"
_CHILD = Path(__file__).parent / "child.py"
STAGES = (
    "--xla_dump_hlo_as_text",
    "--xla_dump_hlo_pass_re=.*",
    "--xla_dump_module_metadata",
)
_GPU = ("--xla_dump_hlo_as_proto",)  # only protos contain the ids of instructions
_ABSENT = ("--xla_gpu_autotune_level=0",)  # an absent card cannot be timed
# What it chose before can be loaded; the compiler says nothing of what it does not find there.
_LOADS = re.compile(
    "--(xla_gpu_load_autotune_results_from|xla_gpu_per_fusion_autotune_cache_dir)=(.*)"
)
_LOADED = ("--xla_gpu_require_complete_aot_autotune_results=true",)
_NOT_LOADED = "No cached config found for HLO instr"
# Without them, a program cannot be run from its dump.
CONSTANTS = "--xla_dump_large_constants=true"
LATE = "stopped: it took longer than"
CRASHED = "the process crashed"
_FLAG = re.compile(r"--[a-z]\w*(=.*)?")
_OF_LIBTPU = re.compile(r"--xla_(jf|mosaic|msa|sc|tpu|vf)_")  # jaxlib does not know them
_BACKEND_MISSING = re.compile(
    "Unable to initialize backend|not found|topology not implemented|TPU support not installed"
)
# What the compiler's log has before a message: level and date, time, thread, and the place.
_LOGGED = re.compile(r"^[EFIW]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ (\S+)\] ")
_FIRST = ".before_optimizations.txt"
_MODULE = re.compile(rf"module_\d+\.(.+){re.escape(_FIRST)}")
_NUMBER = re.compile(r"\bmodule_(\d+)\.")
_HIGHER_LIMIT = (
    ", or the limit higher: `vmem_limit_bytes` of the kernel, xla_tpu_scoped_vmem_limit_kib of all"
)
# E1000, or of the runtime (xla/error/error_codes.h; older ones have no number).
_MEMORY = re.compile(r"E1000: |E010[01]: |Ran out of memory|[Oo]ut of memory (while|allocating)")
_LIBRARY_MISSING = ("libdevice", "ptxas", "No supported config found")
_NEEDED = {
    "cuda": "pip install jax-cuda13-plugin jax-cuda13-pjrt nvidia-cuda-nvcc nvidia-nvvm",
    "rocm": "pip install jax-rocm7-plugin jax-rocm7-pjrt",
    "tpu": "pip install 'jax[tpu]'",
    "cpu": "pip install jax",
}


class Captured(Facts, frozen=True, kw_only=True):
    """A dump in ``directory``.

    directory: where the dump is
    program: what was compiled, as it was named
    target: the device, as it was named
    flags: XLA flags that were requested, besides those for dumping
    program_flags: the XLA_FLAGS that the program itself sets; empty if it sets none
    notes: how the program was compiled, if that may surprise
    arguments: shapes of the arguments, trees flattened, as HLO writes them
    python: version of the Python that compiled it
    versions: versions of the packages that compiled it, and of those that the program imports
    problem: why the compiler or the run did not finish, in one line; empty if both did
    compile_s: seconds of compiling it and dumping its stages; null if it did not finish
    profile: the directory of the profile of ``--run``; null without one
    """

    directory: Path
    program: str
    target: str
    flags: tuple[str, ...]
    program_flags: str
    notes: tuple[str, ...]
    arguments: tuple[str, ...]
    python: str
    versions: Mapping[str, str]
    problem: str
    compile_s: float | None = None
    profile: Path | None = None

    @property
    def argument_bytes(self) -> int | None:
        """The bytes of all arguments together, or None if one is not an array."""
        shapes = ShapeTable()
        try:
            return sum(shapes[argument].byte_size for argument in self.arguments)
        except UnusableInput:
            return None

    @property
    def has_stages(self) -> bool:
        return any(self.directory.glob("module_*.txt"))


class Captures(Facts, frozen=True, tag_field="schema", tag="fusionscope.capture/1"):
    """Dumps of one program, one for each device.

    captures: one for each device
    """

    captures: tuple[Captured, ...]


def capture(
    program: Program,
    target: Target,
    directory: Path,
    *,
    flags: Sequence[str] = (),
    python: str = sys.executable,
    limit_s: float = 600.0,
    replacement: str | None = None,
    takes_plan: bool = False,
    records_inputs: bool = False,
    runs: bool = False,
    folder: Path | None = None,
) -> Captured:
    """Compile ``program`` for ``target`` and dump every stage into ``directory``, which must be
    empty or new.

    ``flags`` are additional XLA flags, such as ``--xla_gpu_enable_triton_gemm=false``; ``python``
    is an interpreter with jax. ``replacement`` is HLO text that replaces a program from a file
    before scheduling, through the compiler's own hook; ``takes_plan`` requires that hook without
    using it. ``records_inputs`` writes the arrays that a function is called with beside the dump,
    where ``rerun`` finds them. ``runs`` also runs a function on them, and leaves a profile of that
    in the dump. ``folder`` is the one to import from first, by default the current one. If the
    compiler crashes, the result says so. Raises ``UnusableInput`` if there is nothing to compile,
    or no compiler.
    """
    for flag in flags:
        if not _FLAG.fullmatch(flag):
            raise UnusableInput(f"{quoted(flag)} is not a flag, expected --xla_name=value")
    if records_inputs and program.kind is not ProgramKind.FUNCTION:
        raise UnusableInput(
            f"{_words(program)} has no inputs to record, expected a function with example_args"
        )
    if runs:
        _require_runnable(program, target)
    require_empty(directory)
    outer = os.environ.get("XLA_FLAGS", "")
    more = [CONSTANTS] if records_inputs else []
    environment = _environment(target, directory, [*flags, *more])
    reply, code, errors = run_process(
        python,
        _CHILD,
        _request(
            program,
            target,
            environment["XLA_FLAGS"].removeprefix(outer).strip(),
            replacement,
            takes_plan or replacement is not None,
            directory / INPUTS if records_inputs else None,
            directory / PROFILE if runs else None,
        ),
        environment,
        limit_s,
        folder,
    )
    problem = tell_problem(reply, errors, code)
    module = reply.get("module", "")
    _remove_others(directory, module)
    _describe(directory, target)
    if problem and not module:
        raise mistake(problem, reply, target)
    captured = Captured(
        directory=directory,
        program=_words(program),
        target=target.name,
        flags=tuple(flags),
        program_flags=reply.get("program_flags", ""),
        notes=tuple(reply.get("notes", ())),
        arguments=tuple(reply.get("arguments", ())),
        python=reply.get("python", ""),
        versions=reply.get("versions", {}),
        problem=_with_hint(problem, target, directory),
        compile_s=reply.get("compile_s"),
        profile=directory / PROFILE if runs and not problem else None,
    )
    _write_manifest(captured)
    return captured


def run_process(
    python: str,
    script: Path,
    request: Mapping[str, Any],
    environment: dict[str, str],
    limit_s: float,
    folder: Path | None = None,
    progress: Progress = silent,
) -> tuple[dict[str, Any], int, str]:
    """Run a ``script`` of fusionscope under ``python``, in ``folder``, and import from that
    first. Return what it reported, its exit code, and its error stream. ``progress`` receives each
    step that it reports.

    Raises ``UnusableInput`` if there is no such Python.
    """
    with TemporaryDirectory() as scratch:
        request_file, result = Path(scratch) / "request.json", Path(scratch) / "result.json"
        write_file(request_file, json.dumps(request))
        if folder is not None:
            paths = [str(folder), str(folder / "src"), os.environ.get("PYTHONPATH", "")]
            environment |= {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        command = [python, str(script), str(request_file), str(result)]
        ended = run_child(
            command, environment, limit_s, folder, watch=lambda: _report_step(result, progress)
        )
        reply = _answer(result)
    if ended.is_late:
        step = f" ({reply['step']})" if reply.get("step") else ""
        return reply, 1, f"{LATE} {limit_s:g} s{step}"
    if not reply and ended.code == 0:
        raise UnusableInput(
            f"{python} ran without an answer, expected a Python", hint="name one with --python"
        )
    return reply, ended.code, ended.errors


def _report_step(result: Path, progress: Progress) -> None:
    if step := _answer(result).get("step"):
        progress(step)


def _require_runnable(program: Program, target: Target) -> None:
    """Raises ``UnusableInput`` if ``program`` cannot be run on ``target`` here."""
    if program.kind is not ProgramKind.FUNCTION:
        raise UnusableInput(
            f"{_words(program)} cannot be run, expected a function",
            hint="`fusionscope rerun DUMP` runs the program of a dump",
        )
    if not target.is_here:
        raise UnusableInput(
            f"{target.name} is compiled for, and not present: nothing can be run on it",
            hint="leave --run out, or name a device that is present, such as cpu or gpu",
        )


def mistake(problem: str, reply: Mapping[str, Any], target: Target) -> UnusableInput:
    """Return an error with the user's own file and line, if it was raised there."""
    file, line, column = [*(reply.get("where") or ()), None, None, None][:3]
    error = UnusableInput(
        problem,
        file=_beside(file) if file else None,
        line=line,
        column=column,
        hint=_hint(problem, target),
    )
    if reply.get("traceback"):
        error.add_note(reply["traceback"])  # shown by --debug
    return error


def _beside(file: str) -> str:
    """Return a path relative to the current directory, if it is inside."""
    here = Path.cwd()
    return str(Path(file).relative_to(here)) if here in Path(file).parents else file


def _answer(result: Path) -> dict[str, Any]:
    """Return the report of a script, empty if it died before or while writing it."""
    try:
        reply = json.loads(read_text(result))
    except (UnusableInput, ValueError):
        return {}
    return reply if isinstance(reply, dict) else {}


def require_empty(directory: Path) -> None:
    """Make a directory for dumps. Raises ``UnusableInput`` if there is one with other files."""
    make_directory(directory)
    try:
        is_empty = not any(directory.iterdir())
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
        raise UnusableInput(problem, file=str(directory)) from None
    if not is_empty:
        raise UnusableInput(
            "is not empty, and two dumps in one directory cannot be distinguished",
            file=str(directory),
            hint="name another one with --output",
        )


def _remove_others(directory: Path, module: str) -> None:
    """Keep only the last module of that name: computations at import are compiled too."""
    numbers = {
        path: int(match[1])
        for path in directory.iterdir()
        if (match := _NUMBER.search(path.name)) is not None
    }
    last_files = _last_of(
        {path: number for path, number in numbers.items() if _is_of(path, module)}
    )
    # Compilers for two devices count apart: another program may have the same number.
    other_modules = {
        match[1]
        for path in numbers
        if (match := _MODULE.fullmatch(path.name)) and not _is_of(path, module)
    }
    for path, number in numbers.items():
        is_other = any(_is_of(path, other_module) for other_module in other_modules) and not _is_of(
            path, module
        )
        if number in last_files and module and not is_other:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _last_of(numbers: Mapping[Path, int]) -> set[int]:
    """Return the largest number, and the one before if the module begins there: a compiler for TPUs
    may go on with a new module.
    """
    begins = {number for path, number in numbers.items() if path.name.endswith(_FIRST)}
    last = max(numbers.values(), default=None)
    if last is None:
        return set()
    return {last} if last in begins or not begins else {last, max(begins)}


def _is_of(path: Path, module: str) -> bool:
    return f".{module}." in f"{path.name}."


def _describe(directory: Path, target: Target) -> None:
    """Write the target's description, which older compilers do not."""
    if target.platform != "cuda" or target.description is None:
        return
    for stage in directory.glob(f"*{_FIRST}"):
        file = stage.with_name(stage.name.removesuffix(_FIRST) + ".gpu_target_config.pbtxt")
        if not file.exists():
            write_file(file, target.description)


def _request(
    program: Program,
    target: Target,
    flags: str,
    replacement: str | None,
    takes_plan: bool,
    inputs: Path | None,
    profile: Path | None,
) -> dict[str, Any]:
    content: dict[str, Any] = {
        "flags": flags,
        "put": replacement,
        "takes_plan": takes_plan,
        "inputs": str(inputs.resolve()) if inputs is not None else None,
        "profile": str(profile.resolve()) if profile is not None else None,
    }
    return content | request_for(program, target)


def request_for(program: Program, target: Target) -> dict[str, Any]:
    """Return the part of a request that describes the program and its target."""
    content: dict[str, Any] = {
        "program": {**asdict(program), "kind": program.kind.value},
        "device": {**asdict(target), "is_here": target.is_here},
    }
    if program.file is not None:
        content["program"]["file"] = str(program.file.resolve())
    return content


def _environment(target: Target, directory: Path, flags: Sequence[str]) -> dict[str, str]:
    own_flags = [f"--xla_dump_to={directory.resolve()}", *STAGES]
    if target.platform in ("cuda", "rocm", "gpu"):
        own_flags += _GPU
    return environment_without_dump(target, [*own_flags, *flags])


def environment_without_dump(target: Target, flags: Sequence[str]) -> dict[str, str]:
    """Return the environment of a process that compiles for ``target`` with ``flags``."""
    own_flags: tuple[str, ...] = ()
    if target.description is not None:
        own_flags = _LOADED if any(map(_LOADS.match, flags)) else _ABSENT
    flags = [_with_whole_path(flag) for flag in flags]
    of_libtpu = [flag for flag in flags if _OF_LIBTPU.match(flag)]
    of_xla = [*own_flags, *quoted_flags(flag for flag in flags if flag not in of_libtpu)]
    # Computations at import run on the local device.
    return os.environ | {
        "XLA_FLAGS": " ".join([os.environ.get("XLA_FLAGS", ""), *of_xla]).strip(),
        "LIBTPU_INIT_ARGS": " ".join([os.environ.get("LIBTPU_INIT_ARGS", ""), *of_libtpu]).strip(),
        "JAX_PLATFORMS": "" if target.platform == "gpu" else "cpu",
        "JAX_ENABLE_COMPILATION_CACHE": "false",  # a cache hit dumps nothing
        "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
        "TPU_SKIP_MDS_QUERY": "1",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # nothing runs on it, so no lock is needed
    }


def _with_whole_path(flag: str) -> str:
    """Return a flag with its path as the process in another folder needs it. Raises
    ``UnusableInput`` if it loads what is not there.
    """
    loads = _LOADS.fullmatch(flag)
    if loads is None:
        return flag
    path = Path(loads[2])
    if not path.exists():
        raise UnusableInput("there is no such file of autotuning results", file=str(path))
    return f"--{loads[1]}={path.resolve()}"


def quoted_flags(flags: Iterable[str]) -> list[str]:
    """Return flags quoted for XLA_FLAGS. Raises ``UnusableInput`` for a quotation mark in one."""
    return [_quoted(flag) for flag in flags]


def _quoted(flag: str) -> str:
    """Return a flag quoted for XLA_FLAGS, which are separated by spaces."""
    name, equals, value = flag.partition("=")
    if '"' in value:
        raise UnusableInput(f"{shorten(flag)}: XLA takes no quotation mark in a flag")
    return f'{name}="{value}"' if equals else name


def tell_problem(reply: Mapping[str, Any], errors: str, code: int) -> str:
    """Return the problem of a child process in one line, or "" if all went well."""
    if reply.get("problem"):
        return _line(reply["problem"])
    if code == 0:
        return ""
    lines = [_LOGGED.sub(r"\1: ", line.strip()) for line in errors.splitlines() if line.strip()]
    words = next((line for line in lines if "Check failed" in line), lines[-1] if lines else "")
    if code < 0:
        names = {Signal.value: Signal.name for Signal in signal.Signals}
        crashed = f"{CRASHED} with {names.get(-code, f'signal {-code}')}"
        return _line(f"{crashed}: {words}" if words else crashed)
    return _line(words or f"the compiler exited with {code}")


def _line(text: str) -> str:
    return " ".join(text.split())[:500]


def _with_hint(problem: str, target: Target, directory: Path) -> str:
    hint = _hint(problem, target) if problem else None
    if problem and hint is None and _MEMORY.search(problem):
        hint = f"`fusionscope explain {directory} --top 10` shows what is alive at the peak"
    return f"{problem.removesuffix('.')}; {hint}" if hint else problem


def _hint(problem: str, target: Target) -> str | None:
    if "no jax" in problem:
        return f"{_NEEDED['cpu']}, or name one that has it with --python"
    if problem.startswith("out of vector memory"):
        is_limit = "a kernel may take" in problem
        return "make its blocks smaller" + (_HIGHER_LIMIT if is_limit else "")
    if "ptxas too old" in problem:
        return (
            "CUDA's tools no longer generate code for that GPU; all stages up to there are dumped"
        )
    if _NOT_LOADED in problem:
        return (
            "results are loaded for the same program, release and card: its description is the"
            " dump's *.gpu_target_config.pbtxt; those of jaxlib before 0.12 need --flag"
            " xla_gpu_use_new_autotune_cache_format=false"
        )
    if "cuDNN not found" in problem:  # which jax asks for its version; no GPU is needed
        return f"pip install nvidia-cudnn-cu13, beside what compiles for it: {_NEEDED['cuda']}"
    if any(words in problem for words in _LIBRARY_MISSING):
        return f"code for it needs CUDA's own tools: {_NEEDED['cuda']}"
    if _BACKEND_MISSING.search(problem):
        return _NEEDED.get(target.platform)
    return None


def _words(program: Program) -> str:
    if program.kind is ProgramKind.FUNCTION:
        return f"{program.module or program.file}:{program.name}"
    return str(program.file)


def _write_manifest(captured: Captured) -> None:
    own_fields = to_data(captured)
    del own_fields["directory"], own_fields["profile"]  # both are where the manifest is
    content = {"schema": SCHEMA, "fusionscope": __version__, **own_fields}
    text = json.dumps(content, indent=1) + "\n"
    write_file(captured.directory / CAPTURE_RECORD, text)
