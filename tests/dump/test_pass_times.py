import gzip
import re

import pytest

from fusionscope.dump.pass_times import PassTime, read_pass_times
from fusionscope.errors import UnusableInput

FILE = "h100/module_0001.metadata.textproto.gz"


@pytest.fixture
def content(data):
    return gzip.decompress((data / FILE).read_bytes())


def test_every_pass_is_there(content):
    passes = read_pass_times(content, FILE)
    text = content.decode()
    assert [first.name for first in passes] == re.findall(r'^  pass_name: "(.*)"', text, re.M)
    assert [first.pass_id for first in passes] == list(range(1, len(passes) + 1))
    assert sum(first.module_changed for first in passes) == text.count("module_changed: true")


def test_passes_end_after_they_start(content):
    passes = read_pass_times(content, FILE)
    assert all(first.start_us <= first.end_us for first in passes)
    starts = [first.start_us for first in passes]
    assert starts == sorted(starts)


def test_dump_files_are_named_after_the_pass(content):
    (fusion,) = (
        first for first in read_pass_times(content, FILE) if first.name == "priority-fusion"
    )
    assert fusion.pipeline == "fusion" and fusion.module_changed
    # Compiled with text, proto and Fusion Explorer record.
    stage = "module_0001.jit_f.0001.fusion.after_priority-fusion.before_cse"
    assert set(fusion.dump_files) == {
        f"{stage}.txt",
        f"{stage}.hlo.pb",
        "main.3.module_0001.jit_f._fusion.pyz",
    }


def test_fields_that_are_absent():
    passes = read_pass_times(b'pass_metadata { pass_name: "x" new_field { a: 1 } }', "f")
    assert passes == (
        PassTime(
            pass_id=0,
            pipeline="",
            name="x",
            start_us=0,
            end_us=0,
            module_changed=False,
            dump_files=(),
        ),
    )


@pytest.mark.parametrize("text", [b"", b"xla_a: 1", b"pass_metadata {", b"pass_metadata: 1"])
def test_what_lists_no_pass_is_refused(text):
    with pytest.raises(UnusableInput):
        read_pass_times(text, "f")


def test_a_damaged_file_is_taken_or_refused(content, survives_damage):
    survives_damage(lambda damaged: read_pass_times(damaged, "f"), content[:6000])
