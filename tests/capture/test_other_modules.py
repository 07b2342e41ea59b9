"""Computations at import are compiled too, and leave files beside those of the program."""

from __future__ import annotations

from pathlib import Path

from fusionscope.capture.capture import _remove_others

# As jaxlib names them: the compiler for a TPU counts apart from the one for the host.
HOST = ("0000.jit_stage.before_optimizations.txt", "0000.jit_stage.debug_options", "0000.jit_stage")
FIRST = ("0003.jit_step.before_optimizations.txt", "0003.jit_step.cpu_after_optimizations.txt")
TPU = (
    "0000.jit_step.cl_10.before_optimizations.txt",
    "0000.jit_step.cl_10.0001.fusion.after_a.before_b.txt",
    "0000.metadata.textproto",
)
LATER = ("0012.jit_step.before_optimizations.txt", "0012.jit_step.cpu_after_optimizations.txt")


def remaining(directory: Path, *names: str) -> set[str]:
    for name in names:
        path = directory / f"module_{name}"
        if path.suffix:
            path.touch()
        else:
            path.mkdir()
    _remove_others(directory, "jit_step")
    return {path.name.removeprefix("module_") for path in directory.iterdir()}


def test_the_last_module_of_the_name_stays(tmp_path):
    assert remaining(tmp_path, *HOST, *FIRST, *LATER) == set(LATER)


def test_a_module_of_another_device_may_have_the_same_number(tmp_path):
    assert remaining(tmp_path, *HOST, *TPU) == set(TPU)
