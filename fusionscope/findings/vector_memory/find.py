"""Reads what the code of kernels takes of the vector memory of a TPU, as ``after_codegen`` has it:
``used_scoped_memory_configs`` in the ``backend_config``, where memory space 1 is that memory.

The compiler's source is closed. Seen with libtpu 0.0.52 for v4, v5e, v5p and v6e: what Pallas
kernels take is the sum of their buffers, scratch and temporaries, and compiling fails where that is
more than ``scoped_memory_configs`` of the kernel, the flag, or 16 MiB, on a v6e 32 MiB, allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusionscope.dump import DumpedModule
from fusionscope.facts.source_lines import operation_of
from fusionscope.findings.vector_memory.facts import VectorMemory
from fusionscope.hlo import Instruction, Module

_VECTOR_MEMORY = "1"
_LIMIT, _USED = "scoped_memory_configs", "used_scoped_memory_configs"
_LIMITS = {"v4": 16 << 20, "v5e": 16 << 20, "v5p": 16 << 20, "v6e": 32 << 20}
PALLAS = '"tpu_custom_call"'


def find_vector_memory(module: DumpedModule, final: Module) -> tuple[VectorMemory, ...]:
    """Return the kernels of the final stage that take vector memory, those first that take most."""
    if module.tpu is None:
        return ()
    limit = module.vector_memory_limit or _LIMITS.get(module.tpu.name)
    kernels = []
    for instruction in final.walk():
        if _USED not in instruction.statement.attributes:
            continue
        config = instruction.attribute("backend_config")
        if size := _size(config, _USED):
            kernels.append(
                VectorMemory(
                    kernel=instruction.name,
                    source=operation_of(instruction).source,
                    bytes=size,
                    limit=_size(config, _LIMIT) or limit,
                    is_own=is_own(instruction),
                )
            )
    return tuple(sorted(kernels, key=lambda kernel: -kernel.bytes))


def is_own(instruction: Instruction) -> bool:
    """Return whether the program wrote the code of a kernel, in Pallas."""
    return instruction.attributes.get("custom_call_target") == PALLAS


def _size(config: Any, name: str) -> int:
    """Return the bytes of vector memory in a part of a configuration, 0 if that is of another
    form.
    """
    parts = config.get(name) if isinstance(config, Mapping) else None
    for part in parts if isinstance(parts, list | tuple) else ():
        if isinstance(part, Mapping) and part.get("memory_space") == _VECTOR_MEMORY:
            size = part.get("size")
            return int(size) if isinstance(size, str) and size.isdecimal() else 0
    return 0
