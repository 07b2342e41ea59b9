import gzip

import pytest

from fusionscope.dump.debug_options import FUSION_FLAGS, flags_that_matter, read_debug_options
from fusionscope.errors import UnusableInput

CPU = "cpu/module_0000.jit_f.debug_options"
GPU = "h100/module_0001.jit_f.debug_options"
CONFIG = "h100/module_0001.jit_f.config.pbtxt.gz"


def read(data, name):
    content = (data / name).read_bytes()
    return read_debug_options(gzip.decompress(content) if name.endswith(".gz") else content, name)


def test_flags_that_were_set_for_the_compile(data):
    # XLA_FLAGS of that compile: --xla_disable_hlo_passes=algsimp,dot-merger
    # --xla_backend_extra_options=xla_cpu_use_multi_output_fusion --xla_dump_fusion_visualization
    options = read(data, CPU)
    assert not options.complete
    assert options.values["xla_disable_hlo_passes"] == ("algsimp", "dot-merger")
    assert options.values["xla_backend_extra_options"] == ("xla_cpu_use_multi_output_fusion=",)
    assert options.values["xla_dump_fusion_visualization"] == ("true",)
    assert [(flag.name, values) for flag, values in flags_that_matter(options)] == [
        ("xla_disable_hlo_passes", ("algsimp", "dot-merger")),
        ("xla_backend_extra_options", ("xla_cpu_use_multi_output_fusion=",)),
    ]


def test_the_whole_configuration_agrees_with_the_differences(data):
    differences, whole = read(data, GPU), read(data, CONFIG)
    assert whole.complete and len(whole.values) > 200
    assert differences.values.items() <= whole.values.items()
    # Compiled with --xla_gpu_autotune_level=0 and otherwise defaults.
    for options in (differences, whole):
        ((flag, values),) = flags_that_matter(options)
        assert (flag.name, values) == ("xla_gpu_autotune_level", ("0",))


def test_defaults_are_those_of_the_compiler(data):
    whole = read(data, CONFIG)
    listed = {flag.name: flag.default for flag in FUSION_FLAGS if flag.name in whole.values}
    assert len(listed) > 15
    del listed["xla_gpu_autotune_level"]  # was set
    assert listed == {name: whole.values[name] for name in listed}


def test_a_file_with_defaults_only_is_empty():
    options = read_debug_options(b"", "f")
    assert options.values == {}
    assert flags_that_matter(options) == ()


def test_messages_that_are_no_map_entries_are_no_error():
    options = read_debug_options(b"xla_a: 1 xla_b { c { d: 1 } }", "f")
    assert options.values["xla_a"] == ("1",)


@pytest.mark.parametrize("text", [b"core_count: 3", b"no flags here", b"xla_a: {", b"\xff"])
def test_what_lists_no_flags_is_refused(text):
    with pytest.raises(UnusableInput):
        read_debug_options(text, "f")


@pytest.mark.parametrize("name", [CPU, GPU])
def test_a_damaged_file_is_taken_or_refused(data, survives_damage, name):
    survives_damage(
        lambda damaged: flags_that_matter(read_debug_options(damaged, "f")),
        (data / name).read_bytes(),
    )
