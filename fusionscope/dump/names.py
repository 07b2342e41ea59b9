"""Parses the names of files in a dump.

Names have the form
``[<microseconds>.]module_NNNN.<module>.MMMM.<pipeline>.after_<pass>.before_<pass>.txt``, where NNNN
is the module's number, MMMM counts the dumps of the module, and the module's own name may contain
dots (xla/service/dump.cc). Other files have a fixed word in the place of MMMM.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache


class Role(Enum):
    """The content of a dump file, as far as fusionscope reads it."""

    STAGE = "stage"
    STAGE_PROTO = "stage as proto"
    PRIORITY_FUSION = "priority-fusion record"
    FUSION_EXPLORER = "Fusion Explorer record"
    DEVICE = "device description"
    TPU_TARGET = "target of a TPU's compiler"
    FLAGS = "flags"
    CONFIG = "configuration"
    PASS_TIMES = "pass times"
    BUFFER_ASSIGNMENT = "buffer assignment"
    LIVE_RANGES = "live ranges"
    MEMORY_USAGE = "memory usage"
    PTX = "PTX"
    THUNKS = "thunks"
    THUNKS_IN_GRAPHS = "thunks in command buffers"
    THUNK_METADATA = "metadata of thunks"
    AUTOTUNER_LOG = "autotuner log"
    AUTOTUNER_RESULTS = "autotuner results"
    TPU_FLAGS = "flags of a TPU's compiler"
    CAPTURE = "record of `capture`"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileName:
    """A parsed name. ``counter`` orders stages; fixed stages have none. A file about all modules
    has the ``module_id`` ``OF_ALL_MODULES``. ``run`` is the time at which the compiler began with
    the module (microseconds), "" if the name does not have it.

    ``label`` is the part after the module's name: for a stage without pipeline the fixed word
    (``before_optimizations``, ``sm_9.0a_gpu_after_optimizations``), for a Fusion Explorer record
    the computation.
    """

    role: Role
    module_id: int
    module: str | None
    label: str
    counter: int | None = None
    pipeline: str = ""
    after: str = ""
    before: str = ""
    run: str = ""


_RUN = re.compile(r"(?:(\d{10,20})\.)?(.*)", re.DOTALL)
_MODULE = re.compile(r"module_(?P<id>\d+)\.(?P<rest>.+)", re.DOTALL)
_EXPLORER = re.compile(
    r"(?P<computation>.+)\.module_(?P<id>\d+)\.(?P<module>.+)\._fusion\.(?:pyz|html)",
    re.DOTALL,
)
_PASS = re.compile(
    r"(?P<module>.+)\.(?P<counter>\d{4,})\.(?P<pipeline>[^.]+)\."
    r"(?:after_(?P<after>.+?))?(?:(?:^|\.|(?<=\.))before_(?P<before>.+))?\.(?P<kind>txt|hlo\.pb)",
    re.DOTALL,
)
_FINAL = r"(?:cpu|(?:(?:sm_[\d.]+\w?|gfx[\w:+\-]+)_)?gpu)_after_optimizations"
_FIXED = re.compile(
    r"(?P<module>.+)\.(?P<label>before_optimizations|after_spmd_partitioner|"
    r"before_config_assignment|after_codegen|after_optimizations(?:_(?:before|after)_buffer_"
    rf"assignment)?|{_FINAL})\.(?P<kind>txt|hlo\.pb)",
    re.DOTALL,
)
_SIDE = {
    "priority_fusion_dump.txt": Role.PRIORITY_FUSION,
    "gpu_target_config.pbtxt": Role.DEVICE,
    "autotune_results.pbtxt": Role.AUTOTUNER_RESULTS,
    "target_arguments.txt": Role.TPU_TARGET,
    "tpu_comp_env.txt": Role.TPU_FLAGS,
    "debug_options": Role.FLAGS,
    "config.pbtxt": Role.CONFIG,
    "thunk_sequence.txt": Role.THUNKS,
    "thunk_sequence_after_thunk_passes.txt": Role.THUNKS_IN_GRAPHS,
    "thunk_metadata.txt": Role.THUNK_METADATA,
}
# The memory of the final module.
_MEMORY = re.compile(
    rf"(?P<module>.+)\.(?P<label>after_optimizations|{_FINAL})-(?P<kind>[a-z-]+)\.txt", re.DOTALL
)
_MEMORY_ROLES = {
    "buffer-assignment": Role.BUFFER_ASSIGNMENT,
    "live-range": Role.LIVE_RANGES,
    "memory-usage-report": Role.MEMORY_USAGE,
}
_PTX = re.compile(r"(?P<module>.+?)(?:\.\d+)?\.ptx", re.DOTALL)
# The user names it, and the compiler appends to it for each module of the process.
OF_ALL_MODULES = -1
_AUTOTUNER = re.compile(
    r"(?!module_).*autotun[a-z]*[-_.]?(?:(?P<log>logs?)|results?|db)\b.*"
    r"\.(?:txt|txtpb|textproto|pbtxt|log)",
    re.I,
)
CAPTURE_RECORD = "fusionscope-capture.json"
_OF_ALL = {CAPTURE_RECORD: Role.CAPTURE}
_KINDS = {"txt": Role.STAGE, "hlo.pb": Role.STAGE_PROTO}


_TPU_BUILD = re.compile(r"\.cl_(\d+)$")


def tpu_build(module: str) -> str | None:
    """Return the number of its build that the compiler for TPUs adds to the name of a module."""
    match = _TPU_BUILD.search(module)
    return match[1] if match is not None else None


# The libtpu that jax 0.7.2, 0.8.0, 0.10.1, 0.10.2, 0.11.0 and 0.12.0.1 install, by its build.
_LIBTPU = {
    "804429027": "0.0.23",
    "813921542": "0.0.24",
    "914450892": "0.0.41",
    "933746096": "0.0.42.1",
    "954665169": "0.0.44.1",
    "1004524046": "0.0.50.1",
}


def libtpu_of(module: str) -> str | None:
    """Return the release of the compiler for TPUs that named a module, None if it is not known."""
    return _LIBTPU.get(tpu_build(module) or "")


def without_build(module: str) -> str:
    """Return the name of a module without the number that the compiler for TPUs adds."""
    return _TPU_BUILD.sub("", module)


@lru_cache(maxsize=100_000)
def read_name(name: str) -> FileName | None:
    """Parse a file name (without ``.gz``). Return None if fusionscope does not use the file."""
    run = _RUN.fullmatch(name)
    parsed = _read_plain_name(run[2]) if run is not None else None
    return replace(parsed, run=run[1]) if parsed is not None and run and run[1] else parsed


def _read_plain_name(name: str) -> FileName | None:
    """Parse a name without a timestamp."""
    if match := _EXPLORER.fullmatch(name):
        return FileName(
            role=Role.FUSION_EXPLORER,
            module_id=int(match["id"]),
            module=match["module"],
            label=match["computation"],
        )
    match = _MODULE.fullmatch(name)
    if match is None:
        role = _OF_ALL.get(name)
        if match := _AUTOTUNER.fullmatch(name):
            role = Role.AUTOTUNER_LOG if match["log"] else Role.AUTOTUNER_RESULTS
        if role is None:
            return None
        return FileName(role=role, module_id=OF_ALL_MODULES, module=None, label="")
    number, suffix = int(match["id"]), match["rest"]
    if suffix == "metadata.textproto":
        return FileName(role=Role.PASS_TIMES, module_id=number, module=None, label=suffix)
    if match := _PTX.fullmatch(suffix):
        return FileName(role=Role.PTX, module_id=number, module=match["module"], label="ptx")
    for ending, role in _SIDE.items():
        if suffix.endswith(f".{ending}"):
            return FileName(
                role=role, module_id=number, module=suffix[: -len(ending) - 1], label=ending
            )
    # The names printed by --xla_dump_to=- have spaces where files have underscores.
    suffix = suffix.replace(" ", "_")
    if match := _FIXED.fullmatch(suffix):
        return FileName(
            role=_KINDS[match["kind"]],
            module_id=number,
            module=match["module"],
            label=match["label"],
        )
    if (match := _MEMORY.fullmatch(suffix)) and match["kind"] in _MEMORY_ROLES:
        return FileName(
            role=_MEMORY_ROLES[match["kind"]],
            module_id=number,
            module=match["module"],
            label=match["label"],
        )
    if (match := _PASS.fullmatch(suffix)) and (match["after"] or match["before"]):
        return FileName(
            role=_KINDS[match["kind"]],
            module_id=number,
            module=match["module"],
            label=suffix[
                len(match["module"]) + len(match["counter"]) + 2 : -len(match["kind"]) - 1
            ],
            counter=int(match["counter"]),
            pipeline=match["pipeline"],
            after=match["after"] or "",
            before=match["before"] or "",
        )
    return None
