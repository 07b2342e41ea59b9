"""Runs one program as the compiler makes it, alone or beside what plans make of it, several
programs in turns, or a sketch of a program beside it, in a process of its own.

    PYTHON runner.py REQUEST RESULT

``REQUEST`` is JSON that ``running.py``, ``alone.py``, ``racing.py`` or ``sketch/checking.py``
writes; what came of it goes as JSON to ``RESULT``, after each step, since a plan may end the
process. Like ``capture/child.py``, whose functions it uses, it runs under any Python that has jax,
and imports nothing of fusionscope.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
import zipfile
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any

_LONG_S = 5.0  # a compilation that is repeated only once beside several other programs
_SEVERAL = 4
_HERE = {"is_here": True}
_LARGEST_INTEGER = 8  # of random inputs: small enough for indices and counts of most programs


def _load_child() -> Any:
    path = Path(__file__).parents[1] / "capture" / "child.py"
    spec = importlib.util.spec_from_file_location("fusionscope_child", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


child = _load_child()
measuring = child.load(Path(__file__).with_name("measuring.py"))
bandwidth = child.load(Path(__file__).with_name("bandwidth.py"))


def main() -> None:
    child.end_with_parent()
    request = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    result = Path(sys.argv[2])
    reply: dict[str, Any] = {"step": "", "problem": "", "times": []}
    try:
        if "programs" in request:
            _race(request, reply)
        elif "moved" in request:
            _time_alone(request, reply)
        elif "sketch" in request:
            _compare_sketch(request, reply)
        else:
            _compare_plans(request, reply, result)
    except child.Unusable as problem:
        reply |= {"problem": str(problem), "is_unusable": True}
    except Exception as error:
        reply["problem"] = f"{type(error).__name__}: {error}"
    _tell(reply, result)


def _tell(reply: dict[str, Any], result: Path) -> None:
    result.write_text(json.dumps(reply), encoding="utf-8")


def _prepare(device: dict[str, Any], programs: Sequence[dict[str, Any]]) -> Any:
    """Return the device to run on. Raises ``child.Unusable`` if it does not take plans, and one of
    ``programs`` has one.
    """
    import jax

    jax.config.update("jax_enable_x64", True)  # inputs keep their types
    (place,) = child.find_devices(device, 1)
    _prepare_library()
    injected = next((program for program in programs if program["put"]), None)
    if injected is not None:
        with _context():
            child.require_hook(device, place, injected["flags"])
    return place


def _context() -> Any:
    from jax._src.interpreters import mlir

    return mlir.make_ir_context()


def _race(request: dict[str, Any], reply: dict[str, Any]) -> None:
    device = request["device"]
    place = _prepare(device, request["programs"])
    reply["compile_s"] = []
    programs = []
    for program in request["programs"]:
        text = program["text"]
        inputs = _find_inputs(text, program["inputs"], 0)
        begin = time.perf_counter()
        first = _make(text, place, inputs, program, device["platform"])
        reply["compile_s"].append(time.perf_counter() - begin)
        count = len(request["programs"])
        programs.append(_copies(first, text, place, inputs, program, device["platform"], count))
    for copies in programs:
        for copy in copies:
            copy.run()
    expected = programs[0][0].run()
    reply["numbers"] = [_compare_alike(expected, copies[0].run()) for copies in programs]
    _take_times(programs, request, reply)
    requested = request["programs"]
    reply["not_profiled"] = _record_profiles([copies[0] for copies in programs], requested)


def _time_alone(request: dict[str, Any], reply: dict[str, Any]) -> None:
    """Take the time of the program as the compiler makes it, and the bandwidth for its bytes."""
    place, text = _prepare(request["device"], ()), request["program"]
    inputs = _find_inputs(text, request["inputs"], 0)
    executable = Executable(text, place, inputs)
    executable.run()
    reply["bandwidth"] = bandwidth.bandwidth(request["moved"])
    _take_times([[executable]], request, reply)


def _compare_alike(
    expected: list[Any], results: list[Any], reference: list[Any] | None = None
) -> list[Any]:
    """Return the same as ``_compare``, or nothing if the programs have different results."""
    if [(array.shape, array.dtype) for array in expected] != [(e.shape, e.dtype) for e in results]:
        return []
    return _compare(expected, results, reference)


def _compare_sketch(request: dict[str, Any], reply: dict[str, Any]) -> None:
    """Compare the two functions of a sketch, which fusionscope has written, with the program."""
    import jax

    place, text = _prepare(request["device"], ()), request["program"]
    inputs = _find_inputs(text, request["inputs"], 0)
    expected = Executable(text, place, inputs).run()
    namespace: dict[str, Any] = {"__name__": "sketch"}
    exec(compile(request["sketch"], "sketch.py", "exec"), namespace)
    for name, options in (("reference", {}), ("one_kernel", {"interpret": True})):
        results = jax.jit(partial(namespace[name], **options))(*inputs)
        reply[name] = _compare_alike(expected, jax.device_get(results))


def _compare_plans(request: dict[str, Any], reply: dict[str, Any], result: Path) -> None:
    text, device = request["program"], request["device"]
    place = _prepare(device, request["executables"])
    reply |= {"problems": [], "numbers": []}

    def step(words: str) -> None:
        reply["step"] = words
        _tell(reply, result)

    step("running the baseline")
    first, *variants = request["executables"]
    inputs = _find_inputs(text, request["inputs"], request["seed"])
    baseline = _make(text, place, inputs, first, device["platform"])
    expected = baseline.run()

    @cache
    def find_reference() -> list[Any] | None:
        """Only if results differ: to compile it, without fusion, may take longer than all else."""
        return _run_in_64_bits(request["reference"], place, inputs, request["reference_flags"])

    count = len(request["executables"])
    # With a strict limit, long runs are timed in one copy of each program.
    runs_s = measuring.COPIES * count * baseline.run_s
    most = 1 if request["is_strict"] and runs_s > request["seconds"] else measuring.COPIES
    programs = [_copies(baseline, text, place, inputs, first, device["platform"], count, most)]
    for number, variant in enumerate(variants):
        step(f"running variant {number}")
        try:
            own_text = variant["text"] or text
            own_inputs = _converted(inputs, own_text) if variant["text"] else inputs
            executable = _make(own_text, place, own_inputs, variant, device["platform"])
            results = executable.run()
            reference = None
            if not all(map(_is_same, expected, results)):
                step("running the program in 64 bits")
                reference = find_reference()
                step(f"running variant {number}")
            reply["numbers"].append(_compare(expected, results, reference))
            reply["problems"].append("")
            copies = _copies(
                executable, own_text, place, own_inputs, variant, device["platform"], count, most
            )
            programs.append(copies)
        except Exception as error:
            reply["numbers"].append([])
            reply["problems"].append(f"{type(error).__name__}: {error}")
    step("timing")
    _take_times(programs, request, reply)
    step("recording profiles")
    requested = [first, *(v for v, why in zip(variants, reply["problems"], strict=True) if not why)]
    reply["not_profiled"] = _record_profiles([copies[0] for copies in programs], requested)


def _run_in_64_bits(
    text: str | None, place: Any, inputs: Sequence[Any], flags: Sequence[str]
) -> list[Any] | None:
    """Return the results of a program in 64 bits, None if it cannot be computed so."""
    if not text:
        return None
    try:
        return Executable(text, place, [_widened(source) for source in inputs], flags).run()
    except Exception:
        return None


def _copies(
    first: Executable,
    text: str,
    place: Any,
    inputs: Sequence[Any],
    variant_request: dict[str, Any],
    platform: str,
    programs: int,
    most: int = measuring.COPIES,
) -> list[Executable]:
    """Return ``first`` and further compilations of its program, which is one of ``programs``: at
    most ``most`` in all.
    """
    is_cheap = first.compile_s < _LONG_S or programs < _SEVERAL
    count = most if is_cheap else min(most, 2)
    more = (_make(text, place, inputs, variant_request, platform) for _ in range(count - 1))
    return [first, *more]


def _take_times(
    programs: Sequence[Sequence[Executable]], request: dict[str, Any], reply: dict[str, Any]
) -> None:
    """Compare the times of ``programs`` with those of the first."""
    seconds, is_strict = request["seconds"], request["is_strict"]
    with child.threads.threads_apart() as place_threads:
        times = measuring.time_in_turns(programs, seconds, place_threads, is_strict=is_strict)
    reply["times"] = [asdict(times_of_program) for times_of_program in times]
    reply["executed"] = [copies[0].executed for copies in programs]


def _record_profiles(programs: Sequence[Executable], requested: Sequence[dict[str, Any]]) -> str:
    """Record runs where ``requested`` names a directory. Return why that failed, or nothing."""
    try:
        for program, program_request in zip(programs, requested, strict=True):
            if not program_request["profile"]:
                continue
            with child.profiling(Path(program_request["profile"])) as place_threads:
                for _ in range(child.PROFILED_RUNS):
                    place_threads()
                    program.time(1)
            Path(program_request["executed"]).write_text(program.executed, encoding="utf-8")
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _make(
    text: str, place: Any, inputs: Sequence[Any], variant_request: dict[str, Any], platform: str
) -> Executable:
    """Return the program with the requested flags and, if there is one, an injected plan."""
    if not variant_request["put"]:
        return Executable(text, place, inputs, variant_request["flags"])
    transform = child.hook.replace_module(_module_name(text), variant_request["put"])
    with child.hook.hooked(transform, platform):
        return Executable(text, place, inputs, variant_request["flags"])


def _module_name(text: str) -> str:
    """Return the name that the hook sees."""
    return str(child.hook.bindings().hlo_module_from_text(text).name)


def _prepare_library() -> None:
    """Prepare the LAPACK functions, as jax does when it emits calls to them."""
    try:
        from jaxlib.cpu import _lapack
    except ImportError:
        return
    _lapack.initialize()


class Executable:
    """A program, compiled for ``place``, and its inputs there."""

    def __init__(
        self,
        text: str,
        place: Any,
        inputs: Sequence[Any],
        flags: Sequence[str] = (),
    ) -> None:
        with _context():
            module = child.parse_module(text.encode(), "hlo")
            begin = time.perf_counter()
            self._loaded = child.compile_module(module, _HERE, [place], flags=flags)
            self.compile_s = time.perf_counter() - begin
        self._place = place
        self._inputs = inputs
        self._layouts = child.entry_layouts(text)[0] or [""] * len(inputs)
        self._keeps_inputs = "input_output_alias" not in text and "buffer_donor" not in text
        self._arrays: list[Any] = []
        self.run_s = 0.0  # of the last run

    @property
    def executed(self) -> str:
        """The text of the executed module, empty if the device does not show it."""
        try:
            return "".join(module.to_string() for module in self._loaded.hlo_modules())
        except Exception:
            return ""

    def prepare(self) -> None:
        """Provide new inputs for a program that overwrites them."""
        import jax

        if not self._arrays or not self._keeps_inputs:
            self._arrays = [jax.device_put(source, self._place) for source in self._inputs]
            if not self._keeps_inputs:  # a program copies what shares memory with an array of numpy
                self._arrays = [array.copy() for array in self._arrays]
            self._arrays = [
                _with_layout(array, layout, self._place)
                for array, layout in zip(self._arrays, self._layouts, strict=True)
            ]
            jax.block_until_ready(self._arrays)

    def start(self) -> Any:
        results = self._loaded.execute_sharded(self._arrays)
        return results.disassemble_into_single_device_arrays()

    def run(self) -> list[Any]:
        """Return the results, as numpy arrays."""
        import numpy

        self.prepare()
        begin = time.perf_counter()
        results = [numpy.asarray(shards[0]) for shards in self.start()]
        self.run_s = time.perf_counter() - begin
        return results

    def time(self, repeats: int) -> int:
        """Return the ns of ``repeats`` runs, or of one if each needs new inputs."""
        import jax

        self.prepare()
        begin = time.perf_counter_ns()
        for _ in range(repeats):
            results = self.start()
        jax.block_until_ready(results)
        return time.perf_counter_ns() - begin

    @property
    def may_repeat(self) -> bool:
        return self._keeps_inputs


def _with_layout(array: Any, layout: str, place: Any) -> Any:
    """Return an array with its dimensions in this order, as ``child.entry_layouts`` writes it."""
    import jax
    from jax.experimental import layout as layouts
    from jax.sharding import SingleDeviceSharding

    if not layout.startswith("{"):
        return array
    order = tuple(map(int, reversed(layout.strip("{}").split(","))))
    format_class = getattr(layouts, "Format", layouts.Layout)  # since jax 0.6
    layout_class = getattr(layouts, "DeviceLocalLayout", layouts.Layout)  # up to jax 0.6
    return jax.device_put(array, format_class(layout_class(order), SingleDeviceSharding(place)))


def _find_inputs(text: str, request: dict[str, Any], seed: int) -> list[Any]:
    """Return the inputs in a file, an .npz, in its order, or else random ones."""
    import numpy

    shapes = _parameter_shapes(text)
    file = request["file"]
    if file is None:
        generator = numpy.random.default_rng(seed)
        return [
            _random(generator, array.numpy_dtype(), array.dimensions(), domain)
            for array, domain in zip(shapes, request["domains"], strict=True)
        ]
    arrays = load_arrays(file, [shape.numpy_dtype() for shape in shapes])
    expected = [f"{shape.numpy_dtype()}{list(shape.dimensions())}" for shape in shapes]
    descriptions = [f"{array.dtype}{list(array.shape)}" for array in arrays]
    if expected != descriptions:
        raise child.Unusable(
            f"{file} holds {', '.join(descriptions) or 'nothing'}, expected {', '.join(expected)}"
        )
    return arrays


def _parameter_shapes(text: str) -> list[Any]:
    bindings = child.hook.bindings()
    module = bindings.hlo_module_from_text(text)
    computation = bindings.XlaComputation(module.as_serialized_hlo_module_proto())
    return list(computation.program_shape().parameter_shapes())


def _converted(inputs: Sequence[Any], text: str) -> list[Any]:
    """Return the inputs in the types that a program has for them."""
    shapes = _parameter_shapes(text)
    return [array.astype(shape.numpy_dtype()) for array, shape in zip(inputs, shapes, strict=True)]


def load_arrays(file: str, dtypes: Sequence[Any]) -> list[Any]:
    """Read an .npz. It stores types that numpy lacks, such as bfloat16, as bytes: ``dtypes`` say
    what these are.
    """
    import numpy

    try:
        with numpy.load(file) as stored:
            arrays = [stored[name] for name in stored.files]
    except OSError as error:
        raise child.Unusable(f"{file}: cannot be read: {error.strerror or error}") from None
    except (AttributeError, EOFError, TypeError, ValueError, zipfile.BadZipFile):
        raise child.Unusable(f"{file}: cannot be read, expected an .npz of plain arrays") from None
    dtypes_of_arrays = [
        *map(numpy.dtype, dtypes),
        *[array.dtype for array in arrays[len(dtypes) :]],
    ]
    return [
        array.view(dtype) if array.dtype.kind == dtype.kind == "V" else array
        for array, dtype in zip(arrays, dtypes_of_arrays, strict=False)
    ]


def _random(generator: Any, dtype: Any, dimensions: Sequence[int], domain: dict[str, Any]) -> Any:
    """Return random numbers from the ``domain`` that ``inputs.py`` describes."""
    import numpy

    kind = numpy.dtype(dtype).kind
    if kind == "b":
        return generator.integers(0, 2, dimensions).astype(dtype)
    if kind in "iu":
        low, below = int(domain["is_positive"]), domain["below"] or _LARGEST_INTEGER
        return generator.integers(min(low, below - 1), below, dimensions).astype(dtype)
    numbers = generator.standard_normal(dimensions)
    if kind == "c":
        numbers = numbers + 1j * generator.standard_normal(dimensions)
    elif domain["is_definite"] and dimensions[-2:-1] == dimensions[-1:]:
        numbers = numbers @ numpy.swapaxes(numbers, -1, -2) + dimensions[-1] * numpy.eye(
            dimensions[-1]
        )
    elif domain["below"] is not None:
        numbers = generator.integers(0, domain["below"], dimensions)
    elif domain["is_unit"]:
        numbers = generator.uniform(0.05, 0.95, dimensions)
    elif domain["is_positive"]:
        numbers = numpy.exp(numbers / 2)
    return numpy.asarray(numbers).astype(dtype)


def _is_float(dtype: Any) -> bool:
    from jax import numpy as jnp

    return bool(jnp.issubdtype(dtype, jnp.inexact))


def _widened(array: Any) -> Any:
    if not _is_float(array.dtype):
        return array
    return array.astype("complex128" if array.dtype.kind == "c" else "float64")


def _compare(expected: list[Any], results: list[Any], reference: list[Any] | None) -> list[Any]:
    """Return for each result whether it is bitwise equal. For floating point numbers, also return
    the distance from the expected result and, if they differ, of both from the reference, as shares
    of the largest magnitude.
    """
    import numpy
    from jax import numpy as jnp

    facts_of_results = []
    for index, (expected_array, array) in enumerate(zip(expected, results, strict=True)):
        is_equal = _is_same(expected_array, array)
        facts: dict[str, Any] = {"is_equal": is_equal, "dtype": str(expected_array.dtype)}
        facts["elements"] = int(expected_array.size)
        if expected_array.size and _is_float(expected_array.dtype):
            facts["epsilon"] = float(jnp.finfo(expected_array.dtype).eps)
            facts["difference"] = _distance(expected_array, array)
            wide = None if reference is None or is_equal else reference[index]
            if wide is not None and wide.shape == expected_array.shape:
                facts["baseline_error"] = _distance(wide, expected_array)
                facts["variant_error"] = _distance(wide, array)
        elif expected_array.size:
            facts["difference"] = float(numpy.mean(expected_array != array))
        facts_of_results.append(facts)
    return facts_of_results


def _is_same(first: Any, second: Any) -> bool:
    """Return whether two arrays are bitwise equal."""
    return bool(first.tobytes() == second.tobytes())


def _distance(true: Any, array: Any) -> float | None:
    """Return None if only one of them is a number, or they have different infinities."""
    import numpy

    true_values, values = _widened(true), _widened(array)
    is_finite = numpy.isfinite(true_values)
    if not numpy.array_equal(is_finite, numpy.isfinite(values)):
        return None
    is_special = ~is_finite
    if not numpy.array_equal(true_values[is_special], values[is_special], equal_nan=True):
        return None
    true_values, values = true_values[is_finite], values[is_finite]
    if not true_values.size:
        return 0.0
    scale = float(numpy.max(numpy.abs(true_values)))
    distance = float(numpy.max(numpy.abs(true_values - values)))
    return distance / scale if scale else distance


if __name__ == "__main__":
    main()
