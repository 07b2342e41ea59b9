"""Pairs cut out of a module, and what is changed about them. Expected values are from counting in
the text."""

from __future__ import annotations

import json

import pytest

from fusionscope import UnusableInput
from fusionscope.experiments.bitcasts import write_bitcasts
from fusionscope.experiments.cut import Cut, cuts
from fusionscope.experiments.experiment import Threshold, experiment
from fusionscope.experiments.factors import FACTORS, Change, Setting
from fusionscope.experiments.program import CONSUMER, PRODUCER, Answer, program_text
from fusionscope.experiments.resize import resized, round_between
from fusionscope.graph.mutable import MutableModule, to_module
from fusionscope.hlo import parse
from fusionscope.report.experiments import answer_in_words

TEXT = """HloModule step

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY main {
  x = f32[64,32]{1,0} parameter(0)
  early = f32[64,32]{1,0} sine(x)
  produced = f32[64,32]{1,0} exponential(early), metadata={op_name="jit(f)/{odd}" stack_frame_id=3}
  zero = f32[] constant(0)
  summed = f32[64]{0} reduce(produced, zero), dimensions={1}, to_apply=add
  padded = f32[66,32]{1,0} pad(produced, zero), padding=1_1x0_0, metadata={op_name="pad"}
  last = f32[66,32]{1,0} negate(padded)
  ROOT result = (f32[64]{0}, f32[66,32]{1,0}) tuple(summed, last)
}
"""
MODULE = parse(TEXT)
LIST = str.maketrans("{}", "[]")
ELSE = parse("HloModule m\n\nENTRY e {\n  ROOT nothing = () tuple()\n}\n")  # shares no kernels


def all_cuts(producer: str = "produced", consumer: str = "padded") -> list[Cut]:
    return list(cuts(MODULE, ELSE, producer, consumer))


def opcodes(cut: Cut) -> list[str]:
    return sorted(
        instruction.opcode
        for instruction in cut.module.entry.instructions
        if instruction.opcode not in ("parameter", "constant", "tuple")
    )


def changes(cut: Cut, name: str) -> list[Change]:
    (factor,) = (item for item in FACTORS if item.name == name)
    return list(factor.changes(cut))


def test_a_neighbourhood_grows_from_the_pair_to_the_whole_computation():
    actual = all_cuts()
    assert [item.around for item in actual] == ["the pair", "other users", "operands", "2 steps"]
    assert opcodes(actual[0]) == ["exponential", "pad"]
    assert opcodes(actual[1]) == ["exponential", "pad", "reduce"]
    assert opcodes(actual[-1]) == ["exponential", "negate", "pad", "reduce", "sine"]
    results = [len(item.module.entry.root.operands) for item in actual]
    assert results == [1, 2, 2, 2]


def test_a_program_marks_the_pair_and_nothing_else():
    text = program_text(all_cuts()[1])
    assert "jit(f)" not in text and 'op_name="pad"' not in text and "stack_frame_id" not in text
    assert text.count("metadata=") == 2
    (produced,) = (line for line in text.splitlines() if PRODUCER in line)
    (consumed,) = (line for line in text.splitlines() if CONSUMER in line)
    assert " exponential(" in produced and " pad(" in consumed
    assert parse(text).entry.root.opcode == "tuple"


def test_a_program_asks_for_layouts_of_parameters_and_results_alone():
    text = TEXT.replace("f32[64,32]{1,0} sine", "f32[64,32]{0,1:T(8,128)S(1)} sine")
    module = parse(text)
    (first, *_) = cuts(module, ELSE, "produced", "padded")
    header, body = program_text(first).split("\n", 1)
    assert "entry_computation_layout={(f32[64,32]{0,1})->(f32[66,32]{1,0})}" in header
    assert "{1,0}" not in body and "T(8" not in body


def test_a_value_that_is_not_read_is_no_pair():
    with pytest.raises(UnusableInput, match="does not read"):
        all_cuts("summed", "padded")
    with pytest.raises(UnusableInput, match="nothing is not in the module"):
        all_cuts("nothing", "padded")


def test_without_other_users_the_producer_has_one():
    (change,) = changes(all_cuts()[1], "other users")
    assert (change.before, change.after) == ("reduce", "nothing")
    by_name = {
        instruction.name: instruction for instruction in change.cut.module.entry.instructions
    }
    assert [user.name for user in by_name[change.cut.producer].users] == [change.cut.consumer]
    assert not changes(all_cuts()[0], "other users")


def test_other_operations_take_the_places_of_the_two():
    cut = all_cuts()[0]
    (change,) = changes(cut, "producer's operation")
    assert opcodes(change.cut) == ["multiply", "pad"]
    (change,) = changes(cut, "consumer's operation")
    assert opcodes(change.cut) == ["add", "exponential"]
    (change,) = changes(cut, "consumer is a single operation")
    assert opcodes(change.cut) == ["add", "exponential", "pad"]


def test_a_pad_moves_to_another_dimension():
    (change,) = changes(all_cuts()[0], "dimension")
    by_name = {
        instruction.name: instruction for instruction in change.cut.module.entry.instructions
    }
    padded = by_name[change.cut.consumer]
    assert padded.attributes["padding"] == "0_0x1_1"
    assert padded.shape.dimensions == (64, 34)


JOINED = parse("""HloModule step

ENTRY main {
  x = f32[8,16]{1,0} parameter(0)
  y = f32[8,5]{1,0} parameter(1)
  joined = f32[8,26]{1,0} concatenate(x, y, y), dimensions={1}
  again = f32[8,57]{1,0} concatenate(joined, joined, y), dimensions={1}
  ROOT last = f32[8,57]{1,0} negate(again)
}
""")


def read(change: Change, name: str) -> tuple[str, list[tuple[int | None, ...]]]:
    by_name = {
        instruction.name: instruction for instruction in change.cut.module.entry.instructions
    }
    actual = by_name[name]
    return str(actual.shape), [operand.shape.dimensions for operand in actual.operands]


def test_a_concatenate_of_many_arrays_is_one_of_two():
    (cut, *_) = cuts(JOINED, ELSE, "joined", "again")
    consumed, produced = changes(cut, "number of operands")
    assert read(consumed, consumed.cut.consumer) == ("f32[8,52]{1,0}", [(8, 26), (8, 26)])
    assert read(produced, produced.cut.producer) == ("f32[8,26]{1,0}", [(8, 13), (8, 13)])


def test_a_consumer_concatenates_along_another_dimension():
    (cut, *_) = cuts(JOINED, ELSE, "joined", "again")
    change = changes(cut, "dimension")[0]
    assert (change.before, change.after) == ("1", "0")
    assert read(change, change.cut.consumer) == ("f32[24,26]", [(8, 26)] * 3)


def test_a_producer_concatenates_along_another_dimension():
    (cut, *_) = cuts(JOINED, ELSE, "again", "last")
    (change,) = changes(cut, "dimension")
    assert (change.before, change.after) == ("1", "0")
    assert read(change, change.cut.producer) == (
        "f32[8,57]{1,0}",
        [(3, 57), (3, 57), (2, 57)],
    )


def test_sizes_change_everywhere():
    output = resized(all_cuts()[-1], 32, 128)
    assert output is not None
    shapes = {
        instruction.opcode: instruction.shape.dimensions
        for instruction in output.module.entry.instructions
    }
    assert shapes["exponential"] == (64, 128)
    assert shapes["pad"] == shapes["negate"] == (66, 128)
    assert shapes["reduce"] == (64,)
    output = resized(all_cuts()[-1], 64, 8)
    assert output is not None
    shapes = {
        instruction.opcode: instruction.shape.dimensions
        for instruction in output.module.entry.instructions
    }
    assert shapes["pad"] == (10, 32) and shapes["reduce"] == (8,)


class Sized:
    """A compiler that fuses pairs whose producer has at most ``most`` rows."""

    settings = ()

    def __init__(self, most: int) -> None:
        self._most = most

    def write(self, cut: Cut) -> str:
        return program_text(cut)

    def ask(self, cut: Cut) -> Answer:
        (producer,) = (e for e in cut.module.entry.instructions if e.name == cut.producer)
        return Answer.FUSED if producer.shape.dimensions[0] <= self._most else Answer.NOT_FUSED


@pytest.mark.parametrize("most", [1, 8, 21, 63])
def test_the_threshold_of_a_size_is_found_by_halving(most):
    output = experiment(MODULE, ELSE, "produced", "padded", Sized(most))
    assert output.threshold == Threshold(size=64, fused=most, refused=most + 1)
    (flip,) = (flip for flip in output.flips if flip.factor == "size")
    assert (flip.before, flip.after) == ("64", str(most))
    words = answer_in_words(output)
    assert words.startswith("not fused because a dimension has 64 elements; with up to")
    assert f"up to {most}, but not {most + 1}, the compiler" in words or most == 63


def test_there_is_no_threshold_where_no_size_matters():
    assert experiment(MODULE, ELSE, "produced", "padded", Sized(0)).threshold is None


class Both:
    """A compiler that fuses a multiply into an add, and loses all other multiplies."""

    settings = ()

    def write(self, cut: Cut) -> str:
        return program_text(cut)

    def ask(self, cut: Cut) -> Answer:
        by_name = {
            instruction.name: instruction.opcode for instruction in cut.module.entry.instructions
        }
        if by_name[cut.producer] != "multiply":
            return Answer.NOT_FUSED
        return Answer.FUSED if by_name[cut.consumer] == "add" else Answer.GONE


def test_two_changes_are_combined_even_if_one_alone_loses_the_pair():
    output = experiment(MODULE, ELSE, "produced", "padded", Both())
    assert output.cause == "producer's operation and consumer's operation"


def test_what_is_between_two_numbers_is_round():
    assert round_between(64, 512) == 256
    assert round_between(512, 300) == 384
    assert round_between(96, 98) == 97
    assert round_between(96, 97) is None


def test_a_producer_that_reads_several_arrays_reads_one():
    text = TEXT.replace("exponential(early)", "divide(x, early)")
    (cut, *_) = cuts(parse(text), ELSE, "produced", "padded")
    (change,) = changes(cut, "reads of the producer")
    assert (change.before, change.after) == ("2", "1")
    assert opcodes(change.cut) == ["broadcast", "divide", "pad"]
    assert not changes(all_cuts()[0], "reads of the producer")


def test_a_consumer_that_reads_through_a_bitcast_is_changed_like_others():
    text = TEXT.replace("f32[66,32]{1,0}", "f32[34,64]{0,1}")
    text = text.replace(
        "  padded = f32[34,64]{0,1} pad(produced",
        "  seen = f32[32,64]{0,1} bitcast(produced)\n  padded = f32[34,64]{0,1} pad(seen",
    )
    actual = list(cuts(parse(text), ELSE, "produced", "padded"))
    (change,) = changes(actual[1], "other users")
    assert opcodes(change.cut) == ["exponential", "pad", "reduce", "transpose"]


def test_the_opposite_layout_is_that_of_parameters_and_results():
    (change,) = changes(all_cuts()[0], "layout")
    assert (change.before, change.after) == ("{1,0}", "{0,1}")
    header = program_text(change.cut).partition("\n")[0]
    assert "{(f32[64,32]{0,1})->(f32[66,32]{0,1})}" in header


ELEMENTWISE = parse("""HloModule step

ENTRY main {
  x = f32[8,16]{1,0} parameter(0)
  zero = f32[] constant(0)
  wide = f32[8,16]{1,0} broadcast(zero), dimensions={}
  made = f32[8,16]{1,0} maximum(x, wide)
  halved = f32[8,16]{1,0} negate(made)
  ROOT last = f32[8,16]{1,0} abs(halved)
}
""")


def test_elementwise_arrays_of_several_dimensions_become_flat():
    *_, cut = cuts(ELEMENTWISE, ELSE, "made", "halved")
    (change,) = changes(cut, "rank")
    shapes = {str(instruction.shape) for instruction in change.cut.module.entry.instructions}
    assert shapes == {"f32[128]{0}", "f32[]", "(f32[128]{0})"}
    assert not changes(all_cuts()[0], "rank")  # a pad is not elementwise


def test_a_result_takes_the_buffer_of_a_parameter_that_the_pair_reads():
    (cut, *_) = cuts(ELEMENTWISE, ELSE, "made", "halved")
    (change,) = changes(cut, "donated buffer")
    module = parse(program_text(change.cut))
    (result,) = module.entry.root.operands
    assert "input_output_alias={ {0}: (0, {}, may-alias) }" in module.header
    inputs = [
        instruction
        for instruction in module.entry.instructions
        if instruction.statement.inside == "0"
    ]
    assert [item.shape for item in inputs] == [result.shape]
    assert not changes(all_cuts()[0], "donated buffer")  # of another shape


GUARDED = parse("""HloModule step

ENTRY main {
  x = f32[8]{0} parameter(0)
  y = f32[8]{0} parameter(1)
  made = f32[8]{0} sine(x)
  both = (f32[8]{0}, f32[8]{0}) tuple(made, y)
  kept = (f32[8]{0}, f32[8]{0}) opt-barrier(both)
  again = f32[8]{0} get-tuple-element(kept), index=0
  halved = f32[8]{0} negate(again)
  ROOT last = f32[8]{0} abs(halved)
}
""")


def test_a_barrier_is_removed_or_added():
    actual = list(cuts(GUARDED, ELSE, "made", "halved"))
    (removed,) = changes(actual[0], "barrier")
    assert opcodes(removed.cut) == ["negate", "sine"]
    removed, added = changes(actual[-1], "barrier")
    by_name = {instruction.name: instruction for instruction in added.cut.module.entry.instructions}
    (user,) = by_name[added.cut.consumer].users
    assert user.opcode == "opt-barrier" and [item.opcode for item in user.users] == ["abs"]
    assert removed.what == "a barrier between the two"


class Flagged(Both):
    """A compiler that fuses everything with one flag."""

    settings = (Setting("xla_one", "true", "false"), Setting("xla_other", "", "a,b"))

    def ask(self, cut: Cut) -> Answer:
        return Answer.FUSED if cut.flags == (("xla_other", "a,b"),) else Answer.NOT_FUSED


def test_a_flag_may_be_the_cause():
    output = experiment(MODULE, ELSE, "produced", "padded", Flagged())
    assert output.cause == "flag"
    assert [question.answer for question in output.questions if question.factor == "flag"] == [
        Answer.NOT_FUSED,
        Answer.FUSED,
    ]
    assert answer_in_words(output) == (
        "not fused because xla_other is empty; with a,b, the compiler fuses it"
    )


GATHERED = parse("""HloModule step

kernel {
  table = f32[64,32]{1,0} parameter(0)
  wide = s32[128]{0} parameter(1)
  hint = s32[128]{0} custom-call(wide), custom_call_target="AssumeGatherIndicesInBound"
  places = s32[8]{0} slice(hint), slice={[0:8]}
  rows = f32[8,32]{1,0} gather(table, places), offset_dims={1}, collapsed_slice_dims={0}, \
start_index_map={0}, index_vector_dim=1, slice_sizes={1,32}
  ROOT turned = f32[8,32]{1,0} transpose(rows), dimensions={0,1}
}

ENTRY main {
  x = f32[64,32]{1,0} parameter(0)
  y = s32[128]{0} parameter(1)
  clamped = s32[128]{0} negate(y)
  gathered = f32[8,32]{1,0} fusion(x, clamped), kind=kCustom, calls=kernel
  ROOT last = f32[8,32]{1,0} negate(gathered)
}
""")


@pytest.mark.parametrize("pair", [("clamped", "gathered"), ("gathered", "last")])
def test_a_kernel_that_the_compiler_made_before_fusion_is_taken_apart(pair):
    (cut, *_) = cuts(GATHERED, ELSE, *pair)
    assert opcodes(cut) == ["gather", "negate", "slice"]
    by_name = {
        instruction.name: instruction.opcode for instruction in cut.module.entry.instructions
    }
    assert {by_name[cut.producer], by_name[cut.consumer]} == {"negate", "gather"}
    (change,) = changes(cut, "consumer's operation")
    assert "add" in opcodes(change.cut)


@pytest.mark.parametrize("factor", FACTORS, ids=lambda item: item.name)
def test_every_change_is_a_valid_program_with_the_pair(factor):
    for cut in all_cuts():
        for change in factor.changes(cut):
            module = parse(program_text(change.cut))
            module.check()
            names = [instruction.op_name for instruction in module.entry.instructions]
            assert names.count(PRODUCER) == names.count(CONSUMER) == 1, change


@pytest.mark.parametrize(
    ("source", "result"),
    [
        ("f32[2,3,4]{2,1,0}", "f32[6,4]{1,0}"),
        ("f32[2,3]{0,1}", "f32[3,2]{1,0}"),
        ("f32[2,3]{1,0}", "f32[2,3]{1,0}"),
        ("f32[4,6]{0,1}", "f32[2,3,4]{2,1,0}"),
    ],
)
def test_a_bitcast_becomes_moves_that_keep_the_order_in_memory(source, result):
    numpy = pytest.importorskip("numpy")
    graph = MutableModule(
        parse(
            f"HloModule m\n\nENTRY e {{\n  x = {source} parameter(0)\n"
            f"  ROOT y = {result} bitcast(x)\n}}\n"
        )
    )
    write_bitcasts(graph)
    entry = to_module(graph).entry
    assert all(instruction.opcode != "bitcast" for instruction in entry.instructions)
    inputs, output = entry.instructions[0].shape, entry.root.shape
    value = numpy.arange(inputs.element_count)
    order = inputs.layout.minor_to_major[::-1]
    value = value.reshape([inputs.dimensions[item] for item in order])
    value = value.transpose(numpy.argsort(order))
    for instruction in entry.instructions[1:]:
        if instruction.opcode == "transpose":
            value = value.transpose(
                json.loads(instruction.attributes["dimensions"].translate(LIST))
            )
        else:
            value = value.reshape(instruction.shape.dimensions)
    memory = value.transpose(output.layout.minor_to_major[::-1]).ravel()
    assert list(memory) == list(range(output.element_count))
