"""Compiles modules of HLO text, or runs single passes of the real compiler on them.

For GPUs that are not there, the pass sees a module just as it is written, layouts and fusions
included: what is compiled is a carrier, a custom call with the same parameters and result, and the
compiler's own hook for transforming modules puts the module in its place. After scheduling a second
hook ends the compilation, but for passes that run later. jaxlib 0.10 offers no such hook where
there is no GPU: there a module goes through StableHLO, which keeps neither layouts nor fusions, and
reshapes are what is left of bitcasts.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from conformance.findings import ROOT
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.dump.fusion_explorer import read_fusion_explorer
from fusionscope.dump.priority_fusion import PriorityFusionRecord, read_priority_fusion
from fusionscope.hlo import parse
from fusionscope.versions.compiler import Compiler
from fusionscope.versions.known import COMPILERS, load_compiler

# Compiles the modules from a given one on, and prints after each what went wrong. The record is
# written before the compiler finds that it cannot generate code for what it fused.
_CPU_CHILD = """
import json, sys
import jax
from jax._src import compiler
from jax._src.interpreters import mlir
from jaxlib import _hlo, _jax
from jaxlib.mlir import ir

devices = jax.devices()[:1]
for text in json.load(open(sys.argv[1]))[int(sys.argv[2]):]:
    problem = ""
    try:
        module = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
        with mlir.make_ir_context():
            stable = ir.Module.parse(_jax.mlir.hlo_to_stablehlo(module))
        options = compiler.get_compile_options(1, 1)
        devices[0].client.compile_and_load(stable, _jax.DeviceList(tuple(devices)), options)
    except Exception as error:
        problem = str(error)
    print(json.dumps(problem), flush=True)
"""


def compile_all(python: str, flags: str, texts: Sequence[str], directory: Path) -> list[str]:
    """What went wrong with each module, empty where nothing did. Dumps into ``directory/dump``.

    ``python`` is one that has jax. A compiler that crashes is started again behind the module.
    """
    file = directory / "modules.json"
    file.write_text(json.dumps(texts), encoding="utf-8")
    flags = f"{flags} --xla_dump_to={directory / 'dump'}"
    environment = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    problems: list[str] = []
    while len(problems) < len(texts):
        command = [python, "-c", _CPU_CHILD, str(file), str(len(problems))]
        process = subprocess.run(command, env=environment, capture_output=True, text=True)
        problems += [json.loads(line) for line in process.stdout.splitlines()]
        if len(problems) < len(texts):
            problems.append("the compiler crashed: " + " ".join(process.stderr.split()[-20:]))
    return problems


def version_of(python: str) -> str:
    command = [python, "-c", "import jaxlib; print(jaxlib.__version__)"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def gpu_compiler_of(python: str) -> str:
    """The name of its rules for GPUs."""
    return "gpu-" + ".".join(version_of(python).split(".")[:2])


def compiler_of(version: str) -> Compiler:
    """That of the version, the newest one where it has none of its own."""
    key = f"cpu-{'.'.join(version.split('.')[:2])}"
    return load_compiler(key if key in COMPILERS else next(iter(COMPILERS)))


# For GPUs.

DEVICES = ROOT / "samples" / "devices"
# Fields of a device description that jaxlib before 0.11 refuses to read.
_NEWER_FIELDS = re.compile(
    r"^ *(collective_memory_granularity|max_blocks_per_multiprocessor|mem_clock_ghz"
    r"|reserved_shared_memory_per_block).*\n",
    re.MULTILINE,
)
_FLAGS = "--xla_dump_hlo_as_text --xla_gpu_autotune_level=0 --xla_dump_to={directory} {more}"
_ONLY = "--xla_enable_hlo_passes_only={name}{hooks} --xla_dump_hlo_pass_re=({name}|apply-xla-).* "
_ALL = "--xla_dump_hlo_pass_re=.* "
_ENOUGH = "far enough"
# What the compiler logs of its reasons.
_LOGS = {
    "TF_CPP_MIN_LOG_LEVEL": "0",
    "TF_CPP_VMODULE": "gemm_fusion=6,softmax_rewriter_triton=6,fusion_block_level_rewriter=3",
}
_AFTER_SCHEDULING = ("fusion-block-level-rewriter",)
# Compiles the modules from a given one on, and prints after each what went wrong. Its number stands
# in the log before what is logged of it.
_GPU_CHILD = """
import json, sys
import jax
from jax._src import compiler
from jax._src.interpreters import mlir
from jax.experimental import topologies
from jaxlib import _hlo, _jax, _xla
from jaxlib.mlir import ir

texts, carriers, target, is_stopped, is_put = json.load(open(sys.argv[1]))
devices = topologies.get_topology_desc(
    topology_name="gpu", platform="cuda", target_config=target, topology="1x1x1"
).devices[:1]

def proto(text):
    return _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()

def stop(module):
    raise RuntimeError("far enough")

has_hooks = hasattr(_jax, "get_pjrt_plugin")
is_put = is_put and has_hooks
if has_hooks:
    plugin = _jax.get_pjrt_plugin("cuda")
    if is_put:
        _xla.register_xla_transform_c_api(plugin, "put", 0, lambda carrier: proto(text))
    if is_stopped:
        _xla.register_xla_transform_c_api(plugin, "stop", 1, stop)
for number, (text, carrier) in list(enumerate(zip(texts, carriers)))[int(sys.argv[2]):]:
    problem = ""
    print("module", number, "begins", file=sys.stderr, flush=True)
    try:
        module = proto(carrier if is_put else text)
        with mlir.make_ir_context():
            stable = ir.Module.parse(_jax.mlir.hlo_to_stablehlo(module))
            options = compiler.get_compile_options(1, 1)
            devices[0].client.compile(stable, _jax.DeviceList(tuple(devices)), options)
    except Exception as error:
        problem = str(error)
    print(json.dumps(problem), flush=True)
"""


class Recorded(NamedTuple):
    """What priority fusion recorded, and what it made; ``after`` is empty where it changed
    nothing."""

    record: PriorityFusionRecord
    after: str


class Ran(NamedTuple):
    """The module before and after each run of a pass. ``said`` is what the compiler said of it,
    lines of its log and labels of its Fusion Explorer record."""

    runs: tuple[tuple[str, str], ...]
    said: tuple[str, ...]


def record_all(
    python: str, texts: Sequence[str], target: str = "h100", more_flags: str = ""
) -> list[Recorded | str]:
    """What came of each module in priority fusion, or why nothing did; else as ``run_all``."""
    with TemporaryDirectory() as scratch:
        directory = Path(scratch)
        problems, _ = _compile(python, "priority-fusion", texts, target, more_flags, directory)
        recordings: list[Recorded | str] = list(problems)
        for path in directory.glob("dump/*.priority_fusion_dump.txt"):
            stem = path.name.removesuffix("priority_fusion_dump.txt")
            after = "".join(
                file.read_text(encoding="utf-8")
                for file in path.parent.glob(f"{stem}*.after_priority-fusion.*.txt")
            )
            record = read_priority_fusion(path.read_bytes(), path.name)
            recordings[_number(path)] = Recorded(record, after)
        return recordings


def run_all(
    python: str, name: str, texts: Sequence[str], target: str = "h100", more_flags: str = ""
) -> list[Ran | str]:
    """What the pass of that name made of each module, or why it did not run.

    ``python`` is one that has jax and its plugin for CUDA, ``target`` the name of a file of
    ``samples/devices``. A compiler that crashes is started again behind the module.
    """
    more_flags += " --xla_dump_fusion_visualization"
    with TemporaryDirectory() as scratch:
        directory = Path(scratch)
        problems, log = _compile(python, name, texts, target, more_flags, directory)
        parts = re.split(r"^module (\d+) begins$", log, flags=re.MULTILINE)
        labels: defaultdict[int, list[str]] = defaultdict(list)
        for number, part in zip(parts[1::2], parts[2::2], strict=True):
            labels[int(number)] += part.splitlines()
        for path in directory.glob("dump/*._fusion.*"):
            record = read_fusion_explorer(path.read_bytes(), path.name)
            labels[_number(path)] += [frame.label for frame in record.frames]
        stages: defaultdict[int, list[Path]] = defaultdict(list)
        for path in sorted(directory.glob("dump/*.after_*.before_*.txt")):
            stages[_number(path)].append(path)
        results: list[Ran | str] = list(problems)
        for index, files in stages.items():
            runs = tuple(
                (before.read_text(encoding="utf-8"), after.read_text(encoding="utf-8"))
                for before, after in pairwise(files)
                if f".after_{name}." in after.name
            )
            if runs:
                results[index] = Ran(runs, tuple(labels[index]))
        return results


@contextmanager
def scheduled(
    python: str, texts: Sequence[str], flags: str = "", target: str = "h100"
) -> Iterator[list[DumpedModule | None]]:
    """Provide the dump of each module with all stages up to scheduling, None if the compiler does
    not come so far. The modules go through StableHLO.
    """
    with TemporaryDirectory() as scratch:
        directory = Path(scratch)
        problems, _ = _compile(python, "", texts, target, flags, directory, is_put=False)
        by_name = {module.name: module for module in open_dump(directory / "dump").modules}
        yield [
            by_name.get(f"module_{number}") if _ENOUGH in problem else None
            for number, problem in enumerate(problems)
        ]


def log_of(python: str, name: str, text: str, *, logs: Mapping[str, str]) -> str:
    """What the compiler logs of one module, for an H100."""
    with TemporaryDirectory() as scratch:
        return _compile(python, name, [text], "h100", "", Path(scratch), logs=logs)[1]


def _number(file: Path) -> int:
    """That of the module in a file of the dump."""
    numbers = re.findall(r"\.module_(\d+)(?=\.)", file.name)
    assert numbers, f"{file.name} is named otherwise than its module"
    return int(numbers[-1])  # the compiler's own number stands before


def dump_stages(
    python: str, text: str, passes: Sequence[str], directory: Path, *, is_put: bool
) -> list[Path]:
    """Runs ``passes`` and priority fusion on a module, and dumps all stages into ``directory``.

    It goes through StableHLO unless ``is_put``. Returns the files of the stages up to that before
    priority fusion, and its record.
    """
    flags = f"--xla_enable_hlo_passes_only={','.join(passes)} --xla_dump_hlo_pass_re=.*"
    flags += " --xla_dump_hlo_as_proto"
    _compile(python, "priority-fusion", [text], "h100", flags, directory, is_put=is_put)
    stages = sorted(directory.glob("dump/*.after_*.before_*.txt"))
    (last,) = (stage for stage in stages if ".before_variadic-op-splitter." in stage.name)
    return [*stages[: stages.index(last) + 1], *directory.glob("dump/*.priority_fusion_dump.txt")]


def _compile(
    python: str,
    name: str,
    texts: Sequence[str],
    target: str,
    more_flags: str,
    directory: Path,
    *,
    is_put: bool = True,
    logs: Mapping[str, str] = _LOGS,
) -> tuple[list[str], str]:
    """What went wrong with each module, and the log. Dumps into ``directory/dump``."""
    description = (DEVICES / f"{target}.txtpb").read_text(encoding="utf-8")
    if version_of(python).startswith("0.10."):
        description = _NEWER_FIELDS.sub("", description)
    texts = [_named(text, f"module_{index}") for index, text in enumerate(texts)]
    file = directory / "modules.json"
    carriers = list(map(carrier_of, texts)) if is_put else [""] * len(texts)
    is_stopped = name not in _AFTER_SCHEDULING
    file.write_text(json.dumps([texts, carriers, description, is_stopped, is_put]))
    # Each pass that runs a hook has a number of its own.
    hooks = "".join(f",apply-xla-transforms-{number}" for number in range(2 * len(texts) + 2))
    passes = _ONLY.format(name=name, hooks=hooks) if name else _ALL
    flags = passes + _FLAGS.format(directory=directory / "dump", more=more_flags)
    environment = os.environ | logs
    environment |= {
        "XLA_FLAGS": flags,
        "JAX_PLATFORMS": "cpu",
        "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
    }
    problems: list[str] = []
    log = ""
    while len(problems) < len(texts):
        command = [python, "-c", _GPU_CHILD, str(file), str(len(problems))]
        process = subprocess.run(command, env=environment, capture_output=True, text=True)
        problems += [json.loads(line) for line in process.stdout.splitlines()]
        log += process.stderr
        if len(problems) < len(texts):
            lines = process.stderr.splitlines()
            why = next((line for line in lines if "heck fail" in line), process.stderr[-200:])
            problems.append(f"the compiler crashed: {why}")
    return problems, log


def _named(text: str, name: str) -> str:
    return re.sub(r"HloModule [\w.\-]+", f"HloModule {name}", text, count=1)


def carrier_of(text: str) -> str:
    """A module with the name, parameters and result of another one."""
    module = parse(text)
    entry = module.entry
    lines = [
        f"  p{n} = {parameter.shape} parameter({n})" for n, parameter in enumerate(entry.parameters)
    ]
    operands = ", ".join(f"p{number}" for number in range(len(lines)))
    call = f'{entry.root.shape} custom-call({operands}), custom_call_target="carrier"'
    body = "\n".join([*lines, f"  ROOT result = {call}"])
    return f"HloModule {module.name}\n\nENTRY main {{\n{body}\n}}\n"
