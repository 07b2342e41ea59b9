import dataclasses

import pytest

from fusionscope.dump.device import (
    CudaCapability,
    OneApiCapability,
    RocmCapability,
    describe,
    marketing_name,
    read_device,
)
from fusionscope.errors import UnusableInput

H100 = "h100/module_0001.jit_f.gpu_target_config.pbtxt"
ROCM = """
gpu_device_info {
  threads_per_warp: 64 core_count: 304 memory_bandwidth: 6810000000000
  device_memory_size: 270566162432
  rocm_compute_capability { gcn_arch_name: "gfx942:sramecc+:xnack-" }
}
platform_name: "ROCM" device_description_str: "AMD Radeon Graphics"
"""
INTEL = """
gpu_device_info {
  core_count: 20 memory_bandwidth: 456000000000 device_memory_size: 12168933376
  data_caches { level: 1 size_bytes: 16384 num_instances: 20 }
  data_caches { level: 2 size_bytes: 18874368 num_instances: 1 }
  registers_per_core_limit: -1
  oneapi_compute_capability { architecture: "BMG" }
}
platform_name: "SYCL"
"""


def device_of(text):
    return read_device(text.encode(), "device.pbtxt")


def test_fields_of_a_real_description(data):
    device = read_device((data / H100).read_bytes(), H100)
    printed = dict(
        line.strip().split(": ", 1)
        for line in (data / H100).read_text().split("scalar_unit_description")[0].splitlines()
        if ": " in line
    )
    for field in dataclasses.fields(device):
        if field.name in printed:
            assert getattr(device, field.name) == float(printed[field.name]), field.name
    assert len(printed.keys() & {field.name for field in dataclasses.fields(device)}) == 17
    assert device.capability == CudaCapability(9, 0, "a")
    assert device.platform_name == "CUDA"
    assert device.compile_time_toolkit_version == "12.8.0"


def test_rates_give_the_published_throughput(data):
    # NVIDIA H100 data sheet, SXM, without sparsity: 67 TFLOP/s in f32, 989.4 in bf16 tensor cores.
    device = read_device((data / H100).read_bytes(), H100)

    def teraflops(units, element_type):
        (rate,) = (unit for unit in units if unit.element_type == element_type)
        per_core = rate.units_per_core * rate.ops_per_clock * rate.clock_rate_ghz
        return 2 * per_core * device.core_count / 1e3  # a multiply-add is two operations

    assert teraflops(device.scalar_units, "f32") == pytest.approx(67, rel=0.01)
    assert teraflops(device.matrix_units, "bf16") == pytest.approx(989.4, rel=0.001)


# The cards that the compiler was told to compile for.
CARDS = {
    "devices/v100.gpu_target_config.pbtxt": "V100 SXM2 16GB (sm_70, 80 cores, 0.90 TB/s)",
    "devices/a100_sxm_80.gpu_target_config.pbtxt": "A100 SXM 80GB (sm_80, 108 cores, 2.04 TB/s)",
    H100: "H100 SXM (sm_90a, 132 cores, 3.35 TB/s)",
    "devices/h200.gpu_target_config.pbtxt": "H200 (sm_90a, 132 cores, 4.80 TB/s)",
    "devices/b200.gpu_target_config.pbtxt": "B200 (sm_100a, 148 cores, 7.67 TB/s)",
}


@pytest.mark.parametrize("name", CARDS)
def test_cards_are_recognised_by_their_figures(data, name):
    device = dataclasses.replace(read_device((data / name).read_bytes(), name), name="")
    assert describe(device) == CARDS[name]


def test_amd_and_intel():
    rocm, intel = device_of(ROCM), device_of(INTEL)
    assert rocm.capability == RocmCapability("gfx942:sramecc+:xnack-")
    assert describe(rocm) == "MI300X (gfx942, 304 cores, 6.81 TB/s)"
    assert intel.capability == OneApiCapability("BMG")
    assert intel.l2_cache_size == 18874368
    assert intel.registers_per_core_limit == -1
    assert marketing_name(intel) == "Arc B580"


def test_figures_of_no_card_claim_no_card(data):
    hopper = read_device((data / H100).read_bytes(), H100)
    slower = dataclasses.replace(hopper, memory_bandwidth=hopper.memory_bandwidth // 100)
    assert marketing_name(slower) == "NVIDIA H100 80GB HBM3"  # what the description says of itself
    nameless = dataclasses.replace(slower, name="")
    assert marketing_name(nameless) is None
    assert describe(nameless) == "unnamed GPU (sm_90a, 132 cores, 0.03 TB/s)"
    partition = dataclasses.replace(hopper, name="", core_count=16)
    assert marketing_name(partition) is None


def test_what_is_not_given_is_zero_or_empty():
    device = device_of("gpu_device_info { core_count: 3 } new_field { a: 1 }")
    assert (device.core_count, device.fpus_per_core, device.clock_rate_ghz) == (3, 0, 0.0)
    assert (device.name, device.capability, device.matrix_units) == ("", None, ())
    assert describe(device) == "unnamed GPU (3 cores)"


@pytest.mark.parametrize(
    "text",
    ["", "platform_name: 'CUDA'", "gpu_device_info: 1", "gpu_device_info { core_count: many }"],
)
def test_what_is_no_description_is_refused(text):
    with pytest.raises(UnusableInput):
        device_of(text)


def test_a_damaged_description_is_taken_or_refused(data, survives_damage):
    survives_damage(lambda damaged: describe(read_device(damaged, "f")), (data / H100).read_bytes())
