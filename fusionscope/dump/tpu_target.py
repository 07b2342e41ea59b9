"""The TPU that a program was compiled for, ``….target_arguments.txt``, and of the flags of its
compiler, ``….tpu_comp_env.txt``, the one that is needed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from fusionscope.dump.text_proto import Message, parse

# The names of generations as the compiler writes them, by the variant. Found by compiling for each.
_NAMES = {
    ("JELLYFISH", ""): "v2",
    ("DRAGONFISH", ""): "v3",
    ("PUFFERFISH", ""): "v4",
    ("VIPERFISH", "lite"): "v5e",
    ("VIPERFISH", ""): "v5p",
    ("GHOSTLITE", ""): "v6e",
    ("6acc60406", ""): "tpu7x",
}
_THREE_DIMENSIONS = frozenset({"v4", "v5p", "tpu7x"})
_PREFIX = "TPU_VERSION_"
# In KiB; -1 is the default.
_VECTOR_MEMORY_LIMIT = re.compile(rb"^xla_tpu_scoped_vmem_limit_kib: (\d{1,9})$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class TpuTarget:
    """``name`` is the generation, as in ``v5e``, or what the compiler calls it if that is unknown.
    ``chips`` is their number along x, y and z.
    """

    name: str
    chips: tuple[int, int, int]

    def __str__(self) -> str:
        count = prod(self.chips)
        return f"TPU {self.name}" + (f", {count} chips" if count > 1 else "")

    @property
    def topology(self) -> str:
        """The name by which jax finds it, as in ``v5e:2x2``."""
        sizes = self.chips if self.name in _THREE_DIMENSIONS else self.chips[:2]
        return f"{self.name}:{'x'.join(map(str, sizes))}"


def read_tpu_target(data: bytes, file: str) -> TpuTarget | None:
    """Return the target, None without a topology. Raises ``UnusableInput`` for another text."""
    topologies = parse(data, file).messages("tpu_topology_args")
    if not topologies:
        return None
    topology = topologies[-1]
    version = topology.string("version").removeprefix(_PREFIX)
    name = _NAMES.get((version, topology.string("variant")), version)
    chips, hosts = (_bounds(topology, field) for field in ("chips_per_host_bounds", "host_bounds"))
    x, y, z = (chip_bound * host_bound for chip_bound, host_bound in zip(chips, hosts, strict=True))
    return TpuTarget(name, (x, y, z))


def read_vector_memory_limit(data: bytes, _file: str) -> int | None:
    """Return how much of the vector memory a flag lets one kernel take, in bytes, if one does."""
    match = _VECTOR_MEMORY_LIMIT.search(data)
    return int(match[1]) << 10 if match is not None else None


def _bounds(topology: Message, name: str) -> tuple[int, int, int]:
    bounds = topology.messages(name)
    x, y, z = (bounds[-1].integer(axis) if bounds else 1 for axis in "xyz")
    return max(x, 1), max(y, 1), max(z, 1)
