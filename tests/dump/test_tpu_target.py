import pytest

from fusionscope.dump.tpu_target import read_tpu_target
from fusionscope.errors import UnusableInput

# As libtpu 0.0.50.1 writes it, for the topologies that jax calls v5e:2x2 and v4:2x2x2.
FILE = """configured_properties {{
  routing_strategy: ROUTING_MESH
}}
replica_count: 1
tpu_topology_args {{
  version: TPU_VERSION_{version}
  platform_type: TPU_PLATFORM_TYPE_HARDWARE
  chip_config_name: "default"
  chips_per_host_bounds {{
    x: 2
    y: 2
    z: 1
  }}
  host_bounds {{
    x: 1
    y: 1
    z: {hosts}
  }}
  wrap {{
  }}
}}
"""


def read(version: str, hosts: int = 1):
    return read_tpu_target(FILE.format(version=version, hosts=hosts).encode(), "file")


@pytest.mark.parametrize(
    ("version", "hosts", "name", "topology", "words"),
    [
        ('VIPERFISH\n  variant: "lite"', 1, "v5e", "v5e:2x2", "TPU v5e, 4 chips"),
        ("VIPERFISH", 1, "v5p", "v5p:2x2x1", "TPU v5p, 4 chips"),
        ("PUFFERFISH", 2, "v4", "v4:2x2x2", "TPU v4, 8 chips"),
        ("GHOSTLITE", 1, "v6e", "v6e:2x2", "TPU v6e, 4 chips"),
        ("NEWFISH", 1, "NEWFISH", "NEWFISH:2x2", "TPU NEWFISH, 4 chips"),
    ],
)
def test_generation_and_chips(version, hosts, name, topology, words):
    target = read(version, hosts)
    assert (target.name, target.topology, str(target)) == (name, topology, words)


def test_a_single_chip_is_not_counted():
    text = FILE.format(version="VIPERFISH", hosts=1).replace("x: 2", "x: 1").replace("y: 2", "y: 1")
    assert str(read_tpu_target(text.encode(), "file")) == "TPU v5p"


def test_without_a_topology_there_is_no_target():
    assert read_tpu_target(b"replica_count: 1\n", "file") is None


@pytest.mark.parametrize("text", [b"tpu_topology_args {", b"\x00\x01", b"tpu_topology_args: 3"])
def test_damage_is_told(text):
    with pytest.raises(UnusableInput, match="file"):
        read_tpu_target(text, "file")
