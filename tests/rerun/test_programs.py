"""What is taken from a dump to compile its program again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fusionscope.dump import open_dump
from fusionscope.rerun.programs import own_flags

SAMPLE = Path(__file__).parents[2] / "samples" / "dumps" / "h100" / "elementwise"


def flags_with(line: str, directory: Path) -> list[str]:
    """Return the flags of a copy of the sample whose options end with ``line``."""
    shutil.copytree(SAMPLE, directory, dirs_exist_ok=True)
    (options,) = directory.glob("*.debug_options")
    options.write_text(f"{options.read_text()}{line}\n")
    (module,) = open_dump(directory).modules
    return list(own_flags(module))


def test_flags_of_the_dump_are_taken(tmp_path: Path) -> None:
    assert "--xla_gpu_autotune_level=0" in flags_with("", tmp_path)
    flags = flags_with("xla_gpu_enable_triton_gemm: false", tmp_path)
    assert "--xla_gpu_enable_triton_gemm=false" in flags


@pytest.mark.parametrize(
    "name",
    [
        "xla_gpu_cuda_data_dir",
        "xla_gpu_kernel_cache_file",
        "xla_gpu_dump_autotune_results_to",
        "xla_gpu_target_config_filename",
        "xla_gpu_algorithm_denylist_path",
    ],
)
def test_flags_that_name_files_are_not_taken(name: str, tmp_path: Path) -> None:
    flags = flags_with(f'{name}: "chosen"', tmp_path)
    assert "--xla_gpu_autotune_level=0" in flags
    assert not [flag for flag in flags if name in flag]
