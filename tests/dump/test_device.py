import dataclasses
import tomllib
from importlib.resources import files

import pytest

from fusionscope.dump.device import (
    CudaCapability,
    OneApiCapability,
    RocmCapability,
    describe,
    find_device,
    known_device,
    marketing_name,
    read_device,
)
from fusionscope.errors import UnusableInput, quoted

H100 = "h100/module_0001.jit_f.gpu_target_config.pbtxt"
ROCM = """
gpu_device_info {
  threads_per_warp: 64 core_count: 304 memory_bandwidth: 5300000000000
  device_memory_size: 206158430208
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
NAMES = tomllib.loads((files("fusionscope.dump") / "devices.toml").read_text())


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


def teraflops(device, units, element_type):
    (rate,) = (unit for unit in units if unit.element_type == element_type)
    per_core = rate.units_per_core * rate.ops_per_clock * rate.clock_rate_ghz
    return 2 * per_core * device.core_count / 1e3  # a multiply-add is two operations


def test_rates_give_the_published_throughput(data):
    # NVIDIA H100 data sheet, SXM, without sparsity: 67 TFLOP/s in f32, 989.4 in bf16 tensor cores.
    device = read_device((data / H100).read_bytes(), H100)
    assert teraflops(device, device.scalar_units, "f32") == pytest.approx(67, rel=0.01)
    assert teraflops(device, device.matrix_units, "bf16") == pytest.approx(989.4, rel=0.001)


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
    assert describe(rocm) == "MI300X (gfx942, 304 cores, 5.30 TB/s)"
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


# What the compiler wrote of cards that are known by name.
KNOWN = dict(zip(("v100", "a100", "h100", "h200", "b200"), CARDS, strict=True))


@pytest.mark.parametrize("name", KNOWN)
def test_known_devices_are_what_the_compiler_describes(data, name):
    assert known_device(name) == read_device((data / KNOWN[name]).read_bytes(), name)


# Streaming multiprocessors or compute units, memory in GB and GB/s, from the vendors' data sheets.
@pytest.mark.parametrize(
    ("name", "cores", "memory", "bandwidth"),
    [
        ("p100", 56, 16, 732),
        ("v100", 80, 16, 900),
        ("a100-40gb", 108, 40, 1555),
        ("a100", 108, 80, 2039),
        ("a100-pcie", 108, 80, 1935),
        ("a6000", 84, 48, 768),
        ("h100", 132, 80, 3350),
        ("h100-pcie", 114, 80, 2000),
        ("h200", 132, 141, 4800),
        ("b200", 148, 180, 8000),
        ("rtx6000pro", 188, 96, 1792),
        ("mi300x", 304, 192, 5300),
    ],
)
def test_known_devices_are_as_published(name, cores, memory, bandwidth):
    device = known_device(name)
    assert device.core_count == cores
    assert device.memory_bandwidth == pytest.approx(bandwidth * 1e9, rel=0.06)
    # Some sheets count GB in powers of ten, some of two.
    assert memory * 0.98e9 <= device.device_memory_size <= memory * 2**30 * 1.01


# Dense teraflops of tensor cores in bf16, from the same.
@pytest.mark.parametrize(
    ("name", "expected"),
    [("a100", 312), ("h100-pcie", 756), ("h200", 989), ("b200", 2250), ("gb200", 2500)],
)
def test_rates_of_known_devices_are_as_published(name, expected):
    device = known_device(name)
    assert teraflops(device, device.matrix_units, "bf16") == pytest.approx(expected, rel=0.05)


def test_every_known_device_is_whole():
    labels = set()
    for name in NAMES:
        device = known_device(name)
        labels.add(marketing_name(device))
        for field in dataclasses.fields(device):
            figure = getattr(device, field.name)
            if isinstance(figure, int | float) and not field.name.startswith("registers"):
                assert figure > 0, (name, field.name)
        assert device.threads_per_warp == (64 if name.startswith("mi") else 32)
        assert device.capability is not None and device.name and device.platform_name
    assert len(labels) == len(NAMES) and None not in labels


@pytest.mark.parametrize("name", ["RTX6000Pro", "rtx 6000 pro", "RTX-6000_PRO", "rtx-6000-pro"])
def test_names_may_be_spelled_in_several_ways(name):
    assert known_device(name) == known_device("rtx6000pro")


@pytest.mark.parametrize("name", NAMES)
def test_a_card_answers_to_what_it_is_called_elsewhere(name):
    """By people, as ``explain`` prints it, and by its driver, as ``nvidia-smi`` does."""
    for callees in NAMES[name]["label"], NAMES[name]["name"], NAMES[name]["name"].lower():
        assert known_device(callees) == known_device(name)


@pytest.mark.parametrize(
    ("name", "close"),
    [
        ("h10", "h100"),
        ("h100-smx", "h100"),
        ("a100-80gb", "a100"),
        ("mi300", "mi300x"),
        ("rtx-pro-6000", "rtx6000pro"),
        ("l40s", None),
        ("", None),
        ("x" * 5000, None),
    ],
)
def test_an_unknown_name_is_told_with_all_there_are(name, close):
    with pytest.raises(UnusableInput) as refused:
        known_device(name)
    assert quoted(name) in str(refused.value) and ", ".join(NAMES) in str(refused.value)
    assert len(str(refused.value)) < 400
    meant = (refused.value.hint or "").removeprefix("did you mean ").rstrip("?").split(" or ")
    assert close in meant if close is not None else refused.value.hint is None


@pytest.mark.parametrize("name", ["h10", "", "/no/such/file"])
def test_what_is_neither_name_nor_file_is_told_as_an_unknown_name(name):
    with pytest.raises(UnusableInput, match=r"no device is called .* or a file that describes one"):
        find_device(name)


def test_a_file_can_stand_for_a_name(data, tmp_path, monkeypatch):
    file = data / KNOWN["v100"]
    assert find_device(str(file)) == known_device("v100")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "h100").write_bytes(file.read_bytes())
    assert find_device("h100") == known_device("h100")
    assert find_device("./h100") == known_device("v100")


@pytest.mark.parametrize("content", [b"", b"HloModule m", b"\xff\xfe"])
def test_a_file_that_describes_no_gpu_is_refused(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(UnusableInput, match=str(tmp_path / "file")):
        find_device(str(tmp_path / "file"))
    with pytest.raises(UnusableInput, match="a file that describes one"):
        find_device(str(tmp_path))


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
