"""Registers, spills, shared memory and occupancy of the kernels of a module for an NVIDIA GPU."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from fusionscope.dump import DumpedModule
from fusionscope.dump.device import CudaCapability, Device
from fusionscope.dump.thunks import Launch
from fusionscope.facts.result import KernelResources
from fusionscope.findings.resources.facts import ABOUT, Resources
from fusionscope.findings.resources.ptxas import Assembled, assemble
from fusionscope.gpu.occupancy import occupancy
from fusionscope.history.thunks import NOT_LAUNCHED
from fusionscope.progress import Progress, silent
from fusionscope.system.cache import Cache

_HOW_TO_DUMP = "dump with --xla_dump_emitter_re=ptx as well, or use --compile"
_EXTERNAL = re.compile(rb"\.extern \.shared [^;]*?([\w$]+)\[\]")
_ENTRY = re.compile(rb"\.entry ([\w$]+)\(")
_NOT_IN_NAMES = re.compile(r"[^\w$]")  # XLA replaces them by "_" in the names of entries
_EXTRA_FLAGS = "xla_gpu_ptx_compiler_extra_flags"
_NOT_OPTIMIZED = "xla_gpu_disable_gpuasm_optimizations"


def find_resources(
    module: DumpedModule,
    device: Device | None,
    ptxas: Path,
    *,
    flags: Sequence[str] = (),
    cache: Cache | None = None,
    progress: Progress = silent,
) -> Resources:
    """Return what ``ptxas`` says of the kernels that ``module`` launches on ``device``, with the
    flags of the dump and ``flags``. Its answers are looked up in ``cache``.

    Raises ``UnusableInput`` if a file of the dump cannot be read, or ptxas cannot be run.
    """
    texts = module.ptx
    names = module.thunk_instructions or _instructions(module)
    launches = {names.get(launch.thunk, launch.entry): launch for launch in module.launches}
    if device is None or not isinstance(device.capability, CudaCapability):
        return Resources({}, (f"{ABOUT}: the module is not for an NVIDIA GPU",))
    if not texts or not launches:
        absent = "PTX" if not texts else "thunk_sequence.txt"
        return Resources({}, (f"{ABOUT}: the dump has no {absent}; {_HOW_TO_DUMP}",))
    flags = (*_flags_of(module), *flags)
    assembled, problems = assemble(ptxas, texts, flags=flags, cache=cache, progress=progress)
    external = _with_external_memory(texts)
    resources = {
        name: _resources(device, launch, assembled[launch.entry], external)
        for name, launch in launches.items()
        if launch.entry in assembled
    }
    return Resources(resources, tuple(_notes(launches, resources, problems)))


def _instructions(module: DumpedModule) -> dict[int, str]:
    """Return the instruction that each thunk runs, by the number of the thunk, if no metadata of
    thunks was dumped: that of the launch, or else the one whose name is that of the entry.
    """
    if module.final is None:
        return {}
    entries = {
        _NOT_IN_NAMES.sub("_", instruction.name): instruction.name
        for instruction in module.read(module.final).walk()
        if instruction.opcode not in NOT_LAUNCHED
    }
    return {
        launch.thunk: launch.instruction or entries.get(launch.entry, launch.entry)
        for launch in module.launches
    }


def _with_external_memory(texts: Sequence[bytes]) -> set[str]:
    """Return the kernels whose shared memory the launch reserves."""
    names = set()
    for text in texts:
        symbols = _EXTERNAL.findall(text)
        _, *parts = _ENTRY.split(text) if symbols else ("",)
        for name, body in zip(parts[::2], parts[1::2], strict=True):
            if any(symbol in body for symbol in symbols):
                names.add(name.decode())
    return names


def _flags_of(module: DumpedModule) -> Iterator[str]:
    """Yield the flags with which the compiler of the dump called ptxas."""
    values = module.flags.values if module.flags is not None else {}
    if values.get(_NOT_OPTIMIZED) == ("true",):
        yield "-O0"
    yield from values.get(_EXTRA_FLAGS, ())


def _resources(
    device: Device, launch: Launch, kernel: Assembled, external: Collection[str]
) -> KernelResources:
    """``external`` are the kernels whose shared memory the launch reserves."""
    shared = running = None
    if launch.shared_bytes is not None or launch.entry not in external:
        shared = kernel.shared_bytes + (launch.shared_bytes or 0)
        running = occupancy(device, kernel.registers, launch.threads, shared)
    return KernelResources(
        registers=kernel.registers,
        spill_store_bytes=kernel.spill_stores,
        spill_load_bytes=kernel.spill_loads,
        shared_bytes=shared,
        blocks=launch.blocks,
        threads_per_block=launch.threads,
        occupancy=running.share if running is not None else None,
        occupancy_limit=running.limit.value if running is not None else None,
        assembly_ms=kernel.milliseconds,
    )


def _notes(
    launches: Mapping[str, Launch], resources: Mapping[str, KernelResources], problems: list[str]
) -> list[str]:
    unassembled = sorted(launches.keys() - resources.keys())
    if unassembled and not problems:
        more_text = f" and {len(unassembled) - 1} others" if unassembled[1:] else ""
        problems = [f"the PTX of {unassembled[0]}{more_text} is not in the dump"]
    return [f"{ABOUT}: {problem}" for problem in problems]
