import re

import pytest

from fusionscope.dump.instruction_ids import KnownParts, module_part, read_instruction_ids
from fusionscope.dump.priority_fusion import read_priority_fusion
from fusionscope.errors import UnusableInput


@pytest.fixture
def stage(data):
    return next((data / "h100_loop").glob("*.hlo.pb"))


def ids_by_protobuf(content):
    """The same names and ids, read by protobuf itself."""
    descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
    from google.protobuf import descriptor_pool, message_factory

    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="hlo.proto", syntax="proto3")
    for name, fields in {
        "Instruction": [("name", 1, "string"), ("id", 35, "int")],
        "Computation": [("name", 1, "string"), ("instructions", 2, "Instruction")],
        "Module": [("computations", 3, "Computation")],
        "Hlo": [("hlo_module", 1, "Module")],
    }.items():
        message = file.message_type.add(name=name)
        for field_name, number, kind in fields:
            added = message.field.add(name=field_name, number=number)
            added.label = field.LABEL_OPTIONAL
            if kind == "string":
                added.type = field.TYPE_STRING
            elif kind == "int":
                added.type = field.TYPE_INT64
            else:
                added.type, added.type_name = field.TYPE_MESSAGE, "." + kind
                if field_name != "hlo_module":
                    added.label = field.LABEL_REPEATED
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    hlo = message_factory.GetMessageClass(pool.FindMessageTypeByName("Hlo")).FromString(content)
    return {
        computation.name: {
            instruction.name: instruction.id for instruction in computation.instructions
        }
        for computation in hlo.hlo_module.computations
    }


def test_ids_are_those_that_protobuf_reads(stage):
    assert read_instruction_ids(stage.read_bytes(), stage.name) == ids_by_protobuf(
        stage.read_bytes()
    )


def test_names_are_those_of_the_text(stage, data):
    # The record holds the text of the same stage, with a line for every instruction.
    name = "h100_loop/module_0001.jit_f.priority_fusion_dump.txt"
    text = read_priority_fusion((data / name).read_bytes(), name).module_before_fusion()
    output = {
        computation: set(re.findall(r"^  (?:ROOT )?([\w.-]+) = ", body, re.MULTILINE))
        for computation, body in re.findall(
            r"^(?:ENTRY )?([\w.-]+) [^\n]*\{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL
        )
    }
    ids = read_instruction_ids(stage.read_bytes(), stage.name)
    assert {computation: set(names) for computation, names in ids.items()} == output


def test_ids_tell_the_computation(stage):
    # A unique id is the id of the computation, then 32 bits for the instruction in it.
    ids = read_instruction_ids(stage.read_bytes(), stage.name)
    computations = [{first >> 32 for first in names.values()} for names in ids.values()]
    assert all(len(first) == 1 for first in computations)
    assert len(set().union(*computations)) == len(ids)
    assert all(len(set(names.values())) == len(names) for names in ids.values())


def test_the_module_part_is_the_whole_module(stage):
    # One field holds it: its number, its length, then the module, and the file ends there.
    content = stage.read_bytes()
    module = module_part(content, "f")
    assert content.endswith(module)
    assert content[0] == 1 << 3 | 2 and len(content) - len(module) == 3


def test_a_module_that_is_cut_off_is_refused(stage):
    content = stage.read_bytes()
    for length in range(len(content)):
        with pytest.raises(UnusableInput):
            read_instruction_ids(content[:length], "f")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"HloModule jit_f\n",
        b"\x80" * 1000,
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x0a\x00",  # a module of nothing
        b"\x0b",  # a group, which hlo.proto never uses
        b"\x0a\x02\x1a\x00",  # a computation of nothing
        b"\x0a\x07\x1a\x05\x0a\x01c\x12\x00",  # an instruction of nothing
    ],
)
def test_other_bytes_are_refused(content):
    with pytest.raises(UnusableInput):
        read_instruction_ids(content, "f")


def test_a_damaged_module_is_taken_or_refused(stage, survives_damage):
    survives_damage(lambda damaged: read_instruction_ids(damaged, "f"), stage.read_bytes())


def test_what_is_known_changes_no_id(stage, monkeypatch):
    content = stage.read_bytes()
    ids = read_instruction_ids(content, "f")
    names = KnownParts()
    assert read_instruction_ids(content, "f", names) == ids
    assert sorted(name for name, *_ in names.instructions.values()) == sorted(
        name for computation in ids.values() for name in computation
    )
    # The second time no instruction is read, and the ids are those of the first time.
    monkeypatch.delattr("fusionscope.dump.instruction_ids._instruction")
    assert read_instruction_ids(content, "f", names) == ids
    names.computations.clear()
    assert read_instruction_ids(content, "f", names) == ids


def test_other_ids_of_known_instructions_are_read(stage):
    content = stage.read_bytes()
    names = KnownParts()
    ids = read_instruction_ids(content, "f", names)
    # 35 << 3 as the tag; the last byte of a small id is below 128.
    tag = content.rindex(b"\x98\x02")
    renumbered = bytearray(content)
    renumbered[tag + 2] ^= 1
    actual = read_instruction_ids(bytes(renumbered), "f", names)
    assert actual == read_instruction_ids(bytes(renumbered), "f") != ids


def test_what_is_known_with_other_ids(stage, monkeypatch):
    content = stage.read_bytes()
    ids = read_instruction_ids(content, "f")
    names = KnownParts()
    read_instruction_ids(content, "f", names)
    # Another id of an instruction: the last of its bytes counts for most, and stays below 0x80.
    _, _, before_id, id_bytes = next(iter(names.instructions.values()))
    place = content.index(before_id + id_bytes) + len(before_id + id_bytes) - 1
    changed = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
    expected = read_instruction_ids(changed, "f")
    assert expected != ids
    monkeypatch.delattr("fusionscope.dump.instruction_ids._instruction")
    assert read_instruction_ids(changed, "f", names) == expected
    assert read_instruction_ids(content, "f", names) == ids
