import re
import struct
from collections import Counter

import pytest

from fusionscope.dump.fusion_explorer import Kind, read_fusion_explorer
from fusionscope.dump.priority_fusion import Fused, Ineligible, Priority, read_priority_fusion
from fusionscope.errors import UnusableInput

RECORDS = [
    "h100/module_0001.jit_f.priority_fusion_dump.txt",
    "h100_loop/module_0001.jit_f.priority_fusion_dump.txt",
    "a100_0.4.35/module_0001.jit__lambda_.priority_fusion_dump.txt",
]
LOOP = RECORDS[1]


def read(data, name):
    return read_priority_fusion((data / name).read_bytes(), name)


def steps_by_protobuf(text):
    """The same steps, read by protobuf itself."""
    descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
    from google.protobuf import descriptor_pool, message_factory, text_format

    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="dump.proto", syntax="proto3")

    def message(name, *fields):
        added = file.message_type.add(name=name)
        for number, (field_name, kind, label) in enumerate(fields, 1):
            new = added.field.add(name=field_name, number=number, label=label)
            if isinstance(kind, str):
                new.type, new.type_name = field.TYPE_MESSAGE, "." + kind
            else:
                new.type = kind

    first, many = field.LABEL_OPTIONAL, field.LABEL_REPEATED
    text_type, float_type = field.TYPE_STRING, field.TYPE_FLOAT
    message(
        "Fusion",
        ("fusion_name", text_type, first),
        ("producer_name", text_type, first),
        ("consumer_name", text_type, first),
    )
    message("Refusal", ("producer_name", text_type, first), ("reason", text_type, first))
    message(
        "Score",
        ("producer_name", text_type, first),
        ("consumer_names", text_type, many),
        ("us_fused", float_type, first),
        ("us_unfused", float_type, first),
    )
    message(
        "Step",
        ("fusion", "Fusion", first),
        ("update_priority", "Score", first),
        ("producer_ineligible", "Refusal", first),
    )
    message(
        "Record", ("fusion_steps", "Step", many), ("hlo_module_before_fusion", text_type, first)
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    record = message_factory.GetMessageClass(pool.FindMessageTypeByName("Record"))()
    text_format.Parse(text, record, allow_unknown_field=True)
    return record


@pytest.mark.parametrize("name", RECORDS)
def test_steps_are_those_that_protobuf_reads(data, name):
    def float32(number):
        return struct.unpack("f", struct.pack("f", number))[0]

    record = read(data, name)
    expected = steps_by_protobuf((data / name).read_text())
    assert record.module_before_fusion() == expected.hlo_module_before_fusion
    assert len(record.steps) == len(expected.fusion_steps)
    for step, second in zip(record.steps, expected.fusion_steps, strict=True):
        match step:
            case Fused(fusion, producer, consumer):
                actual = second.fusion
                assert (fusion, producer) == (actual.fusion_name, actual.producer_name)
                assert consumer == actual.consumer_name
            case Ineligible(producer, reason):
                actual = second.producer_ineligible
                assert (producer, reason) == (actual.producer_name, actual.reason)
            case Priority(producer, consumers, fused_us, unfused_us):
                actual = second.update_priority
                assert (producer, list(consumers)) == (actual.producer_name, actual.consumer_names)
                assert float32(fused_us) == actual.us_fused
                assert float32(unfused_us) == actual.us_unfused


def test_steps_are_those_of_the_fusion_explorer(data):
    # The same compile, recorded twice. The steps of the computations follow each other.
    record = read(data, LOOP)
    main, loop = sorted((data / "h100_loop").glob("*._fusion.pyz"))
    decisions = [
        decision
        for file in (loop, main)
        for decision in read_fusion_explorer(file.read_bytes(), file.name).decisions
        if decision.pass_name == "PriorityFusion"
    ]
    about_to_fuse = [d for d in decisions if d.kind is Kind.ABOUT_TO_FUSE]
    fused = [d for d in decisions if d.kind is Kind.FUSED]
    assert [step for step in record.steps if isinstance(step, Fused)] == [
        Fused(after.consumer, before.producer, before.consumer)
        for before, after in zip(about_to_fuse, fused, strict=True)
    ]
    ineligible = Counter((d.producer, d.reason) for d in decisions if d.kind is Kind.INELIGIBLE)
    assert ineligible == Counter(
        (step.producer, step.reason) for step in record.steps if isinstance(step, Ineligible)
    )


def test_the_module_is_the_stage_before_the_pass(data):
    stage = next((data / "h100_loop").glob("*before_priority-fusion.txt")).read_text()
    module = read(data, LOOP).module_before_fusion()
    by_name = re.compile(r"^  (?:ROOT )?%?([\w.-]+) = (?!.* get-tuple-element\()", re.MULTILINE)
    assert set(by_name.findall(module)) == set(by_name.findall(stage))


def test_the_device_is_the_one_compiled_for(data):
    hopper = read(data, LOOP).device
    assert (str(hopper.capability), hopper.core_count) == ("sm_90a", 132)
    ampere = read(data, RECORDS[2]).device
    assert (str(ampere.capability), ampere.core_count) == ("sm_80", 108)


def record_of(steps):
    return read_priority_fusion(f'{steps}\nhlo_module_before_fusion: "HloModule m"'.encode(), "f")


def test_times_that_are_zero_are_not_printed():
    record = record_of(
        'fusion_steps { update_priority { producer_name: "a" consumer_names: "b" us_unfused: 2 } }'
    )
    assert record.steps == (Priority("a", ("b",), 0.0, 2.0),)
    assert record.device is None


def test_times_may_be_infinite():
    record = record_of(
        'fusion_steps { update_priority { producer_name: "a" us_fused: inf us_unfused: 1e-3 } }'
    )
    assert record.steps == (Priority("a", (), float("inf"), 0.001),)


def test_unknown_fields_and_kinds_of_steps_are_left_out():
    record = record_of(
        'fusion_steps { new_kind { a: 1 } } fusion_steps { note: "x" } new_field: 1\n'
        'fusion_steps { fusion { fusion_name: "f" producer_name: "a" consumer_name: "b" why: 3 } }'
    )
    assert record.steps == (Fused("f", "a", "b"),)


@pytest.mark.parametrize("name", RECORDS)
def test_steps_printed_in_another_way_are_the_same(data, name):
    whole = (data / name).read_bytes()
    expected = read(data, name).steps
    places = [match.end() for match in re.finditer(rb"\nfusion_steps \{", whole)]
    for changed in (places, places[::7], places[len(places) // 2 :][:1]):
        printed = whole
        for place in reversed(changed):
            printed = printed[:place] + b" # a comment" + printed[place:]
        assert read_priority_fusion(printed, name).steps == expected


def test_a_time_that_is_no_number_is_refused_by_its_line():
    step = 'fusion_steps {\n  update_priority {\n    producer_name: "a"\n    us_fused: %s\n  }\n}\n'
    with pytest.raises(UnusableInput, match=r"us_fused is 1\.2\.3, expected a number"):
        record_of(step % "1.0" + step % "1.2.3")
    with pytest.raises(UnusableInput) as caught:
        record_of(step % "1.0" + step % "@")
    assert (caught.value.line, caught.value.column) == (10, 5)


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_that_is_cut_off_is_refused(data, name):
    whole = (data / name).read_bytes().rstrip()
    for length in [*range(0, len(whole), 97), len(whole) - 1]:
        with pytest.raises(UnusableInput):
            read_priority_fusion(whole[:length], name)


def test_another_text_proto_is_refused(data):
    with pytest.raises(UnusableInput, match="expected a priority-fusion record"):
        read(data, "h100/module_0001.jit_f.gpu_target_config.pbtxt")


def test_a_damaged_record_is_taken_or_refused(data, survives_damage):
    def read_all(damaged):
        return read_priority_fusion(damaged, "f").module_before_fusion()

    survives_damage(read_all, (data / RECORDS[0]).read_bytes())
