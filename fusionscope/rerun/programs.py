"""Finds in a dump what is needed to compile its program again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from fusionscope.capture.capture import CONSTANTS, INPUTS
from fusionscope.capture.description import describe_target
from fusionscope.capture.targets import Target, read_target
from fusionscope.dump import DumpedModule
from fusionscope.dump.device import CudaCapability
from fusionscope.dump.stage import BEFORE_OPTIMIZATIONS
from fusionscope.errors import UnusableInput
from fusionscope.hlo import Module
from fusionscope.hlo.attributes import split_attributes
from fusionscope.system.files import is_there

# A dump may come from elsewhere: its flags name no files to read or write here.
_OWN_FLAGS = {
    "cpu": re.compile(r"xla_cpu_.*|xla_backend_extra_options|xla_allow_excess_precision"),
    "gpu": re.compile(
        r"xla_gpu_(?!.*(_dir|_file|_path|_to|filename)$).*|xla_allow_excess_precision"
    ),
}
_DEVICE_COUNTS = ("num_partitions", "replica_count")
_SIMPLE_VALUE = re.compile(r"[\w.+=-]*")
_DISABLE_FLAG = "xla_disable_hlo_passes"
_CONSTANTS_FLAG = "xla_dump_large_constants"
_OMITTED = "{...}"


def find_program(module: DumpedModule) -> Module:
    """Return the program as the compiler received it. Raises ``UnusableInput`` without one."""
    for stage in module.stages:
        if stage.label == BEFORE_OPTIMIZATIONS:
            program = module.read(stage)
            for name in _DEVICE_COUNTS:
                count = split_attributes(program.header).get(name, "1")
                if count != "1":
                    raise UnusableInput(
                        f"{module.name}: is a program for several devices ({name}={count}), and "
                        "only those for one can be compiled again"
                    )
            return program
    raise UnusableInput(f"{module.name}: the dump lacks the program, {BEFORE_OPTIMIZATIONS}.txt")


def recorded_inputs(module: DumpedModule) -> Path | None:
    """Return the inputs that ``capture`` recorded with the dump, or None."""
    for stage in module.stages:
        if stage.label == BEFORE_OPTIMIZATIONS and stage.text is not None:
            file = stage.text.path.with_name(INPUTS)
            return file if is_there(file) else None
    return None


def require_final(module: DumpedModule) -> Module:
    """Return the final module. Raises ``UnusableInput`` if the dump lacks it."""
    if module.final is None:
        raise UnusableInput(f"{module.name}: the dump has no final stage to compare with")
    return module.read(module.final)


def find_target(module: DumpedModule) -> Target:
    """Return the compilation target. Raises ``UnusableInput`` if it is unknown."""
    if module.backend == "cpu":
        return Target("cpu", "cpu")
    if module.backend == "tpu":
        if module.tpu is None:
            raise UnusableInput(
                f"{module.name}: the dump does not tell for which TPU it was compiled",
                hint="it lacks its *.target_arguments.txt",
            )
        return read_target(f"tpu:{module.tpu.topology}")
    device = module.device
    if device is None or not isinstance(device.capability, CudaCapability):
        raise UnusableInput(
            f"{module.name}: the dump does not describe an NVIDIA GPU to compile for again",
            hint="it lacks its *.gpu_target_config.pbtxt",
        )
    return Target(str(device.capability), "cuda", description=describe_target(device))


def own_flags(module: DumpedModule) -> Iterator[str]:
    """Yield the flags of the dump that affect the result."""
    flags, pattern = module.flags, _OWN_FLAGS.get(module.backend or "")
    if flags is not None and pattern is not None and not flags.complete:
        for name, values in flags.values.items():
            is_unset = any(not value or value.endswith("_UNSET") for value in values)
            if (
                not is_unset
                and pattern.fullmatch(name)
                and all(map(_SIMPLE_VALUE.fullmatch, values))
            ):
                yield f"--{name}={','.join(values)}"


def constants_flag(module: DumpedModule) -> Iterator[str]:
    """Yield the flag that shows large constants, if the dump was made with it: constants that one
    of two dumps leaves out are different.
    """
    values = module.flags.values if module.flags is not None else {}
    if "true" in values.get(_CONSTANTS_FLAG, ()):
        yield CONSTANTS


def disable_flag(module: DumpedModule, *names: str) -> Iterator[str]:
    """Yield the flag that disables passes and pipelines, with those that the dump disables."""
    disabled = module.flags.values.get(_DISABLE_FLAG, ()) if module.flags is not None else ()
    if names or disabled:
        yield f"--{_DISABLE_FLAG}={','.join([*disabled, *names])}"


def lacks_constants(*modules: Module) -> bool:
    """Return whether the compiler omitted the contents of large constants from the text."""
    return any(
        instruction.opcode == "constant" and _OMITTED in (instruction.literal or "")
        for module in modules
        for instruction in module.walk()
    )
