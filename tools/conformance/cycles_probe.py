"""Finds out how many clock cycles the GPU cost model counts for each elementwise operation.

``PATH`` is a Python that has jax and its plugin for that platform; no GPU is needed, only the
libraries that the plugin is linked with. The figures are written to
``fusionscope/gpu/cost/cycles.toml``; with ``--check`` they are compared with those that are
there instead. Prints for each compiler and architecture how many operations were measured, and
which ones never come as far as priority fusion. Fails where compilers differ, where the table says
something else, and where a figure is no whole number. Takes five seconds for each architecture.

How: the record of priority fusion says how long an operation and its consumers take unfused. The
pass runs alone, so that it sees the operations as they are written here, and their consumer is a
reverse, which costs no cycles. The device has one unit at 1 GHz and memory that is as good as
infinitely fast, which leaves the time of the computation: elements · cycles / (flops per ns).
"""

from __future__ import annotations

import os
import subprocess
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from conformance.findings import ROOT, Finding, note, problem
from fusionscope.dump.priority_fusion import Priority, PriorityFusionRecord, read_priority_fusion
from fusionscope.gpu.cost.cycles import cycles_of
from fusionscope.hlo import Instruction, parse

# Opcode and element type of the result.
Key = tuple[str, str]

TABLE = ROOT / "fusionscope/gpu/cost/cycles.toml"

# What a device can be, by platform, and first what no device is. All that the compiler has no
# profile of count as that one does, and need none in the table.
ARCHITECTURES = {
    "cuda": """sm_990 sm_50 sm_52 sm_53 sm_60 sm_61 sm_62 sm_70 sm_72 sm_75 sm_80 sm_86 sm_87 sm_89
        sm_90 sm_100 sm_101 sm_103 sm_110 sm_120 sm_121""".split(),
    "rocm": """gfx000 gfx900 gfx906 gfx908 gfx90a gfx942 gfx950 gfx1030 gfx1100 gfx1101 gfx1200
        gfx1201""".split(),
}

_FLAGS = (
    "--xla_enable_hlo_passes_only=priority-fusion{also} --xla_dump_hlo_pass_re=priority-fusion "
    "--xla_dump_hlo_as_text --xla_gpu_autotune_level=0 --xla_dump_to={directory}"
)
_WHEELS = """
import sys
from importlib.metadata import distributions

for each in distributions():
    if each.name.startswith(f"jax-{sys.argv[1]}") and each.name.endswith("-pjrt"):
        print(each.name, each.version)
"""
# Compiles the module of a file for the device of another one.
_CHILD = """
import pathlib, sys
import jax_plugins
from jax._src import compiler, xla_bridge
from jax._src.interpreters import mlir
from jax.experimental import topologies
from jaxlib import _hlo, _jax
from jaxlib.mlir import ir

platform, *files = sys.argv[1:]
text, target = (open(file).read() for file in files)
if platform == "rocm":  # its plugin does not register itself where there is no such GPU
    for place in jax_plugins.__path__:
        for library in pathlib.Path(place).glob("xla_rocm*/xla_rocm_plugin.so"):
            xla_bridge.register_plugin(platform, library_path=str(library))
topology = topologies.get_topology_desc(
    topology_name="probe", platform=platform, target_config=target, topology="1x1x1"
)
devices = topology.devices[:1]
module = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
with mlir.make_ir_context():
    stable = ir.Module.parse(_jax.mlir.hlo_to_stablehlo(module))
    options = compiler.get_compile_options(1, 1)
    devices[0].client.compile(stable, _jax.DeviceList(tuple(devices)), options)
"""
_DEVICE = """
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472
  threads_per_core_limit: 2048
  core_count: 1
  fpus_per_core: 1
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: 1000000000000000
  l2_cache_size: 52428800
  clock_rate_ghz: 1
  device_memory_size: 84942979072
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  {capability}
}}
platform_name: "{platform}"
"""
_FLOPS_PER_NS = 2  # one unit at 1 GHz: one multiplication with one addition
_LAUNCH_US = 1
_SHAPE = "[1024,1024]"
_ELEMENTS = 1024 * 1024
# The rest of the time, that of the memory, is much less than a cycle.
_TOLERANCE = 0.01

# What most operations of all architectures cost: those that no profile has an entry for.
_ABSENT = 3
_HEADER = """\
# The clock cycles that XLA's GPU cost model counts for an element of the result of an operation, by
# architecture, element type of the result and opcode. The source is what compilers recorded:
# {compilers}.
# Written by tools/conformance/cycles_probe.py, which measures each of them.
#
# absent: for an operation that is not listed. unknown: for an architecture that is not listed."""

FLOATS = tuple("f8e4m3fn f8e5m2 f16 bf16 f32 f64".split())
COMPLEX = ("c64", "c128")
SIGNED = tuple("s4 s8 s16 s32 s64".split())
UNSIGNED = tuple("u4 u8 u16 u32 u64".split())
INTEGERS = (*SIGNED, *UNSIGNED)
NUMBERS = (*INTEGERS, *FLOATS, *COMPLEX)
TYPES = ("pred", *NUMBERS)
ORDERED = ("pred", *INTEGERS, *FLOATS)

# Opcodes whose result has the type of all operands, by the number of operands and these types.
SAME: tuple[tuple[int, tuple[str, ...], str], ...] = (
    (1, (*SIGNED, *FLOATS), "abs"),
    (1, FLOATS, "cbrt ceil erf floor round-nearest-afz round-nearest-even"),
    (1, FLOATS, "acos acosh asin asinh atanh cosh sinh"),
    (
        1,
        (*FLOATS, *COMPLEX),
        """cosine exponential exponential-minus-one log log-plus-one logistic rsqrt sine sqrt tan
        tanh""",
    ),
    (1, INTEGERS, "count-leading-zeros popcnt"),
    (1, NUMBERS, "negate"),
    (1, (*SIGNED, *FLOATS, *COMPLEX), "sign"),
    (1, ("pred", *INTEGERS), "not"),
    (2, NUMBERS, "add divide multiply power subtract"),
    (2, (*INTEGERS, *FLOATS), "remainder"),
    (2, ORDERED, "maximum minimum"),
    (2, ("pred", *INTEGERS), "and or xor"),
    (2, INTEGERS, "shift-left shift-right-arithmetic shift-right-logical"),
    (2, (*FLOATS, *COMPLEX), "atan2"),
    (3, ORDERED, "clamp"),
)


class Operation(NamedTuple):
    """``text`` is that of the instruction, with {0}, {1}, … for operands of these types."""

    opcode: str
    element_type: str
    text: str
    operands: tuple[str, ...]


def operations() -> Iterator[Operation]:
    for count, types, opcodes in SAME:
        places = ", ".join(f"{{{place}}}" for place in range(count))
        for opcode in opcodes.split():
            for element_type in types:
                yield Operation(
                    opcode, element_type, f"{opcode}({places})", (element_type,) * count
                )
    for each in TYPES:
        less = "compare({0}, {1}), direction=" + ("EQ" if each in COMPLEX else "LT")
        yield Operation("compare", "pred", less, (each, each))
        yield Operation("select", each, "select({0}, {1}, {2})", ("pred", each, each))
        for source in ("s32", "f32", "c64"):
            if source != each and (source != "c64" or each in COMPLEX):
                yield Operation("convert", each, "convert({0})", (source,))
    for each in FLOATS:
        yield Operation("is-finite", "pred", "is-finite({0})", (each,))
        rounded = "reduce-precision({0}), exponent_bits=2, mantissa_bits=1"
        yield Operation("reduce-precision", each, rounded, (each,))
    for source, each in ("f32", "s32"), ("s32", "f32"), ("s16", "f16"), ("u8", "s8"):
        yield Operation("bitcast-convert", each, "bitcast-convert({0})", (source,))
    for part, whole in (("f32", "c64"), ("f64", "c128")):
        for opcode in ("abs", "imag", "real"):
            yield Operation(opcode, part, f"{opcode}({{0}})", (whole,))
        yield Operation("complex", whole, "complex({0}, {1})", (part, part))


ASKED = {(each.opcode, each.element_type) for each in operations()}


def description(architecture: str) -> str:
    """The device, with the capability of an architecture; sm_103 is 10.3."""
    if architecture.startswith("gfx"):
        return _DEVICE.format(
            platform="ROCM",
            capability=f'rocm_compute_capability {{ gcn_arch_name: "{architecture}" }}',
        )
    major, minor = divmod(int(architecture.removeprefix("sm_")), 10)
    capability = f"cuda_compute_capability {{ major: {major} minor: {minor} }}"
    return _DEVICE.format(platform="CUDA", capability=capability)


def module(name: str, lines: list[str], results: list[str]) -> str:
    body = "\n".join([*lines, f"  ROOT results = tuple({', '.join(results)})"])
    return f"HloModule {name}\n\nENTRY main {{\n{body}\n}}\n"


def module_of_all() -> str:
    """A module that applies each operation to parameters of its own types, then a reverse."""
    parameters: dict[str, str] = {}
    lines: list[str] = []
    results: list[str] = []
    for number, operation in enumerate(operations()):
        names = []
        for place, element_type in enumerate(operation.operands):
            shape = element_type + _SHAPE
            # Operands of one type are different ones: some operations on equals are simplified.
            name = f"{element_type}_{place}"
            parameters.setdefault(name, f"{name} = {shape} parameter({len(parameters)})")
            names.append(name)
        result = operation.element_type + _SHAPE
        lines.append(f"  operation_{number} = {result} {operation.text.format(*names)}")
        lines.append(f"  reverse_{number} = {result} reverse(operation_{number}), dimensions={{0}}")
        results.append(f"reverse_{number}")
    return module("all", [*(f"  {line}" for line in parameters.values()), *lines], results)


def module_of_rewritten() -> str:
    """A module whose rewriting leaves the exponential and the square root of complex numbers.

    Written as they are, these are expanded before the first pass.
    """
    parameters: list[str] = []
    lines: list[str] = []
    results: list[str] = []
    for element_type in COMPLEX:
        shape = element_type + _SHAPE
        for name in (f"p_{element_type}", f"q_{element_type}"):
            parameters.append(f"  {name} = {shape} parameter({len(parameters)})")
        lines += [
            f"  logistic_{element_type} = {shape} logistic(p_{element_type})",
            f"  rsqrt_{element_type} = {shape} rsqrt(p_{element_type})",
            f"  divide_{element_type} = {shape} divide(q_{element_type}, rsqrt_{element_type})",
        ]
        results += [f"logistic_{element_type}", f"divide_{element_type}"]
    return module("rewritten", [*parameters, *lines], results)


def compiler_of(python: str, platform: str) -> str:
    """The wheel that the compiler for a platform is in, and its version."""
    command = [python, "-c", _WHEELS, platform]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def compile_for(
    python: str, platform: str, architecture: str, also: str, text: str
) -> PriorityFusionRecord:
    """What priority fusion recorded of a module; ``also`` are the passes that run before it."""
    with TemporaryDirectory() as temporary:
        directory = Path(temporary)
        module, target = directory / "module.hlo", directory / "target.txtpb"
        dump = directory / "dump"
        module.write_text(text, encoding="utf-8")
        target.write_text(description(architecture), encoding="utf-8")
        environment = os.environ | {
            "XLA_FLAGS": _FLAGS.format(also=also, directory=dump),
            "JAX_PLATFORMS": "cpu",
            "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
        }
        command = [python, "-c", _CHILD, platform, str(module), str(target)]
        with (directory / "errors").open("w+", encoding="utf-8") as errors:
            child = subprocess.Popen(command, env=environment, stdout=errors, stderr=errors)
            # The code that is generated after the last pass, which takes longest, is not needed.
            while child.poll() is None and not any(dump.glob("*_after_optimizations.txt")):
                time.sleep(0.1)
            child.kill()
            child.wait()
            errors.seek(0)
            problem = errors.read()[-2000:]
        for record in dump.glob("*.priority_fusion_dump.txt"):
            return read_priority_fusion(record.read_bytes(), record.name)
    raise SystemExit(f"{architecture} was not compiled for with {python}:\n{problem}")


def key(instruction: Instruction) -> Key:
    return instruction.opcode, instruction.shape.element_type


def measured(
    record: PriorityFusionRecord, profile: Mapping[Key, int]
) -> Iterator[tuple[Key, float]]:
    """The cycles of each producer whose consumers' cycles are ``profile``, or none: a reverse."""
    entry = parse(record.module_before_fusion()).entry
    instructions = {instruction.name: instruction for instruction in entry.instructions}
    for step in record.steps:
        # Only the first time that a producer is recorded is it one operation, as are its consumers.
        if not isinstance(step, Priority) or not (of := instructions.pop(step.producer, None)):
            continue
        other_users = [key(user) for user in of.users if user.opcode != "reverse"]
        if all(user_key in profile for user_key in other_users):
            busy_us = step.unfused_us - (1 + len(of.users)) * _LAUNCH_US
            cycles = busy_us * 1000 * _FLOPS_PER_NS / _ELEMENTS
            yield key(of), cycles - sum(profile[user_key] for user_key in other_users)


def profile_of(python: str, platform: str, architecture: str) -> dict[Key, int]:
    """The cycles of all operations that come as far as priority fusion."""
    profile: dict[Key, int] = {}
    modules = {"": module_of_all(), ",logistic-expander,algsimp": module_of_rewritten()}
    for also, text in modules.items():
        record = compile_for(python, platform, architecture, also, text)
        cycles_by_key: dict[Key, int] = {}
        for key_measured, cycles in measured(record, profile):
            whole = round(cycles)
            if abs(cycles - whole) > _TOLERANCE:
                raise SystemExit(f"{architecture}: {' '.join(key_measured)} costs {cycles} cycles")
            if cycles_by_key.setdefault(key_measured, whole) != whole:
                costs = f"{whole} or {cycles_by_key[key_measured]}"
                raise SystemExit(f"{architecture}: {' '.join(key_measured)} costs {costs}")
        profile |= cycles_by_key
    return {
        key_measured: cycles for key_measured, cycles in profile.items() if key_measured in ASKED
    }


def table_of(profiles: Mapping[str, Mapping[Key, int]], compilers: list[str]) -> str:
    """The text of the table. What costs as much as what has no entry is left out."""
    lines = [_HEADER.format(compilers=", ".join(compilers)), f"absent = {_ABSENT}"]
    for architecture, profile in profiles.items():
        for element_type in TYPES:
            rows = [
                f"{opcode} = {cycles}"
                for (opcode, of), cycles in sorted(profile.items())
                if of == element_type and cycles != _ABSENT
            ]
            lines += ["", f"[{architecture}.{element_type}]", *rows] if rows else []
    return "\n".join(lines) + "\n"


def differences(
    profile: Mapping[Key, int], expected: Mapping[Key, int], where: str
) -> Iterator[str]:
    for each in sorted(profile.keys() | expected.keys()):
        here, there = profile.get(each), expected.get(each)
        if here != there:
            yield f"  {' '.join(each)}: {here}, {where}: {there}"


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--cuda", action="append", default=[], metavar="PATH")
    parser.add_argument("--rocm", action="append", default=[], metavar="PATH")
    parser.add_argument("--check", action="store_true", help="compare and do not write")


def findings(options: Namespace) -> Iterator[Finding]:
    if not options.cuda and not (options.check and options.rocm):
        raise SystemExit("at least one --cuda is needed")

    compilers: list[str] = []
    profiles: dict[str, dict[Key, int]] = {}
    wrong: list[str] = []
    pythons = [("cuda", python) for python in options.cuda]
    pythons += [("rocm", python) for python in options.rocm]
    for platform, python in pythons:
        compilers.append(compiler_of(python, platform))
        for architecture in ARCHITECTURES[platform]:
            profile = profile_of(python, platform, architecture)
            yield note(f"{compilers[-1]}, {architecture}: {len(profile)} operations")
            for each in sorted(ASKED - profile.keys()):
                yield note(f"  {' '.join(each)} does not come as far as priority fusion")
            first = profiles.setdefault(architecture, profile)
            wrong += differences(profile, first, f"{architecture} in {compilers[0]}")
            if options.check:
                listed = {python: cycles_of(architecture, *python) for python in profile}
                wrong += differences(profile, listed, f"{architecture} in {TABLE.name}")
    if not options.check:
        unknown = profiles[ARCHITECTURES["cuda"][0]]
        known_profiles = {
            python: profile for python, profile in profiles.items() if profile != unknown
        }
        TABLE.write_text(
            table_of({"unknown": unknown, **known_profiles}, compilers), encoding="utf-8"
        )
    yield from (problem("differences", line) for line in wrong)
