"""Compiles one JAX program for one target and leaves XLA's dump in a directory.

XLA reads its flags once, so this runs in a process of its own for each dump. No accelerator is
needed: a GPU is described by a text file, and a TPU by the name of its topology.

A program file defines `program` and `arguments`, or a table `programs` of name: (function,
arguments) or name: (function, arguments, options). Arguments are a tree whose leaves are
`(dtype, shape)`, `(dtype, shape, partition)`, or anything with a shape and a dtype. The options are
`donate` (argument numbers) and `mesh` (axis sizes by name; the devices of the mesh are the target).
"""

import argparse
import math
import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DEVICES = Path(__file__).parent / "devices"

TEXT = "--xla_dump_hlo_as_text"
# The protos carry the unique ids, which order the queue of the GPU's priority fusion.
STAGES = (TEXT, "--xla_dump_hlo_pass_re=.*", "--xla_dump_module_metadata")
GPU_STAGES = ("--xla_dump_hlo_as_proto",)
# Written again at each dump, so it is slow beside a pass filter: it gets a compile of its own.
RECORD = (TEXT, "--xla_dump_fusion_visualization")
GPU = ("--xla_gpu_autotune_level=0",)

# Fields of a device description that jaxlib before 0.11 refuses to read, and the only ones that it
# reads before 0.10.
NEWER_FIELDS = (
    "collective_memory_granularity",
    "max_blocks_per_multiprocessor",
    "mem_clock_ghz",
    "reserved_shared_memory_per_block",
)
OLDEST = re.compile(
    r"\s*((threads_per|shared_memory_per|registers_per|block_dim_limit)_\w+|core_count|fpus_per_core"
    r"|memory_bandwidth|l2_cache_size|clock_rate_ghz|device_memory_size|major|minor|platform_name"
    r"|device_description_str|gcn_arch_name):|\s*\w+ \{$|\s*\}$"
)
FIRST = ".before_optimizations.txt"
EMPTY_BLOCK = re.compile(r" *\w+ \{\n *\}\n")

DTYPES = {
    "pred": "bool",
    "s": "int",
    "u": "uint",
    "f": "float",
    "c": "complex",
    "bf16": "bfloat16",
    "f8e4m3fn": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
}


@dataclass(frozen=True, slots=True)
class Program:
    """A function, a tree of its arguments' shapes, and how it is to be compiled."""

    function: Callable[..., Any]
    arguments: Any
    donate: tuple[int, ...] = ()
    mesh: Mapping[str, int] = field(default_factory=lambda: {"x": 1})

    @property
    def devices(self) -> int:
        return math.prod(self.mesh.values())


def load(path: Path, name: str | None) -> Program:
    """The program of a file, or the one of its table that has this name.

    The code is compiled under the last three parts of its path, so that a dump reads the same
    wherever the checkout lies.
    """
    sys.path.append(str(path.resolve().parent))  # a program may be made of several files
    label = "/".join(path.resolve().parts[-3:])
    scope: dict[str, Any] = {"__name__": path.stem}
    exec(compile(path.read_text(), label, "exec"), scope)
    if name is None:
        return Program(scope["program"], scope["arguments"])
    function, arguments, *options = scope["programs"][name]
    return Program(function, arguments, **(options[0] if options else {}))


def dtype_name(short: str) -> str:
    """numpy's name of a dtype that is written as HLO writes it: `f32` is `float32`."""
    return DTYPES.get(short) or DTYPES[short[0]] + short[1:]


def device_description(path: Path, version: tuple[int, ...]) -> str:
    """The text of a device description, without the fields that this jaxlib does not know."""
    lines = path.read_text().splitlines(keepends=True)
    if version < (0, 10):
        kept = [line for line in lines if OLDEST.match(line)]
        return EMPTY_BLOCK.sub("", "".join(kept))
    if version < (0, 11):
        lines = [line for line in lines if not line.strip().startswith(NEWER_FIELDS)]
    return "".join(lines)


def leave_description(directory: Path, description: Path) -> None:
    """Compilers before 0.5 do not say what they compiled for."""
    for stage in directory.glob(f"*{FIRST}"):
        file = stage.with_name(stage.name.removesuffix(FIRST) + ".gpu_target_config.pbtxt")
        if not file.exists():
            file.write_text(description.read_text())


def register_rocm() -> None:
    """Its plugin does not register itself where there is no such GPU."""
    import jax_plugins
    from jax._src import xla_bridge

    for place in jax_plugins.__path__:
        for library in Path(place).glob("xla_rocm*/xla_rocm_plugin.so"):
            xla_bridge.register_plugin("rocm", library_path=str(library))


def compile_program(program: Program, target: str) -> None:
    import jax
    import numpy
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    # Frames inside installed packages keep their path from the package on.
    jax.config.update("jax_hlo_source_file_canonicalization_regex", r"^.*/(site-packages|samples)/")

    here = target == "cpu" and program.devices == 1
    if target == "cpu":
        if program.devices > 1:
            jax.config.update("jax_num_cpu_devices", program.devices)
        devices = jax.devices("cpu")
    else:
        from jax.experimental import topologies

        if target.startswith("tpu"):
            topology = target.partition(":")[2] or "v5e:1x1"
            # libtpu 0.0.23 to 0.0.44 expects the four chips of a host unless this says otherwise.
            bounds = {"chips_per_host_bounds": (1, 1, 1)} if topology.endswith(":1x1") else {}
            devices = topologies.get_topology_desc(topology, platform="tpu", **bounds).devices
        else:
            description = device_description(Path(target), jax.__version_info__)
            platform = "cuda"
            if 'platform_name: "ROCM"' in description:
                platform = "rocm"
                register_rocm()
            devices = topologies.get_topology_desc(
                topology_name=Path(target).stem,
                platform=platform,
                target_config=description,
                topology=f"1x1x{program.devices}",
            ).devices

    shape = tuple(program.mesh.values())
    mesh = Mesh(numpy.array(devices[: program.devices]).reshape(shape), tuple(program.mesh))

    def described(leaf: Any) -> jax.ShapeDtypeStruct:
        partition: tuple[Any, ...] = ()
        if isinstance(leaf, tuple):
            short, dimensions, *rest = leaf
            dtype: Any = dtype_name(short)
            partition = rest[0] if rest else ()
        else:
            dimensions, dtype = leaf.shape, leaf.dtype
        # A topology has to be named by a sharding; what is compiled for here needs none.
        sharding = None if here else NamedSharding(mesh, PartitionSpec(*partition))
        return jax.ShapeDtypeStruct(dimensions, dtype, sharding=sharding)

    def is_leaf(node: Any) -> bool:
        return isinstance(node, tuple) and bool(node) and isinstance(node[0], str)

    arguments = jax.tree.map(described, program.arguments, is_leaf=is_leaf)
    is_older = jax.__version_info__ < (0, 5)  # takes a mesh as it is, and the host for the target
    set_mesh = getattr(jax, "set_mesh", None) or getattr(jax.sharding, "use_mesh", None)
    with nullcontext() if here else mesh if is_older else set_mesh(mesh):
        traced = jax.jit(program.function, donate_argnums=program.donate).trace(*arguments)
        platforms = ("cuda",) if is_older and not here else None
        traced.lower(lowering_platforms=platforms).compile()


def set_variables(target: str) -> None:
    os.environ["JAX_PLATFORMS"] = "tpu,cpu" if target.startswith("tpu") else "cpu"
    os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"  # a cache hit dumps nothing
    os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"
    os.environ["TPU_SKIP_MDS_QUERY"] = "1"
    os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"  # nothing runs on it, so nothing is locked


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("program", help="FILE.py, or FILE.py:NAME of its table")
    parser.add_argument(
        "target", help="cpu, h100, …, a description FILE.txtpb, tpu, or tpu:v6e:2x2"
    )
    parser.add_argument("directory", type=Path, help="where the dump goes")
    parser.add_argument("--record", action="store_true", help="dump the Fusion Explorer record")
    parser.add_argument("--flag", action="append", default=[], help="one more XLA flag")
    options = parser.parse_args()

    target = options.target
    described = DEVICES / f"{target}.txtpb"
    if described.exists():
        target = str(described)
    gpu = target.endswith(".txtpb")

    flags = [f"--xla_dump_to={options.directory}"]
    flags += RECORD if options.record else STAGES
    if gpu:
        flags += GPU if options.record else (*GPU, *GPU_STAGES)
    flags += options.flag

    os.environ["XLA_FLAGS"] = " ".join(flags)
    set_variables(target)
    path, _, name = options.program.partition(":")
    compile_program(load(Path(path), name or None), target)
    if gpu:
        leave_description(options.directory, Path(target))


if __name__ == "__main__":
    main()
