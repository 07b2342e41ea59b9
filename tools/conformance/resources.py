"""Compares what `explain --resources` says of kernels with two other readers.

    python tools/conformance/resources.py DUMPS... [--ptxas PATH] [--include DIRECTORY]

Each of DUMPS is a dump for an NVIDIA GPU with its PTX, or a directory with such dumps in it.
Registers and shared memory are read from the machine code that ptxas makes: the ELF sections of
each kernel. Spills are read from the output of ptxas, by a search of its own. Occupancy is that of
`cuda_occupancy.h` of the CUDA toolkit, compiled with `c++`. Exit code 1 if anything differs.
"""

import argparse
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from outcomes import dumps

from fusionscope.dump import DumpedModule, open_dump
from fusionscope.dump.device import CudaCapability, Device
from fusionscope.errors import UnusableInput
from fusionscope.explain import Selection, explain
from fusionscope.facts.result import KernelResources
from fusionscope.findings.resources.ptxas import find_ptxas

PROGRAM = r"""
#include <cstdio>
#include "cuda_occupancy.h"
int main() {
  int major, minor, threads, regs_block, regs_core, shared_block, shared_core, optin, cores;
  int max_threads_core, registers, block;
  size_t shared;
  while (scanf("%d %d %d %d %d %d %d %d %d %d %d %d %zu", &major, &minor, &threads,
               &max_threads_core, &regs_block, &regs_core, &shared_block, &shared_core, &optin,
               &cores, &registers, &block, &shared) == 13) {
    cudaOccDeviceProp device;
    device.computeMajor = major;
    device.computeMinor = minor;
    device.maxThreadsPerBlock = threads;
    device.maxThreadsPerMultiprocessor = max_threads_core;
    device.regsPerBlock = regs_block;
    device.regsPerMultiprocessor = regs_core;
    device.warpSize = 32;
    device.sharedMemPerBlock = shared_block;
    device.sharedMemPerMultiprocessor = shared_core;
    device.numSms = cores;
    device.sharedMemPerBlockOptin = optin;
    device.reservedSharedMemPerBlock = major >= 8 ? 1024 : 0;
    cudaOccFuncAttributes kernel;
    kernel.maxThreadsPerBlock = threads;
    kernel.numRegs = registers;
    kernel.sharedSizeBytes = 0;
    kernel.partitionedGCConfig = PARTITIONED_GC_OFF;
    kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    kernel.maxDynamicSharedSizeBytes = optin;
    kernel.numBlockBarriers = 1;
    cudaOccDeviceState state;
    cudaOccResult result;
    int status = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, block,
                                                         shared);
    printf("%d\n", status ? -status : result.activeBlocksPerMultiprocessor);
  }
}
"""


@dataclass(frozen=True)
class Kernel:
    """What another reader says of a kernel: figures as in ``KernelResources``."""

    registers: int
    shared_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int


def sections(code: bytes) -> dict[str, bytes]:
    """Return the sections of an ELF file of 64 bits by name."""
    (offset,) = struct.unpack_from("<Q", code, 40)
    size, count, names = struct.unpack_from("<HHH", code, 58)
    raw = [struct.unpack_from("<IIQQQQ", code, offset + size * each) for each in range(count)]
    found = {}
    for name, kind, _, _, begin, length in raw:
        start = raw[names][4] + name
        text = code[start : code.index(b"\0", start)].decode()
        # Those without content (SHT_NOBITS) have a size all the same.
        found[text] = bytes(length) if kind == 8 else code[begin : begin + length]
    return found


def registers_in(parts: dict[str, bytes]) -> dict[str, int]:
    """Return the registers of each kernel: attributes of kind EIATTR_REGCOUNT in ``.nv.info``."""
    symbols, names, info = parts[".symtab"], parts[".strtab"], parts[".nv.info"]
    found, place = {}, 0
    while place < len(info):
        form, kind, size = struct.unpack_from("<BBH", info, place)
        place += 4
        if form != 4:  # the two bytes of the size are the value
            continue
        if kind == 0x2F:
            symbol, count = struct.unpack_from("<II", info, place)
            (start,) = struct.unpack_from("<I", symbols, symbol * 24)
            found[names[start : names.index(b"\0", start)].decode()] = count
        place += size
    return found


def kernels_of(ptxas: Path, text: bytes, architecture: str, scratch: Path) -> dict[str, Kernel]:
    source, code = scratch / "module.ptx", scratch / "module.cubin"
    source.write_bytes(text)
    command = [str(ptxas), "-v", f"-arch={architecture}", str(source), "-o", str(code)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    spills = {}
    for part in said.split("Function properties for ")[1:]:
        name, words = part.split(maxsplit=1)
        numbers = [int(word) for word in words.replace(",", " ").split() if word.isdigit()]
        spills[name] = numbers[1], numbers[2]
    parts = sections(code.read_bytes())
    registers = registers_in(parts)
    # From Hopper on, the first 1,024 bytes of the section are the system's.
    sizes = {name: len(parts.get(f".nv.shared.{name}", b"")) for name in registers}
    shared = {name: max(0, size - 1024) for name, size in sizes.items()}
    return {
        name: Kernel(count, shared[name], *spills[name])
        for name, count in registers.items()
        if name in spills
    }


def blocks(program: Path, device: Device, kernels: list[KernelResources]) -> list[int]:
    """Return how many blocks of each kernel run on a core at once."""
    capability = device.capability
    assert isinstance(capability, CudaCapability)
    lines = [
        f"{capability.major} {capability.minor} {device.threads_per_block_limit} "
        f"{device.threads_per_core_limit} {device.registers_per_block_limit} "
        f"{device.registers_per_core_limit} {device.shared_memory_per_block} "
        f"{device.shared_memory_per_core} {device.shared_memory_per_block_optin} "
        f"{device.core_count} {each.registers} {each.threads_per_block} {each.shared_bytes}"
        for each in kernels
    ]
    made = subprocess.run([program], input="\n".join(lines), capture_output=True, text=True)
    return [int(line) for line in made.stdout.split()]


def compare(module: DumpedModule, ptxas: Path, program: Path, scratch: Path) -> tuple[int, int]:
    """Return how many kernels were compared, and how many differ."""
    device = module.device
    assert device is not None
    (facts,) = explain(
        open_dump(module.directory), Selection(module=str(module.number), resources=True)
    ).modules
    entries = {
        module.thunk_instructions.get(each.thunk, each.entry): each for each in module.launches
    }
    expected: dict[str, Kernel] = {}
    for text in module.ptx:
        expected |= kernels_of(ptxas, text, str(device.capability), scratch)
    known = {each.name: each.resources for each in facts.kernels if each.resources is not None}
    differ = 0
    counts = blocks(program, device, list(known.values()))
    for (name, taken), count in zip(known.items(), counts, strict=True):
        launch = entries[name]
        other = expected[launch.entry]
        warps = -(-launch.threads // 32) * count
        share = warps / (device.threads_per_core_limit // 32)
        is_equal = (
            taken.registers == other.registers
            and taken.shared_bytes == other.shared_bytes + (launch.shared_bytes or 0)
            and taken.spill_store_bytes == other.spill_store_bytes
            and taken.spill_load_bytes == other.spill_load_bytes
            and (taken.occupancy or 0) == share
        )
        if not is_equal:
            differ += 1
            print(f"{module.directory}: {name}: {taken}, not {other}, {count} blocks")
    missing = [name for name, launch in entries.items() if name not in known]
    if missing:
        differ += len(missing)
        print(f"{module.directory}: nothing known of {', '.join(missing[:5])}")
    return len(entries), differ


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("dumps", nargs="+", type=Path)
    parser.add_argument("--ptxas", type=Path, default=find_ptxas())
    parser.add_argument("--include", type=Path, default=Path("/usr/local/cuda/include"))
    options = parser.parse_args()
    count_dumps = count = differ = 0
    with TemporaryDirectory() as directory:
        scratch = Path(directory)
        program, source = scratch / "occupancy", scratch / "occupancy.cpp"
        source.write_text(PROGRAM)
        subprocess.run(["c++", "-I", options.include, source, "-o", program], check=True)
        for path in options.dumps:
            for dump in dumps(path):
                try:
                    modules = open_dump(dump).modules
                except UnusableInput as error:
                    print(error)
                    continue
                for module in modules:
                    if not module.ptx:
                        continue
                    found, wrong = compare(module, options.ptxas, program, scratch)
                    count_dumps, count, differ = count_dumps + 1, count + found, differ + wrong
    print(f"{count_dumps} modules, {count} kernels, {differ} differ")
    return 1 if differ or not count else 0


if __name__ == "__main__":
    sys.exit(main())
