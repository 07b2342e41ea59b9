"""Compiles one program, in a process of its own: XLA reads its flags once, and may die.

    PYTHON child.py REQUEST RESULT

``REQUEST`` is JSON that ``capture.py`` writes; what was compiled, and by what, goes as JSON to
``RESULT``. Without a program, these are the versions, and the devices that jax finds. Any Python
that has jax can run it: of fusionscope, it imports only ``hook.py``, ``threads.py`` and
``vmem.py``, which are like it.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import importlib.metadata
import importlib.util
import inspect
import json
import math
import os
import platform
import re
import signal
import subprocess
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

_PACKAGES = (
    "jax",
    "jaxlib",
    "jax-cuda12-plugin",
    "jax-cuda13-plugin",
    "jax-rocm7-plugin",
    "libtpu",
    "torch",
    "torchax",
)
_DTYPES = {"pred": "bool", "bf16": "bfloat16", "f8e4m3fn": "float8_e4m3fn"}
_KINDS = {"s": "int", "u": "uint", "f": "float", "c": "complex"}
_INSTALLED = ("site-packages", "dist-packages")
_NUMPY_TYPE = re.compile(r"(bool|bfloat|float|complex|uint|int)(\d*)(_\w+)?")
_HLO_KINDS = {
    "bool": "pred",
    "bfloat": "bf",
    "float": "f",
    "complex": "c",
    "uint": "u",
    "int": "s",
}
_XLA_FLAGS, _PTX = "XLA_FLAGS", "--xla_dump_emitter_re=ptx"
_AXIS = re.compile(r'"[^"]*"=(\d+)')
_OTHER_DEVICES = re.compile("incompatible devices|does not match memory kind")
_TRACEBACK = "Traceback (most recent call last)"
_NO_MEMORY = re.compile("Could not find memory addressable by device")
_HERE = (
    "the program names devices of this machine, in a mesh or a sharding, so it cannot be compiled "
    "for {device}, which is not here; dump it where the devices are"
)
_PARTITIONS = "mhlo.num_partitions"
_MORE_DEVICES = (
    "a mesh of N devices that are present, as with "
    "XLA_FLAGS=--xla_force_host_platform_device_count=N for a CPU, is compiled for N"
)
_WARM_UPS, PROFILED_RUNS = 2, 5  # of a program that is profiled
_LATE_S = 0.05
_BETWEEN_S = 1.0  # two looks for the parent
_TILINGS = "result_tilings"
_BROADCAST, _RESHAPE = "stablehlo.broadcast_in_dim", "stablehlo.reshape"
_DIMENSIONS = "broadcast_dimensions"
# Of HLO, and of StableHLO.
_SYNTAX = (
    re.compile(
        r"was parsing (?P<line>\d+):(?P<column>\d+): error: (?P<problem>.*)(?:\n(?P<source>.*))?"
    ),
    re.compile(r'error: "[^"]*":(?P<line>\d+):(?P<column>\d+): (?P<problem>.*)(?P<source>)'),
)
_ILLEGAL = re.compile(r"failed to legalize operation '(mhlo\.\w+)'")
_LAYOUT = "mhlo.layout_mode"
_ENTRY_LAYOUT = re.compile(r"entry_computation_layout=\{\((.*?)\)->(.*?)\}(?=, \w+=|$)")
_SHAPE = re.compile(r"[a-z]\w*\[([^\]]*)\](\{[^}]*\})?")
_TENSOR = re.compile(r"tensor<((?:\d+x)*)([a-z][\w<>]*)>")
_NEWER_FIELDS = re.compile(
    r"^ *(collective_memory_granularity|max_blocks_per_multiprocessor|mem_clock_ghz"
    r"|reserved_shared_memory_per_block).*\n",
    re.MULTILINE,
)
# The fields of a description that jaxlib before 0.10 reads, and the empty blocks of others.
_OLDEST_FIELDS = re.compile(
    r" *((block_dim_limit|registers_per|shared_memory_per|threads_per)_\w+|clock_rate_ghz"
    r"|core_count|device_description_str|device_memory_size|fpus_per_core|gcn_arch_name|l2_cache_size"
    r"|major|memory_bandwidth|minor|platform_name):.*\n| *\w+ \{\n| *\}\n"
)
_EMPTY_BLOCK = re.compile(r" *\w+ \{\n *\}\n")


def load(path: Path) -> Any:
    """Return the module in a file of fusionscope, under a name that no module of a user has."""
    spec = importlib.util.spec_from_file_location(f"fusionscope_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


hook = load(Path(__file__).with_name("hook.py"))
threads = load(Path(__file__).with_name("threads.py"))
vmem = load(Path(__file__).with_name("vmem.py"))


class Unusable(Exception):
    """An error that the user can fix, in one line. Its cause, if any, is one in their program."""


def end_with_parent() -> None:
    """End this process, with those that it started, once its parent is gone.

    A parent that is killed with SIGKILL cannot end its children, which would compute on. The parent
    has put this process at the head of a group of its own.
    """
    if not hasattr(os, "killpg"):
        return
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_BETWEEN_S)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def serve(open_session: Callable[[Any], tuple[dict[str, Any], Callable[[Any], Any]]]) -> None:
    """Answer each line of standard input, a request in JSON, with a line, while there is a parent.

    ``open_session`` takes the first request, and returns its answer and what answers the others.
    If it fails, the next request is the first.
    """
    end_with_parent()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer
    respond: Callable[[Any], Any] | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if respond is None:
                answer, respond = open_session(request)
            else:
                answer = respond(request)
        except Unusable as problem:
            answer = {"problem": str(problem)}
        except Exception as error:
            answer = {"problem": _words(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def main() -> None:
    end_with_parent()
    request = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    result = Path(sys.argv[2])
    reply: dict[str, Any] = {
        "python": platform.python_version(),
        "versions": _versions(),
        "arguments": [],
        "program_flags": "",
        "notes": [],
        "module": "",
        "compile_s": None,
        "problem": "",
        "where": None,
        "traceback": "",
    }
    program = request["program"]
    package = (program["module"] or "").partition(".")[0] if program is not None else ""
    try:
        if program is None:
            _find_present_devices(reply, result)
        else:
            flags, all_flags = request["flags"], os.environ.get(_XLA_FLAGS, "")
            outer = all_flags.removesuffix(flags).strip()
            if request["device"]["platform"] in ("cuda", "gpu"):
                flags = _with_assembly(flags, reply["versions"])
            os.environ[_XLA_FLAGS] = f"{outer} {flags}".strip()
            if program["kind"] == "function":
                _hide_flags(outer, flags)
            _compile(request, reply, result)
    except Unusable as problem:
        reply["problem"] = str(problem)
        if problem.__cause__ is not None:
            _locate(problem.__cause__, package, reply)
    except (Exception, SystemExit) as error:
        reply["problem"] = _words(error)
        _locate(error, package, reply)
    _write(reply, result)


def _with_assembly(flags: str, versions: dict[str, str]) -> str:
    """Return ``flags`` with one that lets the compiler dump PTX, which tells registers and spills.
    Compilers before December 2025 always dump it, and refuse the flag.
    """
    version = tuple(int(part) for part in versions.get("jaxlib", "0").split(".")[:2])
    return f"{_PTX} {flags}" if version >= (0, 9) else flags  # a flag of the user wins


class _Environment(os._Environ):  # type: ignore[type-arg]
    """The environment of a program that may set XLA_FLAGS. It sees those of the user only; the
    compiler also sees ``flags``, which come later and win.
    """

    flags: str

    def __setitem__(self, key: str, value: str) -> None:
        super().__setitem__(key, value)
        if key == _XLA_FLAGS:
            os.putenv(key, f"{value} {self.flags}")

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        if key == _XLA_FLAGS:
            os.putenv(key, self.flags)


def _hide_flags(outer: str, flags: str) -> None:
    """Let the program see the XLA_FLAGS of the user, ``outer``, and the compiler ``flags`` too."""
    environment = os.environ
    environment.__class__ = _Environment
    environment.flags = flags  # type: ignore[attr-defined]
    if outer:
        environment[_XLA_FLAGS] = outer
    else:
        environment.pop(_XLA_FLAGS, None)


def _flags_of_program(outer: str) -> str:
    """Return the flags that the program has set, without those of the user."""
    return os.environ.get(_XLA_FLAGS, "").removeprefix(outer).strip()


def _notes_on_mesh(module: Any) -> Iterator[str]:
    """Yield a line if a sharded program was lowered for one device."""
    meshes = [
        str(operation)
        for operation in module.body.operations
        if operation.operation.name == "sdy.mesh"
    ]
    axes = [[int(size) for size in _AXIS.findall(mesh)] for mesh in meshes]
    attributes = module.operation.attributes
    if not any(axes) or _PARTITIONS not in attributes:
        return
    if not str(attributes[_PARTITIONS]).startswith("1 "):
        return
    count = max(math.prod(sizes) for sizes in axes)
    mesh = "one device" if count == 1 else f"{count} devices"
    yield f"the program is sharded over a mesh of {mesh}, and compiled for one; {_MORE_DEVICES}"


def _words(error: BaseException) -> str:
    """Return the first paragraph, or which kernel of a TPU is too large. jax's further explanations
    are shown with the traceback.
    """
    if problem := vmem.vmem_problem(str(error)):
        return str(problem)
    first = str(error).strip().split("\n\n")[0]
    if _TRACEBACK in first:  # of a callback of the program
        first = first.splitlines()[-1]
    return f"{type(error).__name__}: {' '.join(first.split())}".removesuffix(": ")


def _locate(error: BaseException, package: str, reply: dict[str, Any]) -> None:
    """Add the place in the user's own files where ``error`` was raised, and its traceback."""
    reply["where"] = _innermost(error.__traceback__, package) or reply["where"]
    if isinstance(error, SyntaxError) and error.filename is not None:
        reply["where"] = [error.filename, error.lineno]
    reply["traceback"] = "".join(traceback.format_exception(error))


def _innermost(frames: Any, package: str) -> list[Any] | None:
    """Return file and line of the innermost call in a file of the user, or of ``package``."""
    jax = sys.modules.get("jax")
    foreign = {Path(sysconfig.get_path("stdlib"))}
    foreign |= {Path(jax.__file__).parent} if jax is not None and jax.__file__ else set()
    for frame, line in reversed(list(traceback.walk_tb(frames))):
        path = Path(frame.f_code.co_filename)
        installed = [path.parts.index(folder) for folder in _INSTALLED if folder in path.parts]
        if installed:
            is_own = path.parts[max(installed) + 1] == package
        else:
            is_own = path != Path(__file__) and foreign.isdisjoint(path.parents)
        if is_own and path.is_file():
            return [str(path), line]
    return None


def _write(reply: dict[str, Any], result: Path) -> None:
    result.write_text(json.dumps(reply), encoding="utf-8")


def _versions() -> dict[str, str]:
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _versions_of(modules: set[str]) -> dict[str, str]:
    """Return the versions of those ``modules`` that state one: not of parts, nor of Python."""
    standard = getattr(sys, "stdlib_module_names", ())  # since Python 3.10
    versions = {
        module: getattr(sys.modules[module], "__version__", None)
        for module in modules
        if "." not in module and module[0] != "_" and module not in standard
    }
    return {name: version for name, version in versions.items() if isinstance(version, str)}


def _find_present_devices(reply: dict[str, Any], result: Path) -> None:
    """Add the platform and the kind of each device that jax uses by default, and before that
    whether jax can be imported. ``reply`` is written before each step, which may end the process.
    """
    reply["imports_jax"] = False
    _write(reply, result)
    import jax

    reply["imports_jax"] = True
    _write(reply, result)
    reply["devices"] = [(device.platform, device.device_kind) for device in jax.devices()]


def _compile(request: dict[str, Any], reply: dict[str, Any], result: Path) -> None:
    """Compile the program, which may end the process: ``reply`` is written before."""
    try:
        import jax
    except ImportError as error:
        raise Unusable(f"{sys.executable} has no jax: {error}") from None
    program = request["program"]
    allow_64_bits(program)
    if program["kind"] == "function":
        outer = os.environ.get(_XLA_FLAGS, "")
        of_jax = set(sys.modules)
        function, arguments = _function(program)
        reply["versions"].update(_versions_of(set(sys.modules) - of_jax))
        reply["program_flags"] = _flags_of_program(outer)
        devices = find_devices(request["device"], 1)
        concrete = arguments
        arguments = _described(arguments, devices[0], is_here=request["device"]["is_here"])
        reply["arguments"] = [_shape(leaf) for leaf in jax.tree.leaves(arguments)]
        reply["where"] = _definition(function)
        jitted = function if hasattr(function, "trace") else jax.jit(function)
        # Before 0.5, jax lowers for the devices that are present.
        is_asked = jax.__version_info__ < (0, 5) and not request["device"]["is_here"]
        platforms = (request["device"]["platform"],) if is_asked else None
        if not request["device"]["is_here"]:
            _lower_calls_of_the_host()
        try:
            lowered = jitted.trace(*arguments).lower(lowering_platforms=platforms)
        except ValueError as error:
            if not request["device"]["is_here"] and _OTHER_DEVICES.search(str(error)):
                raise Unusable(_HERE.format(device=request["device"]["name"])) from error
            raise
        if not request["device"]["is_here"]:  # the compiler alone cannot be given any function
            lowered._lowering.compile_args["host_callbacks"] = []
        if request["inputs"]:
            record_inputs(concrete, lowered, Path(request["inputs"]))
        module = lowered.compiler_ir("stablehlo")
        reply["module"] = module_name(module)
        reply["notes"] = list(_notes_on_mesh(module))
        _write(reply, result)
        begin = time.perf_counter()
        try:
            compiled = lowered.compile()
        except ValueError as error:
            # Once the program is compiled, jax 0.8.2 asks the device for its memories.
            if request["device"]["is_here"] or not _NO_MEMORY.search(str(error)):
                raise
        reply["compile_s"] = time.perf_counter() - begin
        if request["profile"]:
            try:
                record_profile(compiled, concrete, Path(request["profile"]))
            except Exception as error:
                raise Unusable(f"was compiled, and cannot be run: {_words(error)}") from error
    else:
        if request["takes_plan"]:
            require_some_hook()
        _compile_module(program, request["device"], request["put"], reply, result)


def allow_64_bits(program: dict[str, Any]) -> None:
    """Let jax keep 64 bits if an argument of the command line has them."""
    import jax

    if any(
        argument["dtype"] in ("s64", "u64", "f64", "c128")
        for argument in program["arguments"] or ()
    ):
        jax.config.update("jax_enable_x64", True)


def _lower_calls_of_the_host() -> None:
    """Let jax lower ``jax.pure_callback`` and the like for a device that is absent: it asks for the
    client of its platform, but needs none to write the call.
    """
    import jax
    from jax._src.interpreters import mlir

    lookup = getattr(mlir.ModuleContext, "get_backend", None)
    if lookup is None:  # an older jax
        return

    def get_backend(context: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return lookup(context, *arguments, **options)
        except RuntimeError:
            return jax.devices("cpu")[0].client

    mlir.ModuleContext.get_backend = get_backend


def _definition(function: Any) -> list[Any] | None:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return None if code is None else [code.co_filename, code.co_firstlineno]


def find_devices(device: dict[str, Any], count: int) -> list[Any]:
    import jax

    name, description = device["name"], device["description"]
    if device["is_here"]:
        if name == "cpu" and count > 1:
            jax.config.update("jax_num_cpu_devices", count)
        try:
            devices = jax.devices("cpu" if name == "cpu" else None)
        except RuntimeError as error:
            raise Unusable(f"no device: {error}") from None
        if name != "cpu" and devices[0].platform != name:
            raise Unusable(f"no {name} is present, jax finds {devices[0].platform}")
        if len(devices) < count:
            raise Unusable(f"the program needs {count} devices, {len(devices)} are present")
        return list(devices[:count])
    from jax.experimental import topologies

    if device["platform"] == "tpu":
        topology = device["topology"]
        is_single = set(topology.partition(":")[2].split("x")) == {"1"}
        # Without these bounds, libtpu 0.0.23 to 0.0.44 expects the four chips of a host.
        options: dict[str, Any] = {"chips_per_host_bounds": (1, 1, 1)} if is_single else {}
        if topology.startswith("v4:"):
            options["chip_config_name"] = "megacore"  # a device is a chip, as where there is one
        description = topologies.get_topology_desc(topology, platform="tpu", **options)
        return list(description.devices[:count])
    if device["platform"] == "rocm":
        _register_rocm()
    return list(
        topologies.get_topology_desc(
            topology_name=name,
            platform=device["platform"],
            target_config=_readable(description),
            topology=f"1x1x{count}",
        ).devices
    )


def _readable(description: str) -> str:
    """Return the description without the fields that this jaxlib rejects."""
    import jax

    if jax.__version_info__ >= (0, 11):
        return description
    if jax.__version_info__ >= (0, 10):
        return _NEWER_FIELDS.sub("", description)
    lines = description.splitlines(keepends=True)
    return _EMPTY_BLOCK.sub("", "".join(filter(_OLDEST_FIELDS.fullmatch, lines)))


def _register_rocm() -> None:
    """Register the ROCm plugin, which does not register itself without such a GPU."""
    import jax_plugins
    from jax._src import xla_bridge

    for place in jax_plugins.__path__:
        for library in Path(place).glob("xla_rocm*/xla_rocm_plugin.so"):
            xla_bridge.register_plugin("rocm", library_path=str(library))


def _function(program: dict[str, Any]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    module = _module(program["module"], program["file"])
    attribute: Any = module
    for part in program["name"].split("."):
        if not hasattr(attribute, part):
            close = difflib.get_close_matches(part, list(vars(attribute)), 3)
            hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
            place = program["module"] or program["file"]
            raise Unusable(f"{place} has no {program['name']}{hint}")
        attribute = getattr(attribute, part)
    arguments = _arguments(program, attribute, module)
    if _is_torch(attribute):
        return _from_torch(attribute, arguments)
    if not callable(attribute):
        raise Unusable(f"{program['name']} is {type(attribute).__name__}, expected a function")
    return attribute, arguments


def _module(name: str | None, file: str | None) -> Any:
    sys.path.insert(0, str(Path.cwd()))
    try:
        if name is not None:
            return importlib.import_module(name)
        assert file is not None
        sys.path.insert(0, str(Path(file).resolve().parent))
        spec = importlib.util.spec_from_file_location(Path(file).stem, file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module
    except (Exception, SystemExit) as error:
        problem = f"cannot be imported: {_words(error)}"
        raise Unusable(f"{name} {problem}" if name is not None else problem) from error


def _arguments(program: dict[str, Any], function: Any, module: Any) -> tuple[Any, ...]:
    """Return the arguments of the command line, or else the example of the function or module."""
    if program["arguments"] is not None:
        import jax

        return tuple(
            jax.ShapeDtypeStruct(tuple(argument["dimensions"]), _dtype(argument["dtype"]))
            for argument in program["arguments"]
        )
    example = getattr(function, "example_args", None) or getattr(module, "example_args", None)
    if callable(example):
        example = example()
    if example is None:
        hint = "give each as --arg 'f32[128,256]', or put example_args next to the function"
        raise Unusable(f"{program['name']}: its arguments are unknown; {hint}")
    return tuple(example) if isinstance(example, (list, tuple)) else (example,)


def _dtype(name: str) -> Any:
    import jax.numpy

    full = _DTYPES.get(name) or name
    if full == name and name[0] in _KINDS and name[1:].isdigit():
        full = _KINDS[name[0]] + name[1:]
    try:
        return jax.numpy.dtype(full)
    except TypeError:
        raise Unusable(f"jax has no element type {name}") from None


def _described(arguments: tuple[Any, ...], device: Any, *, is_here: bool) -> tuple[Any, ...]:
    """Return shapes instead of arrays. A sharding must name a device that is not present."""
    import jax
    from jax.sharding import SingleDeviceSharding

    sharding = None if is_here else SingleDeviceSharding(device)

    def describe(leaf: Any) -> Any:
        array = (
            leaf if hasattr(leaf, "shape") and hasattr(leaf, "dtype") else jax.numpy.asarray(leaf)
        )
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding)

    return tuple(jax.tree.map(describe, argument) for argument in arguments)


def record_inputs(arguments: tuple[Any, ...], lowered: Any, file: Path) -> None:
    """Write the arrays that ``lowered`` takes of ``arguments`` into an .npz, in their order. Raises
    ``Unusable`` if there are only shapes.
    """
    import jax
    import numpy

    leaves = jax.tree.leaves(arguments)
    kept_numbers = lowered._lowering.compile_args.get("kept_var_idx", range(len(leaves)))
    arrays = []
    for number in sorted(kept_numbers):
        leaf = leaves[number] if number < len(leaves) else None
        if leaf is None or isinstance(leaf, jax.ShapeDtypeStruct):
            raise Unusable(
                f"the inputs cannot be recorded: argument {number} has a shape and no values"
            )
        if jax.dtypes.issubdtype(getattr(leaf, "dtype", None), jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        arrays.append(numpy.asarray(jax.numpy.asarray(leaf)))
    expected = list(_parameters(lowered.compiler_ir("stablehlo")))
    shapes_found = [_shape(array) for array in arrays]
    if expected != shapes_found:
        raise Unusable(
            f"the inputs cannot be recorded: the program takes {', '.join(expected)}, and its "
            f"arguments are {', '.join(shapes_found)}"
        )
    numpy.savez(file, *arrays)


def record_profile(compiled: Any, arguments: tuple[Any, ...], directory: Path) -> None:
    """Run ``compiled`` and write what the profiler records of the runs into ``directory``."""
    import jax

    for _ in range(_WARM_UPS):
        jax.block_until_ready(compiled(*fresh(arguments)))
    inputs = [fresh(arguments) for _ in range(PROFILED_RUNS)]
    with profiling(directory) as place_threads:
        for input_arrays in inputs:
            place_threads()
            jax.block_until_ready(compiled(*input_arrays))


def fresh(arguments: tuple[Any, ...]) -> Any:
    """Return new arrays for a run, which may use them up."""
    import jax

    return jax.block_until_ready(jax.tree.map(_array, arguments))


@contextlib.contextmanager
def profiling(directory: Path) -> Iterator[Callable[[], None]]:
    """Record what runs meanwhile into ``directory``. Yield what to call before each run."""
    import jax

    recording = jax.profiler.trace(str(directory), **_without_python())
    with threads.threads_apart(may_move=True) as place_threads, recording:
        yield place_threads
        time.sleep(_LATE_S)  # a thread may record the end of a kernel after its result is there


def _without_python() -> dict[str, Any]:
    """Return the option without which calls of Python fill the trace, if this jax has it."""
    import jax

    if not hasattr(jax.profiler, "ProfileOptions"):
        return {}
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    return {"profiler_options": options}


def _array(leaf: Any) -> Any:
    """Return a new array with the values of an argument. If it has none, they are numbers between
    1/2 and 1, or zeros if it is not of floats.
    """
    import jax
    import numpy

    if not isinstance(leaf, jax.ShapeDtypeStruct):
        return jax.numpy.array(leaf, copy=True)
    if not jax.numpy.issubdtype(leaf.dtype, jax.numpy.floating):
        return jax.numpy.zeros(leaf.shape, leaf.dtype)
    drawn = numpy.random.default_rng(0).uniform(0.5, 1, leaf.shape)
    return jax.numpy.asarray(drawn, leaf.dtype)


def _shape(leaf: Any) -> str:
    """Return the shape in HLO notation."""
    name = str(leaf.dtype)
    if match := _NUMPY_TYPE.fullmatch(name):
        kind, bits, suffix = match.groups(default="")
        name = _HLO_KINDS[kind] + bits + suffix.replace("_", "")
    return f"{name}[{','.join(map(str, leaf.shape))}]"


def _is_torch(function: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(
        function, (torch.nn.Module, torch.export.ExportedProgram)
    )


def _from_torch(
    program: Any, arguments: tuple[Any, ...]
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    import jax
    import torch

    try:
        from torchax.export import exported_program_to_jax
    except ImportError:
        raise Unusable("a torch module needs torchax: pip install torchax") from None

    def tensor(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf
        return torch.zeros(leaf.shape, dtype=getattr(torch, str(leaf.dtype)))

    if isinstance(program, torch.nn.Module):
        program = torch.export.export(program.eval(), tuple(map(tensor, arguments)))
    weights, function = exported_program_to_jax(program)
    inputs = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), weights)
    shapes = tuple(
        jax.ShapeDtypeStruct(array.shape, str(array.dtype).removeprefix("torch."))
        for array in map(tensor, arguments)
    )
    return function, (inputs, shapes)


def _compile_module(
    program: dict[str, Any],
    device: dict[str, Any],
    replacement: str | None,
    reply: dict[str, Any],
    result: Path,
) -> None:
    """Compile StableHLO, or HLO as text or proto."""
    import jax

    if jax.__version_info__ < (0, 5):
        raise Unusable(f"jax {jax.__version__} can only compile functions here, 0.5 modules too")
    from jax._src.interpreters import mlir

    data = Path(program["file"]).read_bytes()
    partitions = program["partitions"]
    devices = find_devices(device, partitions)
    with mlir.make_ir_context():
        try:
            module = parse_module(data, program["kind"])
        except Exception as error:
            reply["where"] = [program["file"], None]
            raise Unusable(_syntax_error(str(error), reply)) from None
        if replacement is not None:
            reply["problem"] = "the compiler crashes on a fusion that its hook returns"
            _write(reply, result)
            require_hook(device, devices[0])
            reply["problem"] = ""
        reply["arguments"] = list(_parameters(module))
        reply["module"] = module_name(module)
        _write(reply, result)
        injecting = contextlib.nullcontext()
        if replacement is not None:
            injecting = hook.hooked(
                hook.replace_module(reply["module"], replacement), device["platform"]
            )
        with injecting:
            begin = time.perf_counter()
            try:
                compile_module(module, device, devices)
            except Unusable:
                reply["module"] = ""  # no compiler received it
                raise
            reply["compile_s"] = time.perf_counter() - begin


def _syntax_error(message: str, reply: dict[str, Any]) -> str:
    """Return the syntax that the compiler rejects, in one line; add its place to ``reply``."""
    match = next(filter(None, (pattern.search(message) for pattern in _SYNTAX)), None)
    if match is None:
        first = message.strip().splitlines()[0]
        return f"the compiler cannot read it: {first}"
    reply["where"][1:] = [int(match["line"]), int(match["column"])]
    source = f", found {match['source'].strip()!r}" if match["source"] else ""
    return f"the compiler cannot read it: {match['problem']}{source}"


def require_some_hook() -> None:
    """Raises ``Unusable`` if no compiler of this jaxlib takes plans."""
    if not hook.is_there():
        raise _taking_no_plans(hook.MISSING)


def require_hook(device: dict[str, Any], place: Any, flags: Sequence[str] = ()) -> None:
    """Raises ``Unusable`` if the compiler does not take plans, as tried with ``flags``."""
    problem = hook.find_problem(
        device["platform"],
        lambda text: compile_module(
            parse_module(text.encode(), "hlo"), device, [place], flags=flags
        ),
        place if device["is_here"] else None,
    )
    if problem:
        raise _taking_no_plans(problem)


def _taking_no_plans(problem: str) -> Unusable:
    import jaxlib

    return Unusable(f"jaxlib {jaxlib.__version__} does not take plans: {problem}")


# As XLA_FLAGS write them: options of one compilation take no such text.
_BOOLEANS = {"true": True, "false": False}
# Prints the compile options of a process; the proto has its XLA_FLAGS once they are read.
_OPTIONS = """
import sys
from jax._src import compiler
options = compiler.get_compile_options(1, int(sys.argv[1]))
options.executable_build_options.debug_options
sys.stdout.buffer.write(options.SerializeAsString())
"""


@cache
def _options(flags: tuple[str, ...], partitions: int) -> bytes:
    """Return the compile options with ``flags``, in the notation of XLA_FLAGS, as a proto. Only the
    compiler reads them as XLA_FLAGS, and it does so once in a process. Raises ``Unusable`` if it
    refuses them.
    """
    environment = os.environ | {"XLA_FLAGS": " ".join([os.environ.get("XLA_FLAGS", ""), *flags])}
    command = [sys.executable, "-c", _OPTIONS, str(partitions)]
    process = subprocess.run(command, env=environment, capture_output=True, check=False)
    if process.returncode:
        lines = process.stderr.decode(errors="replace").split("\n") or [""]
        raise Unusable(f"{' '.join(flags)}: {[line for line in lines if line.strip()][-1]}")
    return process.stdout


def compile_module(
    module: Any,
    device: dict[str, Any],
    places: Sequence[Any],
    *,
    options: dict[str, str] | None = None,
    flags: Sequence[str] = (),
) -> Any:
    """Return the executable of StableHLO for ``places``, which run one partition each, compiled
    with ``flags`` in the notation of XLA_FLAGS, or with ``options``: flags by name that take one
    plain value, which need no further process. Raises ``Unusable`` if the module has operations
    that a plugin cannot receive, or the compiler refuses a flag.
    """
    from jax._src import compiler

    runtime = hook.runtime()
    option_values = {name: _BOOLEANS.get(value, value) for name, value in (options or {}).items()}
    compile_options = compiler.get_compile_options(
        1, len(places), env_options_overrides=option_values
    )
    if flags:
        compile_options = runtime.CompileOptions.ParseFromString(
            _options(tuple(flags), len(places))
        )
    client, devices = places[0].client, runtime.DeviceList(tuple(places))
    compile_for = client.compile
    if device["is_here"] and hasattr(client, "compile_and_load"):  # since jaxlib 0.6
        compile_for = client.compile_and_load
    try:
        try:
            return compile_for(module, devices, compile_options)
        except TypeError:  # jaxlib 0.6 and 0.7 take bytes, and earlier ones no devices
            from jax._src.interpreters import mlir

            data = mlir.module_to_bytecode(module)
            try:
                return compile_for(data, devices, compile_options)
            except TypeError:
                return compile_for(data, compile_options)
    except Exception as error:
        if match := _ILLEGAL.search(str(error)):
            raise Unusable(
                f"StableHLO has no {match[1].partition('.')[2]}, and a plugin takes only StableHLO"
            ) from None
        raise


def parse_module(data: bytes, kind: str) -> Any:
    """Return StableHLO, or HLO as text or proto, as a module that the compiler accepts."""
    from jax._src.lib.mlir import ir

    if kind == "stablehlo":
        module = ir.Module.parse(data)
        _drop_empty_tilings(module)
        return module
    if kind == "hlo":
        text = data.decode()
        data = hook.serialized(text)
    else:
        text = hook.read_module(data).to_string()
    module = ir.Module.parse(_stablehlo(data))
    _drop_empty_tilings(module)
    _join_broadcasts(module)
    _keep_layouts(module, text)
    return module


def _stablehlo(data: bytes) -> Any:
    """Return StableHLO of HLO as a proto."""
    runtime = hook.runtime()
    if hasattr(runtime.mlir, "hlo_to_stablehlo"):  # since jaxlib 0.5.4
        return runtime.mlir.hlo_to_stablehlo(data)
    return runtime.mlir.xla_computation_to_mlir_module(runtime.XlaComputation(data))


def entry_layouts(text: str) -> tuple[list[str], list[str]]:
    """Return the layouts of the arguments and results of an HLO module: dimensions from minor to
    major, such as "{0,1}", "auto" if the compiler is to choose, or "" if they are in order.
    """
    layouts = _ENTRY_LAYOUT.search(text.partition("\n")[0])
    if layouts is None:
        return [], []
    arguments, results = (
        [_layout(*match) for match in _SHAPE.findall(part)] for part in layouts.groups()
    )
    return arguments, results


def _layout(dimensions: str, layout: str) -> str:
    rank = dimensions.count(",") + 1 if dimensions else 0
    if rank < 2:
        return ""  # no other order
    order = layout.strip("{}").partition(":")[0]
    if not order:
        return "auto"
    return "" if order == ",".join(map(str, reversed(range(rank)))) else f"{{{order}}}"


def _keep_layouts(module: Any, text: str) -> None:
    """Give arguments and results the layouts that they have in the HLO ``text``, in jax's form:
    the compiler ignores the form that reading HLO gives them.
    """
    from jax._src.lib.mlir import ir

    (main,) = (
        operation
        for operation in module.body.operations
        if str(operation.attributes["sym_name"]) == '"main"'
    )
    for name, layouts in zip(("arg_attrs", "res_attrs"), entry_layouts(text), strict=True):
        if not any(layouts):
            continue
        old = main.attributes[name] if name in main.attributes else [{}] * len(layouts)
        if len(old) != len(layouts):
            raise Unusable("an argument or the result of the program is a tuple with layouts")
        new = []
        for attributes, layout in zip(old, layouts, strict=True):
            attributes_kept = {attribute.name: attribute.attr for attribute in attributes}
            new.append(
                ir.DictAttr.get(
                    attributes_kept | {_LAYOUT: ir.StringAttr.get(layout)}
                    if layout
                    else attributes_kept
                )
            )
        main.attributes[name] = ir.ArrayAttr.get(new)


def _drop_empty_tilings(module: Any) -> None:
    """Remove the empty tilings that reading HLO gives to custom calls: with them, a module cannot
    be passed to a plugin, which takes an older version of StableHLO.
    """
    from jax._src.lib.mlir import ir

    def drop(operation: Any) -> Any:
        attributes = operation.attributes
        if _TILINGS in attributes and set(str(attributes[_TILINGS])) <= set("[], "):
            del attributes[_TILINGS]
        return ir.WalkResult.ADVANCE

    module.operation.walk(drop)


def _join_broadcasts(module: Any) -> None:
    """Join the three operations of HLO that broadcast dimensions of size 1: a broadcast to the same
    shape, a reshape without these dimensions, and a broadcast of the others.

    StableHLO has one operation for all three. The compiler removes the first when it reads
    StableHLO, and then simplifies the rest differently than in the original program (XLA,
    hlo/builder/xla_builder.cc, AddBroadcastSequence, makes three of one).
    """
    from jax._src.lib.mlir import ir

    def join(operation: Any) -> Any:
        chain = [operation]
        for name in (_BROADCAST, _RESHAPE, _BROADCAST):
            if getattr(chain[-1], "name", "") != name:
                return ir.WalkResult.ADVANCE
            chain.append(chain[-1].operands[0].owner)
        last, _, first, _ = chain
        source, result = first.operands[0], last.results[0]
        every = list(range(len(_sizes(source))))
        sizes = list(zip(_sizes(source), _sizes(result), strict=False))
        places_kept = [place for place, (old, new) in enumerate(sizes) if old == new]
        is_degenerate = (
            first.results[0].type == source.type
            and len(_sizes(result)) == len(every)
            and list(first.attributes[_DIMENSIONS]) == every
            and list(last.attributes[_DIMENSIONS]) == places_kept
            and all(old in (1, new) for old, new in sizes)
        )
        if is_degenerate:
            last.operands[0] = source
            last.attributes[_DIMENSIONS] = ir.DenseI64ArrayAttr.get(every)
        return ir.WalkResult.ADVANCE

    module.operation.walk(join)


def _sizes(value: Any) -> list[int]:
    from jax._src.lib.mlir import ir

    return list(ir.RankedTensorType(value.type).shape)


def module_name(module: Any) -> str:
    return str(module.operation.attributes["sym_name"]).strip('"')


def _parameters(module: Any) -> Iterator[str]:
    for operation in module.body.operations:
        if str(operation.attributes["sym_name"]) == '"main"':
            yield from (_tensor_shape(str(source)) for source in operation.type.inputs)


def _tensor_shape(name: str) -> str:
    """Return the shape in HLO notation; unchanged if it is not an array."""
    match = _TENSOR.fullmatch(name)
    if match is None:
        return name
    dimensions, element = match.groups()
    kind = "pred" if element == "i1" else re.sub(r"^i(?=\d)", "s", element)
    kind = re.sub(r"^ui(?=\d)", "u", kind)
    if pair := re.fullmatch(r"complex<f(\d+)>", kind):
        kind = f"c{2 * int(pair[1])}"
    return f"{kind.lower()}[{','.join(dimensions.split('x')[:-1])}]"


if __name__ == "__main__":
    main()
